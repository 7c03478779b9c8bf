//! `firstlight inspect`: what is in an image file or on a stick, read from the bytes themselves.

mod boot;

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

use anyhow::{Context, Result, bail};
use firstlight_api::slot::{Layer, SlotTable, SystemContent, TABLE_BYTES, parse_slot_table};
use firstlight_signature::{Keys, Unbelieved, signer};
use serde_json::Value;

use self::boot::Found;
use crate::build::cache::digest_all;
use crate::build::group;
use crate::disk::gpt::{self, DiskPlan, PartitionPlan};
use crate::disk::{fat, fill};

/// Bytes in which the small files of an image are found and read.
const MOST_READ: u64 = 64 << 20;

/// A text for people: partitions, layers and files of the start (with their digests checked), who signed them, versions, files, and the
/// settings of the site.
///
/// # Errors
/// Also when a layer's bytes do not have the digest that the slot table gives: such a stick does not start. `keys`: also when
/// nobody of those has signed it.
pub fn inspect(image: &Path, keys: Option<&Keys>) -> Result<String> {
    let plan = gpt::load_table(image)?;
    let mut text = String::new();
    write_partitions(&mut text, &plan)?;
    let systems = load_systems(image, &plan)?;
    for system in &systems {
        write_system(&mut text, image, system, keys)?;
    }
    boot::check(image, &plan, &systems, keys)?;
    if let Some(part) = plan
        .partitions
        .iter()
        .find(|part| part.name == "FIRSTLIGHT")
    {
        write_manifest(&mut text, image, part)?;
        write_site(&mut text, image, part)?;
    }
    // Names and settings are the image's words, and a terminal obeys some letters.
    Ok(text.replace(|c: char| c.is_control() && c != '\n', "\u{fffd}"))
}

/// Refuses an image that none of these keys has signed, or that was changed since; site.yaml is the site's own.
pub fn verify(image: &Path, keys: &Keys) -> Result<()> {
    inspect(image, Some(keys)).map(drop)
}

/// Those of an image, whose bytes are as its tables say.
pub fn systems(image: &Path) -> Result<Vec<SystemContent>> {
    inspect(image, None)?;
    let plan = gpt::load_table(image)?;
    let systems = load_systems(image, &plan)?;
    Ok(systems
        .iter()
        .map(|system| system.table.content())
        .collect())
}

fn load_systems<'a>(image: &Path, plan: &'a DiskPlan) -> Result<Vec<Found<'a>>> {
    let mut systems = Vec::new();
    let parts = plan.partitions.iter();
    for part in parts.filter(|part| part.kind == gpt::SYSTEM) {
        if let Some(table) = load_slot(image, part)? {
            systems.push(Found { part, table });
        }
    }
    if systems.is_empty() {
        bail!("{} has no system on it", image.display());
    }
    Ok(systems)
}

fn write_partitions(text: &mut String, plan: &DiskPlan) -> Result<()> {
    writeln!(text, "{:<4}{:<18}{:>16}  type", "", "partition", "bytes")?;
    for part in &plan.partitions {
        let kind = match part.kind {
            gpt::BIOS_BOOT => "BIOS boot",
            gpt::ESP => "EFI system",
            gpt::BASIC_DATA => "FAT, site.yaml",
            gpt::SYSTEM => "system slot",
            gpt::STATE => "state, made at first boot",
            _ => "unknown to Firstlight",
        };
        writeln!(
            text,
            "{:<4}{:<18}{:>16}  {kind}",
            part.number,
            part.name,
            group(part.bytes())
        )?;
    }
    Ok(())
}

/// The slot table of a partition; `None` when the partition was never filled.
pub fn load_slot(image: &Path, part: &PartitionPlan) -> Result<Option<SlotTable>> {
    let table = slot_block(image, part)?;
    if table.iter().all(|byte| *byte == 0) {
        return Ok(None);
    }
    parse_slot_table(&table, part.bytes())
        .map(Some)
        .with_context(|| format!("partition {} of {}", part.name, image.display()))
}

fn slot_block(image: &Path, part: &PartitionPlan) -> Result<Vec<u8>> {
    let mut file = File::open(image).with_context(|| format!("opening {}", image.display()))?;
    file.seek(SeekFrom::Start(part.offset()))?;
    let mut table = vec![0; TABLE_BYTES];
    if fill(&mut file, &mut table)? < table.len() {
        bail!(
            "{} ends inside partition {}: the copy is cut short",
            image.display(),
            part.name
        );
    }
    Ok(table)
}

