//! What this program does to the machine it runs on; tests put another one in its place.

use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, ensure};
use firstlight_api::packages::KUBERNETES_METADATA_KEY;
use firstlight_efi::boot_entry;
use firstlight_efi::vars::EfiVars;
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_settime};
use serde_json::{Map, Value};

use crate::packages::{ThisServer, become_release};

const EFI_VARS: &str = "/sys/firmware/efi/efivars";

pub trait Machine {
    /// What must be here before anything is made of the bootstrap data with these metadata.
    fn prepare(&mut self, meta_data: &Map<String, Value>) -> Result<()>;
    fn pause(&mut self, length: Duration);
    /// Seconds since 1970 by this machine's clock.
    fn time(&self) -> u64;
    fn set_time(&mut self, seconds: u64);
    /// Starts again, from the network if the firmware lets itself be told.
    fn restart(&mut self);
}

/// The machine that this program runs on.
#[derive(Debug)]
pub struct ThisMachine {
    /// The NIC that reached the box.
    pub mac: [u8; 6],
}

impl Machine for ThisMachine {
    /// The cluster's version of Kubernetes, where it is another one than the image's.
    fn prepare(&mut self, meta_data: &Map<String, Value>) -> Result<()> {
        let release = meta_data
            .get(KUBERNETES_METADATA_KEY)
            .and_then(Value::as_str);
        release.map_or(Ok(()), |release| become_release(&mut ThisServer, release))
    }

    fn pause(&mut self, length: Duration) {
        thread::sleep(length);
    }

    fn time(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        since.map_or(0, |time| time.as_secs())
    }

    fn set_time(&mut self, seconds: u64) {
        let time = TimeSpec::from_duration(Duration::from_secs(seconds));
        if let Err(error) = clock_settime(ClockId::CLOCK_REALTIME, time) {
            tracing::warn!(%error, "the clock cannot be set to the box's time");
        }
    }

    fn restart(&mut self) {
        if let Err(error) = restart_from_network(self.mac) {
            tracing::error!("{error:#}; restart the machine by hand");
        }
        loop {
            thread::park();
        }
    }
}

/// Returns while the machine is still going down.
pub fn restart_from_network(mac: [u8; 6]) -> Result<()> {
    prefer_network(mac);
    restart()
}

/// From wherever the firmware starts by itself. Returns while the machine is still going down.
pub fn restart() -> Result<()> {
    let status = Command::new("systemctl")
        .args(["reboot", "--no-block"])
        .status()
        .context("starting systemctl")?;
    ensure!(status.success(), "systemctl reboot: {status}");
    Ok(())
}

/// Ends the system in order, and then starts the kernel that is loaded. Where that fails so late, the firmware starts the network. Returns while
/// the machine is still going down.
pub fn start_loaded(mac: [u8; 6]) -> Result<()> {
    prefer_network(mac);
    let status = Command::new("systemctl")
        .args(["kexec", "--no-block"])
        .status();
    let started = status.context("starting systemctl").and_then(|status| {
        ensure!(status.success(), "systemctl kexec: {status}");
        Ok(())
    });
    if started.is_err() {
        firstlight_kexec::unload();
    }
    started
}

/// A BIOS that starts from the network first asks the box, which now sends it into the ramdisk; UEFI is told.
fn prefer_network(mac: [u8; 6]) {
    let Some(vars) = EfiVars::open(Path::new(EFI_VARS)) else {
        return;
    };
    match boot_entry::boot_network_next(&vars, mac) {
        Ok(true) => tracing::info!("restarting from the network"),
        Ok(false) => tracing::warn!(
            "restarting; the firmware has no boot entry for the network, so its own order decides"
        ),
        Err(error) => {
            tracing::warn!(%error, "restarting; the firmware does not take BootNext");
        }
    }
}
