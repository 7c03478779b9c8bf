//! The first file systems of PID 1.

use std::fs;

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::mount::{MsFlags, mount};

struct Mount {
    kind: &'static str,
    place: &'static str,
    flags: MsFlags,
    options: &'static str,
}

/// With systemd's own options: the box keeps these mounts.
const MOUNTS: [Mount; 4] = [
    Mount {
        kind: "proc",
        place: "/proc",
        flags: SAFE,
        options: "",
    },
    Mount {
        kind: "sysfs",
        place: "/sys",
        flags: SAFE,
        options: "",
    },
    Mount {
        kind: "devtmpfs",
        place: "/dev",
        flags: MsFlags::MS_NOSUID.union(MsFlags::MS_STRICTATIME),
        options: "mode=0755",
    },
    Mount {
        kind: "tmpfs",
        place: "/run",
        flags: RUN,
        options: "mode=0755,size=20%,nr_inodes=800k",
    },
];
const SAFE: MsFlags = MsFlags::MS_NOSUID
    .union(MsFlags::MS_NODEV)
    .union(MsFlags::MS_NOEXEC);
const RUN: MsFlags = MsFlags::MS_NOSUID
    .union(MsFlags::MS_NODEV)
    .union(MsFlags::MS_STRICTATIME);

/// Mounts what everything else needs.
pub fn mount_api_file_systems() -> Result<()> {
    for wanted in &MOUNTS {
        apply(wanted)?;
    }
    Ok(())
}

/// The firmware's variables, on a machine that booted by UEFI and once the module is there.
pub fn mount_efivarfs() -> Result<()> {
    apply(&Mount {
        kind: "efivarfs",
        place: "/sys/firmware/efi/efivars",
        flags: SAFE,
        options: "",
    })
}

/// With the log of what the firmware has started, on a machine with a TPM.
pub fn mount_securityfs() -> Result<()> {
    apply(&Mount {
        kind: "securityfs",
        place: "/sys/kernel/security",
        flags: SAFE,
        options: "",
    })
}

fn apply(wanted: &Mount) -> Result<()> {
    if !wanted.place.starts_with("/sys/") {
        fs::create_dir_all(wanted.place).with_context(|| format!("making {}", wanted.place))?;
    }
    match mount(
        Some(wanted.kind),
        wanted.place,
        Some(wanted.kind),
        wanted.flags,
        Some(wanted.options),
    ) {
        Ok(()) | Err(Errno::EBUSY) => Ok(()),
        Err(error) => {
            Err(error).with_context(|| format!("mounting {} at {}", wanted.kind, wanted.place))
        }
    }
}
