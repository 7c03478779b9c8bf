//! Finds the two slots, the ESP and what the kernel was told, on the disk that the box has started from and no other.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context, Result, bail, ensure};
use firstlight_api::boot_choice::{BIOS_BOOT, SystemSlot, TRIAL_WORD};
use firstlight_api::seal::RootOfTrust;
use firstlight_api::site::parse_site;
use firstlight_api::slot::Layer;
use gpt::GptConfig;
use gpt::disk::LogicalBlockSize;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

use crate::refusal::refuse;

const ESP: &str = "ESP";
const SITE: &str = "FIRSTLIGHT";
const STATE: &str = "firstlight-state";
/// A link to `/dev/block/MAJOR:MINOR` of the running slot, made by the first stage.
const RUNNING: &str = "run/systemd/volatile-root";
const MOUNTS: &str = "/run/firstlight-update";

/// A partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    pub device: PathBuf,
    /// As in `PARTUUID=`.
    pub id: String,
    pub bytes: u64,
}

/// The disk that the box has started from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stick {
    pub disk: PathBuf,
    block: LogicalBlockSize,
    pub running: SystemSlot,
    pub trial: bool,
    pub system: Partition,
    /// None on a small stick.
    pub other: Option<Partition>,
    pub esp: Partition,
    /// GRUB for BIOS.
    pub bios: Partition,
    /// With `site.yaml`.
    pub site: Option<Partition>,
    /// None before the first start has made it.
    pub state: Option<Partition>,
}

/// Whether GRUB has started this system for once. `None`: this machine has not started from a stick.
pub fn is_trial(root: &Path) -> Result<Option<bool>> {
    let cmdline = fs::read_to_string(root.join("proc/cmdline"))
        .context("reading the kernel's command line")?;
    let mut words = cmdline.split_ascii_whitespace();
    let is_box = words
        .clone()
        .any(|word| word.starts_with("firstlight.slot="));
    Ok(is_box.then(|| words.any(|word| word == TRIAL_WORD)))
}

impl Stick {
    /// Below `root`, for tests; needs nothing of udev, which may not be there yet.
    pub fn find(root: &Path) -> Result<Option<Self>> {
        let Some(trial) = is_trial(root)? else {
            return Ok(None);
        };
        let link = fs::read_link(root.join(RUNNING)).context("finding the stick")?;
        let number = link.file_name().context("the stick has no number")?;
        let system = root.join("sys/dev/block").join(number).canonicalize()?;
        let disk = system.parent().context("a partition has a disk")?;
        let name = disk.file_name().context("a disk has a name")?;
        let device = root.join("dev").join(name);
        let block = match number_in(&disk.join("queue/logical_block_size")) {
            Some(4096) => LogicalBlockSize::Lb4096,
            _ => LogicalBlockSize::Lb512,
        };
        let partitions = list(root, disk, &device, block)?;
        let find = |name: &str| {
            let mut found = partitions.iter().filter(|(label, ..)| label == name);
            found
                .next()
                .map(|(_, folder, partition)| (folder, partition.clone()))
        };
        let running = [SystemSlot::A, SystemSlot::B]
            .into_iter()
            .find(|slot| find(slot.partition()).is_some_and(|(folder, _)| *folder == system))
            .context("the partition that the box runs from is neither system-a nor system-b")?;
        let partition = |name: &str| find(name).map(|(_, partition)| partition);
        Ok(Some(Self {
            disk: device,
            block,
            running,
            trial,
            system: partition(running.partition()).context("the running system's partition")?,
            other: partition(running.other().partition()),
            esp: partition(ESP).context("the stick has no ESP")?,
            bios: partition(BIOS_BOOT).context("the stick has no partition of GRUB for BIOS")?,
            site: partition(SITE),
            state: partition(STATE),
        }))
    }

    /// Whether `site.yaml` asks for a sealed state, as one that cannot be read does.
    pub fn wants_seal(&self) -> bool {
        let Some(partition) = &self.site else {
            return true;
        };
        let read = Mounted::site(partition, Access::Read)
            .and_then(|mounted| Ok(fs::read(mounted.path().join("site.yaml"))?));
        let site = read.ok().and_then(|text| parse_site(&text).ok());
        site.unwrap_or_default().box_seal != RootOfTrust::None
    }

    /// From the table: the next start makes another one.
    pub fn drop_state(&self) -> Result<()> {
        let state = self.state.as_ref().context("there is none")?;
        let what = || format!("changing the partition table of {}", self.disk.display());
        let mut table = GptConfig::new()
            .writable(true)
            .logical_block_size(self.block)
            .open(&self.disk)
            .with_context(what)?;
        let id = state.id.parse().with_context(what)?;
        table.remove_partition_by_guid(id).with_context(what)?;
        let disk = table.write().with_context(what)?;
        disk.sync_all().with_context(what)
    }

