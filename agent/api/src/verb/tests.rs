#![allow(clippy::unwrap_used)]

use super::*;
use crate::status::{ClusterStatus, FailedStep, HardwareSummary, HostControl, Problem};

fn host(change: impl FnOnce(&mut HostStatus)) -> HostStatus {
    let mut host = HostStatus {
        name: "n1".into(),
        state: HostState::Available,
        step: "free".into(),
        hardware: Some(HardwareSummary::default()),
        ..HostStatus::default()
    };
    change(&mut host);
    host
}

fn control(change: impl FnOnce(&mut HostControl)) -> HostStatus {
    host(|host| change(&mut host.control))
}

/// A cluster of `control_planes` that have joined, the first of them on n1, and a worker on n2.
fn site(control_planes: usize) -> SiteStatus {
    let machine = |index: usize, host: &str| ClusterMachine {
        name: format!("lab-{index}"),
        control_plane: index < control_planes,
        host: host.to_owned(),
        node: format!("node-{index}"),
        ..ClusterMachine::default()
    };
    let others = (1..control_planes).map(|index| machine(index, &format!("other-{index}")));
    let machines = [machine(0, "n1")].into_iter().chain(others);
    SiteStatus {
        clusters: vec![ClusterStatus {
            name: "lab".into(),
            machines: machines.chain([machine(9, "n2")]).collect(),
            ..ClusterStatus::default()
        }],
        ..SiteStatus::default()
    }
}

fn asked(verb: Verb, host: &HostStatus, site: &SiteStatus) -> Option<(String, Option<Insistence>)> {
    let owner = Owner::of(site, host);
    let refusal = refusal(verb, Manner::Soft, host, owner.as_ref())?;
    Some((refusal.why, refusal.unless))
}

#[track_caller]
fn taken(verb: Verb, host: &HostStatus) {
    assert_eq!(asked(verb, host, &SiteStatus::default()), None);
}

#[track_caller]
fn not_taken(verb: Verb, host: &HostStatus, unless: Option<Insistence>, words: &[&str]) {
    let site = SiteStatus::default();
    let (why, insist) = asked(verb, host, &site).expect("refused");
    assert_eq!(insist, unless, "{why}");
    for word in words {
        assert!(why.contains(word), "{word}: {why}");
    }
}

#[test]
fn kexec_is_allowed_again_where_something_is_remembered_against_it() {
    taken(
        Verb::AllowKexec,
        &control(|control| control.no_kexec = true),
    );
    not_taken(
        Verb::AllowKexec,
        &control(|_| {}),
        None,
        &["nothing is remembered"],
    );
    let paused = control(|control| {
        control.no_kexec = true;
        control.paused = "metal3.io/capm3".into();
    });
    not_taken(Verb::AllowKexec, &paused, None, &["paused"]);
}

#[test]
fn only_a_failed_step_begins_again() {
    for step in [FailedStep::Registration, FailedStep::Cleaning] {
        taken(Verb::Retry, &control(|control| control.failed = Some(step)));
    }
    not_taken(Verb::Retry, &host(|_| ()), None, &["no step", "free"]);
    let waits = host(|host| {
        host.problem = Some(Problem {
            what: "silent".into(),
            next: "look at it".into(),
        });
    });
    not_taken(Verb::Retry, &waits, None, &["silent", "look at it"]);
    for disk in [DiskUse::Writing, DiskUse::Erasing] {
        let busy = control(|control| control.disk = disk);
        not_taken(Verb::Retry, &busy, None, &["a second one is not begun"]);
    }
}

#[test]
fn nothing_is_asked_of_a_host_that_somebody_keeps_hands_off() {
    for verb in Verb::ALL {
        let mut paused = control(|control| {
            control.paused = "me".into();
            control.failed = Some(FailedStep::Inspection);
            control.image = true;
        });
        let set_aside = matches!(verb, Verb::Spare | Verb::Unspare);
        let words: &[&str] = if set_aside { &[] } else { &["paused by me"] };
        if verb == Verb::Spare {
            taken(verb, &paused);
        } else {
            not_taken(verb, &paused, None, words);
        }
        paused.control.paused.clear();
        paused.state = HostState::Detached;
        if !set_aside && verb != Verb::Forget {
            not_taken(verb, &paused, None, &["detached"]);
        }
    }
}

#[test]
fn power_needs_a_bmc_and_never_cuts_a_write() {
    let power = |power: HostPower, state: HostState| {
        host(|host| (host.control.power, host.state) = (power, state))
    };
    for verb in [Verb::PowerOn, Verb::PowerOff, Verb::PowerCycle] {
        taken(verb, &power(HostPower::On, HostState::Available));
        let manual = power(HostPower::Manual, HostState::Available);
        not_taken(verb, &manual, None, &["no BMC", "a person switches it"]);
    }
    let running = power(HostPower::Manual, HostState::Running);
    taken(Verb::PowerCycle, &running);
    let words = &["`power cycle` asks its system over SSH"];
    not_taken(Verb::PowerOff, &running, None, words);
    let hard = refusal(Verb::PowerCycle, Manner::Hard, &running, None).unwrap();
    assert!(hard.why.contains("without `--hard`"), "{hard:?}");
    for disk in [DiskUse::Writing, DiskUse::Erasing] {
        let mut busy = power(HostPower::On, HostState::Provisioning);
        busy.control.disk = disk;
        not_taken(Verb::PowerOff, &busy, None, &["half written"]);
        not_taken(Verb::PowerCycle, &busy, None, &["half written"]);
        taken(Verb::PowerOn, &busy);
    }
    let mut claimed = power(HostPower::On, HostState::Running);
    claimed.control.consumer = "Metal3Machine lab-0".into();
    for verb in [Verb::PowerOff, Verb::PowerCycle] {
        let (why, unless) = asked(verb, &claimed, &site(1)).unwrap();
        assert!(
            why.contains("the only control plane of the cluster lab"),
            "{why}"
        );
        assert_eq!(unless, Some(Insistence::Yes));
        let words = &["in use by Metal3Machine lab-0"];
        not_taken(verb, &claimed, Some(Insistence::Yes), words);
    }
    taken(Verb::PowerOn, &claimed);
}

