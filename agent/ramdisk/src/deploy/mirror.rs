//! Two disks that hold the same: every byte goes to both, and at the end they get what Linux's md knows them by as one (RAID 1).
//!
//! The ramdisk's own kernel knows no md. Firmware and boot loaders need not know of it either: in front of md's data, which is at the
//! end, each disk alone is the image. The installed kernel is told to take its root from the mirror and from nothing else, so that it
//! never runs on one half while the other stays behind.
//!
//! Must not: choose disks, or mount anything.

mod superblock;
mod system;

use std::io;
use std::thread;

use uuid::Uuid;

use super::cancel::Cancel;
use super::device::{BlockDevice, Extent};
use superblock::Member;

pub use system::{Unfit, root};

/// Zeroed at the end of a disk: behind the mirror there may be another one's data, and a table of partitions.
const END: u64 = 2 << 20;
/// Bytes that are compared at once.
const STEP: usize = 4 << 20;

#[derive(Debug, thiserror::Error)]
pub enum MirrorError {
    #[error("{0} is too small for a mirror")]
    Small(String),
    #[error(
        "{0} and {1} have sectors of different sizes, so that they cannot be a mirror; choose two disks that are alike"
    )]
    Sectors(String, String),
    #[error("making {0} a mirror")]
    Disks(String, #[source] io::Error),
    #[error("the work was called off")]
    Cancelled,
}

/// As one disk, whose size is what both have room for.
pub struct Mirror {
    /// What is read comes from the first.
    disks: [Box<dyn BlockDevice>; 2],
    length: u64,
    name: String,
    id: Uuid,
}

impl Mirror {
    /// `id`: of this mirror alone.
    pub fn of(
        first: Box<dyn BlockDevice>,
        second: Box<dyn BlockDevice>,
        id: Uuid,
    ) -> Result<Self, MirrorError> {
        if first.sector() != second.sector() {
            let (first, second) = (first.name().to_owned(), second.name().to_owned());
            return Err(MirrorError::Sectors(first, second));
        }
        let smaller = if first.size() <= second.size() {
            &first
        } else {
            &second
        };
        let length = superblock::length([first.size(), second.size()])
            .ok_or_else(|| MirrorError::Small(smaller.name().to_owned()))?;
        Ok(Self {
            name: format!("{} and {}", first.name(), second.name()),
            disks: [first, second],
            length,
            id,
        })
    }

    /// Each of its own is the whole image.
    pub fn first(&self) -> &dyn BlockDevice {
        self.disks[0].as_ref()
    }

    /// Takes away what is behind the mirror's end: before [`Mirror::complete`] the two are none.
    pub fn begin(&self) -> Result<(), MirrorError> {
        self.each(|disk, _| {
            let from = disk.size().saturating_sub(END).max(self.length);
            disk.zero(from, disk.size() - from)
        })?;
        self.each(|disk, _| disk.flush())
    }

    /// Words of a kernel that starts from partition `number` of the mirror, for initramfs-tools and for dracut. By the last one the node
    /// image's mdadm knows which array it may put together.
    pub fn arguments(&self, number: u32) -> String {
        let name = superblock::name(*self.id.as_bytes());
        format!("root=/dev/disk/by-id/md-uuid-{name}-part{number} rd.md.uuid={name}")
    }

    /// Brings what was changed on the first disk alone, within the first `length` bytes, to the second. `first` was opened since.
    pub fn follow(
        &self,
        first: &dyn BlockDevice,
        length: u64,
        cancel: &Cancel,
    ) -> Result<(), MirrorError> {
        let second = self.disks[1].as_ref();
        let failed = |disk: &dyn BlockDevice, error| {
            MirrorError::Disks(self.name.clone(), of_disk(disk, &error))
        };
        let end = length.min(self.length);
        let (mut wanted, mut found) = (vec![0; STEP], vec![0; STEP]);
        let mut at = 0;
        while at < end {
            if cancel.is_raised() {
                return Err(MirrorError::Cancelled);
            }
            let step = usize::try_from(end - at).map_or(STEP, |left| left.min(STEP));
            let (wanted, found) = (&mut wanted[..step], &mut found[..step]);
            first.read_at(at, wanted).map_err(|e| failed(first, e))?;
            second.read_at(at, found).map_err(|e| failed(second, e))?;
            if wanted != found {
                second.write_at(at, wanted).map_err(|e| failed(second, e))?;
            }
            at += step as u64;
        }
        second.flush().map_err(|e| failed(second, e))
    }

