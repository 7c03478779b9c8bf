//! Backups that the box makes by itself (docs/backup.md): every night, and before an update, onto the state partition; and from there onto
//! servers whose rule says so, and to a place outside. `plan` decides, `outside` speaks SFTP; `firstlight-update`, which may read what the agent may
//! not, makes them, encrypted.

pub mod outside;
mod plan;

use std::{collections::BTreeMap, fs, io::Read, path::Path, sync::Arc, time::Duration};

use anyhow::{Context, Result, anyhow, ensure};
use firstlight_api::{
    backup::{BackupFile, BackupStatus, KeepOrder},
    site::SiteConfig,
    status::{Problem, SiteStatus},
    update::{HelperOrder, HelperReply},
};
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{
    clock,
    files::{self, Access},
    helper::{ask, unexpected},
    paths::Paths,
    ssh::{Keys, SshError},
    start_line,
    status::{StatusSender, Update},
};
use plan::{Copies, Location};

const SOURCE: &str = "backup";
const LOOK: Duration = Duration::from_secs(10);
/// A box that has just come up has servers to look after.
const SETTLED: Duration = Duration::from_mins(30);
/// After one that could not be made, in seconds.
const AGAIN: i64 = 3600;
/// Is sent out of memory.
const MOST_BYTES: u64 = 256 << 20;
/// Of the agent's own file.
const LONGEST: u64 = 1 << 20;

/// Why a place has not got it.
#[derive(Debug)]
pub struct Failed {
    pub why: String,
    /// It will not mend by itself.
    pub definite: bool,
}

impl From<anyhow::Error> for Failed {
    fn from(error: anyhow::Error) -> Self {
        Self {
            why: format!("{error:#}"),
            definite: false,
        }
    }
}

impl From<SshError> for Failed {
    fn from(error: SshError) -> Self {
        let definite = matches!(
            error,
            SshError::HostKeyMismatch { .. } | SshError::Refused(_) | SshError::Failed { .. }
        );
        Self {
            why: error.to_string(),
            definite,
        }
    }
}

/// Makes one now, onto the state partition: the box's Kubernetes is away for some seconds.
pub async fn make(paths: &Paths, site: &SiteConfig) -> Result<BackupFile> {
    let Some(plan) = &site.backup else {
        let problem = Problem {
            what: "this box makes no backups by itself: its site.yaml has no `backup`".to_owned(),
            next: "write the public key of who may read them there, or fetch one with `firstlight backup -o FILE`".to_owned(),
        };
        return Err(problem.into());
    };
    let order = HelperOrder::Backup {
        name: plan::name(&site.name.to_string(), clock::wall_seconds()),
        recipients: plan.recipients.clone(),
        count: plan.count,
    };
    match ask(paths, &order).await.context("making a backup")? {
        HelperReply::Backup(file) => {
            tracing::info!(name = file.name, bytes = file.bytes, "a backup is made");
            Ok(file)
        }
        other => Err(unexpected(&other)),
    }
}

/// What is known of a site's backups.
struct Keeper {
    paths: Paths,
    keys: Keys,
    copies: Copies,
    born: Instant,
    ready_since: Option<Instant>,
    overdue: bool,
    /// When one could not be made, and why.
    failed: Option<(i64, Problem)>,
}

pub async fn run(
    paths: Paths,
    keys: Keys,
    site: watch::Receiver<Option<Arc<SiteConfig>>>,
    seen: watch::Receiver<SiteStatus>,
    status: StatusSender,
    stop: CancellationToken,
) -> Result<()> {
    let mut keeper = Keeper {
        copies: Copies::new(load(&paths.backup_copies())),
        paths,
        keys,
        born: Instant::now(),
        ready_since: None,
        overdue: false,
        failed: None,
    };
    let mut told = (None, Vec::new());
    loop {
        let config = site.borrow().clone();
        let site_status = seen.borrow().clone();
        let now = match config.filter(|config| config.backup.is_some()) {
            Some(config) => {
                let look = keeper.look(&config, &site_status);
                tokio::select! {
                    shown = look => (Some(shown), keeper.problems(clock::wall_seconds())),
                    () = stop.cancelled() => return Ok(()),
                }
            }
            None => (None, Vec::new()),
        };
        if now != told {
            status.send(Update::Backup(now.0.clone()));
            status.problems(SOURCE, now.1.clone());
            told = now;
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            () = stop.cancelled() => return Ok(()),
        }
    }
}

