//! A machine's serial console as a task: every line goes to a file with its time, and tests wait for text in it.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use regex::Regex;

#[derive(Default)]
struct State {
    /// Everything so far, without terminal control sequences.
    text: String,
    ended: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// A console that is being recorded until the machine ends.
pub struct Console {
    shared: Arc<Shared>,
    keyboard: UnixStream,
    log: PathBuf,
}

impl Console {
    /// Records what comes from `stream` to the file `log`; times count from `started`.
    pub fn record(mut stream: UnixStream, log: &Path, started: Instant) -> io::Result<Self> {
        let mut file = BufWriter::new(File::options().create(true).append(true).open(log)?);
        let shared = Arc::new(Shared::default());
        let recorder = Arc::clone(&shared);
        let keyboard = stream.try_clone()?;
        std::thread::Builder::new()
            .name("console".to_owned())
            .spawn(move || {
                let mut plain = Plain::default();
                let mut buffer = [0; 4096];
                let mut at_line_start = true;
                while let Ok(count @ 1..) = stream.read(&mut buffer) {
                    let text = plain.strip(&buffer[..count]);
                    // A full disk loses the file, not the test: the text is still in memory.
                    let _ = write_timed(&mut file, &text, started.elapsed(), &mut at_line_start);
                    recorder.lock().text.push_str(&text);
                    recorder.changed.notify_all();
                }
                recorder.lock().ended = true;
                recorder.changed.notify_all();
            })?;
        Ok(Self {
            shared,
            keyboard,
            log: log.to_owned(),
        })
    }

    /// Waits until `pattern` (a regular expression) is in the text; returns the match.
    pub fn wait_for(&self, pattern: &str, timeout: Duration) -> Result<String> {
        let regex = Regex::new(pattern).with_context(|| format!("the pattern {pattern}"))?;
        let deadline = Instant::now() + timeout;
        let mut state = self.shared.lock();
        loop {
            if let Some(found) = regex.find(&state.text) {
                return Ok(found.as_str().to_owned());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if state.ended {
                bail!(
                    "the machine ended before its console showed `{pattern}`; see {}",
                    self.log.display()
                );
            }
            if left.is_zero() {
                bail!(
                    "no `{pattern}` on the console within {} s; see {}",
                    timeout.as_secs(),
                    self.log.display()
                );
            }
            state = self
                .shared
                .changed
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    /// As somebody who sits at it does; what it says before is done with.
    pub fn type_line(&self, line: &str) -> Result<()> {
        self.shared.lock().text.clear();
        let typed = format!("{line}\r");
        let written = (&self.keyboard).write_all(typed.as_bytes());
        written.context("typing at the console")
    }

    /// The last `lines` lines.
    pub fn tail(&self, lines: usize) -> String {
        let state = self.shared.lock();
        let all: Vec<&str> = state.text.lines().collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }

    pub fn log(&self) -> &Path {
        &self.log
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn write_timed(
    file: &mut impl Write,
    text: &str,
    time: Duration,
    at_start: &mut bool,
) -> io::Result<()> {
    for piece in text.split_inclusive('\n') {
        if *at_start {
            write!(file, "[{:9.3}] ", time.as_secs_f64())?;
        }
        file.write_all(piece.as_bytes())?;
        *at_start = piece.ends_with('\n');
    }
    file.flush()
}

/// Removes escape sequences and control characters other than the line feed, across reads.
#[derive(Default)]
struct Plain {
    escape: Escape,
    /// Bytes of a character that is not complete yet.
    partial: Vec<u8>,
}

#[derive(Clone, Copy, Default, PartialEq)]
enum Escape {
    #[default]
    None,
    /// After ESC.
    Begun,
    /// After ESC [ : ends with a letter or one of its neighbours.
    Control,
    /// After ESC ] : ends with BEL or ESC \.
    Command,
}

impl Plain {
    fn strip(&mut self, bytes: &[u8]) -> String {
        for &byte in bytes {
            self.escape = match (self.escape, byte) {
                // ESC ( B and its kin choose a character set: one more byte follows.
                (Escape::None | Escape::Command, 0x1b)
                | (Escape::Begun, b'(' | b')' | b'#' | b'%') => Escape::Begun,
                (Escape::None, b'\n' | b'\t' | 0x20..) => {
                    self.partial.push(byte);
                    Escape::None
                }
                (Escape::Begun, b'[') => Escape::Control,
                (Escape::Begun, b']' | b'P') => Escape::Command,
                (Escape::Control, 0x40..=0x7e)
                | (Escape::Command, 0x07)
                | (Escape::None | Escape::Begun, _) => Escape::None,
                (Escape::Control | Escape::Command, _) => self.escape,
            };
        }
        let whole = match std::str::from_utf8(&self.partial) {
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            _ => self.partial.len(),
        };
        let rest = self.partial.split_off(whole);
        let text = String::from_utf8_lossy(&self.partial).into_owned();
        self.partial = rest;
        text
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn terminal_control_is_removed_wherever_it_is_cut() {
        let raw = "\x1b[2J\x1b[01;01Hlogin\x1b[0m: \x1b]0;title\x07ö\r\n\x1b(Bend".as_bytes();
        let mut plain = Plain::default();
        let text: String = raw.iter().map(|byte| plain.strip(&[*byte])).collect();
        assert_eq!(text, "login: ö\nend");
        assert_eq!(Plain::default().strip(raw), text);
    }

    #[test]
    fn a_wait_ends_with_the_text_the_end_or_the_deadline() {
        let dir = tempfile::tempdir().unwrap();
        let (mut guest, end) = UnixStream::pair().unwrap();
        let console = Console::record(end, &dir.path().join("log"), Instant::now()).unwrap();
        guest.write_all(b"Booting\nserver-1 login: ").unwrap();
        assert_eq!(
            console
                .wait_for("[a-z0-9-]+ login:", Duration::from_secs(5))
                .unwrap(),
            "server-1 login:"
        );
        let late = console
            .wait_for("panic", Duration::from_millis(20))
            .unwrap_err();
        assert!(late.to_string().starts_with("no `panic`"), "{late}");
        drop(guest);
        let ended = console
            .wait_for("panic", Duration::from_secs(5))
            .unwrap_err();
        assert!(ended.to_string().contains("machine ended"), "{ended}");
        let log = std::fs::read_to_string(dir.path().join("log")).unwrap();
        assert!(log.lines().next().unwrap().ends_with("] Booting"), "{log}");
    }
}
