//! PID 1: what is the same in both modes, and what happens when something fails.
//!
//! Must not: return or panic its way out. The kernel panics when PID 1 ends, and a person would see no reason.

use std::convert::Infallible;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tracing::Level;

use crate::cmdline::{Cmdline, load_cmdline};
use crate::modules::{Loader, MODULES_DIR};
use crate::{boxstage, console, early, power, ramdisk};

/// How long a failure stays readable before the machine starts again.
const RETRY: Duration = Duration::from_mins(1);

/// Runs the machine.
pub fn run() -> ! {
    std::panic::set_hook(Box::new(|panic| {
        fail(&anyhow::anyhow!("a defect in the program: {panic}"))
    }));
    match start() {
        Ok(never) => match never {},
        Err(error) => fail(&error),
    }
}

fn start() -> Result<Infallible> {
    early::mount_api_file_systems()?;
    let cmdline =
        load_cmdline(Path::new("/proc/cmdline")).context("reading the kernel command line")?;
    console::start_logging(if cmdline.debug {
        Level::DEBUG
    } else {
        Level::INFO
    });
    // Nobody stands in front of the machine: after a panic of the kernel it starts again.
    if let Err(error) = std::fs::write("/proc/sys/kernel/panic", "30") {
        tracing::warn!(%error, "after a panic of the kernel this machine stays as it is");
    }
    for problem in &cmdline.bad {
        tracing::error!(
            problem,
            "the kernel command line has a word that cannot be read"
        );
    }
    let loader = Loader::open(Path::new(MODULES_DIR))?;
    dispatch(cmdline, loader)
}

fn dispatch(cmdline: Cmdline, loader: Loader) -> Result<Infallible> {
    match cmdline.slot.clone() {
        Some(partuuid) => boxstage::run(&cmdline, &partuuid, loader),
        None => ramdisk::run(cmdline, loader),
    }
}

fn fail(error: &anyhow::Error) -> ! {
    if !tracing::dispatcher::has_been_set() {
        eprintln!("firstlight: {error:#}");
    }
    tracing::error!("{error:#}");
    tracing::error!(
        seconds = RETRY.as_secs(),
        "the machine restarts; to see more, add `firstlight.debug` to its kernel command line"
    );
    std::thread::sleep(RETRY);
    power::reboot()
}
