//! `firstlight inspect`: what is in an image file or on a stick, read from the bytes themselves.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::path::Path;

use anyhow::{Context, Result, bail};
use backhand::{FilesystemReader, InnerNode};

use crate::build::group;
use crate::disk::gpt::{self, DiskPlan, PartitionPlan};
use crate::disk::slot::{SlotLayer, TABLE, parse_table};
use crate::disk::{fat, fill};

/// A text for people: partitions, layers, versions, payload, and the settings of the site.
pub fn inspect(image: &Path) -> Result<String> {
    let plan = gpt::load_table(image)?;
    let mut text = String::new();
    write_partitions(&mut text, &plan)?;
    for part in plan.partitions.iter().filter(|part| part.kind == gpt::SYSTEM) {
        match load_slot(image, part)? {
            Some(slot) => write_system(&mut text, image, part, &slot)?,
            None => writeln!(text, "\n{}: empty", part.name)?,
        }
    }
    if let Some(part) = plan.partitions.iter().find(|part| part.name == "FIRSTLIGHT") {
        write_site(&mut text, image, part)?;
    }
    Ok(text)
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
        writeln!(text, "{:<4}{:<18}{:>16}  {kind}", part.number, part.name, group(part.bytes()))?;
    }
    Ok(())
}

/// The slot table of a partition; `None` when the partition was never filled.
pub fn load_slot(image: &Path, part: &PartitionPlan) -> Result<Option<Vec<SlotLayer>>> {
    let mut file = File::open(image).with_context(|| format!("opening {}", image.display()))?;
    file.seek(SeekFrom::Start(part.offset()))?;
    let mut table = vec![0; usize::try_from(TABLE)?];
    if fill(&mut file, &mut table)? < table.len() {
        bail!("{} ends inside partition {}: the copy is cut short", image.display(), part.name);
    }
    if table.iter().all(|byte| *byte == 0) {
        return Ok(None);
    }
    parse_table(&table).map(Some).with_context(|| format!("partition {} of {}", part.name, image.display()))
}

fn write_system(text: &mut String, image: &Path, part: &PartitionPlan, slot: &[SlotLayer]) -> Result<()> {
    writeln!(text, "\n{} ({})", part.name, part.id)?;
    for layer in slot {
        writeln!(text, "    {:<18}{:>16}  {}", layer.name, group(layer.length), layer.sha256)?;
    }
    let agent = open_layer(image, part, slot, "agent")?;
    let versions = read_member(&agent, "/usr/share/firstlight/versions.json")?;
    writeln!(text, "\nversions\n{}", indent(&versions))?;
    let payload = open_layer(image, part, slot, "payload")?;
    writeln!(text, "payload (/usr/share/firstlight)")?;
    for node in payload.files() {
        if let InnerNode::File(file) = &node.inner {
            let name = node.fullpath.strip_prefix("/usr/share/firstlight").unwrap_or(&node.fullpath);
            writeln!(text, "    {:<18}{:>16}", name.display().to_string(), group(file.file_len() as u64))?;
        }
    }
    Ok(())
}

fn open_layer<'a>(image: &Path, part: &PartitionPlan, slot: &[SlotLayer], name: &str) -> Result<FilesystemReader<'a>> {
    let layer = slot.iter().find(|layer| layer.name == name).with_context(|| format!("the slot has no layer {name}"))?;
    let file = File::open(image).with_context(|| format!("opening {}", image.display()))?;
    let offset = part.offset() + layer.offset;
    FilesystemReader::from_reader_with_offset(BufReader::new(file), offset).with_context(|| format!("layer {name} is not readable as squashfs"))
}

fn read_member(layer: &FilesystemReader<'_>, path: &str) -> Result<String> {
    let found = layer.files().find(|node| node.fullpath == Path::new(path));
    let Some(InnerNode::File(file)) = found.map(|node| &node.inner) else { bail!("the layer holds no {path}") };
    let mut text = String::new();
    layer.file(file).reader().read_to_string(&mut text).with_context(|| format!("reading {path}"))?;
    Ok(text)
}

fn write_site(text: &mut String, image: &Path, part: &PartitionPlan) -> Result<()> {
    let file = File::open(image).with_context(|| format!("opening {}", image.display()))?;
    let Some(site) = fat::read_file(Window { file, start: part.offset(), length: part.bytes(), at: 0 }, "site.yaml")? else {
        writeln!(text, "\nsite.yaml is not on the FIRSTLIGHT partition: the box would use the defaults")?;
        return Ok(());
    };
    let site = String::from_utf8_lossy(&site);
    let lines: Vec<&str> = site.lines().filter(|line| !line.trim().is_empty() && !line.trim_start().starts_with('#')).collect();
    writeln!(text, "\nsite.yaml, without comments\n{}", indent(&lines.join("\n")))?;
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

/// Part of a file, read-only: what the FAT reader may see.
struct Window {
    file: File,
    start: u64,
    length: u64,
    at: u64,
}

impl Read for Window {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.length.saturating_sub(self.at)).unwrap_or(usize::MAX);
        let wanted = buffer.len().min(left);
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
