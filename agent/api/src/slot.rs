//! The table at the beginning of a system slot: which squashfs images follow, top layer first (docs/reference.md, "The stick").
//!
//! The first 4 KiB, padded with NUL: `firstlight-slot 2`, then `NAME OFFSET LENGTH SHA256 ROOT` a layer, `boot NAME SHA256` a file that is
//! read before any layer, and `signature BASE64`. The bytes come from a disk or from whoever sends an update, so nothing in them is
//! believed: what is out of place makes the whole table invalid.

use std::fmt::Write as _;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::boot_choice::{BootPlace, SystemSlot};
use crate::digest::Sha256Digest;

/// Length of the table on disk, and alignment of the layers that we place; the first one begins after it at the earliest.
pub const TABLE_BYTES: usize = 4096;
const MAGIC: &str = "firstlight-slot 2";
const SECTOR: u64 = 512;
const MOST_LAYERS: usize = 32;
const LONGEST_NAME: usize = 32;
const MOST_BOOT: usize = 16;
const LONGEST_PATH: usize = 64;
const LONGEST_SIGNATURE: usize = 1024;
const BOOT: &str = "boot";
const SIGNATURE: &str = "signature";
const NO_DIGEST: &str = "the digest is not 64 hex digits";
/// The first line of what is signed ([`SystemContent::statement`]).
const STATEMENT: &str = "firstlight-system 1";

/// What goes into a slot, wherever it will lie.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LayerContent {
    /// 1 to 32 of a-z, 0-9, `-`; never `rw`.
    pub name: String,
    /// Bytes.
    pub length: u64,
    /// Of all of them.
    pub sha256: Sha256Digest,
    /// Of the hash tree at its end ([`crate::verity`]).
    pub root: Sha256Digest,
}

/// One layer; `offset` and `length` are bytes from the start of the slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layer {
    /// As in [`LayerContent`].
    pub name: String,
    /// A multiple of 512, behind the table.
    pub offset: u64,
    /// A multiple of 512, never 0.
    pub length: u64,
    /// Of its bytes.
    pub sha256: Sha256Digest,
    /// As in [`LayerContent`].
    pub root: Sha256Digest,
}

impl Layer {
    /// Without its place.
    pub fn content(&self) -> LayerContent {
        LayerContent {
            name: self.name.clone(),
            length: self.length,
            sha256: self.sha256,
            root: self.root,
        }
    }
}

/// What GRUB and the firmware read before any layer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BootFile {
    /// `vmlinuz`, `initrd` and `boot.cfg` (its template) of the system, a path on the ESP, or `mbr` and `bios-boot`.
    pub name: String,
    /// Of the file, of the code in the MBR, of the whole partition.
    pub sha256: Sha256Digest,
}

impl BootFile {
    /// It is there for each system, not once for both as shim and GRUB are.
    pub fn is_of_system(&self) -> bool {
        BootPlace::of(&self.name, SystemSlot::A).is_of_system()
    }

    /// Whether what was `found` in its place was built for it. `known`: of all systems of the stick, for what they share is of one of them.
    pub fn is_as_built(&self, found: Option<Sha256Digest>, known: &[Self]) -> bool {
        let mut same = known.iter().filter(|other| other.name == self.name);
        if self.is_of_system() {
            found == Some(self.sha256)
        } else {
            same.any(|other| found == Some(other.sha256))
        }
    }
}

/// A system, wherever it will lie.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SystemContent {
    /// Top layer first.
    pub layers: Vec<LayerContent>,
    /// As the build made them.
    #[serde(default)]
    pub boot: Vec<BootFile>,
    /// Of [`Self::statement`]: an SSH signature without its armour, in base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<String>,
}

impl SystemContent {
    /// What is signed.
    pub fn statement(&self) -> String {
        let mut text = format!("{STATEMENT}\n");
        for LayerContent {
            name,
            length,
            sha256,
            root,
        } in &self.layers
        {
            // Text takes everything.
            let _ = writeln!(text, "{name} {length} {sha256} {root}");
        }
        write_boot(&mut text, &self.boot);
        text
    }

