#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use proptest::prelude::*;
use serde_json::json;

use super::*;

/// A tree like a machine's: files with their text, and links.
struct Tree(tempfile::TempDir);

impl Tree {
    fn new(files: &[(&str, &str)], links: &[(&str, &str)]) -> Self {
        let tree = Self(tempfile::tempdir().unwrap());
        for (path, text) in files {
            tree.file(path, text.as_bytes());
        }
        for (path, target) in links {
            let path = tree.0.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            symlink(target, path).unwrap();
        }
        tree
    }

    fn file(&self, path: &str, bytes: &[u8]) {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap_or(Path::new("/"))).unwrap();
        fs::write(path, bytes).unwrap();
    }

    fn sys(&self) -> SysTree {
        SysTree::new(self.0.path())
    }
}

/// A virtio disk and NIC of QEMU's q35 machine, laid out as its kernel 6.12 shows them, and things that are no disks.
fn virtual_server() -> Tree {
    const NIC: &str = "sys/devices/pci0000:00/0000:00:02.0/virtio0";
    const DISK: &str = "sys/devices/pci0000:00/0000:00:03.0/virtio1/block/vda";
    let nic = format!("{NIC}/net/ens2");
    let files = [
        (format!("{nic}/address"), "52:54:00:12:34:56\n"),
        (format!("{nic}/carrier"), "1\n"),
        (format!("{nic}/speed"), "-1\n"),
        (format!("{NIC}/vendor"), "0x1af4\n"),
        (format!("{NIC}/device"), "0x0001\n"),
        (
            "sys/devices/virtual/net/lo/address".into(),
            "00:00:00:00:00:00\n",
        ),
        (format!("{DISK}/size"), "20971520\n"),
        (format!("{DISK}/removable"), "0\n"),
        (format!("{DISK}/ro"), "0\n"),
        (format!("{DISK}/serial"), "disk-1\n"),
        (format!("{DISK}/queue/rotational"), "1\n"),
        (format!("{DISK}/queue/logical_block_size"), "512\n"),
        (format!("{DISK}/queue/physical_block_size"), "4096\n"),
        ("sys/block/loop0/size".into(), "99999\n"),
        ("sys/block/sr0/size".into(), "99999\n"),
        ("sys/block/sdz/size".into(), "99999999\n"),
        ("sys/block/sdz/removable".into(), "1\n"),
        ("sys/block/sdy/size".into(), "0\n"),
        ("sys/class/dmi/id/sys_vendor".into(), "QEMU\n"),
        (
            "sys/class/dmi/id/product_name".into(),
            "Standard PC (Q35 + ICH9, 2009)\n",
        ),
        (
            "proc/meminfo".into(),
            "MemTotal:         469380 kB\nMemFree: 1 kB\n",
        ),
        ("proc/sys/kernel/hostname".into(), "(none)\n"),
        ("sys/firmware/efi/fw_platform_size".into(), "64\n"),
    ];
    let files: Vec<(&str, &str)> = files.iter().map(|(p, t)| (p.as_str(), *t)).collect();
    let links = [
        (
            "sys/class/net/ens2",
            "../../devices/pci0000:00/0000:00:02.0/virtio0/net/ens2",
        ),
        ("sys/class/net/lo", "../../devices/virtual/net/lo"),
        (
            "sys/devices/pci0000:00/0000:00:02.0/virtio0/net/ens2/device",
            "../../../virtio0",
        ),
        (
            "sys/devices/pci0000:00/0000:00:02.0/virtio0/driver",
            "../../../../bus/virtio/drivers/virtio_net",
        ),
        (
            "sys/block/vda",
            "../devices/pci0000:00/0000:00:03.0/virtio1/block/vda",
        ),
        (
            "sys/devices/pci0000:00/0000:00:03.0/virtio1/block/vda/device",
            "../../../virtio1",
        ),
    ];
    Tree::new(&files, &links)
}

fn link() -> Link {
    Link {
        boot_mac: "52:54:00:12:34:56".into(),
        address: "172.22.0.50".parse().unwrap(),
    }
}

