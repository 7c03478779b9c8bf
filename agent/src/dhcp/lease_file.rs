//! The lease log on the state partition: what was acknowledged is on the disk. [`spawn`] writes it on a thread of its own.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use firstlight_api::status::Problem;
use firstlight_netboot::{LeaseChange, LeaseTable, Now, compact, decode_log, encode_records};
use tokio::sync::mpsc;

use crate::files::{self, Access};

/// Lines that say nothing any more, beside as many as there are leases, before the file is written anew with one line a lease.
const COMPACT_AFTER: usize = 4096;
/// Jobs that may wait, and that are written at once.
const TOGETHER: usize = 4096;
/// Empty lines at the end of the file, which lines take the place of: what changes no size of a file needs no journal of its file
/// system, so that a sync is one write.
const ROOM: usize = 128 << 10;
/// Between the begins of two writes, and while answers come faster than [`BUSY`]: a sync costs more than all else that they need.
const APART: Duration = Duration::from_micros(300);
const APART_WHEN_BUSY: Duration = Duration::from_millis(2);
/// From answer to answer.
const BUSY: Duration = Duration::from_micros(200);

/// The open log.
#[derive(Debug)]
pub struct LeaseFile {
    path: PathBuf,
    file: File,
    /// Bytes as far as the last line, and with the empty ones.
    written: usize,
    size: usize,
    lines: usize,
    /// What the file says.
    table: LeaseTable,
}

impl LeaseFile {
    /// Reads the log, then writes it anew. A file that cannot be read is put aside, never overwritten.
    pub fn open(path: &Path, now: Now) -> Result<(Self, LeaseTable, Vec<Problem>)> {
        let bytes = match fs::read(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            read => read.with_context(|| format!("reading {}", path.display()))?,
        };
        let mut problems = Vec::new();
        let table = match decode_log(&bytes) {
            Ok(log) => {
                if !log.damaged.is_empty() {
                    problems.push(Problem {
                        what: format!("the stick damaged {} lines of the lease file", log.damaged.len()),
                        next: "hosts may get other addresses; the stick is wearing out, write the image to another one soon".to_owned(),
                    });
                }
                log.table
            }
            Err(error) => {
                let aside = path.with_extension("log.unreadable");
                fs::rename(path, &aside)
                    .with_context(|| format!("putting {} aside", path.display()))?;
                problems.push(Problem {
                    what: format!("leases are forgotten: {error}"),
                    next: format!(
                        "addresses in use are found by probing; the old file is {}",
                        aside.display()
                    ),
                });
                LeaseTable::default()
            }
        };
        let mut leases = Self {
            path: path.to_owned(),
            file: File::open("/dev/null").context("opening /dev/null")?,
            written: 0,
            size: 0,
            lines: 0,
            table: table.clone(),
        };
        leases.rewrite(now)?;
        Ok((leases, table, problems))
    }

    fn rewrite(&mut self, now: Now) -> Result<()> {
        let mut content = compact(&self.table, now);
        self.written = content.len();
        self.size = self.written + ROOM;
        content.resize(self.size, b'\n');
        files::write(&self.path, &content, Access::Group)?;
        self.file = OpenOptions::new()
            .write(true)
            .open(&self.path)
            .with_context(|| format!("opening {}", self.path.display()))?;
        self.lines = self.table.known();
        Ok(())
    }

    /// Returns once the changes are on the disk.
    pub fn append(&mut self, changes: &[LeaseChange], now: Now) -> Result<()> {
        if changes.is_empty() {
            return Ok(());
        }
        for change in changes {
            self.table.apply(change);
        }
        if self.lines > COMPACT_AFTER.saturating_add(2 * self.table.known()) {
            return self.rewrite(now);
        }
        let mut lines = encode_records(changes);
        let end = self.written + lines.len();
        if end > self.size {
            // A file that grows fast grows in larger steps.
            let room = ROOM.max(end / 2);
            lines.resize(lines.len() + room, b'\n');
            self.size = end + room;
        }
        let done = self
            .file
            .write_all_at(&lines, self.written as u64)
            .and_then(|()| self.file.sync_data());
        self.written = end;
        if done.is_err() {
            // Half a line may be left, and what a disk refused once it may have lost; if this fails too, the next append begins with it.
            self.lines = usize::MAX;
            self.rewrite(now)
                .with_context(|| format!("writing {}", self.path.display()))?;
        }
        self.lines += changes.len();
        Ok(())
    }
}

/// What is to be written before `then` may happen.
#[derive(Debug)]
pub struct Job<T> {
    pub changes: Vec<LeaseChange>,
    pub now: Now,
    pub then: T,
}

