//! `EFI_LOAD_OPTION` (UEFI specification 2.10, section 3.1.3) for a file on a hard disk.

use uuid::Uuid;

/// `LOAD_OPTION_ACTIVE`
const ACTIVE: u32 = 1;

/// How a device path names a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HardDrive {
    /// Partition Number: counted from 1, as in the partition table.
    pub number: u32,
    /// Partition Start: its first block, in logical blocks of the disk.
    pub first_lba: u64,
    /// Partition Size, in logical blocks of the disk.
    pub sectors: u64,
    /// Partition Signature, Partition Format and Signature Type.
    pub id: PartitionId,
}

/// By what the firmware finds the partition, also when its disk is plugged in elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartitionId {
    /// `UniquePartitionGUID` of the partition's entry in the GPT.
    Gpt(Uuid),
    /// Signature of the disk.
    Mbr(u32),
}

/// The variable's data. `path` is the file on the partition, with backslashes.
pub fn encode(description: &str, drive: &HardDrive, path: &str) -> Vec<u8> {
    let mut device = hard_drive(drive);
    device.extend(file_path(path));
    device.extend([0x7F, 0xFF, 4, 0]);
    let mut data = ACTIVE.to_le_bytes().to_vec();
    data.extend(
        u16::try_from(device.len())
            .unwrap_or(u16::MAX)
            .to_le_bytes(),
    );
    data.extend(utf16z(description));
    data.extend(device);
    data
}

/// The description of any load option.
pub fn description(data: &[u8]) -> Option<String> {
    let units: Vec<u16> = data
        .get(6..)?
        .chunks_exact(2)
        .map(|pair| u16::from_le_bytes([pair[0], pair[1]]))
        .take_while(|unit| *unit != 0)
        .collect();
    String::from_utf16(&units).ok()
}

/// What a load option that boots from the network says about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetworkPath {
    /// Of the NIC that it boots from.
    pub mac: [u8; 6],
    /// Its device path has a node for IPv4; IPv6, and anything else, is `false`.
    pub ipv4: bool,
}

/// `None` for a load option that boots from something else.
pub fn network_path(data: &[u8]) -> Option<NetworkPath> {
    let (mut mac, mut ipv4) = (None, false);
    for node in nodes(data)? {
        match node {
            // Messaging device path, MAC address (section 10.3.4.11) and IPv4 (10.3.4.12).
            (3, 11, node) => mac = node.first_chunk().copied(),
            (3, 12, _) => ipv4 = true,
            _ => {}
        }
    }
    mac.map(|mac| NetworkPath { mac, ipv4 })
}

/// Where a disk is plugged in, as a device path says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskPath {
    /// Device and function of each bridge on the way from the root, and of the controller.
    pub pci: Vec<(u8, u8)>,
    /// Which of the controller's disks.
    pub unit: Unit,
}

/// One of a controller's disks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// It has no other, as with virtio.
    Only,
    /// `NVMe` namespace.
    Namespace(u32),
    /// SATA port, counted from 0.
    Port(u16),
    /// SCSI target and LUN.
    Target(u16, u16),
}

/// What a load option boots, as far as disks go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Boots {
    /// This disk, or a file on it.
    Disk(DiskPath),
    /// A partition, wherever its disk is: only the disk itself can tell.
    Partition,
    /// The network, a stick, a program of the firmware, or it is switched off.
    Other,
}

/// What a load option boots.
pub fn boots(data: &[u8]) -> Boots {
    let is_active = data
        .first()
        .is_some_and(|flags| u32::from(flags & 1) == ACTIVE);
    let Some(nodes) = nodes(data).filter(|_| is_active) else {
        return Boots::Other;
    };
    let short = |bytes: &[u8], at: usize| {
        let bytes = bytes.get(at..at + 2)?;
        Some(u16::from_le_bytes([bytes[0], bytes[1]]))
    };
    // ACPI (section 10.3.3): the root of a PCI bus.
    let mut nodes = nodes.into_iter();
    match nodes.next() {
        Some((2, 1, _)) => {}
        Some((4, 1, _)) => return Boots::Partition,
        _ => return Boots::Other,
    }
    let (mut pci, mut unit) = (Vec::new(), Some(Unit::Only));
    for node in nodes {
        match node {
            // Hardware, PCI (section 10.3.2.1).
            (1, 1, &[function, device]) => pci.push((device, function)),
            // Messaging (section 10.3.4): SCSI, SATA, NVMe.
            (3, 2, node) => {
                let target = short(node, 0).zip(short(node, 2));
                unit = target.map(|(target, lun)| Unit::Target(target, lun));
            }
            (3, 18, node) => unit = short(node, 0).map(Unit::Port),
            (3, 23, node) => {
                let namespace = node.first_chunk().copied();
                unit = namespace.map(|bytes| Unit::Namespace(u32::from_le_bytes(bytes)));
            }
            // Media: a partition of the disk, a file there, the end.
            (4, 1 | 4, _) | (0x7F, ..) => {}
            _ => return Boots::Other,
        }
    }
    match unit.filter(|_| !pci.is_empty()) {
        Some(unit) => Boots::Disk(DiskPath { pci, unit }),
        None => Boots::Other,
    }
}

