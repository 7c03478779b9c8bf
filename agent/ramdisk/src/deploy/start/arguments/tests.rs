#![allow(clippy::unwrap_used)]

use std::fs;

use super::super::tests::{Disk, fixture};
use super::super::write_arguments;

const ARGUMENTS: &str = "hugepages=16 iommu=pt";

#[test]
fn debian_has_them_in_every_entry_now_and_after_its_next_kernel() {
    let config = fixture("debian.cfg");
    let files = [
        ("boot/grub/grub.cfg", config.as_str()),
        ("etc/default/grub", "GRUB_DEFAULT=0\n"),
        ("etc/default/grub.d/10_cloud.cfg", ""),
    ];
    let disk = Disk::new().with(1, "4c2a0d4e-6b1c-4a57-9f0e-0f6f3f0d8f11", &files);
    for _ in 0..2 {
        write_arguments(&disk.system, ARGUMENTS).unwrap();
        let options = disk.found().options;
        assert!(
            options.ends_with(" consoleblank=0 hugepages=16 iommu=pt"),
            "{options}"
        );
    }
    let read = |path: &str| fs::read_to_string(disk.folder(1).join(path)).unwrap();
    assert_eq!(read("boot/grub/grub.cfg").matches(ARGUMENTS).count(), 3);
    assert_eq!(
        read("etc/default/grub.d/zz-firstlight.cfg"),
        "GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX hugepages=16 iommu=pt\"\n"
    );
    assert_eq!(read("etc/default/grub"), "GRUB_DEFAULT=0\n");
}

#[test]
fn fedora_has_them_in_its_entries_and_in_the_files_of_its_tools() {
    let (config, entry) = (fixture("fedora.cfg"), fixture("fedora-new.conf"));
    let boot = [
        ("grub2/grub.cfg", config.as_str()),
        ("loader/entries/a.conf", entry.as_str()),
        ("loader/entries/b.conf", "linux /k"),
    ];
    let root = [
        ("etc/default/grub", "GRUB_TIMEOUT=1"),
        ("etc/kernel/cmdline", "root=UUID=1 ro\n"),
    ];
    let disk = Disk::new()
        .with(3, "fed00000-0000-4000-8000-000000000001", &boot)
        .with(4, "root", &root);
    for _ in 0..2 {
        write_arguments(&disk.system, ARGUMENTS).unwrap();
    }
    let read = |number, path: &str| fs::read_to_string(disk.folder(number).join(path)).unwrap();
    assert!(
        read(3, "loader/entries/a.conf")
            .contains("$tuned_params hugepages=16 iommu=pt\ngrub_users")
    );
    assert_eq!(
        read(3, "loader/entries/b.conf"),
        "linux /k\noptions hugepages=16 iommu=pt\n"
    );
    assert_eq!(
        read(4, "etc/default/grub"),
        "GRUB_TIMEOUT=1\nGRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX hugepages=16 iommu=pt\"\n"
    );
    assert_eq!(
        read(4, "etc/kernel/cmdline"),
        "root=UUID=1 ro hugepages=16 iommu=pt\n"
    );
}

#[test]
fn where_no_loader_has_a_configuration_nothing_is_written() {
    let disk = Disk::new().with(1, "a", &[("etc/default/grub", "")]);
    let error = write_arguments(&disk.system, ARGUMENTS).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("no configuration of a boot loader")
    );
    let text = fs::read_to_string(disk.folder(1).join("etc/default/grub")).unwrap();
    assert_eq!(text, "");
}
