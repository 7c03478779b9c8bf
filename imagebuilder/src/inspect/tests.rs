#![allow(clippy::unwrap_used)]

use std::os::unix::fs::FileExt as _;
use std::sync::LazyLock;

use proptest::prelude::*;

use firstlight_api::boot_choice::{SystemSlot, boot_config};
use firstlight_api::digest::Sha256Digest;
use firstlight_api::slot::{BootFile, LayerContent, SystemContent, format_table, table_digest};
use tempfile::TempDir;

use super::*;
use crate::disk::fat::{Content, FatSpec, format_fat};
use crate::signing::{Signer, make_key};

/// With their places.
type Blocks = Vec<(u64, Vec<u8>)>;

const TEMPLATE: &str = "linux /boot/@SLOT@/vmlinuz @SYSTEM@ @TABLE@\n";
const GRUBENV: &str = "# GRUB Environment Block\nslot=a\ntrial=\n####";
const CORE: &[u8] = &[2; 3000];

/// Who signs it, in a folder that goes with this.
static SIGNER: LazyLock<(Signer, TempDir)> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    (Signer::load(&make_key(folder.path())).unwrap(), folder)
});

/// Digests of what [`write_boot`] writes.
fn boot() -> Vec<BootFile> {
    let mut partition = CORE.to_vec();
    partition.resize(usize::try_from(gpt::BIOS_BOOT_BYTES).unwrap(), 0);
    let files: [(&str, &[u8]); 6] = [
        ("mbr", &[1; 440]),
        ("bios-boot", &partition),
        ("EFI/debian/grub.cfg", b"source it"),
        ("vmlinuz", b"a kernel"),
        ("initrd", b"an initramfs"),
        ("boot.cfg", TEMPLATE.as_bytes()),
    ];
    let files = files.into_iter().map(|(name, content)| BootFile {
        name: name.to_owned(),
        sha256: Sha256Digest::of(content),
    });
    files.collect()
}

/// `noted`: the table that the loaders are from, if an update has noted it.
fn write_boot(file: &File, plan: &DiskPlan, table: &[u8], noted: Option<&[u8]>) {
    file.write_all_at(&[1; 440], 0).unwrap();
    let core = plan.partition("bios-boot").unwrap();
    file.write_all_at(CORE, core.offset()).unwrap();
    let id = plan.partition("system-a").unwrap().id.to_string();
    let start = boot_config(TEMPLATE, SystemSlot::A, &id, table_digest(table));
    let part = plan.partition("ESP").unwrap();
    let text = |path: &str, text: &str| (path.to_owned(), Content::Text(text.to_owned()));
    let noted = noted.map(|table| std::str::from_utf8(table).unwrap());
    let noted = noted.map(|table| text("boot/loaders", table));
    let fat = format_fat(&FatSpec {
        bytes: part.bytes(),
        cluster: 1024,
        label: "ESP".to_owned(),
        volume_id: 2,
        files: vec![
            text("EFI/debian/grub.cfg", "source it"),
            text("boot/a/vmlinuz", "a kernel"),
            text("boot/a/initrd", "an initramfs"),
            text("boot/a/boot.cfg", &start),
            text("boot/grubenv", GRUBENV),
        ]
        .into_iter()
        .chain(noted)
        .collect(),
    });
    file.write_all_at(&fat.unwrap(), part.offset()).unwrap();
}

/// A signed image with one layer, what starts it, and two files, as blocks that are not zero.
static IMAGE: LazyLock<(DiskPlan, Blocks)> = LazyLock::new(|| {
    let layer = vec![7; 5120];
    let content = LayerContent {
        name: "agent".to_owned(),
        length: 5120,
        sha256: Sha256Digest::of(&layer),
        root: [8; 32].into(),
    };
    let mut system = SystemContent {
        layers: vec![content],
        boot: boot(),
        signature: None,
    };
    SIGNER.0.sign(&mut system).unwrap();
    let slot = system.plan();
    let table = format_table(&slot, slot.bytes()).unwrap();
    let plan = gpt::plan_stick("x", slot.bytes());
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(plan.bytes()).unwrap();
    gpt::write_table(&mut file.as_file().try_clone().unwrap(), &plan).unwrap();
    let system = plan.partition("system-a").unwrap().offset();
    file.as_file().write_all_at(&table, system).unwrap();
    file.as_file()
        .write_all_at(&layer, system + slot.layers[0].offset)
        .unwrap();
    write_boot(file.as_file(), &plan, &table, None);
    let data = plan.partition("FIRSTLIGHT").unwrap();
    let text = |path: &str, text: &str| (path.to_owned(), Content::Text(text.to_owned()));
    let manifest = r#"{"versions": {"firstlight": "1", "images": {"a": "b"}}, "files": [{"name": "n", "bytes": 1}]}"#;
    let fat = format_fat(&FatSpec {
        bytes: data.bytes(),
        cluster: 512,
        label: "FIRSTLIGHT".to_owned(),
        volume_id: 1,
        files: vec![
            text("site.yaml", "name: a\n"),
            text("manifest.json", manifest),
        ],
    });
    file.as_file()
        .write_all_at(&fat.unwrap(), data.offset())
        .unwrap();
    let mut blocks = Vec::new();
    for start in (0..plan.bytes()).step_by(4096) {
        let mut block = vec![0; 4096];
        file.as_file().read_exact_at(&mut block, start).unwrap();
        if block.iter().any(|byte| *byte != 0) {
            blocks.push((start, block));
        }
    }
    (plan, blocks)
});

