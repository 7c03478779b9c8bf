#![allow(clippy::unwrap_used)]

use firstlight_api::{
    bmh::{AutomatedCleaningMode, Image, annotations::Detached},
    order::{DeploymentId, DiskId, DiskPolicy, DiskScope, Mark, RootDisk},
    report::{DiskSignatures, Fresh, Inventory},
};
use serde_json::{Value, json};

use super::{
    super::{
        ledger::{Departure, Deployment},
        root_disk::{Choice, WantedDisks},
    },
    *,
};

/// One host with everything as it is in the middle of a good run; each test changes what it is about.
struct World {
    report: Report,
    reported: Option<u64>,
    phase: Option<Phase>,
    node: Option<Node>,
    ironic_known: bool,
    node_since: u64,
    policy: InstallPolicy,
    wanted: Intent,
    ledger: Ledger,
    polled: Option<u64>,
    orders: (Option<u64>, u32),
    ssh_answers: bool,
    image: Result<NodeImage, Problem>,
    gave_up: Option<String>,
    refused: bool,
    barred: Option<Problem>,
}

const NOW: u64 = 1000;
const ID: DeploymentId = DeploymentId::new([7; 16]);

fn world() -> World {
    World {
        report: Report {
            boot_mac: "52:54:00:00:00:01".into(),
            boot_id: "boot-1".into(),
            address: "172.22.0.9".into(),
            inventory: Inventory::default(),
            disks: vec![DiskSignatures {
                name: "/dev/vda".into(),
                size_bytes: 8 << 30,
                ..DiskSignatures::default()
            }],
            lookup: LookupState::Registered,
            tpm: firstlight_api::tpm::Tpm::default(),
            follows: Vec::new(),
            fresh: Fresh::default(),
        },
        reported: Some(NOW - 1),
        phase: None,
        node: None,
        ironic_known: true,
        node_since: 0,
        policy: InstallPolicy::Blank,
        wanted: Intent {
            desired: Ok(DesiredState::Install(install(Data::Site))),
            paused: None,
            detached: None,
            inspection: Inspection::Once,
            cleaning: AutomatedCleaningMode::Metadata,
            restarts: vec![],
            power: super::super::intent::Power::On,
            root: WantedDisks::default(),
            retry: false,
            allow_kexec: false,
            confirmed: false,
            stays_on: false,
        },
        ledger: Ledger {
            left: Some(may_leave(Some(ID))),
            ..Ledger::default()
        },
        polled: None,
        orders: (None, 0),
        ssh_answers: false,
        image: Ok(NodeImage {
            name: "node".into(),
            sha256: "ab".into(),
            bytes: 1000,
            ..NodeImage::default()
        }),
        gave_up: None,
        refused: false,
        barred: None,
    }
}

fn may_leave(deployment: Option<DeploymentId>) -> Departure {
    let at = 1_800_000_000;
    Departure { at, deployment }
}

/// For the node of [`World::node`].
fn lookup() -> Directive {
    let node = "u".to_owned();
    Directive::Lookup { node }
}

fn image() -> Image {
    Image {
        url: "http://box/node.raw.zst".into(),
        checksum: "ab".into(),
        ..Image::default()
    }
}

fn install(data: Data) -> Install {
    Install {
        image: image(),
        data,
    }
}

#[expect(clippy::unnecessary_wraps, reason = "compared with what a ledger has")]
fn on_disk(token: Option<&str>, delivered: bool) -> Option<Deployment> {
    Some(Deployment {
        id: Some(ID),
        disks: vec![],
        root: None,
        image: image(),
        token: token.map(str::to_owned),
        key: None,
        delivered,
        written: true,
        shown: true,
        ..Deployment::default()
    })
}

impl World {
    #[expect(clippy::needless_pass_by_value, reason = "reads better in the tables")]
    fn node(mut self, state: &str, extra: Value) -> Self {
        let node = json!({
            "uuid": "u", "name": "n1", "provision_state": state, "power_state": "power on", "extra": extra,
            "target_provision_state": null, "last_error": null, "reservation": null,
        });
        self.node = Some(serde_json::from_value(node).unwrap());
        self
    }

    fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    fn change_node(self, change: impl FnOnce(&mut Node)) -> Self {
        self.with(|world| change(world.node.as_mut().unwrap()))
    }

    fn lookup(self, lookup: LookupState) -> Self {
        self.with(|world| world.report.lookup = lookup)
    }

    fn data(self) -> Self {
        self.with(|world| world.report.disks[0].signatures = vec!["gpt".into()])
    }

    /// Of our own image a half is there.
    fn unfinished(self) -> Self {
        self.with(|world| {
            let deployment = ID;
            world.report.disks[0].signatures = vec!["firstlight-unfinished".into()];
            world.report.disks[0].mark = Some(Mark::Unfinished { deployment });
        })
    }

    fn under_way(self) -> Self {
        self.with(|world| {
            world.ledger.deployment = on_disk(None, false);
            world.ledger.deployment.as_mut().unwrap().written = false;
        })
    }