    pub fn other(&self) -> Result<&Partition> {
        self.other.as_ref().ok_or_else(|| {
            refuse(
                "this stick has no room for a second system",
                "write the new image to a stick of 8 GB or more with `firstlight flash`",
            )
        })
    }
}

/// Names, folders in `/sys` and what they are. What the kernel itself says of names is of before the first start, when system B was made.
fn list(
    root: &Path,
    disk: &Path,
    device: &Path,
    block: LogicalBlockSize,
) -> Result<Vec<(String, PathBuf, Partition)>> {
    let table = GptConfig::new()
        .writable(false)
        .logical_block_size(block)
        .open(device)
        .with_context(|| format!("reading the partition table of {}", device.display()))?;
    let mut partitions = Vec::new();
    for entry in fs::read_dir(disk).context("listing the stick's partitions")? {
        let folder = entry?.path();
        let Some(place) = number_in(&folder.join("partition")) else {
            continue;
        };
        let entry = u32::try_from(place)
            .ok()
            .and_then(|place| table.partitions().get(&place));
        let Some(entry) = entry.filter(|entry| entry.is_used()) else {
            continue;
        };
        let sectors = number_in(&folder.join("size")).context("a partition has a size")?;
        let partition = Partition {
            device: root
                .join("dev")
                .join(folder.file_name().context("a partition has a name")?),
            id: entry.part_guid.to_string(),
            bytes: sectors
                .checked_mul(512)
                .context("a partition beyond every size")?,
        };
        partitions.push((entry.name.clone(), folder, partition));
    }
    Ok(partitions)
}

fn number_in(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// What a file system is mounted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Read,
    Write,
}

/// Something mounted, until it is dropped.
#[derive(Debug)]
pub struct Mounted(PathBuf);

impl Mounted {
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Where nothing is written, nothing of it can be cut short.
    pub fn esp(partition: &Partition, access: Access) -> Result<Self> {
        Self::fat("esp", partition, access)
    }

    /// With `site.yaml`.
    pub fn site(partition: &Partition, access: Access) -> Result<Self> {
        Self::fat("site", partition, access)
    }

    fn fat(name: &str, partition: &Partition, access: Access) -> Result<Self> {
        let mode = match access {
            Access::Read => "ro",
            Access::Write => "rw",
        };
        let options = format!("{mode},nodev,nosuid,noexec,noatime,umask=0077");
        Self::new(name, &partition.device, "vfat", &options)
    }

    /// A layer whose digest was found right.
    pub fn layer(device: &Path, layer: &Layer) -> Result<Self> {
        let Layer { offset, length, .. } = layer;
        let options = format!("ro,nodev,nosuid,noexec,loop,offset={offset},sizelimit={length}");
        Self::new(&layer.name, device, "squashfs", &options)
    }

    fn new(name: &str, device: &Path, kind: &str, options: &str) -> Result<Self> {
        alone_with_mounts()?;
        let place = Path::new(MOUNTS).join(name);
        fs::create_dir_all(&place).with_context(|| format!("making {}", place.display()))?;
        run(Command::new("mount")
            .args(["-t", kind, "-o", options])
            .args([device, &place]))?;
        Ok(Self(place))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Err(error) = nix::mount::umount(&self.0) {
            eprintln!("{} stays mounted: {error}", self.0.display());
        }
    }
}

/// What this program mounts is seen by nobody else: systemd would take it for the machine's own, and a device for gone when it is
/// unmounted.
fn alone_with_mounts() -> Result<()> {
    static DONE: OnceLock<()> = OnceLock::new();
    if DONE.get().is_some() {
        return Ok(());
    }
    unshare(CloneFlags::CLONE_NEWNS).context("getting mounts of its own")?;
    let flags = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    mount(None::<&str>, "/", None::<&str>, flags, None::<&str>)
        .context("getting mounts of its own")?;
    DONE.get_or_init(|| ());
    Ok(())
}

fn run(command: &mut Command) -> Result<()> {
    let output = command
        .output()
        .with_context(|| format!("starting {command:?}"))?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}

/// Units that were given up for want of what is there now.
pub fn begin_again() -> Result<()> {
    run(Command::new("systemctl").args(["--no-block", "start", "default.target"]))
}

/// The whole machine, now.
pub fn restart() -> Result<()> {
    if let Err(error) = run(Command::new("systemctl").args(["--no-block", "reboot"])) {
        bail!("the box does not restart: {error:#}");
    }
    Ok(())
}
