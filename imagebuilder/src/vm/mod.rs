//! Virtual machines on an isolated Ethernet segment: the box from its stick, and servers beside it.

pub mod wire;
