//! What the init half hands to the half that talks to Ironic.

use std::net::Ipv4Addr;

use crate::cmdline::Cmdline;

/// The machine as it is once it has an address. Blocking threads renew the lease behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Context {
    pub cmdline: Cmdline,
    /// The NIC that carries the address, lower case with colons.
    pub boot_mac: String,
    /// Its kernel name, e.g. `ens3` or `eth0`.
    pub interface: String,
    pub address: Ipv4Addr,
    /// Length of the network's prefix, 0 to 32.
    pub prefix: u8,
}

/// Why `ipa::run` came back. PID 1 carries it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Restart the machine now: the next boot decides what runs.
    Reboot,
    /// Start the kernel that was loaded, without the firmware.
    Kexec,
    /// Switch the machine off.
    PowerOff,
}
