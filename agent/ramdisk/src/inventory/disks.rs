//! Disks that an operating system can be installed on, from `/sys/block`.

use firstlight_api::disk::Disk;
use firstlight_api::disk::identity::{serial_of_page, world_wide_name};

use super::sys::SysTree;

/// Kernel names that are never a server's disk: memory, optical, and disks made of other disks.
const NOT_DISKS: [&str; 9] = [
    "loop", "ram", "zram", "sr", "fd", "dm-", "md", "nbd", "mtdblock",
];

/// All disks, sorted by name.
pub fn read_disks(sys: &SysTree) -> Vec<Disk> {
    let mounts = sys.text("/proc/mounts").unwrap_or_default();
    sys.names("/sys/block")
        .iter()
        .filter(|name| !NOT_DISKS.iter().any(|prefix| name.starts_with(prefix)))
        .filter(|name| !(name.starts_with("mmcblk") && name.contains("boot")))
        .filter(|name| !is_mounted(&mounts, name))
        .filter_map(|name| read_disk(sys, name))
        .collect()
}

fn read_disk(sys: &SysTree, name: &str) -> Option<Disk> {
    let dir = format!("/sys/block/{name}");
    let is_set = |file: &str| sys.number(&format!("{dir}/{file}")) == Some(1);
    // `hidden` marks one path of a multipath NVMe disk.
    if is_set("removable") || is_set("ro") || is_set("hidden") {
        return None;
    }
    // The kernel counts in 512 bytes whatever the sector is.
    let size = sys.number(&format!("{dir}/size"))?.checked_mul(512)?;
    if size == 0 {
        return None;
    }
    let text = |file: &str| sys.text(&format!("{dir}/{file}"));
    let wwid = text("wwid").or_else(|| text("device/wwid"));
    let (wwn, with_extension, extension) = world_wide_name(wwid.as_deref());
    let place = sys.canonical(&dir);
    let tran = transport(name, &place);
    Some(Disk {
        name: format!("/dev/{name}"),
        model: text("device/model").unwrap_or_default(),
        size,
        rotational: is_set("queue/rotational"),
        wwn,
        serial: serial(sys, &dir),
        vendor: text("device/vendor").filter(|v| !v.starts_with("0x")),
        wwn_with_extension: with_extension,
        wwn_vendor_extension: extension,
        hctl: sys
            .link_name(&format!("{dir}/device"))
            .filter(|n| is_hctl(n)),
        by_path: by_path(sys, name, &place),
        logical_sectors: sys.number(&format!("{dir}/queue/logical_block_size")),
        physical_sectors: sys.number(&format!("{dir}/queue/physical_block_size")),
        tran: tran.map(str::to_owned),
        boot_order: None,
    })
}

fn is_mounted(mounts: &str, name: &str) -> bool {
    let disk = format!("/dev/{name}");
    mounts.lines().any(|line| {
        let source = line.split_whitespace().next().unwrap_or_default();
        source.strip_prefix(disk.as_str()).is_some_and(|rest| {
            // `/dev/sda1` is of sda, `/dev/sdaa` is not.
            rest.trim_start_matches('p')
                .bytes()
                .all(|b| b.is_ascii_digit())
        })
    })
}

fn serial(sys: &SysTree, dir: &str) -> Option<String> {
    let plain = [format!("{dir}/serial"), format!("{dir}/device/serial")];
    plain
        .iter()
        .find_map(|path| sys.text(path))
        .or_else(|| serial_of_page(&sys.bytes(&format!("{dir}/device/vpd_pg80"))?))
}

fn is_hctl(name: &str) -> bool {
    let parts: Vec<&str> = name.split(':').collect();
    parts.len() == 4
        && parts
            .iter()
            .all(|p| !p.is_empty() && p.bytes().all(|b| b.is_ascii_digit()))
}

fn transport(name: &str, place: &[String]) -> Option<&'static str> {
    let has = |prefix: &str| {
        place.iter().any(|part| {
            part.strip_prefix(prefix)
                .is_some_and(|r| r.starts_with(|c: char| c.is_ascii_digit()))
        })
    };
    if name.starts_with("nvme") {
        Some("nvme")
    } else if name.starts_with("mmcblk") {
        Some("mmc")
    } else if has("usb") {
        Some("usb")
    } else if has("ata") {
        Some("sata")
    } else if has("end_device-") {
        Some("sas")
    } else if has("rport-") {
        Some("fc")
    } else if has("virtio") {
        Some("virtio")
    } else {
        None
    }
}

/// udev's `by-path` name where it follows from the place alone: virtio, `NVMe` and SATA on PCI.
fn by_path(sys: &SysTree, name: &str, place: &[String]) -> Option<String> {
    let pci = place.iter().rev().find(|part| is_pci_address(part))?;
    let tail = match transport(name, place)? {
        "virtio" if name.starts_with("vd") => String::new(),
        "nvme" => format!(
            "-nvme-{}",
            sys.number(&format!("/sys/block/{name}/nsid")).unwrap_or(1)
        ),
        "sata" => {
            let port = place.iter().find(|part| {
                part.strip_prefix("ata")
                    .is_some_and(|n| n.bytes().all(|b| b.is_ascii_digit()))
            })?;
            format!(
                "-ata-{}",
                sys.number(&format!("/sys/class/ata_port/{port}/port_no"))?
            )
        }
        _ => return None,
    };
    Some(format!("/dev/disk/by-path/pci-{pci}{tail}"))
}

/// `0000:00:1f.2`
pub fn is_pci_address(text: &str) -> bool {
    let parts: Vec<&str> = text.split([':', '.']).collect();
    let lengths: Vec<usize> = parts.iter().map(|p| p.len()).collect();
    lengths == [4, 2, 2, 1]
        && parts
            .iter()
            .all(|p| p.bytes().all(|b| b.is_ascii_hexdigit()))
}
