//! What a person may ask of one host, by `firstlight hosts` or by an annotation, and when that is refused: a sentence with what to do
//! instead. The program that a person runs and the agent ask the same function.
//!
//! Must not: know how an order is carried out. To add a verb: a variant, its refusals, and a line in docs/hosts.md.

use serde::Serialize;
use serde_json::{Value, json};

use crate::bmh::annotations::{INSPECT, REBOOT};
use crate::status::{ClusterMachine, DiskUse, HostPower, HostState, HostStatus, SiteStatus};

/// A failed step of this host begins again at once, with all its attempts. Any value; it goes once it was taken.
pub const RETRY_ANNOTATION: &str = "firstlight.internal/retry";
/// No machine claims this host. Any value, like a reason.
pub const SPARE_ANNOTATION: &str = "firstlight.internal/spare";
/// The name of the host that it is written to: it may be given back, however many others are.
pub const CONFIRM_ANNOTATION: &str = "firstlight.internal/confirm-deprovision";

/// Servers of this host's model may be started by kexec again. Any value; it goes once it was taken.
pub const KEXEC_ANNOTATION: &str = "firstlight.internal/allow-kexec";

/// So many hosts in use may begin to be given back within [`DEPARTURE_WINDOW_S`]; for more of them a person says their names.
pub const MOST_DEPARTURES: usize = 3;
/// Seconds.
pub const DEPARTURE_WINDOW_S: i64 = 600;

/// What can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verb {
    /// The failed step begins again.
    Retry,
    /// By its BMC.
    PowerOn,
    /// By its BMC.
    PowerOff,
    /// Off and on, or over SSH.
    PowerCycle,
    /// It goes on without an inventory.
    SkipInspection,
    /// Nobody claims it.
    Spare,
    /// It may be claimed.
    Unspare,
    /// What is remembered of its model is forgotten.
    AllowKexec,
    /// Its system is taken away, and its disks are cleaned.
    GiveBack,
    /// Its object goes.
    Forget,
}

impl Verb {
    /// As `firstlight hosts show` lists them.
    pub const ALL: [Self; 10] = [
        Self::Retry,
        Self::PowerOn,
        Self::PowerOff,
        Self::PowerCycle,
        Self::SkipInspection,
        Self::Spare,
        Self::Unspare,
        Self::AllowKexec,
        Self::GiveBack,
        Self::Forget,
    ];

    /// As a path has it.
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|verb| verb.word() == word)
    }

    /// As a path has it.
    pub fn word(self) -> String {
        self.as_str().replace(' ', "-")
    }

    /// What is written for it into the object of the host, as a merge patch. `None`: it is about more objects than one.
    pub fn patch(self, manner: Manner) -> Option<Value> {
        let annotation =
            |name: &str, value: Value| json!({"metadata": {"annotations": {name: value}}});
        let restart = match manner {
            Manner::Soft => "",
            Manner::Hard => r#"{"mode":"hard"}"#,
        };
        Some(match self {
            Self::Retry => annotation(RETRY_ANNOTATION, json!("")),
            Self::SkipInspection => annotation(INSPECT, json!("disabled")),
            Self::Spare => annotation(SPARE_ANNOTATION, json!("")),
            Self::Unspare => annotation(SPARE_ANNOTATION, Value::Null),
            Self::AllowKexec => annotation(KEXEC_ANNOTATION, json!("")),
            Self::PowerOn => json!({"spec": {"online": true}}),
            Self::PowerOff => {
                let mut patch = json!({"spec": {"online": false}});
                // Off at once is a restart's word; that the host stays off is the spec's.
                if manner == Manner::Hard {
                    patch["metadata"] = annotation(REBOOT, json!(restart))["metadata"].take();
                }
                patch
            }
            Self::PowerCycle => annotation(REBOOT, json!(restart)),
            Self::GiveBack | Self::Forget => return None,
        })
    }

    /// As the command line has it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::PowerOn => "power on",
            Self::PowerOff => "power off",
            Self::PowerCycle => "power cycle",
            Self::SkipInspection => "skip-inspection",
            Self::Spare => "spare",
            Self::Unspare => "unspare",
            Self::AllowKexec => "allow-kexec",
            Self::GiveBack => "give-back",
            Self::Forget => "forget",
        }
    }
}

