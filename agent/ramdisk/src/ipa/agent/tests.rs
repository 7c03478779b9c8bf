#![allow(
    clippy::unwrap_used,
    clippy::needless_pass_by_value,
    clippy::unchecked_time_subtraction
)]

use std::time::Duration;

use firstlight_api::receipt::Wrote;
use firstlight_api::report::Phase;
use firstlight_api::start::Start;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::event::{Failure, HeartbeatReply, Request};
use super::{
    registered::{BEAT_EAGER, BEAT_LONGEST, BEAT_RETRY, BEAT_SPACING, BEAT_WORKING},
    *,
};

const TOKEN: &str = "tok-1";

fn seconds(at: u64) -> Duration {
    Duration::from_secs(at)
}

fn node(token: &str) -> Node {
    Node {
        uuid: "n1".into(),
        token: token.into(),
        heartbeat_timeout: seconds(60),
        md5_allowed: false,
    }
}

fn lookup() -> Directive {
    Directive::Lookup {
        node: node("").uuid,
    }
}

fn inspect() -> Action {
    Action::Inspect {
        node: Some(node("").uuid),
    }
}

fn look_up() -> Action {
    Action::LookUp {
        node: Some(node("").uuid),
    }
}

/// An agent on a virtual clock. Lines for the console are left out of what tests compare.
struct Line {
    agent: Agent,
    now: Duration,
    asks: u64,
}

impl Line {
    fn start(has_box: bool) -> (Self, Vec<Action>) {
        let (agent, actions) = Agent::start(Config {
            has_box,
            inspects: true,
            seed: 7,
            started_at: 1000,
        });
        (
            Self {
                agent,
                now: Duration::ZERO,
                asks: 0,
            },
            actions,
        )
    }

    /// With the box's word, an inspection that is not wanted, and a lookup that is.
    fn registered() -> Self {
        let (mut line, _) = Self::start(true);
        line.send(Event::Reported(Ok(lookup())));
        line.send(Event::Registration(Registration::NotWanted));
        let actions = line.send(Event::Registration(Registration::Accepted(node(TOKEN))));
        let beat = Action::Beat {
            uuid: "n1".into(),
            token: TOKEN.into(),
        };
        assert_eq!(
            actions,
            [
                beat,
                Action::Report {
                    lookup: LookupState::Registered
                }
            ]
        );
        line.send(Event::Reported(Ok(lookup())));
        line.send(Event::HeartbeatReply(HeartbeatReply::Accepted));
        line
    }

    fn send(&mut self, event: Event) -> Vec<Action> {
        let mut actions = self.agent.handle(self.now, event);
        actions.retain(|a| !matches!(a, Action::Say(_)));
        actions
    }

    /// Lets the time pass that the agent asks for.
    fn wake(&mut self) -> Vec<Action> {
        self.now = self.agent.next_wake().expect("a timer").max(self.now);
        self.send(Event::Woken)
    }

    /// Wakes until `wanted` appears; answers heartbeats and reports on the way.
    fn wake_until(&mut self, wanted: impl Fn(&Action) -> bool) -> Action {
        for _ in 0..100 {
            for action in self.wake() {
                if wanted(&action) {
                    return action;
                }
                match action {
                    Action::Beat { .. } => {
                        drop(self.send(Event::HeartbeatReply(HeartbeatReply::Accepted)));
                    }
                    Action::Report { .. } => {
                        drop(self.send(Event::Reported(Ok(lookup()))));
                    }
                    Action::Inspect { .. } => {
                        drop(self.send(Event::Registration(Registration::NotWanted)));
                    }
                    _ => {}
                }
            }
        }
        panic!("it never came");
    }

    fn post(&mut self, token: &str, wait: bool, name: &str, params: Value) -> Vec<Action> {
        self.asks += 1;
        let body = json!({"name": name, "params": params})
            .to_string()
            .into_bytes();
        let request = Request::Run {
            token: Some(token.into()),
            wait,
            body,
        };
        self.send(Event::Asked {
            ask: self.asks,
            request,
        })
    }

    fn list(&mut self) -> Vec<Value> {
        self.asks += 1;
        let request = Request::List {
            token: Some(self.token()),
        };
        let (status, body) = answered(&self.send(Event::Asked {
            ask: self.asks,
            request,
        }));
        assert_eq!(status, 200);
        body["commands"].as_array().unwrap().clone()
    }