    fn plan(&self) -> Plan {
        plan(&Observed {
            now: Duration::from_secs(NOW),
            called: "n1",
            policy: self.policy,
            clean: None,
            report: self
                .reported
                .map(|at| (&self.report, Duration::from_secs(at))),
            phase: self.phase.as_ref(),
            ironic: match &self.node {
                Some(node) => Ironic::Node(node),
                None if self.ironic_known => Ironic::Absent,
                None => Ironic::Unknown,
            },
            node_since: Duration::from_secs(self.node_since),
            since: Duration::ZERO,
            owes_account: false,
            wanted: &self.wanted,
            ledger: &self.ledger,
            system: System {
                ssh_answers: self.ssh_answers,
                polled: self.polled.map(Duration::from_secs),
                restarts: RestartOrders {
                    accepted: self.orders.0.map(Duration::from_secs),
                    failed: self.orders.1,
                    error: (self.orders.1 > 0).then_some("connection refused"),
                    refused: None,
                },
            },
            image: self.image.as_ref(),
            gave_up: self.gave_up.as_deref(),
            refused: self.refused,
            barred: self.barred.as_ref(),
            remote: Remote::None,
        })
    }

    fn outcome(&self) -> (HostState, Option<Action>) {
        let plan = self.plan();
        (plan.state, plan.action)
    }
}

#[expect(clippy::unnecessary_wraps, reason = "compared with what a plan has")]
fn first_deploy(attempt: u64) -> Option<Action> {
    Some(Action::Deploy {
        attempt,
        judgement: Box::new(Judgement {
            policy: DiskPolicy::Blank,
            root: Choice {
                disk: RootDisk {
                    disk: the_disk(),
                    name: "/dev/vda".into(),
                    by_path: None,
                },
                mirror: None,
                scope: DiskScope::Server,
                why: "the only disk".into(),
            },
            disks: vec![the_disk()],
            free: vec![the_disk()],
        }),
        install: Box::new(install(Data::Site)),
    })
}

fn the_disk() -> DiskId {
    DiskId::new(None, None, 8 << 30)
}

fn judged() -> Value {
    json!({EXTRA_ATTEMPT: 1})
}

#[test]
fn a_blank_machine_is_registered_and_one_with_data_is_left_alone() {
    assert_eq!(
        world().outcome(),
        (HostState::Registering, Some(Action::Register))
    );
    assert_eq!(
        world()
            .data()
            .with(|world| world.policy = InstallPolicy::Wipe)
            .outcome()
            .1,
        Some(Action::Register)
    );
    let left = world().data().plan();
    assert_eq!(
        (left.state, &left.action, &left.boot),
        (HostState::Discovered, &None, &BootTarget::Ramdisk)
    );
    let problem = left.problem.unwrap();
    assert!(
        problem.what.contains("/dev/vda") && problem.what.contains("gpt"),
        "{problem:?}"
    );
    assert_eq!(
        left.directive,
        Directive::Wait {
            seconds: 15,
            reason: problem.what
        }
    );
}

#[test]
fn ironic_goes_on_when_it_has_heard_the_ramdisk_or_does_not_for_long() {
    let world = |state: &str, since, heard: bool| {
        let world = world().node(state, json!({}));
        let world = world.with(|world| world.node_since = since);
        world.change_node(|node| {
            let url = heard.then_some("https://172.22.1.0:9999");
            node.driver_internal_info = json!({"agent_url": url});
            node.inspection_finished_at = Some("2026-11-01T00:00:00".to_owned());
        })
    };
    let provide = Some(Action::Provide { clean: false });
    for (state, next) in [("manageable", provide), ("available", first_deploy(1))] {
        assert_eq!(world(state, NOW, true).outcome().1, next);
        let waits = world(state, NOW - 19, false).plan();
        assert_eq!((waits.action, waits.directive), (None, lookup()));
        assert!(waits.step.contains("first heartbeat"), "{}", waits.step);
        assert_eq!(world(state, NOW - 20, false).outcome().1, next);
    }
}

#[test]
fn an_image_that_the_disk_cannot_hold_is_not_begun() {
    let small = |raw_bytes| {
        let image = world().node("available", json!({}));
        image.with(|world| world.image.as_mut().unwrap().raw_bytes = raw_bytes)
    };
    assert!(matches!(
        small(8 << 30).outcome().1,
        Some(Action::Deploy { .. })
    ));
    let left = small((8 << 30) + 1).plan();
    assert_eq!(left.action, None);
    let what = left.problem.unwrap().what;
    assert_eq!(
        what,
        "the image needs 8590 MB, and /dev/vda (8 GB, without a serial number) has 8589 MB"
    );
}