/// Why not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// A sentence, with what to do instead.
    pub why: String,
    /// The flag with which it is done all the same, where a person may know better.
    pub unless: Option<Insistence>,
}

/// How a person insists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Insistence {
    /// It is meant, with what follows.
    Yes,
    /// The box cannot see whether it harms.
    Force,
    /// The names of all that are meant.
    Names,
}

impl Insistence {
    /// As it is typed.
    pub const fn flag(self) -> &'static str {
        match self {
            Self::Yes => "--yes",
            Self::Force => "--force",
            Self::Names => "--yes-all-of",
        }
    }
}

/// The machine of a cluster that a host carries.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Owner<'a> {
    cluster: &'a str,
    machine: &'a ClusterMachine,
    /// It is the last control plane.
    is_last: bool,
}

impl<'a> Owner<'a> {
    /// As far as Cluster API knows one.
    pub fn of(site: &'a SiteStatus, host: &HostStatus) -> Option<Self> {
        site.clusters.iter().find_map(|cluster| {
            let mut machines = cluster.machines.iter();
            let machine = machines.find(|machine| machine.host == host.name)?;
            let others = cluster.machines.iter();
            let others = others.filter(|it| it.control_plane && !it.node.is_empty());
            let is_last = machine.control_plane && others.count() < 2;
            Some(Self {
                cluster: &cluster.name,
                machine,
                is_last,
            })
        })
    }

    /// Of the `Cluster`.
    pub fn cluster(&self) -> &'a str {
        self.cluster
    }

    /// Of the `Machine`.
    pub fn machine(&self) -> &'a str {
        &self.machine.name
    }

    fn described(&self) -> String {
        let what = match (self.machine.control_plane, self.is_last) {
            (true, true) => "the only control plane",
            (true, false) => "a control plane",
            (false, _) => "a worker",
        };
        format!(
            "{what} of the cluster {}, the Machine {}",
            self.cluster, self.machine.name
        )
    }
}

/// What is asked, beyond the verb itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// The system is asked first.
    Soft,
    /// Off at once.
    Hard,
}

/// `None`: it may be done. `owner`: whose machine the host is, where that is known.
pub fn refusal(
    verb: Verb,
    manner: Manner,
    host: &HostStatus,
    owner: Option<&Owner>,
) -> Option<Refusal> {
    if let Some(why) = hands_off(verb, host) {
        return refused(why);
    }
    match verb {
        Verb::Retry => retry(host),
        Verb::PowerOn | Verb::PowerOff | Verb::PowerCycle => power(verb, manner, host, owner),
        Verb::SkipInspection => skip_inspection(host),
        Verb::Spare | Verb::Unspare => spare(verb, host, owner),
        Verb::AllowKexec => allow_kexec(host),
        Verb::GiveBack => give_back(host, owner),
        Verb::Forget => forget(host, owner),
    }
}

#[expect(clippy::unnecessary_wraps, reason = "it is what the callers answer")]
fn refused(why: impl Into<String>) -> Option<Refusal> {
    Some(Refusal {
        why: why.into(),
        unless: None,
    })
}

#[expect(clippy::unnecessary_wraps, reason = "it is what the callers answer")]
fn unless(unless: Insistence, why: impl Into<String>) -> Option<Refusal> {
    Some(Refusal {
        why: why.into(),
        unless: Some(unless),
    })
}

