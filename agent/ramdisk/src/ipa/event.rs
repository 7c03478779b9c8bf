//! What happens to the agent, and what it wants done: the two value types between the pure core and its edges.

use std::time::Duration;

use firstlight_api::report::{Directive, LookupState, Phase};
use serde_json::Value;
use uuid::Uuid;

use super::job::Job;

/// Everything that the core hears of.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The answer to [`Action::Report`]; `Err` says why the box could not be asked.
    Reported(Result<Directive, String>),
    /// The box believes nothing of this machine's progress before it has a report.
    ReportWanted,
    /// The answer to [`Action::Inspect`] or [`Action::LookUp`].
    Registration(Registration),
    /// The answer to [`Action::Beat`].
    HeartbeatReply(HeartbeatReply),
    /// A request came in on the command API; `ask` names it until [`Action::Answer`].
    Asked { ask: u64, request: Request },
    /// The job started as command `id` ended.
    Finished {
        id: Uuid,
        result: Result<Value, Failure>,
    },
    /// The time given by `Agent::next_wake` has come.
    Woken,
}

/// What Ironic says to a ramdisk that asks for its node.
#[derive(Clone, Debug, PartialEq)]
pub enum Registration {
    Accepted(Node),
    /// The node is known, but its token was handed out before.
    TokenHidden,
    /// 404: unknown, or in a state that wants no ramdisk.
    NotWanted,
    /// Locked, restarting or unreachable: ask again.
    Failed(String),
}

/// The node that Ironic knows this machine as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub uuid: String,
    pub token: String,
    /// Ironic forgets a ramdisk that is silent for this long.
    pub heartbeat_timeout: Duration,
    pub md5_allowed: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeartbeatReply {
    Accepted,
    /// 409: the node is locked.
    Locked,
    /// The token is no longer the one on record, or the node is gone.
    Forgotten(String),
    /// Refused for another reason, or Ironic is out of reach.
    Failed(String),
}

/// A request on the command API as it came, before any check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    Run {
        token: Option<String>,
        wait: bool,
        body: Vec<u8>,
    },
    List {
        token: Option<String>,
    },
    One {
        token: Option<String>,
        id: String,
    },
    Status,
    Root,
    /// Any other path or method.
    Unknown(String),
}

/// Why a command failed: `reason` is a sentence for a person and ends up in the node's `last_error`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub reason: String,
}

/// Everything that the core wants done.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    Report {
        lookup: LookupState,
    },
    /// Offer the inventory, for the node that the box named; where there is no box, Ironic finds it by the MAC addresses.
    Inspect {
        node: Option<String>,
    },
    LookUp {
        node: Option<String>,
    },
    Beat {
        uuid: String,
        token: String,
    },
    Answer {
        ask: u64,
        status: u16,
        body: Value,
    },
    Start {
        id: Uuid,
        job: Job,
    },
    /// Stop the running job as soon as it can; its `Finished` still comes.
    Abort,
    Tell(Phase),
    /// A line for the console.
    Say(String),
    /// Close the listener and every open connection.
    CloseServer,
    Leave(Departure),
}

/// How the ramdisk ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Departure {
    /// Restart; firmware or boot server decide what runs.
    Reboot,
    /// Restart into the operating system that is on disk.
    BootDisk,
    /// Start its kernel, which was loaded, without a restart.
    Kexec,
    PowerOff,
}
