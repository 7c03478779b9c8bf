//! The FAT16 file system that firmware takes for the system partition of the CD.

use std::io::Cursor;
use std::ops::Range;

use firstlight_fat::{Label, Layout, SectorSize, Tree};

use super::{MEDIUM_CONFIG, MediumError, SECTOR as CD_SECTOR};

const SECTOR: usize = 512;
/// What El Torito can say.
const MOST: usize = 65_535;
/// More than what makes a FAT16, which all firmware reads; FAT12 it would be with fewer.
const FEWEST_CLUSTERS: usize = 4102;
/// First sector, root, and both tables of the largest.
const BEFORE: usize = 1 + 32 + 2 * 256;
const FOLDERS: usize = 3;
const CONFIG: &str = "GRUB/GRUB.CFG";

pub struct Volume {
    pub bytes: Vec<u8>,
    /// Where GRUB's configuration is; line breaks for now. It begins with a sector of the CD, so that the CD itself can have the same file.
    pub config: Range<usize>,
}

/// `\EFI\BOOT` as firmware looks for it on removable media, and `/grub` where the network image of GRUB looks.
pub fn volume(shim: &[u8], grub: &[u8]) -> Result<Volume, MediumError> {
    let too_large = || MediumError::Loaders(shim.len().saturating_add(grub.len()));
    let config = [b'\n'; MEDIUM_CONFIG];
    let files: [(&str, &[u8]); 3] = [
        (CONFIG, &config),
        ("EFI/BOOT/BOOTX64.EFI", shim),
        ("EFI/BOOT/GRUBX64.EFI", grub),
    ];
    let mut tree = Tree::default();
    let mut clusters = FOLDERS;
    for (path, content) in files {
        tree.file(path, content).map_err(|_| too_large())?;
        // With room for it to begin where it may.
        clusters += content.len().div_ceil(SECTOR) + CD_SECTOR / SECTOR;
    }
    let sectors = BEFORE + clusters.max(FEWEST_CLUSTERS);
    if sectors > MOST {
        return Err(too_large());
    }
    let volume = firstlight_fat::Volume {
        bytes: (sectors * SECTOR) as u64,
        sector: SectorSize::Bytes512,
        cluster: 512,
        align: CD_SECTOR as u64,
        label: Label::new("FIRSTLIGHT").map_err(|_| too_large())?,
        id: 0x5f1a_57e0,
    };
    let layout = Layout::plan(&volume, &tree).map_err(|_| too_large())?;
    let at = |place: u64| usize::try_from(place).map_err(|_| too_large());
    let config = layout.place(CONFIG).ok_or_else(too_large)?;
    let config = at(config.start)?..at(config.end)?;
    let mut bytes = Cursor::new(vec![0; sectors * SECTOR]);
    layout.write(&mut bytes).map_err(|_| too_large())?;
    Ok(Volume {
        bytes: bytes.into_inner(),
        config,
    })
}
