//! What was done by whom, on the state partition: one line of JSON each, in two files, so that strangers who are refused push nothing out
//! of the memory of what was done.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use firstlight_api::people::AuditLine;
use tokio::sync::{mpsc, watch};

use super::log_host;

/// Bytes of a file; then it is put aside, and what was aside goes.
const LARGEST: u64 = 2 << 20;
/// Lines of a kind that are told at a time.
const MOST_TOLD: usize = 500;
pub const DONE: &str = "done";
/// What a line begins with where a person says that a machine is the server that they mean.
pub const APPROVE: &str = "host approve ";
/// Where they say what may be done to its disks.
pub const INSTALL: &str = "host install ";

/// Each has a file, so that none pushes another out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Done,
    /// A person's word on a server, for as long as the site lives.
    Approved,
    Refused,
}

impl Kind {
    fn of(line: &AuditLine) -> Self {
        match line.outcome.as_str() {
            DONE if [APPROVE, INSTALL]
                .iter()
                .any(|word| line.what.starts_with(word)) =>
            {
                Self::Approved
            }
            DONE => Self::Done,
            _ => Self::Refused,
        }
    }
}

#[derive(Clone, Debug)]
pub struct Audit {
    folder: PathBuf,
    turn: Arc<Mutex<()>>,
    /// To a log host, if the site has one.
    copies: Arc<Mutex<Option<mpsc::Sender<AuditLine>>>>,
    lost: Arc<watch::Sender<u64>>,
}

impl Audit {
    pub fn new(folder: PathBuf) -> Self {
        Self {
            folder,
            turn: Arc::default(),
            copies: Arc::default(),
            lost: Arc::default(),
        }
    }

    /// What is noted from now on, and how many lines there was no room for.
    pub fn copies(&self) -> (mpsc::Receiver<AuditLine>, watch::Receiver<u64>) {
        let (sender, lines) = mpsc::channel(log_host::MOST_WAITING);
        *self.copies.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender);
        (lines, self.lost.subscribe())
    }

    fn copy(&self, line: &AuditLine) {
        let copies = self.copies.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(copies) = &*copies
            && copies.try_send(line.clone()).is_err()
        {
            self.lost.send_modify(|lost| *lost += 1);
        }
    }

    fn file(&self, kind: Kind) -> PathBuf {
        self.folder.join(match kind {
            Kind::Done => "audit.log",
            Kind::Approved => "approved.log",
            Kind::Refused => "refused.log",
        })
    }

    /// On the disk when it returns, if it was done.
    pub async fn note(&self, line: AuditLine) {
        let (kind, audit) = (Kind::of(&line), self.clone());
        tracing::info!(
            who = line.who,
            from = line.from,
            what = line.what,
            target = line.target,
            outcome = line.outcome,
            "audit"
        );
        self.copy(&line);
        let written = tokio::task::spawn_blocking(move || {
            let _turn = audit.turn.lock().unwrap_or_else(PoisonError::into_inner);
            append(&audit.file(kind), &line, kind != Kind::Refused)
        });
        if let Ok(Err(error)) = written.await {
            tracing::error!(%error, "the audit log was not written");
        }
    }

    /// The newest last: at most [`MOST_TOLD`] of what was done, and as many of approvals and of what was refused.
    pub async fn read(&self) -> Vec<AuditLine> {
        let kinds = [Kind::Done, Kind::Approved, Kind::Refused];
        self.lines(kinds.map(|kind| (kind, MOST_TOLD)).into()).await
    }

    /// The newest last: all approvals that there are, and as many lines of what else was done as a person is told.
    pub async fn for_receipt(&self) -> (Vec<AuditLine>, Vec<AuditLine>) {
        let approved = self.lines(vec![(Kind::Approved, usize::MAX)]);
        (
            approved.await,
            self.lines(vec![(Kind::Done, MOST_TOLD)]).await,
        )
    }

    async fn lines(&self, kinds: Vec<(Kind, usize)>) -> Vec<AuditLine> {
        let audit = self.clone();
        let read = tokio::task::spawn_blocking(move || {
            let _turn = audit.turn.lock().unwrap_or_else(PoisonError::into_inner);
            let mut lines = Vec::new();
            for (kind, most) in kinds {
                let file = audit.file(kind);
                let texts =
                    [aside(&file), file].map(|file| fs::read_to_string(file).unwrap_or_default());
                let all = texts.iter().flat_map(|text| text.lines());
                // A line that a power cut left half is none.
                let mut all: Vec<AuditLine> = all
                    .filter_map(|line| serde_json::from_str(line).ok())
                    .collect();
                lines.extend(all.split_off(all.len().saturating_sub(most)));
            }
            lines.sort_by(|a, b| a.time.cmp(&b.time));
            lines
        });
        read.await.unwrap_or_default()
    }
}

fn aside(file: &Path) -> PathBuf {
    file.with_extension("log.1")
}

fn append(file: &Path, line: &AuditLine, sync: bool) -> io::Result<()> {
    if fs::metadata(file).is_ok_and(|found| found.len() > LARGEST) {
        fs::rename(file, aside(file))?;
    }
    let mut out = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(file)?;
    let mut text = serde_json::to_vec(line)?;
    // Also behind a line that a power cut left half.
    text.insert(0, b'\n');
    text.push(b'\n');
    out.write_all(&text)?;
    if sync {
        out.sync_data()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn line(second: usize, outcome: &str) -> AuditLine {
        AuditLine {
            time: format!("2026-11-29T10:00:{second:05}Z"),
            who: "ada".to_owned(),
            from: "172.22.0.9".to_owned(),
            what: "host retry".to_owned(),
            target: "n1".to_owned(),
            outcome: outcome.to_owned(),
        }
    }

    #[tokio::test]
    async fn what_was_done_is_told_in_order_also_after_a_power_cut_in_a_line() {
        let dir = tempfile::tempdir().unwrap();
        let audit = Audit::new(dir.path().to_owned());
        assert!(audit.read().await.is_empty());
        audit.note(line(2, DONE)).await;
        audit.note(line(1, "a wrong password")).await;
        let mut cut = OpenOptions::new()
            .append(true)
            .open(dir.path().join("audit.log"))
            .unwrap();
        cut.write_all(b"{\"time\":\"20").unwrap();
        audit.note(line(3, DONE)).await;
        let told = audit.read().await;
        assert_eq!(
            told,
            [line(1, "a wrong password"), line(2, DONE), line(3, DONE)]
        );
    }

    #[tokio::test]
    async fn strangers_push_nothing_out_and_fill_no_disk() {
        let dir = tempfile::tempdir().unwrap();
        let audit = Audit::new(dir.path().to_owned());
        audit.note(line(0, DONE)).await;
        let long = "x".repeat(900);
        for second in 1..8000 {
            append(&dir.path().join("refused.log"), &line(second, &long), false).unwrap();
        }
        let sizes: u64 = fs::read_dir(dir.path())
            .unwrap()
            .map(|file| file.unwrap().metadata().unwrap().len())
            .sum();
        assert!(sizes < 3 * LARGEST, "{sizes}");
        let told = audit.read().await;
        assert_eq!(told.len(), MOST_TOLD + 1);
        assert_eq!(told[0], line(0, DONE));
    }
}
