//! The deploy ramdisk of a host: drivers, an address, and then whatever Ironic wants.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use firstlight_client::net;
use nix::sys::signal::{SigHandler, Signal, signal};
use nix::unistd::sethostname;

use crate::cmdline::Cmdline;
use crate::context::Context;
use crate::devices::Devices;
use crate::ipa::machine::{Machine, ThisMachine};
use crate::modules::Loader;
use crate::{early, ipa, power};

/// Runs the ramdisk; comes back only with an error.
pub fn run(cmdline: Cmdline, loader: Loader) -> Result<Infallible> {
    leave_no_zombies()?;
    let loader = Arc::new(loader);
    let devices = Devices::watch(&loader).context("listening for devices")?;
    loader.load_list("ramdisk");
    if Path::new("/sys/firmware/efi").exists() {
        // Without the variables there is no boot entry to write, and the firmware's fallback has to do; without the log the TPM
        // vouches for nothing.
        for mount in [early::mount_efivarfs, early::mount_securityfs] {
            if let Err(error) = mount() {
                tracing::warn!(
                    error = format!("{error:#}"),
                    "what the firmware has left cannot be reached"
                );
            }
        }
    }
    let (session, lease) = net::connect(cmdline.boot_mac.as_deref())?;
    let context = Context {
        boot_mac: session.nic().mac_text(),
        interface: session.nic().name.clone(),
        address: lease.address,
        prefix: lease.prefix,
        cmdline,
    };
    tracing::info!(nic = context.interface, mac = context.boot_mac, address = %context.address, "address received");
    let hostname = lease
        .hostname
        .unwrap_or_else(|| format!("host-{}", context.boot_mac.replace(':', "")));
    sethostname(&hostname).context("setting the host name")?;
    std::thread::Builder::new()
        .name("dhcp".to_owned())
        .spawn(move || session.keep())
        .context("starting the DHCP thread")?;
    // An inventory that lacks the disks of a slow controller would describe another machine.
    devices.settle();
    let machine: Arc<dyn Machine> = Arc::new(ThisMachine);
    power::end(ipa::run(&context, &machine))
}

/// PID 1 inherits the children of others; whoever ignores their end does not have to bury them.
#[allow(unsafe_code)]
fn leave_no_zombies() -> Result<()> {
    // SAFETY: ignoring a signal installs no handler, so nothing of ours runs in signal context.
    unsafe { signal(Signal::SIGCHLD, SigHandler::SigIgn) }.context("ignoring SIGCHLD")?;
    Ok(())
}