    /// From now on they are a mirror. `made`: seconds since 1970.
    pub fn complete(&self, made: u64, new_id: &mut dyn FnMut() -> Uuid) -> Result<(), MirrorError> {
        let own = [new_id(), new_id()];
        self.each(|disk, number| {
            let member = Member {
                array: *self.id.as_bytes(),
                own: *own[usize::from(number)].as_bytes(),
                number,
                length: self.length,
                made,
            };
            for (place, bytes) in member.pieces(disk.size()) {
                disk.write_at(place, &bytes)?;
            }
            disk.flush()
        })
    }

    fn each(
        &self,
        mut act: impl FnMut(&dyn BlockDevice, u16) -> io::Result<()>,
    ) -> Result<(), MirrorError> {
        for (disk, number) in self.disks.iter().zip(0..) {
            act(disk.as_ref(), number).map_err(|error| {
                MirrorError::Disks(self.name.clone(), of_disk(disk.as_ref(), &error))
            })?;
        }
        Ok(())
    }

    fn both(&self, act: impl Fn(&dyn BlockDevice) -> io::Result<()>) -> io::Result<()> {
        let mut disks = self.disks.iter().map(AsRef::as_ref);
        disks.try_for_each(|disk: &dyn BlockDevice| act(disk).map_err(|e| of_disk(disk, &e)))
    }

    fn within(&self, offset: u64, length: u64) -> io::Result<()> {
        let end = offset.checked_add(length);
        let fits = end.is_some_and(|end| end <= self.length);
        fits.then_some(())
            .ok_or_else(|| io::ErrorKind::StorageFull.into())
    }
}

/// Which of the two failed is what a person wants to know.
fn of_disk(disk: &dyn BlockDevice, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", disk.name()))
}

impl BlockDevice for Mirror {
    fn name(&self) -> &str {
        &self.name
    }

    fn size(&self) -> u64 {
        self.length
    }

    fn sector(&self) -> u64 {
        self.disks[0].sector()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.within(offset, buffer.len() as u64)?;
        let first = self.first();
        first
            .read_at(offset, buffer)
            .map_err(|error| of_disk(first, &error))
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.within(offset, data.len() as u64)?;
        self.both(|disk| disk.write_at(offset, data))
    }

    /// Side by side: it takes as long as the slower one.
    fn write_bulk(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.within(offset, data.len() as u64)?;
        let write = |disk: &dyn BlockDevice| {
            let written = disk.write_bulk(offset, data);
            written.map_err(|error| of_disk(disk, &error))
        };
        let [first, second] = &self.disks;
        thread::scope(|scope| {
            let beside = scope.spawn(|| write(second.as_ref()));
            let first = write(first.as_ref());
            let second = beside
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            first.and(second)
        })
    }

    fn zero(&self, offset: u64, length: u64) -> io::Result<()> {
        self.within(offset, length)?;
        self.both(|disk| disk.zero(offset, length))
    }

    fn discard(&self) -> io::Result<()> {
        self.both(|disk| disk.discard())
    }

    fn flush(&self) -> io::Result<()> {
        self.both(|disk| disk.flush())
    }

    fn reread_partitions(&self) -> io::Result<()> {
        self.both(|disk| disk.reread_partitions())
    }

    /// Of the first: nobody mounts the other.
    fn show_partitions(&self, partitions: &[Extent]) -> io::Result<()> {
        self.first().show_partitions(partitions)
    }
}

#[cfg(test)]
mod tests;
