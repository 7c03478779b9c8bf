//! Another version of the box's system, beside the running one (docs/updates.md, decision 0049): it is written, started once, and kept only
//! if the site is as well as before. Disks and the boot loader are the business of `firstlight-update` ([`crate::helper`]); here is decided
//! what it is told, and whether a system that is tried stays ([`wellness`]).

mod wellness;

use std::{fs, io::Read, path::Path, sync::Arc, time::Duration};

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use firstlight_api::{
    backup::BackupFile,
    seal::RecoveryKey,
    site::SiteConfig,
    slot::SystemContent,
    status::{Problem, SiteStatus, UpdateStage},
    update::{HelperOrder, HelperReply, UpdateHeader, UpdateOutcome, UpdateView},
};
use tokio::{
    sync::{mpsc, watch},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use crate::{
    backups,
    files::{self, Access},
    helper::{Conversation, ask, unexpected},
    paths::Paths,
    start_line, state, state_versions,
    status::{StatusSender, Update},
};
use wellness::Wellness;

const LOOK: Duration = Duration::from_secs(2);
/// So long everything has to be well: what is told of servers and clusters may be of before the restart.
const SETTLED: Duration = Duration::from_mins(1);
/// Of files that other programs and earlier starts left.
const LONGEST: u64 = 1 << 20;

/// What people order.
#[derive(Clone, Debug)]
pub struct Updater {
    paths: Paths,
    site: watch::Receiver<Option<Arc<SiteConfig>>>,
    stage: Arc<watch::Sender<Option<UpdateStage>>>,
}

impl Updater {
    pub fn new(paths: Paths, site: watch::Receiver<Option<Arc<SiteConfig>>>) -> Self {
        Self {
            paths,
            site,
            stage: Arc::default(),
        }
    }

    pub async fn view(&self) -> Result<UpdateView> {
        match ask(&self.paths, &HelperOrder::Look).await? {
            HelperReply::Seen(systems) => Ok(UpdateView {
                systems,
                last: outcome(&self.paths),
            }),
            other => Err(unexpected(&other)),
        }
    }

    /// Another recovery key for the state, which is sealed to what runs now.
    pub async fn seal(&self) -> Result<RecoveryKey> {
        match ask(&self.paths, &HelperOrder::Seal).await? {
            HelperReply::RecoveryKey(key) => Ok(key),
            other => Err(unexpected(&other)),
        }
    }

    /// A backup onto the state partition, for those whom site.yaml names.
    pub async fn backup(&self) -> Result<BackupFile> {
        let site = self.site.borrow().clone().unwrap_or_default();
        backups::make(&self.paths, &site).await
    }

    /// Names of the layers that have to be sent.
    pub async fn plan(&self, system: SystemContent) -> Result<Vec<String>> {
        match ask(&self.paths, &HelperOrder::Plan { system }).await? {
            HelperReply::Send { layers } => Ok(layers),
            other => Err(unexpected(&other)),
        }
    }

    /// Takes what is sent; returns when all of it is on the stick and was read back.
    pub async fn write(&self, header: UpdateHeader, pieces: mpsc::Receiver<Bytes>) -> Result<()> {
        let UpdateHeader { system, sent } = header;
        let order = HelperOrder::Write { system, sent };
        let conversation = Conversation::begin(&self.paths, &order).await?;
        let stage = StageGuard(&self.stage);
        let tell = |done: u64, of: u64| {
            let percent = u8::try_from(done.saturating_mul(100) / of.max(1)).unwrap_or(100);
            stage.0.send_replace(Some(UpdateStage::Writing { percent }));
        };
        match conversation.end(Some(pieces), tell).await? {
            HelperReply::Done => Ok(()),
            HelperReply::Refused(problem) => Err(problem.into()),
            other => Err(unexpected(&other)),
        }
    }

    /// Starts the other system, once. `site`: what has to be as well afterwards.
    pub async fn start(&self, site: &SiteStatus) -> Result<()> {
        let systems = self.view().await?.systems;
        let versions = systems.versions.unwrap_or_default();
        if let Some(newer) = state_versions::older(&self.paths, &versions) {
            let problem = Problem {
                what: format!("that system is older than what is on the state partition: it brings {newer}"),
                next: "build a newer image; an older one needs a stick of its own, or a backup of its time".to_owned(),
            };
            return Err(problem.into());
        }
        let makes_backups = |config: &Arc<SiteConfig>| config.backup.is_some();
        if self.site.borrow().as_ref().is_some_and(makes_backups) {
            self.backup().await?;
        }
        let before = serde_json::to_vec(&Wellness::of(site))?;
        files::write(&self.paths.before_update(), &before, Access::Group)?;
        match ask(&self.paths, &HelperOrder::Try).await? {
            HelperReply::Done => Ok(()),
            other => Err(unexpected(&other)),
        }
    }
}

/// Nothing is written any more, however that ended.
struct StageGuard<'a>(&'a watch::Sender<Option<UpdateStage>>);