/// Jobs in; each `then` comes out when all that came in before it is on the disk. Jobs that wait are written together, and so are
/// those that come shortly after each other. An error is the last thing that comes.
pub fn spawn<T: Send + 'static>(
    mut leases: LeaseFile,
) -> (
    mpsc::Sender<Job<T>>,
    mpsc::UnboundedReceiver<Result<Vec<T>>>,
) {
    let (jobs, mut todo) = mpsc::channel::<Job<T>>(TOGETHER);
    // As many as there are jobs: the reader must be able to wait for room for a job.
    let (durable, done) = mpsc::unbounded_channel();
    tokio::task::spawn_blocking(move || {
        let (mut apart, mut written) = (APART, Instant::now());
        while let Some(first) = todo.blocking_recv() {
            thread::sleep(apart.saturating_sub(written.elapsed()));
            let since = std::mem::replace(&mut written, Instant::now()).elapsed();
            let (mut changes, now, mut then) = (first.changes, first.now, vec![first.then]);
            while then.len() < TOGETHER
                && let Ok(next) = todo.try_recv()
            {
                changes.extend(next.changes);
                then.push(next.then);
            }
            let is_busy = since < BUSY * u32::try_from(then.len()).unwrap_or(u32::MAX);
            apart = if is_busy { APART_WHEN_BUSY } else { APART };
            if let Err(error) = leases.append(&changes, now) {
                drop(durable.send(Err(error)));
                return;
            }
            if durable.send(Ok(then)).is_err() {
                return;
            }
        }
    });
    (jobs, done)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn lease(last: u8) -> LeaseChange {
        let now = Now::from_unix_seconds(1000);
        LeaseChange::Leased {
            mac: firstlight_netboot::MacAddr::new([2, 0, 0, 0, 0, last]).unwrap(),
            address: [172, 22, 0, last].into(),
            expires: now.plus(Duration::from_mins(1)),
        }
    }

    #[test]
    fn what_was_appended_is_read_again_also_after_a_torn_write() {
        let dir = tempfile::tempdir().unwrap();
        let (path, now) = (dir.path().join("leases.log"), Now::from_unix_seconds(1000));
        let (mut file, _, _) = LeaseFile::open(&path, now).unwrap();
        for last in [7, 8] {
            file.append(&[lease(last)], now).unwrap();
        }
        let mut bytes = fs::read(&path).unwrap();
        bytes.truncate(bytes.trim_ascii_end().len() - 4);
        fs::write(&path, bytes).unwrap();
        let (_, again, problems) = LeaseFile::open(&path, now).unwrap();
        assert_eq!(
            again
                .iter()
                .map(|lease| lease.address.octets()[3])
                .collect::<Vec<_>>(),
            [7]
        );
        assert_eq!(problems, []);
    }

    #[test]
    fn lines_take_the_room_and_the_file_grows_seldom() {
        let dir = tempfile::tempdir().unwrap();
        let (path, now) = (dir.path().join("leases.log"), Now::from_unix_seconds(1000));
        let (mut file, _, _) = LeaseFile::open(&path, now).unwrap();
        let mut sizes = std::collections::BTreeSet::new();
        for _ in 0..2000 {
            file.append(&[lease(7)], now).unwrap();
            sizes.insert(fs::metadata(&path).unwrap().len());
        }
        assert_eq!(sizes.len(), 2, "{sizes:?}");
        let log = decode_log(&fs::read(&path).unwrap()).unwrap();
        assert_eq!((log.records, log.damaged.len()), (2000, 0));
    }

    #[test]
    fn a_file_of_another_kind_is_put_aside() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("leases.log");
        fs::write(&path, "not a lease file").unwrap();
        let (_, table, problems) = LeaseFile::open(&path, Now::default()).unwrap();
        assert_eq!((table, problems.len()), (LeaseTable::default(), 1));
        assert_eq!(
            fs::read_to_string(dir.path().join("leases.log.unreadable")).unwrap(),
            "not a lease file"
        );
    }

    #[tokio::test]
    async fn an_answer_comes_out_when_all_before_it_is_on_the_disk() {
        let dir = tempfile::tempdir().unwrap();
        let (path, now) = (dir.path().join("leases.log"), Now::from_unix_seconds(1000));
        let (file, _, _) = LeaseFile::open(&path, now).unwrap();
        let (jobs, mut done) = spawn(file);
        for last in 1..100 {
            // Every third answer changes nothing, and waits for those before it all the same.
            let changes = if last % 3 == 0 {
                vec![]
            } else {
                vec![lease(last)]
            };
            let job = Job {
                changes,
                now,
                then: last,
            };
            jobs.send(job).await.unwrap();
        }
        let mut written = Vec::new();
        while written.len() < 99 {
            written.extend(done.recv().await.unwrap().unwrap());
            let on_disk = decode_log(&fs::read(&path).unwrap()).unwrap().table;
            let mut changed = written.iter().filter(|n| *n % 3 != 0);
            assert!(changed.all(|n| on_disk.of_address([172, 22, 0, *n].into()).is_some()));
        }
        assert_eq!(written, (1..100).collect::<Vec<u8>>());
    }

    #[tokio::test]
    async fn a_disk_that_takes_nothing_lets_no_answer_out() {
        let dir = tempfile::tempdir().unwrap();
        let (path, now) = (dir.path().join("leases.log"), Now::from_unix_seconds(1000));
        let (mut file, _, _) = LeaseFile::open(&path, now).unwrap();
        file.file = OpenOptions::new().write(true).open("/dev/full").unwrap();
        drop(dir);
        let (jobs, mut done) = spawn(file);
        let changes = vec![lease(1)];
        jobs.send(Job {
            changes,
            now,
            then: (),
        })
        .await
        .unwrap();
        assert!(done.recv().await.unwrap().is_err());
        assert!(done.recv().await.is_none());
    }
}
