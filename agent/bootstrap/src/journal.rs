//! This server's journal on its way to the box, which keeps it where people seek (docs/monitoring.md): also what was said before the server
//! was a node, and what it says when it cannot become one.
//!
//! journalctl reads; what the box has is remembered by its cursor, so that nothing is missing after a restart of either. Must not: run as
//! root, or wait for anything but the box.

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail};
use firstlight_api::bounded;
use firstlight_api::logs::{LONGEST_LINE, PATH, System};
use firstlight_client::logs::{Batch, Waiting, since_start};
use firstlight_client::signed_client::SignedClient;
use serde::Deserialize;
use serde_json::Value;

const CURSOR: &str = "cursor";
/// Lines that come within it travel together: the box makes a TLS connection for each post of a thousand servers.
const GATHER: Duration = Duration::from_secs(5);
/// Lines that wait in this program; others wait in the journal.
const WAITING: usize = 256;
const FIELDS: &str = "MESSAGE,_SYSTEMD_UNIT,SYSLOG_IDENTIFIER,PRIORITY,_BOOT_ID";

/// Comes back with an error alone. `state` is a folder of this program's.
pub fn keep(the_box: &SignedClient, state: &Path) -> Result<()> {
    let cursor = state.join(CURSOR);
    let mut journal = follow(&cursor)?;
    let (lines, entries) = sync_channel(WAITING);
    let output = journal.stdout.take().context("journalctl has no output")?;
    thread::spawn(move || read(BufReader::new(output), &lines));
    let failed = send_all(&entries, &cursor, |batch| deliver(the_box, batch));
    // It ends with this program, or has ended.
    drop(journal.kill());
    let ended = journal.wait().context("waiting for journalctl")?;
    failed?;
    bail!("journalctl has ended: {ended}");
}

fn follow(cursor: &Path) -> Result<Child> {
    let mut journalctl = Command::new("journalctl");
    journalctl.args(["--follow", "--no-tail", "--all", "--quiet", "--output=json"]);
    journalctl.arg(format!("--output-fields={FIELDS}"));
    match fs::read_to_string(cursor) {
        Ok(known) => drop(journalctl.arg(format!("--after-cursor={}", known.trim()))),
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error).context("reading how far the box has the journal"),
    }
    journalctl.stdout(Stdio::piped());
    journalctl.spawn().context("starting journalctl")
}

/// One of the journal.
#[derive(Debug, PartialEq, Eq)]
struct Entry {
    cursor: String,
    boot: String,
    line: Waiting,
}

/// As `journalctl --output=json` has it.
#[derive(Deserialize)]
struct Written {
    #[serde(rename = "__CURSOR")]
    cursor: String,
    #[serde(rename = "__REALTIME_TIMESTAMP", default)]
    wall: String,
    #[serde(rename = "__MONOTONIC_TIMESTAMP", default)]
    monotonic: String,
    #[serde(rename = "_BOOT_ID", default)]
    boot: String,
    #[serde(rename = "MESSAGE", default)]
    message: Value,
    #[serde(rename = "_SYSTEMD_UNIT", default)]
    unit: Value,
    #[serde(rename = "SYSLOG_IDENTIFIER", default)]
    program: Value,
    #[serde(rename = "PRIORITY", default)]
    priority: Value,
}

fn read(mut journal: impl BufRead, entries: &SyncSender<Entry>) {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let boot = boot.trim().replace('-', "");
    let mut json = Vec::new();
    loop {
        json.clear();
        match journal.read_until(b'\n', &mut json) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) => {
                tracing::error!("the journal cannot be read: {error}");
                return;
            }
        }
        let wall = SystemTime::now().duration_since(UNIX_EPOCH);
        let wall = wall.map_or(0, |wall| {
            i64::try_from(wall.as_millis()).unwrap_or(i64::MAX)
        });
        let Some(entry) = entry(&json, &boot, since_start() - wall) else {
            continue;
        };
        if entries.send(entry).is_err() {
            return;
        }
    }
}

/// `boot` is this one; `start` is when it began by the wall clock, in milliseconds, with the sign turned round.
fn entry(json: &[u8], boot: &str, start: i64) -> Option<Entry> {
    let written: Written = serde_json::from_slice(json).ok()?;
    let milliseconds = |text: &str| text.parse::<i64>().unwrap_or(0) / 1000;
    // The clock may have been set since; before this start there is no other.
    let at = if written.boot == boot {
        milliseconds(&written.monotonic)
    } else {
        milliseconds(&written.wall).saturating_add(start)
    };
    let unit = match text(&written.unit) {
        unit if unit.is_empty() => text(&written.program),
        unit => unit,
    };
    let message = bounded::line(&text(&written.message), LONGEST_LINE);
    Some(Entry {
        cursor: written.cursor,
        boot: written.boot,
        line: Waiting {
            at,
            unit,
            priority: text(&written.priority).parse().ok(),
            message,
        },
    })
}

