//! What Linux's md reads on the two disks of a mirror: metadata of version 1.0, at the end of each, and a write-intent bitmap in front of
//! it (`drivers/md/md.c`, `struct mdp_superblock_1` in `include/uapi/linux/raid/md_p.h`; `drivers/md/md-bitmap.h`). Pure.
//!
//! At the end, so that everything before it is the image: firmware and boot loaders take either disk for one that has no mirror.

/// Of the units that md counts in, whatever the disk's sectors are.
const SECTOR: u64 = 512;
/// Bytes at the end of each disk that are md's.
const RESERVED: u64 = 1 << 20;
/// The mirror ends at a multiple of this.
const ROUND: u64 = 64 << 10;
/// Bytes in front of the superblock that the bitmap may have.
const BITMAP: u64 = 64 << 10;
/// Bytes of the header in front of its bits.
const BITMAP_HEADER: u64 = 256;
/// Bytes that one bit stands for, at least and at most.
const CHUNK: u64 = 64 << 20;
const LARGEST_CHUNK: u32 = 1 << 31;
/// Bytes that the bitmap has room for with them: thirty times the largest disk.
const MOST: u64 = (BITMAP - BITMAP_HEADER) * 8 * LARGEST_CHUNK as u64;
/// Places for disks that the superblock has; two are in use.
const PLACES: u16 = 128;
const SUPERBLOCK: usize = 256 + 2 * PLACES as usize;
const MAGIC: u32 = 0xa92b_4efc;
const BITMAP_MAGIC: u32 = 0x6d74_6962;
const HAS_BITMAP: u32 = 1;
const RAID1: u32 = 1;
const SPARE: u16 = 0xffff;
/// "any": of whatever host it is, it is this host's own.
const NAME: &[u8] = b"any:firstlight";
/// Of the array and of its bitmap, which must not be behind.
const EVENTS: u64 = 1;
/// Seconds after which bits of what was written to both disks are cleared.
const SLEEP: u32 = 5;

/// Bytes of the mirror that fits on disks of these sizes. `None`: one of them is too small for any.
pub fn length(sizes: [u64; 2]) -> Option<u64> {
    let smaller = sizes[0].min(sizes[1]);
    let length = smaller.checked_sub(RESERVED)?.min(MOST) / ROUND * ROUND;
    (length > 0).then_some(length)
}

/// Where md looks for the superblock on a disk of `size` bytes.
fn place(size: u64) -> u64 {
    (size / SECTOR - 16) / 8 * 8 * SECTOR
}

/// One of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Of the mirror.
    pub array: [u8; 16],
    /// Of this half.
    pub own: [u8; 16],
    /// 0 or 1.
    pub number: u16,
    /// Bytes of the mirror.
    pub length: u64,
    /// Seconds since 1970.
    pub made: u64,
}

impl Member {
    /// What is written on a disk of `size` bytes, each piece with its place: in whole pages, so that any sector does.
    pub fn pieces(&self, size: u64) -> [(u64, Vec<u8>); 2] {
        let place = place(size);
        [
            (place - BITMAP, self.bitmap()),
            (place, self.superblock(place)),
        ]
    }

    /// Both halves are the same: nothing has to be copied, and no bit is set.
    fn bitmap(&self) -> Vec<u8> {
        let mut chunk = CHUNK;
        while self.length.div_ceil(chunk).div_ceil(8) > BITMAP - BITMAP_HEADER {
            chunk *= 2;
        }
        let mut bytes = vec![0; usize_of(BITMAP)];
        put(&mut bytes, 0, &BITMAP_MAGIC.to_le_bytes());
        put(&mut bytes, 4, &4_u32.to_le_bytes());
        put(&mut bytes, 8, &self.array);
        put(&mut bytes, 24, &EVENTS.to_le_bytes());
        put(&mut bytes, 32, &EVENTS.to_le_bytes());
        put(&mut bytes, 40, &(self.length / SECTOR).to_le_bytes());
        let chunk = u32::try_from(chunk).unwrap_or(LARGEST_CHUNK);
        put(&mut bytes, 52, &chunk.to_le_bytes());
        put(&mut bytes, 56, &SLEEP.to_le_bytes());
        bytes
    }

    fn superblock(&self, place: u64) -> Vec<u8> {
        let sectors = self.length / SECTOR;
        let back = -i32::try_from(BITMAP / SECTOR).expect("a bitmap is small");
        let mut bytes = vec![0; 4096];
        let all: [(usize, &[u8]); 19] = [
            (0, &MAGIC.to_le_bytes()),
            (4, &1_u32.to_le_bytes()),
            (8, &HAS_BITMAP.to_le_bytes()),
            (16, &self.array),
            (32, NAME),
            (64, &self.made.to_le_bytes()),
            (72, &RAID1.to_le_bytes()),
            (80, &sectors.to_le_bytes()),
            (92, &2_u32.to_le_bytes()),
            (96, &back.to_le_bytes()),
            (136, &sectors.to_le_bytes()),
            (144, &(place / SECTOR).to_le_bytes()),
            (160, &u32::from(self.number).to_le_bytes()),
            (168, &self.own),
            (192, &self.made.to_le_bytes()),
            (200, &EVENTS.to_le_bytes()),
            // All of it is the same on both.
            (208, &u64::MAX.to_le_bytes()),
            (220, &u32::from(PLACES).to_le_bytes()),
            (258, &1_u16.to_le_bytes()),
        ];
        for (at, value) in all {
            put(&mut bytes, at, value);
        }
        for number in 2..usize::from(PLACES) {
            put(&mut bytes, 256 + 2 * number, &SPARE.to_le_bytes());
        }
        let sum = checksum(&bytes[..SUPERBLOCK]);
        put(&mut bytes, 216, &sum.to_le_bytes());
        bytes
    }
}

/// As `mdadm` and udev write the number of a mirror, `0a1b2c3d:…`, four words of eight digits.
pub fn name(array: [u8; 16]) -> String {
    let words = array.chunks(4).map(|word| {
        let digits = word.iter().map(|byte| format!("{byte:02x}"));
        digits.collect::<String>()
    });
    words.collect::<Vec<_>>().join(":")
}

/// The sum of all words, with what it carries over.
fn checksum(bytes: &[u8]) -> u32 {
    let words = bytes.chunks_exact(4);
    let sum: u64 = words
        .map(|word| u64::from(u32::from_le_bytes(word.try_into().expect("four bytes"))))
        .sum();
    u32::try_from((sum & 0xffff_ffff) + (sum >> 32)).unwrap_or(u32::MAX)
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

fn usize_of(value: u64) -> usize {
    usize::try_from(value).expect("a place in memory")
}
