//! File names in directory entries: one of 8.3 characters for everybody, and the long one where they differ.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};

/// UTF-16 units in one long-name entry, and where they are in it.
const PLACES: [usize; 13] = [1, 3, 5, 7, 9, 14, 16, 18, 20, 22, 24, 28, 30];
const LONG_NAME: u8 = 0x0f;
const LAST: u8 = 0x40;

/// Short names of one directory.
pub type Taken = BTreeSet<[u8; 11]>;

/// What a name becomes in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameEntries {
    pub short: [u8; 11],
    /// Entries that come before the short one; none when the short name is the name.
    pub long: Vec<u8>,
}

/// Chooses the short name, which no other name of the directory may have, and writes the long one.
pub fn name_entries(name: &str, taken: &mut Taken) -> Result<NameEntries> {
    let valid = |letter: char| letter.is_ascii_alphanumeric() || "._-~".contains(letter);
    ensure!(
        !name.is_empty() && name.chars().all(valid),
        "{name:?} is not a name that every system can read"
    );
    let exact = short_name(&name.to_uppercase());
    let short = match exact {
        Some(short) if !taken.contains(&short) => short,
        _ => numbered(name, taken)?,
    };
    taken.insert(short);
    let long = if exact == Some(short) && name.to_uppercase() == name {
        Vec::new()
    } else {
        long_entries(name, &short)
    };
    Ok(NameEntries { short, long })
}

/// The padded form of a name that has 8.3 characters.
fn short_name(name: &str) -> Option<[u8; 11]> {
    let (stem, extension) = name.split_once('.').unwrap_or((name, ""));
    if stem.is_empty() || stem.len() > 8 || extension.len() > 3 || extension.contains('.') {
        return None;
    }
    let mut short = [b' '; 11];
    short[..stem.len()].copy_from_slice(stem.as_bytes());
    short[8..8 + extension.len()].copy_from_slice(extension.as_bytes());
    Some(short)
}

/// `LONGNA~1.EXT`, with the first number that is free.
fn numbered(name: &str, taken: &Taken) -> Result<[u8; 11]> {
    let upper = name.to_uppercase();
    let (stem, extension) = upper.rsplit_once('.').unwrap_or((&upper, ""));
    let stem: String = stem
        .chars()
        .filter(|letter| *letter != '.')
        .take(6)
        .collect();
    let extension: String = extension.chars().take(3).collect();
    let candidates =
        (1..10).filter_map(|number| short_name(&format!("{stem}~{number}.{extension}")));
    let free = candidates.into_iter().find(|short| !taken.contains(short));
    free.ok_or_else(|| anyhow::anyhow!("too many names like {name} in one directory"))
}

fn long_entries(name: &str, short: &[u8; 11]) -> Vec<u8> {
    let mut units: Vec<u16> = name.encode_utf16().collect();
    if !units.len().is_multiple_of(PLACES.len()) {
        units.push(0);
        units.resize(units.len().next_multiple_of(PLACES.len()), 0xffff);
    }
    let check = short
        .iter()
        .fold(0u8, |sum, byte| sum.rotate_right(1).wrapping_add(*byte));
    let chunks: Vec<&[u16]> = units.chunks(PLACES.len()).collect();
    let mut entries = Vec::new();
    for (number, chunk) in (1u8..).zip(&chunks).collect::<Vec<_>>().into_iter().rev() {
        let mut entry = [0; 32];
        entry[0] = if usize::from(number) == chunks.len() {
            number | LAST
        } else {
            number
        };
        entry[11] = LONG_NAME;
        entry[13] = check;
        for (place, unit) in PLACES.iter().zip(chunk.iter()) {
            entry[*place..place + 2].copy_from_slice(&unit.to_le_bytes());
        }
        entries.extend(entry);
    }
    entries
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn short_names_are_unique_and_long_ones_only_where_needed() {
        let mut taken = Taken::new();
        let mut short = |name: &str| {
            let entries = name_entries(name, &mut taken).unwrap();
            (
                String::from_utf8(entries.short.to_vec()).unwrap(),
                entries.long.len() / 32,
            )
        };
        assert_eq!(short("BOOTX64.EFI"), ("BOOTX64 EFI".to_owned(), 0));
        assert_eq!(short("grub.cfg"), ("GRUB    CFG".to_owned(), 1));
        assert_eq!(short("site.yaml"), ("SITE~1  YAM".to_owned(), 1));
        assert_eq!(short("site.yaml.old"), ("SITEYA~1OLD".to_owned(), 1));
        assert_eq!(short("site.yam~"), ("SITE~2  YAM".to_owned(), 1));
        assert_eq!(
            short("a-name-of-26-letters-is-it"),
            ("A-NAME~1   ".to_owned(), 2)
        );
        assert!(name_entries("a/b", &mut Taken::new()).is_err());
    }
}
