//! `firstlight flash`: writes an image to a stick, and reads it back.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use firstlight_signature::Keys;
use indicatif::{ProgressBar, ProgressStyle};
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};

use crate::UsageError;
use crate::build::group;
use crate::disk::{fill, gpt};
use crate::inspect;

const BLOCK: usize = 4 << 20;

/// Which devices may be overwritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    RemovableOnly,
    Any,
}

/// Whether a person has to answer before anything is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confirm {
    Ask,
    Given,
}

/// What to write where.
#[derive(Clone, Debug)]
pub struct FlashPlan {
    pub image: PathBuf,
    pub device: PathBuf,
    pub target: Target,
    pub confirm: Confirm,
    /// Whose image it has to be.
    pub signed_by: Option<Keys>,
}

/// What the kernel says about a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Disk {
    name: String,
    model: String,
    bytes: u64,
    removable: bool,
    /// Mount points (or `swap`, `in use by NAME`) of the disk and its partitions.
    uses: Vec<String>,
}

/// Writes and verifies; returns what to say at the end.
pub fn flash(plan: &FlashPlan) -> Result<String> {
    gpt::load_table(&plan.image)?;
    if let Some(keys) = &plan.signed_by {
        inspect::verify(&plan.image, keys)?;
    }
    let bytes = fs::metadata(&plan.image)
        .with_context(|| format!("reading {}", plan.image.display()))?
        .len();
    let disk = load_disk(&plan.device)?;
    if let Some(problem) = refuse(&disk, bytes, plan.target) {
        return Err(UsageError(format!("{}: {problem}", plan.device.display())).into());
    }
    if plan.confirm == Confirm::Ask && !ask(&disk, &plan.device)? {
        bail!("nothing was written");
    }
    write(plan, bytes)?;
    verify(plan, bytes)?;
    Ok(format!(
        "{} is ready: put it into a server and switch it on\n",
        plan.device.display()
    ))
}

/// Why this disk must not be written to.
fn refuse(disk: &Disk, image: u64, target: Target) -> Option<String> {
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

fn load_disk(device: &Path) -> Result<Disk> {
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
    let read = |name: &str| {
        fs::read_to_string(sys.join(name))
            .map(|text| text.trim().to_owned())
            .unwrap_or_default()
    };
    let sectors: u64 = read("size")
        .parse()
        .with_context(|| format!("reading the size of {}", device.display()))?;
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
        uses: find_uses(&sys)?,
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

fn ask(disk: &Disk, device: &Path) -> Result<bool> {
    let mut terminal = std::io::stderr();
    write!(
        terminal,
        "{}: {}, {} bytes. Everything on it will be lost. Write {} to go on: ",
        device.display(),
        disk.model,
        group(disk.bytes),
        disk.name
    )?;
    terminal.flush()?;
    let mut answer = String::new();
    std::io::stdin()
        .read_line(&mut answer)
        .context("reading the answer (without a terminal, say --yes)")?;
    Ok(answer.trim() == disk.name)
}

fn write(plan: &FlashPlan, bytes: u64) -> Result<()> {
    let mut from = File::open(&plan.image)?;
    // The kernel refuses an exclusive open while anything has the device mounted.
    let mut options = OpenOptions::new();
    options.write(true).custom_flags(nix::libc::O_EXCL);
    let mut to = options
        .open(&plan.device)
        .with_context(|| format!("opening {} (are you root?)", plan.device.display()))?;
    let bar = bar("writing", bytes);
    let mut block = vec![0; BLOCK];
    loop {
        let count = fill(&mut from, &mut block)?;
        if count == 0 {
            break;
        }
        to.write_all(&block[..count]).with_context(|| {
            format!("writing {}: the stick may be broken", plan.device.display())
        })?;
        // Without this the bar would show the speed of memory, and the end would take minutes.
        to.sync_data().with_context(|| {
            format!("writing {}: the stick may be broken", plan.device.display())
        })?;
        bar.inc(count as u64);
    }
    bar.finish_and_clear();
    Ok(())
}

fn verify(plan: &FlashPlan, bytes: u64) -> Result<()> {
    let mut image = File::open(&plan.image)?;
    let mut device =
        File::open(&plan.device).with_context(|| format!("opening {}", plan.device.display()))?;
    // What was just written must come from the stick, not from memory.
    posix_fadvise(&device, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)
        .context("dropping the cache of the stick")?;
    device.seek(SeekFrom::Start(0))?;
    let bar = bar("verifying", bytes);
    let differs = find_difference(&mut image, &mut device, |count| bar.inc(count))?;
    bar.finish_and_clear();
    match differs {
        None => Ok(()),
        Some(offset) => bail!(
            "{} reads back differently at byte {offset}: the stick is broken, use another one",
            plan.device.display()
        ),
    }
}

/// Offset of the first block of `image` that `device` does not have.
fn find_difference(
    image: &mut impl Read,
    device: &mut impl Read,
    progress: impl Fn(u64),
) -> Result<Option<u64>> {
    let (mut expected, mut found) = (vec![0; BLOCK], vec![0; BLOCK]);
    let mut offset = 0;
    loop {
        let count = fill(image, &mut expected)?;
        if count == 0 {
            return Ok(None);
        }
        let got = fill(device, &mut found[..count])?;
        if got < count || expected[..count] != found[..count] {
            return Ok(Some(offset));
        }
        offset += count as u64;
        progress(count as u64);
    }
}

/// How far it is, for people.
pub fn bar(what: &'static str, bytes: u64) -> ProgressBar {
    let style = ProgressStyle::with_template(
        "{msg:<10} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}",
    );
    ProgressBar::new(bytes)
        .with_style(style.expect("the template is constant and valid"))
        .with_message(what)
}

#[cfg(test)]
mod tests;
