//! What is on a disk, read without changing it.
//!
//! This decides whether a machine may be installed unasked, so it errs on the side of data: an unknown byte in the
//! first or last MiB, or a sector that cannot be read, is as good as a file system.
//! To add a kind: a line in [`MAGICS`], and one in the table test.

use std::io;

use firstlight_api::order::Mark;
use firstlight_client::key::Key;

use super::device::BlockDevice;
use super::image::is_zero;
use super::mark;

const MIB: u64 = 1 << 20;
/// Something is there that this table does not know.
pub const UNKNOWN_DATA: &str = "unknown-data";
/// The disk could not be read: nobody knows.
pub const UNREADABLE: &str = "unreadable";
/// A part of an image that this ramdisk, or one like it, was writing.
pub const UNFINISHED: &str = "firstlight-unfinished";

/// Where a magic number is.
#[derive(Clone, Copy, Debug)]
enum At {
    Start(u64),
    /// Bytes before the end.
    End(u64),
    /// In any of the first `n` sectors of 512 bytes, at this offset.
    Sectors(u64, u64),
    /// At `size` rounded down to the unit, minus the distance, plus the offset.
    Rounded {
        unit: u64,
        back: u64,
        offset: u64,
    },
}

use At::{End, Rounded, Sectors, Start};