    fn token(&self) -> String {
        match &self.agent.stage {
            Stage::Registered(session) => session.node.token.clone(),
            other => panic!("not registered: {other:?}"),
        }
    }
}

fn answered(actions: &[Action]) -> (u16, Value) {
    actions
        .iter()
        .find_map(|a| match a {
            Action::Answer { status, body, .. } => Some((*status, body.clone())),
            _ => None,
        })
        .expect("an answer")
}

fn started(actions: &[Action]) -> Uuid {
    actions
        .iter()
        .find_map(|a| match a {
            Action::Start { id, .. } => Some(*id),
            _ => None,
        })
        .expect("a job")
}

fn write_image() -> Value {
    json!({
        "node": {"driver": "manual-management", "power_interface": "fake", "properties": {}, "instance_info": {}},
        "ports": [],
        "step": {"interface": "deploy", "step": "write_image", "args": {"configdrive": null, "image_info": {
            "id": "node.raw", "urls": ["http://box/images/node.raw"], "disk_format": "raw",
            "os_hash_algo": "sha256", "os_hash_value": "ab".repeat(32),
        }}},
    })
}

#[test]
fn the_box_is_asked_first_then_inspection_then_lookup() {
    let (mut line, first) = Line::start(true);
    assert_eq!(
        first,
        [Action::Report {
            lookup: LookupState::NotAsked
        }]
    );
    assert_eq!(line.send(Event::Reported(Ok(lookup()))), [inspect()]);
    assert_eq!(
        line.send(Event::Registration(Registration::NotWanted)),
        [look_up()]
    );
    assert_eq!(line.send(Event::Registration(Registration::NotWanted)), []);
    assert_eq!(
        line.wake(),
        [Action::Report {
            lookup: LookupState::NotWanted
        }]
    );
    assert!(line.now <= seconds(3), "{:?}", line.now);
}

#[test]
fn an_accepted_inventory_saves_the_lookup_and_is_worked_on_before_the_first_heartbeat() {
    let (mut line, _) = Line::start(true);
    line.send(Event::Reported(Ok(lookup())));
    let accepted = Event::Registration(Registration::Accepted(node("t")));
    let report = Action::Report {
        lookup: LookupState::Registered,
    };
    assert_eq!(line.send(accepted), [report]);
    let before = line.now;
    let (uuid, token) = ("n1".into(), "t".into());
    assert_eq!(line.wake(), [Action::Beat { uuid, token }]);
    assert_eq!(line.now - before, seconds(1));
}

#[test]
fn a_box_that_does_not_know_it_any_more_has_its_report_within_seconds() {
    let mut line = Line::registered();
    let report = Action::Report {
        lookup: LookupState::Registered,
    };
    line.wake_until(|action| *action == report);
    line.send(Event::Reported(Ok(lookup())));
    let before = line.now;
    // One for each line of progress that was not believed.
    for _ in 0..3 {
        assert_eq!(line.send(Event::ReportWanted), []);
    }
    while !line.wake().contains(&report) {}
    assert_eq!(line.now - before, seconds(3));
    line.send(Event::ReportWanted);
    let answered = line.now;
    line.send(Event::Reported(Ok(lookup())));
    while !line.wake().contains(&report) {}
    assert!(line.now - answered >= seconds(25), "one was under way");
}

#[test]
fn a_host_that_must_wait_asks_nobody_but_the_box() {
    let (mut line, _) = Line::start(true);
    for _ in 0..3 {
        let wait = Directive::Wait {
            seconds: 10,
            reason: "its disk has data".into(),
        };
        let before = line.now;
        assert_eq!(line.send(Event::Reported(Ok(wait))), []);
        assert_eq!(
            line.wake(),
            [Action::Report {
                lookup: LookupState::NotAsked
            }]
        );
        assert_eq!(line.now - before, seconds(10));
    }
}

#[test]
fn an_installed_host_starts_its_disk() {
    let (mut line, _) = Line::start(true);
    let actions = line.send(Event::Reported(Ok(Directive::BootDisk)));
    assert_eq!(
        actions,
        [Action::CloseServer, Action::Leave(Departure::BootDisk)]
    );
}

