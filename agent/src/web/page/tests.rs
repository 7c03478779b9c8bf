#![allow(clippy::unwrap_used)]

use firstlight_api::{
    addon::AddonState,
    artifact::{Arch, Artifact, ArtifactSpec, ArtifactState, Kind},
    backup::{BackupFile, BackupStatus},
    seal::{Bound, RootOfTrust, SealStatus},
    software::{NodeState, NodeStatus, PackageState, PackageStatus, SoftwareState},
    status::{
        AddonLine, ClusterMachine, ClusterStatus, HardwareSummary, HostControl, HostEvent,
        RootDiskState, RootDiskStatus, SoftwareLine, TpmStatus, UpdateStage, UpgradeLine,
    },
    upgrade::UpgradeState,
};

use super::*;

fn step(name: &str, title: &str, state: StepState) -> Step {
    Step {
        name: name.into(),
        title: title.into(),
        state,
    }
}

/// A site in the middle of things, with every kind of state, step and problem.
fn busy_site() -> SiteStatus {
    let done = |started, ended| StepState::Done { started, ended };
    SiteStatus {
        site: "rack-7".into(),
        version: "0.1.0".into(),
        uptime: 312.4,
        ready: false,
        bring_up: vec![
            step("site", "Read site.yaml", done(6.1, 6.4)),
            step("state", "State partition", done(6.1, 14.9)),
            step("network", "Provisioning network", done(6.4, 9.7)),
            step("pki", "Certificates and passwords", done(14.9, 15.3)),
            step("dhcp", "DHCP and network boot", done(15.3, 18.4)),
            step("etcd", "etcd", done(15.3, 31.0)),
            step("apiserver", "Kubernetes API", done(31.0, 96.2)),
            step("node", "Kubernetes node", StepState::Running { started: 96.2 }),
            step(
                "coredns",
                "Cluster DNS",
                StepState::Failed {
                    started: 96.2,
                    ended: 300.0,
                    problem: Problem {
                        what: "no pod of coredns is ready".into(),
                        next: "the box keeps trying; log in as admin and read `journalctl -u kubelet`".into(),
                    },
                },
            ),
            step("ironic", "Ironic", StepState::Waiting),
        ],
        network: NetworkStatus {
            interface: "enp1s0".into(),
            mac: "52:54:00:aa:00:01".into(),
            address: "172.22.0.1/24".into(),
            dhcp: DhcpMode::Serving,
            leases: 3,
            ..NetworkStatus::default()
        },
        hosts: busy_hosts(),
        certificates: vec![],
        controllers: vec![],
        seal: Some(SealStatus {
            root_of_trust: RootOfTrust::Tpm,
            bound: Some(Bound::Machine),
            ..SealStatus::default()
        }),
        backup: Some(BackupStatus {
            last: Some(BackupFile {
                name: "lab-20261122T030000Z.backup".to_owned(),
                bytes: 12 << 20,
            }),
            made: 1_795_316_400,
            copies: vec!["server n1".to_owned()],
        }),
        before_start: vec!["2026-11-22T03:00:01+00:00 etcd[7]: slow <fdatasync>".into()],
        clusters: vec![busy_cluster()],
        addons: busy_addons(),
        upgrades: vec![UpgradeLine {
            name: "lab".to_owned(),
            cluster: "lab".to_owned(),
            to: "Kubernetes v1.37.2".to_owned(),
            state: UpgradeState::Upgrading,
            ready: "1/3".to_owned(),
            message: "alpha: its packages are changed".to_owned(),
        }],
        update: Some(UpdateStage::Writing { percent: 45 }),
        software: busy_software(),
        artifacts: busy_store(),
        problems: vec![Problem {
            what: "site.yaml is not used: line 3, column 3: unknown key `interfce`; did you mean `interface`?".into(),
            next: "mend site.yaml on the stick and start the box again".into(),
        }],
    }
}

fn busy_cluster() -> ClusterStatus {
    let machine =
        |name: &str, control_plane, host: &str, phase: &str, message: &str| ClusterMachine {
            name: name.into(),
            control_plane,
            host: host.into(),
            node: host.into(),
            version: "v1.36.3".into(),
            phase: phase.into(),
            message: message.into(),
        };
    ClusterStatus {
        name: "rack-7".into(),
        namespace: "default".into(),
        phase: "Provisioned".into(),
        version: "v1.36.3".into(),
        endpoint: "172.22.0.254:6443".into(),
        control_planes_ready: 1,
        control_planes_wanted: 1,
        workers_ready: 0,
        workers_wanted: 2,
        message: "2 workers are not available".into(),
        machines: vec![
            machine("rack-7-control-plane-x7k2p", true, "n3", "Running", ""),
            machine(
                "rack-7-workers-5d8f9-abcde",
                false,
                "n1",
                "Provisioning",
                "host n1 is provisioning",
            ),
            machine(
                "rack-7-workers-5d8f9-fghij",
                false,
                "",
                "Pending",
                "no matching free host among 4: 2 in use, 2 not available yet; add a server, or free one",
            ),
        ],
    }
}

