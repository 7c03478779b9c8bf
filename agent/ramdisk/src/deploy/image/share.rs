//! The image as it came in, kept in memory so that it can be passed on while it is still being written.
//!
//! Nothing here is trusted: whoever gets these bytes compares their digest with Ironic's before the disk can boot. Must not:
//! know how the bytes leave this machine (`ipa::relay` does).

use std::fs;

use hyper::body::Bytes;
use tokio::sync::watch;

/// An image may take this part of the memory that nobody needs; a machine with less passes nothing on.
const PART_OF_MEMORY: u64 = 4;

#[derive(Debug, Default)]
pub struct Share {
    kept: watch::Sender<Kept>,
}

/// The file in memory, as far as it has come.
#[derive(Debug, Default)]
pub struct Kept {
    /// `None`: nothing is kept.
    pub file: Option<SharedFile>,
    pub received: u64,
    /// With the place of the first byte of each.
    chunks: Vec<(u64, Bytes)>,
    pass: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedFile {
    pub url: String,
    pub validator: String,
    pub total: u64,
    /// Counts the files that were begun: the same one again is another.
    pass: u64,
}

impl Kept {
    /// Bytes from `from` on, as many as came together.
    pub fn at(&self, from: u64) -> Option<Bytes> {
        let next = self.chunks.partition_point(|(first, _)| *first <= from);
        let (first, chunk) = self.chunks.get(next.checked_sub(1)?)?;
        let skip = usize::try_from(from - first).ok()?;
        (skip < chunk.len()).then(|| chunk.slice(skip..))
    }
}

impl Share {
    pub fn watch(&self) -> watch::Receiver<Kept> {
        self.kept.subscribe()
    }

    /// Forgets what was kept, and keeps this file if there is room for it.
    pub fn begin(&self, url: &str, validator: Option<&str>, total: Option<u64>) {
        let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let room = available(&memory).unwrap_or(0) / PART_OF_MEMORY;
        let file = match (validator, total) {
            (Some(validator), Some(total)) if total <= room => Some(SharedFile {
                url: url.to_owned(),
                validator: validator.to_owned(),
                total,
                pass: 0,
            }),
            _ => None,
        };
        self.kept.send_modify(|kept| {
            let pass = kept.pass + 1;
            *kept = Kept {
                file: file.map(|file| SharedFile { pass, ..file }),
                pass,
                ..Kept::default()
            };
        });
    }

    pub fn add(&self, chunk: &Bytes) {
        self.kept.send_if_modified(|kept| {
            if kept.file.is_none() {
                return false;
            }
            kept.chunks.push((kept.received, chunk.clone()));
            kept.received += chunk.len() as u64;
            true
        });
    }
}

/// Bytes that can be had without taking them from anyone, by the kernel's own reckoning.
fn available(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_what_the_kernel_says_is_available() {
        let text = "MemTotal:        2560000 kB\nMemFree:  100 kB\nMemAvailable:    2048000 kB\n";
        assert_eq!(available(text), Some(2_048_000 << 10));
        assert_eq!(available("MemTotal: 1 kB\n"), None);
    }

    #[test]
    fn what_came_in_is_had_from_any_byte() {
        let share = Share::default();
        let kept = share.watch();
        share.add(&Bytes::from_static(b"before the file is known"));
        assert_eq!(kept.borrow().at(0), None);
        share.begin("http://box/images/a", Some("\"1\""), Some(6));
        for chunk in ["abc", "d", "ef"] {
            share.add(&Bytes::from_static(chunk.as_bytes()));
        }
        for (from, chunk) in [(0, "abc"), (2, "c"), (3, "d"), (5, "f")] {
            assert_eq!(kept.borrow().at(from).unwrap(), chunk);
        }
        assert_eq!(kept.borrow().at(6), None);
        share.begin("http://box/images/a", None, Some(6));
        assert_eq!(
            kept.borrow().file,
            None,
            "without a validator it is no file"
        );
        assert_eq!(kept.borrow().at(0), None);
    }

    #[test]
    fn an_image_that_would_fill_the_memory_is_not_kept() {
        let share = Share::default();
        share.begin("http://box/images/a", Some("\"1\""), Some(1 << 50));
        assert_eq!(share.watch().borrow().file, None);
    }
}
