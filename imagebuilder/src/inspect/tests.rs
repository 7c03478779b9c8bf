#![allow(clippy::unwrap_used)]

use std::os::unix::fs::FileExt as _;
use std::sync::LazyLock;

use proptest::prelude::*;

use firstlight_api::slot::{LayerContent, format_table, plan_slot, slot_bytes};
use sha2::{Digest as _, Sha256};

use super::*;
use crate::disk::fat::{Content, FatSpec, format_fat};

/// With their places.
type Blocks = Vec<(u64, Vec<u8>)>;

/// An image with one layer and the two files, as blocks that are not zero.
static IMAGE: LazyLock<(DiskPlan, Blocks)> = LazyLock::new(|| {
    let layer = vec![7; 5120];
    let slot = plan_slot([LayerContent {
        name: "agent".to_owned(),
        length: 5120,
        sha256: <[u8; 32]>::from(Sha256::digest(&layer)).into(),
        root: [8; 32].into(),
    }]);
    let table = format_table(&slot, slot_bytes(&slot)).unwrap();
    let plan = gpt::plan_stick("x", slot_bytes(&slot));
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(plan.bytes()).unwrap();
    gpt::write_table(&mut file.as_file().try_clone().unwrap(), &plan).unwrap();
    let system = plan.partition("system-a").unwrap().offset();
    file.as_file().write_all_at(&table, system).unwrap();
    file.as_file()
        .write_all_at(&layer, system + slot[0].offset)
        .unwrap();
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
    let text = inspect(whole.path()).unwrap();
    for part in [
        "system-a",
        "agent",
        "5,120",
        "firstlight        1",
        "name: a",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
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
        if let Ok(text) = inspect(image.path()) {
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
        drop(inspect(image.path()));
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
