//! Maker and installed memory from SMBIOS (DMTF DSP0134).

use serde::Serialize;

use super::sys::SysTree;

const MEMORY_DEVICE: u8 = 17;

/// In ironic-python-agent's field names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SystemVendor {
    pub product_name: Option<String>,
    pub serial_number: Option<String>,
    pub manufacturer: Option<String>,
    pub firmware: Firmware,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Firmware {
    pub vendor: Option<String>,
    pub version: Option<String>,
    pub build_date: Option<String>,
}

pub fn read_vendor(sys: &SysTree) -> SystemVendor {
    let text = |file: &str| sys.text(&format!("/sys/class/dmi/id/{file}"));
    SystemVendor {
        product_name: text("product_name"),
        serial_number: text("product_serial"),
        manufacturer: text("sys_vendor"),
        firmware: Firmware {
            vendor: text("bios_vendor"),
            version: text("bios_version"),
            build_date: text("bios_date"),
        },
    }
}

/// Sum of all memory modules (structure type 17) in MiB; 0 when the table has none.
pub fn installed_memory_mb(table: &[u8]) -> u64 {
    structures(table)
        .filter(|(kind, _)| *kind == MEMORY_DEVICE)
        .map(|(_, data)| module_mb(data))
        .sum()
}

/// Offset 0x0C: size in MiB, or in KiB with bit 15; 0x7FFF: see 0x1C; 0xFFFF: unknown; 0: empty slot.
fn module_mb(data: &[u8]) -> u64 {
    let word = |at: usize| Some(u16::from_le_bytes([*data.get(at)?, *data.get(at + 1)?]));
    match word(0x0C) {
        None | Some(0xFFFF) => 0,
        Some(0x7FFF) => match (word(0x1C), word(0x1E)) {
            (Some(low), Some(high)) => u64::from(low) | u64::from(high & 0x7FFF) << 16,
            _ => 0,
        },
        Some(size) if size & 0x8000 != 0 => u64::from(size & 0x7FFF) / 1024,
        Some(size) => u64::from(size),
    }
}

/// Type and formatted part of each structure. A formatted part is followed by strings that end in two NULs.
fn structures(mut table: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    std::iter::from_fn(move || {
        let (kind, length) = (*table.first()?, usize::from(*table.get(1)?));
        if length < 4 || kind == 127 {
            return None;
        }
        let data = table.get(..length)?;
        let strings = &table[length..];
        let end = strings.windows(2).position(|pair| pair == [0, 0]);
        table = end.map_or(&[], |at| &strings[at + 2..]);
        Some((kind, data))
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A memory device as SMBIOS 2.8 lays it out, with two strings.
    fn module(size: u16, extended: u32) -> Vec<u8> {
        let mut data = vec![0_u8; 0x28];
        data[0] = MEMORY_DEVICE;
        data[1] = 0x28;
        data[0x0C..0x0E].copy_from_slice(&size.to_le_bytes());
        data[0x1C..0x20].copy_from_slice(&extended.to_le_bytes());
        data.extend_from_slice(b"DIMM 0\0BANK 0\0\0");
        data
    }

    #[test]
    fn modules_of_every_way_to_write_a_size_add_up() {
        // Type 0 without strings comes first: its two NULs follow at once.
        let mut table = vec![0, 4, 0, 0, 0, 0];
        for part in [
            module(2048, 0),
            module(0, 0),
            module(0xFFFF, 0),
            module(0x7FFF, 65536),
            module(0x8000 | 4096, 0),
        ] {
            table.extend(part);
        }
        table.extend([127, 4, 0, 0, 0, 0]);
        assert_eq!(installed_memory_mb(&table), 2048 + 65536 + 4);
    }

    proptest! {
        #[test]
        fn any_table_can_be_read(table in proptest::collection::vec(any::<u8>(), 0..400)) {
            installed_memory_mb(&table);
        }
    }
}
