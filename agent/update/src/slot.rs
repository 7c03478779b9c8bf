//! Writes the layers of a system into a slot and reads them back. The slot's table, without which nothing starts from there, goes first
//! and comes last.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, Result};
use firstlight_api::digest::Sha256Digest;
use firstlight_api::slot::{
    Layer, SlotTable, SystemContent, TABLE_BYTES, format_table, parse_slot_table, table_digest,
};
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use sha2::{Digest, Sha256};

use crate::refusal::refuse;
use crate::stick::Partition;

const PIECE: usize = 4 << 20;
/// Written to the disk, not only to memory: so that progress is true and a slow stick holds up who sends.
const SYNC_EVERY: u64 = 16 << 20;

/// A slot, as a partition or, in tests, a file.
#[derive(Clone, Copy, Debug)]
pub struct Slot<'a> {
    pub device: &'a Path,
    pub room: u64,
}

/// Called with the bytes done and all of them.
pub type Progress<'a> = dyn FnMut(u64, u64) -> Result<()> + 'a;

impl<'a> Slot<'a> {
    pub fn of(partition: &'a Partition) -> Self {
        Self {
            device: &partition.device,
            room: partition.bytes,
        }
    }

    fn open(&self, write: bool) -> Result<File> {
        OpenOptions::new()
            .read(true)
            .write(write)
            .open(self.device)
            .with_context(|| format!("opening {}", self.device.display()))
    }

    /// `None`: nothing could be started from it.
    pub fn system(&self) -> Result<Option<SlotTable>> {
        Ok(parse_slot_table(&self.block()?, self.room).ok())
    }

    /// Those of the system, if one is there.
    pub fn layers(&self) -> Result<Vec<Layer>> {
        Ok(self.system()?.unwrap_or_default().layers)
    }

    /// By which the first stage knows the whole system.
    pub fn table_digest(&self) -> Result<Sha256Digest> {
        Ok(table_digest(&self.block()?))
    }

    /// Its table, as it stands there.
    pub fn block(&self) -> Result<[u8; TABLE_BYTES]> {
        let mut table = [0; TABLE_BYTES];
        self.open(false)?
            .read_exact_at(&mut table, 0)
            .with_context(|| format!("reading {}", self.device.display()))?;
        Ok(table)
    }

    /// Where the layers would lie.
    pub fn plan(&self, system: &SystemContent) -> Result<SlotTable> {
        let plan = system.plan();
        let bytes = plan.bytes();
        if bytes > self.room {
            return Err(refuse(
                format!(
                    "the new system has {bytes} bytes, and this stick has room for {} beside the running one",
                    self.room
                ),
                "write its image to a larger stick with `firstlight flash`",
            ));
        }
        if let Err(error) = format_table(&plan, self.room) {
            return Err(refuse(
                format!("this is no system: {error}"),
                "make it with `firstlight build`",
            ));
        }
        Ok(plan)
    }

    /// Whether those bytes lie there already, for example because a transfer was cut.
    pub fn holds(&self, layer: &Layer) -> Result<bool> {
        let mut nothing = |_| Ok(());
        Ok(self.digest(layer, &mut nothing)? == layer.sha256)
    }

    /// As its bytes are on the stick; `tell` is called after each piece.
    pub fn digest(
        &self,
        layer: &Layer,
        tell: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<Sha256Digest> {
        let file = self.open(false)?;
        // From the stick, not from memory.
        posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)
            .context("dropping what is in memory")?;
        let mut hash = Sha256::new();
        let mut piece = vec![0; PIECE];
        let (mut at, end) = (layer.offset, layer.offset + layer.length);
        while at < end {
            let step = usize::try_from(end - at).map_or(PIECE, |left| left.min(PIECE));
            file.read_exact_at(&mut piece[..step], at)
                .with_context(|| format!("reading layer {} at {at}", layer.name))?;
            hash.update(&piece[..step]);
            at += step as u64;
            tell(step as u64)?;
        }
        Ok(<[u8; 32]>::from(hash.finalize()).into())
    }
}

/// Which of the new system's layers neither slot has.
pub fn missing(running: Slot<'_>, other: Slot<'_>, system: &SystemContent) -> Result<Vec<String>> {
    let here = running.layers()?;
    let mut missing = Vec::new();
    for layer in other.plan(system)?.layers {
        let is_here = here.iter().any(|known| is_same(known, &layer));
        if !is_here && !other.holds(&layer)? {
            missing.push(layer.name);
        }
    }
    Ok(missing)
}

