//! Disk files of machines.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::tools::find_program;

/// A stick of `gib` GiB that holds `image`. The image is read and never written; what the box writes goes to `file`.
pub fn stick(image: &Path, file: &Path, gib: u32) -> Result<()> {
    let image = image
        .canonicalize()
        .with_context(|| format!("opening {}", image.display()))?;
    qemu_img(file, gib, &["-F", "raw", "-b", &image.to_string_lossy()])
}

/// A disk that is `base` until something is written to it; `base` is not.
pub fn overlay(base: &Path, file: &Path) -> Result<()> {
    let mut program = program()?;
    program
        .args(["create", "-q", "-f", "qcow2", "-F", "qcow2", "-b"])
        .args([base, file]);
    run(program, file).map(drop)
}

/// A file below a disk, whose content the disk has where nothing else was written to it.
#[derive(Debug, PartialEq)]
pub struct Below {
    pub path: PathBuf,
    pub format: String,
}

/// Everything below a disk, the nearest first.
pub fn chain(disk: &Path) -> Result<Vec<Below>> {
    let mut program = program()?;
    program
        .args(["info", "--output=json", "--backing-chain"])
        .arg(disk);
    parse_chain(&run(program, disk)?)
}

fn parse_chain(text: &[u8]) -> Result<Vec<Below>> {
    let all: Vec<serde_json::Value> =
        serde_json::from_slice(text).context("qemu-img info is not a list")?;
    let below = all.iter().skip(1).map(|disk| {
        let text = |key: &str| disk[key].as_str().with_context(|| format!("no {key}"));
        Ok(Below {
            path: text("filename")?.into(),
            format: text("format")?.to_owned(),
        })
    });
    below.collect()
}

/// Says that what is below a disk is called `name` from now on, in the folder of the disk.
pub fn build_on(disk: &Path, name: &str, format: &str) -> Result<()> {
    let mut program = program()?;
    program
        .args([
            "rebase", "-q", "-u", "-f", "qcow2", "-F", format, "-b", name,
        ])
        .arg(disk);
    run(program, disk).map(drop)
}

/// An empty disk.
pub fn blank(file: &Path, gib: u32) -> Result<()> {
    qemu_img(file, gib, &[])
}

/// A raw disk as an old machine leaves it: an MBR with one Linux partition, and data in it.
pub fn data_disk(file: &Path, bytes: u64) -> Result<()> {
    let write = || -> std::io::Result<()> {
        let mut disk = File::create(file)?;
        disk.set_len(bytes)?;
        let mut mbr = [0; 512];
        let sectors = u32::try_from(bytes / 512 - 2048).unwrap_or(u32::MAX);
        mbr[446..454].copy_from_slice(&[0x80, 0xfe, 0xff, 0xff, 0x83, 0xfe, 0xff, 0xff]);
        mbr[454..458].copy_from_slice(&2048_u32.to_le_bytes());
        mbr[458..462].copy_from_slice(&sectors.to_le_bytes());
        mbr[510..].copy_from_slice(&[0x55, 0xaa]);
        disk.write_all(&mbr)?;
        disk.seek(SeekFrom::Start(2048 * 512))?;
        disk.write_all(&b"the only copy of somebody's data\n".repeat(4096))
    };
    write().with_context(|| format!("writing {}", file.display()))
}

/// The content of a disk that no machine uses.
pub fn to_raw(disk: &Path, raw: &Path) -> Result<()> {
    let mut program = program()?;
    program
        .args(["convert", "-q", "-f", "qcow2", "-O", "raw"])
        .args([disk, raw]);
    run(program, raw).map(drop)
}

fn qemu_img(file: &Path, gib: u32, options: &[&str]) -> Result<()> {
    let mut program = program()?;
    program
        .args(["create", "-q", "-f", "qcow2"])
        .args(options)
        .arg(file)
        .arg(format!("{gib}G"));
    run(program, file).map(drop)
}

fn program() -> Result<Command> {
    Ok(Command::new(find_program("qemu-img", "qemu-utils")?))
}

fn run(mut program: Command, makes: &Path) -> Result<Vec<u8>> {
    let output = program.output().context("starting qemu-img")?;
    if !output.status.success() {
        bail!(
            "qemu-img, on the disk {}: {}",
            makes.display(),
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(output.stdout)
}
