//! Disks with the loaders that people's images have, as folders.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use proptest::prelude::*;

use super::*;

/// A folder for each partition, with files and their contents.
pub(super) struct Disk {
    top: tempfile::TempDir,
    pub system: System,
}

impl Disk {
    pub fn new() -> Self {
        Self {
            top: tempfile::tempdir().unwrap(),
            system: System::default(),
        }
    }

    pub fn folder(&self, number: u32) -> std::path::PathBuf {
        self.top.path().join(number.to_string())
    }

    pub fn with(mut self, number: u32, uuid: &str, files: &[(&str, &str)]) -> Self {
        let folder = self.folder(number);
        fs::create_dir_all(&folder).unwrap();
        for (path, text) in files {
            let path = folder.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        self.system.volumes.push(Volume {
            number,
            uuid: uuid.to_owned(),
            label: format!("label{number}"),
            part_uuid: format!("00000000-0000-4000-8000-00000000000{number}"),
            tree: Tree::open(&folder).unwrap(),
        });
        self
    }

    pub fn found(&self) -> Entry {
        find(&self.system).unwrap()
    }

    pub fn refused(&self) -> String {
        find(&self.system).unwrap_err().to_string()
    }
}

pub(super) fn fixture(name: &str) -> String {
    fs::read_to_string(Path::new("fixtures/loaders").join(name)).unwrap()
}

fn place(volume: usize, path: &str) -> Location {
    Location {
        volume,
        path: path.to_owned(),
    }
}

#[test]
fn our_own_node_image_is_started_by_the_partition_that_it_is_in() {
    let config = fs::read_to_string("../../overlays/node/boot/grub/grub.cfg").unwrap();
    let disk = Disk::new()
        .with(2, "5F1A-57E0", &[("EFI/debian/grub.cfg", "")])
        .with(
            3,
            "root",
            &[("boot/grub/grub.cfg", &config), ("boot/vmlinuz-1", "K")],
        );
    symlink("boot/vmlinuz-1", disk.folder(3).join("vmlinuz")).unwrap();
    symlink("vmlinuz-1", disk.folder(3).join("boot/vmlinuz")).unwrap();
    let entry = disk.found();
    assert_eq!(entry.kernel, Some(place(1, "/boot/vmlinuz")));
    assert_eq!(entry.initrds, [place(1, "/boot/initrd.img")]);
    assert_eq!(
        entry.options,
        "BOOT_IMAGE=/boot/vmlinuz root=PARTUUID=00000000-0000-4000-8000-000000000003 ro console=tty0 \
         console=ttyS0,115200 quiet panic=30 systemd.gpt_auto=0"
    );
    let error = open(&disk.system, &entry).unwrap_err().to_string();
    assert_eq!(error, "reading /boot/initrd.img of the installed system");
    fs::write(disk.folder(3).join("boot/initrd.img"), "I").unwrap();
    let files = open(&disk.system, &entry).unwrap();
    assert_eq!(std::io::read_to_string(files.kernel).unwrap(), "K");
    assert_eq!(files.initrds.len(), 1);
}

#[test]
fn no_link_of_the_disk_leads_out_of_it() {
    let secret = tempfile::tempdir().unwrap();
    fs::write(secret.path().join("vmlinuz"), "ours").unwrap();
    let disk = Disk::new().with(1, "u", &[("grub/grub.cfg", "linux /vmlinuz\ninitrd /pipe")]);
    let entry = disk.found();
    for target in [
        secret.path().join("vmlinuz"),
        Path::new("../../../../../../..").join(secret.path().strip_prefix("/").unwrap()),
        Path::new("/proc/self/exe").to_owned(),
    ] {
        let link = disk.folder(1).join("vmlinuz");
        symlink(&target, &link).unwrap();
        let error = open(&disk.system, &entry).unwrap_err().to_string();
        assert_eq!(
            error, "reading /vmlinuz of the installed system",
            "{target:?}"
        );
        fs::remove_file(link).unwrap();
    }
    // A pipe is not waited for.
    fs::write(disk.folder(1).join("vmlinuz"), "").unwrap();
    let pipe = disk.folder(1).join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRUSR).unwrap();
    let error = open(&disk.system, &entry).unwrap_err().to_string();
    assert_eq!(error, "reading /pipe of the installed system");
}