/// Kinds by their magic numbers, in the names of `blkid`.
const MAGICS: &[(&str, At, &[u8])] = &[
    // Partition tables.
    ("gpt", Start(512), b"EFI PART"),
    ("gpt", Start(4096), b"EFI PART"),
    ("gpt", End(512), b"EFI PART"),
    ("gpt", End(4096), b"EFI PART"),
    ("dos", Start(510), b"\x55\xaa"),
    ("mac", Start(512), b"PM\0\0"),
    ("sun", Start(508), b"\xda\xbe"),
    ("sgi", Start(0), b"\x0b\xe5\xa9\x41"),
    ("bsd", Start(512), b"\x57\x45\x56\x82"),
    ("atari", Start(454), b"GEM"),
    // RAID and volume managers.
    ("linux_raid_member", Start(0), b"\xfc\x4e\x2b\xa9"),
    ("linux_raid_member", Start(4096), b"\xfc\x4e\x2b\xa9"),
    (
        "linux_raid_member",
        Rounded {
            unit: 65536,
            back: 65536,
            offset: 0,
        },
        b"\xfc\x4e\x2b\xa9",
    ),
    (
        "linux_raid_member",
        Rounded {
            unit: 4096,
            back: 8192,
            offset: 0,
        },
        b"\xfc\x4e\x2b\xa9",
    ),
    ("ddf_raid_member", End(512), b"\xde\x11\xde\x11"),
    ("ddf_raid_member", End(512), b"\x11\xde\x11\xde"),
    ("isw_raid_member", End(1024), b"Intel Raid ISM Cfg Sig. "),
    ("isw_raid_member", End(8192), b"Intel Raid ISM Cfg Sig. "),
    ("nvidia_raid_member", End(1024), b"NVIDIA"),
    ("lsi_mega_raid_member", End(512), b"$XIDE$"),
    (
        "promise_fasttrack_raid_member",
        End(63 * 512),
        b"Promise Technology, Inc.",
    ),
    (
        "highpoint_raid_member",
        Start(9 * 512 + 32),
        b"\xf0\x16\x78\x5a",
    ),
    (
        "highpoint_raid_member",
        End(11 * 512 - 32),
        b"\xf0\x16\x78\x5a",
    ),
    ("adaptec_raid_member", End(512), b"DPTM"),
    ("jmicron_raid_member", End(512), b"JM"),
    ("LVM2_member", Sectors(4, 0), b"LABELONE"),
    ("LVM1_member", Start(0), b"HM\x01\0"),
    ("LVM1_member", Start(0), b"HM\x02\0"),
    ("crypto_LUKS", Start(0), b"LUKS\xba\xbe"),
    ("crypto_LUKS", Start(16384), b"SKUL\xba\xbe"),
    ("BitLocker", Start(3), b"-FVE-FS-"),
    (
        "bcache",
        Start(4096 + 24),
        b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81",
    ),
    (
        "bcachefs",
        Start(4096 + 24),
        b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef",
    ),
    (
        "drbd",
        Rounded {
            unit: 4096,
            back: 4096,
            offset: 28,
        },
        b"\x83\x74\x02\x6b",
    ),
    (
        "drbd",
        Rounded {
            unit: 4096,
            back: 4096,
            offset: 28,
        },
        b"\x83\x74\x02\x67",
    ),
    ("ceph_bluestore", Start(0), b"bluestore block device"),
    ("stratis", Start(512 + 4), b"!Stra0tis\x86\xff\x02^\x41rh"),
    ("vdo", Start(0), b"dmvdo001"),
    ("DM_verity_hash", Start(0), b"verity\0\0"),
    ("DM_integrity", Start(0), b"integrt\0"),
    ("VMFS_volume_member", Start(MIB), b"\x0d\xd0\x01\xc0"),
    ("VMFS", Start(2 * MIB), b"\x5e\xf1\xab\x2f"),
    // File systems.
    ("ext", Start(1024 + 56), b"\x53\xef"),
    ("xfs", Start(0), b"XFSB"),
    ("xfs_log", Start(0), b"\xfe\xed\xba\xbe"),
    ("btrfs", Start(0x1_0040), b"_BHRfS_M"),
    ("btrfs", Start(64 * MIB + 64), b"_BHRfS_M"),
    ("btrfs", Start((256 << 30) + 64), b"_BHRfS_M"),
    ("ntfs", Start(3), b"NTFS    "),
    ("ReFS", Start(0), b"\0\0\0ReFS\0"),
    ("exfat", Start(3), b"EXFAT   "),
    ("vfat", Start(82), b"FAT32   "),
    ("vfat", Start(54), b"FAT16   "),
    ("vfat", Start(54), b"FAT12   "),
    ("iso9660", Start(32769), b"CD001"),
    ("udf", Start(32769), b"BEA01"),
    ("udf", Start(32769), b"NSR0"),
    ("swap", Start(4096 - 10), b"SWAPSPACE2"),
    ("swap", Start(8192 - 10), b"SWAPSPACE2"),
    ("swap", Start(16384 - 10), b"SWAPSPACE2"),
    ("swap", Start(65536 - 10), b"SWAPSPACE2"),
    ("swap", Start(4096 - 10), b"SWAP-SPACE"),
    ("swsuspend", Start(4096 - 10), b"S1SUSPEND"),
    ("reiserfs", Start(0x1_0034), b"ReIsEr"),
    ("reiser4", Start(0x1_0000), b"ReIsEr4"),
    ("jfs", Start(32768), b"JFS1"),
    ("f2fs", Start(1024), b"\x10\x20\xf5\xf2"),
    ("nilfs2", Start(1024 + 6), b"\x34\x34"),
    ("squashfs", Start(0), b"hsqs"),
    ("erofs", Start(1024), b"\xe2\xe1\xf5\xe0"),
    ("cramfs", Start(0), b"\x45\x3d\xcd\x28"),
    ("hfs", Start(1024), b"BD"),
    ("hfsplus", Start(1024), b"H+"),
    ("hfsplus", Start(1024), b"HX"),
    ("apfs", Start(32), b"NXSB"),
    ("ufs", Start(8192 + 1372), b"\x54\x19\x01\x00"),
    ("ufs", Start(65536 + 1372), b"\x19\x01\x54\x19"),
    ("ufs", Start(65536 + 1372), b"\x54\x19\x01\x00"),
    ("gfs2", Start(65536), b"\x01\x16\x19\x70"),
    ("ocfs2", Start(2048), b"OCFSV2"),
    ("ocfs2", Start(4096), b"OCFSV2"),
    ("minix", Start(1024 + 16), b"\x7f\x13"),
    ("minix", Start(1024 + 24), b"\x5a\x4d"),
];

