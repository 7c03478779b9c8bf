//! The lease file: one header line, then one [`LeaseChange`] a line with a checksum in front, each written once; empty lines are
//! room for more. Whatever a power cut leaves of the last lines, the lines before them hold.
//!
//! The edge at start: [`decode_log`] the whole file (empty if there is none), write [`compact`] to a new file, `fsync` it and
//! rename it over the old one; again now and then. For each decision: [`encode_records`] behind the last line, and `fdatasync`
//! before the reply leaves.

use crate::{LeaseChange, LeaseTable, Now};

const HEADER: &str = "firstlight-leases 1\n";

/// The file is not a lease log, or one of another version: nothing of it may be overwritten.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the lease file begins with {found:?} instead of {wanted:?}: move it away to start with no leases, or use the version of Firstlight that wrote it"
)]
pub struct LeaseLogError {
    found: String,
    wanted: &'static str,
}

/// What a lease file says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DecodedLog {
    /// The sum of all changes that could be read.
    pub table: LeaseTable,
    /// How many bytes are whole lines: less than the file's length after a power cut.
    pub valid_bytes: usize,
    /// How many changes were read: compact when this is far more than the table has leases.
    pub records: usize,
    /// Lines (from 1) whose checksum is wrong although more lines follow. They are skipped; the disk is not to be trusted. A line
    /// beside an empty one is none: of the last lines a power cut may leave any sector and not the one before it.
    pub damaged: Vec<usize>,
}

/// The lines to append for these changes, to a file that [`compact`] began.
pub fn encode_records(changes: &[LeaseChange]) -> Vec<u8> {
    let encode = |change: &LeaseChange| {
        let json =
            serde_json::to_string(change).expect("a lease change has only strings and numbers");
        format!("{:08x} {json}\n", crc32fast::hash(json.as_bytes()))
    };
    changes.iter().map(encode).collect::<String>().into_bytes()
}

/// A whole file with as few lines as `table` needs.
pub fn compact(table: &LeaseTable, now: Now) -> Vec<u8> {
    let mut out = HEADER.as_bytes().to_vec();
    let changes: Vec<_> = table.as_changes(now).collect();
    out.extend(encode_records(&changes));
    out
}

/// Reads a lease file, or the part of it that a power cut left.
pub fn decode_log(file: &[u8]) -> Result<DecodedLog, LeaseLogError> {
    let mut decoded = DecodedLog::default();
    if HEADER.as_bytes().starts_with(file) && file.len() < HEADER.len() {
        return Ok(decoded);
    }
    let Some(body) = file.strip_prefix(HEADER.as_bytes()) else {
        let first_line = file.split(|b| *b == b'\n').next().unwrap_or_default();
        let shown = &first_line[..first_line.len().min(40)];
        return Err(LeaseLogError {
            found: String::from_utf8_lossy(shown).into_owned(),
            wanted: HEADER.trim_end(),
        });
    };
    decoded.valid_bytes = HEADER.len();
    // Damaged lines count as such only once a good line follows; at the end of the file they are what a power cut left.
    let mut doubtful = Vec::new();
    let mut is_after_room = false;
    let mut position = HEADER.len();
    for (index, line) in body.split_inclusive(|b| *b == b'\n').enumerate() {
        position += line.len();
        if line == b"\n" {
            doubtful.pop();
            is_after_room = true;
            continue;
        }
        match decode_line(line) {
            Some(change) => {
                decoded.table.apply(&change);
                decoded.records += 1;
                decoded.valid_bytes = position;
                decoded.damaged.append(&mut doubtful);
            }
            None if is_after_room => {}
            None => doubtful.push(index + 2),
        }
        is_after_room = false;
    }
    Ok(decoded)
}

fn decode_line(line: &[u8]) -> Option<LeaseChange> {
    let line = std::str::from_utf8(line.strip_suffix(b"\n")?).ok()?;
    let (checksum, json) = line.split_once(' ')?;
    if checksum != format!("{:08x}", crc32fast::hash(json.as_bytes())) {
        return None;
    }
    serde_json::from_str(json).ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
