//! GUID partition tables (UEFI specification 2.10, chapter 5), read and written in memory.
//!
//! Must not: touch a disk. The first MiB of a disk goes in, the changed MiB and the backup at the disk's end come out.

use uuid::Uuid;

pub const ESP_TYPE: Uuid = Uuid::from_u128(0xC12A_7328_F81F_11D2_BA4B_00A0_C93E_C93B);
pub const LINUX_TYPE: Uuid = Uuid::from_u128(0x0FC6_3DAF_8483_4772_8E79_3D69_D847_7DE4);

const SIGNATURE: &[u8; 8] = b"EFI PART";
const HEADER: usize = 92;
/// The specification's smallest table, which everybody uses.
const TABLE_BYTES: usize = 16384;

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum GptError {
    #[error("the partition table's header is damaged ({0})")]
    Header(&'static str),
    #[error("the partition table's entries are damaged")]
    Entries,
    #[error("the partition table lies outside of the image's first MiB")]
    Place,
    #[error("all {0} entries of the partition table are in use")]
    Full(usize),
    #[error(
        "{wanted} bytes are wanted at the end of the disk, and the last partition leaves {free}"
    )]
    NoRoom { wanted: u64, free: u64 },
    #[error("the disk is smaller than its partitions")]
    Small,
    #[error("the first partition begins where a table in sectors of {0} bytes would be")]
    Head(u64),
}

/// One partition; bytes are `sector` times the LBAs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// From 1, as the kernel counts.
    pub number: u32,
    pub kind: Uuid,
    pub id: Uuid,
    pub first_lba: u64,
    /// Inclusive.
    pub last_lba: u64,
    pub name: String,
}

/// A valid table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpt {
    sector: u64,
    header: Vec<u8>,
    entries: Vec<u8>,
    entry_size: usize,
}

impl Gpt {
    /// Reads the primary table from the first bytes of a disk. `Ok(None)`: there is none.
    pub fn parse(head: &[u8], sector: u64) -> Result<Option<Self>, GptError> {
        let at = usize_of(sector);
        let Some(header) = head
            .get(at..at + HEADER)
            .filter(|h| h.starts_with(SIGNATURE))
        else {
            return Ok(None);
        };
        let mut header = header.to_vec();
        let stored = u32_at(&header, 16);
        if u32_at(&header, 12) != 92 {
            return Err(GptError::Header("its size"));
        }
        header[16..20].fill(0);
        if crc32fast::hash(&header) != stored {
            return Err(GptError::Header("its checksum"));
        }
        let (count, entry_size) = (
            usize_of(u32_at(&header, 80).into()),
            usize_of(u32_at(&header, 84).into()),
        );
        if !(128..=4096).contains(&entry_size) || !(1..=1024).contains(&count) {
            return Err(GptError::Header("its number of entries"));
        }
        let start = u64_at(&header, 72)
            .checked_mul(sector)
            .ok_or(GptError::Place)?;
        let start = usize::try_from(start).map_err(|_| GptError::Place)?;
        // In front of that are the protective MBR and the header.
        if start < 2 * at {
            return Err(GptError::Place);
        }
        let entries = start
            .checked_add(count * entry_size)
            .and_then(|end| head.get(start..end));
        let entries = entries.ok_or(GptError::Place)?.to_vec();
        if crc32fast::hash(&entries) != u32_at(&header, 88) {
            return Err(GptError::Entries);
        }
        let table = Self {
            sector,
            header,
            entries,
            entry_size,
        };
        let is_sound = |p: &Partition| p.first_lba <= p.last_lba && p.last_lba < u64::MAX / sector;
        if !table.partitions().iter().all(is_sound) {
            return Err(GptError::Entries);
        }
        Ok(Some(table))
    }

    pub fn disk_id(&self) -> Uuid {
        guid_at(&self.header, 56)
    }

    /// The disk and its partitions are no others from now on.
    pub fn renew_ids(&mut self, new_id: &mut dyn FnMut() -> Uuid) {
        self.header[56..72].copy_from_slice(&new_id().to_bytes_le());
        for entry in self.entries.chunks_exact_mut(self.entry_size) {
            if !guid_at(entry, 0).is_nil() {
                entry[16..32].copy_from_slice(&new_id().to_bytes_le());
            }
        }
    }

    pub fn partitions(&self) -> Vec<Partition> {
        self.entries
            .chunks_exact(self.entry_size)
            .enumerate()
            .filter(|(_, entry)| !guid_at(entry, 0).is_nil())
            .map(|(index, entry)| Partition {
                number: u32::try_from(index + 1).unwrap_or(u32::MAX),
                kind: guid_at(entry, 0),
                id: guid_at(entry, 16),
                first_lba: u64_at(entry, 32),
                last_lba: u64_at(entry, 40),
                name: name_of(&entry[56..128]),
            })
            .collect()
    }

    /// The same partitions, counted in sectors of another size; what is not at whole ones of them is rounded down.
    pub fn with_sectors_of(&self, sector: u64) -> Result<Self, GptError> {
        let mut table = Self {
            sector,
            ..self.clone()
        };
        for (entry, partition) in table
            .entries
            .chunks_exact_mut(self.entry_size)
            .filter(|entry| !guid_at(entry, 0).is_nil())
            .zip(self.partitions())
        {
            let (start, end) = (partition.first_lba, partition.last_lba + 1);
            put_u64(entry, 32, start * self.sector / sector);
            let end = end * self.sector / sector;
            put_u64(entry, 40, end.saturating_sub(1));
        }
        let first_usable = 2 + table.table_sectors();
        let partitions = table.partitions();
        if partitions.iter().any(|p| p.first_lba < first_usable) {
            return Err(GptError::Head(sector));
        }
        for (place, lba) in [(24, 1), (40, first_usable), (72, 2)] {
            put_u64(&mut table.header, place, lba);
        }
        Ok(table)
    }

