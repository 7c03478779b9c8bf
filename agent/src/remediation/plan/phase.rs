//! One remediation: what its phase asks for, and when the next one begins.

use std::time::Duration;

use firstlight_api::{
    bmh::annotations,
    bounded,
    capi::{self, Machine},
    capm3::{
        HOST_DETACHED_ANNOTATION, HOST_PAUSED_ANNOTATION, Metal3Machine, Metal3Remediation,
        REASON_ANNOTATION, REMEDIATION_FINALIZER, RemediationPhase, UNHEALTHY_ANNOTATIONS,
        UNHEALTHY_NODE,
    },
    object::{ConditionStatus, ConditionUpdate, merge_conditions},
};
use serde_json::{Value, json};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

use super::{annotate, asks_for, power_off};
use crate::{
    capi::world::{Host, HostExt},
    clock::rfc3339_of,
    objects::{Key, Part},
    remediation::{
        Action, Kind, Remediations,
        nodes::{NodeOrder, NodeView, TaintOrder},
    },
};

type Steps = Vec<Action>;
type Outcome = (Steps, Option<NodeOrder>);

/// A cluster that has not answered for so long gets no taint: the lone control plane's is off with its server, and another one's
/// address has moved by then.
const CLUSTER_ANSWERS: Duration = Duration::from_mins(2);
/// Of a machine: `MachineHealthCheck` says what it thinks of it, and the owner reads that it may replace it.
const HEALTHY: &str = "HealthCheckSucceeded";
const OWNER_REMEDIATED: &str = "OwnerRemediated";

/// One remediation that is not paused.
struct Case<'a> {
    seen: &'a Remediations,
    remediation: &'a Metal3Remediation,
    machine: &'a Machine,
    host: &'a Host,
    now: i64,
}

pub fn plan(seen: &Remediations, remediation: &Metal3Remediation, now: i64) -> Outcome {
    let machine = machine_of(seen, remediation);
    let is_going = |machine: &&Machine| machine.metadata.is_deleting();
    if remediation.metadata.is_deleting() || machine.as_ref().is_ok_and(is_going) {
        return clean_up(seen, remediation);
    }
    match remediation.status.phase {
        Some(RemediationPhase::Failed) => {
            let why = "a person kept the server off (`online: false`), so it was not restarted; delete this object, and it is tried again";
            told(remediation, clean_up(seen, remediation), why)
        }
        Some(RemediationPhase::DeletingMachine) => {
            let why = format!(
                "restarts did not help, so the owner of the Machine may replace it; its host is chosen again when you take the annotation {} off it",
                UNHEALTHY_ANNOTATIONS[0]
            );
            told(remediation, clean_up(seen, remediation), &why)
        }
        phase => {
            let case = machine.and_then(|machine| {
                let host = host_of(seen, machine)?;
                Ok(Case {
                    seen,
                    remediation,
                    machine,
                    host,
                    now,
                })
            });
            match case {
                Ok(case) => case.plan(phase == Some(RemediationPhase::Waiting)),
                Err(why) => told(remediation, Outcome::default(), &why),
            }
        }
    }
}

/// Whether it would do something to this host.
pub fn is_at(seen: &Remediations, remediation: &Metal3Remediation, host: &Host) -> bool {
    let machine = machine_of(seen, remediation);
    let machine = machine.ok().filter(|it| !it.metadata.is_deleting());
    let own = machine.and_then(|machine| host_of(seen, machine).ok());
    !remediation.metadata.is_deleting()
        && own.is_some_and(|own| own.metadata.uid == host.metadata.uid)
}