/// Uberblocks of ZFS, in either byte order, in the labels of 256 KiB: two at the start and two at the end.
const ZFS: [&[u8]; 2] = [b"\x0c\xb1\xba\0\0\0\0\0", b"\0\0\0\0\0\xba\xb1\x0c"];
const ZFS_LABEL: u64 = 256 << 10;

/// What a look at a disk finds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Content {
    /// Kinds, each once, in the table's order; empty = blank.
    pub signatures: Vec<String>,
    pub mark: Option<Mark>,
    /// Of the ramdisk that wrote what is on the disk.
    pub key: Option<Key>,
}

impl Content {
    pub fn unreadable() -> Self {
        Self {
            signatures: vec![UNREADABLE.to_owned()],
            ..Self::default()
        }
    }
}

/// Kinds found, as in [`Content::signatures`].
pub fn find(device: &dyn BlockDevice) -> io::Result<Vec<String>> {
    look(device).map(|content| content.signatures)
}

pub fn look(device: &dyn BlockDevice) -> io::Result<Content> {
    let ends = Ends::read(device)?;
    if let Some((mark, key)) = mark::unfinished(&ends.head)
        && ends.tail_is_of_an_image()
    {
        return Ok(Content {
            signatures: vec![UNFINISHED.to_owned()],
            mark: Some(mark),
            key,
        });
    }
    let signatures = kinds(&ends);
    let has_table = signatures.iter().any(|kind| matches!(*kind, "gpt" | "dos"));
    let installed = has_table.then(|| mark::installed(device, &ends.head));
    let (mark, key) = installed.flatten().unzip();
    Ok(Content {
        mark,
        key: key.flatten(),
        signatures: signatures.into_iter().map(str::to_owned).collect(),
    })
}

fn kinds(ends: &Ends) -> Vec<&'static str> {
    let mut found: Vec<&'static str> = Vec::new();
    for (kind, at, magic) in MAGICS {
        if !found.contains(kind) && places(*at, ends.size).any(|place| ends.has(place, magic)) {
            found.push(kind);
        }
    }
    if !found.contains(&"zfs_member") && has_zfs(ends) {
        found.push("zfs_member");
    }
    refine(ends, &mut found);
    if found.is_empty() && !ends.is_blank() {
        found.push(UNKNOWN_DATA);
    }
    found
}

/// Like [`look`], where a disk that cannot be read counts as one with data.
pub fn look_or_suspect(device: &dyn BlockDevice) -> Content {
    look(device).unwrap_or_else(|error| {
        tracing::warn!(disk = device.name(), %error, "the disk cannot be read and counts as not blank");
        Content::unreadable()
    })
}

/// Names that need more than a magic number.
fn refine(ends: &Ends, found: &mut Vec<&'static str>) {
    // Boot sectors of FAT, NTFS, exFAT and BitLocker end in the two bytes of a DOS table.
    let has_boot_sector = ["vfat", "ntfs", "exfat", "BitLocker"]
        .iter()
        .any(|kind| found.contains(kind));
    let protective = found.contains(&"gpt");
    if has_boot_sector || protective {
        found.retain(|kind| *kind != "dos");
    }
    for kind in found.iter_mut().filter(|kind| **kind == "ext") {
        let word = |at: u64| ends.read_u32(1024 + at).unwrap_or(0);
        let has_journal = word(92) & 4 != 0;
        // Features that only ext4 has: extents, 64 bit, flexible groups, huge files, checksums.
        let is_ext4 = word(96) & !0x1F != 0 || word(100) & !0x7 != 0;
        *kind = match (is_ext4, has_journal) {
            (true, _) => "ext4",
            (false, true) => "ext3",
            (false, false) => "ext2",
        };
    }
}