    /// Places its layers.
    pub fn plan(&self) -> SlotTable {
        SlotTable {
            layers: place(&self.layers),
            boot: self.boot.clone(),
            signature: self.signature.clone(),
        }
    }
}

fn write_boot(text: &mut String, boot: &[BootFile]) {
    for BootFile { name, sha256 } in boot {
        let _ = writeln!(text, "{BOOT} {name} {sha256}");
    }
}

/// A system in its place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlotTable {
    /// Top layer first.
    pub layers: Vec<Layer>,
    /// As in [`SystemContent`].
    pub boot: Vec<BootFile>,
    /// As in [`SystemContent`].
    pub signature: Option<String>,
}

impl SlotTable {
    /// Without its place.
    pub fn content(&self) -> SystemContent {
        SystemContent {
            layers: self.layers.iter().map(Layer::content).collect(),
            boot: self.boot.clone(),
            signature: self.signature.clone(),
        }
    }

    /// Of a slot with these layers, table included.
    pub fn bytes(&self) -> u64 {
        self.layers.last().map_or(TABLE_BYTES as u64, |layer| {
            let end = layer.offset.saturating_add(layer.length);
            end.checked_next_multiple_of(TABLE_BYTES as u64)
                .unwrap_or(u64::MAX)
        })
    }
}

fn place(layers: &[LayerContent]) -> Vec<Layer> {
    let mut offset = TABLE_BYTES as u64;
    let mut slot = Vec::new();
    for LayerContent {
        name,
        length,
        sha256,
        root,
    } in layers.iter().cloned()
    {
        slot.push(Layer {
            name,
            offset,
            length,
            sha256,
            root,
        });
        offset = offset
            .saturating_add(length)
            .saturating_add(TABLE_BYTES as u64 - 1);
        offset -= offset % TABLE_BYTES as u64;
    }
    slot
}

/// The table as it stands on disk, padded with NUL; checked as it will be when it is read.
///
/// # Errors
/// What [`parse_slot_table`] would refuse.
pub fn format_table(slot: &SlotTable, room: u64) -> Result<Vec<u8>, SlotError> {
    let mut text = format!("{MAGIC}\n");
    for Layer {
        name,
        offset,
        length,
        sha256,
        root,
    } in &slot.layers
    {
        let _ = writeln!(text, "{name} {offset} {length} {sha256} {root}");
    }
    write_boot(&mut text, &slot.boot);
    if let Some(signature) = &slot.signature {
        let _ = writeln!(text, "{SIGNATURE} {signature}");
    }
    let mut table = text.into_bytes();
    if table.len() > TABLE_BYTES {
        return Err(SlotError::Length);
    }
    table.resize(TABLE_BYTES, 0);
    parse_slot_table(&table, room)?;
    Ok(table)
}

/// Of a table as it stands on disk: with it the whole system is known, for the table has the root of each layer.
pub fn table_digest(table: &[u8]) -> Sha256Digest {
    Sha256Digest::of(table)
}

/// Why there is no table, or none that is believed.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum SlotError {
    /// The first line is another one.
    #[error(
        "the slot has no table (`firstlight-slot 2`); write the stick again with `firstlight flash`"
    )]
    Magic,
    /// One line is out of place.
    #[error(
        "line {line} of the slot's table: {reason}; write the stick again with `firstlight flash`"
    )]
    Line {
        /// From 1.
        line: usize,
        /// Of a layer that is not taken.
        reason: &'static str,
    },
    /// Nothing could start.
    #[error("the slot's table names no layer; write the stick again with `firstlight flash`")]
    Empty,
    /// It would reach into the first layer.
    #[error("the slot's table is longer than 4 KiB: too many layers, or too long a signature")]
    Length,
}