#[test]
fn nothing_is_decided_before_ironic_was_asked_and_without_a_report() {
    for world in [
        world().with(|world| world.ironic_known = false),
        world().with(|world| world.reported = None),
    ] {
        assert_eq!(world.outcome(), (HostState::Discovered, None));
    }
    let no_image = world()
        .with(|world| {
            world.wanted.desired = Ok(DesiredState::Idle);
            world.image = Err(Problem {
                what: "no image".into(),
                next: "build".into(),
            });
        })
        .plan();
    assert_eq!(
        (no_image.action, no_image.problem.unwrap().what.as_str()),
        (None, "no image")
    );
}

#[test]
fn a_ramdisk_that_went_on_while_the_box_restarted_is_shown_before_ironic_is_up() {
    let at = |phase| {
        let unknown =
            world().with(|world| (world.ironic_known, world.phase) = (false, Some(phase)));
        unknown.plan()
    };
    let writing = at(Phase::Writing { bytes: 1, total: 2 });
    assert_eq!(
        (writing.state, writing.percent),
        (HostState::Provisioning, Some(50))
    );
    assert_eq!(
        (writing.boot, at(Phase::REBOOTING).boot),
        (BootTarget::Ramdisk, BootTarget::Disk)
    );
}

#[test]
fn an_installed_host_boots_its_disk_before_ironic_is_up() {
    let plan = world()
        .with(|world| {
            (world.ironic_known, world.ledger.deployment) = (false, on_disk(None, false));
        })
        .plan();
    assert_eq!(
        (plan.boot, plan.directive, plan.action),
        (BootTarget::Disk, Directive::BootDisk, None)
    );
}

#[test]
#[expect(clippy::large_stack_arrays, reason = "a table of whole worlds")]
fn each_state_of_ironic_has_its_next_action() {
    let inspected = |node: &mut Node| node.inspection_finished_at = Some("then".into());
    let cases = [
        (
            world().node("enroll", json!({})),
            HostState::Registering,
            Some(Action::Register),
        ),
        (
            world().node("verifying", json!({})),
            HostState::Registering,
            None,
        ),
        (
            world().node("manageable", json!({})),
            HostState::Inspecting,
            Some(Action::Inspect),
        ),
        (
            world().node("manageable", json!({})).change_node(inspected),
            HostState::Inspecting,
            Some(Action::Provide { clean: false }),
        ),
        (
            world()
                .node("manageable", json!({}))
                .change_node(inspected)
                .change_node(|node| node.power_state = None),
            HostState::Inspecting,
            Some(Action::Switch(PowerTarget::On)),
        ),
        (
            world().node("inspecting", json!({})),
            HostState::Inspecting,
            None,
        ),
        (
            world().node("inspect wait", json!({})),
            HostState::Inspecting,
            None,
        ),
        (
            world().node("inspect failed", json!({})),
            HostState::Inspecting,
            Some(Action::Manage),
        ),
        (
            world().node("clean failed", json!({})),
            HostState::Registering,
            Some(Action::Manage),
        ),
        (
            world().node("available", json!({})),
            HostState::Provisioning,
            first_deploy(1),
        ),
        (
            world().node("deploying", judged()),
            HostState::Provisioning,
            None,
        ),
        (
            world().node("wait call-back", judged()),
            HostState::Provisioning,
            None,
        ),
        (
            world().node("deploy failed", judged()),
            HostState::Provisioning,
            first_deploy(2),
        ),
        (
            world().node("active", judged()),
            HostState::Provisioned,
            None,
        ),
        (
            world().node("error", judged()),
            HostState::Deprovisioning,
            Some(Action::Release),
        ),
        (world().node("rescue", judged()), HostState::Available, None),
    ];
    for (world, state, action) in cases {
        let ironic = world.node.as_ref().unwrap().provision_state.clone();
        assert_eq!(world.outcome(), (state, action), "{ironic}");
    }
}

#[test]
fn an_active_host_is_never_deployed_whatever_it_reports() {
    for lookup in [
        LookupState::NotAsked,
        LookupState::NotWanted,
        LookupState::TokenLost,
        LookupState::Registered,
    ] {
        for policy in [
            InstallPolicy::Blank,
            InstallPolicy::Wipe,
            InstallPolicy::Never,
        ] {
            let plan = world()
                .node("active", judged())
                .lookup(lookup)
                .with(|world| world.policy = policy)
                .plan();
            assert_eq!(
                (plan.boot, plan.directive, plan.action),
                (BootTarget::Disk, Directive::BootDisk, None)
            );
        }
    }
    let running = world()
        .node("active", judged())
        .with(|world| world.ssh_answers = true)
        .plan();
    assert_eq!(running.state, HostState::Running);
}

#[test]
fn the_disks_are_judged_again_right_before_the_first_write() {
    let plan = world().node("available", json!({})).data().plan();
    assert_eq!((plan.state, plan.action), (HostState::Available, None));
    assert!(plan.problem.unwrap().what.contains("gpt"));
    // Our own half-written image is no reason to stop, whatever else is there is.
    let failed = || world().node("deploy failed", judged()).under_way();
    assert_eq!(failed().unfinished().outcome().1, first_deploy(2));
    let other = failed().data().plan();
    assert_eq!((other.action, other.step.as_str()), (None, "left alone"));
}

