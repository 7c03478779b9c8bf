//! How many clusters there are, and what stands before them.

use crate::{FatError, Volume};

/// Both are the same, for whoever finds one damaged.
pub const TABLES: u64 = 2;
pub const ENTRY: usize = 32;
/// Below these numbers of clusters a file system is FAT12 or FAT16 by definition. Not everybody counts right, so the specification
/// wants some distance from both.
const FEWEST_16: u64 = 4085;
const FEWEST_32: u64 = 65_525;
const DISTANCE: u64 = 16;
const MOST: u64 = 0x0fff_fff5;
const MOST_CLUSTER: u32 = 32 << 10;
/// In the root of FAT12 and FAT16, whose size is fixed; more where there are more.
const ROOT_ENTRIES: u64 = 512;

/// Of a disk: what is smaller than a disk's sectors cannot be mounted from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SectorSize {
    Bytes512,
    Bytes4096,
}

impl SectorSize {
    pub fn bytes(self) -> u16 {
        match self {
            Self::Bytes512 => 512,
            Self::Bytes4096 => 4096,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Fat12,
    Fat16,
    Fat32,
}

impl Kind {
    pub fn bits(self) -> u64 {
        match self {
            Self::Fat12 => 12,
            Self::Fat16 => 16,
            Self::Fat32 => 32,
        }
    }

    /// Sectors before the tables: FAT32 has a copy of the first ones there.
    pub fn reserved(self) -> u64 {
        match self {
            Self::Fat12 | Self::Fat16 => 1,
            Self::Fat32 => 32,
        }
    }
}

/// In sectors, but for what says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    pub kind: Kind,
    /// Bytes.
    pub sector: u64,
    /// Of one cluster.
    pub cluster: u64,
    pub table: u64,
    /// Names in the root; 0 for FAT32, whose root is like any folder.
    pub root_entries: u64,
    pub clusters: u64,
    pub sectors: u64,
}

impl Geometry {
    /// `root_entries`: what the root needs.
    pub fn of(volume: &Volume, root_entries: u64) -> Result<Self, FatError> {
        let sector = u64::from(volume.sector.bytes());
        let cluster = u64::from(volume.cluster) / sector;
        let valid = volume.cluster.is_power_of_two() && volume.cluster <= MOST_CLUSTER;
        if !valid || cluster == 0 {
            return Err(FatError::Cluster(volume.cluster));
        }
        let per_sector = sector / ENTRY as u64;
        let root_entries = root_entries.max(ROOT_ENTRIES).next_multiple_of(per_sector);
        let of = |kind, root_entries| {
            let sectors = volume.bytes / sector;
            let before = Kind::reserved(kind) + root_entries / per_sector;
            // A little more than needed, because the tables themselves take room from the clusters.
            let upper = sectors.saturating_sub(before) / cluster;
            let table = ((upper + 2) * kind.bits()).div_ceil(8).div_ceil(sector);
            let clusters = sectors.saturating_sub(before + TABLES * table) / cluster;
            Self {
                kind,
                sector,
                cluster,
                table,
                root_entries,
                clusters,
                sectors,
            }
        };
        let large = of(Kind::Fat32, 0);
        if large.clusters >= FEWEST_32 {
            if large.clusters > MOST || u32::try_from(large.sectors).is_err() {
                return Err(FatError::TooLarge(volume.bytes));
            }
            return Ok(large);
        }
        if root_entries > u64::from(u16::MAX) {
            return Err(FatError::Folder);
        }
        let middle = of(Kind::Fat16, root_entries);
        if middle.clusters >= FEWEST_16 + DISTANCE {
            return Ok(middle.at_most(FEWEST_32 - DISTANCE));
        }
        Ok(of(Kind::Fat12, root_entries).at_most(FEWEST_16 - DISTANCE))
    }

    /// Leaves the end of the volume unused where there would be more.
    fn at_most(self, clusters: u64) -> Self {
        if self.clusters <= clusters {
            return self;
        }
        let cut = Self { clusters, ..self };
        Self {
            sectors: cut.data() + clusters * cut.cluster,
            ..cut
        }
    }

    pub fn root(&self) -> u64 {
        self.kind.reserved() + TABLES * self.table
    }

    /// Where the first cluster is.
    pub fn data(&self) -> u64 {
        self.root() + self.root_entries * ENTRY as u64 / self.sector
    }

    /// In bytes. The first cluster has number 2.
    pub fn place(&self, cluster: u64) -> u64 {
        (self.data() + (cluster - 2) * self.cluster) * self.sector
    }

    pub fn cluster_bytes(&self) -> u64 {
        self.cluster * self.sector
    }
}