/// Parses the table of a slot of `slot_bytes` bytes.
///
/// # Errors
/// Also when a layer overlaps another one, or has the name of another one.
pub fn parse_slot_table(block: &[u8], slot_bytes: u64) -> Result<SlotTable, SlotError> {
    let end = block
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(block.len());
    let text = std::str::from_utf8(&block[..end]).map_err(|_| SlotError::Magic)?;
    let mut lines = text.lines();
    if lines.next() != Some(MAGIC) {
        return Err(SlotError::Magic);
    }
    let mut table = SlotTable::default();
    for (number, line) in lines.enumerate() {
        let taken = parse_line(line, slot_bytes, &mut table);
        taken.map_err(|reason| SlotError::Line {
            line: number + 2,
            reason,
        })?;
    }
    if table.layers.is_empty() {
        Err(SlotError::Empty)
    } else {
        Ok(table)
    }
}

fn parse_line(line: &str, slot_bytes: u64, table: &mut SlotTable) -> Result<(), &'static str> {
    if table.signature.is_some() {
        return Err("the signature is the last line");
    }
    let fields: Vec<&str> = line.split(' ').collect();
    match fields[..] {
        [BOOT, name, sha256] => {
            let file = parse_boot(name, sha256, &table.boot)?;
            table.boot.push(file);
        }
        [SIGNATURE, signature] => table.signature = Some(parse_signature(signature)?),
        [name, offset, length, sha256, root] if table.boot.is_empty() => {
            let layer = [name, offset, length, sha256, root];
            let layer = parse_layer(layer, slot_bytes, &table.layers)?;
            table.layers.push(layer);
        }
        _ => {
            return Err(
                "expected NAME OFFSET LENGTH SHA256 ROOT, then `boot NAME SHA256`, then `signature BASE64`",
            );
        }
    }
    Ok(())
}

fn parse_boot(name: &str, sha256: &str, before: &[BootFile]) -> Result<BootFile, &'static str> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"./-".contains(&byte);
    let is_path = name.len() <= LONGEST_PATH && name.bytes().all(plain);
    if !is_path || name.split('/').any(|part| part.is_empty() || part == "..") {
        return Err("the name is not a path of 1 to 64 of a-z, A-Z, 0-9, `.`, `/`, `-`");
    }
    if before.len() >= MOST_BOOT || before.iter().any(|file| file.name == name) {
        return Err("too many files for the start, or one twice");
    }
    Ok(BootFile {
        name: name.to_owned(),
        sha256: Sha256Digest::parse(sha256).ok_or(NO_DIGEST)?,
    })
}

fn parse_signature(text: &str) -> Result<String, &'static str> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte);
    if text.is_empty() || text.len() > LONGEST_SIGNATURE || !text.bytes().all(plain) {
        return Err("the signature is not base64, or longer than those of Ed25519 and ECDSA");
    }
    Ok(text.to_owned())
}

fn parse_layer(
    [name, offset, length, sha256, root]: [&str; 5],
    slot_bytes: u64,
    before: &[Layer],
) -> Result<Layer, &'static str> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if name.is_empty() || name.len() > LONGEST_NAME || !name.bytes().all(plain) || name == "rw" {
        return Err("the name is not 1 to 32 of a-z, 0-9, `-`, or is `rw`");
    }
    let offset = number(offset).ok_or("the offset is not a number")?;
    let length = number(length).ok_or("the length is not a number")?;
    let end = offset
        .checked_add(length)
        .ok_or("offset and length are too big")?;
    if offset < TABLE_BYTES as u64 || offset % SECTOR != 0 || length == 0 || length % SECTOR != 0 {
        return Err("the layer is empty, inside the table, or not in steps of 512 bytes");
    }
    if end > slot_bytes {
        return Err("the layer reaches beyond the partition");
    }
    let [sha256, root] = [sha256, root].map(Sha256Digest::parse);
    let sha256 = sha256.ok_or(NO_DIGEST)?;
    let root = root.ok_or("the root is not 64 hex digits")?;
    if before.len() >= MOST_LAYERS {
        return Err("too many layers");
    }
    if before.iter().any(|other| other.name == name) {
        return Err("the name is there twice");
    }
    if before
        .iter()
        .any(|other| offset < other.offset + other.length && other.offset < end)
    {
        return Err("the layer overlaps another one");
    }
    Ok(Layer {
        name: name.to_owned(),
        offset,
        length,
        sha256,
        root,
    })
}

