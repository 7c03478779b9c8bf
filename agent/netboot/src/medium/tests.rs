//! Read back: the FAT by the crate `fatfs`, the ISO by a reader of its own.
#![allow(clippy::unwrap_used)]

use std::io::{Cursor, Read};

use proptest::prelude::*;

use super::*;
use crate::{
    BoxHttp, CaFingerprint,
    testing::{expect_golden, ip, mac},
};

fn site() -> BootSite {
    BootSite {
        http: BoxHttp::new(ip("172.22.0.1"), 80),
        ironic_port: 6385,
        ca: CaFingerprint::new([0xab; 32]),
        extra_args: vec![],
    }
}

/// The CD as a BMC gets it.
fn put_together(medium: &Medium, config: &[u8], kernel: &[u8], initrd: &[u8]) -> Vec<u8> {
    let mut cd = Vec::new();
    for (part, size) in medium.parts() {
        let before = cd.len();
        match part {
            MediumPart::Head(range) => cd.extend_from_slice(&medium.head()[range]),
            MediumPart::Config => cd.extend_from_slice(config),
            MediumPart::Kernel => cd.extend_from_slice(kernel),
            MediumPart::Initrd => cd.extend_from_slice(initrd),
            MediumPart::Zeros(count) => cd.resize(before + count, 0),
        }
        assert_eq!((cd.len() - before) as u64, size);
    }
    cd
}

fn number(bytes: &[u8]) -> usize {
    let little = u32::from_le_bytes(bytes[..4].try_into().unwrap());
    assert_eq!(
        little,
        u32::from_be_bytes(bytes[4..8].try_into().unwrap()),
        "both orders say the same"
    );
    little as usize
}

fn sector(cd: &[u8], at: usize) -> &[u8] {
    &cd[at * 2048..][..2048]
}

/// All files, by their paths as GRUB sees them.
fn files(cd: &[u8]) -> Vec<(String, Vec<u8>)> {
    let primary = sector(cd, 16);
    assert_eq!(&primary[..7], b"\x01CD001\x01");
    assert_eq!(number(&primary[80..]) * 2048, cd.len());
    files_below(cd, number(&primary[158..]), "")
}

fn files_below(cd: &[u8], directory: usize, path: &str) -> Vec<(String, Vec<u8>)> {
    let records = sector(cd, directory);
    let mut found = Vec::new();
    let mut at = 0;
    while records[at] > 0 {
        let record = &records[at..at + usize::from(records[at])];
        at += record.len();
        let name = &record[33..33 + usize::from(record[32])];
        // Itself, and where it is.
        if name.len() == 1 {
            continue;
        }
        let name = String::from_utf8(name.to_vec()).unwrap();
        let name = name.trim_end_matches(";1").trim_end_matches('.');
        let path = format!("{path}/{}", name.to_lowercase());
        let start = number(&record[2..]);
        if record[25] == 2 {
            found.extend(files_below(cd, start, &path));
        } else {
            let bytes = &cd[start * 2048..][..number(&record[10..])];
            found.push((path, bytes.to_vec()));
        }
    }
    found
}

/// What firmware takes for the system partition of a CD.
fn system_partition(cd: &[u8]) -> &[u8] {
    let record = sector(cd, 17);
    assert_eq!(&record[..30], b"\x00CD001\x01EL TORITO SPECIFICATION");
    let catalog = sector(
        cd,
        u32::from_le_bytes(record[71..75].try_into().unwrap()) as usize,
    );
    let words = catalog[..32].chunks(2);
    let sum = words.fold(0_u16, |sum, word| {
        sum.wrapping_add(u16::from_le_bytes([word[0], word[1]]))
    });
    assert_eq!((sum, catalog[1], catalog[32]), (0, 0xef, 0x88));
    let length = usize::from(u16::from_le_bytes([catalog[38], catalog[39]])) * 512;
    let at = u32::from_le_bytes(catalog[40..44].try_into().unwrap()) as usize;
    &cd[at * 2048..][..length]
}

fn of_fat(volume: &[u8], path: &str) -> Vec<u8> {
    let system =
        fatfs::FileSystem::new(Cursor::new(volume.to_vec()), fatfs::FsOptions::new()).unwrap();
    assert_eq!(system.fat_type(), fatfs::FatType::Fat16);
    let mut read = Vec::new();
    let mut file = system.root_dir().open_file(path).unwrap();
    file.read_to_end(&mut read).unwrap();
    read
}

#[test]
fn the_configuration_starts_the_ramdisk_of_one_server() {
    let config = medium_config(&site(), mac(1)).unwrap();
    assert_eq!(config.len(), MEDIUM_CONFIG);
    let text = String::from_utf8(config).unwrap();
    expect_golden("medium.cfg", text.trim_end_matches('\n'));
    let many = vec!["a".repeat(200).parse().unwrap(); 20];
    let full = BootSite {
        extra_args: many,
        ..site()
    };
    let refused = medium_config(&full, mac(1));
    assert!(
        matches!(refused, Err(MediumError::Config(_))),
        "{refused:?}"
    );
}

#[test]
fn what_no_cd_can_hold_is_refused() {
    let large = vec![0; 33 << 20];
    assert_eq!(
        Medium::new(&large, b"grub", 1, 1),
        Err(MediumError::Loaders(large.len() + 4))
    );
    let huge = 1 << 32;
    assert_eq!(
        Medium::new(b"shim", b"grub", huge, 1),
        Err(MediumError::File(huge))
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn every_file_is_found_again_whatever_its_size(
        shim in 0..3_000_000_usize, grub in 0..3_000_000_usize, kernel in 0..9000_usize, initrd in 0..9000_usize,
    ) {
        let fill = |size: usize, seed: u8| (0..size).map(|at| seed.wrapping_add(u8::try_from(at % 251).unwrap())).collect::<Vec<u8>>();
        let (shim, grub, kernel, initrd) = (fill(shim, 1), fill(grub, 2), fill(kernel, 3), fill(initrd, 4));
        let medium = Medium::new(&shim, &grub, kernel.len() as u64, initrd.len() as u64).unwrap();
        let config = medium_config(&site(), mac(1)).unwrap();
        let cd = put_together(&medium, &config, &kernel, &initrd);
        let mut names = files(&cd);
        let (boot, _) = names.remove(0);
        prop_assert_eq!(boot, "/flboot");
        let expected = [("/flinitrd", &initrd), ("/flkernel", &kernel), ("/grub/grub.cfg", &config)];
        prop_assert_eq!(names, expected.map(|(path, bytes)| (path.to_owned(), bytes.clone())));
        let volume = system_partition(&cd);
        prop_assert!(of_fat(volume, "efi/boot/bootx64.efi") == shim);
        prop_assert!(of_fat(volume, "efi/boot/grubx64.efi") == grub);
        prop_assert!(of_fat(volume, "grub/grub.cfg") == config);
        // Another server's is the same, but for what its configuration says.
        let other = put_together(&medium, &medium_config(&site(), mac(2)).unwrap(), &kernel, &initrd);
        let differs = (0..cd.len()).filter(|at| cd[*at] != other[*at]).count();
        prop_assert_eq!((cd.len() - other.len(), differs), (0, 1), "the last digit of the MAC address");
    }
}
