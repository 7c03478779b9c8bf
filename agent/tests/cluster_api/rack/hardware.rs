//! A server's hardware. Ten servers have ten disks of their own; here they would share this machine's memory, so the image is
//! not kept: nobody reads it. What else is written, partition tables and config drive among it, is.

use std::io;

use firstlight_efi::vars::EfiVars;
use firstlight_ramdisk::{
    deploy::device::{BlockDevice, FileDisk},
    inventory::sys::SysTree,
    ipa::machine::{Access, Machine},
};

#[path = "../../../ramdisk/tests/support/machine.rs"]
mod machine;
use machine::TestMachine;

pub struct Hardware(TestMachine);

impl Hardware {
    pub fn new(mac: &str) -> Self {
        Self(TestMachine::new(mac))
    }

    pub fn read(&self, offset: u64, length: usize) -> Vec<u8> {
        self.0.read(offset, length)
    }
}

impl Machine for Hardware {
    fn sys(&self) -> SysTree {
        self.0.sys()
    }

    fn open(&self, _: &str, _: Access) -> io::Result<Box<dyn BlockDevice>> {
        Ok(Box::new(Disk(FileDisk::open(&self.0.disk(), 512)?)))
    }

    fn efi_vars(&self) -> Option<EfiVars> {
        self.0.efi_vars()
    }

    fn log(&self) -> Vec<u8> {
        self.0.log()
    }

    fn sync(&self) {
        self.0.sync();
    }
}

struct Disk(FileDisk);

impl BlockDevice for Disk {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn size(&self) -> u64 {
        self.0.size()
    }

    fn sector(&self) -> u64 {
        self.0.sector()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.0.read_at(offset, buffer)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write_at(offset, data)
    }

    fn write_bulk(&self, _: u64, _: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn zero(&self, offset: u64, length: u64) -> io::Result<()> {
        self.0.zero(offset, length)
    }

    fn discard(&self) -> io::Result<()> {
        self.0.discard()
    }

    fn flush(&self) -> io::Result<()> {
        self.0.flush()
    }

    fn reread_partitions(&self) -> io::Result<()> {
        self.0.reread_partitions()
    }
}
