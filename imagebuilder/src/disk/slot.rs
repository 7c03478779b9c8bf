//! The slot table: the first 4 KiB of a system partition, and the layers behind it (docs/reference.md, "The stick").

use std::fmt::Write as _;

use anyhow::{Context, Result, bail, ensure};

/// Size of the table, and alignment of the layers.
pub const TABLE: u64 = 4096;
const MAGIC: &str = "firstlight-slot 1";

/// One layer, bytes from the start of the partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotLayer {
    pub name: String,
    pub offset: u64,
    pub length: u64,
    /// Hex.
    pub sha256: String,
}

/// Places layers of the given (name, length, digest), top layer first.
pub fn plan_slot(layers: &[(String, u64, String)]) -> Vec<SlotLayer> {
    let mut offset = TABLE;
    let mut slot = Vec::new();
    for (name, length, sha256) in layers {
        slot.push(SlotLayer {
            name: name.clone(),
            offset,
            length: *length,
            sha256: sha256.clone(),
        });
        offset += length.next_multiple_of(TABLE);
    }
    slot
}

/// Bytes of a slot, table included.
pub fn slot_bytes(slot: &[SlotLayer]) -> u64 {
    slot.last().map_or(TABLE, |layer| {
        layer.offset + layer.length.next_multiple_of(TABLE)
    })
}

/// The table as it stands on disk, padded with NUL.
pub fn format_table(slot: &[SlotLayer]) -> Result<Vec<u8>> {
    let mut text = format!("{MAGIC}\n");
    for layer in slot {
        writeln!(
            text,
            "{} {} {} {}",
            layer.name, layer.offset, layer.length, layer.sha256
        )?;
    }
    let mut table = text.into_bytes();
    ensure!(
        table.len() as u64 <= TABLE,
        "{} layers do not fit into the slot table",
        slot.len()
    );
    table.resize(usize::try_from(TABLE)?, 0);
    Ok(table)
}

/// Reads the table of a partition of `room` bytes.
pub fn parse_table(table: &[u8], room: u64) -> Result<Vec<SlotLayer>> {
    let text = table.split(|byte| *byte == 0).next().unwrap_or_default();
    let text = std::str::from_utf8(text).context("the slot table is not text")?;
    let mut lines = text.lines();
    if lines.next() != Some(MAGIC) {
        bail!("the slot does not begin with {MAGIC:?}");
    }
    lines.map(|line| parse_line(line, room)).collect()
}

fn parse_line(line: &str, room: u64) -> Result<SlotLayer> {
    let fields: Vec<&str> = line.split(' ').collect();
    let [name, offset, length, sha256] = fields[..] else {
        bail!("slot table line {line:?} does not have four fields")
    };
    let layer = SlotLayer {
        name: name.to_owned(),
        offset: offset
            .parse()
            .with_context(|| format!("offset in slot table line {line:?}"))?,
        length: length
            .parse()
            .with_context(|| format!("length in slot table line {line:?}"))?,
        sha256: sha256.to_owned(),
    };
    let end = layer.offset.checked_add(layer.length);
    ensure!(
        layer.offset >= TABLE && end.is_some_and(|end| end <= room),
        "slot table line {line:?} names bytes outside of the partition"
    );
    Ok(layer)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    fn layers() -> Vec<SlotLayer> {
        plan_slot(&[
            ("agent".to_owned(), 5000, "aa".to_owned()),
            ("base".to_owned(), 4096, "bb".to_owned()),
        ])
    }

    #[test]
    fn layers_start_at_blocks_one_after_the_other() {
        let slot = layers();
        assert_eq!((slot[0].offset, slot[1].offset), (4096, 12288));
        assert_eq!(slot_bytes(&slot), 16384);
    }

    #[test]
    fn the_table_is_the_text_of_the_contract() {
        let table = format_table(&layers()).unwrap();
        assert_eq!(table.len(), 4096);
        assert!(
            table.starts_with(b"firstlight-slot 1\nagent 4096 5000 aa\nbase 12288 4096 bb\n\0")
        );
        assert_eq!(parse_table(&table, 16384).unwrap(), layers());
    }

    #[test]
    fn a_strange_table_is_refused() {
        for table in [
            "",
            "firstlight-slot 2\n",
            "firstlight-slot 1\nbase 1 2\n",
            "firstlight-slot 1\nbase x 2 aa\n",
            "firstlight-slot 1\nbase 0 4096 aa\n",
            "firstlight-slot 1\nbase 8192 4097 aa\n",
            "firstlight-slot 1\nbase 4096 18446744073709551615 aa\n",
        ] {
            assert!(parse_table(table.as_bytes(), 12288).is_err(), "{table:?}");
        }
    }

    proptest! {
        #[test]
        fn any_table_is_refused_or_lies_in_its_partition(
            lines in "(firstlight-slot 1\n)?([a-z]{0,3} [0-9]{0,20} [0-9]{1,20} [0-9a-f]{0,4}\n){0,4}.{0,10}",
            noise in proptest::collection::vec(any::<u8>(), 0..40),
            room: u64,
        ) {
            for table in [lines.as_bytes(), &noise] {
                for layer in parse_table(table, room).unwrap_or_default() {
                    prop_assert!(layer.offset >= TABLE && layer.length <= room - layer.offset);
                }
            }
        }

        #[test]
        fn a_table_is_read_as_it_was_written(lengths in proptest::collection::vec(0..u64::from(u32::MAX), 0..20)) {
            let layers: Vec<_> = lengths.iter().map(|length| (format!("l{length}"), *length, "aa".to_owned())).collect();
            let slot = plan_slot(&layers);
            let table = format_table(&slot).unwrap();
            prop_assert_eq!(parse_table(&table, slot_bytes(&slot)).unwrap(), slot);
        }
    }
}
