//! The one status value and its owner.
//!
//! Everything that happens is an [`Update`] sent to one task, which applies it to the value ([`Board`], pure) and
//! publishes the result on a `watch`. The page, the API, `/readyz`, `/metrics` and the console read only that.
//!
//! Must not: decide anything. To add a step: a variant of [`steps::StepName`] and its title.

pub mod banner;
mod board;
pub mod counters;
mod failing;
pub mod metrics;
pub mod steps;

use firstlight_api::{
    artifact::Artifact,
    backup::BackupStatus,
    seal::SealStatus,
    status::{
        AddonLine, Alarm, CertificateEnd, ClusterStatus, ControllerRound, DhcpMode, HostStatus,
        MachineStatus, Problem, SiteStatus, SoftwareLine, UpdateStage, UpgradeLine, UplinkStatus,
    },
};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

pub use board::Board;
pub use failing::Failing;
pub use steps::StepName;

use crate::clock;

/// Something that changed.
#[derive(Clone, Debug, PartialEq)]
pub enum Update {
    Site(String),
    Step(StepName, StepChange),
    /// The provisioning NIC: kernel name, MAC, address with prefix length; empty strings while unknown.
    Interface {
        name: String,
        mac: String,
        address: String,
    },
    Dhcp(DhcpMode),
    Uplink(UplinkStatus),
    Leases(usize),
    /// That may be leased.
    Addresses(u64),
    /// Requests of that protocol beyond its limits, since the start.
    Refused {
        what: &'static str,
        count: u64,
    },
    /// Of the host with this MAC; `None`: it is forgotten.
    Host(String, Option<Box<HostStatus>>),
    /// Replaces the whole list.
    Clusters(Vec<ClusterStatus>),
    /// Replaces the whole list.
    Addons(Vec<AddonLine>),
    Upgrades(Vec<UpgradeLine>),
    /// Of an update of the box.
    Stage(Option<UpdateStage>),
    /// Replaces the whole list.
    Software(Vec<SoftwareLine>),
    /// Replaces the whole list.
    Artifacts(Vec<Artifact>),
    /// Replaces the whole list.
    Certificates(Vec<CertificateEnd>),
    /// Replaces what this controller reported before.
    Round(ControllerRound),
    Seal(SealStatus),
    /// The box's own.
    Machine(MachineStatus),
    Backup(Option<BackupStatus>),
    /// Known once, at the start.
    BeforeStart(Vec<String>),
    /// Replaces the whole list.
    Alarms(Vec<Alarm>),
    /// Replaces what this source reported before.
    Problems(&'static str, Vec<Problem>),
}

#[derive(Clone, Debug, PartialEq)]
pub enum StepChange {
    /// Begins, or begins again after a failure; `note` says what it waits for.
    Running {
        note: Option<String>,
    },
    Done,
    Failed(Problem),
}

/// Given to every task that has something to tell.
#[derive(Clone, Debug)]
pub struct StatusSender {
    updates: mpsc::UnboundedSender<Update>,
}

impl StatusSender {
    /// The owner outlives every sender while the agent runs; during shutdown nobody reads any more.
    pub fn send(&self, update: Update) {
        drop(self.updates.send(update));
    }

    pub fn running(&self, step: StepName) {
        self.send(Update::Step(step, StepChange::Running { note: None }));
    }

    pub fn waiting_for(&self, step: StepName, note: impl Into<String>) {
        self.send(Update::Step(
            step,
            StepChange::Running {
                note: Some(note.into()),
            },
        ));
    }

    pub fn done(&self, step: StepName) {
        self.send(Update::Step(step, StepChange::Done));
    }

    /// Shown until the step is running again; also the one log line of the failure.
    pub fn failed(&self, step: StepName, what: impl Into<String>, next: impl Into<String>) {
        let problem = Problem {
            what: what.into(),
            next: next.into(),
        };
        tracing::warn!(step = step.name(), reason = problem.what, "step failed");
        self.send(Update::Step(step, StepChange::Failed(problem)));
    }

    pub fn problems(&self, source: &'static str, problems: Vec<Problem>) {
        self.send(Update::Problems(source, problems));
    }
}

/// The owner's other end, to be run by [`own`].
#[derive(Debug)]
pub struct StatusOwner {
    board: Board,
    updates: mpsc::UnboundedReceiver<Update>,
    publish: watch::Sender<SiteStatus>,
}

pub fn channel(version: &str) -> (StatusSender, watch::Receiver<SiteStatus>, StatusOwner) {
    let (sender, updates) = mpsc::unbounded_channel();
    let (publish, reader) = watch::channel(board::empty(version));
    (
        StatusSender { updates: sender },
        reader,
        StatusOwner {
            board: Board::default(),
            updates,
            publish,
        },
    )
}

/// Applies updates until `stop`, in place: there is one value, however many hosts are in it and whoever reads.
pub async fn own(mut owner: StatusOwner, stop: CancellationToken) -> anyhow::Result<()> {
    let mut batch = Vec::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            count = owner.updates.recv_many(&mut batch, 64) => if count == 0 { return Ok(()) },
        }
        let (board, now) = (&mut owner.board, clock::uptime());
        owner.publish.send_modify(|status| {
            for update in batch.drain(..) {
                if let Some(step) = board.apply(status, update, now) {
                    tracing::info!(step = step.name(), uptime = now.as_secs_f64(), "step done");
                }
            }
            board.tell(status, now);
        });
    }
}