/// Type, subtype and data of each node of the device path; `None` if it is cut off.
fn nodes(data: &[u8]) -> Option<Vec<(u8, u8, &[u8])>> {
    let length = usize::from(u16::from_le_bytes([*data.get(4)?, *data.get(5)?]));
    let name = data
        .get(6..)?
        .chunks_exact(2)
        .position(|unit| unit == [0, 0])?;
    let start = 6 + (name + 1) * 2;
    let mut rest = data.get(start..start + length)?;
    let mut nodes = Vec::new();
    while let &[kind, subtype, low, high, ..] = rest {
        let length = usize::from(u16::from_le_bytes([low, high])).max(4);
        nodes.push((kind, subtype, rest.get(4..length)?));
        rest = rest.get(length..)?;
    }
    Some(nodes)
}

/// Media device path, hard drive (section 10.3.5.1).
fn hard_drive(drive: &HardDrive) -> Vec<u8> {
    let mut node = vec![4, 1, 42, 0];
    node.extend(drive.number.to_le_bytes());
    node.extend(drive.first_lba.to_le_bytes());
    node.extend(drive.sectors.to_le_bytes());
    let (signature, format, kind) = match drive.id {
        PartitionId::Gpt(id) => (id.to_bytes_le(), 2, 2),
        PartitionId::Mbr(id) => {
            let mut signature = [0; 16];
            signature[..4].copy_from_slice(&id.to_le_bytes());
            (signature, 1, 1)
        }
    };
    node.extend(signature);
    node.extend([format, kind]);
    node
}

/// Media device path, file path (section 10.3.5.4).
fn file_path(path: &str) -> Vec<u8> {
    let name = utf16z(path);
    let mut node = vec![4, 4];
    node.extend(
        u16::try_from(name.len() + 4)
            .unwrap_or(u16::MAX)
            .to_le_bytes(),
    );
    node.extend(name);
    node
}

