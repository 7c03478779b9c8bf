//! A disk as the deploy steps need it: the kernel's, or an image file in tests.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use nix::fcntl::{FallocateFlags, OFlag, PosixFadviseAdvice, fallocate, posix_fadvise};

/// Must not: cache writes past [`BlockDevice::flush`].
pub trait BlockDevice: Send + Sync {
    /// `/dev/vda`
    fn name(&self) -> &str;
    /// Bytes.
    fn size(&self) -> u64;
    /// Bytes in a logical sector.
    fn sector(&self) -> u64;
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()>;
    /// Whole sectors from an [`Aligned`] buffer, past the page cache where the kernel can.
    fn write_bulk(&self, offset: u64, data: &[u8]) -> io::Result<()>;
    /// Afterwards the range reads as zeros, whatever the disk can or cannot do.
    fn zero(&self, offset: u64, length: u64) -> io::Result<()>;
    /// Tells a flash disk that nothing on it is needed. What it reads as afterwards is not defined.
    fn discard(&self) -> io::Result<()>;
    fn flush(&self) -> io::Result<()>;
    /// Makes the kernel look at the partition table again.
    fn reread_partitions(&self) -> io::Result<()>;
    /// Tells the kernel of partitions that no table on the disk names yet, so that they can be mounted; until it looks again. There is
    /// nobody to tell where it is no disk of the kernel's.
    fn show_partitions(&self, _: &[Extent]) -> io::Result<()> {
        Ok(())
    }
}

/// Of a partition; in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// From 1.
    pub number: u32,
    pub start: u64,
    pub length: u64,
}

/// Memory that begins at a page, as `O_DIRECT` wants it.
#[derive(Debug)]
pub struct Aligned {
    memory: Vec<u8>,
    start: usize,
    length: usize,
}

impl Aligned {
    const PAGE: usize = 4096;

    pub fn new(length: usize) -> Self {
        let memory = vec![0; length + Self::PAGE];
        // For `u8` the offset counts bytes; the allocation is long enough for it.
        let start = memory.as_ptr().align_offset(Self::PAGE).min(Self::PAGE);
        Self {
            memory,
            start,
            length,
        }
    }
}

impl std::ops::Deref for Aligned {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.length]
    }
}

impl std::ops::DerefMut for Aligned {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.length]
    }
}

#[allow(unsafe_code, reason = "block device controls exist only as ioctls")]
mod control {
    //! `linux/fs.h` and `linux/blkpg.h`; 0x12 is the block layer's type.
    use std::fs::File;
    use std::io;
    use std::os::fd::AsRawFd;

    mod raw {
        nix::ioctl_none!(reread_partitions, 0x12, 95);
        nix::ioctl_read_bad!(
            sector_size,
            nix::request_code_none!(0x12, 104),
            nix::libc::c_int
        );
        nix::ioctl_write_ptr_bad!(partitions, nix::request_code_none!(0x12, 105), super::Order);
        nix::ioctl_write_ptr_bad!(discard, nix::request_code_none!(0x12, 119), [u64; 2]);
        nix::ioctl_write_ptr_bad!(zero_out, nix::request_code_none!(0x12, 127), [u64; 2]);
    }

    /// `struct blkpg_ioctl_arg`
    #[repr(C)]
    pub struct Order {
        operation: i32,
        flags: i32,
        length: i32,
        data: *const Partition,
    }

    /// `struct blkpg_partition`
    #[repr(C)]
    struct Partition {
        start: i64,
        length: i64,
        number: i32,
        names: [[u8; 64]; 2],
    }

    const ADD: i32 = 1;

    pub fn add_partition(file: &File, place: super::Extent) -> io::Result<()> {
        let number = |bytes: u64| i64::try_from(bytes).map_err(io::Error::other);
        let partition = Partition {
            start: number(place.start)?,
            length: number(place.length)?,
            number: i32::try_from(place.number).map_err(io::Error::other)?,
            names: [[0; 64]; 2],
        };
        let order = Order {
            operation: ADD,
            flags: 0,
            length: i32::try_from(size_of::<Partition>()).map_err(io::Error::other)?,
            data: &raw const partition,
        };
        // SAFETY: the kernel reads both structures, which live until it has.
        unsafe { raw::partitions(file.as_raw_fd(), &raw const order)? };
        Ok(())
    }

    pub fn sector_size(file: &File) -> io::Result<u64> {
        let mut size = 0;
        // SAFETY: the kernel writes one int to a live variable.
        unsafe { raw::sector_size(file.as_raw_fd(), &raw mut size)? };
        u64::try_from(size).map_err(io::Error::other)
    }

