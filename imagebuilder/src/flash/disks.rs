//! Disks of this machine: which of them is a stick that may be written.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::Target;
use crate::UsageError;
use crate::build::group;

const DISKS: &str = "/sys/block";

/// What the kernel says about a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    pub name: String,
    pub model: String,
    pub bytes: u64,
    pub removable: bool,
    /// Mount points (or `swap`, `in use by NAME`) of the disk and its partitions.
    pub uses: Vec<String>,
}

/// Why this disk must not be written to.
pub fn refuse(disk: &Disk, image: u64, target: Target) -> Option<String> {
    if let Some(usage) = disk.uses.first() {
        return Some(format!(
            "is in use ({usage}): unmount it first, or choose another device"
        ));
    }
    if disk.bytes < image {
        return Some(format!(
            "has {} bytes, the image needs {}: use a bigger stick",
            group(disk.bytes),
            group(image)
        ));
    }
    if !disk.removable && target == Target::RemovableOnly {
        return Some(format!(
            "{} is not a removable disk: if it is really the right one, say --force",
            disk.model
        ));
    }
    None
}

pub fn load_disk(device: &Path) -> Result<Disk> {
    let data = fs::metadata(device)
        .with_context(|| format!("reading {} (`lsblk` lists devices)", device.display()))?;
    if !data.file_type().is_block_device() {
        return Err(UsageError(format!(
            "{} is not a block device (`lsblk` lists devices)",
            device.display()
        ))
        .into());
    }
    let (major, minor) = (
        nix::sys::stat::major(data.rdev()),
        nix::sys::stat::minor(data.rdev()),
    );
    let link = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    let sys = link
        .canonicalize()
        .with_context(|| format!("finding {} in /sys", device.display()))?;
    if sys.join("partition").exists() {
        return Err(UsageError(format!(
            "{} is a partition: name the whole disk",
            device.display()
        ))
        .into());
    }
    from_sys(&sys).with_context(|| format!("looking at {}", device.display()))
}

/// The sticks that are plugged in, for people: each with why it cannot be written, if so.
pub fn list(image: u64) -> Result<String> {
    let mut text = String::new();
    // One that is pulled out meanwhile is none.
    let entries = fs::read_dir(DISKS).context("looking for disks")?.flatten();
    let found = entries.filter_map(|entry| entry.path().canonicalize().ok());
    let mut found: Vec<Disk> = found.filter_map(|sys| from_sys(&sys).ok()).collect();
    found.sort_by(|one, other| one.name.cmp(&other.name));
    // A drive for CDs is removable, too.
    let is_stick = |disk: &&Disk| disk.removable && disk.bytes > 0 && !disk.name.starts_with("sr");
    for disk in found.iter().filter(is_stick) {
        let refused = refuse(disk, image, Target::RemovableOnly);
        let refused = refused.map(|why| format!("; {why}")).unwrap_or_default();
        writeln!(
            text,
            "  /dev/{:<8} {:>18} bytes  {}{refused}",
            disk.name,
            group(disk.bytes),
            disk.model
        )?;
    }
    Ok(text)
}

fn from_sys(sys: &Path) -> Result<Disk> {
    let read = |name: &str| {
        fs::read_to_string(sys.join(name))
            .map(|text| text.trim().to_owned())
            .unwrap_or_default()
    };
    let sectors: u64 = read("size")
        .parse()
        .with_context(|| format!("reading the size of {}", sys.display()))?;
    let words = [read("device/vendor"), read("device/model")];
    let words: Vec<&str> = words
        .iter()
        .map(String::as_str)
        .filter(|word| !word.is_empty())
        .collect();
    let usb = sys
        .components()
        .any(|part| part.as_os_str().to_string_lossy().starts_with("usb"));
    Ok(Disk {
        name: sys
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned(),
        model: if words.is_empty() {
            "disk without a model name".to_owned()
        } else {
            words.join(" ")
        },
        bytes: sectors * 512,
        removable: usb || read("removable") == "1",
        uses: find_uses(sys)?,
    })
}

/// Everything that uses the disk or one of its partitions.
fn find_uses(sys: &Path) -> Result<Vec<String>> {
    let mut nodes = vec![sys.to_owned()];
    for entry in fs::read_dir(sys)? {
        let path = entry?.path();
        if path.join("partition").exists() {
            nodes.push(path);
        }
    }
    let mounts =
        fs::read_to_string("/proc/self/mountinfo").context("reading the list of mounts")?;
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    let mut uses = Vec::new();
    for node in nodes {
        let number = fs::read_to_string(node.join("dev")).unwrap_or_default();
        uses.extend(mounted_at(&mounts, number.trim()));
        let name = node
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if swaps
            .lines()
            .any(|line| line.split(' ').next() == Some(&format!("/dev/{name}")))
        {
            uses.push("swap".to_owned());
        }
        for holder in fs::read_dir(node.join("holders"))
            .into_iter()
            .flatten()
            .flatten()
        {
            uses.push(format!(
                "in use by {}",
                holder.file_name().to_string_lossy()
            ));
        }
    }
    Ok(uses)
}

/// Mount points of a device number in the text of `/proc/self/mountinfo`.
fn mounted_at(mountinfo: &str, number: &str) -> Vec<String> {
    let fields = mountinfo
        .lines()
        .map(|line| line.split(' ').collect::<Vec<_>>());
    let mounted = fields.filter(|fields| fields.get(2) == Some(&number));
    mounted
        .filter_map(|fields| fields.get(4).map(|path| format!("mounted at {path}")))
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn stick() -> Disk {
        Disk {
            name: "sdx".to_owned(),
            model: "Stick".to_owned(),
            bytes: 100,
            removable: true,
            uses: Vec::new(),
        }
    }

    #[test]
    fn only_an_unused_removable_disk_with_room_is_written() {
        assert_eq!(refuse(&stick(), 100, Target::RemovableOnly), None);
        let cases = [
            (
                Disk {
                    uses: vec!["mounted at /mnt".to_owned()],
                    ..stick()
                },
                "mounted at /mnt",
            ),
            (
                Disk {
                    bytes: 99,
                    ..stick()
                },
                "bigger stick",
            ),
            (
                Disk {
                    removable: false,
                    ..stick()
                },
                "--force",
            ),
        ];
        for (disk, part) in cases {
            assert!(
                refuse(&disk, 100, Target::RemovableOnly)
                    .unwrap()
                    .contains(part)
            );
        }
    }

    #[test]
    fn force_allows_a_fixed_disk_but_never_a_mounted_one() {
        assert_eq!(
            refuse(
                &Disk {
                    removable: false,
                    ..stick()
                },
                1,
                Target::Any
            ),
            None
        );
        assert!(
            refuse(
                &Disk {
                    uses: vec!["swap".to_owned()],
                    ..stick()
                },
                1,
                Target::Any
            )
            .is_some()
        );
    }

    #[test]
    fn a_mount_is_found_by_the_device_number() {
        let text =
            "36 35 98:0 / /mnt1 rw - ext3 /dev/root rw\n37 35 8:1 / /home rw - ext4 /dev/sda1 rw\n";
        assert_eq!(mounted_at(text, "8:1"), ["mounted at /home"]);
        assert!(mounted_at(text, "8:0").is_empty());
    }

    #[test]
    fn a_file_is_no_device() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(load_disk(file.path()).unwrap_err().is::<UsageError>());
    }
}
