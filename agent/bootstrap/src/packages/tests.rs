#![allow(clippy::unwrap_used)]

use firstlight_api::{repository::Repository, software::PackageSpec};

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