/// Its owner; or why there is nothing to do.
fn machine_of<'a>(
    seen: &'a Remediations,
    remediation: &Metal3Remediation,
) -> Result<&'a Machine, String> {
    let meta = &remediation.metadata;
    let owner = meta.owner(capi::GROUP, "Machine");
    let found = owner.and_then(|owner| {
        let machine = seen.machines.get(&Key::new(&meta.namespace, &owner.name))?;
        (machine.metadata.uid == owner.uid).then_some(machine)
    });
    match found {
        None => Err(
            "it has no Machine as its owner; apply a MachineHealthCheck, which makes these objects"
                .to_owned(),
        ),
        // So that a server is never restarted for two.
        Some(machine) if machine.metadata.name != meta.name => Err(format!(
            "only the one with the name of its Machine, {}, is acted on; delete this one",
            machine.metadata.name
        )),
        Some(machine) => Ok(machine),
    }
}

fn host_of<'a>(seen: &'a Remediations, machine: &Machine) -> Result<&'a Host, String> {
    let meta = &machine.metadata;
    let is_of = |it: &&Metal3Machine| {
        let owner = it.metadata.owner(capi::GROUP, "Machine");
        it.metadata.namespace == meta.namespace && owner.is_some_and(|it| it.uid == meta.uid)
    };
    let found = seen.metal3_machines.values().find(is_of).and_then(|own| {
        let is_its = |host: &&Host| {
            host.metadata.namespace == meta.namespace && host.consumer() == Some(&own.metadata.name)
        };
        seen.hosts.values().find(is_its)
    });
    let host = found.ok_or_else(|| format!("the Machine {} has no host", meta.name))?;
    match left_alone(host) {
        Some(name) => Err(format!(
            "the host {} is left alone; take its annotation {name} off",
            host.metadata.name
        )),
        None => Ok(host),
    }
}

/// The annotation by which somebody said that nobody acts on it.
pub fn left_alone(host: &Host) -> Option<&'static str> {
    let mut all = [HOST_PAUSED_ANNOTATION, HOST_DETACHED_ANNOTATION].into_iter();
    all.find(|name| host.metadata.annotations.contains_key(*name))
}

/// The annotations of hosts go by themselves. With the finalizer a node may have the taint, unless it goes with its machine.
fn clean_up(seen: &Remediations, remediation: &Metal3Remediation) -> Outcome {
    let meta = &remediation.metadata;
    if !meta.has_finalizer(REMEDIATION_FINALIZER) {
        return Outcome::default();
    }
    let name = power_off(remediation);
    let is_kept_off = |host: &Host| host.metadata.annotations.contains_key(&name);
    let order = machine_of(seen, remediation)
        .ok()
        .filter(|machine| !machine.metadata.is_deleting())
        .and_then(|machine| order(seen, machine, TaintOrder::Off));
    let is_clean = match (&order, seen.nodes.get(&meta.uid)) {
        (None, _) | (Some(_), Some(NodeView::Absent)) => true,
        (Some(_), Some(NodeView::There { is_tainted, .. })) => !is_tainted,
        (Some(_), Some(NodeView::Silent(_)) | None) => false,
    };
    if is_clean && !seen.hosts.values().any(is_kept_off) {
        let finalizers = meta.finalizers.iter();
        let others: Vec<_> = finalizers
            .filter(|it| *it != REMEDIATION_FINALIZER)
            .collect();
        let patch = json!({"metadata": {"finalizers": others}});
        return (vec![write(remediation, Part::Object, patch)], order);
    }
    (Vec::new(), order)
}

/// `None`: no node has joined, or its cluster goes.
fn order(seen: &Remediations, machine: &Machine, taint: TaintOrder) -> Option<NodeOrder> {
    let key = Key::new(&machine.metadata.namespace, &machine.spec.cluster_name);
    let cluster = seen.clusters.get(&key)?;
    let node = machine.status.node_ref.as_ref()?.name.clone();
    (!cluster.metadata.is_deleting()).then_some(NodeOrder {
        cluster: key,
        node,
        taint,
    })
}

fn write(remediation: &Metal3Remediation, part: Part, patch: Value) -> Action {
    Action {
        kind: Kind::Remediation,
        part,
        meta: Box::new(remediation.metadata.clone()),
        patch,
    }
}