    pub fn zero_out(file: &File, offset: u64, length: u64) -> io::Result<()> {
        // SAFETY: the kernel reads two u64 from a live array.
        unsafe { raw::zero_out(file.as_raw_fd(), &[offset, length])? };
        Ok(())
    }

    pub fn discard(file: &File, length: u64) -> io::Result<()> {
        // SAFETY: the kernel reads two u64 from a live array.
        unsafe { raw::discard(file.as_raw_fd(), &[0, length])? };
        Ok(())
    }

    pub fn reread_partitions(file: &File) -> io::Result<()> {
        // SAFETY: no argument.
        unsafe { raw::reread_partitions(file.as_raw_fd())? };
        Ok(())
    }
}

/// A disk of the running kernel.
#[derive(Debug)]
pub struct KernelDisk {
    name: String,
    file: File,
    /// `None` where the driver refuses it.
    direct: Option<File>,
    size: u64,
    sector: u64,
}

impl KernelDisk {
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let direct = OpenOptions::new()
            .write(true)
            .custom_flags(OFlag::O_DIRECT.bits())
            .open(path)
            .ok();
        Self::of(path, file, direct)
    }

    /// For looking only: every write fails.
    pub fn open_to_read(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        // What another host wrote to a disk of a SAN is not in this kernel's cache.
        if let Err(error) = posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED) {
            tracing::debug!(disk = %path.display(), %error, "the disk is read through the cache");
        }
        Self::of(path, file, None)
    }

    fn of(path: &Path, mut file: File, direct: Option<File>) -> io::Result<Self> {
        let size = file.seek(SeekFrom::End(0))?;
        let sector = control::sector_size(&file)?;
        Ok(Self {
            name: path.display().to_string(),
            file,
            direct,
            size,
            sector,
        })
    }
}

impl BlockDevice for KernelDisk {
    fn name(&self) -> &str {
        &self.name
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn sector(&self) -> u64 {
        self.sector
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buffer, offset)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.file.write_all_at(data, offset)
    }

    fn write_bulk(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        if let Some(direct) = &self.direct {
            return direct.write_all_at(data, offset);
        }
        self.file.write_all_at(data, offset)?;
        // Without this the page cache fills with data that nobody reads again.
        self.file.sync_data()
    }

    fn zero(&self, offset: u64, length: u64) -> io::Result<()> {
        control::zero_out(&self.file, offset, length)
    }

    fn discard(&self) -> io::Result<()> {
        control::discard(&self.file, self.size)
    }

    fn flush(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    fn reread_partitions(&self) -> io::Result<()> {
        control::reread_partitions(&self.file)
    }

    fn show_partitions(&self, partitions: &[Extent]) -> io::Result<()> {
        let mut places = partitions.iter();
        places.try_for_each(|place| control::add_partition(&self.file, *place))
    }
}

/// An image file that stands for a disk in tests.
#[derive(Debug)]
pub struct FileDisk {
    name: String,
    file: File,
    size: u64,
    sector: u64,
}

impl FileDisk {
    pub fn open(path: &Path, sector: u64) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let size = file.metadata()?.len();
        Ok(Self {
            name: path.display().to_string(),
            file,
            size,
            sector,
        })
    }

    fn check(&self, offset: u64, length: u64) -> io::Result<()> {
        let fits = offset
            .checked_add(length)
            .is_some_and(|end| end <= self.size);
        // A disk does not grow when it is written behind its end.
        fits.then_some(())
            .ok_or_else(|| io::ErrorKind::StorageFull.into())
    }
}

impl BlockDevice for FileDisk {
    fn name(&self) -> &str {
        &self.name
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn sector(&self) -> u64 {
        self.sector
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buffer, offset)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.check(offset, data.len() as u64)?;
        self.file.write_all_at(data, offset)
    }

    fn write_bulk(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let length = data.len() as u64;
        let aligned = data.as_ptr().addr().is_multiple_of(Aligned::PAGE);
        if !(aligned && offset.is_multiple_of(self.sector) && length.is_multiple_of(self.sector)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.write_at(offset, data)
    }

    fn zero(&self, offset: u64, length: u64) -> io::Result<()> {
        self.check(offset, length)?;
        if length == 0 {
            return Ok(());
        }
        let mode = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        let (offset, length) = (i64::try_from(offset), i64::try_from(length));
        let (Ok(offset), Ok(length)) = (offset, length) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        Ok(fallocate(&self.file, mode, offset, length)?)
    }

    fn discard(&self) -> io::Result<()> {
        Ok(())
    }

    /// Whoever reads the file sees every write at once.
    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn reread_partitions(&self) -> io::Result<()> {
        Ok(())
    }
}
