//! Reads all that starts the box and all that it runs, and compares it with the tables of the stick's systems: damage that nobody has met
//! yet.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result};
use firstlight_api::boot_choice::{BootPlace, SystemSlot, boot_template};
use firstlight_api::digest::Sha256Digest;
use firstlight_api::slot::BootFile;

use crate::boot::Esp;
use crate::slot::Slot;
use crate::stick::Partition;

/// Where everything is; devices, or files of a test.
#[derive(Clone, Copy, Debug)]
pub struct Parts<'a> {
    pub disk: &'a Path,
    pub bios: &'a Path,
    /// Mounted.
    pub esp: Esp<'a>,
}

/// A slot of the stick.
#[derive(Clone, Copy, Debug)]
pub struct System<'a> {
    pub name: SystemSlot,
    pub slot: Slot<'a>,
    /// As in `PARTUUID=`.
    pub id: &'a str,
}

impl<'a> System<'a> {
    /// The one on that partition.
    pub fn of(name: SystemSlot, partition: &'a Partition) -> Self {
        Self {
            name,
            slot: Slot::of(partition),
            id: &partition.id,
        }
    }
}

/// What is damaged, in words for people. `other`: is looked at if it could be started. `pause` is called after each piece.
pub fn scrub(
    parts: Parts<'_>,
    running: System<'_>,
    other: Option<System<'_>>,
    pause: &mut dyn FnMut(),
) -> Result<Vec<String>> {
    let Some(table) = running.slot.system()? else {
        // Nothing can be compared.
        return Ok(vec![format!("the table of {}", running.name.partition())]);
    };
    let mut damaged = Vec::new();
    let mut tables = vec![(running, table)];
    if let Some(other) = other.filter(|other| parts.esp.is_whole(other.name)) {
        // Or somebody is writing it.
        tables.extend(other.slot.system()?.map(|table| (other, table)));
    }
    let tables_boot = tables.iter().flat_map(|(_, table)| table.boot.clone());
    // Shim, GRUB and its script are there once for both systems.
    let shared: Vec<BootFile> = tables_boot.chain(parts.esp.loaders()).collect();
    for (system, table) in &tables {
        let name = system.name.partition();
        let mut wrong = Vec::new();
        for layer in &table.layers {
            let mut tell = |_| {
                pause();
                Ok(())
            };
            // What cannot be read is damaged, too.
            let found = system.slot.digest(layer, &mut tell).ok();
            if found != Some(layer.sha256) {
                wrong.push(format!("layer {} of {name}", layer.name));
            }
        }
        for file in &table.boot {
            if !is_as_built(parts, *system, file, &shared) {
                wrong.push(if BootPlace::of(&file.name, system.name).is_of_system() {
                    format!("{} of {name}", file.name)
                } else {
                    file.name.clone()
                });
            }
        }
        let is_there = parts.esp.is_whole(system.name);
        if system.name == running.name
            || (is_there && system.slot.system()?.as_ref() == Some(table))
        {
            damaged.append(&mut wrong);
        }
    }
    damaged.sort();
    damaged.dedup();
    Ok(damaged)
}

fn is_as_built(parts: Parts<'_>, system: System<'_>, file: &BootFile, shared: &[BootFile]) -> bool {
    let found = find(parts, system, &file.name).ok();
    if BootPlace::of(&file.name, system.name).is_of_system() {
        return found == Some(file.sha256);
    }
    let mut known = shared.iter().filter(|other| other.name == file.name);
    known.any(|other| found == Some(other.sha256))
}

fn find(parts: Parts<'_>, system: System<'_>, name: &str) -> Result<Sha256Digest> {
    let on_esp = |path: &str| fs::read(parts.esp.0.join(path)).context("reading the ESP");
    let content = match BootPlace::of(name, system.name) {
        BootPlace::Mbr(bytes) => {
            let mut code = vec![0; bytes];
            File::open(parts.disk)?.read_exact(&mut code)?;
            code
        }
        BootPlace::BiosBoot => fs::read(parts.bios)?,
        BootPlace::Esp(path) | BootPlace::System(path) => on_esp(&path)?,
        BootPlace::Start(path) => {
            let config = String::from_utf8(on_esp(&path)?)?;
            let table = system.slot.table_digest()?;
            boot_template(&config, system.name, system.id, table).into_bytes()
        }
    };
    Ok(Sha256Digest::of(&content))
}
