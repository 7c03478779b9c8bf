//! The deploy ramdisk of a host.

use std::convert::Infallible;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};

use crate::cmdline::Cmdline;
use crate::devices::Devices;
use crate::modules::Loader;

/// Runs the ramdisk.
pub fn run(cmdline: Cmdline, loader: Loader) -> Result<Infallible> {
    let loader = Arc::new(loader);
    let devices = Devices::watch(&loader).context("listening for devices")?;
    loader.load_list("ramdisk");
    devices.settle();
    bail!("no network for {cmdline:?}")
}