#[test]
fn a_box_that_is_down_does_not_stop_ironic_and_retries_are_spread_and_bounded() {
    let (mut line, _) = Line::start(true);
    line.send(Event::Reported(Ok(lookup())));
    line.send(Event::Registration(Registration::NotWanted));
    line.send(Event::Registration(Registration::NotWanted));
    assert!(matches!(line.wake()[..], [Action::Report { .. }]));
    let mut pauses = Vec::new();
    for _ in 0..12 {
        assert_eq!(
            line.send(Event::Reported(Err("refused".into()))),
            [inspect()]
        );
        assert_eq!(
            line.send(Event::Registration(Registration::Failed("refused".into()))),
            []
        );
        let before = line.now;
        assert!(matches!(line.wake()[..], [Action::Report { .. }]));
        pauses.push(line.now - before);
    }
    // A box is back 3 to 4 minutes after a power cut: nobody may sleep much longer than that takes to notice.
    assert!(
        pauses.iter().all(|p| *p >= seconds(1) && *p <= seconds(18)),
        "{pauses:?}"
    );
    assert!(
        pauses[11] > pauses[0] && pauses[10] != pauses[11],
        "{pauses:?}"
    );
}

#[test]
fn without_a_box_it_is_a_plain_agent() {
    let (mut line, first) = Line::start(false);
    assert_eq!(first, [Action::Inspect { node: None }]);
    line.send(Event::Registration(Registration::NotWanted));
    line.send(Event::Registration(Registration::NotWanted));
    assert_eq!(line.wake(), [Action::Inspect { node: None }]);
    line.send(Event::Registration(Registration::Accepted(node("t"))));
    assert_eq!(
        line.wake(),
        [Action::Beat {
            uuid: "n1".into(),
            token: "t".into()
        }]
    );
}

#[test]
fn a_machine_that_the_box_has_not_named_asks_nobody_else() {
    let (mut line, _) = Line::start(true);
    let mut pauses = Vec::new();
    for _ in 0..12 {
        // Ironic would find whoever claims one of its MAC addresses.
        let reason = "the box cannot be asked".to_owned();
        assert_eq!(line.send(Event::Reported(Err(reason))), []);
        let before = line.now;
        let report = Action::Report {
            lookup: LookupState::NotAsked,
        };
        assert_eq!(line.wake(), [report]);
        pauses.push(line.now - before);
    }
    let bounded = |pause: &Duration| *pause >= seconds(1) && *pause <= seconds(18);
    assert!(pauses.iter().all(bounded), "{pauses:?}");
}

#[test]
fn the_token_of_another_node_is_not_taken() {
    let another = || {
        let node = Node {
            uuid: "n2".into(),
            ..node("theirs")
        };
        Event::Registration(Registration::Accepted(node))
    };
    for inspections in [0, 1] {
        let (mut line, _) = Line::start(true);
        line.send(Event::Reported(Ok(lookup())));
        for _ in 0..inspections {
            line.send(Event::Registration(Registration::NotWanted));
        }
        assert_eq!(line.send(another()), []);
        assert!(matches!(line.wake()[..], [Action::Report { .. }]));
    }
    let mut line = Line::registered();
    line.wake_until(|a| *a == inspect());
    line.send(another());
    assert_eq!(line.token(), TOKEN);
}

#[test]
fn a_lost_token_is_reported_and_asked_for_again() {
    let (mut line, _) = Line::start(true);
    line.send(Event::Reported(Ok(lookup())));
    assert_eq!(
        line.send(Event::Registration(Registration::TokenHidden)),
        [look_up()]
    );
    line.send(Event::Registration(Registration::TokenHidden));
    assert_eq!(
        line.wake(),
        [Action::Report {
            lookup: LookupState::TokenLost
        }]
    );
}

#[test]
fn heartbeats_are_eager_at_first_and_then_within_the_timeout() {
    let mut line = Line::registered();
    let mut beats = vec![line.now];
    while line.now < seconds(400) {
        line.wake_until(|a| matches!(a, Action::Beat { .. }));
        beats.push(line.now);
        line.send(Event::HeartbeatReply(HeartbeatReply::Accepted));
    }
    let gaps: Vec<Duration> = beats.windows(2).map(|w| w[1] - w[0]).collect();
    assert!(gaps[..20].iter().all(|g| *g == BEAT_EAGER), "{gaps:?}");
    let steady = &gaps[gaps.len() - 4..];
    assert!(
        steady
            .iter()
            .all(|g| *g >= seconds(18) && *g <= seconds(36)),
        "{gaps:?}"
    );
}