/// Name, size and serial number of its disk are what they were: only what is on it tells.
#[test]
fn a_system_that_somebody_installed_by_hand_after_a_deployment_ended_is_left_alone() {
    let started_again = |world: &mut World| world.gave_up = Some("boot-0".into());
    let three = || json!({EXTRA_ATTEMPT: 3});
    let given_up = || {
        world()
            .node("deploy failed", three())
            .under_way()
            .with(started_again)
    };
    let given_back = || world().node("available", json!({EXTRA_ATTEMPT: 0}));
    let forgotten = || world().under_way();
    for ended in [given_up(), given_back(), forgotten()] {
        let by_hand = ended.data().plan();
        assert_eq!(by_hand.action, None);
        let problem = by_hand.problem.unwrap();
        assert!(problem.what.contains("not blank: gpt found"), "{problem:?}");
        assert!(problem.next.contains("install=wipe"), "{problem:?}");
    }
    // What is left of a deployment that is under way is ours; of one that was torn down it is not.
    assert_eq!(given_up().unfinished().outcome().1, first_deploy(1));
    assert_eq!(given_back().unfinished().outcome().1, None);
    assert_eq!(forgotten().unfinished().outcome().1, Some(Action::Register));
}

#[test]
fn a_deployment_that_an_earlier_version_began_goes_on_and_wipes_nothing() {
    let earlier = |world: World| {
        world.under_way().with(|world| {
            world.ledger.deployment.as_mut().unwrap().id = None;
        })
    };
    let failed = || earlier(world().node("deploy failed", judged()));
    assert_eq!(failed().outcome().1, first_deploy(2));
    assert_eq!(failed().data().outcome().1, None);
    let running = || {
        unwanted().with(|world| {
            world.ledger.deployment.as_mut().unwrap().id = None;
            world.ledger.left = Some(may_leave(None));
        })
    };
    assert!(running().outcome().1.is_none() && running().plan().problem.is_some());
    let known = running().with(|world| {
        world.report.disks[0].mark = Some(Mark::Installed { deployment: None });
    });
    assert_eq!(known.outcome().1, tear_down(None));
    let wanted = running().with(|world| {
        world.wanted.desired = Ok(DesiredState::Install(install(Data::Site)));
    });
    assert_eq!(wanted.outcome(), (HostState::Provisioned, None));
}

#[expect(clippy::unnecessary_wraps, reason = "compared with what a plan has")]
fn tear_down(deployment: Option<DeploymentId>) -> Option<Action> {
    Some(Action::TearDown {
        clean: Some(DiskOrder {
            deployment,
            policy: DiskPolicy::GiveBack,
            scope: DiskScope::Server,
            disks: vec![the_disk()],
            root: None,
            mirror: None,
        }),
    })
}

#[test]
fn a_system_in_use_goes_on_until_somebody_lets_it_go_and_a_staged_one_needs_nobody() {
    let held = |world: World| {
        world.with(|world| {
            world.ledger.left = Some(may_leave(Some(DeploymentId::new([8; 16]))));
        })
    };
    let plan = held(unwanted()).plan();
    assert_eq!(
        (
            plan.state,
            &plan.action,
            &plan.restart,
            &plan.boot,
            plan.held
        ),
        (
            HostState::Provisioned,
            &None,
            &None,
            &BootTarget::Disk,
            true
        ),
        "that another deployment could leave says nothing of this one"
    );
    let problem = plan.problem.unwrap();
    assert!(
        problem.next.contains("confirm-deprovision=n1"),
        "{problem:?}"
    );
    let deleted = held(unwanted()).with(|world| world.wanted.desired = Ok(DesiredState::Gone));
    assert!(deleted.plan().held);
    let paused = held(unwanted()).with(|world| world.wanted.paused = Some("me".into()));
    assert!(!paused.plan().held, "it is nobody's turn");
    let kept = held(unwanted()).with(|world| {
        world.wanted.desired = Ok(DesiredState::Install(install(Data::Site)));
    });
    assert!(!kept.plan().held);
    let begun = held(unwanted()).with(|world| world.ledger.leaving = true);
    assert!(begun.outcome().1.is_some(), "there is no way back");
    let staged = held(unwanted()).with(|world| {
        world.ledger.deployment = on_disk(Some("hash"), false);
    });
    assert!(!staged.plan().held);
}

