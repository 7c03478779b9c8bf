#![allow(clippy::unwrap_used)]

use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::load_option::PartitionId;

/// Variables as an OVMF firmware has them, each with its attributes.
fn firmware(dir: &Path) -> EfiVars {
    let vendor = "8be4df61-93ca-11d2-aa0d-00e098032b8c";
    let put = |name: &str, data: &[u8]| {
        let bytes = [&7_u32.to_le_bytes(), data].concat();
        std::fs::write(dir.join(format!("{name}-{vendor}")), bytes).unwrap();
    };
    let option = |text: &str| {
        let mut data = vec![1, 0, 0, 0, 4, 0];
        data.extend(text.encode_utf16().chain([0]).flat_map(u16::to_le_bytes));
        data.extend([0x7F, 0xFF, 4, 0]);
        data
    };
    put("BootOrder", &[0, 0, 1, 0, 3, 0, 5, 0]);
    put("Boot0000", &option("UiApp"));
    put("Boot0001", &option("UEFI PXEv4"));
    put("Boot0003", &option("Firstlight"));
    put("Boot0005", &option("Firstlight"));
    put("BootOptionSupport", &[0; 4]);
    EfiVars::open(dir).unwrap()
}

fn disk() -> HardDrive {
    HardDrive {
        number: 1,
        first_lba: 2048,
        sectors: 8192,
        id: PartitionId::Mbr(7),
    }
}

#[test]
fn the_entry_comes_first_and_stale_ones_go() {
    let dir = tempfile::tempdir().unwrap();
    let vars = firmware(dir.path());
    let wanted = load_option::encode("Firstlight", &disk(), r"\EFI\a.efi");
    // A second time changes nothing.
    for _ in 0..2 {
        assert_eq!(write_entry(&vars, &disk(), r"\EFI\a.efi").unwrap(), 3);
        assert_eq!(vars.read("BootOrder").unwrap(), [3, 0, 0, 0, 1, 0]);
        assert_eq!(vars.read("BootNext").unwrap(), [3, 0]);
        assert_eq!(vars.read("Boot0003").unwrap(), wanted);
        assert_eq!(vars.read("Boot0005"), None);
    }
}

#[test]
fn a_firmware_without_an_entry_of_ours_gets_a_free_number() {
    let dir = tempfile::tempdir().unwrap();
    let vars = firmware(dir.path());
    vars.remove("Boot0003").unwrap();
    vars.remove("Boot0005").unwrap();
    assert_eq!(write_entry(&vars, &disk(), r"\EFI\a.efi").unwrap(), 2);
    assert_eq!(
        vars.read("BootOrder").unwrap(),
        [2, 0, 0, 0, 1, 0, 3, 0, 5, 0]
    );
}

#[test]
fn an_installed_disk_can_be_made_the_next_boot() {
    let dir = tempfile::tempdir().unwrap();
    let vars = firmware(dir.path());
    assert!(boot_next(&vars).unwrap());
    assert_eq!(vars.read("BootNext").unwrap(), [3, 0]);
    vars.remove("Boot0003").unwrap();
    vars.remove("Boot0005").unwrap();
    assert!(!boot_next(&vars).unwrap());
}

#[test]
fn a_machine_without_variables_has_none_to_open() {
    let dir = tempfile::tempdir().unwrap();
    assert!(EfiVars::open(dir.path()).is_none());
    assert!(EfiVars::open(&dir.path().join("missing")).is_none());
}

/// A load option for the network, as far as it is looked at.
fn network_option(mac: [u8; 6], node: u8) -> Vec<u8> {
    let mut path = vec![3, 11, 10, 0];
    path.extend(mac);
    path.extend([3, node, 4, 0, 0x7F, 0xFF, 4, 0]);
    let mut data = vec![1, 0, 0, 0, 18, 0, b'P', 0, 0, 0];
    data.extend(path);
    data
}

#[test]
fn the_network_entry_of_this_nic_and_of_ipv4_is_taken() {
    const V4: u8 = 12;
    const V6: u8 = 13;
    let (ours, other) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    let cases = [
        (vec![(1, other, V4), (2, ours, V6), (6, ours, V4)], Some(6)),
        (vec![(1, other, V6), (2, other, V4)], Some(2)),
        (vec![(5, ours, V4), (1, ours, V4)], Some(1)),
        (vec![], None),
    ];
    for (entries, expected) in cases {
        let dir = tempfile::tempdir().unwrap();
        let vars = firmware(dir.path());
        for (number, mac, node) in &entries {
            let name = format!("Boot{number:04X}");
            vars.write(&name, &network_option(*mac, *node)).unwrap();
        }
        let told = boot_network_next(&vars, ours).unwrap();
        assert_eq!(told, expected.is_some(), "{entries:?}");
        let next = vars.read("BootNext").map(|data| u16::from(data[0]));
        assert_eq!(next, expected, "{entries:?}");
    }
}

