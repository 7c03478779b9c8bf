//! File names in directory entries: one of 8.3 characters for everybody, and the long one where they differ.

use std::collections::{BTreeMap, BTreeSet};

use crate::FatError;

/// UTF-16 units in one long-name entry, and where they are in it.
const PLACES: [usize; 13] = [1, 3, 5, 7, 9, 14, 16, 18, 20, 22, 24, 28, 30];
const LONG_NAME: u8 = 0x0f;
const LAST: u8 = 0x40;
const MOST_UNITS: usize = 255;

/// Short names of one folder.
type Taken = BTreeSet<[u8; 11]>;

/// What a name becomes in a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameEntries {
    pub short: [u8; 11],
    /// Entries that come before the short one; none when the short name is the name.
    pub long: Vec<u8>,
}

/// Chooses short names for all names of a folder, and writes the long ones.
pub fn of_folder<'a>(
    names: impl Iterator<Item = &'a String> + Clone,
) -> Result<BTreeMap<&'a str, NameEntries>, FatError> {
    let mut seen = BTreeSet::new();
    // What is a short name itself keeps it, whatever is made out of the others.
    let mut taken = Taken::new();
    for name in names.clone() {
        check(name)?;
        if !seen.insert(name.to_lowercase()) {
            return Err(FatError::Twice(name.clone()));
        }
        taken.extend(short_name(&name.to_ascii_uppercase()));
    }
    names
        .map(|name| Ok((name.as_str(), entries(name, &mut taken)?)))
        .collect()
}

fn check(name: &str) -> Result<(), FatError> {
    let forbidden = |letter: char| letter.is_control() || "\"*/:<>?\\|".contains(letter);
    let length = name.encode_utf16().count();
    // Windows and Linux take dots and spaces at the end away when they look for a name.
    if length == 0 || length > MOST_UNITS || name.ends_with(['.', ' ']) || name.contains(forbidden)
    {
        return Err(FatError::Name(name.to_owned()));
    }
    Ok(())
}

fn entries(name: &str, taken: &mut Taken) -> Result<NameEntries, FatError> {
    let upper = name.to_ascii_uppercase();
    if let Some(short) = short_name(&upper) {
        let long = if upper == name {
            Vec::new()
        } else {
            long_entries(name, &short)
        };
        return Ok(NameEntries { short, long });
    }
    let short = numbered(&upper, taken)?;
    taken.insert(short);
    let long = long_entries(name, &short);
    Ok(NameEntries { short, long })
}

/// Of a short name.
fn plain(letter: char) -> bool {
    letter.is_ascii_uppercase() || letter.is_ascii_digit() || "!#$%&'()-@^_`{}~".contains(letter)
}

/// The padded form of a name that has 8.3 characters.
fn short_name(name: &str) -> Option<[u8; 11]> {
    let (stem, extension) = name.split_once('.').unwrap_or((name, ""));
    let fits = !stem.is_empty() && stem.len() <= 8 && extension.len() <= 3;
    if !fits || !stem.chars().all(plain) || !extension.chars().all(plain) {
        return None;
    }
    let mut short = [b' '; 11];
    short[..stem.len()].copy_from_slice(stem.as_bytes());
    short[8..8 + extension.len()].copy_from_slice(extension.as_bytes());
    Some(short)
}

/// `LONGNA~1.EXT`, with the first number that is free.
fn numbered(upper: &str, taken: &Taken) -> Result<[u8; 11], FatError> {
    let (stem, extension) = upper.rsplit_once('.').unwrap_or((upper, ""));
    let shortened = |text: &str, most: usize| -> String {
        text.chars()
            .filter(|letter| !matches!(letter, '.' | ' '))
            .map(|letter| if plain(letter) { letter } else { '_' })
            .take(most)
            .collect()
    };
    let extension = shortened(extension, 3);
    let stem = shortened(stem, 6);
    (1..1_000_000_u32)
        .filter_map(|number| {
            let number = number.to_string();
            let stem = &stem[..stem.len().min(7 - number.len())];
            short_name(&format!("{stem}~{number}.{extension}"))
        })
        .find(|short| !taken.contains(short))
        .ok_or(FatError::Folder)
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
        let last = usize::from(number) == chunks.len();
        entry[0] = if last { number | LAST } else { number };
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

    fn short(names: &[&str]) -> Vec<(String, usize)> {
        let owned: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let made = of_folder(owned.iter()).unwrap();
        let text = |name: &&str| {
            let entries = &made[name];
            let short = String::from_utf8(entries.short.to_vec()).unwrap();
            (short, entries.long.len() / 32)
        };
        names.iter().map(text).collect()
    }

    #[test]
    fn short_names_are_unique_and_long_ones_only_where_needed() {
        for (names, expected) in [
            (&["BOOTX64.EFI"][..], &[("BOOTX64 EFI", 0)][..]),
            (&["grub.cfg"], &[("GRUB    CFG", 1)]),
            (
                &["site.yaml", "site.yaml.old", "site.yam~"],
                &[("SITE~1  YAM", 1), ("SITEYA~1OLD", 1), ("SITE~2  YAM", 1)],
            ),
            (&["a-name-of-26-letters-is-it"], &[("A-NAME~1   ", 2)]),
            // Whoever looks for the second by its name must not find the first.
            (
                &["long-name.txt", "long-n~1.txt"],
                &[("LONG-N~2TXT", 1), ("LONG-N~1TXT", 1)],
            ),
            (
                &["größe +.ä", ".old"],
                &[("GR__E_~1_  ", 1), ("~1      OLD", 1)],
            ),
        ] {
            let expected: Vec<_> = expected
                .iter()
                .map(|(short, long)| ((*short).to_owned(), *long))
                .collect();
            assert_eq!(short(names), expected);
        }
        let many: Vec<String> = (0..1200)
            .map(|number| format!("content-{number:04}.bin"))
            .collect();
        let made = of_folder(many.iter()).unwrap();
        let shorts: BTreeSet<_> = made.values().map(|entries| entries.short).collect();
        assert_eq!(shorts.len(), 1200);
        assert!(shorts.contains(b"CON~1200BIN"));
    }

    #[test]
    fn names_that_some_system_cannot_read_are_refused() {
        for name in [
            "",
            ".",
            "..",
            "a/b",
            "a:b",
            "end.",
            "end ",
            "line\nbreak",
            &"x".repeat(256),
        ] {
            let names = [name.to_owned()];
            assert_eq!(
                of_folder(names.iter()),
                Err(FatError::Name(name.to_owned()))
            );
        }
        let names = ["Größe".to_owned(), "grÖße".to_owned()];
        assert_eq!(
            of_folder(names.iter()),
            Err(FatError::Twice("grÖße".to_owned()))
        );
    }
}