/// Somebody asked that nothing is done to it.
fn hands_off(verb: Verb, host: &HostStatus) -> Option<String> {
    if matches!(verb, Verb::Spare | Verb::Unspare) {
        return None;
    }
    let by = &host.control.paused;
    if !by.is_empty() {
        return Some(format!(
            "it is paused by {by}: nothing is done to it until the annotation `baremetalhost.metal3.io/paused` goes, or the pause of its cluster"
        ));
    }
    (host.state == HostState::Detached && verb != Verb::Forget).then(|| {
        "it is detached: Ironic does not know it until the annotation `baremetalhost.metal3.io/detached` goes".to_owned()
    })
}

/// What it is doing, and what it waits for.
fn doing(host: &HostStatus) -> String {
    match &host.problem {
        Some(problem) => format!("{} ({}); {}", host.step, problem.what, problem.next),
        None => host.step.clone(),
    }
}

fn busy(host: &HostStatus) -> Option<String> {
    let what = match host.control.disk {
        DiskUse::Writing => "an image is being written to its disk",
        DiskUse::Erasing => "its disks are being cleaned",
        DiskUse::Free | DiskUse::Staged | DiskUse::Installed => return None,
    };
    Some(format!("{what}: {}", host.step))
}

fn retry(host: &HostStatus) -> Option<Refusal> {
    if host.control.failed.is_some() {
        return None;
    }
    let busy = busy(host);
    refused(match busy {
        Some(busy) => format!("{busy}; a second one is not begun beside it"),
        None => format!("no step of it has failed: {}", doing(host)),
    })
}

fn power(verb: Verb, manner: Manner, host: &HostStatus, owner: Option<&Owner>) -> Option<Refusal> {
    let is_cycle = verb == Verb::PowerCycle;
    if host.control.power == HostPower::Manual {
        let runs = matches!(host.state, HostState::Running | HostState::Provisioned);
        let instead = match (is_cycle, manner) {
            (true, Manner::Soft) if runs => None,
            (true, Manner::Hard) if runs => {
                Some("`power cycle` without `--hard` asks its system over SSH to restart")
            }
            (false, _) if runs => Some(
                "a person switches it, `power cycle` asks its system over SSH to restart, and a BMC in its object (docs/power.md) does all of it",
            ),
            _ => Some("a person switches it, or a BMC that its object names (docs/power.md)"),
        };
        if let Some(instead) = instead {
            return refused(format!(
                "its object names no BMC, so the box cannot switch it: {instead}"
            ));
        }
    }
    if verb == Verb::PowerOn {
        return None;
    }
    if let Some(busy) = busy(host) {
        return refused(format!(
            "{busy}; without power the disk would be left half written: wait until it is done"
        ));
    }
    let consumer = &host.control.consumer;
    (!consumer.is_empty()).then(|| Refusal {
        why: match owner {
            Some(owner) => format!("it is {}, and what runs there ends", owner.described()),
            None => format!("it is in use by {consumer}, and what runs there ends"),
        },
        unless: Some(Insistence::Yes),
    })
}

fn skip_inspection(host: &HostStatus) -> Option<Refusal> {
    let before = matches!(
        host.state,
        HostState::Discovered | HostState::Registering | HostState::Inspecting
    );
    if !before && host.control.failed != Some(crate::status::FailedStep::Inspection) {
        return refused(format!("its inspection is over: {}", doing(host)));
    }
    if host.hardware.is_none() {
        return refused(
            "nothing is known of its disks without an inspection, for its ramdisk has not reported yet: start it from the network first",
        );
    }
    None
}

fn spare(verb: Verb, host: &HostStatus, owner: Option<&Owner>) -> Option<Refusal> {
    if verb == Verb::Unspare {
        return (!host.control.spare).then(|| Refusal {
            why: format!(
                "it was not set aside: it has no annotation `{SPARE_ANNOTATION}`; a role `spare` is changed where it was given, in site.yaml or by the label firstlight.internal/role"
            ),
            unless: None,
        });
    }
    if host.control.spare {
        return refused("it is a spare already");
    }
    if host.control.consumer.is_empty() {
        return None;
    }
    refused(format!(
        "{}; drain it and take it out first, by `kubectl delete machine`, by a smaller number of replicas, or as a worker by `kubectl label bmh {} \
         firstlight.internal/role=spare`",
        claimed(host, owner),
        host.name
    ))
}

