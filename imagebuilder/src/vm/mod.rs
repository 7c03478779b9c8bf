//! Virtual machines on an isolated Ethernet segment: the box from its stick, and servers beside it.
//!
//! [`lab::Lab`] is the way in: it holds the segment, the directory of the disks and the choice of acceleration, and
//! starts machines. Everything here runs as an ordinary user and leaves nothing behind.

mod accel;
pub mod boot;
mod clock;
mod console;
mod disks;
mod follow;
mod http;
pub mod lab;
mod machine;
mod qemu;
mod qmp;
mod snapshot;
mod stick;
mod tools;
pub mod wire;

pub use accel::{choose_accel, file_of_image, kernel_of_image};
pub use clock::Clock;
pub use console::Console;
pub use disks::data_disk;
pub use follow::{Line, changes};
pub use http::get;
pub use machine::{Vm, flash_for};
pub use qemu::{
    Accel, BootFirst, DirectKernel, Disk, DiskBus, DiskFormat, Firmware, MACHINES, NicModel, VmSpec,
};
pub use stick::Stick;
