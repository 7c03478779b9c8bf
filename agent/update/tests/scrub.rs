//! One flipped bit in anything that the stick starts or runs is found, and named.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use firstlight_api::boot_choice::{MBR_CODE, SystemSlot, boot_config};
use firstlight_api::digest::Sha256Digest;
use firstlight_api::slot::{BootFile, LayerContent, SystemContent, format_table, table_digest};
use firstlight_update::boot::Esp;
use firstlight_update::scrub::{Parts, Scrub, System};
use firstlight_update::slot::Slot;
use tempfile::TempDir;

const ROOM: u64 = 1 << 20;
const TEMPLATE: &str = "linux /boot/@SLOT@/vmlinuz @SYSTEM@ @TABLE@\n";
const ID: &str = "0-1";

struct Stick {
    dir: TempDir,
}

impl Stick {
    /// With the same system in both slots, but for the kernel; GRUB's script is that of the first.
    fn new() -> Self {
        let stick = Self {
            dir: tempfile::tempdir().unwrap(),
        };
        let mut disk = vec![1; MBR_CODE];
        disk.extend([2; 1000]);
        fs::write(stick.path("disk"), disk).unwrap();
        fs::write(stick.path("bios"), [3; 2000]).unwrap();
        fs::create_dir_all(stick.path("esp/EFI/debian")).unwrap();
        fs::write(stick.path("esp/EFI/debian/grub.cfg"), "script a").unwrap();
        stick.install(SystemSlot::A, "kernel a", "script a");
        stick.install(SystemSlot::B, "kernel b", "script b");
        stick
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn install(&self, slot: SystemSlot, kernel: &str, script: &str) {
        let layers = [("agent", vec![4; 4096]), ("base", vec![5; 300 * 1024])];
        let boot: [(&str, &[u8]); 6] = [
            ("mbr", &[1; MBR_CODE]),
            ("bios-boot", &[3; 2000]),
            ("EFI/debian/grub.cfg", script.as_bytes()),
            ("vmlinuz", kernel.as_bytes()),
            ("initrd", b"initramfs"),
            ("boot.cfg", TEMPLATE.as_bytes()),
        ];
        let content = layers.iter().map(|(name, bytes)| LayerContent {
            name: (*name).to_owned(),
            length: bytes.len() as u64,
            sha256: Sha256Digest::of(bytes),
            root: [6; 32].into(),
        });
        let boot = boot.iter().map(|(name, content)| BootFile {
            name: (*name).to_owned(),
            sha256: Sha256Digest::of(content),
        });
        let system = SystemContent {
            layers: content.collect(),
            boot: boot.collect(),
            signature: None,
        };
        let table = system.plan();
        let block = format_table(&table, ROOM).unwrap();
        let file = fs::File::create(self.path(slot.as_str())).unwrap();
        file.set_len(ROOM).unwrap();
        file.write_all_at(&block, 0).unwrap();
        for (layer, (_, bytes)) in table.layers.iter().zip(&layers) {
            file.write_all_at(bytes, layer.offset).unwrap();
        }
        let start = boot_config(TEMPLATE, slot, ID, table_digest(&block));
        let esp = self.path("esp");
        fs::create_dir_all(esp.join(slot.boot_file(""))).unwrap();
        for (name, content) in [
            ("vmlinuz", kernel),
            ("initrd", "initramfs"),
            ("boot.cfg", &start),
        ] {
            fs::write(esp.join(slot.boot_file(name)), content).unwrap();
        }
    }

    fn flip(&self, name: &str, at: u64) {
        let file = fs::File::options()
            .read(true)
            .write(true)
            .open(self.path(name))
            .unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 1], at).unwrap();
    }

    fn scrub(&self, pause: &mut dyn FnMut()) -> Vec<String> {
        let (disk, bios, esp) = (self.path("disk"), self.path("bios"), self.path("esp"));
        let devices = [SystemSlot::A, SystemSlot::B].map(|slot| self.path(slot.as_str()));
        let system = |name, device| System {
            name,
            slot: Slot { device, room: ROOM },
            id: ID,
        };
        let parts = Parts {
            disk: &disk,
            bios: &bios,
            esp: Esp(&esp),
        };
        let running = system(SystemSlot::A, devices[0].as_path());
        let other = system(SystemSlot::B, devices[1].as_path());
        let scrub = Scrub::start(parts, running, Some(other)).unwrap();
        scrub.finish(pause).unwrap()
    }

    fn found(&self) -> Vec<String> {
        self.scrub(&mut || {})
    }
}

