//! Entries of the Boot Loader Specification (type 1), one file each, as `systemd-boot` and Fedora's GRUB read them.

use std::cmp::Ordering;

use firstlight_api::wildcard;

use super::system::{self, EntryError, Location, System};

/// Of one entry, and of the loader's own file.
const LONGEST: u64 = 64 << 10;
const FOLDERS: [&str; 2] = ["/loader/entries", "/boot/loader/entries"];

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    pub title: String,
    pub version: String,
    pub kernel: String,
    /// Each may be several paths.
    pub initrds: Vec<String>,
    pub options: String,
    /// It starts something that is no Linux kernel.
    pub is_other: bool,
}

/// One file.
pub fn parse(text: &str) -> Entry {
    let mut entry = Entry::default();
    for line in text.lines().map(str::trim) {
        let Some((key, value)) = line.split_once(char::is_whitespace) else {
            continue;
        };
        let value = value.trim();
        match key {
            "title" => value.clone_into(&mut entry.title),
            "version" => value.clone_into(&mut entry.version),
            "linux" => value.clone_into(&mut entry.kernel),
            "initrd" => entry.initrds.push(value.to_owned()),
            "options" => {
                if !entry.options.is_empty() {
                    entry.options.push(' ');
                }
                entry.options.push_str(value);
            }
            "efi" | "uki" | "uki-url" => entry.is_other = true,
            _ => {}
        }
    }
    entry
}

/// Files with entries on a volume, each as a place.
pub fn files(system: &System, volume: usize) -> Result<Vec<Location>, EntryError> {
    let Some(tree) = system.tree(volume) else {
        return Ok(Vec::new());
    };
    for folder in FOLDERS {
        let names = tree.names(folder, ".conf");
        let names = names.map_err(|source| EntryError::Read {
            path: folder.to_owned(),
            source,
        })?;
        if !names.is_empty() {
            let place = |name: String| Location {
                volume,
                path: format!("{folder}/{name}"),
            };
            return Ok(names.into_iter().map(place).collect());
        }
    }
    Ok(Vec::new())
}

/// Ids (file names without `.conf`) and entries of a volume, newest first.
pub fn load(system: &System, volume: usize) -> Result<Vec<(String, Entry)>, EntryError> {
    let mut entries = Vec::new();
    for place in files(system, volume)? {
        let entry = parse(&system.text(&place, LONGEST)?);
        let name = place.path.rsplit('/').next().unwrap_or_default();
        let id = name.strip_suffix(".conf").unwrap_or(name).to_owned();
        entries.push((id, entry));
    }
    entries.sort_by(|(a, _), (b, _)| by_version(b, a));
    Ok(entries)
}

/// What `systemd-boot` starts, whose entries are on `volume`: `default` of `loader.conf`, else the newest.
pub fn choose(system: &System, volume: usize) -> Result<system::Entry, EntryError> {
    let config = Location {
        volume,
        path: "/loader/loader.conf".to_owned(),
    };
    let config = if system.has(&config) {
        system.text(&config, LONGEST)?
    } else {
        String::new()
    };
    let default = config.lines().rev().find_map(|line| {
        let (key, value) = line.trim().split_once(char::is_whitespace)?;
        (key == "default").then(|| value.trim().trim_end_matches(".conf").to_owned())
    });
    let entries = load(system, volume)?;
    let wanted = |id: &str| {
        default
            .as_ref()
            .is_some_and(|pattern| wildcard::fits(pattern, id))
    };
    let chosen = entries.iter().find(|(id, _)| wanted(id));
    let Some((id, entry)) = chosen.or_else(|| entries.first()) else {
        return Err(EntryError::unclear("there are no boot entries"));
    };
    if default.as_deref().is_some_and(|name| name.starts_with('@')) || entry.is_other {
        let why = format!("the boot entry {id} is not a Linux kernel with a command line");
        return Err(EntryError::Unclear(why));
    }
    let place = |path: &str| Location {
        volume,
        path: path.to_owned(),
    };
    let initrds = entry.initrds.iter().map(|path| place(path)).collect();
    Ok(system::Entry {
        kernel: Some(place(&entry.kernel)),
        initrds,
        options: entry.options.clone(),
    })
}

/// Runs of digits count as numbers.
fn by_version(a: &str, b: &str) -> Ordering {
    let (mut left, mut right) = (runs(a).into_iter(), runs(b).into_iter());
    loop {
        let ordering = match (left.next(), right.next()) {
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => Ordering::Less,
            (Some(_), None) => Ordering::Greater,
            (Some(a), Some(b)) => match (number(a), number(b)) {
                (Some(a), Some(b)) => a.cmp(&b),
                (Some(_), None) => Ordering::Greater,
                (None, Some(_)) => Ordering::Less,
                (None, None) => a.cmp(b),
            },
        };
        if ordering != Ordering::Equal {
            return ordering;
        }
    }
}

fn number(run: &str) -> Option<u128> {
    run.parse().ok()
}

/// Runs of digits and of letters; what is neither divides them.
fn runs(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for part in text.split(|c: char| !c.is_ascii_alphanumeric()) {
        let mut begin = 0;
        for (at, pair) in part.as_bytes().windows(2).enumerate() {
            if pair[0].is_ascii_digit() != pair[1].is_ascii_digit() {
                found.push(&part[begin..=at]);
                begin = at + 1;
            }
        }
        if begin < part.len() {
            found.push(&part[begin..]);
        }
    }
    found
}

#[cfg(test)]
mod tests;