    /// Takes the primary table out of the first bytes of the disk.
    pub fn erase_head(&self, head: &mut [u8]) {
        let start = usize_of(u64_at(&self.header, 72) * self.sector);
        head[start..start + self.entries.len()].fill(0);
        let at = usize_of(self.sector);
        head[at..2 * at].fill(0);
    }

    /// Moves the end of the table to the end of a disk of `size` bytes.
    pub fn resize(&mut self, size: u64) -> Result<(), GptError> {
        let sectors = size / self.sector;
        let table = self.table_sectors();
        let last_usable = sectors.checked_sub(table + 2).ok_or(GptError::Small)?;
        if self.partitions().iter().any(|p| p.last_lba > last_usable) {
            return Err(GptError::Small);
        }
        put_u64(&mut self.header, 32, sectors - 1);
        put_u64(&mut self.header, 48, last_usable);
        Ok(())
    }

    /// Adds a partition of `length` bytes as the last one of the disk, at a whole MiB.
    pub fn append(&mut self, length: u64, name: &str, id: Uuid) -> Result<Partition, GptError> {
        let partitions = self.partitions();
        let used = partitions.iter().map(|p| p.last_lba + 1).max().unwrap_or(0);
        let from = used
            .max(u64_at(&self.header, 40))
            .saturating_mul(self.sector);
        let end = (u64_at(&self.header, 48) + 1) * self.sector;
        let no_room = || GptError::NoRoom {
            wanted: length,
            free: end.saturating_sub(from),
        };
        let start = end.checked_sub(length).ok_or_else(no_room)? / (1 << 20) * (1 << 20);
        if start < from {
            return Err(no_room());
        }
        let index = self
            .entries
            .chunks_exact(self.entry_size)
            .position(|entry| guid_at(entry, 0).is_nil())
            .ok_or(GptError::Full(partitions.len()))?;
        let partition = Partition {
            number: u32::try_from(index + 1).unwrap_or(u32::MAX),
            kind: LINUX_TYPE,
            id,
            first_lba: start / self.sector,
            last_lba: (start + length) / self.sector - 1,
            name: name.to_owned(),
        };
        let entry = &mut self.entries[index * self.entry_size..][..self.entry_size];
        entry.fill(0);
        entry[..16].copy_from_slice(&partition.kind.to_bytes_le());
        entry[16..32].copy_from_slice(&id.to_bytes_le());
        put_u64(entry, 32, partition.first_lba);
        put_u64(entry, 40, partition.last_lba);
        for (place, unit) in entry[56..128].chunks_exact_mut(2).zip(name.encode_utf16()) {
            place.copy_from_slice(&unit.to_le_bytes());
        }
        Ok(partition)
    }

    /// Writes the primary table, and the disk's size in the protective MBR, into the first bytes of the disk.
    pub fn write_head(&self, head: &mut [u8]) {
        let start = usize_of(u64_at(&self.header, 72) * self.sector);
        head[start..start + self.entries.len()].copy_from_slice(&self.entries);
        let at = usize_of(self.sector);
        head[at..at + HEADER].copy_from_slice(&self.sealed(self.header.clone()));
        let is_plain = head[450] == 0xEE && head[466] == 0;
        if is_plain {
            let last = u64_at(&self.header, 32);
            let covered = u32::try_from(last).unwrap_or(u32::MAX);
            head[458..462].copy_from_slice(&covered.to_le_bytes());
        }
    }

    /// The backup table: the bytes up to the end of the disk.
    pub fn backup(&self) -> Vec<u8> {
        let table = self.table_sectors();
        let mut header = self.header.clone();
        let (first, last) = (u64_at(&header, 24), u64_at(&header, 32));
        put_u64(&mut header, 24, last);
        put_u64(&mut header, 32, first);
        put_u64(&mut header, 72, last - table);
        let mut bytes = vec![0; usize_of((table + 1) * self.sector)];
        bytes[..self.entries.len()].copy_from_slice(&self.entries);
        let at = usize_of(table * self.sector);
        bytes[at..at + HEADER].copy_from_slice(&self.sealed(header));
        bytes
    }

    /// A header with both checksums.
    fn sealed(&self, mut header: Vec<u8>) -> Vec<u8> {
        header[88..92].copy_from_slice(&crc32fast::hash(&self.entries).to_le_bytes());
        header[16..20].fill(0);
        let sum = crc32fast::hash(&header);
        header[16..20].copy_from_slice(&sum.to_le_bytes());
        header
    }

    fn table_sectors(&self) -> u64 {
        (self.entries.len().max(TABLE_BYTES) as u64).div_ceil(self.sector)
    }
}

fn name_of(units: &[u8]) -> String {
    let units: Vec<u16> = units
        .chunks_exact(2)
        .map(|pair| u16::from_le_bytes([pair[0], pair[1]]))
        .take_while(|unit| *unit != 0)
        .collect();
    String::from_utf16_lossy(&units)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn put_u64(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

fn guid_at(bytes: &[u8], at: usize) -> Uuid {
    Uuid::from_bytes_le(bytes[at..at + 16].try_into().expect("sixteen bytes"))
}

fn usize_of(value: u64) -> usize {
    usize::try_from(value).expect("a place in memory")
}

#[cfg(test)]
mod tests;