fn has_zfs(ends: &Ends) -> bool {
    let last = ends.size / ZFS_LABEL * ZFS_LABEL;
    let labels = [
        0,
        ZFS_LABEL,
        last.saturating_sub(2 * ZFS_LABEL),
        last.saturating_sub(ZFS_LABEL),
    ];
    labels.into_iter().any(|label| {
        (128..256).any(|kib| ZFS.iter().any(|magic| ends.has(label + kib * 1024, magic)))
    })
}

/// Absolute offsets that a rule means on a disk of `size` bytes.
fn places(at: At, size: u64) -> impl Iterator<Item = u64> {
    let (first, count) = match at {
        Start(offset) | Sectors(_, offset) if offset >= size => (None, 0),
        Start(offset) => (Some(offset), 1),
        Sectors(count, offset) => (Some(offset), count),
        End(back) => (size.checked_sub(back), 1),
        Rounded { unit, back, offset } => (
            (size / unit * unit).checked_sub(back).map(|p| p + offset),
            1,
        ),
    };
    first
        .into_iter()
        .flat_map(move |first| (0..count).map(move |n| first + n * 512))
}

/// Both ends of a disk, and the few places between that a table line names.
struct Ends {
    size: u64,
    head: Vec<u8>,
    tail: Vec<u8>,
    middle: Vec<(u64, Vec<u8>)>,
}

impl Ends {
    fn read(device: &dyn BlockDevice) -> io::Result<Self> {
        let size = device.size();
        let length = usize::try_from(size.min(MIB)).map_err(io::Error::other)?;
        let mut head = vec![0; length];
        device.read_at(0, &mut head)?;
        let mut tail = vec![0; length];
        device.read_at(size - length as u64, &mut tail)?;
        let mut middle = Vec::new();
        for (_, at, magic) in MAGICS {
            for place in places(*at, size) {
                let end = place + magic.len() as u64;
                if end > MIB && place < size.saturating_sub(MIB) && end <= size {
                    let mut bytes = vec![0; magic.len()];
                    device.read_at(place, &mut bytes)?;
                    middle.push((place, bytes));
                }
            }
        }
        Ok(Self {
            size,
            head,
            tail,
            middle,
        })
    }

    fn slice(&self, place: u64, length: usize) -> Option<&[u8]> {
        let within = |bytes: &'_ [u8], start: u64| -> Option<(usize, usize)> {
            let from = usize::try_from(place.checked_sub(start)?).ok()?;
            (from + length <= bytes.len()).then_some((from, from + length))
        };
        let tail_start = self.size - self.tail.len() as u64;
        if let Some((from, to)) = within(&self.head, 0) {
            return Some(&self.head[from..to]);
        }
        if let Some((from, to)) = within(&self.tail, tail_start) {
            return Some(&self.tail[from..to]);
        }
        let known = self
            .middle
            .iter()
            .find(|(at, bytes)| *at == place && bytes.len() >= length);
        known.map(|(_, bytes)| &bytes[..length])
    }

    fn has(&self, place: u64, magic: &[u8]) -> bool {
        self.slice(place, magic.len()) == Some(magic)
    }

    fn read_u32(&self, place: u64) -> Option<u32> {
        let bytes = self.slice(place, 4)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    }

    /// Zeros, the backup of a partition table, or an image's last bytes; no RAID system's label.
    fn tail_is_of_an_image(&self) -> bool {
        let only_tail = Self {
            size: self.size,
            head: vec![0; self.head.len()],
            tail: self.tail.clone(),
            middle: Vec::new(),
        };
        kinds(&only_tail)
            .iter()
            .all(|kind| matches!(*kind, "gpt" | UNKNOWN_DATA))
    }

    fn is_blank(&self) -> bool {
        is_zero(&self.head) && is_zero(&self.tail)
    }
}

#[cfg(test)]
mod tests;
