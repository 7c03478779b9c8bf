//! First stage of the box: from the initramfs to systemd on the stick's own layers.
//!
//! Must not: write to the stick, or decide anything that the running box could decide (updates, state, network).

pub mod find;
pub mod gpt;
pub mod layers;
pub mod switch;
pub mod verity;

use std::convert::Infallible;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};

use crate::cmdline::Cmdline;
use crate::devices::Devices;
use crate::modules::Loader;

use find::Slot;
use firstlight_api::digest::Sha256Digest;
use firstlight_api::slot::{Layer, TABLE_BYTES, parse_slot_table, table_digest};

/// Does it all; comes back only with an error.
pub fn run(cmdline: &Cmdline, partuuid: &str, loader: Loader) -> Result<Infallible> {
    let loader = Arc::new(loader);
    let devices = Devices::watch(&loader).context("listening for devices")?;
    tracing::info!("looking for the stick");
    loader.load_list("box");
    let slot = find::wait_for_slot(partuuid, &devices.blocks)?;
    let table = load_table(&slot, cmdline.table)?;
    tracing::info!(partition = slot.name, layers = table.len(), "system found");
    layers::mount_layers(&slot, &table)?;
    point_out_boot_disk(&slot)?;
    devices.stop();
    tracing::info!("starting the system");
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    switch::switch_root(
        Path::new(layers::SYSROOT),
        OsStr::new("/sbin/init"),
        &arguments,
    )
}

/// `digest`: what the boot loader was given, and a TPM was told of.
fn load_table(slot: &Slot, digest: Option<Sha256Digest>) -> Result<Vec<Layer>> {
    let mut block = [0; TABLE_BYTES];
    let partition =
        File::open(slot.node()).with_context(|| format!("opening {}", slot.node().display()))?;
    partition
        .read_exact_at(&mut block, 0)
        .with_context(|| format!("reading the table of {}", slot.name))?;
    let digest = digest.context(
        "the command line has no firstlight.table=, by which the system is known; write the stick again with `firstlight flash`",
    )?;
    ensure!(
        table_digest(&block) == digest,
        "the system on {} is not the one that belongs to this kernel: its table was changed; write the stick again with `firstlight flash`",
        slot.name
    );
    Ok(parse_slot_table(&block, slot.bytes)?.layers)
}

/// systemd-repart finds the disk behind an overlay root by this link; only the form with numbers suits all its tools.
fn point_out_boot_disk(slot: &Slot) -> Result<()> {
    fs::create_dir_all("/run/systemd")?;
    symlink(
        format!("/dev/block/{}", slot.number),
        "/run/systemd/volatile-root",
    )
    .context("naming the boot disk for systemd")
}
