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
    let length = usize::from(u16::from_le_bytes([*data.get(4)?, *data.get(5)?]));
    let name = data
        .get(6..)?
        .chunks_exact(2)
        .position(|unit| unit == [0, 0])?;
    let start = 6 + (name + 1) * 2;
    let mut rest = data.get(start..start + length)?;
    let (mut mac, mut ipv4) = (None, false);
    while let &[kind, subtype, low, high, ..] = rest {
        let length = usize::from(u16::from_le_bytes([low, high])).max(4);
        let node = rest.get(4..length)?;
        match (kind, subtype) {
            // Messaging device path, MAC address (section 10.3.4.11) and IPv4 (10.3.4.12).
            (3, 11) => mac = node.first_chunk().copied(),
            (3, 12) => ipv4 = true,
            _ => {}
        }
        rest = rest.get(length..)?;
    }
    mac.map(|mac| NetworkPath { mac, ipv4 })
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

    proptest! {
        #[test]
        fn any_bytes_can_be_read_as_a_load_option(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            at in 0_usize..200,
            value: u8,
        ) {
            description(&bytes);
            network_path(&bytes);
            let mut option = network_option([2, 0, 0, 0, 0, 1], 4);
            let at = at % option.len();
            option[at] = value;
            network_path(&option);
            network_path(&option[..at]);
        }
    }
}