#[test]
#[expect(
    clippy::useless_vec,
    reason = "an array of worlds is too large for the stack"
)]
fn what_waits_for_another_try_is_named_and_begins_at_once_on_a_persons_word() {
    use FailedStep as F;
    let erred = |state: &str| {
        let node = world().node(state, judged());
        node.change_node(|node| node.last_error = Some("no".into()))
            .with(|world| world.node_since = NOW - 1)
    };
    let on_disk = |world: World| world.with(|world| world.ledger.deployment = on_disk(None, false));
    for (world, step, action) in vec![
        (erred("enroll"), F::Registration, Action::Register),
        (erred("inspect failed"), F::Inspection, Action::Manage),
        (erred("clean failed"), F::Cleaning, Action::Manage),
        (erred("error"), F::Cleaning, Action::Release),
        (
            erred("deploy failed"),
            F::Installation,
            first_deploy(1).unwrap(),
        ),
        (on_disk(erred("manageable")), F::Adoption, Action::Adopt),
    ] {
        let waits = world.with(|world| {
            (world.ledger.inspections, world.ledger.cleanings) = (MOST_TRIES, MOST_TRIES);
            world.node.as_mut().unwrap().extra[EXTRA_ATTEMPT] = MOST_ATTEMPTS.into();
        });
        let plan = waits.plan();
        assert_eq!((plan.failed, plan.action), (Some(step), None));
        let again = waits.with(|world| world.ledger.retry = true).outcome().1;
        assert_eq!(again, Some(action), "{step:?}");
    }
    let refused = |refused| {
        let world = world().node("available", json!({}));
        world.with(|world| world.refused = refused).plan().failed
    };
    assert_eq!(
        refused(true),
        Some(F::Installation),
        "Ironic did not take it"
    );
    for fine in [world().node("wait call-back", judged()), world()] {
        assert_eq!(fine.plan().failed, None);
    }
    assert_eq!(refused(false), None);
}

#[test]
fn an_inspection_that_is_left_out_is_waited_for_by_nobody() {
    let never = |state: &str| {
        world()
            .node(state, json!({}))
            .with(|world| world.wanted.inspection = Inspection::Never)
    };
    for (state, action) in [
        ("inspect wait", Action::Abort),
        ("inspect failed", Action::Manage),
        ("manageable", Action::Provide { clean: false }),
    ] {
        let given_up = never(state).with(|world| world.ledger.inspections = MOST_TRIES);
        assert_eq!(given_up.outcome().1, Some(action), "{state}");
    }
}

#[test]
fn what_happens_to_a_disk_is_told_and_who_is_silent_does_nothing() {
    let disk = |world: World| world.plan().disk;
    let at = |state: &str| world().node(state, judged());
    let leaving = |state: &str| at(state).with(|world| world.ledger.leaving = true);
    assert_eq!(disk(at("available")), DiskUse::Free);
    assert_eq!(disk(at("wait call-back")), DiskUse::Writing);
    assert_eq!(disk(at("clean wait")), DiskUse::Free, "nothing is erased");
    assert_eq!(disk(leaving("clean wait")), DiskUse::Erasing);
    let silent = at("wait call-back").with(|world| world.reported = Some(NOW - 200));
    assert_eq!(disk(silent), DiskUse::Free);
    let booting = world().with(|world| {
        (world.ironic_known, world.phase) = (false, Some(Phase::ConfigDrive));
    });
    assert_eq!(disk(booting), DiskUse::Writing, "before Ironic is up");
    for (token, delivered, used) in [
        (None, false, DiskUse::Installed),
        (Some("hash"), false, DiskUse::Staged),
        (Some("hash"), true, DiskUse::Installed),
    ] {
        let holds = at("active").with(|world| world.ledger.deployment = on_disk(token, delivered));
        assert_eq!(disk(holds), used);
    }
}

#[test]
fn a_lost_token_has_its_way_out_in_every_state() {
    let lost = |state: &str| {
        world()
            .node(state, judged())
            .lookup(LookupState::TokenLost)
            .outcome()
            .1
    };
    assert_eq!(lost("available"), Some(Action::ForgetToken));
    assert_eq!(lost("wait call-back"), Some(Action::Release));
    assert_eq!(lost("clean wait"), Some(Action::Abort));
    assert_eq!(
        lost("deploying"),
        None,
        "Ironic refuses it there; the state ends by itself"
    );
    for state in ["available", "wait call-back", "clean wait"] {
        let plan = world()
            .node(state, judged())
            .lookup(LookupState::TokenLost)
            .plan();
        assert_eq!(
            plan.directive,
            lookup(),
            "{state}: only who asks again gets the new token"
        );
    }
}

#[test]
fn a_ramdisk_registers_before_the_deployment_begins() {
    for state in [LookupState::NotAsked, LookupState::NotWanted] {
        let plan = world().node("available", json!({})).lookup(state).plan();
        assert_eq!((plan.directive, plan.action), (lookup(), None));
    }
    let gone = world()
        .node("available", json!({}))
        .with(|world| world.reported = Some(NOW - 200));
    assert_eq!(gone.outcome(), (HostState::Available, None));
}

