//! Kernel arguments of a rule, put into the installed system: into what its boot loader reads now, and into what its own tools make that
//! from when a kernel is installed.

use std::io;

use super::bls;
use super::grub::{CONFIGS, LONGEST_CONFIG, STARTS};
use super::system::{EntryError, Location, System};

/// Read by `update-grub` after everything else in the folder.
const GRUB_FOLDER: &str = "/etc/default/grub.d";
const GRUB_FILE: &str = "/etc/default/grub.d/zz-firstlight.cfg";
/// Where there is no such folder.
const GRUB_DEFAULT: &str = "/etc/default/grub";
/// Read by `kernel-install`.
const CMDLINE: &str = "/etc/kernel/cmdline";
const LONGEST: u64 = 256 << 10;

/// Writes `arguments`, words without quotes, into `system`, which can be written to. Doing it twice is as good as once.
///
/// # Errors
/// No boot loader's configuration was found, or it cannot be written.
pub fn write(system: &System, arguments: &str) -> Result<(), EntryError> {
    let mut changed = false;
    for volume in 0..system.volumes.len() {
        for path in CONFIGS {
            let path = path.to_owned();
            let place = Location { volume, path };
            if system.has(&place) {
                changed |= change(system, &place, LONGEST_CONFIG, |text| {
                    in_script(text, arguments)
                })?;
            }
        }
        for place in bls::files(system, volume)? {
            changed |= change(system, &place, LONGEST, |text| {
                Some(in_entry(text, arguments))
            })?;
        }
    }
    if !changed {
        return Err(EntryError::unclear(
            "no configuration of a boot loader was found in which they could be written",
        ));
    }
    (0..system.volumes.len()).try_for_each(|volume| for_later(system, volume, arguments))
}

/// What the system's own tools read.
fn for_later(system: &System, volume: usize, arguments: &str) -> Result<(), EntryError> {
    let place = |path: &str| Location {
        volume,
        path: path.to_owned(),
    };
    let line = format!("GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX {arguments}\"\n");
    if system.has(&place(GRUB_FOLDER)) {
        let tree = system.tree(volume).ok_or(io::ErrorKind::NotFound);
        let written = tree
            .map_err(io::Error::from)
            .and_then(|tree| tree.write(GRUB_FILE, &line));
        written.map_err(|source| failed(GRUB_FILE, &source))?;
    } else if system.has(&place(GRUB_DEFAULT)) {
        change(system, &place(GRUB_DEFAULT), LONGEST, |text| {
            let has = text.lines().any(|one| one == line.trim_end());
            let gap = if text.ends_with('\n') { "" } else { "\n" };
            Some(if has {
                text.to_owned()
            } else {
                format!("{text}{gap}{line}")
            })
        })?;
    }
    if system.has(&place(CMDLINE)) {
        change(system, &place(CMDLINE), LONGEST, |text| {
            Some(format!("{}\n", appended(text.trim_end(), arguments)))
        })?;
    }
    Ok(())
}

/// True if there is a place for them, and they stand there now.
fn change(
    system: &System,
    place: &Location,
    most: u64,
    new: impl FnOnce(&str) -> Option<String>,
) -> Result<bool, EntryError> {
    let old = system.text(place, most)?;
    let Some(new) = new(&old) else {
        return Ok(false);
    };
    if new != old {
        let tree = system.tree(place.volume).ok_or(io::ErrorKind::NotFound);
        let written = tree
            .map_err(io::Error::from)
            .and_then(|tree| tree.rewrite(&place.path, &new));
        written.map_err(|source| failed(&place.path, &source))?;
    }
    Ok(true)
}

fn failed(path: &str, source: &io::Error) -> EntryError {
    EntryError::Unclear(format!(
        "{path} of the installed system cannot be written: {source}"
    ))
}

/// At the end of each line that starts Linux; `None`: there is none.
fn in_script(text: &str, arguments: &str) -> Option<String> {
    let mut found = false;
    let mut new = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let first = line.split_whitespace().next().unwrap_or_default();
        let body = line.trim_end();
        if STARTS.contains(&first) && !body.ends_with('\\') {
            found = true;
            new.push_str(&appended(body, arguments));
            new.push_str(&line[body.len()..]);
        } else {
            new.push_str(line);
        }
    }
    found.then_some(new)
}

/// In the last line with options, or in one of their own.
fn in_entry(text: &str, arguments: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let is_options = |line: &&str| line.split_whitespace().next() == Some("options");
    let mut new: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
    match lines.iter().rposition(is_options) {
        Some(at) => new[at] = appended(lines[at].trim_end(), arguments),
        None => new.push(format!("options {arguments}")),
    }
    new.push(String::new());
    new.join("\n")
}

fn appended(line: &str, arguments: &str) -> String {
    let end = format!(" {arguments}");
    if line.ends_with(&end) {
        return line.to_owned();
    }
    format!("{line}{end}")
}

#[cfg(test)]
mod tests;