#[test]
fn an_inspection_is_skipped_while_it_is_to_come_and_the_ramdisk_has_reported() {
    let inspecting = |state: HostState| host(|host| host.state = state);
    taken(Verb::SkipInspection, &inspecting(HostState::Inspecting));
    taken(Verb::SkipInspection, &inspecting(HostState::Registering));
    let failed = host(|host| {
        host.state = HostState::Failed;
        host.control.failed = Some(FailedStep::Inspection);
    });
    taken(Verb::SkipInspection, &failed);
    for state in [HostState::Available, HostState::Running, HostState::Failed] {
        not_taken(Verb::SkipInspection, &inspecting(state), None, &["is over"]);
    }
    let silent = host(|host| (host.state, host.hardware) = (HostState::Inspecting, None));
    not_taken(Verb::SkipInspection, &silent, None, &["from the network"]);
}

#[test]
fn a_free_host_is_set_aside_and_one_in_use_is_taken_out_first() {
    taken(Verb::Spare, &host(|_| ()));
    not_taken(Verb::Unspare, &host(|_| ()), None, &["role `spare`"]);
    let spare = control(|control| control.spare = true);
    not_taken(Verb::Spare, &spare, None, &["already"]);
    taken(Verb::Unspare, &spare);
    let claimed = control(|control| control.consumer = "Metal3Machine lab-0".into());
    let (why, unless) = asked(Verb::Spare, &claimed, &site(3)).unwrap();
    assert!(why.contains("the Machine lab-0; drain it"), "{why}");
    assert_eq!(unless, None);
}

#[test]
fn what_a_cluster_has_is_given_back_by_the_cluster() {
    taken(
        Verb::GiveBack,
        &control(|control| control.disk = DiskUse::Installed),
    );
    taken(Verb::GiveBack, &control(|control| control.image = true));
    let claimed = control(|control| {
        (control.consumer, control.image) = ("Metal3Machine lab-0".into(), true);
    });
    let (why, unless) = asked(Verb::GiveBack, &claimed, &site(3)).unwrap();
    assert!(why.contains("kubectl delete machine lab-0"), "{why}");
    assert_eq!(unless, None);
    let force = Some(Insistence::Force);
    not_taken(Verb::GiveBack, &claimed, force, &["no cluster on the box"]);
    for (state, word) in [
        (HostState::External, "nobody here installed"),
        (HostState::Deprovisioning, "already"),
        (HostState::Available, "nothing to give back"),
    ] {
        let host = host(|host| host.state = state);
        not_taken(Verb::GiveBack, &host, None, &[word]);
    }
    let held = control(|control| {
        (control.consumer, control.held) = ("Metal3Machine lab-0".into(), true);
    });
    not_taken(Verb::GiveBack, &held, Some(Insistence::Names), &["3 hosts"]);
}

#[test]
fn only_a_dead_machine_of_a_cluster_is_forgotten_and_never_the_last_control_plane() {
    taken(Verb::Forget, &host(|_| ()));
    let force = Some(Insistence::Force);
    let carries = control(|control| control.disk = DiskUse::Installed);
    not_taken(Verb::Forget, &carries, force, &["give-back n1"]);
    let leaving = host(|host| host.state = HostState::Deleting);
    not_taken(Verb::Forget, &leaving, force, &["cleaned first"]);
    let writing = control(|control| control.disk = DiskUse::Writing);
    not_taken(Verb::Forget, &writing, None, &["switch the server off"]);
    let machine = |state: HostState| {
        host(|host| {
            host.state = state;
            host.control.consumer = "Metal3Machine lab-0".into();
            host.control.disk = DiskUse::Installed;
        })
    };
    let told = |state, control_planes| {
        let (why, unless) = asked(Verb::Forget, &machine(state), &site(control_planes)).unwrap();
        (unless, why)
    };
    let (unless, why) = told(HostState::Provisioned, 3);
    assert_eq!(unless, force, "{why}");
    let (unless, why) = told(HostState::Running, 3);
    assert!(unless.is_none() && why.contains("its system answers"));
    for control_planes in [1, 2] {
        let (unless, why) = told(HostState::Provisioned, control_planes);
        let is_last = why.contains("there is no cluster any more");
        assert_eq!(
            (unless.is_none(), is_last),
            (control_planes == 1, control_planes == 1)
        );
    }
    not_taken(
        Verb::Forget,
        &machine(HostState::Provisioned),
        None,
        &["give-back n1 --force"],
    );
    let mut worker = machine(HostState::Provisioned);
    worker.name = "n2".into();
    let (why, unless) = asked(Verb::Forget, &worker, &site(1)).unwrap();
    assert!(unless == force && why.contains("a worker of"), "{why}");
}