#[test]
fn a_failed_deployment_rests_is_tried_three_times_and_then_waits_for_a_person() {
    let failed = |attempt: u64| {
        world()
            .node("deploy failed", json!({EXTRA_ATTEMPT: attempt}))
            .change_node(|node| node.last_error = Some("disk is broken".into()))
    };
    let resting = failed(1).with(|world| world.node_since = NOW - 5).plan();
    assert_eq!(
        (resting.action, resting.problem.unwrap().what.as_str()),
        (None, "disk is broken")
    );
    assert_eq!(
        failed(2)
            .with(|world| world.node_since = NOW - 30)
            .plan()
            .action,
        None,
        "the second pause is longer"
    );
    assert_eq!(failed(2).outcome().1, first_deploy(3));

    let given_up = failed(3).plan();
    assert_eq!(
        (given_up.state, &given_up.action),
        (HostState::Failed, &None)
    );
    let problem = given_up.problem.unwrap();
    assert!(
        problem.what.contains("disk is broken") && problem.next.contains("restart the server"),
        "{problem:?}"
    );
    assert_eq!(
        failed(3)
            .with(|world| world.gave_up = Some("boot-1".into()))
            .outcome()
            .0,
        HostState::Failed
    );
    let restarted = failed(3).with(|world| world.gave_up = Some("boot-0".into()));
    assert_eq!(restarted.outcome().1, first_deploy(1));
    let by_the_box = failed(3).change_node(|node| {
        node.last_error = Some("The deploying state can't be resumed by conductor box.".into());
    });
    assert_eq!(
        by_the_box.outcome().1,
        first_deploy(3),
        "a restart of the box costs the host no attempt"
    );
}

#[test]
fn a_failed_inspection_is_tried_three_times_and_again_after_a_restart_of_the_server() {
    let failed = |inspections, gave_up: Option<&str>| {
        let gave_up = gave_up.map(str::to_owned);
        world()
            .node("inspect failed", json!({}))
            .with(|world| (world.ledger.inspections, world.gave_up) = (inspections, gave_up))
    };
    assert_eq!(failed(2, None).outcome().1, Some(Action::Manage));
    assert_eq!(
        failed(3, Some("boot-1")).outcome(),
        (HostState::Failed, None)
    );
    assert_eq!(failed(3, Some("boot-0")).outcome().1, Some(Action::Manage));
}

#[test]
fn progress_is_shown_and_the_last_of_it_turns_the_boot_to_the_disk() {
    let at = |phase| {
        world()
            .node("wait call-back", judged())
            .with(|world| {
                let mut deployment = on_disk(None, false);
                deployment.as_mut().unwrap().image.url = "http://box/images/own-1.raw.zst".into();
                (world.phase, world.ledger.deployment) = (Some(phase), deployment);
            })
            .plan()
    };
    let writing = at(Phase::Writing {
        bytes: 410,
        total: 1000,
    });
    assert_eq!(
        (writing.step.as_str(), writing.percent),
        ("writing own-1.raw.zst, 41 %", Some(41))
    );
    assert_eq!(writing.boot, BootTarget::Ramdisk);
    assert_eq!(at(Phase::Writing { bytes: 5, total: 0 }).percent, None);
    assert_eq!(at(Phase::REBOOTING).boot, BootTarget::Disk);
    let silent = world()
        .node("wait call-back", judged())
        .with(|world| world.reported = Some(NOW - 200))
        .plan();
    assert!(silent.problem.unwrap().what.contains("silent"));
}

#[test]
fn a_node_in_maintenance_is_left_to_whoever_did_that() {
    let plan = world()
        .node("available", json!({}))
        .change_node(|node| node.maintenance = true)
        .plan();
    assert_eq!((plan.state, plan.action), (HostState::Failed, None));
}

/// The box may have died before it ended it.
#[test]
fn the_boxs_own_maintenance_is_no_failure_and_ends() {
    let ours = |node: &mut Node| {
        node.maintenance = true;
        node.maintenance_reason = Some("Firstlight works on the node".to_owned());
    };
    let world = || {
        let world = world().node("active", json!({}));
        world.with(|world| world.ledger.deployment = on_disk(None, false))
    };
    let calm = world().plan();
    let held = world().change_node(ours).plan();
    assert_eq!(held.action, Some(Action::EndMaintenance));
    assert_eq!((held.state, held.problem), (calm.state, calm.problem));
}

