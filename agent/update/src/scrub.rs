//! Reads all that starts the box and all that it runs, and compares it with the tables of the stick's systems: damage that nobody has met
//! yet.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result};
use firstlight_api::boot_choice::{BootPlace, SystemSlot, boot_template};
use firstlight_api::digest::Sha256Digest;
use firstlight_api::slot::{BootFile, SlotTable};

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

/// What is looked at, and what of it is damaged, in words for people.
#[derive(Debug)]
pub struct Scrub<'a> {
    systems: Vec<(System<'a>, SlotTable)>,
    damaged: Vec<String>,
}

impl<'a> Scrub<'a> {
    /// Reads what starts them: a matter of seconds, for whoever changes the ESP cannot have it meanwhile. `other`: is looked at if it
    /// could be started.
    pub fn start(parts: Parts<'_>, running: System<'a>, other: Option<System<'a>>) -> Result<Self> {
        let Some(table) = running.slot.system()? else {
            // Nothing can be compared.
            return Ok(Self {
                systems: Vec::new(),
                damaged: vec![format!("the table of {}", running.name.partition())],
            });
        };
        let mut systems = vec![(running, table)];
        if let Some(other) = other.filter(|other| parts.esp.is_whole(other.name)) {
            systems.extend(other.slot.system()?.map(|table| (other, table)));
        }
        let tables = systems.iter().flat_map(|(_, table)| table.boot.clone());
        let known: Vec<BootFile> = tables.chain(parts.esp.loaders()).collect();
        let mut damaged = Vec::new();
        for (system, table) in &systems {
            for file in &table.boot {
                // What cannot be read is damaged, too.
                if !file.is_as_built(find(parts, *system, &file.name).ok(), &known) {
                    damaged.push(if file.is_of_system() {
                        format!("{} of {}", file.name, system.name.partition())
                    } else {
                        file.name.clone()
                    });
                }
            }
        }
        Ok(Self { systems, damaged })
    }

    /// Reads what they run, and says what is damaged. `pause` is called after each piece.
    pub fn finish(self, pause: &mut dyn FnMut()) -> Result<Vec<String>> {
        let mut damaged = self.damaged;
        for (system, table) in &self.systems {
            let mut wrong = Vec::new();
            for layer in &table.layers {
                let mut tell = |_| {
                    pause();
                    Ok(())
                };
                let found = system.slot.digest(layer, &mut tell).ok();
                if found != Some(layer.sha256) {
                    wrong.push(format!(
                        "layer {} of {}",
                        layer.name,
                        system.name.partition()
                    ));
                }
            }
            // Else somebody has begun to write another one there, whose table goes first.
            if system.slot.system()?.as_ref() == Some(table) {
                damaged.append(&mut wrong);
            }
        }
        damaged.sort();
        damaged.dedup();
        Ok(damaged)
    }
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
