#![allow(clippy::unwrap_used)]
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use firstlight_api::status::{
    ClusterMachine, ClusterStatus, DiskUse, FailedStep, HardwareSummary, HostPower, HostState,
};

use super::super::tests::host;
use super::super::{approve, approve::ApproveArgs};
use super::*;

fn site(hosts: Vec<HostStatus>) -> SiteStatus {
    let machine = |name: &str, host: &str, control_plane| ClusterMachine {
        name: name.to_owned(),
        host: host.to_owned(),
        node: host.to_owned(),
        control_plane,
        ..ClusterMachine::default()
    };
    SiteStatus {
        hosts,
        clusters: vec![ClusterStatus {
            name: "lab".to_owned(),
            machines: vec![
                machine("lab-cp", "c1", true),
                machine("lab-w1", "w1", false),
            ],
            ..ClusterStatus::default()
        }],
        ..SiteStatus::default()
    }
}

fn changed(name: &str, number: u8, change: impl FnOnce(&mut HostStatus)) -> HostStatus {
    let mut host = host(name, number, "");
    change(&mut host);
    host
}

fn in_use(name: &str, number: u8) -> HostStatus {
    changed(name, number, |host| host.control.disk = DiskUse::Installed)
}

fn claimed(name: &str, machine: &str) -> HostStatus {
    changed(name, 9, |host| {
        host.state = HostState::Provisioned;
        host.control.power = HostPower::On;
        host.control.disk = DiskUse::Installed;
        host.control.consumer = format!("Metal3Machine {machine}");
    })
}

fn commands(order: &Order) -> Vec<String> {
    order
        .writes
        .iter()
        .map(|write| write.command().unwrap())
        .collect()
}

fn patched(order: &Order) -> Value {
    match &order.writes[..] {
        [Write::Patch(target, patch)] => {
            assert_eq!(*target, Target::host(order.hosts[0]));
            patch.clone()
        }
        other => panic!("{other:?}"),
    }
}

fn refused<T: std::fmt::Debug>(result: Result<T>) -> String {
    result.unwrap_err().downcast::<UsageError>().unwrap().0
}

#[test]
fn what_goes_into_the_shell_of_the_box_is_names_and_quoted_json() {
    let code = "7Q2M-XK4P-09AB-CDEF";
    let said = ApproveArgs {
        server: "n1".to_owned(),
        code: code.to_owned(),
    };
    let hosts = [host("n1", 1, code)];
    let order = approve::order(&hosts, &said).unwrap();
    assert_eq!(
        commands(&order),
        [
            "kubectl patch baremetalhosts.metal3.io n1 --namespace metal3 --type merge --patch \
             '{\"metadata\":{\"annotations\":{\"firstlight.internal/approve\":\"7Q2M-XK4P-09AB-CDEF\"}}}'"
        ]
    );
    let evil = ApproveArgs {
        code: "$(reboot)".to_owned(),
        ..said
    };
    assert!(approve::order(&[host("n1", 1, "$(reboot)")], &evil).is_err());
    for name in ["a; reboot", "-o", "", "a'b", "$(x)", "a b"] {
        let delete = Write::Delete(Target::host(&host(name, 1, "")));
        assert!(delete.command().is_err(), "{name}");
    }
    let quoted = Write::to_host(&host("n1", 1, ""), json!({"a": "it's"}));
    assert!(quoted.command().is_err());
}

#[test]
fn plain_verbs_are_one_annotation() {
    let site = site(vec![
        changed("failed", 1, |host| {
            host.control.failed = Some(FailedStep::Inspection);
            host.hardware = Some(HardwareSummary::default());
        }),
        changed("spare", 2, |host| host.control.spare = true),
    ]);
    for (verb, server, annotation, value) in [
        (
            Verb::Retry,
            "failed",
            "firstlight.internal/retry",
            json!(""),
        ),
        (
            Verb::SkipInspection,
            "failed",
            "inspect.metal3.io",
            json!("disabled"),
        ),
        (
            Verb::Spare,
            "failed",
            "firstlight.internal/spare",
            json!(""),
        ),
        (
            Verb::Unspare,
            "spare",
            "firstlight.internal/spare",
            Value::Null,
        ),
    ] {
        let order = plain(&site, verb, server).unwrap();
        let patch = json!({"metadata": {"annotations": {annotation: value}}});
        assert_eq!(patched(&order), patch, "{verb:?}");
    }
    assert!(
        plain(&site, Verb::Retry, "failed")
            .unwrap()
            .done
            .contains("inspection begins again")
    );
    let why = refused(plain(&site, Verb::Retry, "spare"));
    assert!(why.contains("`retry` was not done to spare"), "{why}");
}

