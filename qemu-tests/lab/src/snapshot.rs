//! Machines that were stopped in the middle of their work, kept so that others go on from there: their state as QEMU migrates
//! it, and their disks as they were in that moment. The disks belong to the snapshot; whoever goes on writes to overlays.
//!
//! They are in the user's cache, each below its key: what is on the stick except the agent, the version of QEMU, the machines'
//! devices and the pace of their clocks. One that is damaged is removed, and the caller boots instead.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use anyhow::{Context, Result, bail, ensure};
use firstlight_artifacts::hex;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use time::OffsetDateTime;

use super::disks;
use super::machine::Vm;
use super::qemu::{Accel, Begin, Disk, DiskFormat, Firmware, Flash, Sockets, VmSpec, command_line};
use super::tools::find_program;

/// Of all snapshots together; beyond it those go that were used longest ago.
const ROOM: u64 = 16 << 30;
const MANIFEST: &str = "snapshot.json";
/// The stick's image as it was: another build puts another file in its place.
const IMAGE: &str = "image";

/// What is in a snapshot.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// What the machines' clocks said, in seconds since 1970.
    pub time: i64,
    /// SHA-256 of the agent's program.
    pub agent: String,
    pub machines: Vec<VmSpec>,
    /// Every other file, with its size.
    files: BTreeMap<String, u64>,
}

/// Where snapshots are kept.
pub struct Snapshots {
    dir: PathBuf,
}

/// A snapshot that stays as long as this does.
pub struct Snapshot {
    pub manifest: Manifest,
    dir: PathBuf,
    key: String,
    _held: File,
}

/// What a snapshot called `state` of these machines depends on; `stick` is the digest of what the box runs from.
pub fn key(
    state: &str,
    stick: &str,
    clock: &str,
    accel: Accel,
    machines: &[VmSpec],
) -> Result<String> {
    let version = Command::new(find_program("qemu-system-x86_64", "qemu-system-x86")?)
        .arg("--version")
        .output()
        .context("asking QEMU for its version")?;
    let version = String::from_utf8_lossy(&version.stdout);
    Ok(digest([state, stick, clock, &version], accel, machines))
}

fn digest(words: [&str; 4], accel: Accel, machines: &[VmSpec]) -> String {
    let mut digest = Sha256::new();
    for word in words {
        digest.update(format!("{word}\n"));
    }
    for spec in machines {
        digest.update(devices(spec, accel).join(" "));
    }
    hex(&digest.finalize())
}

/// The command line without what may differ between two runs.
fn devices(spec: &VmSpec, accel: Accel) -> Vec<String> {
    let sockets = Sockets {
        console: 0,
        monitor: 0,
        wire: 0,
        second_wire: spec.second_nic.map(|_| 0),
        tpm: spec.tpm.then_some(0),
    };
    let flash = (spec.firmware != Firmware::Bios).then(|| Flash {
        code: PathBuf::new(),
        variables: PathBuf::new(),
    });
    let mut spec = spec.clone();
    for disk in &mut spec.disks {
        disk.file = PathBuf::new();
    }
    command_line(&spec, accel, flash.as_ref(), sockets, Begin::Wait)
}

impl Snapshots {
    pub fn open(cache: &Path) -> Result<Self> {
        let dir = cache.join("snapshots");
        fs::create_dir_all(&dir).with_context(|| format!("creating {}", dir.display()))?;
        Ok(Self { dir })
    }

    /// Stops `machines`, keeps them and ends them. Their disks, in `lab`, go with them.
    pub fn save(
        &self,
        key: &str,
        time: impl FnOnce() -> OffsetDateTime,
        agent: &str,
        mut machines: Vec<Vm>,
        lab: &Path,
    ) -> Result<()> {
        let part = self.dir.join(format!(".{key}"));
        remove(&part)?;
        fs::create_dir(&part).with_context(|| format!("creating {}", part.display()))?;
        // All of them first, so that none waits for another that is gone already.
        for vm in &mut machines {
            vm.pause()?;
        }
        let time = time().unix_timestamp();
        for vm in &mut machines {
            vm.save_state(&part.join(state_file(vm.spec())))?;
        }
        let mut specs: Vec<VmSpec> = machines.iter().map(|vm| vm.spec().clone()).collect();
        for vm in machines {
            vm.switch_off()?;
        }
        for spec in &mut specs {
            for disk in &mut spec.disks {
                keep_disk(disk, &part, key).with_context(|| format!("a disk of {}", spec.name))?;
            }
            if let Some(variables) = spec.variables_file() {
                copy(&lab.join(&variables), &part.join(&variables))?;
            }
        }
        let manifest = Manifest {
            time,
            agent: agent.to_owned(),
            machines: specs,
            files: sizes(&part)?,
        };
        fs::write(part.join(MANIFEST), serde_json::to_vec_pretty(&manifest)?)
            .context("writing the snapshot's list")?;
        self.remove(key)?;
        fs::rename(&part, self.dir.join(key)).context("giving the snapshot its name")?;
        self.make_room(ROOM, key)
    }