#[test]
fn heartbeats_are_fewer_the_longer_ironic_takes_for_one_and_never_too_few() {
    for (took, gap) in [(0, BEAT_EAGER), (2, seconds(10)), (90, BEAT_LONGEST)] {
        let mut line = Line::registered();
        line.wake_until(|a| matches!(a, Action::Beat { .. }));
        line.now += seconds(took);
        let before = line.now;
        line.send(Event::HeartbeatReply(HeartbeatReply::Accepted));
        line.wake_until(|a| matches!(a, Action::Beat { .. }));
        assert_eq!(line.now - before, gap, "{took}");
    }
}

#[test]
fn heartbeats_are_fewer_while_a_job_runs() {
    let mut line = Line::registered();
    line.post(TOKEN, false, "deploy.execute_deploy_step", write_image());
    line.wake_until(|a| matches!(a, Action::Beat { .. }));
    let before = line.now;
    line.send(Event::HeartbeatReply(HeartbeatReply::Accepted));
    line.wake_until(|a| matches!(a, Action::Beat { .. }));
    assert_eq!(line.now - before, BEAT_WORKING);
}

#[test]
fn a_locked_node_is_tried_again_soon() {
    let mut line = Line::registered();
    line.wake_until(|a| matches!(a, Action::Beat { .. }));
    // Which Ironic says at once, or after it has waited for whoever has the node.
    for (took, gap) in [(0, BEAT_SPACING), (3, seconds(3)), (60, BEAT_RETRY)] {
        line.now += seconds(took);
        let before = line.now;
        line.send(Event::HeartbeatReply(HeartbeatReply::Locked));
        line.wake_until(|a| matches!(a, Action::Beat { .. }));
        assert_eq!(line.now - before, gap, "{took}");
    }
}

#[test]
fn every_request_with_another_token_is_refused() {
    let mut line = Line::registered();
    let bad = || Some("tok-2".to_owned());
    for request in [
        Request::Run {
            token: bad(),
            wait: true,
            body: b"{}".to_vec(),
        },
        Request::Run {
            token: None,
            wait: true,
            body: b"{}".to_vec(),
        },
        Request::List { token: bad() },
        Request::One {
            token: bad(),
            id: "x".into(),
        },
    ] {
        let (status, body) = answered(&line.send(Event::Asked { ask: 1, request }));
        assert_eq!((status, body["faultcode"].as_str()), (401, Some("Client")));
    }
    let (mut waiting, _) = Line::start(true);
    let request = Request::List {
        token: Some(String::new()),
    };
    assert_eq!(
        answered(&waiting.send(Event::Asked { ask: 1, request })).0,
        401
    );
    assert_eq!(
        answered(&waiting.send(Event::Asked {
            ask: 2,
            request: Request::Status
        }))
        .1["started_at"],
        1000
    );
}

#[test]
fn refusals_carry_a_faultstring() {
    let mut line = Line::registered();
    let mut bad_digest = write_image();
    bad_digest["step"]["args"]["image_info"]["os_hash_value"] = json!("zz");
    let mut unchecked = write_image();
    unchecked["step"]["args"]["image_info"]["os_hash_algo"] = Value::Null;
    let mut hint = write_image();
    hint["node"]["properties"]["root_device"] = json!({"color": "red"});
    for (name, params, status, text) in [
        ("deploy.fly", json!({}), 400, "Invalid command: deploy.fly"),
        (
            "rescue.finalize_rescue",
            json!({}),
            404,
            "Invalid extension: rescue",
        ),
        ("nonsense", json!({}), 400, "Invalid command: nonsense"),
        (
            "deploy.execute_deploy_step",
            json!({}),
            400,
            "params.step.step",
        ),
        (
            "deploy.execute_deploy_step",
            bad_digest,
            400,
            "64 hex digits",
        ),
        (
            "deploy.execute_deploy_step",
            unchecked,
            400,
            "never written unchecked",
        ),
        (
            "deploy.execute_deploy_step",
            hint,
            400,
            "color is not a hint",
        ),
        (
            "clean.execute_clean_step",
            json!({"step": {"step": "burn"}}),
            400,
            "no clean step burn",
        ),
        ("standby.sync", json!(3), 400, "object of params"),
    ] {
        let (found, body) = answered(&line.post(TOKEN, true, name, params));
        assert_eq!(found, status, "{name}: {body}");
        assert!(
            body["faultstring"].as_str().unwrap().contains(text),
            "{name}: {body}"
        );
    }
    assert_eq!(
        line.list(),
        Vec::<Value>::new(),
        "a refused command leaves no trace"
    );
}