impl Drop for StageGuard<'_> {
    fn drop(&mut self) {
        self.0.send_replace(None);
    }
}

fn outcome(paths: &Paths) -> Option<UpdateOutcome> {
    serde_json::from_slice(&read(&paths.update_outcome())?).ok()
}

fn read(path: &Path) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = fs::File::open(path).ok()?;
    file.take(LONGEST).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// Tells of updates, and decides about a system that is tried: its keeping ends this with an error, and systemd starts the agent anew,
/// which then may install servers again.
pub async fn run(
    updater: Updater,
    site: watch::Receiver<SiteStatus>,
    status: StatusSender,
    stop: CancellationToken,
) -> Result<()> {
    let paths = &updater.paths;
    let usable = || state::is_usable(paths);
    if !state::wait_until(usable, Duration::MAX, &stop).await {
        return Ok(());
    }
    if let Some(last) = outcome(paths).filter(|last| !last.kept) {
        status.problems("update", vec![went_back(paths, &last)]);
    }
    if start_line::is_tried(paths) {
        return tokio::select! {
            kept = judge(paths, site, &status) => kept,
            () = stop.cancelled() => Ok(()),
        };
    }
    let mut stage = updater.stage.subscribe();
    loop {
        tokio::select! {
            changed = stage.changed() => if changed.is_err() { return Ok(()) },
            () = stop.cancelled() => return Ok(()),
        }
        status.send(Update::Stage(stage.borrow_and_update().clone()));
    }
}

fn went_back(paths: &Paths, last: &UpdateOutcome) -> Problem {
    Problem {
        what: format!(
            "the update to Firstlight {} was taken back, and all is as before it: {}",
            last.version, last.why
        ),
        next: format!(
            "mend that and order it again (`firstlight update`); this is told until then, or until `sudo rm {}`",
            paths.update_outcome().display()
        ),
    }
}

/// Waits until the site is as well as before, and stays so; then has this system kept.
async fn judge(
    paths: &Paths,
    site: watch::Receiver<SiteStatus>,
    status: &StatusSender,
) -> Result<()> {
    let before = read(&paths.before_update())
        .and_then(|bytes| serde_json::from_slice::<Wellness>(&bytes).ok());
    // Without it, all that a box does has to work.
    let before = before.unwrap_or_else(|| Wellness::whole_box(&site.borrow()));
    let mut well_since = None;
    let mut told = None;
    loop {
        let missing = before.missing(&site.borrow());
        if missing.is_empty() {
            let since = *well_since.get_or_insert_with(Instant::now);
            if since.elapsed() >= SETTLED {
                break;
            }
        } else {
            well_since = None;
        }
        if told.as_ref() != Some(&missing) {
            let why = if missing.is_empty() {
                "it was as well as before, and not for long enough".to_owned()
            } else {
                missing.join("; ")
            };
            tracing::info!(why, "this system is tried");
            // For the system that the box may go back to.
            files::write(&paths.run_trial(), why.as_bytes(), Access::Group)?;
            let waits = missing.clone();
            status.send(Update::Stage(Some(UpdateStage::Tried { waits })));
            told = Some(missing);
        }
        tokio::time::sleep(LOOK).await;
    }
    ask(paths, &HelperOrder::Keep)
        .await
        .context("keeping this system")?;
    bail!("this system is kept: starting anew with all that a box does");
}

#[cfg(test)]
mod tests;
