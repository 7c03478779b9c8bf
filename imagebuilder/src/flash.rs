//! `firstlight flash`: writes an image to a stick with the settings of a site, what differs alone, and reads it back.

mod disks;
mod settings;
mod source;

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use firstlight_signature::Keys;
use indicatif::{ProgressBar, ProgressStyle};
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};

use crate::UsageError;
use crate::build::group;
use crate::disk::{fill, gpt};
use crate::inspect;
use disks::{Disk, load_disk, refuse};
use settings::Settings;
use source::Source;

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
    /// Without one the sticks that are there are named.
    pub device: Option<PathBuf>,
    pub target: Target,
    pub confirm: Confirm,
    /// Whose image it has to be.
    pub signed_by: Option<Keys>,
    /// Put on the stick instead of the image's own.
    pub site: Option<PathBuf>,
    /// Files of public keys, for `sshKeys` of that.
    pub ssh_keys: Vec<PathBuf>,
}

/// Writes and verifies; returns what to say at the end.
pub fn flash(plan: &FlashPlan) -> Result<String> {
    let settings = Settings::load(plan.site.as_deref(), &plan.ssh_keys)?;
    let mut source = Source::open(&plan.image)?;
    gpt::load_table(source.path()).with_context(|| plan.image.display().to_string())?;
    if let Some(keys) = &plan.signed_by {
        inspect::verify(source.path(), keys)?;
    }
    let bytes = source.bytes();
    let Some(device) = &plan.device else {
        return Err(UsageError(which(bytes)?).into());
    };
    let disk = load_disk(device)?;
    if let Some(problem) = refuse(&disk, bytes, plan.target) {
        return Err(UsageError(format!("{}: {problem}", device.display())).into());
    }
    if let Some(settings) = settings {
        source.lay_over(settings.on(&source)?);
    }
    if plan.confirm == Confirm::Ask && !ask(&disk, device)? {
        bail!("nothing was written");
    }
    let mut stick = open(device)?;
    let written = write(&mut source, &mut stick, device)?;
    let read = verify(&mut source, &mut stick, device, &written)?;
    Ok(summary(device, bytes, &written, read))
}

/// Those that are plugged in, for people.
pub fn sticks() -> Result<String> {
    let sticks = disks::list(0)?;
    Ok(if sticks.is_empty() {
        "no stick is plugged in\n".to_owned()
    } else {
        sticks
    })
}

/// The question that a person has to answer first.
fn which(bytes: u64) -> Result<String> {
    let sticks = disks::list(bytes)?;
    Ok(if sticks.is_empty() {
        "no stick is plugged in; plug one in, or name a device (`lsblk` lists them)".to_owned()
    } else {
        format!("name the stick to write; these are plugged in:\n{sticks}")
    })
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

fn open(device: &Path) -> Result<File> {
    // The kernel refuses an exclusive open while anything has the device mounted.
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(true)
        .custom_flags(nix::libc::O_EXCL);
    options
        .open(device)
        .with_context(|| format!("opening {} (are you root?)", device.display()))
}

/// Blocks that were written, by their first byte, and their bytes together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Written {
    offsets: Vec<u64>,
    bytes: u64,
}

/// A stick that had this image, or one like it, has most of it already.
fn write(source: &mut Source, stick: &mut File, device: &Path) -> Result<Written> {
    // What is compared comes from the stick, not from memory.
    forget(stick)?;
    let bar = bar("writing", source.bytes());
    let (mut wanted, mut found) = (vec![0; BLOCK], vec![0; BLOCK]);
    let mut written = Written::default();
    let mut offset = 0;
    let broken = || format!("writing {}: the stick may be broken", device.display());
    loop {
        let count = source.read(offset, &mut wanted)?;
        if count == 0 {
            break;
        }
        stick.seek(SeekFrom::Start(offset)).with_context(broken)?;
        // What cannot be read is written anew.
        let has = fill(stick, &mut found[..count]).is_ok_and(|has| has == count);
        if !has || found[..count] != wanted[..count] {
            stick.seek(SeekFrom::Start(offset)).with_context(broken)?;
            stick.write_all(&wanted[..count]).with_context(broken)?;
            // Without this the bar would show the speed of memory, and the end would take minutes.
            stick.sync_data().with_context(broken)?;
            written.offsets.push(offset);
            written.bytes += count as u64;
        }
        offset += count as u64;
        bar.inc(count as u64);
    }
    bar.finish_and_clear();
    Ok(written)
}

/// Reads back what was written; the rest was read already. Returns how long that took.
fn verify(
    source: &mut Source,
    stick: &mut File,
    device: &Path,
    written: &Written,
) -> Result<Duration> {
    forget(stick)?;
    let bar = bar("verifying", written.bytes);
    let (mut wanted, mut found) = (vec![0; BLOCK], vec![0; BLOCK]);
    let mut took = Duration::ZERO;
    for offset in &written.offsets {
        let count = source.read(*offset, &mut wanted)?;
        let began = Instant::now();
        stick.seek(SeekFrom::Start(*offset))?;
        let has = fill(stick, &mut found[..count])
            .with_context(|| format!("reading {} back", device.display()))?;
        took += began.elapsed();
        if has < count || found[..count] != wanted[..count] {
            bail!(
                "{} reads back differently at byte {offset}: the stick is broken, use another one",
                device.display()
            );
        }
        bar.inc(count as u64);
    }
    bar.finish_and_clear();
    Ok(took)
}

fn forget(stick: &File) -> Result<()> {
    posix_fadvise(stick, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)
        .context("dropping the cache of the stick")
}

fn summary(device: &Path, bytes: u64, written: &Written, read: Duration) -> String {
    let mut text = format!(
        "{} is ready: put it into a server and switch it on\n{} of {} bytes were written, the others were there\n",
        device.display(),
        group(written.bytes),
        group(bytes)
    );
    // Of a few blocks no speed can be told.
    if written.bytes >= 16 * BLOCK as u64 {
        let micros = read.as_micros().max(1);
        let speed = u128::from(written.bytes) / micros;
        let whole = u128::from(bytes) * micros / u128::from(written.bytes) / 1_000_000;
        // Text takes everything.
        let _ = writeln!(
            text,
            "it reads {speed} MB/s: all of the image, which a box needs by and by after its start, takes it {whole} s"
        );
    }
    text
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
