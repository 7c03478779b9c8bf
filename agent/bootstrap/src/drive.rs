//! The config drive that Ironic has written behind the installed system.

use std::fs;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::stat::{major, minor};
use serde_json::{Map, Value};

const LINK: &str = "/dev/disk/by-label/config-2";
/// In what udev knows of a device.
const LABEL: &str = "E:ID_FS_LABEL=config-2";
const MOUNT_POINT: &str = "/run/firstlight/config-drive";
/// The same in the first volume descriptor of ISO 9660 (ECMA-119 8.4): where that is, its type and standard identifier, and where in it
/// the volume identifier is.
const DESCRIPTOR_AT: u64 = 16 * 2048;
const IDENTIFIER: &[u8] = b"\x01CD001";
const VOLUME: std::ops::Range<usize> = 40..72;
/// Bytes of a file on it. Any disk may carry the label, and a link on it may lead to a device without an end.
const LARGEST: u64 = 4 << 20;

/// What is on it, as far as it matters here.
#[derive(Clone, PartialEq, Eq)]
pub struct Drive {
    pub meta_data: Map<String, Value>,
    pub network_data: Option<Value>,
    /// As cloud-init takes it, also packed.
    pub user_data: Option<Vec<u8>>,
}

/// The device; `None` if there is none. It is the one on the disk that this system runs from, which nobody has to wait for: another disk
/// may have one of an earlier installation, and is looked at once udev has looked at every disk.
pub fn find_drive() -> Result<Option<PathBuf>> {
    let root = Path::new("/");
    let device = fs::metadata(root)
        .context("looking for the root's device")?
        .dev();
    let own = || drive_beside(root, &format!("{}:{}", major(device), minor(device)));
    if let Some(device) = own() {
        return Ok(Some(device));
    }
    settle_devices();
    if let Some(device) = own() {
        return Ok(Some(device));
    }
    let link = Path::new(LINK);
    match fs::canonicalize(link) {
        Ok(device) => Ok(Some(device)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("following {LINK}")),
    }
}

/// The config drive on the disk with the partition `number` (`MAJOR:MINOR`), as `sys`, `run` and `dev` below `root` show it.
fn drive_beside(root: &Path, number: &str) -> Option<PathBuf> {
    let partition = fs::canonicalize(root.join("sys/dev/block").join(number)).ok()?;
    let beside = fs::read_dir(partition.parent()?).ok()?.flatten();
    let is_drive = |path: &Path| {
        let number = fs::read_to_string(path.join("dev")).unwrap_or_default();
        let known = root
            .join("run/udev/data")
            .join(format!("b{}", number.trim()));
        let is_known =
            || fs::read_to_string(known).is_ok_and(|known| known.lines().any(|line| line == LABEL));
        let node = path.file_name().map(|name| root.join("dev").join(name));
        path.join("partition").exists() && (is_known() || node.is_some_and(|node| has_label(&node)))
    };
    let drive = beside
        .map(|entry| entry.path())
        .find(|path| is_drive(path))?;
    Some(root.join("dev").join(drive.file_name()?))
}

/// udev may not have come to it yet.
fn has_label(device: &Path) -> bool {
    let mut descriptor = [0; VOLUME.end];
    let read = fs::File::open(device).and_then(|mut file| {
        file.seek(SeekFrom::Start(DESCRIPTOR_AT))?;
        file.read_exact(&mut descriptor)
    });
    read.is_ok()
        && descriptor.starts_with(IDENTIFIER)
        && descriptor[VOLUME].trim_ascii_end() == b"config-2"
}

/// Waits until udev has named every device that is there by now.
pub fn settle_devices() {
    let status = Command::new("udevadm")
        .args(["settle", "--timeout=120"])
        .status();
    if !status.as_ref().is_ok_and(std::process::ExitStatus::success) {
        tracing::warn!(?status, "udev is still busy; a device may be missed");
    }
}

/// Mounts the device for as long as it takes to read it.
pub fn load_drive(device: &Path) -> Result<Drive> {
    let point = Path::new(MOUNT_POINT);
    fs::create_dir_all(point).with_context(|| format!("making {MOUNT_POINT}"))?;
    let flags = MsFlags::MS_RDONLY | MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    let mounted = ["iso9660", "vfat"]
        .iter()
        .any(|kind| mount(Some(device), point, Some(*kind), flags, None::<&str>).is_ok());
    ensure!(
        mounted,
        "the config drive on {} cannot be mounted as ISO 9660 or FAT",
        device.display()
    );
    let drive = read_drive(point);
    umount2(point, MntFlags::MNT_DETACH).context("unmounting the config drive")?;
    drive
}