fn is_same(known: &Layer, wanted: &Layer) -> bool {
    let is = |layer: &Layer| (layer.length, layer.sha256, layer.root);
    is(known) == is(wanted)
}

/// Writes them all: those in `sent` out of `input`, the others out of the running system or as they lie there.
pub fn write(
    running: Slot<'_>,
    other: Slot<'_>,
    system: &SystemContent,
    sent: &[String],
    input: &mut dyn Read,
    progress: &mut Progress<'_>,
) -> Result<()> {
    let table = other.plan(system)?;
    let plan = &table.layers;
    if let Some(unknown) = sent
        .iter()
        .find(|name| !plan.iter().any(|layer| layer.name == **name))
    {
        return Err(refuse(
            format!("{unknown} is sent, and the new system has no such layer"),
            "send layers that are in its table",
        ));
    }
    let here = running.layers()?;
    let target = other.open(true)?;
    forget(&target)?;
    let of = 2 * plan.iter().map(|layer| layer.length).sum::<u64>();
    let mut done = 0;
    let mut tell = |bytes: u64| {
        done += bytes;
        progress(done, of)
    };
    for layer in plan {
        let known = here.iter().find(|known| is_same(known, layer));
        if sent.contains(&layer.name) {
            copy(input, &target, layer, &mut tell).map_err(|error| match error.downcast() {
                Ok(Changed(found)) => refuse(
                    format!("layer {} has arrived changed: its SHA-256 is {found}, and {} was announced", layer.name, layer.sha256),
                    "send it again; check the image with `firstlight inspect`",
                ),
                Err(error) => error,
            })?;
        } else if let Some(known) = known {
            let mut from = Window {
                file: running.open(false)?,
                at: known.offset,
                left: known.length,
            };
            copy(&mut from, &target, layer, &mut tell).map_err(|error| match error.downcast() {
                Ok(Changed(_)) => refuse(
                    format!("layer {} of the running system is damaged on the stick, and cannot be used again", layer.name),
                    "send the whole image: `firstlight update --whole`; and move on to another stick soon",
                ),
                Err(error) => error,
            })?;
        } else if other.holds(layer)? {
            tell(layer.length)?;
        } else {
            return Err(refuse(
                format!("layer {} is neither on the stick nor sent", layer.name),
                "ask again which layers are missing",
            ));
        }
    }
    target.sync_all().context("writing to the stick")?;
    for layer in plan {
        if other.digest(layer, &mut tell)? != layer.sha256 {
            return Err(refuse(
                format!(
                    "layer {} reads back differently: the stick is worn out or broken",
                    layer.name
                ),
                "write the image to another stick with `firstlight flash`",
            ));
        }
    }
    let table = format_table(&table, other.room)?;
    target.write_all_at(&table, 0)?;
    target.sync_all().context("writing the slot's table")
}

/// From now on nothing starts from there.
fn forget(target: &File) -> Result<()> {
    target
        .write_all_at(&[0; TABLE_BYTES], 0)
        .and_then(|()| target.sync_all())
        .context("taking the slot's table away")
}

/// What arrived is not what was announced.
#[derive(Debug)]
struct Changed(Sha256Digest);

impl std::fmt::Display for Changed {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "another digest: {}", self.0)
    }
}

impl std::error::Error for Changed {}

fn copy(
    from: &mut dyn Read,
    target: &File,
    layer: &Layer,
    tell: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<()> {
    let mut hash = Sha256::new();
    let mut piece = vec![0; PIECE];
    let mut done = 0;
    while done < layer.length {
        let step = usize::try_from(layer.length - done).map_or(PIECE, |left| left.min(PIECE));
        from.read_exact(&mut piece[..step])
            .with_context(|| format!("layer {} ends after {done} bytes and more", layer.name))?;
        hash.update(&piece[..step]);
        target
            .write_all_at(&piece[..step], layer.offset + done)
            .context("writing to the stick")?;
        done += step as u64;
        if done.is_multiple_of(SYNC_EVERY) {
            target.sync_data().context("writing to the stick")?;
        }
        tell(step as u64)?;
    }
    let found = Sha256Digest::from(<[u8; 32]>::from(hash.finalize()));
    if found != layer.sha256 {
        return Err(Changed(found).into());
    }
    Ok(())
}

/// A part of a file.
struct Window {
    file: File,
    at: u64,
    left: u64,
}

impl Read for Window {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX);
        let length = buffer.len().min(most);
        let count = self.file.read_at(&mut buffer[..length], self.at)?;
        self.at += count as u64;
        self.left -= count as u64;
        Ok(count)
    }
}