/// The calls of `ipa-protocol.md` 3.3, in their order.
#[test]
fn a_deploy_from_steps_to_lockdown() {
    let mut line = Line::registered();
    let (_, steps) = answered(&line.post(
        TOKEN,
        true,
        "deploy.get_deploy_steps",
        json!({"node": {}, "ports": []}),
    ));
    assert_eq!(steps["command_status"], "SUCCEEDED");
    assert_eq!(steps["command_name"], "get_deploy_steps");
    let steps = &steps["command_result"]["deploy_steps"];
    assert_eq!(steps["FirstlightHardwareManager"][0]["step"], "write_image");

    let actions = line.post(TOKEN, false, "deploy.execute_deploy_step", write_image());
    let (_, running) = answered(&actions);
    assert_eq!(running["command_status"], "RUNNING");
    let id = started(&actions);
    assert_eq!(running["id"], id.to_string());
    let (busy, fault) = answered(&line.post(TOKEN, true, "standby.sync", json!({})));
    assert_eq!(busy, 409);
    assert!(
        fault["faultstring"]
            .as_str()
            .unwrap()
            .starts_with("Agent is busy")
    );
    assert_eq!(line.list().len(), 2);

    // The end of the step forces a heartbeat.
    line.wake_until(|a| matches!(a, Action::Beat { .. }));
    line.send(Event::HeartbeatReply(HeartbeatReply::Accepted));
    line.now += seconds(3);
    let actions = line.send(Event::Finished {
        id,
        result: Ok(json!({"deploy_result": {"wrote": {"imageBytes": 7}}})),
    });
    let wrote = Wrote {
        image_bytes: 7,
        ..Wrote::default()
    };
    assert!(actions.contains(&Action::Tell(Phase::Written { wrote: Some(wrote) })));
    assert!(
        actions.iter().any(|a| matches!(a, Action::Beat { .. })),
        "{actions:?}"
    );
    line.send(Event::HeartbeatReply(HeartbeatReply::Accepted));
    assert_eq!(line.list()[1]["command_status"], "SUCCEEDED");

    let (_, uuids) = answered(&line.post(TOKEN, true, "standby.get_partition_uuids", json!({})));
    assert_eq!(uuids["command_status"], "SUCCEEDED");
    let actions = line.post(TOKEN, true, "standby.sync", json!({}));
    assert!(
        !actions.iter().any(|a| matches!(a, Action::Answer { .. })),
        "the answer comes when it is done"
    );
    let actions = line.send(Event::Finished {
        id: started(&actions),
        result: Ok(Value::Null),
    });
    assert_eq!(answered(&actions).1["command_status"], "SUCCEEDED");

    let id = started(&line.post(TOKEN, true, "system.lockdown", json!({})));
    let actions = line.send(Event::Finished {
        id,
        result: Ok(Value::Null),
    });
    assert_eq!(
        actions[0],
        Action::CloseServer,
        "nobody may answer once Ironic has this answer"
    );
    assert_eq!(answered(&actions).1["command_name"], "lockdown");
    assert_eq!(actions.last(), Some(&Action::Tell(Phase::REBOOTING)));
    let before = line.now;
    assert_eq!(line.wake(), [Action::Leave(Departure::BootDisk)]);
    assert_eq!(line.now - before, LEAVE_AFTER);
}

