//! The deploy ramdisk's half that speaks ironic-python-agent's protocol with a stock Ironic, and our own with the box.
//!
//! [`agent`] decides, purely; [`runner`] carries out. Must not: get an address, load modules or restart the machine
//! (`init` does). To add a command: [`job`].

pub mod account;
pub mod agent;
pub mod boxlink;
pub mod commands;
pub mod event;
pub mod facts;
pub mod identity;
pub mod ironic;
pub mod job;
pub mod judge;
pub mod log;
pub mod machine;
pub mod places;
pub mod prover;
mod relay;
pub mod runner;
pub mod server;
pub mod work;

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use firstlight_api::measured::PCRS;
use firstlight_efi::boot_entry;

use crate::context::{Context, Outcome};
use crate::deploy::image::Patience;
use event::Departure;
use machine::Machine;
use runner::Settings;

use crate::tpm::{self, Refusal};

/// No file has it for its digest.
const HANDED_OVER: [u8; 32] = [0xff; 32];
/// Where Ironic finds the command API.
const PORT: u16 = 9999;

/// Serves Ironic and the box until one of them ends the ramdisk.
pub fn run(context: &Context, machine: &Arc<dyn Machine>) -> Outcome {
    let cmdline = &context.cmdline;
    let settings = Settings {
        box_url: cmdline.box_url.clone(),
        ironic_url: cmdline.ironic_url.clone(),
        inspection_url: cmdline.inspection_url.clone(),
        insecure: cmdline.insecure,
        ca_sha256: cmdline.ca_sha256,
        boot_mac: context.boot_mac.clone(),
        address: IpAddr::V4(context.address),
        port: PORT,
        patience: Patience::default(),
        kernel_log: Some(log::KERNEL.into()),
    };
    match runner::run(settings, Arc::clone(machine)) {
        Ok(Departure::PowerOff) => Outcome::PowerOff,
        Ok(Departure::Reboot) | Err(_) => Outcome::Reboot,
        Ok(Departure::BootDisk) => {
            prefer_disk(machine.as_ref());
            Outcome::Reboot
        }
        Ok(Departure::Kexec) => {
            if let Err(error) = hand_over(machine.as_ref()) {
                tracing::warn!(%error, "the TPM does not take that another kernel goes on; the machine restarts");
                machine.unload();
                prefer_disk(machine.as_ref());
                return Outcome::Reboot;
            }
            prefer_nothing(machine.as_ref());
            Outcome::Kexec
        }
    }
}

/// What the TPM vouches for ends here: the kernel that goes on was not started by what the firmware measured.
fn hand_over(machine: &dyn Machine) -> Result<(), Refusal> {
    let mut tpm = match machine.tpm() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        tpm => tpm?,
    };
    let [.., files] = PCRS;
    tpm::extend(tpm.as_mut(), files, HANDED_OVER)
}

/// The firmware does not run now: what it was told for its next time would be in the way of whoever restarts the system later.
fn prefer_nothing(machine: &dyn Machine) {
    if let Some(vars) = machine.efi_vars()
        && let Err(error) = boot_entry::forget_next(&vars)
    {
        tracing::warn!(%error, "the firmware does not forget BootNext; its next start is from the disk");
    }
}

/// Firmware that tries the network first is told once more; where it cannot be, the boot server sends it to the disk.
fn prefer_disk(machine: &dyn Machine) {
    let Some(vars) = machine.efi_vars() else {
        return;
    };
    if let Err(error) = boot_entry::boot_next(&vars) {
        tracing::warn!(%error, "the firmware does not take BootNext; the boot server has to send this machine to its disk");
    }
}
