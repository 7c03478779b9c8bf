//! The table at the beginning of a system slot: which squashfs images follow, top layer first.
//!
//! The first 4 KiB, padded with NUL: `firstlight-slot 1`, then `NAME OFFSET LENGTH SHA256` a line. The bytes come from a
//! disk, so nothing in them is believed: what is out of place makes the whole table invalid.

/// Length of the table on disk; the first layer begins after it at the earliest.
pub const TABLE_BYTES: usize = 4096;
const ALIGNMENT: u64 = 512;
const MAX_LAYERS: usize = 32;

/// One layer; `offset` and `length` are bytes from the start of the slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layer {
    pub name: String,
    pub offset: u64,
    pub length: u64,
    pub sha256: [u8; 32],
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum SlotError {
    #[error(
        "the slot has no table (`firstlight-slot 1`); write the stick again with `firstlight flash`"
    )]
    Magic,
    #[error(
        "line {line} of the slot's table: {reason}; write the stick again with `firstlight flash`"
    )]
    Line { line: usize, reason: &'static str },
    #[error("the slot's table names no layer; write the stick again with `firstlight flash`")]
    Empty,
}

/// Parses the table of a slot of `slot_bytes` bytes.
pub fn parse_slot_table(block: &[u8], slot_bytes: u64) -> Result<Vec<Layer>, SlotError> {
    let end = block
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(block.len());
    let text = std::str::from_utf8(&block[..end]).map_err(|_| SlotError::Magic)?;
    let mut lines = text.lines();
    if lines.next() != Some("firstlight-slot 1") {
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
    let [name, offset, length, sha256] = fields[..] else {
        return Err("expected NAME OFFSET LENGTH SHA256");
    };
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if name.is_empty() || name.len() > 32 || !name.bytes().all(plain) || name == "rw" {
        return Err("the name is not 1 to 32 of a-z, 0-9, `-`, or is `rw`");
    }
    let offset = number(offset).ok_or("the offset is not a number")?;
    let length = number(length).ok_or("the length is not a number")?;
    let end = offset
        .checked_add(length)
        .ok_or("offset and length are too big")?;
    if offset < TABLE_BYTES as u64
        || offset % ALIGNMENT != 0
        || length == 0
        || length % ALIGNMENT != 0
    {
        return Err("the layer is empty, inside the table, or not in steps of 512 bytes");
    }
    if end > slot_bytes {
        return Err("the layer reaches beyond the partition");
    }
    let sha256 = crate::cmdline::parse_sha256(sha256).ok_or("the digest is not 64 hex digits")?;
    if before.len() >= MAX_LAYERS {
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
        let mut block = format!("firstlight-slot 1\n{lines}").into_bytes();
        block.resize(block.len().max(TABLE_BYTES), 0);
        parse_slot_table(&block, SLOT)
    }

    fn digest() -> String {
        "ab".repeat(32)
    }

    #[test]
    fn a_table_gives_its_layers_top_first() {
        let layers = parse(&format!(
            "agent 4096 512 {0}\nbase 8192 4096 {0}\n",
            digest()
        ))
        .unwrap();
        let names: Vec<_> = layers.iter().map(|layer| layer.name.as_str()).collect();
        assert_eq!(names, ["agent", "base"]);
        assert_eq!(
            (layers[1].offset, layers[1].length, layers[1].sha256),
            (8192, 4096, [0xab; 32])
        );
    }

    #[test]
    fn whatever_is_out_of_place_is_refused() {
        let d = digest();
        for (lines, line) in [
            (format!("base 0 512 {d}"), 2),
            (format!("base 4097 512 {d}"), 2),
            (format!("base 4096 0 {d}"), 2),
            (format!("base 4096 100 {d}"), 2),
            (format!("base 4096 1048576 {d}"), 2),
            (format!("base 18446744073709551104 1024 {d}"), 2),
            (format!("base +4096 512 {d}"), 2),
            (format!("base 4096 512 {}", &d[1..]), 2),
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
        fn any_block_is_answered_and_what_is_accepted_lies_inside(
            lines in "([a-c] [0-9]{3,6} [0-9]{3,5} (ab){32}\n?){0,4}", junk in "\\PC{0,40}",
        ) {
            for text in [lines.clone(), format!("{lines}{junk}")] {
                for layer in parse(&text).unwrap_or_default() {
                    prop_assert!(layer.offset >= 4096 && layer.offset + layer.length <= SLOT);
                }
            }
        }
    }
}
