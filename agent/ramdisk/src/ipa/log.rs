//! The ramdisk's log on its way to the box: the kernel's, where our own lines are, too. A server that never comes up has said there why.
//!
//! A thread of its own reads and sends; nobody waits for it but the end of the ramdisk, for a moment. What the box has not taken yet waits in
//! the kernel's ring. Must not: log what it does, or it would never end.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use firstlight_api::bounded;
use firstlight_api::logs::LONGEST_LINE;
use firstlight_client::logs::{Batch, Waiting};
use firstlight_client::signed_client::Untaken;
use nix::libc::O_NONBLOCK;

pub const KERNEL: &str = "/dev/kmsg";
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// Between two looks for new lines.
const PAUSE: Duration = Duration::from_secs(2);
/// One record of the kernel is smaller.
const RECORD: usize = 8192;
/// Before a message of this program (`console`).
const OURS: &str = "firstlight: ";

/// Brings lines to the box.
pub type Send = dyn FnMut(&Batch) -> Result<(), Untaken> + std::marker::Send;

/// The thread that sends.
pub struct LogLine {
    shared: Arc<(Mutex<Flushes>, Condvar)>,
}

/// How often somebody wanted everything to be sent, and how often it was.
#[derive(Default)]
struct Flushes {
    wanted: u64,
    done: u64,
}

impl LogLine {
    /// `kernel` is [`KERNEL`].
    pub fn start(kernel: &Path, send: Box<Send>) -> io::Result<Self> {
        let options = OpenOptions::new()
            .read(true)
            .custom_flags(O_NONBLOCK)
            .open(kernel)?;
        let boot = fs::read_to_string(BOOT_ID)?.trim().replace('-', "");
        let shared: Arc<(Mutex<Flushes>, Condvar)> = Arc::default();
        let sender = Sender {
            kernel: options,
            boot,
            send,
            shared: Arc::clone(&shared),
        };
        thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || sender.send_forever())?;
        Ok(Self { shared })
    }

    /// Waits until what was logged before is sent, for `most` at most.
    pub fn drain(&self, most: Duration) {
        let mut flushes = lock(&self.shared);
        flushes.wanted += 1;
        let wanted = flushes.wanted;
        self.shared.1.notify_all();
        let busy = |flushes: &mut Flushes| flushes.done < wanted;
        drop(self.shared.1.wait_timeout_while(flushes, most, busy));
    }
}

fn lock(shared: &(Mutex<Flushes>, Condvar)) -> MutexGuard<'_, Flushes> {
    shared.0.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Sender {
    kernel: File,
    boot: String,
    send: Box<Send>,
    shared: Arc<(Mutex<Flushes>, Condvar)>,
}

impl Sender {
    fn send_forever(mut self) {
        loop {
            let wanted = lock(&self.shared).wanted;
            let batch = self.read();
            if batch.is_empty() {
                self.rest(wanted, PAUSE);
                continue;
            }
            while let Err(Untaken {
                again: Some(again), ..
            }) = (self.send)(&batch)
            {
                // Whoever is about to leave has it tried once more, and no more.
                let asked = lock(&self.shared);
                let is_quiet = |flushes: &mut Flushes| flushes.wanted == wanted;
                let rested = self.shared.1.wait_timeout_while(asked, again, is_quiet);
                let wants = rested.map_or(wanted, |(flushes, _)| flushes.wanted);
                if wants != wanted {
                    drop((self.send)(&batch));
                    break;
                }
            }
        }
    }

    /// Everything is sent that was there when `wanted` was read.
    fn rest(&self, wanted: u64, pause: Duration) {
        let mut flushes = lock(&self.shared);
        flushes.done = wanted;
        self.shared.1.notify_all();
        let is_quiet = |flushes: &mut Flushes| flushes.wanted == wanted;
        drop(self.shared.1.wait_timeout_while(flushes, pause, is_quiet));
    }

