//! The config drive that Ironic has written behind the installed system.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use serde_json::{Map, Value};

const LINK: &str = "/dev/disk/by-label/config-2";
const MOUNT_POINT: &str = "/run/firstlight/config-drive";

/// What is on it, as far as it matters here.
#[derive(Clone, PartialEq, Eq)]
pub struct Drive {
    pub meta_data: Map<String, Value>,
    pub network_data: Option<Value>,
}

/// The device, once udev has looked at every disk; `None` if there is none.
pub fn find_drive() -> Result<Option<PathBuf>> {
    let link = Path::new(LINK);
    if !link.exists() {
        settle_devices();
    }
    match fs::canonicalize(link) {
        Ok(device) => Ok(Some(device)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("following {LINK}")),
    }
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
    let text = fs::read(&meta_data).with_context(|| format!("reading {}", meta_data.display()))?;
    let network = fs::read(latest.join("network_data.json")).ok();
    Ok(Drive {
        meta_data: serde_json::from_slice(&text)
            .with_context(|| format!("parsing {}", meta_data.display()))?,
        network_data: network.and_then(|text| serde_json::from_slice(&text).ok()),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

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
}
