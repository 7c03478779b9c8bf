//! The laboratory: virtual machines on an isolated Ethernet segment, the box from its stick, and servers beside it.
//!
//! [`Lab`] is the way in: it holds the segment, the directory of the disks and the choice of acceleration, and starts machines.
//! Everything here runs as an ordinary user and leaves nothing behind. Must not: look into an image, or ask a box anything; whoever
//! sets a lab up says what is on the stick.

mod accel;
mod clock;
mod console;
mod disks;
mod lab;
mod machine;
mod qemu;
mod qmp;
mod router;
mod snapshot;
mod tools;
pub mod wire;

pub use clock::Clock;
pub use console::Console;
pub use disks::data_disk;
pub use lab::{
    BOX_MAC, BoxSpec, DiskContent, Lab, LabSpec, NODE_MEMORY_MIB, Resumed, ServerDisk, ServerSpec,
};
pub use machine::{Vm, flash_for};
pub use qemu::{
    Accel, BootFirst, DirectKernel, Disk, DiskBus, DiskFormat, Firmware, MACHINES, NicModel,
    OFFICE_DOOR, OFFICE_GREETING, SecondNic, VmSpec, disk_serial,
};
pub use router::Router;
