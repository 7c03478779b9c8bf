#![allow(clippy::unwrap_used)]

use std::sync::Mutex;

use super::super::testing::{disk_of_sectors, disk_with, read};
use super::*;
use crate::deploy::device::Aligned;

const MIB: u64 = 1 << 20;
const ID: Uuid = Uuid::from_u128(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff);

type Image = tempfile::NamedTempFile;

/// Blank disks of these sizes, as files, and the mirror of them.
fn mirror(sizes: [u64; 2]) -> ([Image; 2], Mirror) {
    let [(one, first), (two, second)] = sizes.map(|size| disk_with(size, &[]));
    let mirror = Mirror::of(Box::new(first), Box::new(second), ID).unwrap();
    ([one, two], mirror)
}

fn bytes(image: &Image) -> Vec<u8> {
    std::fs::read(image.path()).unwrap()
}

fn ids() -> impl FnMut() -> Uuid {
    let mut last = 0;
    move || {
        last += 1;
        Uuid::from_u128(last)
    }
}

#[test]
fn the_smaller_disk_counts_and_what_is_written_is_on_both() {
    let (images, mirror) = mirror([64 * MIB, 80 * MIB]);
    assert_eq!((mirror.size(), mirror.sector()), (63 * MIB, 512));
    let mut block = Aligned::new(4096);
    block.fill(7);
    mirror.write_bulk(4096, &block).unwrap();
    mirror.write_at(62 * MIB + 100, b"at the end").unwrap();
    mirror.write_at(MIB, b"gone").unwrap();
    mirror.zero(MIB, 2).unwrap();
    for image in &images {
        let bytes = bytes(image);
        assert!(bytes[4096..8192].iter().all(|byte| *byte == 7));
        assert_eq!(&bytes[62 << 20..][100..110], b"at the end");
        assert_eq!(&bytes[1 << 20..][..4], b"\0\0ne");
    }
    assert_eq!(read(&mirror, 62 * MIB + 100, 10), b"at the end");
    for refused in [
        mirror.write_at(63 * MIB - 1, b"ab"),
        mirror.zero(63 * MIB, 1),
        mirror.read_at(u64::MAX, &mut [0]),
    ] {
        assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::StorageFull);
    }
}

#[test]
fn disks_that_cannot_be_one_are_refused_by_name() {
    let of = |sector: u64, size: u64| {
        let (image, disk) = disk_of_sectors(sector, size, &[]);
        (image, Box::new(disk))
    };
    let ((_one, plain), (_two, large)) = (of(512, 64 * MIB), of(4096, 64 * MIB));
    let name = large.name().to_owned();
    let refused = Mirror::of(plain, large, ID).err().unwrap().to_string();
    assert!(refused.contains(&name), "{refused}");
    let ((_one, plain), (_two, tiny)) = (of(512, 64 * MIB), of(512, MIB));
    let name = tiny.name().to_owned();
    let refused = Mirror::of(plain, tiny, ID).err().unwrap().to_string();
    assert_eq!(refused, format!("{name} is too small for a mirror"));
}

#[test]
fn what_an_earlier_mirror_left_at_the_ends_goes_before_the_image_comes() {
    let ([one, two], mirror) = mirror([64 * MIB, 80 * MIB]);
    mirror.complete(1, &mut ids()).unwrap();
    mirror.begin().unwrap();
    assert!(bytes(&one).iter().all(|byte| *byte == 0));
    assert!(bytes(&two).iter().all(|byte| *byte == 0));
}

/// The words of `struct mdp_superblock_1` that say where the kernel looks, and that both halves are whole.
#[test]
fn each_half_says_which_it_is_in_the_words_of_the_kernel() {
    let sizes = [64 * MIB, 80 * MIB + 3 * 512];
    let (images, mirror) = mirror(sizes);
    mirror.complete(1_790_000_000, &mut ids()).unwrap();
    for (number, (image, size)) in images.iter().zip(sizes).enumerate() {
        let bytes = bytes(image);
        // Twelve KiB before the end at most, at a multiple of four.
        let place = (size / 512 - 16) / 8 * 8;
        let sectors = 63 * MIB / 512;
        let at = usize::try_from(place * 512).unwrap();
        let word =
            |offset: usize| u32::from_le_bytes(bytes[at + offset..][..4].try_into().unwrap());
        let long =
            |offset: usize| u64::from_le_bytes(bytes[at + offset..][..8].try_into().unwrap());
        assert_eq!((word(0), word(4), word(8)), (0xa92b_4efc, 1, 1));
        assert_eq!(&bytes[at + 16..at + 32], ID.as_bytes());
        assert_eq!((word(72), word(92)), (1, 2), "RAID 1 of two");
        assert_eq!((long(80), long(128), long(136)), (sectors, 0, sectors));
        assert_eq!(long(144), place);
        assert_eq!(usize::try_from(word(160)), Ok(number));
        assert_eq!(long(208), u64::MAX, "nothing is to be copied");
        let roles: Vec<u16> = (0..4)
            .map(|role| u16::from_le_bytes(bytes[at + 256 + 2 * role..][..2].try_into().unwrap()))
            .collect();
        assert_eq!(roles, [0, 1, 0xffff, 0xffff]);
        // Summed with nothing in the place of the sum.
        let length = 256 + 2 * usize::try_from(word(220)).unwrap();
        let sum: u64 = (0..length)
            .step_by(4)
            .map(|offset| u64::from(word(offset)))
            .sum();
        let sum = sum - u64::from(word(216));
        assert_eq!(u64::from(word(216)), (sum & 0xffff_ffff) + (sum >> 32));
        let bitmap = at - 128 * 512;
        assert_eq!(word(96).cast_signed(), -128);
        assert_eq!(&bytes[bitmap..bitmap + 4], b"bitm");
        assert_eq!(&bytes[bitmap + 8..bitmap + 24], ID.as_bytes());
        assert_eq!(bytes[bitmap + 24..bitmap + 32], bytes[at + 200..at + 208]);
        assert!(bytes[bitmap + 256..at].iter().all(|byte| *byte == 0));
        let found = crate::deploy::signatures::find(
            &crate::deploy::device::FileDisk::open(image.path(), 512).unwrap(),
        );
        assert_eq!(found.unwrap(), ["linux_raid_member"]);
    }
    let own = |image: &Image, size: u64| {
        let at = usize::try_from((size / 512 - 16) / 8 * 8 * 512).unwrap();
        bytes(image)[at + 168..at + 184].to_vec()
    };
    assert_ne!(own(&images[0], sizes[0]), own(&images[1], sizes[1]));
}

