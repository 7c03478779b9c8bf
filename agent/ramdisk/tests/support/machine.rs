//! A machine with one NIC and one disk, which is a sparse file.

use std::fs;
use std::io;
use std::os::unix::fs::{FileExt, symlink};
use std::path::PathBuf;

use firstlight_ramdisk::deploy::device::{BlockDevice, FileDisk};
use firstlight_ramdisk::deploy::efi::vars::EfiVars;
use firstlight_ramdisk::inventory::sys::SysTree;
use firstlight_ramdisk::ipa::machine::{Access, Machine};

pub const DISK: u64 = 5 << 30;

const NIC: &str = "sys/devices/pci0000:00/0000:00:02.0/net/ens2";

pub struct TestMachine {
    dir: tempfile::TempDir,
}

impl TestMachine {
    pub fn new(mac: &str) -> Self {
        let machine = Self {
            dir: tempfile::tempdir().unwrap(),
        };
        let sectors = (DISK / 512).to_string();
        for (path, text) in [
            (format!("{NIC}/address"), mac),
            (format!("{NIC}/carrier"), "1"),
            (
                "sys/devices/pci0000:00/0000:00:02.0/vendor".into(),
                "0x8086",
            ),
            ("sys/block/vda/size".into(), &sectors),
            ("sys/block/vda/serial".into(), "file-1"),
            ("sys/block/vda/queue/logical_block_size".into(), "512"),
            ("proc/meminfo".into(), "MemTotal: 480000 kB"),
            ("proc/cpuinfo".into(), "processor : 0\nmodel name : Test\n"),
        ] {
            let path = machine.dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let class = machine.dir.path().join("sys/class/net");
        fs::create_dir_all(&class).unwrap();
        symlink(
            "../../devices/pci0000:00/0000:00:02.0/net/ens2",
            class.join("ens2"),
        )
        .unwrap();
        symlink(
            "../../../0000:00:02.0",
            machine.dir.path().join(NIC).join("device"),
        )
        .unwrap();
        fs::File::create(machine.disk())
            .unwrap()
            .set_len(DISK)
            .unwrap();
        machine
    }

    pub fn disk(&self) -> PathBuf {
        self.dir.path().join("vda.img")
    }

    pub fn read(&self, offset: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        fs::File::open(self.disk())
            .unwrap()
            .read_exact_at(&mut bytes, offset)
            .unwrap();
        bytes
    }
}

impl Machine for TestMachine {
    fn sys(&self) -> SysTree {
        SysTree::new(self.dir.path())
    }

    fn open(&self, name: &str, _: Access) -> io::Result<Box<dyn BlockDevice>> {
        assert_eq!(name, "/dev/vda");
        Ok(Box::new(FileDisk::open(&self.disk(), 512)?))
    }

    fn efi_vars(&self) -> Option<EfiVars> {
        None
    }

    fn log(&self) -> Vec<u8> {
        b"the machine's log\n".to_vec()
    }

    fn sync(&self) {}
}