#[test]
fn a_virtual_server_in_the_field_names_of_ironic_python_agent() {
    let inventory = collect(&virtual_server().sys(), &link());
    let wanted = json!({
        "interfaces": [{
            "name": "ens2", "mac_address": "52:54:00:12:34:56", "ipv4_address": "172.22.0.50", "ipv6_address": null,
            "has_carrier": true, "lldp": null, "vendor": "0x1af4", "product": "0x0001", "client_id": null,
            "biosdevname": null, "speed_mbps": null, "pci_address": "0000:00:02.0", "driver": "virtio_net",
        }],
        "cpu": {
            "model_name": "", "frequency": null, "count": 0, "architecture": "x86_64", "flags": [], "socket_count": 1,
        },
        "disks": [{
            "name": "/dev/vda", "model": "", "size": 10_737_418_240_u64, "rotational": true, "wwn": null,
            "serial": "disk-1", "vendor": null, "wwn_with_extension": null, "wwn_vendor_extension": null, "hctl": null,
            "by_path": "/dev/disk/by-path/pci-0000:00:03.0", "logical_sectors": 512, "physical_sectors": 4096,
            "tran": "virtio",
        }],
        "memory": {"total": 480_645_120, "physical_mb": 512},
        "system_vendor": {
            "product_name": "Standard PC (Q35 + ICH9, 2009)", "serial_number": null, "manufacturer": "QEMU",
            "firmware": {"vendor": null, "version": null, "build_date": null},
        },
        "boot": {"current_boot_mode": "uefi", "pxe_interface": "52:54:00:12:34:56"},
        "hostname": "localhost", "bmc_address": null, "bmc_v6address": null,
    });
    assert_eq!(serde_json::to_value(&inventory).unwrap(), wanted);
}

#[test]
fn an_empty_tree_is_an_empty_machine_and_no_failure() {
    let inventory = collect(&Tree::new(&[], &[]).sys(), &link());
    assert_eq!((inventory.disks.len(), inventory.interfaces.len()), (0, 0));
    assert_eq!(inventory.boot.current_boot_mode, "bios");
}

#[test]
fn a_sata_disk_has_its_world_wide_name_serial_and_path() {
    const PLACE: &str = "sys/devices/pci0000:00/0000:00:1f.2/ata3/host2/target2:0:0/2:0:0:0";
    let disk = format!("{PLACE}/block/sda");
    let files = [
        (format!("{disk}/size"), "7814037168\n"),
        (format!("{PLACE}/model"), "ST4000NM0035    \n"),
        (format!("{PLACE}/vendor"), "ATA     \n"),
        (format!("{PLACE}/wwid"), "naa.5000c500a0b1c2d3\n"),
        ("sys/class/ata_port/ata3/port_no".into(), "3\n"),
    ];
    let files: Vec<(&str, &str)> = files.iter().map(|(p, t)| (p.as_str(), *t)).collect();
    let links = [
        (
            "sys/block/sda",
            "../devices/pci0000:00/0000:00:1f.2/ata3/host2/target2:0:0/2:0:0:0/block/sda",
        ),
        (
            "sys/devices/pci0000:00/0000:00:1f.2/ata3/host2/target2:0:0/2:0:0:0/block/sda/device",
            "../../../2:0:0:0",
        ),
    ];
    let tree = Tree::new(&files, &links);
    tree.file(&format!("{PLACE}/vpd_pg80"), b"\0\x80\0\x08ZC1     ");
    let disks = disks::read_disks(&tree.sys());
    let disk = &disks[0];
    assert_eq!(disk.wwn.as_deref(), Some("0x5000c500a0b1c2d3"));
    assert_eq!(disk.serial.as_deref(), Some("ZC1"));
    assert_eq!(disk.hctl.as_deref(), Some("2:0:0:0"));
    assert_eq!(
        disk.by_path.as_deref(),
        Some("/dev/disk/by-path/pci-0000:00:1f.2-ata-3")
    );
    assert_eq!(
        (disk.tran.as_deref(), disk.model.as_str()),
        (Some("sata"), "ST4000NM0035")
    );
}