    /// The snapshot of this key; `None` if there is none, an error if it is not whole.
    pub fn find(&self, key: &str) -> Result<Option<Snapshot>> {
        let dir = self.dir.join(key);
        let file = match File::options()
            .read(true)
            .write(true)
            .open(dir.join(MANIFEST))
        {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).context("opening the snapshot's list"),
        };
        file.lock_shared().context("holding the snapshot")?;
        let manifest: Manifest =
            serde_json::from_reader(&file).context("reading the snapshot's list")?;
        ensure!(
            sizes(&dir)? == manifest.files,
            "its files are not those that were written"
        );
        file.set_modified(SystemTime::now())
            .context("noting that the snapshot is used")?;
        Ok(Some(Snapshot {
            manifest,
            dir,
            key: key.to_owned(),
            _held: file,
        }))
    }

    pub fn remove(&self, key: &str) -> Result<()> {
        remove(&self.dir.join(key))
    }

    /// Removes what was used longest ago and is used by nobody, never `kept`.
    fn make_room(&self, room: u64, kept: &str) -> Result<()> {
        let mut all = Vec::new();
        for entry in fs::read_dir(&self.dir)?.flatten() {
            let (name, bytes) = (entry.file_name(), bytes_in(&entry.path())?);
            let used = fs::metadata(entry.path().join(MANIFEST)).and_then(|file| file.modified());
            // Without a list it was left by somebody who was killed.
            all.push((used.unwrap_or(SystemTime::UNIX_EPOCH), name, bytes));
        }
        all.sort();
        let mut total: u64 = all.iter().map(|(_, _, bytes)| bytes).sum();
        for (_, name, bytes) in all {
            if total <= room {
                break;
            }
            let dir = self.dir.join(&name);
            if name.to_str() != Some(kept) && !is_held(&dir) {
                remove(&dir)?;
                total -= bytes;
            }
        }
        Ok(())
    }
}

impl Snapshot {
    pub fn state(&self, spec: &VmSpec) -> PathBuf {
        self.dir.join(state_file(spec))
    }

    /// Gives a machine, in `lab`, its disk and its firmware's variables.
    pub fn furnish(&self, spec: &VmSpec, lab: &Path) -> Result<VmSpec> {
        let mut spec = spec.clone();
        for disk in &mut spec.disks {
            let base = self.dir.join(kept_name(&disk.file, &self.key)?);
            disk.file = lab.join(&disk.file);
            disks::overlay(&base, &disk.file)?;
        }
        if let Some(variables) = spec.variables_file() {
            copy(&self.dir.join(&variables), &lab.join(&variables))?;
        }
        Ok(spec)
    }
}

fn state_file(spec: &VmSpec) -> String {
    format!("{}.state", spec.name)
}

/// Of a disk in the snapshot: no other snapshot has a file of that name, so that one may build on another.
fn kept_name(disk: &Path, key: &str) -> Result<String> {
    let stem = disk.file_stem().context("a disk without a name")?;
    let short = key.get(..8).context("a short key")?;
    Ok(format!("{}-{short}.qcow2", stem.display()))
}

/// Moves a disk that no machine uses any more to `dir`, with links to the files that it builds on.
fn keep_disk(disk: &mut Disk, dir: &Path, key: &str) -> Result<()> {
    if disk.format != DiskFormat::Qcow2 {
        bail!("{} is not its own", disk.file.display());
    }
    let kept = dir.join(kept_name(&disk.file, key)?);
    let below = disks::chain(&disk.file)?;
    for (place, file) in below.iter().enumerate() {
        let name = name_below(file)?;
        let to = dir.join(&name);
        if !to.exists() {
            fs::hard_link(&file.path, &to)
                .or_else(|_| fs::copy(&file.path, &to).map(drop))
                .with_context(|| format!("keeping {}", file.path.display()))?;
        }
        if place == 0 {
            disks::build_on(&disk.file, &name, &file.format)?;
        }
    }
    fs::rename(&disk.file, &kept)
        .or_else(|_| fs::copy(&disk.file, &kept).map(drop))
        .with_context(|| format!("keeping {}", disk.file.display()))?;
    disk.file = disk
        .file
        .file_name()
        .context("a disk without a name")?
        .into();
    Ok(())
}

fn name_below(file: &disks::Below) -> Result<String> {
    if file.format == "raw" {
        return Ok(IMAGE.to_owned());
    }
    let name = file.path.file_name().and_then(|name| name.to_str());
    Ok(name.context("a disk without a name")?.to_owned())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to)
        .map(drop)
        .with_context(|| format!("copying {} to {}", from.display(), to.display()))
}

fn remove(dir: &Path) -> Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("removing {}", dir.display()))
        }
        _ => Ok(()),
    }
}

fn sizes(dir: &Path) -> Result<BTreeMap<String, u64>> {
    let entries = fs::read_dir(dir).with_context(|| format!("reading {}", dir.display()))?;
    let mut files = BTreeMap::new();
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name != MANIFEST {
            files.insert(name, entry.metadata()?.len());
        }
    }
    Ok(files)
}

/// On the disk: images have holes.
fn bytes_in(dir: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(dir).with_context(|| format!("reading {}", dir.display()))? {
        bytes += entry?.metadata()?.blocks() * 512;
    }
    Ok(bytes)
}

fn is_held(dir: &Path) -> bool {
    File::open(dir.join(MANIFEST))
        .is_ok_and(|file| matches!(file.try_lock(), Err(TryLockError::WouldBlock)))
}

#[cfg(test)]
mod tests;