impl Keeper {
    async fn look(&mut self, site: &SiteConfig, status: &SiteStatus) -> BackupStatus {
        let now = clock::wall_seconds();
        let files = list(&self.paths.backups());
        let made = plan::last(&files, now).map(|(made, _)| made);
        // Somebody may have had one made.
        self.failed
            .take_if(|(at, _)| made.is_some_and(|made| made >= *at));
        let is_patient = self.failed.as_ref().is_some_and(|(at, _)| now < at + AGAIN);
        let since = status
            .ready
            .then(|| self.ready_since.unwrap_or_else(Instant::now));
        self.ready_since = since;
        let is_settled = since.is_some_and(|since| since.elapsed() >= SETTLED);
        let may = is_settled && !start_line::is_tried(&self.paths) && !is_patient;
        if may && plan::is_due(made, now) {
            self.make(site, now).await;
        }
        let files = list(&self.paths.backups());
        let made = plan::last(&files, now).map(|(made, _)| made);
        self.overdue = plan::is_overdue(made, now, self.born.elapsed());
        let locations = plan::locations(site, status);
        self.copies.forget(&locations, status);
        let Some((made, file)) = plan::last(&files, now) else {
            return BackupStatus::default();
        };
        for location in &locations {
            if self.copies.wants(location, &file.name, now) {
                self.bring(site, location, file).await;
            }
        }
        BackupStatus {
            last: Some(file.clone()),
            made,
            copies: self.copies.with(&locations, &file.name),
        }
    }

    async fn make(&mut self, site: &SiteConfig, now: i64) {
        let Err(error) = make(&self.paths, site).await else {
            return;
        };
        tracing::warn!(error = format!("{error:#}"), "no backup was made");
        let problem = Problem {
            what: format!("the box could not make its backup: {error:#}"),
            next: "it is tried again within the hour; `firstlight backup --now` tries at once"
                .to_owned(),
        };
        self.failed = Some((now, problem));
    }

    async fn bring(&mut self, site: &SiteConfig, location: &Location, file: &BackupFile) {
        let count = site.backup.as_ref().map_or(1, |plan| plan.count);
        let from = self.paths.backups().join(&file.name);
        let brought = match location {
            Location::Server { node, .. } => {
                let order = KeepOrder {
                    file: file.clone(),
                    count,
                };
                match read(&from, file) {
                    Ok(content) => {
                        let kept = self.keys.keep_backup(node, &order, &content).await;
                        kept.map_err(Failed::from)
                    }
                    Err(error) => Err(error.into()),
                }
            }
            Location::Outside(outside) => {
                outside::bring(&self.paths.outside(), outside, file, &from, count).await
            }
        };
        let now = clock::wall_seconds();
        match brought {
            Ok(()) => {
                tracing::info!(%location, name = file.name, "a backup is there, too");
                self.copies.done(location, &file.name);
                let there = serde_json::to_vec(self.copies.there()).unwrap_or_default();
                if let Err(error) = files::write(&self.paths.backup_copies(), &there, Access::Group)
                {
                    tracing::warn!(
                        error = format!("{error:#}"),
                        "where backups are is not noted"
                    );
                }
            }
            Err(Failed { why, definite }) => {
                tracing::warn!(%location, why, "a backup is not there");
                self.copies.failed(location, why, definite, now);
            }
        }
    }

    fn problems(&self, now: i64) -> Vec<Problem> {
        let troubles = self.copies.troubles(now).into_iter();
        let troubles = troubles.map(|(location, why)| Problem {
            what: format!("the last backup is not on {location}: {why}"),
            next: "mend that, or take the place out of site.yaml; it is tried again every quarter of an hour".to_owned(),
        });
        let overdue = (self.overdue && self.failed.is_none()).then(|| Problem {
            what: "the box has made no backup for three days: it makes them while all of it works"
                .to_owned(),
            next: "see what of it does not; `firstlight backup --now` makes one in any case"
                .to_owned(),
        });
        let failed = self.failed.iter().map(|(_, problem)| problem.clone());
        failed.chain(overdue).chain(troubles).collect()
    }
}

/// Backups in a folder; of what else is there nothing is said.
fn list(folder: &Path) -> Vec<BackupFile> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let files = entries.filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let bytes = entry.metadata().ok()?.len();
        BackupFile::is_name(&name).then_some(BackupFile { name, bytes })
    });
    files.collect()
}

fn read(path: &Path, file: &BackupFile) -> Result<Vec<u8>> {
    ensure!(
        file.bytes <= MOST_BYTES,
        "it has {} MB, and servers are sent {} at most",
        file.bytes >> 20,
        MOST_BYTES >> 20
    );
    let content = fs::read(path).with_context(|| format!("reading {}", path.display()))?;
    if content.len() as u64 == file.bytes {
        Ok(content)
    } else {
        Err(anyhow!("{} is another one now", path.display()))
    }
}

/// What cannot be read is brought again.
fn load(path: &Path) -> BTreeMap<String, String> {
    let mut text = Vec::new();
    let file = fs::File::open(path).ok();
    let read = file.and_then(|file| file.take(LONGEST).read_to_end(&mut text).ok());
    read.and_then(|_| serde_json::from_slice(&text).ok())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests;
