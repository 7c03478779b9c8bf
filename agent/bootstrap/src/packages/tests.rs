#![allow(clippy::unwrap_used)]

use firstlight_api::{
    packages::{KubernetesOrder, KubernetesStep},
    repository::Repository,
    software::PackageSpec,
};

use super::*;
use crate::files::NewFile;

const INSTALLED: &str = "hello\t1.0\tinstalled\tok\n";
const UNKNOWN: &str = "dpkg-query: no packages found matching hello\n";
const BROKEN: &str = "\
Setting up hello (2.0) ...
no space in the attic
dpkg: error processing package hello (--configure):
 installed hello package post-installation script subprocess returned error exit status 1
Errors were encountered while processing:
 hello
E: Sub-process /usr/bin/dpkg returned an error code (1)
";

/// Answers by the start of the command line, each answer once, the last one for ever.
#[derive(Default)]
struct Fake {
    answers: Vec<(&'static str, Vec<&'static str>)>,
    ran: Vec<String>,
    locked: usize,
    reboot: bool,
}

impl Server for Fake {
    type Lock = ();

    fn run(&mut self, program: &str, arguments: &[&str]) -> Result<CommandOutput> {
        let line = format!("{program} {}", arguments.join(" "));
        let found = self
            .answers
            .iter_mut()
            .find(|(start, _)| line.starts_with(start));
        let text = match found {
            Some((_, texts)) if texts.len() > 1 => texts.remove(0),
            Some((_, texts)) => texts[0],
            None => "",
        };
        self.ran.push(line);
        Ok(CommandOutput {
            is_success: !text.contains("E: "),
            text: text.to_owned(),
        })
    }

    fn lock(&mut self) -> Result<()> {
        self.locked += 1;
        Ok(())
    }

    fn write(&mut self, files: &[NewFile]) -> Result<()> {
        let names = files.iter().map(|file| file.path.display());
        self.ran.extend(names.map(|name| format!("write {name}")));
        Ok(())
    }

    fn is_there(&mut self, _: &str) -> bool {
        true
    }

    fn read(&mut self, _: &str) -> Result<Option<String>> {
        Ok(None)
    }

    fn remove(&mut self, _: &str) -> Result<()> {
        Ok(())
    }

    fn boot_id(&mut self) -> Result<String> {
        Ok("boot-1".to_owned())
    }

    fn reboot_needed(&mut self) -> bool {
        self.reboot
    }

    fn restart(&mut self) -> Result<()> {
        self.ran.push("restart".to_owned());
        Ok(())
    }
}

fn server(answers: &[(&'static str, &[&'static str])]) -> Fake {
    let answers = answers
        .iter()
        .map(|(start, texts)| (*start, texts.to_vec()));
    Fake {
        answers: answers.collect(),
        ..Fake::default()
    }
}

fn order(state: Presence, version: &str) -> PackageOrder {
    PackageOrder {
        state,
        packages: vec![PackageSpec {
            name: "hello".to_owned(),
            version: version.to_owned(),
        }],
        ..PackageOrder::default()
    }
}

fn obeyed(server: &mut Fake, order: PackageOrder) -> Report {
    obey(server, &Order::Packages(order)).unwrap()
}

#[test]
fn what_is_as_wanted_is_only_looked_at() {
    for (text, state, version) in [
        (INSTALLED, Presence::Present, "1.0"),
        (UNKNOWN, Presence::Absent, ""),
    ] {
        let mut server = server(&[("dpkg-query", &[text])]);
        let report = obeyed(&mut server, order(state, version));
        assert!(!report.changed && report.packages[0].state == PackageState::Ready);
        assert_eq!(
            (server.ran.len(), server.locked),
            (1, 0),
            "{:?}",
            server.ran
        );
    }
}

#[test]
fn a_dry_run_tells_the_difference_and_changes_nothing() {
    let mut server = server(&[("dpkg-query", &[INSTALLED])]);
    let dry = PackageOrder {
        dry_run: true,
        ..order(Presence::Present, "2.0")
    };
    let report = obeyed(&mut server, dry);
    let package = &report.packages[0];
    assert_eq!(
        (package.have.as_str(), package.wanted.as_str()),
        ("1.0", "2.0")
    );
    assert_eq!(package.state, PackageState::Pending);
    assert_eq!((server.ran.len(), server.locked), (1, 0));
}

