//! Network boot decided in pure code: the DHCP server, its leases, and what each host boots.
//!
//! Everything here is a function of its arguments: a datagram, the state and the time go in, a [`Decision`] comes out. The
//! caller owns the sockets, the clock, the random numbers and the files (`clippy.toml` bans them here), writes what a
//! decision says to persist, and only then sends the reply.
//!
//! To add a case: a new client firmware starts with a capture in `fixtures/` and its expected answer in
//! `tests/fixtures.rs`; a new DHCP situation starts as a timeline in `src/server/tests.rs`; boot scripts have golden files
//! in `golden/` (`UPDATE_GOLDEN=1 cargo test -p firstlight-netboot` rewrites them).

#![warn(missing_docs)]

mod arch;
mod boot_choice;
pub mod boot_files;
mod boot_offer;
mod config;
mod foreign;
mod grub;
mod ipxe;
mod layout;
mod lease;
mod lease_log;
mod limits;
mod medium;
mod mode;
mod packet;
mod reply;
mod server;
mod solicit;
#[cfg(test)]
mod testing;
mod types;

pub use arch::ClientArch;
pub use boot_choice::{
    BootSite, BootTarget, CaFingerprint, KernelArg, KernelArgError, kernel_command_line,
};
pub use boot_offer::BootOffer;
pub use config::{Authority, ConfigError, DhcpConfig, DhcpSpec, Guard, Reservation, SubnetSpec};
pub use foreign::{ForeignProbe, ForeignServer, Overheard, ProbeStep, observe_foreign};
pub use grub::{GRUB_WAITS, generic_grub_config, host_grub_config};
pub use ipxe::ipxe_script;
pub use lease::{Lease, LeaseChange, LeaseTable};
pub use lease_log::{DecodedLog, LeaseLogError, compact, decode_log, encode_records};
pub use limits::Limit;
pub use medium::{MEDIUM_CONFIG, Medium, MediumError, MediumPart, medium_config};
pub use mode::{Mode, ModeStep};
pub use packet::{MessageType, PacketError, Request};
pub use reply::{Destination, Reply};
pub use server::{Counters, Decision, Event, Listener, Origin, ProbeResult, Reason, Server};
pub use solicit::boots_by_ipv6;
pub use types::{BoxHttp, Now};

pub use firstlight_api::net::{AddressRange, HostName, MacAddr, Subnet};
pub use firstlight_api::site::DhcpRole;