#[test]
fn power_is_a_field_or_a_restart_and_who_uses_it_is_asked_for() {
    let free = changed("n1", 1, |host| host.control.power = HostPower::On);
    let site = site(vec![free, claimed("c1", "lab-cp")]);
    let args = |what, server: &str, hard, yes| PowerArgs {
        what,
        server: server.to_owned(),
        hard,
        yes,
    };
    let reboot = |value: &str| json!({"annotations": {"reboot.metal3.io": value}});
    let hard = r#"{"mode":"hard"}"#;
    for (what, is_hard, patch) in [
        (Switch::On, false, json!({"spec": {"online": true}})),
        (Switch::Off, false, json!({"spec": {"online": false}})),
        (
            Switch::Off,
            true,
            json!({"spec": {"online": false}, "metadata": reboot(hard)}),
        ),
        (Switch::Cycle, false, json!({"metadata": reboot("")})),
        (Switch::Cycle, true, json!({"metadata": reboot(hard)})),
    ] {
        let order = power(&site, &args(what, "n1", is_hard, false)).unwrap();
        assert_eq!(patched(&order), patch);
        // Quotes inside quotes survive the shell.
        assert!(order.writes[0].command().is_ok());
    }
    let off = |yes| power(&site, &args(Switch::Off, "c1", false, yes));
    let why = refused(off(false));
    assert!(
        why.contains("the only control plane of the cluster lab")
            && why.ends_with("`--yes` does it all the same"),
        "{why}"
    );
    assert!(off(true).is_ok());
}

fn back(servers: &[&str], yes_all_of: &[&str]) -> GiveBackArgs {
    let owned = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
    GiveBackArgs {
        servers: owned(servers),
        wipe: false,
        force: false,
        yes_all_of: owned(yes_all_of),
    }
}

#[test]
fn a_server_is_given_back_by_taking_all_away_that_it_was_told() {
    let site = site(vec![
        in_use("n1", 1),
        claimed("w1", "lab-w1"),
        claimed("odd", "gone"),
    ]);
    let order = give_back(&site, &back(&["n1"], &[])).unwrap();
    let nothing = json!({"image": null, "customDeploy": null, "userData": null, "metaData": null, "networkData": null});
    assert_eq!(patched(&order), json!({"spec": nothing}));
    let wipe = GiveBackArgs {
        wipe: true,
        ..back(&["n1"], &[])
    };
    let wiped = give_back(&site, &wipe).unwrap();
    assert_eq!(
        patched(&wiped)["metadata"]["annotations"],
        json!({"firstlight.internal/install": "wipe"})
    );

    let why = refused(give_back(&site, &back(&["w1"], &[])));
    assert!(why.contains("kubectl delete machine lab-w1"), "{why}");
    let force = |server| GiveBackArgs {
        force: true,
        ..back(&[server], &[])
    };
    assert!(give_back(&site, &force("w1")).is_err(), "a cluster has it");
    assert!(give_back(&site, &back(&["odd"], &[])).is_err());
    let forced = give_back(&site, &force("odd")).unwrap();
    let commands = commands(&forced);
    assert!(
        commands[0].contains("kubectl get metal3machines.infrastructure.cluster.x-k8s.io gone")
    );
    assert!(commands[1].contains("\"consumerRef\":null"), "{commands:?}");
}

#[test]
fn many_at_once_need_their_whole_names_a_second_time() {
    let mut hosts: Vec<_> = (1..=4).map(|n| in_use(&format!("n{n}"), n)).collect();
    hosts.push(changed("waits", 5, |host| {
        host.control.held = true;
        host.control.consumer = "Metal3Machine lab-1".to_owned();
    }));
    let site = site(hosts);
    let four = ["n1", "n2", "n3", "n4"];
    let why = refused(give_back(&site, &back(&four, &[])));
    assert!(why.contains("--yes-all-of n1,n2,n3,n4"), "{why}");
    for said in [&["n1", "n2", "n3"][..], &["n1", "n2", "n3", "n4", "n5"]] {
        let why = refused(give_back(&site, &back(&four, said)));
        assert!(why.contains("which are n1,n2,n3,n4"), "{why}");
    }
    assert!(give_back(&site, &back(&four[..3], &[])).is_ok());
    let order = give_back(&site, &back(&four, &["n4", "n3", "n2", "n1"])).unwrap();
    assert_eq!(order.writes.len(), 4);
    for (write, name) in order.writes.iter().zip(four) {
        let Write::Patch(_, patch) = write else {
            panic!("{write:?}");
        };
        let said = &patch["metadata"]["annotations"]["firstlight.internal/confirm-deprovision"];
        assert_eq!(said, name);
    }
    // What somebody took away already waits for its name, and for nothing else.
    let why = refused(give_back(&site, &back(&["waits"], &[])));
    assert!(why.ends_with("give-back waits --yes-all-of waits"), "{why}");
    let order = give_back(&site, &back(&["waits"], &["waits"])).unwrap();
    let confirm = json!({"firstlight.internal/confirm-deprovision": "waits"});
    assert_eq!(
        patched(&order),
        json!({"metadata": {"annotations": confirm}})
    );
}

