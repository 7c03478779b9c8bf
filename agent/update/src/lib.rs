//! Another system beside the running one on the box's stick, and the way back from it.
//!
//! The agent, which has no rights over disks, orders it (`firstlight_api::update`) over a socket that systemd opens to it alone.
//! [`slot`] writes layers and reads them back, [`boot`] the files that GRUB loads and its choice, [`state`] keeps what the tried system
//! could change, [`stick`] finds all of it, [`backup`] carries what a box remembers to another stick, [`seal`] has a TPM keep the key of
//! the state, [`wipe`] clears a stick of its site, [`orders`] is the conversation.
//!
//! Must not: open a network connection, or believe what it was sent before its digest is right.

pub mod backup;
pub mod boot;
pub mod nightly;
pub mod orders;
pub mod refusal;
pub mod scrub;
pub mod seal;
pub mod slot;
pub mod state;
pub mod stick;
pub mod wipe;