#[test]
fn a_bitmap_of_the_largest_disks_has_room_in_front_of_the_superblock() {
    for size in [8 << 30, 30 << 40, 2_u64 << 50] {
        let length = superblock::length([size, size]).unwrap();
        let member = Member {
            array: [1; 16],
            own: [2; 16],
            number: 0,
            length,
            made: 0,
        };
        let [(bitmap, bits), (place, superblock)] = member.pieces(size);
        assert!(
            length <= bitmap && bitmap + bits.len() as u64 == place,
            "{size}"
        );
        assert!(place + superblock.len() as u64 <= size);
        let chunk = u64::from(u32::from_le_bytes(bits[52..56].try_into().unwrap()));
        assert!(chunk.is_power_of_two());
        assert!(
            length.div_ceil(chunk).div_ceil(8) + 256 <= bits.len() as u64,
            "{size}"
        );
    }
}

#[test]
fn what_was_changed_on_the_first_disk_alone_comes_to_the_second() {
    let ([one, two], mirror) = mirror([64 * MIB, 64 * MIB]);
    let first = crate::deploy::device::FileDisk::open(one.path(), 512).unwrap();
    first.write_at(5 * MIB, b"arguments").unwrap();
    first.write_at(20 * MIB, b"behind the image").unwrap();
    mirror
        .follow(&first, 16 * MIB + 1, &Cancel::default())
        .unwrap();
    let second = bytes(&two);
    assert_eq!(&second[5 << 20..][..9], b"arguments");
    assert_eq!(second[20 << 20], 0, "nobody has asked for that");
    let cancel = Cancel::default();
    cancel.raise();
    let stopped = mirror.follow(&first, 64 * MIB, &cancel);
    assert!(matches!(stopped, Err(MirrorError::Cancelled)));
}

/// A disk that fails.
struct Broken(Mutex<Box<dyn BlockDevice>>);

impl BlockDevice for Broken {
    fn name(&self) -> &'static str {
        "/dev/broken"
    }
    fn size(&self) -> u64 {
        self.0.lock().unwrap().size()
    }
    fn sector(&self) -> u64 {
        512
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.0.lock().unwrap().read_at(offset, buffer)
    }
    fn write_at(&self, _: u64, _: &[u8]) -> io::Result<()> {
        Err(io::Error::from_raw_os_error(5))
    }
    fn write_bulk(&self, _: u64, _: &[u8]) -> io::Result<()> {
        Err(io::Error::from_raw_os_error(5))
    }
    fn zero(&self, _: u64, _: u64) -> io::Result<()> {
        Ok(())
    }
    fn discard(&self) -> io::Result<()> {
        Ok(())
    }
    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
    fn reread_partitions(&self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn whichever_disk_fails_is_named() {
    for broken_first in [true, false] {
        let ((_one, good), (_two, bad)) = (disk_with(64 * MIB, &[]), disk_with(64 * MIB, &[]));
        let good: Box<dyn BlockDevice> = Box::new(good);
        let bad: Box<dyn BlockDevice> = Box::new(Broken(Mutex::new(Box::new(bad))));
        let (first, second) = if broken_first {
            (bad, good)
        } else {
            (good, bad)
        };
        let mirror = Mirror::of(first, second, ID).unwrap();
        let mut said = vec![mirror.write_at(0, b"a").unwrap_err().to_string()];
        said.push(
            mirror
                .write_bulk(0, &Aligned::new(512))
                .unwrap_err()
                .to_string(),
        );
        let made = mirror.complete(0, &mut ids()).unwrap_err();
        said.push(std::error::Error::source(&made).unwrap().to_string());
        for said in said {
            assert!(said.starts_with("/dev/broken: "), "{said}");
        }
    }
}

#[test]
fn the_installed_kernel_takes_its_root_from_this_mirror_and_from_nothing_else() {
    let (_images, mirror) = mirror([64 * MIB, 64 * MIB]);
    assert_eq!(
        mirror.arguments(3),
        "root=/dev/disk/by-id/md-uuid-00112233:44556677:8899aabb:ccddeeff-part3 \
         rd.md.uuid=00112233:44556677:8899aabb:ccddeeff"
    );
}