    fn read(&mut self) -> Batch {
        let mut batch = Batch::new(&self.boot);
        let mut record = [0; RECORD];
        while !batch.is_full() {
            match self.kernel.read(&mut record) {
                Ok(0) => break,
                Ok(length) => {
                    if let Some(line) = line(&record[..length]) {
                        batch.push(line);
                    }
                }
                // Lines were lost while nobody read; the next read goes on behind them.
                Err(error) if error.raw_os_error() == Some(nix::libc::EPIPE) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        batch
    }
}

/// Of a record of the kernel: `PRIORITY,SEQUENCE,MICROSECONDS,FLAGS;MESSAGE`, then lines of its own about the device.
fn line(record: &[u8]) -> Option<Waiting> {
    let text = String::from_utf8_lossy(record);
    let (head, message) = text.lines().next()?.split_once(';')?;
    let mut fields = head.split(',');
    let priority: u32 = fields.next()?.parse().ok()?;
    let at: i64 = fields.nth(1)?.parse().ok()?;
    let (unit, priority, message) = match message.strip_prefix(OURS) {
        Some(ours) => of_ours(ours.trim_start()),
        None => ("kernel", u8::try_from(priority & 7).ok(), message),
    };
    Some(Waiting {
        at: at / 1000,
        unit: unit.to_owned(),
        priority,
        message: bounded::line(message, LONGEST_LINE),
    })
}

/// The kernel knows all of them as information.
fn of_ours(line: &str) -> (&'static str, Option<u8>, &str) {
    const LEVELS: [(&str, u8); 5] = [
        ("ERROR ", 3),
        ("WARN ", 4),
        ("INFO ", 6),
        ("DEBUG ", 7),
        ("TRACE ", 7),
    ];
    let found = LEVELS
        .iter()
        .find_map(|(level, priority)| Some((line.strip_prefix(level)?, *priority)));
    let (message, priority) = found.unwrap_or((line, 6));
    ("firstlight-ramdisk", Some(priority), message)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::mpsc::channel;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn records_of_the_kernel_are_lines() {
        let record =
            b"4,1287,7340125,-;nvme nvme0: controller is down\n SUBSYSTEM=nvme\n DEVICE=c241:0\n";
        let expected = Waiting {
            at: 7340,
            unit: "kernel".to_owned(),
            priority: Some(4),
            message: "nvme nvme0: controller is down".to_owned(),
        };
        assert_eq!(line(record).unwrap(), expected);
        let ours = line(b"30,9,1000,-;firstlight: INFO address received\n").unwrap();
        assert_eq!(
            (ours.unit.as_str(), ours.priority, ours.message.as_str()),
            ("firstlight-ramdisk", Some(6), "address received")
        );
        let ours = line(b"30,9,1000,-;firstlight:  WARN no disk\n").unwrap();
        assert_eq!((ours.priority, ours.message.as_str()), (Some(4), "no disk"));
        assert_eq!(line(b" SUBSYSTEM=nvme"), None);
    }

    #[test]
    fn what_the_box_does_not_take_yet_is_sent_again_and_whoever_leaves_waits_for_the_last_line() {
        let dir = tempfile::tempdir().unwrap();
        let kernel = dir.path().join("kmsg");
        fs::write(&kernel, "6,1,1000000,-;first\n").unwrap();
        let (heard, told) = channel();
        let mut times = 0;
        let send = move |batch: &Batch| {
            times += 1;
            heard.send(batch.clone()).unwrap();
            let again = Some(Duration::from_millis(1));
            let reason = "busy".to_owned();
            if times < 3 {
                Err(Untaken { reason, again })
            } else {
                Ok(())
            }
        };
        let log = LogLine::start(&kernel, Box::new(send)).unwrap();
        log.drain(Duration::from_mins(1));
        let had: Vec<_> = told.try_iter().collect();
        assert!(
            had.len() >= 2 && had.iter().all(|batch| *batch == had[0]),
            "{had:?}"
        );
    }

    proptest! {
        #[test]
        fn whatever_the_kernel_has_is_a_line_or_none(record: Vec<u8>, message in "(?s).{0,100}") {
            let _ = line(&record);
            let line = line(format!("6,1,1,-;{message}").as_bytes());
            prop_assert!(line.is_none_or(|line| !line.message.chars().any(char::is_control)));
        }
    }
}