fn busy_addons() -> Vec<AddonLine> {
    let addon = |name: &str, state, chart: &str, message: &str| AddonLine {
        name: name.into(),
        cluster: "rack-7".into(),
        state,
        chart: chart.into(),
        message: message.into(),
    };
    vec![
        addon("multus", AddonState::Ready, "multus-4.2.3", ""),
        addon(
            "web",
            AddonState::Failed,
            "web-1.2.3",
            "Deployment team/web: pod web-5d8f9-abcde: ErrImagePull: not found",
        ),
        addon(
            "db",
            AddonState::Pending,
            "",
            "it waits for the Addon web, which is failed",
        ),
    ]
}

fn busy_software() -> Vec<SoftwareLine> {
    let package = |have: &str, state, reason: &str| PackageStatus {
        name: "htop".into(),
        wanted: "3.4.1-5".into(),
        have: have.into(),
        state,
        reason: reason.into(),
        since: String::new(),
    };
    let node = |name: &str, state, message: &str, package| NodeStatus {
        name: name.into(),
        cluster: "rack-7".into(),
        node: name.into(),
        state,
        message: message.into(),
        packages: vec![package],
        ..NodeStatus::default()
    };
    let reason = "installed htop package post-installation script subprocess returned error exit status 1; it said: <no>";
    vec![SoftwareLine {
        name: "tools".into(),
        state: SoftwareState::Stopped,
        ready: "1/4".into(),
        message: "1 of 4 servers failed and maxUnavailable allows 1, so no further one is touched"
            .into(),
        nodes: vec![
            node(
                "n1",
                NodeState::Ready,
                "",
                package("3.4.1-5", PackageState::Ready, ""),
            ),
            node(
                "n3",
                NodeState::Failed,
                "htop 3.4.1-5 is broken",
                package("3.4.1-5", PackageState::Failed, reason),
            ),
            node(
                "n5",
                NodeState::Waiting,
                "the roll-out has stopped before it",
                package("none", PackageState::Pending, ""),
            ),
            node(
                "n6",
                NodeState::Waiting,
                "it has not joined its cluster yet",
                package("", PackageState::Pending, ""),
            ),
        ],
    }]
}

fn busy_store() -> Vec<Artifact> {
    let artifact = |kind, name: &str, version: &str, size, state| Artifact {
        id: name.into(),
        spec: ArtifactSpec {
            kind,
            name: name.into(),
            version: version.into(),
            arch: Arch::Amd64,
            size,
            sha256: "ab".repeat(32),
        },
        state,
        reference: String::new(),
        checksum: String::new(),
        used_by: Vec::new(),
    };
    let failed = ArtifactState::Failed {
        reason: "the archive is not whole: <index.json> is missing".into(),
        next: "delete the artifact, mend what the reason names, and upload it again".into(),
    };
    let offset = 612_000_000;
    vec![
        Artifact {
            used_by: vec!["BareMetalHost n1".into(), "BareMetalHost n3".into()],
            ..artifact(
                Kind::Image,
                "debian",
                "13.2",
                431_000_000,
                ArtifactState::Ready,
            )
        },
        artifact(
            Kind::Image,
            "rocky",
            "10",
            1_900_000_000,
            ArtifactState::Uploading { offset },
        ),
        artifact(
            Kind::Chart,
            "web",
            "1.2.3",
            4_100,
            ArtifactState::Publishing,
        ),
        artifact(Kind::Container, "team/web", "1.2", 31_000_000, failed),
    ]
}

