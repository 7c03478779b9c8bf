//! A partition as a file, for what reads and writes file systems.

use std::io::{self, Read, Seek, SeekFrom, Write};

use super::device::BlockDevice;
use super::finish::Range;

pub struct Volume<'a> {
    device: &'a dyn BlockDevice,
    range: Range,
    position: u64,
    /// Bytes that may still be read: a damaged file system can lead in a circle.
    left: u64,
    writable: bool,
}

impl<'a> Volume<'a> {
    /// `most`: bytes in which a sound file system is read.
    pub fn to_read(device: &'a dyn BlockDevice, range: Range, most: u64) -> Self {
        Self {
            device,
            range,
            position: 0,
            left: most,
            writable: false,
        }
    }

    /// For a file system that is made there.
    pub fn to_write(device: &'a dyn BlockDevice, range: Range) -> Self {
        Self {
            writable: true,
            ..Self::to_read(device, range, u64::MAX)
        }
    }

    fn here(&self, length: usize) -> usize {
        let left = self.range.length.saturating_sub(self.position);
        usize::try_from(left).map_or(length, |left| left.min(length))
    }
}

impl Read for Volume<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.here(buffer.len());
        if length == 0 {
            return Ok(0);
        }
        self.left = self.left.checked_sub(length as u64).ok_or_else(|| {
            let circle = "it is damaged: its folders lead in a circle";
            io::Error::new(io::ErrorKind::InvalidData, circle)
        })?;
        self.device
            .read_at(self.range.start + self.position, &mut buffer[..length])?;
        self.position += length as u64;
        Ok(length)
    }
}

impl Write for Volume<'_> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        if !self.writable {
            return Err(io::ErrorKind::ReadOnlyFilesystem.into());
        }
        let length = self.here(data.len());
        if length > 0 {
            self.device
                .write_at(self.range.start + self.position, &data[..length])?;
            self.position += length as u64;
        }
        Ok(length)
    }

    /// Whoever finishes the disk flushes it.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for Volume<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let target = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(by) => self.range.length.checked_add_signed(by),
            SeekFrom::Current(by) => self.position.checked_add_signed(by),
        };
        self.position = target.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.position)
    }
}
