#![allow(clippy::unwrap_used)]

use firstlight_api::{
    addon::AddonState,
    artifact::{Arch, Artifact, ArtifactSpec, ArtifactState, Kind},
    backup::{BackupFile, BackupStatus},
    seal::{Bound, RootOfTrust, SealStatus},
    software::{NodeState, NodeStatus, PackageState, PackageStatus, SoftwareState},
    status::{
        AddonLine, Alarm, BoxNic, CertificateEnd, ClusterMachine, ClusterStatus, ControllerRound,
        DhcpMode, DiskSummary, FailedStep, HardwareSummary, HostControl, HostEvent, HostPower,
        HostState, HostStatus, MachineStatus, NetworkStatus, NicSummary, Problem, RootDiskState,
        RootDiskStatus, SoftwareLine, Space, Step, StepState, TpmStatus, UpdateStage, UpgradeLine,
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

fn machine() -> MachineStatus {
    let nic = |name: &str, speed| BoxNic {
        name: name.into(),
        mac: "52:54:00:00:00:01".into(),
        link: speed > 0,
        speed,
    };
    MachineStatus {
        product: "Dell Inc. PowerEdge R660".into(),
        serial: "7XK2P14".into(),
        nics: vec![nic("enp1s0", 25000), nic("enp2s0", 0)],
        state: Some(Space {
            size: 28_000_000_000,
            free: 21_000_000_000,
        }),
    }
}

/// A site in the middle of things, with every kind of state, step and problem.
pub fn busy_site() -> SiteStatus {
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
        machine: machine(),
        network: NetworkStatus {
            interface: "enp1s0".into(),
            mac: "52:54:00:aa:00:01".into(),
            address: "172.22.0.1/24".into(),
            dhcp: DhcpMode::Serving,
            leases: 3,
            ..NetworkStatus::default()
        },
        hosts: busy_hosts(),
        certificates: vec![CertificateEnd {
            cluster: "rack-7".into(),
            end: 1_826_852_361,
        }],
        controllers: vec![ControllerRound {
            name: "addons".into(),
            started: 61.0,
            took: 0.25,
            failed: 1,
            failures: vec!["the Addon <b> cannot be read".into()],
            ..ControllerRound::default()
        }],
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
        alarms: vec![Alarm {
            name: "StickFull".into(),
            problem: Problem {
                what: "the state partition has 4.2 % left".into(),
                next: "delete uploads that nobody uses".into(),
            },
        }],
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

fn disk(name: &str, gigabytes: u64, found: &[&str]) -> DiskSummary {
    DiskSummary {
        name: name.into(),
        kind: "SSD".into(),
        size_bytes: gigabytes * 1_000_000_000,
        model: "Micron 7450".into(),
        serial: "S3X1".into(),
        found: found.iter().map(ToString::to_string).collect(),
    }
}

fn busy_hosts() -> Vec<HostStatus> {
    let hardware = HardwareSummary {
        product: "ProLiant DL360 Gen10".into(),
        cpus: 32,
        memory_mib: 131_072,
        serial: "CZ2D".into(),
        disks: vec![
            disk("/dev/nvme0n1", 960, &[]),
            disk("/dev/sda", 4000, &["gpt", "ext4"]),
        ],
        interfaces: vec![
            NicSummary {
                name: "eno1".into(),
                mac: "52:54:00:bb:00:01".into(),
                model: "0x8086 0x1521".into(),
                speed_gbps: 1,
                address: "172.22.0.21".into(),
                boots: true,
                switch: "rack-7-a".into(),
                port: "Ethernet1/7".into(),
            },
            NicSummary {
                name: "eno2".into(),
                mac: "52:54:00:bb:01:01".into(),
                ..NicSummary::default()
            },
        ],
        boot_mode: "UEFI".into(),
        tpm: TpmStatus::Bound,
        ..HardwareSummary::default()
    };
    let host = |name: &str, state, step: &str| HostStatus {
        name: name.into(),
        namespace: "default".into(),
        mac: format!(
            "52:54:00:bb:00:{:02x}",
            name.len() * 16 + usize::from(name.as_bytes()[1] - b'0')
        ),
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

fn pages() -> Vec<(&'static str, Page)> {
    let targets = [
        ("front", "/"),
        ("hosts", "/hosts?q=proliant&group=state&sort=since"),
        ("host", "/hosts/n1"),
        ("clusters", "/clusters"),
        ("software", "/software"),
        ("store", "/store"),
        ("box", "/box"),
    ];
    let of = |target| Page::of_target(target).unwrap();
    targets.map(|(name, target)| (name, of(target))).into()
}

/// Without what changes by itself.
fn still(site: &SiteStatus, page: &Page, reader: Reader) -> String {
    render(site, page, reader, Manner::Still)
}

/// `UPDATE_GOLDEN=1 cargo test` renews the files; look at the pages in a browser then.
#[test]
fn the_pages_of_a_busy_site_are_as_they_were() {
    for (name, page) in pages() {
        let path = format!("src/web/golden/page/{name}.html");
        let page = still(&busy_site(), &page, Reader::Admin);
        // What all have is in the first.
        let page = match name {
            "front" => page.as_str(),
            _ => &page[page.find("<main").unwrap()..page.find("<footer").unwrap()],
        };
        let page = page.replace('<', "\n<");
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(&path, &page).unwrap();
        }
        let golden = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            page == golden,
            "{path}: the page changed; renew it with UPDATE_GOLDEN=1 and look at it in a browser"
        );
    }
}

#[test]
fn texts_of_strangers_stay_texts_and_nothing_is_loaded_from_elsewhere() {
    for (name, page) in pages() {
        let page = render(&busy_site(), &page, Reader::Anybody, Manner::Whole);
        assert_eq!(page.matches("<script").count(), 1, "{name}");
        assert!(
            !page.contains("http://") && !page.contains("https://"),
            "{name}: an external resource"
        );
        assert!(!page.contains(" on") || !page.contains("onclick"), "{name}");
        assert!(
            !page.contains("style=\"") && !page.contains("<style"),
            "{name}"
        );
    }
    let page = still(&busy_site(), &Page::Front, Reader::Anybody);
    assert!(
        page.contains("&lt;script&gt;alert('x')&lt;/script&gt; &amp; &quot;more&quot;"),
        "{page}"
    );
}

#[test]
fn an_empty_site_says_what_to_do() {
    let mut site = SiteStatus {
        ready: true,
        ..SiteStatus::default()
    };
    let page = still(&site, &Page::Front, Reader::Anybody);
    assert!(
        page.contains("No server seen yet.") && page.contains("all is well"),
        "{page}"
    );
    site.ready = false;
    let page = still(&site, &Page::Front, Reader::Anybody);
    assert!(page.contains("starting"), "{page}");
}

#[test]
fn a_site_is_never_well_while_somebody_should_know_of_something() {
    let title = |site: &SiteStatus| {
        let page = still(site, &Page::Front, Reader::Anybody);
        let title = page.split("data-title=\"").nth(1).unwrap();
        title.split('"').next().unwrap().to_owned()
    };
    let mut site = SiteStatus {
        site: "lab".into(),
        ready: true,
        ..SiteStatus::default()
    };
    assert_eq!(title(&site), "lab · all is well");
    site.hosts = busy_hosts();
    assert_eq!(title(&site), "lab · 2 things need you");
    site.hosts
        .retain(|host| host.state == HostState::Provisioning);
    assert_eq!(title(&site), "lab · at work");
    site.hosts.clear();
    site.alarms = busy_site().alarms;
    assert_eq!(title(&site), "lab · 1 thing needs you");
}

#[test]
fn nothing_that_stands_still_changes_with_the_time() {
    for (name, page) in pages() {
        let mut site = busy_site();
        let before = still(&site, &page, Reader::Viewer);
        site.uptime += 60.0;
        assert_eq!(before, still(&site, &page, Reader::Viewer), "{name}");
        let whole = |site| render(site, &page, Reader::Viewer, Manner::Whole);
        assert_ne!(whole(&busy_site()), whole(&site), "{name}");
    }
}

#[test]
fn servers_are_found_by_what_is_known_of_them() {
    let rows = |query: &str| {
        let page = Page::of_target(&format!("/hosts?{query}")).unwrap();
        let page = still(&busy_site(), &page, Reader::Viewer);
        page.matches("<tr id=\"host-").count()
    };
    assert_eq!(rows(""), 5);
    assert_eq!(rows("q=host-5254"), 1);
    assert_eq!(
        rows("q=PROLIANT+ext4"),
        4,
        "each word, in whatever is known"
    );
    assert_eq!(rows("q=proliant+fast"), 0);
    assert_eq!(rows("q=ethernet1/7"), 4, "a port of a switch");
    assert_eq!(rows("state=running"), 1);
    assert_eq!(rows("state=running&q=host-5254"), 0);
    assert_eq!(rows("group=switch&q=s3x1"), 4);
}

#[test]
fn who_may_ask_has_a_button_for_each_verb_that_a_server_takes_and_others_have_the_command() {
    let mut site = busy_site();
    let mut host = site.hosts[0].clone();
    host.name = "n\"1<b>".to_owned();
    host.state = HostState::Failed;
    host.control = HostControl {
        failed: Some(FailedStep::Inspection),
        power: HostPower::On,
        consumer: "Metal3Machine lab-1".to_owned(),
        ..HostControl::default()
    };
    let shown = Page::Host(host.name.clone());
    site.hosts = vec![host];
    let page = still(&site, &shown, Reader::Operator);
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
        let page = still(&site, &shown, reader);
        assert!(!page.contains("class=\"verbs\""), "{reader:?}");
        assert!(
            page.contains("firstlight hosts retry n&quot;1&lt;b&gt;"),
            "{page}"
        );
        assert_eq!(page.contains("Log out"), reader == Reader::Viewer);
    }
}

/// Two servers of one name are in two namespaces.
#[test]
fn a_server_that_nobody_knows_is_told_and_two_of_one_name_are_both_shown() {
    let mut site = busy_site();
    let mut other = site.hosts[0].clone();
    (other.namespace, other.mac) = ("team".to_owned(), "52:54:00:cc:00:01".to_owned());
    site.hosts.push(other);
    let page = still(&site, &Page::Host("n1".to_owned()), Reader::Viewer);
    assert!(
        page.contains("default/n1") && page.contains("team/n1"),
        "{page}"
    );
    let page = still(&site, &Page::Host("n9".to_owned()), Reader::Viewer);
    assert!(page.contains("No server is called that."), "{page}");
}
