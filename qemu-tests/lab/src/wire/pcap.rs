//! Writes what passes the wire as a capture file (libpcap format, microseconds, Ethernet).

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use super::frame;

pub(super) struct Capture {
    file: BufWriter<File>,
}

impl Capture {
    pub fn create(path: &Path) -> io::Result<Self> {
        let mut file = BufWriter::with_capacity(256 << 10, File::create(path)?);
        let words: [u32; 6] = [0xa1b2_c3d4, 2 | 4 << 16, 0, 0, 65535, 1];
        for word in words {
            file.write_all(&word.to_le_bytes())?;
        }
        Ok(Self { file })
    }

    pub fn frame(&mut self, bytes: &[u8]) -> io::Result<()> {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let kept = frame::capture_length(bytes);
        let number = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
        let seconds = u32::try_from(now.as_secs()).unwrap_or(u32::MAX);
        for word in [
            seconds,
            now.subsec_micros(),
            number(kept),
            number(bytes.len()),
        ] {
            self.file.write_all(&word.to_le_bytes())?;
        }
        self.file.write_all(&bytes[..kept])
    }

    pub fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