#[test]
fn the_repository_of_the_order_is_the_one_that_apt_asks() {
    let mut server = server(&[("dpkg-query", &[UNKNOWN])]);
    let from = PackageOrder {
        repository: Some(Repository {
            host: "172.22.0.1".to_owned(),
            base: "KEY".to_owned(),
            uploads: "OTHER".to_owned(),
        }),
        ..order(Presence::Present, "2.0")
    };
    obeyed(&mut server, from);
    let at = |start: &str| server.ran.iter().position(|line| line.starts_with(start));
    let last = at("write etc/apt/sources.list.d").unwrap();
    assert!(at("write etc/apt/keyrings").unwrap() < last);
    assert!(last < at("apt-get update").unwrap(), "{:?}", server.ran);
}

#[test]
fn what_was_interrupted_is_repaired_before_the_exact_version_comes() {
    let half = "hello\t2.0\thalf-configured\tok\n";
    let mut server = server(&[("dpkg-query", &[half, half, "hello\t2.0\tinstalled\tok\n"])]);
    let report = obeyed(&mut server, order(Presence::Present, "2.0"));
    assert!(report.changed && report.packages[0].state == PackageState::Ready);
    let programs: Vec<&str> = server.ran.iter().map(String::as_str).collect();
    assert!(
        programs[2].starts_with("dpkg --configure -a"),
        "{programs:?}"
    );
    assert!(programs[3].starts_with("apt-get update"), "{programs:?}");
    assert!(
        programs[4].ends_with(" --no-remove hello=2.0"),
        "{programs:?}"
    );
}

#[test]
fn somebody_who_was_faster_leaves_nothing_to_do() {
    let mut server = server(&[("dpkg-query", &[UNKNOWN, INSTALLED])]);
    let report = obeyed(&mut server, order(Presence::Present, "1.0"));
    assert_eq!(
        (report.changed, server.ran.len(), server.locked),
        (false, 2, 1)
    );
}

#[test]
fn what_fails_is_told_in_the_words_of_apt_and_dpkg() {
    let half = "hello\t2.0\thalf-configured\tok\n";
    let reading = "Reading package lists...\nBuilding dependency tree...\n";
    let no_version = "E: Version '9' for 'hello' was not found\n";
    let no_package = "E: Unable to locate package hello\n";
    let needs = "The following packages have unmet dependencies:\n hello : Depends: attic (>= 2) but it is not installable\nE: Unable to correct problems, you have held broken packages.\n";
    let needs_three = "Unsatisfied dependencies:\n hello : Depends: attic but it is not installable\nError: Unable to satisfy dependencies. Reached two conflicting assignments:\n";
    let clash = "dpkg: error processing archive /var/cache/apt/archives/hello_2.0_amd64.deb (--unpack):\n trying to overwrite '/usr/bin/x', which is also in package other 1\nE: Sub-process /usr/bin/dpkg returned an error code (1)\n";
    let removes = "E: Packages need to be removed but remove is disabled.\n";
    for (after, said, reason) in [
        (
            half,
            BROKEN,
            "installed hello package post-installation script subprocess returned error exit status 1; it said: no space in the attic",
        ),
        (
            UNKNOWN,
            no_version,
            "there is no version 9; there are 2.0, 1.0",
        ),
        (
            UNKNOWN,
            no_package,
            "there is no such package in the box's repository; put it there with `firstlight push`",
        ),
        (
            UNKNOWN,
            needs,
            "Depends: attic (>= 2) but it is not installable",
        ),
        (
            UNKNOWN,
            needs_three,
            "Depends: attic but it is not installable",
        ),
        (
            UNKNOWN,
            clash,
            "trying to overwrite '/usr/bin/x', which is also in package other 1",
        ),
        (
            UNKNOWN,
            removes,
            "Packages need to be removed but remove is disabled.",
        ),
        (half, reading, "dpkg was interrupted: it is half-configured"),
        (UNKNOWN, reading, "apt said nothing about it"),
    ] {
        let mut server = server(&[
            ("dpkg-query", &[UNKNOWN, UNKNOWN, after]),
            ("apt-get -y", &[said]),
            (
                "apt-cache",
                &[
                    " hello | 2.0 | http://box/apt uploads/main\n hello | 1.0 | http://box/apt uploads/main\n",
                ],
            ),
        ]);
        let report = obeyed(&mut server, order(Presence::Present, "9"));
        let package = &report.packages[0];
        assert_eq!(
            (package.state, package.reason.as_str()),
            (PackageState::Failed, reason),
            "{said}"
        );
    }
}

#[test]
fn a_repository_that_does_not_answer_is_told_with_what_came_of_it() {
    let mut server = server(&[
        ("dpkg-query", &[UNKNOWN]),
        (
            "apt-get update",
            &["W: Failed to fetch http://box/apt/InRelease  Could not connect\n"],
        ),
        (
            "apt-get -y",
            &["E: Version '9' for 'hello' was not found\n"],
        ),
    ]);
    let report = obeyed(&mut server, order(Presence::Present, "9"));
    assert_eq!(
        report.packages[0].reason,
        "there is no version 9 (the list of packages is old: Failed to fetch http://box/apt/InRelease  Could not connect)"
    );
}