/// The image with these bytes changed, at the places counted over its blocks.
fn changed(changes: &[(prop::sample::Index, usize, u8)], length: u64) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(length).unwrap();
    let mut blocks = IMAGE.1.clone();
    for (block, at, value) in changes {
        let block = block.index(blocks.len());
        blocks[block].1[*at] = *value;
    }
    for (start, block) in blocks.iter().filter(|(start, _)| start + 4096 <= length) {
        file.as_file().write_all_at(block, *start).unwrap();
    }
    file
}

#[test]
fn what_is_on_an_image_is_told() {
    let whole = changed(&[], IMAGE.0.bytes());
    let text = inspect(whole.path(), None).unwrap();
    for part in [
        "system-a",
        "agent",
        "5,120",
        "firstlight        1",
        "digests checked, signed by SHA256:",
        "name: a",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// Each file of the start, the layer, and the table that has their digests.
#[test]
fn a_bit_that_was_changed_after_it_was_signed_is_found() {
    let keys = SIGNER.0.public();
    verify(changed(&[], IMAGE.0.bytes()).path(), keys).unwrap();
    let esp = IMAGE.0.partition("ESP").unwrap();
    let system = IMAGE.0.partition("system-a").unwrap().offset();
    let in_esp = |content: &[u8]| {
        let blocks = IMAGE
            .1
            .iter()
            .filter(|(start, _)| (esp.offset()..esp.offset() + esp.bytes()).contains(start));
        let mut found = blocks.filter_map(|(start, block)| {
            let at = block
                .windows(content.len())
                .position(|bytes| bytes == content)?;
            Some(*start + at as u64)
        });
        found.next().unwrap()
    };
    for (what, at) in [
        ("mbr", 100),
        (
            "bios-boot",
            IMAGE.0.partition("bios-boot").unwrap().offset() + 600_000,
        ),
        ("EFI/debian/grub.cfg", in_esp(b"source it")),
        ("vmlinuz", in_esp(b"a kernel")),
        ("initrd", in_esp(b"an initramfs")),
        ("boot.cfg", in_esp(b"linux /boot/a/")),
        // `slot=`: a path, to GRUB.
        ("boot/grubenv", in_esp(b"slot=a\ntrial=\n####") + 5),
        ("layer agent", system + 4096 + 5000),
        ("system-a", system + 30),
    ] {
        let image = changed(&[], IMAGE.0.bytes());
        let mut byte = [0];
        image.as_file().read_exact_at(&mut byte, at).unwrap();
        image.as_file().write_all_at(&[byte[0] ^ 1], at).unwrap();
        let error = format!("{:#}", verify(image.path(), keys).unwrap_err());
        assert!(error.contains(what), "{what}: {error}");
        assert!(inspect(image.path(), None).is_err(), "{what}");
    }
}

fn of<'a>(plan: &'a mut DiskPlan, name: &str) -> &'a mut gpt::PartitionPlan {
    let mut parts = plan.partitions.iter_mut();
    parts.find(|part| part.name == name).unwrap()
}

/// An update brings a system with a later script for GRUB, and leaves the old script there.
#[test]
fn loaders_of_an_earlier_image_are_known_if_somebody_who_is_believed_has_signed_them() {
    let keys = SIGNER.0.public();
    let part = IMAGE.0.partition("system-a").unwrap();
    let image = changed(&[], IMAGE.0.bytes());
    let earlier = slot_block(image.path(), part).unwrap();
    let mut system = load_slot(image.path(), part).unwrap().unwrap().content();
    let script = system
        .boot
        .iter_mut()
        .find(|file| file.name == "EFI/debian/grub.cfg");
    script.unwrap().sha256 = [9; 32].into();
    SIGNER.0.sign(&mut system).unwrap();
    let table = format_table(&system.plan(), part.bytes()).unwrap();
    image.as_file().write_all_at(&table, part.offset()).unwrap();
    let mut forged = earlier.clone();
    let at = forged.iter().position(|byte| *byte == 0).unwrap();
    forged[at - 10] ^= 2;
    for (noted, fits) in [
        (None, false),
        (Some(&earlier), true),
        (Some(&forged), false),
    ] {
        write_boot(image.as_file(), &IMAGE.0, &table, noted.map(Vec::as_slice));
        let verified = verify(image.path(), keys);
        assert_eq!(verified.is_ok(), fits, "{verified:?}");
    }
}

