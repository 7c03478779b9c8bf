//! DOS partition tables, read and written in memory.

/// Linux, as for an ext4 partition.
const LINUX_KIND: u8 = 0x83;
const EXTENDED: [u8; 3] = [0x05, 0x0F, 0x85];
pub const GPT_KIND: u8 = 0xEE;
pub const ESP_KIND: u8 = 0xEF;

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum MbrError {
    #[error(
        "the DOS partition table has no free entry for the config drive; use an image with GPT"
    )]
    Full,
    #[error(
        "there is no room for the config drive between the last partition and the end of the disk or 2 TiB"
    )]
    NoRoom,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// From 1, as the kernel counts.
    pub number: u32,
    pub kind: u8,
    pub first_lba: u32,
    pub sectors: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mbr {
    /// The disk's signature, which a boot entry names.
    pub disk_id: u32,
    pub entries: Vec<Entry>,
}

impl Mbr {
    /// `None`: the first sector is not a table with at least one partition.
    pub fn parse(head: &[u8]) -> Option<Self> {
        if head.get(510..512)? != [0x55, 0xAA] {
            return None;
        }
        let raw: Vec<&[u8]> = head[446..510].chunks_exact(16).collect();
        // A file system's boot sector ends in the same two bytes; there these bytes are code.
        if raw.iter().any(|entry| entry[0] & 0x7F != 0) {
            return None;
        }
        let entries: Vec<Entry> = (1..)
            .zip(&raw)
            .map(|(number, entry)| Entry {
                number,
                kind: entry[4],
                first_lba: u32_at(entry, 8),
                sectors: u32_at(entry, 12),
            })
            .filter(|e| e.kind != 0 && e.sectors != 0 && e.first_lba != 0)
            .collect();
        (!entries.is_empty()).then(|| Self {
            disk_id: u32_at(head, 440),
            entries,
        })
    }

    /// Adds a primary partition of `length` bytes at the end of a disk of `size` bytes, and writes it into `head`.
    pub fn append(
        &mut self,
        head: &mut [u8],
        sector: u64,
        size: u64,
        length: u64,
    ) -> Result<Entry, MbrError> {
        let number = (1..=4)
            .find(|n| self.entries.iter().all(|e| e.number != *n))
            .ok_or(MbrError::Full)?;
        let used = self
            .entries
            .iter()
            .map(|e| u64::from(e.first_lba) + u64::from(e.sectors))
            .max()
            .unwrap_or(0);
        // LBAs are 32 bits wide.
        let end = size.min(u64::from(u32::MAX) * sector);
        let start = end.checked_sub(length).ok_or(MbrError::NoRoom)? / (1 << 20) * (1 << 20);
        if start < used.max(1) * sector {
            return Err(MbrError::NoRoom);
        }
        let lba = |bytes: u64| u32::try_from(bytes / sector).map_err(|_| MbrError::NoRoom);
        let entry = Entry {
            number,
            kind: LINUX_KIND,
            first_lba: lba(start)?,
            sectors: lba(length)?,
        };
        let place = 446 + 16 * (number as usize - 1);
        let raw = &mut head[place..place + 16];
        raw.fill(0);
        // Cylinder, head and sector say "see the LBA".
        raw[1..4].copy_from_slice(&[0xFE, 0xFF, 0xFF]);
        raw[4] = LINUX_KIND;
        raw[5..8].copy_from_slice(&[0xFE, 0xFF, 0xFF]);
        raw[8..12].copy_from_slice(&entry.first_lba.to_le_bytes());
        raw[12..16].copy_from_slice(&entry.sectors.to_le_bytes());
        self.entries.push(entry);
        Ok(entry)
    }

    /// Partitions that hold a file system.
    pub fn plain(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|e| !EXTENDED.contains(&e.kind))
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn table(entries: &[(u8, u32, u32)]) -> Vec<u8> {
        let mut head = vec![0; 1 << 20];
        head[440..444].copy_from_slice(&0x1234_5678_u32.to_le_bytes());
        for (index, (kind, first, sectors)) in entries.iter().enumerate() {
            let at = 446 + 16 * index;
            head[at + 4] = *kind;
            head[at + 8..at + 12].copy_from_slice(&first.to_le_bytes());
            head[at + 12..at + 16].copy_from_slice(&sectors.to_le_bytes());
        }
        head[510..512].copy_from_slice(&[0x55, 0xAA]);
        head
    }

    #[test]
    fn the_config_drive_is_a_primary_partition_at_the_end() {
        let mut head = table(&[(0x83, 2048, 4096)]);
        let mut mbr = Mbr::parse(&head).expect("a table");
        assert_eq!(mbr.disk_id, 0x1234_5678);
        let entry = mbr.append(&mut head, 512, 200 << 20, 64 << 20);
        let wanted = Entry {
            number: 2,
            kind: 0x83,
            first_lba: 136 << 11,
            sectors: 64 << 11,
        };
        assert_eq!(entry, Ok(wanted));
        assert_eq!(Mbr::parse(&head), Some(mbr));
    }

    #[test]
    fn a_large_disk_gets_it_below_two_tebibytes_and_a_full_one_not_at_all() {
        let mut head = table(&[(0x83, 2048, 4096)]);
        let mut mbr = Mbr::parse(&head).expect("a table");
        let entry = mbr.append(&mut head, 512, 8 << 40, 64 << 20).expect("room");
        assert!(u64::from(entry.first_lba) + u64::from(entry.sectors) <= 1 << 32);
        let mut full = table(&[
            (0x83, 2048, 8),
            (0x83, 4096, 8),
            (0x83, 8192, 8),
            (0x05, 9000, 8),
        ]);
        let mut mbr = Mbr::parse(&full).expect("a table");
        assert_eq!(
            mbr.append(&mut full, 512, 8 << 30, 64 << 20),
            Err(MbrError::Full)
        );
        assert_eq!(mbr.plain().count(), 3);
        let mut tight = table(&[(0x83, 2048, 300 << 11)]);
        let mut mbr = Mbr::parse(&tight).expect("a table");
        assert_eq!(
            mbr.append(&mut tight, 512, 320 << 20, 64 << 20),
            Err(MbrError::NoRoom)
        );
    }

    #[test]
    fn boot_code_of_a_file_system_is_no_table() {
        let mut head = table(&[]);
        assert_eq!(Mbr::parse(&head), None);
        head[446..510].fill(0x41);
        assert_eq!(Mbr::parse(&head), None);
    }

    proptest! {
        #[test]
        fn any_first_sector_is_a_table_or_none_and_what_is_added_lies_behind_the_others(
            mut head in proptest::collection::vec(any::<u8>(), 512),
            active in any::<[bool; 4]>(),
            size in 0..(16_u64 << 40),
            length in 1..(1_u64 << 30),
        ) {
            Mbr::parse(&head);
            head[510..].copy_from_slice(&[0x55, 0xAA]);
            for (index, active) in active.into_iter().enumerate() {
                head[446 + 16 * index] = u8::from(active) << 7;
            }
            let Some(mut mbr) = Mbr::parse(&head) else { return Ok(()) };
            let before = mbr.entries.clone();
            let Ok(added) = mbr.append(&mut head, 512, size, length) else { return Ok(()) };
            let end = |entry: &Entry| u64::from(entry.first_lba) + u64::from(entry.sectors);
            prop_assert!(end(&added) * 512 <= size);
            prop_assert!(before.iter().all(|entry| end(entry) <= u64::from(added.first_lba)));
            prop_assert!(before.iter().all(|entry| entry.number != added.number));
        }
    }
}