#[test]
fn only_what_is_named_is_removed() {
    let mut server = server(&[
        ("dpkg-query", &[INSTALLED]),
        ("apt-get -s", &["Remv hello [1.0]\nRemv greeter [3]\n"]),
    ]);
    let report = obeyed(&mut server, order(Presence::Absent, ""));
    let reason = &report.packages[0].reason;
    assert!(reason.contains("also remove greeter;"), "{reason}");
    assert!(
        !server.ran.iter().any(|line| line.starts_with("apt-get -y")),
        "{:?}",
        server.ran
    );

    let mut server = self::server(&[
        ("dpkg-query", &[INSTALLED, INSTALLED, UNKNOWN]),
        ("apt-get -s", &["Remv hello [1.0]\n"]),
    ]);
    let report = obeyed(&mut server, order(Presence::Absent, ""));
    assert_eq!(report.packages[0].state, PackageState::Ready);
    assert!(
        server
            .ran
            .iter()
            .any(|line| line.starts_with("apt-get -y") && line.ends_with("remove hello"))
    );
}

#[test]
fn a_restart_is_for_the_start_that_it_names() {
    for (boot_id, restarted) in [("boot-1", true), ("boot-0", false)] {
        let mut server = Fake {
            reboot: true,
            ..Fake::default()
        };
        let order = Order::Restart {
            boot_id: boot_id.to_owned(),
        };
        let report = obey(&mut server, &order).unwrap();
        assert_eq!(
            server.ran.contains(&"restart".to_owned()),
            restarted,
            "{boot_id}"
        );
        assert!(report.reboot_needed && report.boot_id == "boot-1");
    }
}

const KUBEADM_THERE: &str = "kubeadm\t1.37.2-1.1\tinstalled\tok\n";
const KUBELET_THERE: &str =
    "kubectl\t1.37.2-1.1\tinstalled\tok\nkubelet\t1.37.2-1.1\tinstalled\tok\n";

fn kubernetes(step: KubernetesStep) -> Order {
    Order::Kubernetes(KubernetesOrder {
        step,
        version: "1.37.2-1.1".to_owned(),
        hands_over: false,
        repository: None,
    })
}

#[test]
fn kubeadm_does_its_part_between_the_packages_and_the_kubelet_starts_again() {
    for (step, there, last) in [
        (
            KubernetesStep::Cluster,
            KUBEADM_THERE,
            "kubeadm upgrade apply --config /run/firstlight-upgrade.yaml --yes v1.37.2",
        ),
        (
            KubernetesStep::Node,
            KUBEADM_THERE,
            "kubeadm upgrade node --config /run/firstlight-upgrade.yaml",
        ),
        (
            KubernetesStep::Kubelet,
            KUBELET_THERE,
            "systemctl restart kubelet",
        ),
    ] {
        let mut server = server(&[("dpkg-query", &[there])]);
        let report = obey(&mut server, &kubernetes(step)).unwrap();
        assert!(report.changed && server.locked == 1);
        assert_eq!(server.ran.last().unwrap(), last);
    }
}

#[test]
fn a_control_plane_that_is_not_alone_hands_the_address_over_meanwhile() {
    let Order::Kubernetes(mut order) = kubernetes(KubernetesStep::Node) else {
        unreachable!();
    };
    order.hands_over = true;
    let order = Order::Kubernetes(order);
    let ran = |answers: &[(&'static str, &[&'static str])]| {
        let mut server = server(answers);
        let done = obey(&mut server, &order);
        let about = |line: &String| line.contains("keepalived") || line.starts_with("kubeadm");
        let ran = server.ran.iter().filter(|line| about(line));
        let words = ran.map(|line| line.split(' ').take(3).collect::<Vec<_>>().join(" "));
        (done.is_ok(), words.collect::<Vec<_>>())
    };
    let whole = [
        "systemctl is-enabled keepalived",
        "systemctl stop keepalived",
        "kubeadm upgrade node",
        "systemctl start keepalived",
    ];
    let there: (&str, &[&str]) = ("dpkg-query", &[KUBEADM_THERE]);
    assert_eq!(ran(&[there]), (true, whole.map(str::to_owned).into()));
    // Also where kubeadm refuses.
    let refuses: (&str, &[&str]) = ("kubeadm", &["error: E: it refuses\n"]);
    assert_eq!(
        ran(&[there, refuses]),
        (false, whole.map(str::to_owned).into())
    );
    // Somebody else's address.
    let without: (&str, &[&str]) = ("systemctl is-enabled", &["E: disabled\n"]);
    let few = [whole[0], whole[2]].map(str::to_owned);
    assert_eq!(ran(&[there, without]), (true, few.into()));
}