/// Digits only: `u64::from_str` would take a `+`.
fn number(text: &str) -> Option<u64> {
    text.bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| text.parse().ok())?
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SLOT: u64 = 1 << 20;

    fn parse(lines: &str) -> Result<SlotTable, SlotError> {
        let mut block = format!("firstlight-slot 2\n{lines}").into_bytes();
        block.resize(block.len().max(TABLE_BYTES), 0);
        parse_slot_table(&block, SLOT)
    }

    fn digest() -> String {
        "ab".repeat(32)
    }

    #[test]
    fn a_table_gives_its_layers_top_first() {
        let layers = parse(&format!(
            "agent 4096 512 {0} {0}\nbase 8192 4096 {0} {1}\n",
            digest(),
            "cd".repeat(32)
        ))
        .unwrap()
        .layers;
        let names: Vec<_> = layers.iter().map(|layer| layer.name.as_str()).collect();
        assert_eq!(names, ["agent", "base"]);
        assert_eq!(
            (layers[1].offset, layers[1].length, layers[1].sha256),
            (8192, 4096, Sha256Digest::from([0xab; 32]))
        );
        assert_eq!(layers[1].root, Sha256Digest::from([0xcd; 32]));
    }

    #[test]
    fn layers_start_at_blocks_one_after_the_other() {
        let content = |name: &str, length| LayerContent {
            name: name.to_owned(),
            length,
            sha256: Sha256Digest::from([0xab; 32]),
            root: Sha256Digest::from([0xcd; 32]),
        };
        let plan = |layers: [LayerContent; 2]| {
            let system = SystemContent {
                layers: layers.to_vec(),
                ..SystemContent::default()
            };
            system.plan()
        };
        let slot = plan([content("agent", 5120), content("base", 4096)]);
        assert_eq!(
            (slot.layers[0].offset, slot.layers[1].offset),
            (4096, 12288)
        );
        assert_eq!(slot.bytes(), 16384);
        let table = format_table(&slot, SLOT).unwrap();
        let text = format!(
            "firstlight-slot 2\nagent 4096 5120 {0} {1}\nbase 12288 4096 {0} {1}\n\0",
            digest(),
            "cd".repeat(32)
        );
        assert_eq!(table.len(), 4096);
        assert!(table.starts_with(text.as_bytes()));
        assert_eq!(parse_slot_table(&table, 16384), Ok(slot.clone()));
        assert!(format_table(&slot, 16383 - 4096).is_err(), "no room");
        assert!(plan([content("a", u64::MAX), content("b", 512)]).bytes() > SLOT);
    }

    #[test]
    fn what_is_signed_is_the_system_wherever_it_lies() {
        let (d, at) = (digest(), "boot vmlinuz");
        let lines = format!("agent 8192 512 {d} {d}\n{at} {d}\nsignature AAb+/=\n");
        let table = parse(&lines).unwrap();
        let content = table.content();
        assert_eq!(
            content.statement(),
            format!("firstlight-system 1\nagent 512 {d} {d}\n{at} {d}\n")
        );
        assert_eq!(content.signature.as_deref(), Some("AAb+/="));
        let placed = content.plan();
        assert_eq!(placed.layers[0].offset, 4096);
        assert_eq!(placed.content(), content);
        let block = format_table(&placed, SLOT).unwrap();
        assert_eq!(parse_slot_table(&block, SLOT), Ok(placed));
    }

    #[test]
    fn whatever_is_out_of_place_is_refused() {
        let d = format!("{0} {0}", digest());
        let (base, hex) = (format!("base 4096 512 {d}\n"), digest());
        for (lines, line) in [
            (format!("base 0 512 {d}"), 2),
            (format!("base 4097 512 {d}"), 2),
            (format!("base 4096 0 {d}"), 2),
            (format!("base 4096 100 {d}"), 2),
            (format!("base 4096 1048576 {d}"), 2),
            (format!("base 18446744073709551104 1024 {d}"), 2),
            (format!("base +4096 512 {d}"), 2),
            (format!("base 4096 512 {}", &d[1..]), 2),
            (format!("base 4096 512 {}", &d[..d.len() - 1]), 2),
            (format!("base 4096 512 {}", digest()), 2),
            (format!("../base 4096 512 {d}"), 2),
            (format!("rw 4096 512 {d}"), 2),
            (format!("base 4096 512 {d} more"), 2),
            (format!("base 4096 512 {d}\nbase 8192 512 {d}"), 3),
            (format!("base 4096 8192 {d}\nkube 8192 512 {d}"), 3),
            (format!("base 8192 512 {d}\nkube 4096 8192 {d}"), 3),
            (format!("{base}\n"), 3),
            (format!("{base}boot vmlinuz {}", &hex[1..]), 3),
            (format!("{base}boot ../x {hex}"), 3),
            (format!("{base}boot /x {hex}"), 3),
            (format!("{base}boot {} {hex}", "x".repeat(65)), 3),
            (format!("{base}boot x {hex}\nboot x {hex}"), 4),
            (format!("{base}boot x {hex}\nkube 8192 512 {d}"), 4),
            (format!("{base}signature "), 3),
            (format!("{base}signature a:b"), 3),
            (format!("{base}signature {}", "a".repeat(1025)), 3),
            (format!("{base}signature ab\nsignature ab"), 4),
            (format!("{base}signature ab\nboot x {hex}"), 4),
        ] {
            let error = parse(&lines).unwrap_err();
            assert!(
                matches!(error, SlotError::Line { line: found, .. } if found == line),
                "{lines}: {error}"
            );
        }
        assert_eq!(parse(""), Err(SlotError::Empty));
        assert_eq!(
            parse_slot_table(&[0; TABLE_BYTES], SLOT),
            Err(SlotError::Magic)
        );
        assert_eq!(
            parse_slot_table(b"hsqs\xff\xfe", SLOT),
            Err(SlotError::Magic)
        );
    }

    proptest! {
        #[test]
        fn a_table_is_read_as_it_was_written(lengths in proptest::collection::vec(1..1_u64 << 32, 1..20)) {
            let layers = lengths.iter().enumerate().map(|(number, length)| LayerContent {
                name: format!("l{number}"),
                length: length * SECTOR,
                sha256: Sha256Digest::from([7; 32]),
                root: Sha256Digest::from([8; 32]),
            });
            let system = SystemContent { layers: layers.collect(), ..SystemContent::default() };
            let slot = system.plan();
            let table = format_table(&slot, u64::MAX).unwrap();
            prop_assert_eq!(parse_slot_table(&table, slot.bytes()).unwrap(), slot);
        }

        #[test]
        fn any_block_is_answered_and_what_is_accepted_lies_inside(
            lines in "([a-c] [0-9]{3,6} [0-9]{3,5} (ab){32} (cd){32}\n?){0,4}(boot [a/.]{1,4} (ab){32}\n){0,3}(signature [a+:]{0,3}\n){0,2}",
            junk in "\\PC{0,40}",
        ) {
            for text in [lines.clone(), format!("{lines}{junk}")] {
                for layer in parse(&text).unwrap_or_default().layers {
                    prop_assert!(layer.offset >= 4096 && layer.offset + layer.length <= SLOT);
                }
            }
        }
    }
}