fn claimed(host: &HostStatus, owner: Option<&Owner>) -> String {
    match owner {
        Some(owner) => format!("it is {}", owner.described()),
        None => format!("it is in use by {}", host.control.consumer),
    }
}

fn allow_kexec(host: &HostStatus) -> Option<Refusal> {
    if host.control.no_kexec {
        return None;
    }
    refused(
        "nothing is remembered against kexec on servers of its model; whether it is started so is said by `start` of its rule in site.yaml",
    )
}

fn give_back(host: &HostStatus, owner: Option<&Owner>) -> Option<Refusal> {
    let control = &host.control;
    if control.held {
        return unless(
            Insistence::Names,
            format!(
                "it waits for its name, because more than {MOST_DEPARTURES} hosts were to be given back within {} minutes",
                DEPARTURE_WINDOW_S / 60
            ),
        );
    }
    if host.state == HostState::External {
        return refused(
            "it carries a system that nobody here installed, which is not the box's to erase",
        );
    }
    if control.disk == DiskUse::Erasing
        || matches!(host.state, HostState::Deprovisioning | HostState::Deleting)
    {
        return refused(format!("it is being given back already: {}", doing(host)));
    }
    if let Some(owner) = owner.filter(|_| !control.consumer.is_empty()) {
        return refused(format!(
            "it is {}; Cluster API gives it back, drained, when that goes: `kubectl delete machine {}`, or a smaller number of replicas",
            owner.described(),
            owner.machine()
        ));
    }
    if !control.consumer.is_empty() {
        return unless(
            Insistence::Force,
            format!(
                "it is in use by {}, of which no cluster on the box tells",
                control.consumer
            ),
        );
    }
    if !control.image && control.disk != DiskUse::Installed {
        return refused(format!("there is nothing to give back: {}", doing(host)));
    }
    None
}

fn forget(host: &HostStatus, owner: Option<&Owner>) -> Option<Refusal> {
    if let Some(busy) = busy(host) {
        return refused(format!(
            "{busy}; wait until it is done, or switch the server off: after 100 s without a word from it, it counts as gone"
        ));
    }
    let control = &host.control;
    if let Some(owner) = owner.filter(|_| !control.consumer.is_empty()) {
        let (described, machine) = (owner.described(), owner.machine());
        if owner.is_last {
            return refused(format!(
                "it is {described}: without it there is no cluster any more; `kubectl delete cluster {}` if that is meant",
                owner.cluster
            ));
        }
        if host.state == HostState::Running {
            return refused(format!(
                "it is {described}, and its system answers, or has within the last two minutes; `kubectl delete machine {machine}` drains it \
                 and gives it back. If it shall go at once, switch the server off first, and ask again when the list says `provisioned`"
            ));
        }
        return unless(
            Insistence::Force,
            format!(
                "it is {described}; `kubectl delete machine {machine}` drains it and gives it back. If the server is dead, its Machine and its Node go \
                 with it"
            ),
        );
    }
    if !control.consumer.is_empty() {
        return refused(format!(
            "it is in use by {}; `firstlight hosts give-back {} --force` takes it away from that",
            control.consumer, host.name
        ));
    }
    if control.image || control.disk == DiskUse::Installed {
        return unless(
            Insistence::Force,
            format!(
                "it carries a system; `firstlight hosts give-back {}` takes that away first. If the server is gone, or shall keep what is on its \
                 disks, it is forgotten as it is",
                host.name
            ),
        );
    }
    (host.state == HostState::Deleting || host.state == HostState::Deprovisioning).then(|| Refusal {
        why: format!(
            "it is on its way out, and cleaned first: {}. If the server is gone, it is forgotten as it is",
            doing(host)
        ),
        unless: Some(Insistence::Force),
    })
}

#[cfg(test)]
mod tests;