#[test]
fn a_failed_write_is_told_to_both_and_the_same_ramdisk_can_try_again() {
    let mut line = Line::registered();
    let id = started(&line.post(TOKEN, false, "deploy.execute_deploy_step", write_image()));
    let failure = Failure {
        reason: "the image has the wrong digest".into(),
    };
    let actions = line.send(Event::Finished {
        id,
        result: Err(failure),
    });
    assert!(actions.contains(&Action::Tell(Phase::Failed {
        reason: "the image has the wrong digest".into()
    })));
    let last = line.list().pop().unwrap();
    assert_eq!(last["command_status"], "FAILED");
    assert_eq!(
        last["command_error"]["details"],
        "the image has the wrong digest"
    );
    assert_ne!(last["command_error"]["type"], "TypeError");

    // Ironic wipes the token; the list of the old registration must not be seen under the new one.
    line.wake_until(|a| matches!(a, Action::Beat { .. }));
    let forgotten = HeartbeatReply::Forgotten("Invalid or missing agent token received.".into());
    assert_eq!(line.send(Event::HeartbeatReply(forgotten)), []);
    assert_eq!(
        line.wake(),
        [Action::Report {
            lookup: LookupState::NotAsked
        }]
    );
    line.send(Event::Reported(Ok(lookup())));
    line.send(Event::Registration(Registration::NotWanted));
    line.send(Event::Registration(Registration::Accepted(node("tok-9"))));
    assert_eq!(line.list(), Vec::<Value>::new());
    assert_eq!(
        answered(&line.post(TOKEN, true, "standby.sync", json!({}))).0,
        401
    );
    started(&line.post("tok-9", false, "deploy.execute_deploy_step", write_image()));
}

#[test]
fn a_reset_during_a_job_waits_for_its_end() {
    let mut line = Line::registered();
    let id = started(&line.post(TOKEN, true, "deploy.execute_deploy_step", write_image()));
    line.wake_until(|a| matches!(a, Action::Beat { .. }));
    let actions = line.send(Event::HeartbeatReply(HeartbeatReply::Forgotten(
        "token".into(),
    )));
    assert_eq!(answered(&actions).0, 401, "who waited for the job is told");
    assert_eq!(actions.last(), Some(&Action::Abort));
    assert_eq!(
        line.agent.next_wake(),
        None,
        "two jobs must never share a disk"
    );
    line.send(Event::Finished {
        id,
        result: Err(Failure {
            reason: "called off".into(),
        }),
    });
    assert!(matches!(line.wake()[..], [Action::Report { .. }]));
}

#[test]
fn power_off_is_a_restart_where_nobody_could_switch_it_on_again() {
    let kexec = || Some(json!({"deploy_result": {"start": Start::Kexec}}));
    let written = || Some(Value::Null);
    let (off, end) = ("standby.power_off", "system.lockdown");
    let manual = ("manual-management", "fake");
    let redfish = ("redfish", "redfish");
    for ((driver, power), command, deployed, wanted) in [
        (manual, off, None, Departure::Reboot),
        (manual, off, written(), Departure::BootDisk),
        (manual, off, kexec(), Departure::Kexec),
        (redfish, off, kexec(), Departure::PowerOff),
        (redfish, end, kexec(), Departure::Kexec),
        (redfish, end, written(), Departure::BootDisk),
        (("redfish", "agent"), off, None, Departure::Reboot),
    ] {
        let start = match wanted {
            Departure::Kexec => Start::Kexec,
            _ => Start::default(),
        };
        let is_deployed = deployed.is_some();
        let mut line = Line::registered();
        let mut params = write_image();
        params["node"]["driver"] = json!(driver);
        params["node"]["power_interface"] = json!(power);
        if let Some(deployed) = deployed {
            let id = started(&line.post(TOKEN, false, "deploy.execute_deploy_step", params));
            line.send(Event::Finished {
                id,
                result: Ok(deployed),
            });
        } else {
            line.post(TOKEN, true, "clean.get_clean_steps", params);
        }
        let waits = command == end;
        let actions = line.post(TOKEN, waits, command, json!({}));
        if !waits {
            assert_eq!(answered(&actions).1["command_status"], "RUNNING");
        }
        let told = line.send(Event::Finished {
            id: started(&actions),
            result: Ok(Value::Null),
        });
        assert_eq!(
            told.contains(&Action::Tell(Phase::Rebooting { start })),
            is_deployed,
            "{driver} {power} {command}"
        );
        assert_eq!(
            line.wake().pop(),
            Some(Action::Leave(wanted)),
            "{driver} {power} {command} {is_deployed}"
        );
    }
}

