//! The file systems of a written disk, mounted for as long as somebody looks into them.
//!
//! To be read they are mounted without a write: a journal is not played back, and what would need that is not read.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, mount, umount2};

use super::superblock::{self, FileSystem, Kind};
use super::system::{System, Volume};
use super::tree::Tree;
use crate::deploy::device::BlockDevice;
use crate::deploy::gpt::Gpt;
use crate::deploy::mbr::Mbr;

/// Below it one folder for each partition.
const TOP: &str = "/run/firstlight-disk";
/// Of a GPT of the usual size.
const MOST_PARTITIONS: usize = 128;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    Read,
    Change,
}

/// A disk's file systems, until it is dropped.
#[derive(Debug, Default)]
pub struct Mounted {
    /// Before `mounts`: what is open keeps a file system mounted.
    pub system: System,
    /// Held for their end.
    mounts: Vec<Mount>,
}

impl Mounted {
    /// Of a disk that the kernel knows the partitions of.
    pub fn of(device: &dyn BlockDevice, use_: Use, is_efi: bool) -> io::Result<Self> {
        let mut head = vec![0; 1 << 20];
        device.read_at(0, &mut head)?;
        let table = Gpt::parse(&head, device.sector()).ok().flatten();
        let partitions = table.map(|gpt| gpt.partitions()).unwrap_or_default();
        let dos = Mbr::parse(&head).map(|mbr| mbr.disk_id);
        let mut mounted = Self::default();
        mounted.system.is_efi = is_efi;
        for (number, start, node) in kernel_partitions(device.name())? {
            let mut head = vec![0; superblock::LENGTH];
            if device.read_at(start, &mut head).is_err() {
                continue;
            }
            let Some(found) = superblock::identify(&head) else {
                continue;
            };
            let place = Path::new(TOP).join(number.to_string());
            match Mount::new(&node, &place, &found, use_) {
                Ok(mount) => {
                    let known = partitions.iter().find(|it| it.number == number);
                    mounted.mounts.push(mount);
                    mounted.system.volumes.push(Volume {
                        number,
                        uuid: found.uuid,
                        label: found.label,
                        part_uuid: match (known, dos) {
                            (Some(known), _) => known.id.to_string(),
                            (None, Some(disk)) => format!("{disk:08x}-{number:02x}"),
                            (None, None) => String::new(),
                        },
                        tree: Tree::open(&place)?,
                    });
                }
                Err(error) => {
                    let kind = found.kind.name();
                    let what = format!("{kind} in partition {number}: {error}");
                    mounted.system.unread.push(what);
                }
            }
        }
        Ok(mounted)
    }
}

/// Numbers, first bytes and device files of a disk's partitions.
fn kernel_partitions(disk: &str) -> io::Result<Vec<(u32, u64, PathBuf)>> {
    let name = disk.strip_prefix("/dev/").unwrap_or(disk);
    let mut found = Vec::new();
    for entry in fs::read_dir(Path::new("/sys/class/block").join(name))? {
        let folder = entry?.path();
        let number = |file: &str| -> Option<u64> {
            let text = fs::read_to_string(folder.join(file)).ok()?;
            text.trim().parse().ok()
        };
        let (Some(partition), Some(start)) = (number("partition"), number("start")) else {
            continue;
        };
        if let (Ok(partition), Some(name)) = (u32::try_from(partition), folder.file_name()) {
            // In units of 512 bytes, whatever the disk's sectors are.
            found.push((partition, start * 512, Path::new("/dev").join(name)));
        }
    }
    found.sort();
    found.truncate(MOST_PARTITIONS);
    Ok(found)
}

#[derive(Debug)]
struct Mount {
    place: PathBuf,
}

impl Mount {
    fn new(node: &Path, place: &Path, found: &FileSystem, use_: Use) -> io::Result<Self> {
        let (mut flags, mut options) = (SAFE, "");
        match (use_, found.kind) {
            (_, Kind::Btrfs) => return Err(io::ErrorKind::Unsupported.into()),
            (Use::Change, _) => {}
            (Use::Read, Kind::Ext { is_dirty: true }) => {
                return Err(io::Error::other("it was not unmounted"));
            }
            (Use::Read, kind) => {
                flags |= MsFlags::MS_RDONLY;
                options = match kind {
                    Kind::Ext { .. } => "noload",
                    Kind::Xfs => "norecovery",
                    Kind::Fat | Kind::Btrfs => "",
                };
            }
        }
        fs::create_dir_all(place)?;
        let kind = found.kind.name();
        mount(Some(node), place, Some(kind), flags, Some(options))?;
        Ok(Self {
            place: place.to_owned(),
        })
    }
}

const SAFE: MsFlags = MsFlags::MS_NOSUID
    .union(MsFlags::MS_NODEV)
    .union(MsFlags::MS_NOEXEC);

impl Drop for Mount {
    fn drop(&mut self) {
        if let Err(error) = umount2(&self.place, MntFlags::empty()) {
            tracing::warn!(place = %self.place.display(), %error, "a file system stays mounted");
        }
    }
}