#[test]
fn a_disk_that_the_firmware_boots_from_is_known_by_its_place_alone() {
    use firstlight_efi::load_option::{DiskPath, Unit};
    const ATA: &str = "devices/pci0000:00/0000:00:1f.2/ata3/host2/target2:0:0/2:0:0:0/block/sda";
    const NVME: &str = "devices/pci0000:00/0000:00:1d.4/0000:02:00.0/nvme/nvme0/nvme0n1";
    const VIRTIO: [&str; 2] = [
        "devices/pci0000:00/0000:00:03.0/virtio1/block/vda",
        "devices/pci0000:10/0000:10:03.0/virtio2/block/vdb",
    ];
    let places = [
        ("sda", ATA),
        ("nvme0n1", NVME),
        ("vda", VIRTIO[0]),
        ("vdb", VIRTIO[1]),
    ];
    let tree = Tree::new(&[("sys/class/ata_port/ata3/port_no", "3")], &[]);
    for (name, place) in places {
        tree.file(&format!("sys/{place}/size"), b"99");
        let link = Path::new("sys/block").join(name);
        fs::create_dir_all(tree.0.path().join("sys/block")).unwrap();
        symlink(format!("../{place}"), tree.0.path().join(link)).unwrap();
    }
    tree.file(&format!("sys/{NVME}/nsid"), b"1");
    let path = |pci: &[(u8, u8)], unit| {
        let pci = pci.to_vec();
        DiskPath { pci, unit }
    };
    let order = [
        path(&[(3, 0)], Unit::Only),
        path(&[(0x1D, 4), (0, 0)], Unit::Namespace(1)),
        path(&[(0x1F, 2)], Unit::Port(5)),
        path(&[(0x1F, 2)], Unit::Port(2)),
        path(&[(0x1D, 4), (0, 0)], Unit::Namespace(1)),
    ];
    let mut disks = disks::read_disks(&tree.sys());
    boot_order::note(&tree.sys(), &mut disks, &order);
    let told: Vec<_> = disks
        .iter()
        .map(|disk| (disk.name.as_str(), disk.boot_order))
        .collect();
    let expected = [
        ("/dev/nvme0n1", Some(1)),
        ("/dev/sda", Some(3)),
        // Two roots with the same device paths.
        ("/dev/vda", None),
        ("/dev/vdb", None),
    ];
    assert_eq!(told, expected);
}

#[test]
fn a_mounted_disk_is_nobodys_target() {
    let tree = virtual_server();
    tree.file("proc/mounts", b"/dev/vda1 / ext4 rw 0 0\n");
    assert_eq!(disks::read_disks(&tree.sys()), []);
    // Another disk whose name only begins alike.
    tree.file("proc/mounts", b"/dev/vdab1 / ext4 rw 0 0\n");
    assert_eq!(disks::read_disks(&tree.sys()).len(), 1);
}

proptest! {
    #[test]
    fn any_serial_page_of_a_disk_is_read_or_left_out(
        page in proptest::collection::vec(any::<u8>(), 0..40),
        serial in "[A-Z0-9]{1,20}",
        beyond: u8,
    ) {
        let tree = virtual_server();
        let disk = tree.0.path().join("sys/block/vda");
        fs::remove_file(disk.join("serial")).unwrap();
        let serial_of = |page: &[u8]| {
            tree.file("sys/block/vda/device/vpd_pg80", page);
            disks::read_disks(&tree.sys())[0].serial.clone()
        };
        serial_of(&page);
        let length = u8::try_from(serial.len()).unwrap();
        let whole = [&[0, 0x80, 0, length], serial.as_bytes()].concat();
        prop_assert_eq!(serial_of(&whole), Some(serial));
        let longer = [&[0, 0x80, 1, beyond], &whole[4..]].concat();
        prop_assert_eq!(serial_of(&longer), None);
    }
}