/// With the sentence for people, unless something else is written there first.
fn told(remediation: &Metal3Remediation, (mut steps, order): Outcome, why: &str) -> Outcome {
    let meta = &remediation.metadata;
    let why = bounded::sentence(why);
    let is_written = steps.iter().any(|step| step.kind == Kind::Remediation);
    if !is_written && meta.annotation(REASON_ANNOTATION) != Some(&why) {
        let reason = json!({REASON_ANNOTATION: why});
        steps.push(annotate(Kind::Remediation, meta, &reason));
    }
    (steps, order)
}

impl Case<'_> {
    fn plan(&self, is_waiting: bool) -> Outcome {
        let status = &self.remediation.status;
        if !self.host.spec.online {
            let failed = self.status(RemediationPhase::Failed, status.retry_count);
            return (vec![failed], None);
        }
        if status.phase.is_none() {
            let running = self.status(RemediationPhase::Running, 0);
            return (vec![running], None);
        }
        match (is_waiting, self.host.spec.stays_on()) {
            (true, _) => self.waiting(),
            (false, false) => self.fence(),
            (false, true) => self.restart(),
        }
    }

    /// Off by its BMC; then, and only then, its pods and volumes may move.
    fn fence(&self) -> Outcome {
        let meta = &self.remediation.metadata;
        let (host, name) = (&self.host.metadata, power_off(self.remediation));
        if !meta.has_finalizer(REMEDIATION_FINALIZER) {
            let finalizers = [meta.finalizers.clone(), vec![REMEDIATION_FINALIZER.into()]].concat();
            let patch = json!({"metadata": {"finalizers": finalizers}});
            return (vec![write(self.remediation, Part::Object, patch)], None);
        }
        if !host.annotations.contains_key(&name) {
            let off = json!({name: json!({"mode": "hard"}).to_string()});
            return (vec![annotate(Kind::Host, host, &off)], None);
        }
        if self.host.status.powered_on != Some(false) {
            let mut why = format!("the BMC of the host {} is to switch it off", host.name);
            if !self.host.status.error_message.is_empty() {
                why = format!("{why}: {}", self.host.status.error_message);
            }
            return self.told(None, &why);
        }
        let order = order(self.seen, self.machine, TaintOrder::On);
        let is_done = match (&order, self.seen.nodes.get(&meta.uid)) {
            (None, _) | (Some(_), Some(NodeView::Absent)) => true,
            // Once its cluster has noticed: a node that is Ready later has started again.
            (
                Some(_),
                Some(NodeView::There {
                    is_ready,
                    is_tainted,
                }),
            ) => *is_tainted && !is_ready,
            (Some(_), Some(NodeView::Silent(time))) => *time >= CLUSTER_ANSWERS,
            (Some(_), None) => false,
        };
        if is_done {
            return (vec![self.waits()], order);
        }
        let why = format!(
            "the host {} is off; its node is told to be out of service",
            host.name
        );
        self.told(order, &why)
    }

    /// Without a BMC, or where it must never be off, nobody can say that it is off, so its pods stay.
    fn restart(&self) -> Outcome {
        let meta = &self.host.metadata;
        let mut steps = Vec::new();
        if !meta.annotations.contains_key(annotations::REBOOT) {
            let by = asks_for(&self.remediation.metadata.uid);
            let once = json!({annotations::REBOOT: by});
            steps.push(annotate(Kind::Host, meta, &once));
        }
        steps.push(self.waits());
        (steps, None)
    }

    /// From now on its time runs.
    fn waits(&self) -> Action {
        let count = self.remediation.status.retry_count;
        self.status(RemediationPhase::Waiting, count)
    }

    fn waiting(&self) -> Outcome {
        let status = &self.remediation.status;
        let strategy = &self.remediation.spec.strategy;
        let order = order(self.seen, self.machine, TaintOrder::OffWhenReady);
        let elapsed = status.last_remediated.as_deref().and_then(seconds);
        let elapsed = elapsed.map(|at| self.now - at);
        let Some(elapsed) = elapsed.filter(|elapsed| *elapsed >= 0) else {
            // The clock was set back.
            return (vec![self.waits()], order);
        };
        // While the box was away nobody could see its node come back.
        let awake = i64::try_from(self.seen.awake.as_secs()).unwrap_or(i64::MAX);
        let waited = elapsed.min(awake);
        let node = self.seen.nodes.get(&self.remediation.metadata.uid);
        let is_ready = matches!(node, Some(NodeView::There { is_ready: true, .. }));
        // MachineHealthCheck may ask for more than that, and has no word in it where a person made this object.
        let is_well = is_ready && self.condition(HEALTHY) != Some(ConditionStatus::False);
        if is_well || waited < i64::from(strategy.timeout_seconds) {
            let host = &self.host.metadata.name;
            let why = match (is_ready, self.host.spec.bmc.is_some()) {
                (true, _) => "its node is Ready again; MachineHealthCheck deletes this object when it finds the Machine healthy".to_owned(),
                (false, true) => format!("the host {host} starts again; waiting for its node"),
                (false, false) => format!(
                    "the host {host} has no BMC, so its system is told over SSH to restart; if it does not answer, switch the server off and on"
                ),
            };
            return self.told(order, &why);
        }
        if status.retry_count < strategy.retry_limit {
            let again = self.status(RemediationPhase::Running, status.retry_count + 1);
            return (vec![again], None);
        }
        (self.give_up(), order)
    }

    /// The owner replaces the machine when it thinks right, and the host is not chosen for the next one.
    fn give_up(&self) -> Steps {
        let mut steps = Vec::new();
        let (machine, host) = (self.machine, &self.host.metadata);
        if self.condition(OWNER_REMEDIATED) != Some(ConditionStatus::False) {
            let update = ConditionUpdate::no(
                OWNER_REMEDIATED,
                "WaitingForRemediation",
                "its server was restarted, and it is not healthy still",
            );
            let (old, generation) = (&machine.status.conditions, machine.metadata.generation);
            let conditions = merge_conditions(old, &[update], generation, &rfc3339_of(self.now));
            steps.push(Action {
                kind: Kind::Machine,
                part: Part::Status,
                meta: Box::new(machine.metadata.clone()),
                patch: json!({"status": {"conditions": conditions}}),
            });
        }
        if !host.annotations.contains_key(UNHEALTHY_ANNOTATIONS[0]) {
            let unhealthy = json!({UNHEALTHY_ANNOTATIONS[0]: UNHEALTHY_NODE});
            steps.push(annotate(Kind::Host, host, &unhealthy));
        }
        let count = self.remediation.status.retry_count;
        steps.push(self.status(RemediationPhase::DeletingMachine, count));
        steps
    }

    /// Each but the last two is the beginning of a time.
    fn status(&self, phase: RemediationPhase, retry_count: u32) -> Action {
        use RemediationPhase::{Running, Waiting};
        let mut status = json!({"phase": phase});
        if retry_count > 0 {
            status["retryCount"] = retry_count.into();
        }
        if matches!(phase, Running | Waiting) {
            status["lastRemediated"] = rfc3339_of(self.now).into();
        }
        write(self.remediation, Part::Status, json!({"status": status}))
    }

    fn condition(&self, kind: &str) -> Option<ConditionStatus> {
        let mut all = self.machine.status.conditions.iter();
        all.find(|it| it.kind == kind).map(|it| it.status)
    }

    fn told(&self, order: Option<NodeOrder>, why: &str) -> Outcome {
        told(self.remediation, (Vec::new(), order), why)
    }
}

fn seconds(time: &str) -> Option<i64> {
    let time = OffsetDateTime::parse(time, &Rfc3339).ok()?;
    Some(time.unix_timestamp())
}
