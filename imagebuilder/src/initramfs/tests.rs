#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::cpio::{Entries, Entry, write_archive};
use super::modinfo::{ModInfo, parse_modinfo, read_modinfo, unpack_module};
use super::recipe::{Recipe, matches_path, parse_list};
use super::{InitramfsSpec, build_initramfs};

/// A 64-bit ELF file with the one section `.modinfo`, as small as the format allows.
fn elf(modinfo: &[u8]) -> Vec<u8> {
    let names = b"\0.modinfo\0.shstrtab\0";
    let headers_at = 64 + modinfo.len() + names.len();
    let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    for half in [1u16, 62] {
        file.extend(half.to_le_bytes());
    }
    file.extend(1u32.to_le_bytes());
    for word in [0u64, 0, headers_at as u64] {
        file.extend(word.to_le_bytes());
    }
    file.extend(0u32.to_le_bytes());
    for half in [64u16, 0, 0, 64, 3, 2] {
        file.extend(half.to_le_bytes());
    }
    file.extend(modinfo);
    file.extend(names);
    let section = |name: u32, kind: u32, at: u64, size: usize| {
        let mut header = [name.to_le_bytes(), kind.to_le_bytes()].concat();
        for word in [0, 0, at, size as u64, 0, 1, 0] {
            header.extend(u64::to_le_bytes(word));
        }
        header
    };
    file.extend([0; 64]);
    file.extend(section(1, 1, 64, modinfo.len()));
    file.extend(section(10, 3, (64 + modinfo.len()) as u64, names.len()));
    file
}

