//! Partition identities from a GPT (UEFI 2.10, section 5.3): the kernel numbers partitions but does not tell their GUIDs.

/// One used entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// As the kernel counts, from 1.
    pub number: u32,
    /// Lower case, as PARTUUID is written.
    pub type_guid: String,
    pub guid: String,
}

/// Where the entries of a header are, in bytes of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Table {
    pub offset: u64,
    pub entry_bytes: usize,
    pub entries: usize,
    checksum: u32,
}

impl Table {
    pub fn bytes(&self) -> usize {
        self.entry_bytes * self.entries
    }
}

/// More than anybody uses; bounds what a damaged header can make us read.
const MAX_TABLE_BYTES: u64 = 1 << 20;

/// Reads the sector of a GPT header, primary or backup. `None` unless signature, checksum and sizes are right.
pub fn parse_header(sector: &[u8], sector_bytes: u64) -> Option<Table> {
    let length = u32_at(sector, 12)? as usize;
    if !sector.starts_with(b"EFI PART") || !(92..=sector.len()).contains(&length) {
        return None;
    }
    let mut header = sector[..length].to_vec();
    header[16..20].fill(0);
    if crc32fast::hash(&header) != u32_at(sector, 16)? {
        return None;
    }
    let entry_bytes = u32_at(sector, 84)?;
    let entries = u32_at(sector, 80)?;
    let total = u64::from(entry_bytes) * u64::from(entries);
    if entry_bytes < 128 || total > MAX_TABLE_BYTES {
        return None;
    }
    Some(Table {
        offset: u64_at(sector, 72)?.checked_mul(sector_bytes)?,
        entry_bytes: entry_bytes as usize,
        entries: entries as usize,
        checksum: u32_at(sector, 88)?,
    })
}

/// The used entries, or `None` if the bytes are not those that the header means.
pub fn parse_entries(table: &Table, bytes: &[u8]) -> Option<Vec<Entry>> {
    let bytes = bytes.get(..table.bytes())?;
    if crc32fast::hash(bytes) != table.checksum {
        return None;
    }
    let entries = bytes.chunks_exact(table.entry_bytes).zip(1..);
    let used = entries.filter(|(entry, _)| entry[..16].iter().any(|byte| *byte != 0));
    used.map(|(entry, number)| {
        Some(Entry {
            number,
            type_guid: guid(&entry[..16])?,
            guid: guid(&entry[16..32])?,
        })
    })
    .collect()
}

/// The first three fields are little-endian.
fn guid(bytes: &[u8]) -> Option<String> {
    let b: &[u8; 16] = bytes.try_into().ok()?;
    let tail = b[10..]
        .iter()
        .fold(0, |tail: u64, byte| tail << 8 | u64::from(*byte));
    let (first, second) = (u32_at(b, 0)?, u16::from_le_bytes([b[4], b[5]]));
    let (third, fourth) = (
        u16::from_le_bytes([b[6], b[7]]),
        u16::from_be_bytes([b[8], b[9]]),
    );
    Some(format!(
        "{first:08x}-{second:04x}-{third:04x}-{fourth:04x}-{tail:012x}"
    ))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The first 34 sectors of `sgdisk -n 1:2048:4095 -t 1:C12A7328-F81F-11D2-BA4B-00A0C93EC93B
    /// -u 1:00112233-4455-6677-8899-aabbccddeeff -n 4:4096:6143 -t 4:5F1A57E0-0B0C-4A5E-8D1E-F1257116A7A0
    /// -u 4:5F1A57E0-0B0C-4A5E-8D1E-0000000000A1` on 4 MiB, without the empty entries 5 to 128.
    const HEAD: &[u8] = include_bytes!("../../tests/gpt-head.bin");

    fn disk() -> Vec<u8> {
        let mut disk = HEAD.to_vec();
        disk.resize(34 * 512, 0);
        disk
    }

    fn read(disk: &[u8]) -> Option<Vec<Entry>> {
        let table = parse_header(disk.get(512..1024)?, 512)?;
        let from = usize::try_from(table.offset).unwrap();
        parse_entries(&table, disk.get(from..from + table.bytes())?)
    }

    #[test]
    fn partitions_are_found_by_number_and_guid() {
        let entries = read(&disk()).unwrap();
        assert_eq!(entries.len(), 2);
        assert_eq!(
            (entries[0].number, entries[0].type_guid.as_str()),
            (1, "c12a7328-f81f-11d2-ba4b-00a0c93ec93b")
        );
        assert_eq!(entries[0].guid, "00112233-4455-6677-8899-aabbccddeeff");
        assert_eq!(
            (entries[1].number, entries[1].guid.as_str()),
            (4, "5f1a57e0-0b0c-4a5e-8d1e-0000000000a1")
        );
    }

    #[test]
    fn one_wrong_bit_is_noticed() {
        for at in [512, 512 + 16, 512 + 80, 1024, 1024 + 40] {
            let mut disk = disk();
            disk[at] ^= 1;
            assert_eq!(read(&disk), None, "byte {at}");
        }
    }

    proptest! {
        #[test]
        fn any_header_is_answered(mut sector in proptest::collection::vec(any::<u8>(), 512), signed in any::<bool>()) {
            sector[..8].copy_from_slice(b"EFI PART");
            sector[12..16].copy_from_slice(&92u32.to_le_bytes());
            if signed {
                sector[16..20].fill(0);
                let crc = crc32fast::hash(&sector[..92]);
                sector[16..20].copy_from_slice(&crc.to_le_bytes());
            }
            if let Some(table) = parse_header(&sector, 512) {
                prop_assert!(table.bytes() <= 1 << 20);
                parse_entries(&table, &sector);
            }
        }
    }
}