fn write_system(
    text: &mut String,
    image: &Path,
    Found { part, table }: &Found<'_>,
    keys: Option<&Keys>,
) -> Result<()> {
    let system = table.content();
    let signed = match keys {
        Some(keys) => Ok(keys.check(&system).context(image.display().to_string())?),
        None => signer(&system),
    };
    let signed = match signed {
        Ok(who) => format!("signed by {who}"),
        Err(why @ Unbelieved::Unsigned) => why.to_string(),
        Err(why) => bail!("{} of {}: {why}", part.name, image.display()),
    };
    writeln!(
        text,
        "\n{} ({}), digests checked, {signed}",
        part.name, part.id
    )?;
    for layer in &table.layers {
        check_layer(image, part, layer)?;
        writeln!(
            text,
            "    {:<18}{:>16}  {}",
            layer.name,
            group(layer.length),
            layer.sha256
        )?;
    }
    Ok(())
}

/// Refuses a layer whose bytes do not have the digest that the slot table gives.
pub fn check_layer(image: &Path, part: &PartitionPlan, layer: &Layer) -> Result<()> {
    let mut window = window(image, part.offset() + layer.offset, layer.length)?;
    let found = digest_all(&mut window).with_context(|| format!("reading layer {}", layer.name))?;
    if found != layer.sha256.to_string() {
        bail!(
            "layer {} of {} in {} has digest {found}, and the slot table says {}: write the stick anew",
            layer.name,
            part.name,
            image.display(),
            layer.sha256
        );
    }
    Ok(())
}

/// Versions and files, as the build wrote them down.
fn write_manifest(text: &mut String, image: &Path, part: &PartitionPlan) -> Result<()> {
    let Some(manifest) = fat::read_file(files_of(image, part)?, "manifest.json")? else {
        writeln!(
            text,
            "\nmanifest.json is not on the FIRSTLIGHT partition: versions are not known"
        )?;
        return Ok(());
    };
    let manifest: Value = serde_json::from_slice(&manifest)
        .context("manifest.json on the FIRSTLIGHT partition is damaged")?;
    writeln!(text, "\nversions")?;
    for (name, version) in manifest["versions"].as_object().into_iter().flatten() {
        match version {
            Value::String(version) => writeln!(text, "    {name:<18}{version}")?,
            Value::Object(images) => {
                for reference in images.values().filter_map(Value::as_str) {
                    writeln!(text, "    {:<18}{reference}", "image")?;
                }
            }
            _ => {}
        }
    }
    writeln!(text, "\nfiles for hosts")?;
    for file in manifest["files"].as_array().into_iter().flatten() {
        let (name, sha256) = (
            file["name"].as_str().unwrap_or_default(),
            file["sha256"].as_str().unwrap_or_default(),
        );
        writeln!(
            text,
            "    {name:<18}{:>16}  {sha256}",
            group(file["bytes"].as_u64().unwrap_or_default())
        )?;
    }
    Ok(())
}

pub fn window(image: &Path, start: u64, length: u64) -> Result<Window> {
    let file = File::open(image).with_context(|| format!("opening {}", image.display()))?;
    Ok(Window {
        file,
        start,
        length,
        at: 0,
        left: u64::MAX,
    })
}

/// A partition of small files: a damaged file system leads in a circle.
pub fn files_of(image: &Path, part: &PartitionPlan) -> Result<Window> {
    Ok(Window {
        left: MOST_READ,
        ..window(image, part.offset(), part.bytes())?
    })
}

fn write_site(text: &mut String, image: &Path, part: &PartitionPlan) -> Result<()> {
    let Some(site) = fat::read_file(files_of(image, part)?, "site.yaml")? else {
        writeln!(
            text,
            "\nsite.yaml is not on the FIRSTLIGHT partition: the box would use the defaults"
        )?;
        return Ok(());
    };
    let site = String::from_utf8_lossy(&site);
    let lines: Vec<&str> = site
        .lines()
        .filter(|line| !line.trim().is_empty() && !line.trim_start().starts_with('#'))
        .collect();
    writeln!(
        text,
        "\nsite.yaml, without comments\n{}",
        indent(&lines.join("\n"))
    )?;
    Ok(())
}

fn indent(text: &str) -> String {
    text.lines().fold(String::new(), |mut all, line| {
        all.push_str("    ");
        all.push_str(line);
        all.push('\n');
        all
    })
}

/// Part of a file, read-only.
pub struct Window {
    file: File,
    start: u64,
    length: u64,
    at: u64,
    /// Bytes that may still be read.
    left: u64,
}

impl Read for Window {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.length.saturating_sub(self.at)).unwrap_or(usize::MAX);
        let wanted = buffer.len().min(left);
        if wanted == 0 {
            return Ok(0);
        }
        self.left = self.left.checked_sub(wanted as u64).ok_or_else(|| {
            io::Error::other("its files are far too large, or its folders lead in a circle")
        })?;
        self.file.seek(SeekFrom::Start(self.start + self.at))?;
        let count = self.file.read(&mut buffer[..wanted])?;
        self.at += count as u64;
        Ok(count)
    }
}

impl Seek for Window {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(offset) => self.length.checked_add_signed(offset),
            SeekFrom::Current(offset) => self.at.checked_add_signed(offset),
        };
        self.at = at.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}

impl Write for Window {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
