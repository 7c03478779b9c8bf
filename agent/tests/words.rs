//! Names of types that had several meanings, or that nobody would search for, do not come back: ARCHITECTURE.md has the words that we
//! use. To retire a name: a line in [`RETIRED`].
#![allow(clippy::unwrap_used)]

use std::{fs, path::Path};

/// A name, what to say instead, and below which paths it has its one meaning or still waits for another name.
const RETIRED: [(&str, &str, &[&str]); 13] = [
    ("Asked", "Request", &[]),
    ("Beaten", "HeartbeatReply", &[]),
    ("Desired", "what it is: ObjectTarget, DesiredState", &[]),
    ("Destiny", "SitePolicy", &[]),
    (
        "Door",
        "BoxClient, or whose door it is",
        &["agent/src/doors.rs"],
    ),
    ("Knock", "RestartOrder", &[]),
    (
        "Place",
        "Position, Location, BoxForm, Assignment; a place is room for one connection at a door",
        &["agent/src/doors.rs", "agent/ramdisk/src/ipa/places.rs"],
    ),
    ("Said", "CommandOutput, Report, Overrides, Outcome", &[]),
    ("Saying", "ConditionUpdate", &[]),
    (
        "Store",
        "Objects; the store is where uploads are",
        &["agent/src/store"],
    ),
    ("Trouble", "an error, named like what failed", &[]),
    ("Wanted", "what it is: Intent, a reply, a hint", &[]),
    ("Wish", "DesiredState, Presence", &[]),
];

/// The type that a line declares.
fn declared(line: &str) -> Option<&str> {
    let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
    let kinds = ["struct", "enum", "trait", "type", "union"];
    // Up to here there are `pub` and who may see it.
    let kind = words.by_ref().find(|word| {
        !matches!(
            *word,
            "" | "pub" | "crate" | "super" | "self" | "in" | "unsafe"
        )
    })?;
    kinds
        .contains(&kind)
        .then(|| words.find(|word| !word.is_empty()))?
}

/// `file` is its path in the repository.
fn complaints(file: &str, text: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let retired = RETIRED
            .iter()
            .find(|(name, ..)| declared(line) == Some(name));
        if let Some((name, instead, allowed)) = retired
            && !allowed.iter().any(|path| Path::new(file).starts_with(path))
        {
            complaints.push(format!("{file}:{number}: {name}; say {instead}"));
        }
    }
    complaints
}

fn walk(root: &Path, folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(root.join(folder)).unwrap() {
        let entry = entry.unwrap();
        let path = folder.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            walk(root, &path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            let text = fs::read_to_string(entry.path()).unwrap();
            found.extend(complaints(path.to_str().unwrap(), &text));
        }
    }
}

#[test]
fn no_retired_name_is_a_type_again() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut found = Vec::new();
    for folder in ["agent", "imagebuilder", "qemu-tests"] {
        walk(root, Path::new(folder), &mut found);
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn a_declaration_counts_and_other_words_do_not() {
    // This file is looked at, too.
    let text = "\
/// A KIND Said of old.
pub(crate) KIND Said<T> {
    said: Said,
}
KIND Saids {}
    KIND Beaten = u8;
"
    .replace("KIND", "type");
    let found = complaints("agent/src/web/new.rs", &text);
    assert_eq!(
        found,
        [
            "agent/src/web/new.rs:2: Said; say CommandOutput, Report, Overrides, Outcome",
            "agent/src/web/new.rs:6: Beaten; say HeartbeatReply",
        ]
    );
    let within = complaints("agent/src/store/mod.rs", "pub struct Store;");
    assert_eq!(within, [""; 0]);
}
