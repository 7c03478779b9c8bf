//! The mirror (RAID 1) that this server's root is on, as the kernel has it, on the box's order over SSH. Nothing of it needs root.
//!
//! Must not: change anything.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use firstlight_api::disk::identity::{serial_of_page, world_wide_name};
use firstlight_api::mirror::{MOST_DISKS, Mirror, Told};
use firstlight_api::order::DiskId;
use nix::sys::stat::{major, minor};

/// The kernel counts in 512 bytes whatever the sector is.
const SECTOR: u64 = 512;
/// Of a disk that holds all of an array.
const IN_SYNC: &str = "in_sync";
/// What the kernel does while it fills a disk.
const FILLS: &str = "recover";

/// The device that is mounted at `/`, as `/sys/dev/block` calls it.
pub fn root_device() -> io::Result<String> {
    let device = fs::metadata("/")?.dev();
    Ok(format!("{}:{}", major(device), minor(device)))
}

/// `sys` is `/sys`.
pub fn look(sys: &Path, device: &str) -> io::Result<Told> {
    let place = fs::canonicalize(sys.join("dev/block").join(device))?;
    // The root is a partition of the mirror, or all of it.
    let array = place.ancestors().take(2).map(|place| place.join("md"));
    let Some(array) = array.into_iter().find(|array| array.is_dir()) else {
        return Ok(Told::default());
    };
    if text(&array.join("level")).as_deref() != Some("raid1") {
        return Ok(Told::default());
    }
    let mut members: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir(&array)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with("dev-") {
            members.push(entry.path());
        }
    }
    members.sort();
    let holds = |member: &PathBuf| {
        let state = text(&member.join("state")).unwrap_or_default();
        state.split(',').any(|word| word == IN_SYNC)
    };
    let whole = members.iter().filter(|member| holds(member));
    let whole = whole.filter_map(|member| disk(&member.join("block")));
    Ok(Told {
        mirror: Some(Mirror {
            whole: whole.take(MOST_DISKS).collect(),
            filled: filled(&array),
        }),
    })
}

/// How much of a disk that is being filled is, in percent.
fn filled(array: &Path) -> Option<u8> {
    let action = text(&array.join("sync_action"));
    let completed =
        text(&array.join("sync_completed")).filter(|_| action.as_deref() == Some(FILLS))?;
    let percent = completed.split_once(" / ").and_then(|(done, all)| {
        let (done, all): (u64, u64) = (done.parse().ok()?, all.parse().ok()?);
        done.checked_mul(100)?.checked_div(all)?.try_into().ok()
    });
    Some(percent.unwrap_or_default())
}

/// As the box's ramdisk has told it from others; of a partition its disk.
fn disk(device: &Path) -> Option<DiskId> {
    let mut place = fs::canonicalize(device).ok()?;
    if place.join("partition").exists() {
        place.pop();
    }
    let read = |file: &str| text(&place.join(file));
    let wwid = read("wwid").or_else(|| read("device/wwid"));
    let page = || serial_of_page(&fs::read(place.join("device/vpd_pg80")).ok()?);
    let serial = read("serial")
        .or_else(|| read("device/serial"))
        .or_else(page);
    let sectors: u64 = read("size")?.parse().ok()?;
    let (wwn, ..) = world_wide_name(wwid.as_deref());
    Some(DiskId::new(
        serial.as_deref(),
        wwn.as_deref(),
        sectors.checked_mul(SECTOR)?,
    ))
}

