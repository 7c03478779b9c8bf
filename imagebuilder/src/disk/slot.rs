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

/// Reads a table.
pub fn parse_table(table: &[u8]) -> Result<Vec<SlotLayer>> {
    let text = table.split(|byte| *byte == 0).next().unwrap_or_default();
    let text = std::str::from_utf8(text).context("the slot table is not text")?;
    let mut lines = text.lines();
    if lines.next() != Some(MAGIC) {
        bail!("the slot does not begin with {MAGIC:?}");
    }
    lines.map(parse_line).collect()
}

fn parse_line(line: &str) -> Result<SlotLayer> {
    let fields: Vec<&str> = line.split(' ').collect();
    let [name, offset, length, sha256] = fields[..] else {
        bail!("slot table line {line:?} does not have four fields")
    };
    Ok(SlotLayer {
        name: name.to_owned(),
        offset: offset
            .parse()
            .with_context(|| format!("offset in slot table line {line:?}"))?,
        length: length
            .parse()
            .with_context(|| format!("length in slot table line {line:?}"))?,
        sha256: sha256.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
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
        assert_eq!(parse_table(&table).unwrap(), layers());
    }

    #[test]
    fn a_strange_table_is_refused() {
        for table in [
            "",
            "firstlight-slot 2\n",
            "firstlight-slot 1\nbase 1 2\n",
            "firstlight-slot 1\nbase x 2 aa\n",
        ] {
            assert!(parse_table(table.as_bytes()).is_err(), "{table:?}");
        }
    }
}
