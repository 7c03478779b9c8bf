//! A disk that fails on order, for tests of programs that must not lose what they acknowledged.
//!
//! [`Disk`] is a file system in memory, pure: it knows what was written, and what of it was synchronised. A power cut leaves what
//! was synchronised and, decided by a seed, any part of the rest. [`Fault`]s are values. [`Mount`] shows a disk to any program
//! through FUSE; `faulty` is the same for scripts.
//!
//! Linux tells no FUSE file system of `syncfs`; [`preload`] makes a library for `LD_PRELOAD` that does.
//!
//! To add a kind of fault: a variant of [`Kind`], its word in `fault.rs`, its effect in `Disk::enter`.

mod disk;
mod edge;
mod fault;
mod mount;
pub mod preload;
mod random;
mod tree;

pub use disk::{Disk, Names};
pub use fault::{Fault, Kind, Operation, Refused, When};
pub use mount::Mount;
pub use random::Random;
pub use tree::{Ino, Node, What};