/// A field: text, or a list of bytes where it is none, or a list of either where it was written more than once.
fn text(field: &Value) -> String {
    match field {
        Value::String(text) => text.clone(),
        Value::Array(bytes) => {
            let byte = |byte: &Value| byte.as_u64().and_then(|byte| u8::try_from(byte).ok());
            match bytes.iter().map(byte).collect::<Option<Vec<u8>>>() {
                Some(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
                None => bytes
                    .first()
                    .filter(|first| !first.is_array())
                    .map(text)
                    .unwrap_or_default(),
            }
        }
        _ => String::new(),
    }
}

/// Until there are no more entries.
fn send_all(
    entries: &Receiver<Entry>,
    cursor: &Path,
    mut deliver: impl FnMut(&Batch),
) -> Result<()> {
    let mut next = None;
    loop {
        let first = match next.take() {
            Some(entry) => entry,
            None => match entries.recv() {
                Ok(entry) => entry,
                Err(_) => return Ok(()),
            },
        };
        let mut batch = Batch::new(&first.boot);
        let (boot, mut last) = (first.boot, first.cursor);
        batch.push(first.line);
        let end = Instant::now() + GATHER;
        while !batch.is_full() {
            match entries.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(entry) if entry.boot == boot => {
                    last = entry.cursor;
                    batch.push(entry.line);
                }
                Ok(other) => {
                    next = Some(other);
                    break;
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
            }
        }
        deliver(&batch);
        remember(cursor, &last)?;
    }
}

/// What is sent twice after a power cut does no harm.
fn remember(cursor: &Path, last: &str) -> Result<()> {
    let aside = cursor.with_extension("new");
    fs::write(&aside, last)
        .and_then(|()| fs::rename(&aside, cursor))
        .context("keeping how far the box has the journal")
}

/// Until the box has them, or says that it never takes them.
fn deliver(the_box: &SignedClient, batch: &Batch) {
    let mut told = None;
    while let Err(untaken) = the_box.post(PATH, &batch.body(System::Installed)) {
        if told.as_ref() != Some(&untaken.reason) {
            tracing::warn!(
                "the box does not take this server's journal: {}",
                untaken.reason
            );
        }
        told = Some(untaken.reason);
        match untaken.again {
            Some(again) => thread::sleep(again),
            None => return,
        }
    }
    if told.is_some() {
        tracing::info!("the box takes this server's journal again");
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn line(at: i64, message: &str) -> Waiting {
        Waiting {
            at,
            unit: "kubelet.service".to_owned(),
            priority: Some(6),
            message: message.to_owned(),
        }
    }

    fn written(boot: &str, message: &Value) -> String {
        json!({
            "__CURSOR": "s=1;i=2", "__REALTIME_TIMESTAMP": "1796000005000000", "__MONOTONIC_TIMESTAMP": "7000999",
            "_BOOT_ID": boot, "_SYSTEMD_UNIT": "kubelet.service", "PRIORITY": "6", "MESSAGE": message,
        })
        .to_string()
    }

    #[test]
    fn a_line_is_as_old_as_the_clock_says_that_nobody_sets() {
        let read = |boot, message| {
            entry(written(boot, &message).as_bytes(), "b1", -1_796_000_010_000).unwrap()
        };
        assert_eq!(read("b1", json!("up")).line, line(7000, "up"));
        assert_eq!(
            read("b0", json!("up")).line.at,
            -5000,
            "five seconds before this start"
        );
        for (said, means) in [
            (json!([104, 105, 255]), "hi\u{fffd}"),
            (json!(["one", "two"]), "one"),
            (json!([[104], [105]]), ""),
            (json!(null), ""),
            (json!("two\nlines\u{1b}[2J"), "two lines\u{fffd}[2J"),
        ] {
            assert_eq!(read("b1", said).line.message, means);
        }
        assert_eq!(entry(b"-- No entries --", "b1", 0), None);
    }

    #[test]
    fn lines_of_one_start_travel_together_and_are_remembered_once_the_box_has_them() {
        let dir = tempfile::tempdir().unwrap();
        let cursor = dir.path().join(CURSOR);
        let (lines, entries) = sync_channel(8);
        for (number, boot) in ["b0", "b0", "b1"].iter().enumerate() {
            let entry = Entry {
                cursor: format!("c{number}"),
                boot: (*boot).to_owned(),
                line: line(0, "up"),
            };
            lines.send(entry).unwrap();
        }
        drop(lines);
        let mut had = Vec::new();
        send_all(&entries, &cursor, |batch| {
            had.push((batch.clone(), fs::read_to_string(&cursor).ok()));
        })
        .unwrap();
        let of = |boot: &str, count| {
            let mut batch = Batch::new(boot);
            for _ in 0..count {
                batch.push(line(0, "up"));
            }
            batch
        };
        assert_eq!(
            had,
            [(of("b0", 2), None), (of("b1", 1), Some("c1".to_owned()))]
        );
        assert_eq!(fs::read_to_string(&cursor).unwrap(), "c2");
    }

    proptest! {
        #[test]
        fn whatever_the_journal_has_is_a_line_or_none(json: Vec<u8>, message in "\\PC{0,50}", wall in ".{0,20}") {
            let _ = entry(&json, "b1", 0);
            let written = json!({"__CURSOR": "c", "__REALTIME_TIMESTAMP": wall, "MESSAGE": message});
            let entry = entry(written.to_string().as_bytes(), "b1", i64::MIN).unwrap();
            prop_assert!(entry.line.message.chars().count() <= 50);
        }
    }
}
