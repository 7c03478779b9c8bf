//! What is read before any layer, compared with what the build wrote into the tables of the systems.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use firstlight_api::boot_choice::{
    BIOS_BOOT, BOOT_CHOICE, BootChoice, BootPlace, LOADERS, SystemSlot, boot_template,
};
use firstlight_api::digest::Sha256Digest;
use firstlight_api::slot::{BootFile, SlotTable, parse_slot_table, table_digest};
use firstlight_signature::Keys;

use super::{files_of, slot_block, window};
use crate::build::cache::digest_all;
use crate::disk::fat;
use crate::disk::gpt::{self, DiskPlan, PartitionPlan};

/// A system of a stick.
#[derive(Debug)]
pub struct Found<'a> {
    pub part: &'a PartitionPlan,
    pub table: SlotTable,
}

/// Refuses a stick on which one of these files is another, or of which something else would be started.
pub fn check(
    image: &Path,
    plan: &DiskPlan,
    systems: &[Found<'_>],
    keys: Option<&Keys>,
) -> Result<()> {
    let tables = systems.iter().flat_map(|system| system.table.boot.clone());
    let mut known: Vec<BootFile> = tables.collect();
    if known.is_empty() {
        return Ok(());
    }
    check_way(image, plan)?;
    known.extend(loaders(image, plan, keys)?);
    for system in systems {
        for file in &system.table.boot {
            let found = digest(image, plan, system, &file.name)?;
            ensure!(
                file.is_as_built(found, &known),
                "{} of {} is not the one that was built: write the stick anew",
                file.name,
                image.display()
            );
        }
    }
    Ok(())
}

/// Those of an earlier image that an update has noted, if somebody who is believed has signed it.
fn loaders(image: &Path, plan: &DiskPlan, keys: Option<&Keys>) -> Result<Vec<BootFile>> {
    let noted = fat::read_file(files_of(image, plan.partition("ESP")?)?, LOADERS)?;
    let table = noted.and_then(|table| parse_slot_table(&table, u64::MAX).ok());
    let table = table.filter(|table| keys.is_none_or(|keys| keys.check(&table.content()).is_ok()));
    Ok(table.unwrap_or_default().boot)
}

/// Firmware takes a partition that says it is an ESP, GRUB for BIOS counts partitions, and what `grubenv` says becomes a path.
fn check_way(image: &Path, plan: &DiskPlan) -> Result<()> {
    let (esp, bios) = (plan.partition("ESP")?, plan.partition(BIOS_BOOT)?);
    let of_kind = |kind| plan.partitions.iter().filter(move |part| part.kind == kind);
    let wanted = gpt::plan_stick("", 0);
    let is_in_place = |part: &PartitionPlan| {
        let same = |other: &PartitionPlan| {
            (other.number, other.kind, other.first, other.sectors)
                == (part.number, part.kind, part.first, part.sectors)
        };
        wanted.partition(&part.name).is_ok_and(same) && of_kind(part.kind).count() == 1
    };
    ensure!(
        is_in_place(esp) && is_in_place(bios),
        "{} would be started from another partition than the one that was built: write the stick anew",
        image.display()
    );
    let choice = fat::read_file(files_of(image, esp)?, BOOT_CHOICE)?;
    ensure!(
        choice.is_none_or(|choice| BootChoice::is_all_of(&choice)),
        "{BOOT_CHOICE} of {} names something else than its systems: write the stick anew",
        image.display()
    );
    Ok(())
}

/// `None`: it is not there.
fn digest(
    image: &Path,
    plan: &DiskPlan,
    system: &Found<'_>,
    name: &str,
) -> Result<Option<Sha256Digest>> {
    let whole = |start, length| -> Result<Option<Sha256Digest>> {
        let text = digest_all(&mut window(image, start, length)?)?;
        Ok(Sha256Digest::parse(&text))
    };
    let slot = [SystemSlot::A, SystemSlot::B]
        .into_iter()
        .find(|slot| slot.partition() == system.part.name)
        .with_context(|| format!("{} is no system of a stick", system.part.name))?;
    let place = BootPlace::of(name, slot);
    let path = match &place {
        BootPlace::Mbr(bytes) => return whole(0, *bytes as u64),
        BootPlace::BiosBoot => {
            let part = plan.partition(BIOS_BOOT)?;
            return whole(part.offset(), part.bytes());
        }
        BootPlace::Esp(path) | BootPlace::System(path) | BootPlace::Start(path) => path,
    };
    let esp = plan.partition("ESP")?;
    let Some(content) = fat::read_file(files_of(image, esp)?, path)? else {
        return Ok(None);
    };
    let content = if let BootPlace::Start(_) = place {
        let Ok(config) = String::from_utf8(content) else {
            bail!("{path} is not text");
        };
        let table = table_digest(&slot_block(image, system.part)?);
        boot_template(&config, slot, &system.part.id.to_string(), table).into_bytes()
    } else {
        content
    };
    Ok(Some(Sha256Digest::of(&content)))
}