#[test]
fn what_is_on_the_disk_and_verified_is_adopted_and_never_written_again() {
    let written = |state: &str| {
        let world = world().node(state, judged());
        world.with(|world| world.ledger.deployment = on_disk(None, false))
    };
    let cases = [
        ("deploy failed", Some(Action::Retract)),
        ("error", Some(Action::Retract)),
        ("available", Some(Action::Manage)),
        ("manageable", Some(Action::Adopt)),
        ("adopt failed", Some(Action::Adopt)),
        ("adopting", None),
        ("active", None),
    ];
    for (state, action) in cases {
        let plan = written(state).plan();
        assert_eq!(
            (plan.action, plan.boot),
            (action, BootTarget::Disk),
            "{state}"
        );
    }
    let waits = |change: fn(&mut World)| {
        let world = written("wait call-back")
            .with(|world| world.phase = Some(Phase::Written { wrote: None }));
        world.with(change).plan()
    };
    let here = waits(|_| {});
    assert_eq!((here.action, here.boot), (None, BootTarget::Ramdisk));
    let gone: [fn(&mut World); 4] = [
        |world| world.report.lookup = LookupState::TokenLost,
        |world| world.reported = Some(NOW - 200),
        |world| world.reported = None,
        |world| {
            (world.reported, world.node_since, world.ssh_answers) = (None, NOW - 1, true);
        },
    ];
    for (number, change) in gone.into_iter().enumerate() {
        let plan = waits(change);
        assert_eq!(
            (plan.action, plan.boot),
            (Some(Action::Retract), BootTarget::Disk),
            "{number}"
        );
    }
    let restarted = waits(|world| (world.reported, world.node_since) = (None, NOW - 1));
    assert_eq!(restarted.action, None, "it may report any moment");
    let forgotten = world().with(|world| world.ledger.deployment = on_disk(None, false));
    assert_eq!(
        forgotten.outcome().1,
        Some(Action::Register),
        "Ironic lost its memory"
    );
    for state in ["deploy failed", "available", "manageable"] {
        let half = written(state).with(|world| {
            world.ledger.deployment.as_mut().unwrap().written = false;
        });
        assert!(
            !matches!(half.outcome().1, Some(Action::Adopt | Action::Retract)),
            "{state}: half an image is none"
        );
    }
}

fn unwanted() -> World {
    world().node("active", judged()).with(|world| {
        let deployment = Some(ID);
        world.wanted.desired = Ok(DesiredState::Idle);
        world.ledger.deployment = on_disk(None, false);
        world.report.disks[0].signatures = vec!["gpt".into()];
        world.report.disks[0].mark = Some(Mark::Installed { deployment });
    })
}

#[test]
fn an_unwanted_system_is_asked_over_ssh_then_a_person_and_torn_down_once_in_the_ramdisk() {
    let silent = || unwanted().with(|world| world.reported = None);
    let asked = silent().plan();
    assert_eq!(
        (asked.state, asked.restart, asked.boot, asked.action),
        (
            HostState::Deprovisioning,
            Some(Restart::Ssh(Towards::Network)),
            BootTarget::Ramdisk,
            None
        )
    );
    let took_it = silent()
        .with(|world| world.orders = (Some(NOW - 60), 0))
        .plan();
    assert_eq!(
        (took_it.restart, took_it.problem),
        (Some(Restart::Taken), None),
        "the order stands, and nobody asks twice"
    );
    for orders in [(None, 1), (Some(0), 1)] {
        let person = silent().with(|world| world.orders = orders).plan();
        let problem = person.problem.unwrap();
        assert!(
            problem.next.contains("off and on") && problem.next.contains("detached"),
            "{problem:?}"
        );
        assert!(person.restart.is_some(), "it is tried on");
    }
    assert_eq!(
        unwanted().outcome(),
        (HostState::Deprovisioning, tear_down(Some(ID)))
    );
    let kept = unwanted().with(|world| world.wanted.cleaning = AutomatedCleaningMode::Disabled);
    assert_eq!(kept.outcome().1, Some(Action::TearDown { clean: None }));
    // What somebody else has put there is not ours to erase.
    let other = unwanted().with(|world| world.report.disks[0].mark = None);
    assert!(other.plan().action.is_none() && other.plan().problem.is_some());
}

#[test]
fn a_staged_system_waits_is_given_its_data_and_is_called_back_by_the_endpoint() {
    let staged = |desired: DesiredState| {
        world().node("active", judged()).with(|world| {
            world.reported = None;
            world.polled = Some(NOW - 3);
            world.ledger.deployment = on_disk(Some("hash"), false);
            world.wanted.desired = Ok(desired);
        })
    };
    let waits = staged(DesiredState::Stage(install(Data::Endpoint))).plan();
    assert_eq!(
        (waits.state, waits.deliver, waits.boot),
        (HostState::Staged, false, BootTarget::Disk)
    );
    let claimed = staged(DesiredState::Install(install(Data::Endpoint))).plan();
    assert_eq!(
        (claimed.state, claimed.deliver, claimed.action),
        (HostState::Provisioning, true, None)
    );
    let silent =
        staged(DesiredState::Install(install(Data::Endpoint))).with(|world| world.polled = None);
    assert!(
        silent
            .plan()
            .problem
            .unwrap()
            .what
            .contains("has not asked")
    );
    let mut foreign = install(Data::Drive);
    foreign.image.checksum = "cd".into();
    for back in [
        staged(DesiredState::Idle),
        staged(DesiredState::Install(foreign)),
    ] {
        let plan = back.plan();
        assert_eq!(
            (plan.restart, plan.deliver),
            (Some(Restart::Endpoint), false)
        );
    }
    let delivered = staged(DesiredState::Install(install(Data::Endpoint)))
        .with(|world| world.ledger.deployment = on_disk(Some("hash"), true));
    assert_eq!(delivered.outcome(), (HostState::Provisioned, None));
}