#[test]
fn who_cannot_say_what_the_loader_does_says_why() {
    let config = ("grub/grub.cfg", "linux /k");
    let two = Disk::new().with(1, "a", &[config]).with(2, "b", &[config]);
    assert!(two.refused().contains("two configurations of GRUB"));
    let mut none = Disk::new().with(1, "a", &[]);
    assert!(none.refused().contains("no configuration of GRUB"));
    none.system
        .unread
        .push("btrfs in partition 3: unsupported".to_owned());
    assert!(none.refused().contains("cannot read btrfs in partition 3"));
    let unified = Disk::new().with(1, "a", &[("EFI/Linux/a.efi", "")]);
    assert!(unified.refused().contains("inside an EFI program"));
    let empty = Disk::new().with(1, "a", &[("grub/grub.cfg", "set timeout=1")]);
    let error = open(&empty.system, &empty.found()).unwrap_err().to_string();
    assert!(error.contains("starts no Linux kernel"), "{error}");
}

#[test]
fn a_boot_file_system_that_is_linked_to_itself_has_one_configuration() {
    let disk = Disk::new().with(1, "a", &[("grub/grub.cfg", "linux /k")]);
    symlink(".", disk.folder(1).join("boot")).unwrap();
    assert_eq!(disk.found().kernel, Some(place(0, "/k")));
}

#[test]
fn without_grub_the_entry_that_its_loader_names_is_started_or_the_newest() {
    let entry = |version: &str| {
        format!(
            "title T\nversion {version}\nlinux /k-{version}\ninitrd /a\ninitrd /b\noptions x=1\noptions y\n"
        )
    };
    let (old, new) = (entry("6.9"), entry("6.10"));
    let files = [
        ("loader/entries/os-6.9.conf", old.as_str()),
        ("loader/entries/os-6.10.conf", new.as_str()),
    ];
    let disk = Disk::new().with(1, "a", &files);
    let found = disk.found();
    assert_eq!(found.kernel, Some(place(0, "/k-6.10")));
    assert_eq!(found.options, "x=1 y");
    assert_eq!(found.initrds, [place(0, "/a"), place(0, "/b")]);
    fs::write(
        disk.folder(1).join("loader/loader.conf"),
        "timeout 3\ndefault os-6.9*\n",
    )
    .unwrap();
    assert_eq!(disk.found().kernel, Some(place(0, "/k-6.9")));
    fs::write(
        disk.folder(1).join("loader/loader.conf"),
        "default @saved\n",
    )
    .unwrap();
    assert!(disk.refused().contains("not a Linux kernel"));
}

proptest! {
    #[test]
    fn any_configuration_is_an_entry_or_refused(
        text in "([a-z]{1,3}|[ \\n;{}$\"'\\\\=\\[\\]#]|if |then|fi|menuentry a \\{|\\}|linux /k|set root=|search --set=|\\$\\{root\\}|blscfg|function f \\{|f|source /grub/grub.cfg|submenu b \\{|load_env){0,40}",
        entry in "(linux |initrd |options |title |[a-z$ ]|\\n){0,30}",
        env in "[a-z=#\\\\\\n]{0,60}",
    ) {
        let disk = Disk::new().with(1, "u", &[
            ("grub/grub.cfg", &text), ("grub/grubenv", &env), ("loader/entries/a.conf", &entry),
        ]);
        if let Ok(found) = find(&disk.system) {
            prop_assert!(found.options.len() < 1 << 20);
        }
        drop(write_arguments(&disk.system, "a=1 b"));
        let other = Disk::new().with(1, "u", &[("loader/entries/a.conf", &entry), ("loader/loader.conf", &env)]);
        drop(find(&other.system));
    }
}