fn busy_hosts() -> Vec<HostStatus> {
    let hardware = HardwareSummary {
        product: "ProLiant DL360 Gen10".into(),
        cpus: 32,
        memory_mib: 131_072,
        disks: vec!["/dev/nvme0n1 960 GB".into(), "/dev/sda 4.0 TB".into()],
        boot_mode: "UEFI".into(),
        tpm: TpmStatus::Bound,
        ..HardwareSummary::default()
    };
    let host = |name: &str, state, step: &str| HostStatus {
        name: name.into(),
        mac: "52:54:00:bb:00:01".into(),
        address: "172.22.0.21".into(),
        state,
        step: step.into(),
        since: 200.0,
        hardware: Some(hardware.clone()),
        ..HostStatus::default()
    };
    let event = |state, started, ended| HostEvent {
        state,
        started,
        ended,
    };
    vec![
        HostStatus {
            percent: Some(41),
            rule: Some(2),
            root_disk: Some(RootDiskStatus {
                state: RootDiskState::Writes,
                says: "writes /dev/nvme0n1 (960 GB, serial S3X1): the smallest of 2 disks".into(),
                problem: None,
            }),
            history: vec![event(HostState::Registering, 120.0, 123.0), event(HostState::Inspecting, 123.0, 171.0)],
            ..host("n1", HostState::Provisioning, "writing node.raw.zst, 41 %")
        },
        HostStatus {
            problem: Some(Problem {
                what: "disk /dev/sda carries gpt, ext4".into(),
                next: "to install this server and lose what is on it, add its MAC with `install: wipe` to site.yaml".into(),
            }),
            no_rule: "no rule of site.yaml fits this server".into(),
            ..host("host-525400bb0002", HostState::Discovered, "left alone")
        },
        HostStatus {
            root_disk: Some(RootDiskStatus {
                state: RootDiskState::Wrote,
                says: "wrote /dev/sda (4000 GB, serial S1) and /dev/sdb (4000 GB, serial S2) as a mirror: the only two disks".into(),
                problem: Some(Problem {
                    what: "its mirror has lost /dev/sda (4000 GB, serial S1)".into(),
                    next: "put in another disk".into(),
                }),
            }),
            ..host("n3", HostState::Running, "running Debian 13")
        },
        HostStatus {
            problem: Some(Problem { what: "<script>alert('x')</script> & \"more\"".into(), next: "look at the server's screen".into() }),
            hardware: None,
            ..host("n4", HostState::Failed, "the image was not written")
        },
        HostStatus {
            control: HostControl {
                spare: true,
                cluster: "edge".into(),
                no_kexec: true,
                ..HostControl::default()
            },
            ..host("n5", HostState::Staged, "installed ahead of time; its system waits to be claimed")
        },
    ]
}

/// `UPDATE_GOLDEN=1 cargo test -p firstlight-agent` renews the file; look at it in a browser then.
#[test]
fn the_page_of_a_busy_site_is_as_it_was() {
    let path = "src/web/golden/page.html";
    let page = render(&busy_site(), Reader::Anybody);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(path, &page).unwrap();
    }
    let golden = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        page == golden,
        "the page changed; renew it with UPDATE_GOLDEN=1 and look at it in a browser"
    );
}

#[test]
fn texts_of_strangers_stay_texts_and_nothing_is_loaded_from_elsewhere() {
    let page = render(&busy_site(), Reader::Anybody);
    assert!(
        page.contains("&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt; &amp; &quot;more&quot;")
    );
    assert_eq!(page.matches("<script>").count(), 1);
    assert!(
        !page.contains("http://") && !page.contains("https://") && !page.contains("src="),
        "an external resource"
    );
}

#[test]
fn an_empty_site_says_what_to_do() {
    let page = render(&SiteStatus::default(), Reader::Anybody);
    assert!(page.contains("No server seen yet."));
}

#[test]
fn spans_read_well() {
    for (seconds, text) in [
        (0.0, "0 s"),
        (-3.0, "0 s"),
        (59.9, "59 s"),
        (60.0, "1 min 0 s"),
        (3599.0, "59 min 59 s"),
        (7260.0, "2 h 1 min"),
    ] {
        assert_eq!(Span(seconds).to_string(), text);
    }
}

#[test]
fn who_may_ask_has_a_button_for_each_verb_that_a_server_takes_and_nobody_else_has() {
    let mut site = busy_site();
    let mut host = site.hosts[0].clone();
    host.name = "n\"1<b>".to_owned();
    host.state = HostState::Failed;
    host.control = HostControl {
        failed: Some(firstlight_api::status::FailedStep::Inspection),
        power: firstlight_api::status::HostPower::On,
        consumer: "Metal3Machine lab-1".to_owned(),
        ..HostControl::default()
    };
    site.hosts = vec![host];
    let page = render(&site, Reader::Operator);
    for verb in ["retry", "skip-inspection"] {
        let button = format!("action=\"/api/v1/hosts/n&quot;1&lt;b&gt;/{verb}\"");
        assert!(page.contains(&button), "{verb}: {page}");
    }
    // What ends somebody's work is asked for twice.
    let sure = "<details><summary>power off</summary>";
    assert!(
        page.contains(sure) && page.contains("name=\"yes\""),
        "{page}"
    );
    assert!(!page.contains("/forget") && !page.contains("/unspare"));
    for reader in [Reader::Anybody, Reader::Viewer] {
        let page = render(&site, reader);
        assert!(!page.contains("class=\"verbs\""), "{reader:?}");
        assert_eq!(page.contains("Log out"), reader == Reader::Viewer);
    }
}