#[test]
fn one_flipped_bit_is_found_and_named() {
    assert_eq!(Stick::new().found(), Vec::<String>::new());
    for (file, at, named) in [
        ("disk", 77, &["mbr"][..]),
        ("bios", 1999, &["bios-boot"]),
        ("esp/EFI/debian/grub.cfg", 2, &["EFI/debian/grub.cfg"]),
        ("esp/boot/a/vmlinuz", 3, &["vmlinuz of system-a"]),
        ("esp/boot/a/initrd", 3, &["initrd of system-a"]),
        ("esp/boot/a/boot.cfg", 70, &["boot.cfg of system-a"]),
        ("esp/boot/b/vmlinuz", 3, &["vmlinuz of system-b"]),
        ("a", 4096 + 17, &["layer agent of system-a"]),
        ("a", 8192 + 299 * 1024, &["layer base of system-a"]),
        ("b", 4096 + 17, &["layer agent of system-b"]),
        ("a", 0, &["the table of system-a"]),
    ] {
        let stick = Stick::new();
        stick.flip(file, at);
        assert_eq!(stick.found(), named, "{file} at {at}");
    }
    // Behind the code of the MBR, and where no layer lies.
    let stick = Stick::new();
    stick.flip("disk", MBR_CODE as u64);
    stick.flip("a", ROOM - 1);
    assert!(stick.found().is_empty());
}

#[test]
fn what_is_gone_is_damaged() {
    let stick = Stick::new();
    fs::remove_file(stick.path("esp/boot/a/initrd")).unwrap();
    fs::File::options()
        .write(true)
        .open(stick.path("a"))
        .unwrap()
        .set_len(100_000)
        .unwrap();
    assert_eq!(
        stick.found(),
        ["initrd of system-a", "layer base of system-a"]
    );
}

/// Both systems are of later images, and the loaders are those of the first.
#[test]
fn loaders_stay_those_of_the_first_image() {
    let stick = Stick::new();
    let table = fs::read(stick.path("a")).unwrap();
    let esp = stick.path("esp");
    Esp(&esp).keep_loaders(&table[..4096]).unwrap();
    stick.install(SystemSlot::A, "kernel c", "script c");
    assert!(stick.found().is_empty());
    // The second update is not asked.
    let table = fs::read(stick.path("b")).unwrap();
    Esp(&esp).keep_loaders(&table[..4096]).unwrap();
    stick.install(SystemSlot::B, "kernel d", "script d");
    assert!(stick.found().is_empty());
    stick.flip("esp/EFI/debian/grub.cfg", 2);
    assert_eq!(stick.found(), ["EFI/debian/grub.cfg"]);
}

/// A system that is being written, or that was taken away, is nobody's damage.
#[test]
fn the_other_system_may_change_meanwhile() {
    let stick = Stick::new();
    stick.flip("b", 4096 + 17);
    fs::remove_file(stick.path("esp/boot/b/vmlinuz")).unwrap();
    assert!(stick.found().is_empty());

    let stick = Stick::new();
    stick.flip("b", 4096 + 17);
    let mut pieces = 0;
    let found = stick.scrub(&mut || {
        pieces += 1;
        if pieces == 3 {
            // The table goes first.
            let path: &Path = &stick.path("b");
            let file = fs::File::options().write(true).open(path).unwrap();
            file.write_all_at(&[0; 4096], 0).unwrap();
        }
    });
    assert!(found.is_empty() && pieces >= 4, "{found:?}, {pieces}");
}