fn utf16z(text: &str) -> Vec<u8> {
    text.encode_utf16()
        .chain([0])
        .flat_map(u16::to_le_bytes)
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_golden_entry_of_a_debian_shim() {
        let drive = HardDrive {
            number: 15,
            first_lba: 8192,
            sectors: 253_952,
            id: PartitionId::Gpt(Uuid::from_u128(0x6FE5_9A7E_F1A0_4E2B_9C3D_0102_0304_0506)),
        };
        let data = encode("Fl", &drive, r"\EFI\a.efi");
        #[rustfmt::skip]
        let golden: &[u8] = &[
            1, 0, 0, 0, 0x48, 0, b'F', 0, b'l', 0, 0, 0,
            4, 1, 42, 0, 15, 0, 0, 0, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0xE0, 3, 0, 0, 0, 0, 0,
            0x7E, 0x9A, 0xE5, 0x6F, 0xA0, 0xF1, 0x2B, 0x4E, 0x9C, 0x3D, 1, 2, 3, 4, 5, 6, 2, 2,
            4, 4, 26, 0, b'\\', 0, b'E', 0, b'F', 0, b'I', 0, b'\\', 0, b'a', 0, b'.', 0, b'e', 0, b'f', 0, b'i', 0, 0, 0,
            0x7F, 0xFF, 4, 0,
        ];
        assert_eq!(data, golden);
        assert_eq!(description(&data).as_deref(), Some("Fl"));
        assert_eq!(description(&[1, 2]), None);
    }

    /// `PciRoot(0x0)/Pci(0x2,0x0)/MAC(...)/IPv4(...)` as OVMF writes it.
    fn network_option(mac: [u8; 6], version: u8) -> Vec<u8> {
        let mut path = vec![
            2, 1, 12, 0, 0xD0, 0x41, 3, 0x0A, 0, 0, 0, 0, 1, 1, 6, 0, 0, 2,
        ];
        path.extend([3, 11, 37, 0]);
        path.extend(mac);
        path.extend([0; 26]);
        path.push(1);
        path.extend([3, if version == 4 { 12 } else { 13 }, 27, 0]);
        path.extend([0; 23]);
        path.extend([0x7F, 0xFF, 4, 0]);
        let mut data = ACTIVE.to_le_bytes().to_vec();
        data.extend(u16::try_from(path.len()).unwrap_or_default().to_le_bytes());
        data.extend(utf16z("UEFI PXEv4"));
        data.extend(path);
        // Optional data of the firmware, which is no device path.
        data.extend([0x4E, 0xAC, 8, 0x81]);
        data
    }

    #[test]
    fn a_network_entry_is_known_by_its_device_path() {
        let mac = [0x52, 0x54, 0, 0, 0, 7];
        for version in [4, 6] {
            assert_eq!(
                network_path(&network_option(mac, version)),
                Some(NetworkPath {
                    mac,
                    ipv4: version == 4
                })
            );
        }
        let whole = network_option(mac, 4);
        for cut in 0..whole.len() - 4 {
            assert_eq!(network_path(&whole[..cut]), None, "cut at {cut}");
        }
    }

    fn option(path: &[&[u8]]) -> Vec<u8> {
        let path = [&path.concat()[..], &[0x7F, 0xFF, 4, 0]].concat();
        let mut data = ACTIVE.to_le_bytes().to_vec();
        data.extend(u16::try_from(path.len()).unwrap_or_default().to_le_bytes());
        data.extend(utf16z("UEFI disk"));
        data.extend(path);
        data
    }

    #[test]
    fn a_disk_is_known_by_where_it_is_plugged_in() {
        let root: &[u8] = &[2, 1, 12, 0, 0xD0, 0x41, 3, 0x0A, 0, 0, 0, 0];
        let pci = |device: u8, function: u8| [1, 1, 6, 0, function, device];
        let (bridge, nvme) = (pci(0x1D, 4), pci(0, 0));
        let nvme_node: &[u8] = &[3, 23, 16, 0, 1, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
        let (ahci, sata): (_, &[u8]) = (pci(0x1F, 2), &[3, 18, 10, 0, 2, 0, 0xFF, 0xFF, 0, 0]);
        let (hba, scsi): (_, &[u8]) = (pci(3, 0), &[3, 2, 8, 0, 5, 0, 1, 0]);
        let drive = HardDrive {
            number: 1,
            first_lba: 2048,
            sectors: 8192,
            id: PartitionId::Mbr(7),
        };
        let (hard_drive, usb) = (hard_drive(&drive), [3, 5, 6, 0, 1, 0]);
        let disk = |pci: &[(u8, u8)], unit| {
            let pci = pci.to_vec();
            Boots::Disk(DiskPath { pci, unit })
        };
        for (path, boots_from) in [
            (
                vec![root, &bridge, &nvme, nvme_node],
                disk(&[(0x1D, 4), (0, 0)], Unit::Namespace(1)),
            ),
            (vec![root, &ahci, sata], disk(&[(0x1F, 2)], Unit::Port(2))),
            (
                vec![root, &ahci, sata, &hard_drive, &file_path("a")],
                disk(&[(0x1F, 2)], Unit::Port(2)),
            ),
            (vec![root, &hba, scsi], disk(&[(3, 0)], Unit::Target(5, 1))),
            (vec![root, &hba], disk(&[(3, 0)], Unit::Only)),
            (vec![root, &hba, &usb], Boots::Other),
            (vec![root], Boots::Other),
            (vec![&hard_drive, &file_path("a")], Boots::Partition),
            // A program of the firmware.
            (
                vec![&[4, 7, 20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]],
                Boots::Other,
            ),
        ] {
            let mut data = option(&path);
            assert_eq!(boots(&data), boots_from, "{path:x?}");
            data[0] = 0;
            assert_eq!(boots(&data), Boots::Other, "it is switched off");
        }
        assert_eq!(boots(&network_option([2; 6], 4)), Boots::Other);
    }

    proptest! {
        #[test]
        fn any_bytes_can_be_read_as_a_load_option(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            at in 0_usize..200,
            value: u8,
        ) {
            description(&bytes);
            network_path(&bytes);
            boots(&bytes);
            let mut option = network_option([2, 0, 0, 0, 0, 1], 4);
            let at = at % option.len();
            option[at] = value;
            network_path(&option);
            boots(&option);
            network_path(&option[..at]);
        }
    }
}
