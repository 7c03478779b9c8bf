//! Which disks the firmware boots from, by where they are plugged in.

use firstlight_api::disk::Disk;
use firstlight_efi::load_option::{DiskPath, Unit};

use super::disks::is_pci_address;
use super::sys::SysTree;

/// Notes the place in `order`, the firmware's, of each disk that its device path names, and no other with it.
pub fn note(sys: &SysTree, disks: &mut [Disk], order: &[DiskPath]) {
    let units: Vec<Option<DiskPath>> = disks.iter().map(|disk| place(sys, disk)).collect();
    for (number, path) in (0..).zip(order) {
        let mut named = disks.iter_mut().zip(&units);
        let mut named = named
            .by_ref()
            .filter(|(_, unit)| unit.as_ref() == Some(path));
        if let (Some((disk, _)), None) = (named.next(), named.next()) {
            disk.boot_order.get_or_insert(number);
        }
    }
}

fn place(sys: &SysTree, disk: &Disk) -> Option<DiskPath> {
    let name = disk.name.strip_prefix("/dev/")?;
    let place = sys.canonical(&format!("/sys/block/{name}"));
    let addresses = place.iter().filter(|part| is_pci_address(part));
    let pci = addresses.map(|address| device_and_function(address));
    let unit = match disk.tran.as_deref() {
        Some("nvme") => {
            let namespace = sys.number(&format!("/sys/block/{name}/nsid"))?;
            Unit::Namespace(u32::try_from(namespace).ok()?)
        }
        Some("sata") => {
            let is_port = |part: &&String| {
                let number = part.strip_prefix("ata");
                number.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
            };
            let port = place.iter().find(is_port)?;
            let number = sys.number(&format!("/sys/class/ata_port/{port}/port_no"))?;
            // The kernel counts from 1.
            Unit::Port(u16::try_from(number.checked_sub(1)?).ok()?)
        }
        _ => match &disk.hctl {
            Some(hctl) => {
                let mut numbers = hctl.split(':').skip(2).map(str::parse);
                Unit::Target(numbers.next()?.ok()?, numbers.next()?.ok()?)
            }
            None if disk.tran.as_deref() == Some("virtio") => Unit::Only,
            None => return None,
        },
    };
    Some(DiskPath {
        pci: pci.collect::<Option<_>>()?,
        unit,
    })
}

/// `0000:00:1f.2`
fn device_and_function(address: &str) -> Option<(u8, u8)> {
    let (device, function) = address.rsplit(':').next()?.split_once('.')?;
    let number = |digits| u8::from_str_radix(digits, 16).ok();
    Some((number(device)?, number(function)?))
}
