//! The box's last warnings outlive a power cut: the journal is in memory only, because a stick wears out by being written to.
//!
//! Follows the journal's warnings and keeps the last megabyte on the state partition, in two files of which the older one is
//! replaced. A flood is cut short. At the first start after a boot, what an earlier boot left is put on the page.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, BufReader},
    process::Command,
};
use tokio_util::sync::CancellationToken;

use crate::{
    clock,
    paths::Paths,
    state,
    status::{Failing, StatusSender, Update},
};

/// Of each of the two files.
const LARGEST: u64 = 512 << 10;
/// What is written in one [`WINDOW`]; what is beyond is counted.
const MOST: usize = 32 << 10;
const WINDOW: Duration = Duration::from_mins(1);
/// Of one line.
const LONGEST: usize = 500;
/// On the page, and how many of the files' last bytes they are looked for in.
const SHOWN: usize = 30;
const TAIL: u64 = 16 << 10;
const AGAIN: Duration = Duration::from_secs(10);

pub async fn run(paths: Paths, status: StatusSender, stop: CancellationToken) -> Result<()> {
    if !state::wait_until(|| state::is_usable(&paths), Duration::MAX, &stop).await {
        return Ok(());
    }
    let boot = fs::read_to_string(paths.boot_id()).unwrap_or_default();
    let mut ring = Ring::new(paths.warnings(), boot.trim());
    status.send(Update::BeforeStart(ring.before()));
    let mut failing = Failing::new(
        status,
        "warnings",
        "the warnings of this boot would not outlive a power cut: the journal is not followed",
    );
    let work = async {
        loop {
            let mut following = std::pin::pin!(follow(&mut ring));
            let early = tokio::time::timeout(AGAIN, &mut following).await;
            let ended = if let Ok(ended) = early {
                ended
            } else {
                failing.went(&Ok(()), clock::uptime());
                following.await
            };
            let ended = ended.and_then(|()| bail!("journalctl ended"));
            failing.went::<()>(&ended, clock::uptime());
            tokio::time::sleep(AGAIN).await;
        }
    };
    tokio::select! {
        () = work => Ok(()),
        () = stop.cancelled() => Ok(()),
    }
}