/// Reads a mounted config drive.
pub fn read_drive(root: &Path) -> Result<Drive> {
    let latest = root.join("openstack/latest");
    let meta_data = latest.join("meta_data.json");
    let text = read(&meta_data).with_context(|| format!("reading {}", meta_data.display()))?;
    let network = read(&latest.join("network_data.json")).ok();
    let user_data = match read(&latest.join("user_data")) {
        Ok(user_data) => Some(user_data),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error).context("reading the user data of the config drive"),
    };
    Ok(Drive {
        user_data,
        meta_data: serde_json::from_slice(&text)
            .with_context(|| format!("parsing {}", meta_data.display()))?,
        network_data: network.and_then(|text| serde_json::from_slice(&text).ok()),
    })
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    let file = fs::File::open(path)?;
    file.take(LARGEST + 1).read_to_end(&mut text)?;
    if text.len() as u64 > LARGEST {
        return Err(io::Error::other("it is far too large"));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;
    use serde_json::json;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn of_two_disks_with_config_drives_the_own_one_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        fs::create_dir_all(dir.path().join("sys/dev/block")).unwrap();
        for (disk, major) in [("sda", 8), ("vdb", 254)] {
            for number in [3, 4] {
                let partition = format!("sys/devices/{disk}/{disk}{number}");
                write(&format!("{partition}/dev"), &format!("{major}:{number}\n"));
                write(&format!("{partition}/partition"), &format!("{number}\n"));
                let link = dir.path().join(format!("sys/dev/block/{major}:{number}"));
                symlink(format!("../../devices/{disk}/{disk}{number}"), link).unwrap();
            }
            let known = format!("run/udev/data/b{major}:4");
            write(&known, "S:disk/by-label/config-2\nE:ID_FS_LABEL=config-2\n");
        }
        let beside = |number| drive_beside(dir.path(), number);
        assert_eq!(beside("8:3"), Some(dir.path().join("dev/sda4")));
        assert_eq!(beside("254:3"), Some(dir.path().join("dev/vdb4")));
        assert_eq!(beside("9:0"), None, "a root on something else");
        write("run/udev/data/b8:4", "E:ID_FS_LABEL=config-2-old\n");
        assert_eq!(beside("8:3"), None);
        fs::remove_file(dir.path().join("run/udev/data/b8:4")).unwrap();
        assert_eq!(beside("8:3"), None, "of which udev knows nothing");
        let iso = |label: &str, length| {
            let head = "\0".repeat(16 * 2048);
            let mut whole = format!("{head}\u{1}CD001\u{1}\0{:32}{label:32}", "LINUX");
            whole.truncate(length);
            write("dev/sda4", &whole);
        };
        iso("config-2", usize::MAX);
        assert_eq!(beside("8:3"), Some(dir.path().join("dev/sda4")));
        for (label, length) in [
            ("config-20", usize::MAX),
            ("config-2", 16 * 2048 + 71),
            ("", 0),
        ] {
            iso(label, length);
            assert_eq!(beside("8:3"), None, "{label}");
        }
    }

    #[test]
    fn network_data_may_be_missing_and_metadata_may_not() {
        let dir = tempfile::tempdir().unwrap();
        let latest = dir.path().join("openstack/latest");
        fs::create_dir_all(&latest).unwrap();
        assert!(read_drive(dir.path()).is_err());
        fs::write(latest.join("meta_data.json"), r#"{"name": "n1"}"#).unwrap();
        let drive = read_drive(dir.path()).unwrap();
        assert_eq!(drive.meta_data["name"], "n1");
        assert_eq!(drive.network_data, None);
        fs::write(latest.join("network_data.json"), r#"{"links": []}"#).unwrap();
        let drive = read_drive(dir.path()).unwrap();
        assert_eq!(drive.network_data, Some(json!({"links": []})));
    }

    #[test]
    fn a_file_without_an_end_is_not_read_whole() {
        let dir = tempfile::tempdir().unwrap();
        let latest = dir.path().join("openstack/latest");
        fs::create_dir_all(&latest).unwrap();
        std::os::unix::fs::symlink("/dev/zero", latest.join("meta_data.json")).unwrap();
        let Err(error) = read_drive(dir.path()) else {
            panic!("nobody reads zeros");
        };
        assert!(format!("{error:#}").contains("too large"), "{error:#}");
    }

    proptest! {
        #[test]
        fn whatever_is_on_a_disk_of_that_label_is_a_drive_or_refused(
            meta in prop::collection::vec(any::<u8>(), 0..60), text in "\\{(\"[a-z]{0,3}\": ?(1|null|\\{\\}|\"x\"),?){0,3}\\}?", is_text in any::<bool>(),
            network in prop::collection::vec(any::<u8>(), 0..60),
        ) {
            let dir = tempfile::tempdir().unwrap();
            let latest = dir.path().join("openstack/latest");
            fs::create_dir_all(&latest).unwrap();
            let meta = if is_text { text.as_bytes() } else { &meta };
            fs::write(latest.join("meta_data.json"), meta).unwrap();
            fs::write(latest.join("network_data.json"), &network).unwrap();
            let expected = serde_json::from_slice::<Map<String, Value>>(meta).ok();
            let drive = read_drive(dir.path()).ok();
            prop_assert_eq!(drive.as_ref().map(|drive| &drive.meta_data), expected.as_ref());
            if let Some(drive) = drive {
                prop_assert_eq!(drive.network_data, serde_json::from_slice(&network).ok());
            }
        }
    }
}