#[test]
fn an_inventory_is_offered_again_while_nothing_was_commanded() {
    let mut line = Line::registered();
    line.wake_until(|a| *a == inspect());
    assert_eq!(line.now, OFFER_AFTER);
    line.send(Event::Registration(Registration::Accepted(node("tok-new"))));
    assert_eq!(line.token(), "tok-new");
    line.post("tok-new", true, "clean.get_clean_steps", json!({}));
    let until = line.now + seconds(200);
    while line.now < until {
        for action in line.wake() {
            assert_ne!(action, inspect());
            match action {
                Action::Beat { .. } => {
                    drop(line.send(Event::HeartbeatReply(HeartbeatReply::Accepted)));
                }
                Action::Report { .. } => drop(line.send(Event::Reported(Ok(lookup())))),
                _ => {}
            }
        }
    }
}

#[test]
fn an_inventory_that_is_not_wanted_is_offered_less_and_less_often() {
    let mut line = Line::registered();
    let mut gaps = Vec::new();
    for _ in 0..5 {
        let before = line.now;
        line.wake_until(|a| *a == inspect());
        gaps.push(line.now - before);
        line.send(Event::Registration(Registration::NotWanted));
    }
    assert_eq!(gaps, [10, 30, 90, 240, 240].map(seconds));
}

#[test]
fn an_inventory_that_was_taken_is_not_offered_again_soon() {
    let (mut line, _) = Line::start(true);
    line.send(Event::Reported(Ok(lookup())));
    line.send(Event::Registration(Registration::Accepted(node(TOKEN))));
    line.wake_until(|a| *a == inspect());
    assert_eq!(line.now, OFFER_LONGEST);
}

#[test]
fn the_box_may_send_an_idle_host_to_its_disk_but_never_a_working_one() {
    let mut idle = Line::registered();
    let actions = idle.send(Event::Reported(Ok(Directive::BootDisk)));
    assert_eq!(actions.last(), Some(&Action::Leave(Departure::BootDisk)));
    let mut working = Line::registered();
    started(&working.post(TOKEN, false, "deploy.execute_deploy_step", write_image()));
    assert_eq!(working.send(Event::Reported(Ok(Directive::BootDisk))), []);
}

proptest! {
    /// Whatever the order of answers and requests: no panic, one job at a time, every request answered or waiting.
    #[test]
    fn any_order_of_events_keeps_one_job_at_a_time(picks in proptest::collection::vec(0_u8..14, 1..80)) {
        let (mut line, _) = Line::start(true);
        let mut job: Option<Uuid> = None;
        for pick in picks {
            let actions = match pick {
                0 => line.send(Event::Reported(Ok(lookup()))),
                1 => line.send(Event::Registration(Registration::NotWanted)),
                2 | 3 => line.send(Event::Registration(Registration::Accepted(node(TOKEN)))),
                4 => line.send(Event::HeartbeatReply(HeartbeatReply::Accepted)),
                5 => line.send(Event::HeartbeatReply(HeartbeatReply::Forgotten("token".into()))),
                6 | 7 => line.post(TOKEN, false, "deploy.execute_deploy_step", write_image()),
                8 => line.post(TOKEN, true, "standby.sync", json!({})),
                9 => line.post(TOKEN, true, "system.lockdown", json!({})),
                10 => line.send(Event::Reported(Err("x".into()))),
                11 => line.send(Event::Registration(Registration::Failed("x".into()))),
                12 => match job.take() {
                    Some(id) => line.send(Event::Finished { id, result: Ok(Value::Null) }),
                    None => Vec::new(),
                },
                _ => { line.now += seconds(7); line.send(Event::Woken) }
            };
            for action in &actions {
                if let Action::Start { id, .. } = action {
                    prop_assert_eq!(job.replace(*id), None);
                }
                if let Action::Answer { status, body, .. } = action {
                    prop_assert!(*status < 400 || body["faultstring"].is_string());
                }
            }
        }
    }

    #[test]
    fn any_body_of_a_command_is_answered(body in proptest::collection::vec(any::<u8>(), 0..100)) {
        let mut line = Line::registered();
        let request = Request::Run { token: Some(TOKEN.into()), wait: true, body };
        answered(&line.send(Event::Asked { ask: 1, request }));
    }
}