/// Trimmed; `None` when it is missing or empty.
fn text(path: &Path) -> Option<String> {
    let bytes = fs::read(path).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\0');
    (!text.is_empty()).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::os::unix::fs::symlink;

    use super::*;

    /// Of a server whose root is the third partition of md127, on two disks.
    struct Sys(tempfile::TempDir);

    impl Sys {
        fn new() -> Self {
            let sys = Self(tempfile::tempdir().unwrap());
            let array = "devices/virtual/block/md127";
            for (file, text) in [
                ("md/level", "raid1\n"),
                ("md/sync_action", "idle\n"),
                ("md/sync_completed", "none\n"),
                ("md127p3/partition", "3\n"),
            ] {
                sys.write(&format!("{array}/{file}"), text.as_bytes());
            }
            sys.link("dev/block/259:3", &format!("{array}/md127p3"));
            sys.write("devices/ata1/block/sda/size", b"16777216\n");
            sys.write(
                "devices/ata1/block/sda/device/wwid",
                b"naa.5000c500a0b1c2d3\n",
            );
            sys.write(
                "devices/ata1/block/sda/device/vpd_pg80",
                b"\0\x80\0\x08ZC1     ",
            );
            sys.write("devices/nvme/nvme0n1/size", b"17777216\n");
            sys.write("devices/nvme/nvme0n1/device/serial", b"S3X2   \n");
            sys.member("sda", "devices/ata1/block/sda", "in_sync\n");
            sys.member("nvme0n1", "devices/nvme/nvme0n1", "in_sync,write_mostly\n");
            sys
        }

        fn write(&self, path: &str, bytes: &[u8]) {
            let path = self.0.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }

        fn link(&self, from: &str, to: &str) {
            let from = self.0.path().join(from);
            fs::create_dir_all(from.parent().unwrap()).unwrap();
            symlink(self.0.path().join(to), from).unwrap();
        }

        fn member(&self, name: &str, disk: &str, state: &str) {
            let member = format!("devices/virtual/block/md127/md/dev-{name}");
            self.write(&format!("{member}/state"), state.as_bytes());
            self.link(&format!("{member}/block"), disk);
        }

        fn look(&self) -> Mirror {
            look(self.0.path(), "259:3").unwrap().mirror.unwrap()
        }
    }

    fn mirror(whole: &[&DiskId], filled: Option<u8>) -> Mirror {
        let whole = whole.iter().copied().cloned().collect();
        Mirror { whole, filled }
    }

    #[test]
    fn the_disks_that_hold_the_root_are_told_as_the_ramdisk_tells_them() {
        let sata = DiskId::new(Some("ZC1"), Some("0x5000c500a0b1c2d3"), 16_777_216 * 512);
        let nvme = DiskId::new(Some("S3X2"), None, 17_777_216 * 512);
        let sys = Sys::new();
        assert_eq!(sys.look(), mirror(&[&nvme, &sata], None));
        let member = "devices/virtual/block/md127/md/dev-nvme0n1";
        sys.write(&format!("{member}/state"), b"faulty\n");
        assert_eq!(sys.look(), mirror(&[&sata], None));
        // It is pulled out; later another one is in its place.
        fs::remove_dir_all(sys.0.path().join(member)).unwrap();
        assert_eq!(sys.look(), mirror(&[&sata], None));
        sys.member("nvme0n1", "devices/nvme/nvme0n1", "spare\n");
        let array = "devices/virtual/block/md127/md";
        sys.write(&format!("{array}/sync_action"), b"recover\n");
        assert_eq!(sys.look(), mirror(&[&sata], Some(0)));
        sys.write(&format!("{array}/sync_completed"), b"420 / 1000\n");
        assert_eq!(sys.look(), mirror(&[&sata], Some(42)));
    }

    #[test]
    fn a_root_that_is_on_no_mirror_is_none_and_what_cannot_be_read_is_no_answer() {
        let sys = Sys::new();
        sys.write("devices/virtual/block/md127/md/level", b"raid0\n");
        assert_eq!(look(sys.0.path(), "259:3").unwrap(), Told::default());
        sys.write("devices/ata1/block/sda/sda1/partition", b"1\n");
        sys.link("dev/block/8:1", "devices/ata1/block/sda/sda1");
        assert_eq!(look(sys.0.path(), "8:1").unwrap(), Told::default());
        assert!(look(sys.0.path(), "8:2").is_err());
    }
}