#[test]
fn a_deleted_host_leaves_clean_and_a_detached_or_uncleaned_one_as_it_is() {
    let gone = |world: World| world.with(|world| world.wanted.desired = Ok(DesiredState::Gone));
    assert_eq!(gone(unwanted()).outcome().1, tear_down(Some(ID)));
    for state in ["available", "manageable", "enroll"] {
        let free = gone(world().node(state, judged()));
        assert_eq!(
            free.outcome(),
            (HostState::Deleting, Some(Action::Unregister)),
            "{state}"
        );
    }
    let dirty =
        gone(world().node("manageable", judged())).with(|world| world.ledger.leaving = true);
    assert_ne!(
        dirty.outcome().1,
        Some(Action::Unregister),
        "it is cleaned first"
    );
    let kept =
        gone(unwanted()).with(|world| world.wanted.cleaning = AutomatedCleaningMode::Disabled);
    assert_eq!(
        (kept.plan().action, kept.plan().boot),
        (Some(Action::Unregister), BootTarget::Disk)
    );
    assert!(gone(world()).plan().release);
    let detached = gone(unwanted()).with(|world| world.wanted.detached = Some(Detached::default()));
    assert_eq!(
        detached.outcome(),
        (HostState::Detached, Some(Action::Unregister))
    );
    assert!(detached.with(|world| world.node = None).plan().release);
}

#[test]
fn a_paused_host_is_shown_and_nothing_is_done() {
    for world in [world(), unwanted(), world().node("available", json!({}))] {
        assert!(world.plan().action.is_some());
        let paused = world
            .with(|world| world.wanted.paused = Some("me".into()))
            .plan();
        assert_eq!((paused.action, paused.restart), (None, None));
        assert!(paused.step.contains("paused by me"));
    }
}

#[test]
fn a_host_of_somebody_else_boots_its_disk_whatever_ironic_says() {
    for world in [
        world(),
        world().data(),
        world().node("available", json!({})),
    ] {
        let plan = world
            .with(|world| world.wanted.desired = Ok(DesiredState::External))
            .plan();
        assert_eq!(
            (plan.state, plan.action, plan.directive),
            (HostState::External, None, Directive::BootDisk)
        );
    }
}

#[test]
fn a_failed_cleaning_ends_its_maintenance_and_is_tried_three_times() {
    let failed = |times| {
        world().node("clean failed", judged()).with(|world| {
            (world.ledger.leaving, world.ledger.cleanings) = (true, times);
        })
    };
    let held = failed(1).change_node(|node| {
        (node.maintenance, node.fault) = (true, Some("clean failure".into()));
    });
    assert_eq!(held.outcome().1, Some(Action::EndMaintenance));
    assert_eq!(
        failed(2).outcome(),
        (HostState::Deprovisioning, Some(Action::Manage))
    );
    assert_eq!(failed(3).outcome(), (HostState::Failed, None));
    let anew = failed(3).with(|world| world.gave_up = Some("boot-0".into()));
    assert_eq!(anew.outcome().1, Some(Action::Manage));
}

#[test]
fn a_restart_is_asked_for_over_ssh_and_a_wish_for_inspection_leads_back_to_it() {
    let restart = world().node("active", judged()).with(|world| {
        world.ledger.deployment = on_disk(None, false);
        world.wanted.restarts = vec!["reboot.metal3.io".into()];
    });
    assert_eq!(restart.plan().restart, Some(Restart::Ssh(Towards::Disk)));
    let failed = restart.with(|world| world.orders = (None, 2)).plan();
    assert!(failed.problem.unwrap().next.contains("off and on"));
    assert_eq!(failed.boot, BootTarget::Disk);
    let again = |state: &str| {
        let world = world().node(state, json!({}));
        let world = world.change_node(|node| node.inspection_finished_at = Some("then".into()));
        world.with(|world| world.wanted.inspection = Inspection::Again)
    };
    assert_eq!(again("available").outcome().1, Some(Action::Manage));
    assert_eq!(again("manageable").outcome().1, Some(Action::Inspect));
    assert_eq!(again("inspect wait").plan().forget, [annotations::INSPECT]);
}

#[test]
fn who_is_not_taken_is_listed_with_the_reason_and_keeps_what_it_has() {
    let barred = || World {
        barred: Some(Problem {
            what: "nobody named it".into(),
            next: String::new(),
        }),
        ..world()
    };
    let plan = barred().plan();
    assert_eq!((plan.state, plan.action), (HostState::Discovered, None));
    assert_eq!(plan.problem.unwrap().what, "nobody named it");
    for state in ["available", "deploy failed"] {
        let plan = barred().node(state, json!({})).plan();
        assert_eq!(plan.action, None, "{state}");
    }
    let installed = World {
        ledger: Ledger {
            deployment: on_disk(None, false),
            ..Ledger::default()
        },
        ..barred()
    };
    assert_eq!(
        installed.node("active", json!({})).plan().boot,
        BootTarget::Disk
    );
}
