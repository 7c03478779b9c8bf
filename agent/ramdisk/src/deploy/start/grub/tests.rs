//! Configurations as the systems that people install have them.
#![allow(clippy::unwrap_used)]

use super::super::tests::{Disk, fixture};

const DEBIAN: &str = "4c2a0d4e-6b1c-4a57-9f0e-0f6f3f0d8f11";

fn with_grub(config: &str, files: &[(&str, &str)]) -> Disk {
    let all = [&[("boot/grub/grub.cfg", config)], files].concat();
    Disk::new().with(15, "ESP", &[]).with(1, DEBIAN, &all)
}

#[test]
fn debian_starts_its_first_entry() {
    for is_efi in [false, true] {
        let mut disk = with_grub(&fixture("debian.cfg"), &[]);
        disk.system.is_efi = is_efi;
        let found = disk.found();
        let kernel = found.kernel.unwrap();
        assert_eq!(
            (kernel.volume, kernel.path.as_str()),
            (1, "/boot/vmlinuz-6.1.0-28-cloud-amd64")
        );
        assert_eq!(
            found.initrds[0].path,
            "/boot/initrd.img-6.1.0-28-cloud-amd64"
        );
        assert_eq!(
            found.options,
            "BOOT_IMAGE=/boot/vmlinuz-6.1.0-28-cloud-amd64 root=PARTUUID=8c6f1c3e-2c3c-44ea-a1d5-3a2f4a6e9b10 ro \
             console=tty0 console=ttyS0,115200 earlyprintk=ttyS0,115200 consoleblank=0"
        );
    }
}

#[test]
fn an_entry_of_a_submenu_is_found_by_place_title_and_id() {
    for (next, word) in [
        ("1>0", "advanced"),
        ("Advanced options for Debian GNU/Linux>1", "single"),
        (
            "gnulinux-advanced-4c2a0d4e-6b1c-4a57-9f0e-0f6f3f0d8f11>gnulinux-6.1.0-28-cloud-amd64-recovery-4c2a",
            "single",
        ),
        ("no such entry", "consoleblank=0"),
    ] {
        let env = format!("# GRUB Environment Block\nnext_entry={next}\n##");
        let disk = with_grub(&fixture("debian.cfg"), &[("boot/grub/grubenv", &env)]);
        let options = disk.found().options;
        assert!(options.ends_with(word), "{next}: {options}");
    }
}

#[test]
fn what_a_person_has_added_counts() {
    let custom =
        "set default=mine\nmenuentry 'Mine' --id mine { linux /mine \"a b\" c=\"d e\" 'f'\\ g }";
    let custom = custom.replace(" }", "\n}");
    let disk = with_grub(&fixture("debian.cfg"), &[("boot/grub/custom.cfg", &custom)]);
    // Set on the way, it is the last word.
    assert_eq!(
        disk.found().options,
        "BOOT_IMAGE=/mine \"a b\" c=\"d e\" \"f g\""
    );
}

#[test]
fn ubuntu_starts_without_its_initramfs_from_its_own_boot_file_system() {
    let config = fixture("ubuntu.cfg");
    let files = [("grub/grub.cfg", config.as_str())];
    let disk = Disk::new()
        .with(1, "a1b2c3d4-0000-4000-8000-000000000001", &[])
        .with(16, "b2b2b2b2-0000-4000-8000-000000000002", &files);
    let found = disk.found();
    assert_eq!(found.kernel.unwrap().path, "/vmlinuz-6.8.0-49-generic");
    assert!(found.initrds.is_empty());
    assert_eq!(
        found.options,
        "BOOT_IMAGE=/vmlinuz-6.8.0-49-generic root=PARTUUID=6f2b5a1e-9f55-4f6d-9f9c-6b6a4a3c2d1e ro console=tty1 console=ttyS0 panic=-1"
    );
}

#[test]
fn fedora_starts_the_entry_that_was_saved_and_fills_in_its_variables() {
    let (config, env) = (fixture("fedora.cfg"), fixture("fedora.env"));
    let (new, old) = (fixture("fedora-new.conf"), fixture("fedora-old.conf"));
    let files = [
        ("grub2/grub.cfg", config.as_str()),
        ("grub2/grubenv", env.as_str()),
        (
            "loader/entries/9f-6.12.9-200.fc41.x86_64.conf",
            new.as_str(),
        ),
        (
            "loader/entries/9f-6.11.4-301.fc41.x86_64.conf",
            old.as_str(),
        ),
    ];
    let disk = Disk::new().with(3, "fed00000-0000-4000-8000-000000000001", &files);
    let found = disk.found();
    assert_eq!(
        found.kernel.unwrap().path,
        "/vmlinuz-6.11.4-301.fc41.x86_64"
    );
    assert_eq!(found.initrds.len(), 1);
    assert_eq!(
        found.options,
        "BOOT_IMAGE=(hd0,gpt3)/vmlinuz-6.11.4-301.fc41.x86_64 root=UUID=fed00000-0000-4000-8000-000000000002 ro console=tty0 rhgb \
         skew_tick=1 note=a\\b"
    );
    // Nothing saved: the newest.
    std::fs::write(disk.folder(3).join("grub2/grubenv"), "boot_success=1\n").unwrap();
    let kernel = disk.found().kernel.unwrap();
    assert_eq!(kernel.path, "/vmlinuz-6.12.9-200.fc41.x86_64");
}

#[test]
fn a_file_system_that_is_not_there_and_a_loop_are_refused_with_a_reason() {
    let refused = |config: &str| {
        let disk = with_grub(config, &[]);
        super::super::find(&disk.system)
            .and_then(|entry| super::super::open(&disk.system, &entry))
            .unwrap_err()
            .to_string()
    };
    let elsewhere = "search --no-floppy --fs-uuid --set=root 00-11\nlinux /k";
    assert!(refused(elsewhere).contains("GRUB goes on to `00-11`"));
    assert!(refused("for a in b; do linux /k; done").contains("has a loop"));
    assert!(refused("source /boot/grub/grub.cfg").contains("calls itself"));
    assert!(refused("function f {\nf\n}\nf").contains("calls itself"));
    assert!(refused("chainloader +1").contains("starts by `chainloader`"));
    assert!(refused("menuentry a {").contains("line 1"));
    assert!(refused("echo 'a").contains("a quote does not end"));
    assert!(refused("if true; then linux /k").contains("a block does not end"));
}

#[test]
fn conditions_are_those_of_grub() {
    for (condition, holds) in [
        ("[ ]", false),
        ("[ a ]", true),
        ("[ \"$no\" ]", false),
        ("[ -z \"$no\" -a a = a ]", true),
        ("[ a = b -o 2 -gt 1 ]", true),
        ("[ ! a = b ]", true),
        ("test -e /boot/grub/grub.cfg", true),
        ("[ -f ($root)/boot/no ]", false),
        ("false", false),
        ("search --set=x --label label1", true),
        ("search --file --set=x /boot/grub/grub.cfg", true),
        ("search.fs_uuid 00 x", false),
    ] {
        let config = format!("if {condition}; then\n linux /yes\nelse linux /no; fi");
        let kernel = with_grub(&config, &[]).found().kernel.unwrap().path;
        assert_eq!(kernel == "/yes", holds, "{condition}");
    }
}
