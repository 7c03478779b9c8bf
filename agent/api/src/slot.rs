//! The table at the beginning of a system slot: which squashfs images follow, top layer first (docs/reference.md, "The stick").
//!
//! The first 4 KiB, padded with NUL: `firstlight-slot 2`, then `NAME OFFSET LENGTH SHA256 ROOT` a line. The bytes come from a
//! disk or from whoever sends an update, so nothing in them is believed: what is out of place makes the whole table invalid.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::digest::Sha256Digest;

/// Length of the table on disk, and alignment of the layers that we place; the first one begins after it at the earliest.
pub const TABLE_BYTES: usize = 4096;
const MAGIC: &str = "firstlight-slot 2";
const SECTOR: u64 = 512;
const MOST_LAYERS: usize = 32;
const LONGEST_NAME: usize = 32;

/// What goes into a slot, wherever it will lie.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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

/// Places layers, top layer first.
pub fn plan_slot(layers: impl IntoIterator<Item = LayerContent>) -> Vec<Layer> {
    let mut offset = TABLE_BYTES as u64;
    let mut slot = Vec::new();
    for LayerContent {
        name,
        length,
        sha256,
        root,
    } in layers
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

/// Bytes of a slot with these layers, table included.
pub fn slot_bytes(slot: &[Layer]) -> u64 {
    slot.last().map_or(TABLE_BYTES as u64, |layer| {
        let end = layer.offset.saturating_add(layer.length);
        end.checked_next_multiple_of(TABLE_BYTES as u64)
            .unwrap_or(u64::MAX)
    })
}

/// The table as it stands on disk, padded with NUL; checked as it will be when it is read.
///
/// # Errors
/// What [`parse_slot_table`] would refuse.
pub fn format_table(slot: &[Layer], room: u64) -> Result<Vec<u8>, SlotError> {
    let mut text = format!("{MAGIC}\n");
    for Layer {
        name,
        offset,
        length,
        sha256,
        root,
    } in slot
    {
        // Text takes everything.
        let _ = writeln!(text, "{name} {offset} {length} {sha256} {root}");
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
    <[u8; 32]>::from(Sha256::digest(table)).into()
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
    #[error("the slot's table is longer than 4 KiB: too many layers")]
    Length,
}

/// Parses the table of a slot of `slot_bytes` bytes.
///
/// # Errors
/// Also when a layer overlaps another one, or has the name of another one.
pub fn parse_slot_table(block: &[u8], slot_bytes: u64) -> Result<Vec<Layer>, SlotError> {
    let end = block
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(block.len());
    let text = std::str::from_utf8(&block[..end]).map_err(|_| SlotError::Magic)?;
    let mut lines = text.lines();
    if lines.next() != Some(MAGIC) {
        return Err(SlotError::Magic);
    }
    let mut layers: Vec<Layer> = Vec::new();
    for (number, line) in lines.enumerate() {
        let layer = parse_line(line, slot_bytes, &layers);
        layers.push(layer.map_err(|reason| SlotError::Line {
            line: number + 2,
            reason,
        })?);
    }
    if layers.is_empty() {
        Err(SlotError::Empty)
    } else {
        Ok(layers)
    }
}

fn parse_line(line: &str, slot_bytes: u64, before: &[Layer]) -> Result<Layer, &'static str> {
    let fields: Vec<&str> = line.split(' ').collect();
    let [name, offset, length, sha256, root] = fields[..] else {
        return Err("expected NAME OFFSET LENGTH SHA256 ROOT");
    };
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
    let sha256 = sha256.ok_or("the digest is not 64 hex digits")?;
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

    fn parse(lines: &str) -> Result<Vec<Layer>, SlotError> {
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
        .unwrap();
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
        let slot = plan_slot([content("agent", 5120), content("base", 4096)]);
        assert_eq!((slot[0].offset, slot[1].offset), (4096, 12288));
        assert_eq!(slot_bytes(&slot), 16384);
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
        assert!(slot_bytes(&plan_slot([content("a", u64::MAX), content("b", 512)])) > SLOT);
    }

    #[test]
    fn whatever_is_out_of_place_is_refused() {
        let d = format!("{0} {0}", digest());
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
            (format!("base 4096 512 {d}\n\n"), 3),
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
            let slot = plan_slot(layers);
            let table = format_table(&slot, u64::MAX).unwrap();
            prop_assert_eq!(parse_slot_table(&table, slot_bytes(&slot)).unwrap(), slot);
        }

        #[test]
        fn any_block_is_answered_and_what_is_accepted_lies_inside(
            lines in "([a-c] [0-9]{3,6} [0-9]{3,5} (ab){32} (cd){32}\n?){0,4}", junk in "\\PC{0,40}",
        ) {
            for text in [lines.clone(), format!("{lines}{junk}")] {
                for layer in parse(&text).unwrap_or_default() {
                    prop_assert!(layer.offset >= 4096 && layer.offset + layer.length <= SLOT);
                }
            }
        }
    }
}