#[test]
fn there_is_no_way_back() {
    for (there, forward) in [
        ("kubeadm 1.37.2-1.1\nkubelet 1.36.3-1.1\n", true),
        ("kubeadm 1.37.3-1.1\nkubelet 1.36.3-1.1\n", false),
        ("kubeadm 1.37.2-1.1\nkubelet 1.38.0-1.1\n", false),
        ("kubeadm 1.9.9-1.1\nkubelet 1.10.0-1.1\n", true),
        ("dpkg-query: no packages found matching kubeadm\n", true),
    ] {
        let mut server = server(&[
            ("dpkg-query -W -f ${Package} $", &[there]),
            ("dpkg-query", &[KUBEADM_THERE]),
        ]);
        let done = obey(&mut server, &kubernetes(KubernetesStep::Node));
        assert_eq!(done.is_ok(), forward, "{there}");
        let installs = server
            .ran
            .iter()
            .any(|line| line.starts_with("apt-get") || line.starts_with("kubeadm"));
        assert_eq!(installs, forward, "{:?}", server.ran);
    }
}

#[test]
fn nothing_goes_on_without_its_package_and_kubeadm_says_why_it_refused() {
    let mut without = server(&[(
        "dpkg-query",
        &["dpkg-query: no packages found matching kubeadm\n"],
    )]);
    let error = obey(&mut without, &kubernetes(KubernetesStep::Cluster)).unwrap_err();
    assert!(
        error.to_string().starts_with("kubeadm 1.37.2-1.1: "),
        "{error}"
    );
    assert!(!without.ran.iter().any(|line| line.starts_with("kubeadm")));
    for (said, why) in [
        (
            "[preflight] Some fatal errors occurred:\n\t[ERROR CreateJob]: no node E: \n[preflight] If you know what you are doing\n",
            "kubeadm upgrade node: [ERROR CreateJob]: no node E:",
        ),
        (
            "error: error execution phase kubelet-config: E: gone\nTo see the stack trace of this error\n",
            "kubeadm upgrade node: error: error execution phase kubelet-config: E: gone",
        ),
    ] {
        let mut server = server(&[("dpkg-query", &[KUBEADM_THERE]), ("kubeadm", &[said])]);
        let error = obey(&mut server, &kubernetes(KubernetesStep::Node)).unwrap_err();
        assert_eq!(error.to_string(), why);
    }
}

#[test]
fn an_order_for_kubernetes_names_a_version_and_nothing_else() {
    let text = |version: &str| {
        let order = serde_json::json!({"kubernetes": {"step": "node", "version": version}});
        Order::parse(order.to_string().as_bytes())
    };
    assert_eq!(
        text("1.37.2-1.1+firstlight1").unwrap(),
        Order::Kubernetes(KubernetesOrder {
            step: KubernetesStep::Node,
            version: "1.37.2-1.1+firstlight1".to_owned(),
            hands_over: false,
            repository: None,
        })
    );
    for bad in [
        "",
        "1.37",
        "1.37.x-1",
        "1.37.2 --force",
        "../1.37.2",
        "1.37.2\n",
    ] {
        assert!(text(bad).is_err(), "{bad:?}");
    }
}

#[test]
fn a_node_that_joins_has_its_clusters_version_before_anything_is_made_of_its_data() {
    for (have, changes) in [
        ("installed 1.36.3-1.1+firstlight1", true),
        ("installed 1.37.2-1.1+firstlight1", false),
        ("not-installed ", false),
        ("dpkg-query: no packages found matching kubelet", false),
    ] {
        let mut server = server(&[("dpkg-query", &[have])]);
        become_release(&mut server, "v1.37.2").unwrap();
        let installs = server
            .ran
            .iter()
            .filter(|line| line.ends_with("kubeadm=1.37.2-* kubectl=1.37.2-* kubelet=1.37.2-*"));
        assert_eq!(
            installs.count(),
            usize::from(changes),
            "{have}: {:?}",
            server.ran
        );
    }
    let there = ("dpkg-query", &["installed 1.36.3-1.1"][..]);
    let mut refusing = server(&[
        there,
        (
            "apt-get -y",
            &["E: Version '1.37.2-*' for 'kubelet' was not found\n"],
        ),
    ]);
    let error = become_release(&mut refusing, "v1.37.2").unwrap_err();
    assert!(error.to_string().contains("was not found"), "{error}");
    for bad in ["1.37.2", "v1.37", "v1.37.2; id", "v1..2", "v1.37.22222"] {
        assert!(become_release(&mut server(&[there]), bad).is_err(), "{bad}");
    }
}
