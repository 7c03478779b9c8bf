#![allow(clippy::unwrap_used)]

use firstlight_api::status::{FailedStep, HostControl, HostEvent, HostState, Problem};

use super::*;

#[test]
fn one_server_is_told_with_what_went_wrong_and_what_may_be_asked_of_it() {
    let site = SiteStatus {
        uptime: 100.0,
        ..SiteStatus::default()
    };
    let host = HostStatus {
        name: "n3".into(),
        namespace: "metal3".into(),
        mac: "52:54:00:00:00:03".into(),
        state: HostState::Failed,
        step: "installation failed".into(),
        since: 60.0,
        problem: Some(Problem {
            what: "the disk is broken\nverbs       all".into(),
            next: "mend it".into(),
        }),
        control: HostControl {
            failed: Some(FailedStep::Installation),
            image: true,
            spare: true,
            no_kexec: true,
            ..HostControl::default()
        },
        rule: Some(2),
        history: vec![HostEvent {
            state: HostState::Inspecting,
            started: 10.0,
            ended: 31.0,
        }],
        ..HostStatus::default()
    };
    let told = one(&site, &host);
    for line in [
        "name        n3 in metal3",
        "state       failed, spare for 40 s",
        "problem     the disk is broken verbs       all",
        "next        mend it",
        "failed      installation",
        "rule        rule 2 of site.yaml",
        "history     inspecting at 10 s, for 21 s",
        "retry       yes",
        "unspare     yes",
        "allow-kexec  yes",
        "give-back   yes",
    ] {
        assert!(told.lines().any(|told| told == line), "{line}: {told}");
    }
    let power = told.lines().find(|line| line.starts_with("power off"));
    assert!(power.unwrap().contains("not now: its object names no BMC"));
    let none = HostStatus {
        rule: None,
        no_rule: "no rule of site.yaml fits this server".into(),
        ..host
    };
    let line = "rule        no rule of site.yaml fits this server\n";
    assert!(one(&site, &none).contains(line));
    let kexec = told.lines().find(|line| line.starts_with("kexec"));
    assert!(
        kexec
            .unwrap()
            .ends_with("`firstlight hosts allow-kexec n3`")
    );
    let forget = told.lines().find(|line| line.starts_with("forget"));
    assert!(forget.unwrap().contains("only with `--force`"), "{told}");
}