/// The bytes of a variable: some with a meaning, some without.
fn values() -> impl Strategy<Value = Vec<u8>> {
    let option = (any::<bool>(), any::<[u8; 6]>()).prop_map(|(ours, mac)| {
        let text = if ours { DESCRIPTION } else { "Other" };
        let mut option = vec![1, 0, 0, 0, 4, 0];
        option.extend(text.encode_utf16().chain([0]).flat_map(u16::to_le_bytes));
        option.extend([0x7F, 0xFF, 4, 0]);
        if ours {
            option
        } else {
            network_option(mac, 12)
        }
    });
    prop_oneof![option, proptest::collection::vec(any::<u8>(), 0..80)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn whatever_the_firmware_holds_the_next_boot_is_an_entry_that_is_there(
        entries in proptest::collection::btree_map("000[0-9]|00a[bB]|00A[bB]|[+]0AB|.{0,4}", values(), 1..8),
        order in proptest::collection::vec(any::<u8>(), 0..12),
        mac: [u8; 6],
    ) {
        let dir = tempfile::tempdir().unwrap();
        let put = |name: &str, data: &[u8]| {
            let path = dir.path().join(format!("{name}-8be4df61-93ca-11d2-aa0d-00e098032b8c"));
            // Not every text is a name of a file.
            let _ = std::fs::write(path, [&[7, 0, 0, 0], data].concat());
        };
        for (digits, data) in &entries {
            put(&format!("Boot{digits}"), data);
        }
        put("BootOrder", &order);
        let vars = EfiVars::open(dir.path()).unwrap();
        let next = || {
            let next = vars.read("BootNext").unwrap();
            entry_name(u16::from_le_bytes([next[0], next[1]]))
        };
        if boot_network_next(&vars, mac).unwrap() {
            let option = vars.read(&next()).unwrap();
            prop_assert!(load_option::network_path(&option).is_some());
        }
        if boot_next(&vars).unwrap() {
            let option = vars.read(&next()).unwrap();
            prop_assert_eq!(load_option::description(&option), Some(DESCRIPTION.to_owned()));
        }
        let number = write_entry(&vars, &disk(), r"\EFI\a.efi").unwrap();
        prop_assert_eq!(next(), entry_name(number));
        prop_assert_eq!(own_entries(&vars), [number]);
        let order = boot_order(&vars);
        prop_assert_eq!(order[0], number);
        prop_assert!(!order[1..].contains(&number));
    }
}

#[test]
fn a_variable_in_small_letters_is_no_entry() {
    let dir = tempfile::tempdir().unwrap();
    let vars = firmware(dir.path());
    let own = vars.read("Boot0003").unwrap();
    vars.remove("Boot0003").unwrap();
    vars.remove("Boot0005").unwrap();
    vars.write("Boot00ab", &own).unwrap();
    vars.write("Boot00AB", &own).unwrap();
    assert_eq!(write_entry(&vars, &disk(), r"\EFI\a.efi").unwrap(), 0xAB);
    assert!(vars.read("Boot00AB").is_some() && vars.read("Boot00ab").is_some());
}

#[test]
fn the_disks_of_the_boot_order_are_told_up_to_one_that_nobody_can_tell() {
    use load_option::{DiskPath, Unit};
    let dir = tempfile::tempdir().unwrap();
    let vars = firmware(dir.path());
    let controller = |device: u8| {
        let path = [
            &[
                2, 1, 12, 0, 0xD0, 0x41, 3, 0x0A, 0, 0, 0, 0, 1, 1, 6, 0, 0, device,
            ][..],
            &[0x7F, 0xFF, 4, 0],
        ]
        .concat();
        let length = u8::try_from(path.len()).unwrap();
        [&[1, 0, 0, 0, length, 0, b'd', 0, 0, 0][..], &path].concat()
    };
    let disk_path = |device| DiskPath {
        pci: vec![(device, 0)],
        unit: Unit::Only,
    };
    assert_eq!(boot_disks(&vars), []);
    vars.write("Boot0007", &controller(7)).unwrap();
    vars.write("Boot0008", &controller(8)).unwrap();
    vars.write("Boot0009", &load_option::encode("debian", &disk(), "a"))
        .unwrap();
    let order = |numbers: &[u8]| {
        let order: Vec<u8> = numbers.iter().flat_map(|number| [*number, 0]).collect();
        vars.write("BootOrder", &order).unwrap();
        boot_disks(&vars)
    };
    // Of ours, the network, one that is not there.
    assert_eq!(order(&[3, 0, 1, 6, 8, 7]), [disk_path(8), disk_path(7)]);
    assert_eq!(order(&[8, 9, 7]), [disk_path(8)]);
    assert_eq!(order(&[9, 8]), []);
}
