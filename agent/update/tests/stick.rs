//! The stick that a box has started from, as the kernel shows it, and what damage of its table does.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use firstlight_api::boot_choice::SystemSlot;
use firstlight_update::stick::Stick;
use gpt::partition::Partition;
use gpt::partition_types::{OperatingSystem, Type};
use proptest::prelude::*;
use tempfile::TempDir;
use uuid::Uuid;

const NAMES: [&str; 6] = [
    "FIRSTLIGHT",
    "ESP",
    "bios-boot",
    "system-a",
    "system-b",
    "firstlight-state",
];
const BYTES: u64 = 8 << 20;

/// With the first `count` of [`NAMES`]; `running` is the number of the partition that was started from.
fn machine(count: usize, running: usize, words: &str) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let at = |path: &str| dir.path().join(path);
    let disk = "sys/devices/pci0/usb1/block/sda";
    for folder in ["proc", "dev", "run/systemd", "sys/dev/block", disk] {
        fs::create_dir_all(at(folder)).unwrap();
    }
    fs::create_dir_all(at(&format!("{disk}/queue"))).unwrap();
    fs::write(at(&format!("{disk}/queue/logical_block_size")), "512\n").unwrap();
    fs::write(at("proc/cmdline"), format!("{words} quiet\n")).unwrap();
    let mut entries = BTreeMap::new();
    for (number, name) in (1..).zip(&NAMES[..count]) {
        let folder = format!("{disk}/sda{number}");
        fs::create_dir_all(at(&folder)).unwrap();
        fs::write(at(&format!("{folder}/partition")), format!("{number}\n")).unwrap();
        fs::write(at(&format!("{folder}/size")), "2048\n").unwrap();
        symlink(at(&folder), at(&format!("sys/dev/block/8:{number}"))).unwrap();
        let first = u64::from(number) * 2048;
        let entry = Partition {
            part_type_guid: Type {
                guid: Uuid::from_u128(1),
                os: OperatingSystem::None,
            },
            part_guid: Uuid::from_u128(number.into()),
            first_lba: first,
            last_lba: first + 2047,
            flags: 0,
            name: (*name).to_owned(),
        };
        entries.insert(number, entry);
    }
    symlink(
        format!("/dev/block/8:{running}"),
        at("run/systemd/volatile-root"),
    )
    .unwrap();
    let mut file = fs::File::options()
        .create(true)
        .truncate(true)
        .read(true)
        .write(true)
        .open(at("dev/sda"))
        .unwrap();
    file.set_len(BYTES).unwrap();
    let mut table = gpt::GptConfig::new()
        .writable(true)
        .create_from_device(&mut file, None)
        .unwrap();
    table.update_partitions(entries).unwrap();
    table.write().unwrap();
    dir
}

fn find(dir: &Path) -> anyhow::Result<Option<Stick>> {
    Stick::find(dir)
}

const WORDS: &str = "firstlight.slot=PARTUUID=00000000-0000-0000-0000-000000000004";

#[test]
fn a_state_that_was_wiped_leaves_the_table_and_nothing_else_does() {
    let dir = machine(6, 4, WORDS);
    let before = find(dir.path()).unwrap().unwrap();
    assert!(before.state.is_some() && before.site.is_some());
    before.drop_state().unwrap();
    let after = find(dir.path()).unwrap().unwrap();
    assert_eq!(after.state, None);
    assert_eq!((after.other, after.esp), (before.other, before.esp));
    assert!(
        find(machine(5, 4, WORDS).path())
            .unwrap()
            .unwrap()
            .drop_state()
            .is_err()
    );
}

#[test]
fn both_systems_are_found_on_the_disk_that_was_started_from() {
    let dir = machine(5, 4, WORDS);
    let stick = find(dir.path()).unwrap().unwrap();
    assert_eq!((stick.running, stick.trial), (SystemSlot::A, false));
    assert!(stick.system.device.ends_with("dev/sda4") && stick.esp.device.ends_with("dev/sda2"));
    let other = stick.other().unwrap();
    assert!(other.device.ends_with("dev/sda5"));
    assert_eq!(other.id, "00000000-0000-0000-0000-000000000005");
    assert_eq!(other.bytes, 1 << 20);

    let dir = machine(5, 5, &format!("{WORDS} firstlight.trial"));
    let stick = find(dir.path()).unwrap().unwrap();
    assert_eq!((stick.running, stick.trial), (SystemSlot::B, true));
}

#[test]
fn a_small_stick_and_a_machine_without_one_are_told() {
    let dir = machine(4, 4, WORDS);
    let error = find(dir.path()).unwrap().unwrap().other().unwrap_err();
    assert!(error.to_string().contains("no room for a second system"));
    let dir = machine(5, 4, "root=/dev/vda firstlight.trial");
    assert_eq!(find(dir.path()).unwrap(), None);
    let dir = machine(3, 3, WORDS);
    assert!(find(dir.path()).is_err(), "neither of the two");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_damaged_table_is_an_error_or_names_partitions(changes in proptest::collection::vec((0..20_000_usize, any::<u8>()), 1..20)) {
        let dir = machine(5, 4, WORDS);
        let path = dir.path().join("dev/sda");
        let mut disk = fs::read(&path).unwrap();
        for (at, value) in changes {
            disk[at] = value;
        }
        fs::write(&path, disk).unwrap();
        if let Ok(Some(stick)) = find(dir.path()) {
            prop_assert!(stick.system.device.starts_with(dir.path()));
        }
    }
}