/// Ends when journalctl does.
async fn follow(ring: &mut Ring) -> Result<()> {
    // What came before the agent ran is in the journal of this boot.
    let lines = if ring.began {
        "--lines=0"
    } else {
        "--lines=all"
    };
    let mut child = Command::new("journalctl")
        .args(["--boot", "--follow", "--priority=warning", lines])
        .args(["--output=short-iso", "--no-hostname", "--quiet"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .context("starting journalctl")?;
    let mut out = BufReader::new(child.stdout.take().context("journalctl's output")?);
    let mut line = Vec::new();
    loop {
        line.clear();
        let limit = u64::try_from(LONGEST * 4).unwrap_or(u64::MAX);
        let read = (&mut out).take(limit).read_until(b'\n', &mut line).await?;
        if read == 0 {
            return Ok(());
        }
        // The rest of a line that is far too long comes as further lines, and the flood is cut short.
        let said = String::from_utf8_lossy(&line).into_owned();
        let now = clock::uptime();
        tokio::task::block_in_place(|| ring.append(&said, now)).context("writing")?;
    }
}

/// Two files: `PATH` is written to, `PATH.old` was before.
struct Ring {
    path: PathBuf,
    boot: String,
    /// The mark of this boot is in it.
    began: bool,
    window: Duration,
    written: usize,
    left_out: usize,
}

impl Ring {
    fn new(path: PathBuf, boot: &str) -> Self {
        Self {
            path,
            boot: boot.to_owned(),
            began: false,
            window: Duration::ZERO,
            written: 0,
            left_out: 0,
        }
    }

    fn old(&self) -> PathBuf {
        self.path.with_extension("old")
    }

    fn mark(&self) -> String {
        format!("-- boot {} --", self.boot)
    }

    /// The last lines of the boot before this one, as far as they are there.
    fn before(&self) -> Vec<String> {
        let text = [self.old(), self.path.clone()]
            .iter()
            .filter_map(|path| tail(path).ok())
            .fold(String::new(), |text, part| text + &part);
        let (mark, is_mark) = (self.mark(), |line: &&str| line.starts_with("-- boot "));
        let written = text.lines().filter(|line| !line.is_empty());
        let lines: Vec<&str> = written.take_while(|line| **line != *mark).collect();
        let from = lines.iter().rposition(is_mark).map_or(0, |mark| mark + 1);
        let lines = &lines[from.max(lines.len().saturating_sub(SHOWN))..];
        lines.iter().map(|line| plain(line)).collect()
    }

    fn append(&mut self, line: &str, now: Duration) -> io::Result<()> {
        let line = plain(line);
        if now.saturating_sub(self.window) >= WINDOW {
            if self.left_out > 0 {
                let left_out = std::mem::take(&mut self.left_out);
                self.write(&format!("-- {left_out} more warnings --"))?;
            }
            (self.window, self.written) = (now, 0);
        }
        if !self.began {
            // The last line of the boot before may be a torn one.
            self.write(&format!("\n{}", self.mark()))?;
            self.began = true;
        }
        if self.written + line.len() > MOST {
            self.left_out += 1;
            return Ok(());
        }
        self.written += line.len();
        self.write(&line)
    }

    fn write(&self, line: &str) -> io::Result<()> {
        let file = || {
            OpenOptions::new()
                .create(true)
                .append(true)
                .open(&self.path)
        };
        let mut open = file()?;
        if open.metadata()?.len() >= LARGEST {
            fs::rename(&self.path, self.old())?;
            open = file()?;
        }
        open.write_all(format!("{line}\n").as_bytes())
    }
}

/// One line without anything that steers a terminal, not too long.
fn plain(line: &str) -> String {
    let shown = |c: char| if c.is_control() { '?' } else { c };
    line.trim_end().chars().take(LONGEST).map(shown).collect()
}

fn tail(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL)))?;
    let mut bytes = Vec::new();
    file.take(TAIL).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    const NOW: Duration = Duration::from_hours(1);

    fn ring(dir: &tempfile::TempDir, boot: &str) -> Ring {
        Ring::new(dir.path().join("warnings.log"), boot)
    }

    #[test]
    fn the_last_warnings_of_the_boot_before_are_shown_also_when_the_agent_starts_again() {
        let dir = tempfile::tempdir().unwrap();
        assert!(ring(&dir, "1").before().is_empty());
        let mut first = ring(&dir, "1");
        for count in 0..100 {
            first
                .append(&format!("warning {count}\u{1b}[2J\n"), NOW)
                .unwrap();
        }
        assert!(ring(&dir, "1").before().is_empty(), "of this boot");
        let mut second = ring(&dir, "2");
        let shown = second.before();
        assert_eq!(shown.len(), SHOWN);
        assert_eq!(shown.last().unwrap(), "warning 99?[2J");
        second.append("later\n", NOW).unwrap();
        assert_eq!(ring(&dir, "2").before(), shown);
        assert_eq!(ring(&dir, "3").before(), ["later"]);
    }

    #[test]
    fn a_flood_is_cut_short_and_never_fills_the_partition() {
        let dir = tempfile::tempdir().unwrap();
        let mut ring = ring(&dir, "1");
        let line = "x".repeat(10_000);
        for second in 0..3600 {
            for _ in 0..20 {
                ring.append(&line, NOW + Duration::from_secs(second))
                    .unwrap();
            }
        }
        let sizes = [ring.path.clone(), ring.old()].map(|path| fs::metadata(path).unwrap().len());
        assert!(
            sizes.iter().all(|size| *size <= LARGEST + 1000),
            "{sizes:?}"
        );
        let text = fs::read_to_string(&ring.path).unwrap();
        assert!(text.contains("more warnings"));
        assert!(text.lines().all(|line| line.len() <= LONGEST));
    }

    #[test]
    fn a_file_that_is_no_text_harms_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let mut ring = ring(&dir, "1");
        fs::write(&ring.path, [0xff; 5000]).unwrap();
        ring.append("after\n", NOW).unwrap();
        assert!(ring.before().len() <= 1);
    }

    proptest! {
        /// Lines of the journal quote what strangers say, and a file may be torn.
        #[test]
        fn whatever_was_written_down_what_is_shown_is_short_lines(
            old in prop::collection::vec(any::<u8>(), 0..300), times in 1..200_usize,
            lines in prop::collection::vec(".{0,20}|-- boot .{0,4}", 0..60),
        ) {
            let dir = tempfile::tempdir().unwrap();
            let mut first = ring(&dir, "1");
            fs::write(first.old(), old.repeat(times)).unwrap();
            for line in &lines {
                first.append(line, NOW).unwrap();
            }
            let shown = ring(&dir, "2").before();
            prop_assert!(shown.len() <= SHOWN);
            for line in &shown {
                prop_assert!(line.chars().count() <= LONGEST && !line.contains(char::is_control), "{line}");
            }
        }
    }
}