fn put(path: &Path, bytes: &[u8]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

/// A kernel with four modules, and one firmware package.
fn kernel(root: &Path) {
    let base = root.join("usr/lib/modules/6.12");
    let module = |path: &str, modinfo: &str| put(&base.join(path), &elf(modinfo.as_bytes()));
    module(
        "kernel/fs/top.ko",
        "alias=fs-top\0depends=mid-dle\0softdep=pre: sums\0firmware=vendor/new.bin\0firmware=none.bin\0",
    );
    module("kernel/lib/mid-dle.ko", "depends=leaf\0name=mid_dle\0");
    module("kernel/lib/leaf.ko", "depends=\0");
    module("kernel/crypto/sums_fast.ko", "alias=sums\0depends=leaf\0");
    module("kernel/sound/noise.ko", "depends=\0");
    put(&base.join("modules.builtin"), b"kernel/drivers/core.ko\n");
    put(
        &root.join("fw/usr/lib/firmware/vendor/new-1.bin"),
        b"firmware",
    );
    std::os::unix::fs::symlink(
        "./new-1.bin",
        root.join("fw/usr/lib/firmware/vendor/new.bin"),
    )
    .unwrap();
}

fn recipe() -> Recipe {
    Recipe {
        modules: vec!["fs/".to_owned(), "crypto/sums*".to_owned()],
        unpacked: vec!["top".to_owned()],
        load: BTreeMap::from([("box".to_owned(), vec!["top".to_owned(), "core".to_owned()])]),
    }
}

fn build(root: &Path, recipe: &Recipe) -> anyhow::Result<(super::InitramfsSummary, Vec<u8>)> {
    put(&root.join("init"), b"binary");
    let spec = InitramfsSpec {
        init: &root.join("init"),
        kernel: root,
        firmware: &[root.join("fw")],
        recipe,
    };
    let summary = build_initramfs(spec, &root.join("initrd"))?;
    let packed = fs::read(root.join("initrd"))?;
    assert_eq!(summary.bytes, packed.len() as u64);
    Ok((summary, packed))
}

#[test]
fn an_archive_is_what_the_kernel_documents() {
    let file = Entry::File {
        mode: 0o755,
        data: b"hello".to_vec(),
    };
    let entries = Entries::from([
        ("a/b".to_owned(), file),
        (
            "l".to_owned(),
            Entry::Symlink {
                target: "a".to_owned(),
            },
        ),
    ]);
    let mut out = Vec::new();
    write_archive(&entries, &mut out).unwrap();
    let zeros = "0".repeat(8);
    let header = |inode: u32, mode: u32, links: u32, size: u32, name: u32| {
        format!(
            "070701{inode:08x}{mode:08x}{zeros}{zeros}{links:08x}{zeros}{size:08x}{zeros}{zeros}{zeros}{zeros}{name:08x}{zeros}"
        )
    };
    let expected = [
        header(1, 0o040_755, 2, 0, 2) + "a\0",
        header(2, 0o100_755, 1, 5, 4) + "a/b\0\0\0hello\0\0\0",
        header(3, 0o120_777, 1, 1, 2) + "l\0a\0\0\0",
        header(0, 0, 1, 0, 11) + "TRAILER!!!\0\0\0\0",
    ];
    assert_eq!(String::from_utf8(out).unwrap(), expected.concat());
}

#[test]
fn modules_come_with_dependencies_firmware_and_the_order_of_loading() {
    let dir = tempfile::tempdir().unwrap();
    kernel(dir.path());
    let (summary, packed) = build(dir.path(), &recipe()).unwrap();
    assert_eq!(
        (
            summary.modules,
            summary.firmware,
            summary.kernel_version.as_str()
        ),
        (4, 2, "6.12")
    );
    assert_eq!(
        summary.missing_firmware.into_iter().collect::<Vec<_>>(),
        ["none.bin"]
    );

    let archive = zstd::decode_all(&packed[..]).unwrap();
    let text = String::from_utf8_lossy(&archive);
    let index = "firstlight-modules 1\n\
        m leaf 6.12/kernel/lib/leaf.ko\n\
        m mid_dle 6.12/kernel/lib/mid-dle.ko leaf\n\
        m sums_fast 6.12/kernel/crypto/sums_fast.ko leaf\n\
        m top 6.12/kernel/fs/top.ko leaf sums_fast mid_dle\n\
        a sums sums_fast\n\
        a fs-top top\n\
        l box top\n";
    assert!(text.contains(index), "{text}");
    assert!(
        text.contains("lib/firmware/vendor/new-1.bin\0")
            && text.contains("lib/firmware/vendor/new.bin\0")
    );
    assert!(!text.contains("noise"));
}

#[test]
fn the_same_inputs_give_the_same_bytes() {
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    kernel(first.path());
    kernel(second.path());
    assert_eq!(
        build(first.path(), &recipe()).unwrap().1,
        build(second.path(), &recipe()).unwrap().1
    );
}

#[test]
fn a_line_that_means_nothing_stops_the_build() {
    let dir = tempfile::tempdir().unwrap();
    kernel(dir.path());
    let mut moved = recipe();
    moved.modules.push("drivers/net/ethernet/gone/".to_owned());
    let message = build(dir.path(), &moved).unwrap_err().to_string();
    assert!(
        message.contains("`drivers/net/ethernet/gone/` matches no module"),
        "{message}"
    );
    let mut renamed = recipe();
    renamed.unpacked.push("tops".to_owned());
    let message = build(dir.path(), &renamed).unwrap_err().to_string();
    assert!(message.contains("`tops`"), "{message}");
}

#[test]
fn a_modules_own_words_are_read_from_its_elf_section() {
    let text = b"alias=pci:v1*\0alias=fs-x\0depends=a-b,c\0softdep=pre: crypto-crc32c post: later\0firmware=f.bin\0license=GPL\0";
    let info = read_modinfo(&elf(text)).unwrap();
    let strings = |words: &[&str]| {
        words
            .iter()
            .map(|word| (*word).to_owned())
            .collect::<Vec<_>>()
    };
    let expected = ModInfo {
        aliases: strings(&["pci:v1*", "fs-x"]),
        depends: strings(&["a_b", "c"]),
        soft: strings(&["crypto-crc32c"]),
        firmware: strings(&["f.bin"]),
    };
    assert_eq!(info, expected);
    assert_eq!(parse_modinfo(b""), ModInfo::default());
    assert!(read_modinfo(b"not an ELF file").is_err());
    assert!(unpack_module(b"\xfd7zXZ\0damaged").is_err());
}

#[test]
fn the_last_matching_line_of_the_recipe_decides() {
    let modules = parse_list(
        "# disks\ndrivers/scsi/   # all\n!drivers/scsi/fcoe/\n!drivers/scsi/*_debug\n\n",
    );
    let recipe = Recipe {
        modules,
        ..Recipe::default()
    };
    for (path, chosen) in [
        ("drivers/scsi/sd_mod", true),
        ("drivers/scsi/mpt3sas/mpt3sas", true),
        ("drivers/scsi/fcoe/fcoe", false),
        ("drivers/scsi/scsi_debug", false),
        ("drivers/scsi", false),
        ("drivers/scsix/a", false),
    ] {
        assert_eq!(recipe.chooses(path), chosen, "{path}");
    }
    assert!(
        matches_path("a/*b*/c", "a/xbx/c")
            && !matches_path("a/*/c", "a/b/d/c")
            && !matches_path("a/*", "a")
    );
}