#[test]
fn a_dead_machine_of_a_cluster_goes_with_its_host_and_nobody_is_waited_for() {
    let site = site(vec![
        host("n1", 1, ""),
        in_use("n2", 2),
        claimed("c1", "lab-cp"),
        claimed("w1", "lab-w1"),
    ]);
    let args = |server: &str, force| ForgetArgs {
        server: server.to_owned(),
        force,
    };
    let delete_host = |name: &str| {
        format!(
            "kubectl delete baremetalhosts.metal3.io {name} --namespace metal3 --wait=false --ignore-not-found"
        )
    };
    let detach = |name: &str| {
        format!(
            "kubectl patch baremetalhosts.metal3.io {name} --namespace metal3 --type merge --patch \
             '{{\"metadata\":{{\"annotations\":{{\"baremetalhost.metal3.io/detached\":\"{{\\\"force\\\":true}}\"}}}}}}'"
        )
    };
    let free = forget(&site, &args("n1", false)).unwrap();
    assert_eq!(commands(&free), [delete_host("n1")]);
    assert!(forget(&site, &args("n2", false)).is_err());
    let kept = forget(&site, &args("n2", true)).unwrap();
    assert_eq!(commands(&kept), [detach("n2"), delete_host("n2")]);
    assert!(forget(&site, &args("c1", true)).is_err(), "the last one");
    let why = refused(forget(&site, &args("w1", false)));
    assert!(why.contains("`--force` does it all the same"), "{why}");
    let dead = forget(&site, &args("w1", true)).unwrap();
    let commands = commands(&dead);
    assert!(
        commands[0]
            .starts_with("kubectl patch machines.cluster.x-k8s.io lab-w1 --namespace metal3")
            && commands[0].contains("firstlight.internal/forget-host")
            && commands[0].contains("exclude-node-draining"),
        "{commands:?}"
    );
    assert!(commands[1].starts_with("kubectl delete machines.cluster.x-k8s.io lab-w1"));
    assert_eq!(commands[2..], [detach("w1"), delete_host("w1")]);
}

/// What an `ssh` with a destination would run, here, with a `kubectl` that does as told.
fn way(dir: &Path, kubectl: &str) -> Command {
    let file = dir.join("kubectl");
    fs::write(&file, format!("#!/bin/sh\n{kubectl}\n")).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    let mut way = Command::new("sh");
    let path = std::env::var("PATH").unwrap();
    way.env("PATH", format!("{}:{path}", dir.display()))
        .arg("-c");
    way
}

#[test]
fn the_box_writes_what_it_is_told_and_what_it_refuses_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let kept = dir.path().join("kept");
    let keep = format!("for word; do echo \"$word\" >>{}; done", kept.display());
    let site = site(vec![in_use("n2", 2), claimed("odd", "gone")]);
    let args = ForgetArgs {
        server: "n2".to_owned(),
        force: true,
    };
    let order = forget(&site, &args).unwrap();
    order.send(way(dir.path(), &keep)).unwrap();
    let words = fs::read_to_string(&kept).unwrap();
    let detached =
        r#"{"metadata":{"annotations":{"baremetalhost.metal3.io/detached":"{\"force\":true}"}}}"#;
    assert!(words.lines().any(|word| word == detached), "{words}");
    assert!(words.ends_with("delete\nbaremetalhosts.metal3.io\nn2\n--namespace\nmetal3\n--wait=false\n--ignore-not-found\n"));

    let refuse = "echo not found >&2; exit 1";
    let error = order.send(way(dir.path(), refuse)).unwrap_err();
    assert!(error.to_string().ends_with("for n2: not found"), "{error}");

    // A Metal3Machine that is there keeps its host.
    fs::remove_file(&kept).unwrap();
    let force = GiveBackArgs {
        force: true,
        ..back(&["odd"], &[])
    };
    let order = give_back(&site, &force).unwrap();
    let there = format!("{keep}; test \"$1\" != get || echo metal3machine/gone");
    let error = order.send(way(dir.path(), &there)).unwrap_err();
    assert!(error.to_string().contains("delete its Machine instead"));
    assert!(!fs::read_to_string(&kept).unwrap().contains("patch"));
    order.send(way(dir.path(), &keep)).unwrap();
    assert!(fs::read_to_string(&kept).unwrap().contains("patch"));
    let silent = "test \"$1\" != get || exit 1";
    assert!(order.send(way(dir.path(), silent)).is_err());
}