/// Its files are whole, and firmware and GRUB look for them elsewhere.
#[test]
fn another_partition_to_start_from_is_found() {
    let keys = SIGNER.0.public();
    let is_refused = |change: fn(&mut DiskPlan)| {
        let image = changed(&[], IMAGE.0.bytes());
        let mut plan = IMAGE.0.clone();
        change(&mut plan);
        gpt::write_table(&mut image.as_file().try_clone().unwrap(), &plan).unwrap();
        let error = format!("{:#}", verify(image.path(), keys).unwrap_err());
        error.contains("another partition")
    };
    assert!(is_refused(|plan| of(plan, "FIRSTLIGHT").kind = gpt::ESP));
    assert!(is_refused(|plan| of(plan, "ESP").kind = gpt::BASIC_DATA));
    assert!(is_refused(|plan| {
        of(plan, "FIRSTLIGHT").number = 9;
        of(plan, "ESP").number = 1;
        of(plan, "FIRSTLIGHT").number = 2;
    }));
}

#[test]
fn an_image_of_somebody_else_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let others = Signer::load(&make_key(folder.path())).unwrap();
    let image = changed(&[], IMAGE.0.bytes());
    let error = format!("{:#}", verify(image.path(), others.public()).unwrap_err());
    assert!(
        error.contains("signed by SHA256:") && error.contains("not among"),
        "{error}"
    );

    // With a table of before, or of whoever takes the signature away.
    let part = IMAGE.0.partition("system-a").unwrap();
    let mut table = load_slot(image.path(), part).unwrap().unwrap();
    table.signature = None;
    table.boot.clear();
    let block = format_table(&table, part.bytes()).unwrap();
    image.as_file().write_all_at(&block, part.offset()).unwrap();
    let error = format!("{:#}", verify(image.path(), SIGNER.0.public()).unwrap_err());
    assert!(error.contains("not signed"), "{error}");
    assert!(inspect(image.path(), None).unwrap().contains("not signed"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// A stick that wears out, a download that was cut, or something else altogether.
    #[test]
    fn whatever_became_of_an_image_it_is_told_or_refused(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), 0..4096_usize, any::<u8>()), 0..6),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let whole = IMAGE.0.bytes();
        let length = cut.map_or(whole, |cut| cut.index(usize::try_from(whole).unwrap()) as u64);
        let image = changed(&changes, length);
        if let Ok(text) = inspect(image.path(), None) {
            prop_assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text}");
        }
    }

    /// A table whose checksums are right may still hold any numbers.
    #[test]
    fn partitions_outside_of_every_disk_are_refused(first: u64, last: u64, is_used in any::<bool>()) {
        let image = changed(&[], IMAGE.0.bytes());
        let file = image.as_file();
        let mut table = vec![0; 16384];
        file.read_exact_at(&mut table, 1024).unwrap();
        let entry = if is_used { 3 * 128 } else { 7 * 128 };
        table[entry..entry + 16].copy_from_slice(&gpt::SYSTEM.to_bytes_le());
        table[entry + 32..entry + 40].copy_from_slice(&first.to_le_bytes());
        table[entry + 40..entry + 48].copy_from_slice(&last.to_le_bytes());
        let mut header = vec![0; 92];
        file.read_exact_at(&mut header, 512).unwrap();
        header[88..92].copy_from_slice(&crc32(&table).to_le_bytes());
        header[16..20].fill(0);
        let sum = crc32(&header);
        header[16..20].copy_from_slice(&sum.to_le_bytes());
        file.write_all_at(&table, 1024).unwrap();
        file.write_all_at(&header, 512).unwrap();
        if let Ok(plan) = gpt::load_table(image.path()) {
            prop_assert!(plan.partitions.iter().all(|part| part.offset().checked_add(part.bytes()).is_some()));
        }
        drop(inspect(image.path(), None));
    }
}

/// CRC-32 as GPT has it, bit by bit.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |sum: u32, _| {
        if sum & 1 == 1 {
            sum >> 1 ^ 0xEDB8_8320
        } else {
            sum >> 1
        }
    };
    !bytes.iter().fold(u32::MAX, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), step)
    })
}
