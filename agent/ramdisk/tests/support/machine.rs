//! A machine with two NICs, of which it booted from the first, and one disk, which is a sparse file.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::fs;
use std::io;
use std::os::unix::fs::{FileExt, symlink};
use std::path::PathBuf;
use std::sync::Mutex;

use firstlight_efi::vars::EfiVars;
use firstlight_kexec::{Files, KexecError};
use firstlight_ramdisk::deploy::device::{BlockDevice, FileDisk};
use firstlight_ramdisk::deploy::start::{Mounted, Tree, Use, Volume};
use firstlight_ramdisk::inventory::sys::SysTree;
use firstlight_ramdisk::ipa::machine::{Access, Machine};
use sha2::{Digest, Sha256};

pub const DISK: u64 = 8 << 30;

const NIC: &str = "sys/devices/pci0000:00/0000:00:02.0/net/ens2";
const SECOND_NIC: &str = "sys/devices/pci0000:00/0000:00:02.0/net/ens3";

pub struct TestMachine {
    dir: tempfile::TempDir,
    /// What is on a written disk, as a folder below `dir`, where the kernel can read it.
    pub system: Option<&'static str>,
    /// Command lines of kernels that were loaded, last to first; none is in memory after an empty one.
    pub loaded: Mutex<Vec<String>>,
}

impl TestMachine {
    pub fn new(mac: &str) -> Self {
        let machine = Self {
            dir: tempfile::tempdir().unwrap(),
            system: None,
            loaded: Mutex::default(),
        };
        let sectors = (DISK / 512).to_string();
        for (path, text) in [
            (format!("{NIC}/address"), mac),
            (format!("{NIC}/carrier"), "1"),
            (format!("{SECOND_NIC}/address"), "52:54:00:12:34:57"),
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
        for (name, nic) in [("ens2", NIC), ("ens3", SECOND_NIC)] {
            let path = machine.dir.path().join(nic);
            symlink("../../../0000:00:02.0", path.join("device")).unwrap();
            let device = nic.replacen("sys/", "../../", 1);
            symlink(device, class.join(name)).unwrap();
        }
        fs::File::create(machine.disk())
            .unwrap()
            .set_len(DISK)
            .unwrap();
        machine
    }

    /// A file of the installed system, which is in the folder `system`.
    pub fn add_file(&mut self, path: &str, text: &str) {
        self.system = Some("system");
        let path = self.dir.path().join("system").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// A second one beside `vda`.
    pub fn add_disk(&self, name: &str) {
        let block = self.dir.path().join("sys/block").join(name);
        fs::create_dir_all(&block).unwrap();
        fs::write(block.join("serial"), format!("file-{name}")).unwrap();
        fs::File::create(self.image(name))
            .unwrap()
            .set_len(DISK)
            .unwrap();
        // Last: without a size it is no disk yet.
        fs::write(block.join("size"), (DISK / 512).to_string()).unwrap();
    }

    /// What a file of the installed system says now.
    pub fn file(&self, path: &str) -> String {
        fs::read_to_string(self.dir.path().join("system").join(path)).unwrap()
    }

    /// Another disk of the same model in the place of `vda`.
    pub fn swap_serial(&self, serial: &str) {
        fs::write(self.dir.path().join("sys/block/vda/serial"), serial).unwrap();
    }

    /// What would be left on the disks if the power failed now, in a machine of its own.
    pub fn after_a_power_cut(&self, mac: &str) -> Self {
        let copy = Self::new(mac);
        let copied = std::process::Command::new("cp")
            .arg("--sparse=always")
            .args([self.disk(), copy.disk()])
            .status();
        assert!(copied.unwrap().success());
        copy
    }

    pub fn disk(&self) -> PathBuf {
        self.image("vda")
    }

    fn image(&self, name: &str) -> PathBuf {
        self.dir.path().join(format!("{name}.img"))
    }

    /// As somebody else would, past the ramdisk.
    pub fn overwrite(&self, name: &str, offset: u64, bytes: &[u8]) {
        let disk = fs::OpenOptions::new().write(true).open(self.image(name));
        disk.unwrap().write_all_at(bytes, offset).unwrap();
    }

    /// Changes with any byte at the disk's ends, and with any that is written between.
    pub fn digest(&self, name: &str) -> String {
        let file = fs::File::open(self.image(name)).unwrap();
        let mut digest = Sha256::new();
        for (offset, length) in [(0, 32 << 20), (DISK - (4 << 20), 4 << 20)] {
            let mut bytes = vec![0; length];
            file.read_exact_at(&mut bytes, offset).unwrap();
            digest.update(bytes);
        }
        let blocks = std::os::unix::fs::MetadataExt::blocks(&file.metadata().unwrap());
        format!("{:x?} {blocks}", digest.finalize())
    }

    pub fn read(&self, offset: u64, length: usize) -> Vec<u8> {
        self.read_of("vda", offset, length)
    }

    pub fn read_of(&self, name: &str, offset: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        fs::File::open(self.image(name))
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
        let name = name.strip_prefix("/dev/").unwrap();
        Ok(Box::new(FileDisk::open(&self.image(name), 512)?))
    }

    fn efi_vars(&self) -> Option<EfiVars> {
        None
    }

    fn mount(&self, _: &dyn BlockDevice, _: Use) -> io::Result<Mounted> {
        let system = self.system.ok_or(io::ErrorKind::Unsupported)?;
        let mut mounted = Mounted::default();
        mounted.system.volumes.push(Volume {
            number: 1,
            uuid: "1234".to_owned(),
            label: String::new(),
            part_uuid: String::new(),
            tree: Tree::open(&self.dir.path().join(system))?,
        });
        Ok(mounted)
    }

    fn load(&self, files: &Files) -> Result<(), KexecError> {
        if files.kernel.metadata().unwrap().len() == 0 {
            return Err(KexecError::Signature);
        }
        self.loaded.lock().unwrap().push(files.options.clone());
        Ok(())
    }

    fn unload(&self) {
        self.loaded.lock().unwrap().push(String::new());
    }

    fn log(&self) -> Vec<u8> {
        b"the machine's log\n".to_vec()
    }

    fn sync(&self) {}
}
