//! Holds `docs/dev/decoders.toml`: everything that reads bytes of somebody else has a property test.
#![allow(clippy::unwrap_used)]

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use serde::Deserialize;

/// What reads bytes, in the crates that are shipped. Whoever finds another way to read them adds it here.
const MARKS: [&str; 12] = [
    "serde_json::from_slice",
    "from_le_bytes",
    "from_be_bytes",
    "serde_json::from_str",
    "serde_json::from_reader",
    "serde_saphyr::from_",
    "Kubeconfig::from_yaml",
    "::deserialize(",
    "httparse::Re",
    "tar::Archive",
    "Decoder::",
    "FileSystem::new",
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    decoder: Vec<Decoder>,
    ours: Vec<Ours>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Decoder {
    /// Who says the bytes.
    from: String,
    file: String,
    functions: Vec<String>,
    tests: Vec<String>,
    #[serde(default)]
    fuzz: Vec<String>,
}

/// A file, or a folder, that reads what nobody else has written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Ours {
    file: String,
    why: String,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

fn table() -> Table {
    toml::from_str(&fs::read_to_string(root().join("docs/dev/decoders.toml")).unwrap()).unwrap()
}

fn text(file: &str) -> String {
    fs::read_to_string(root().join(file)).unwrap_or_default()
}

fn has_function(text: &str, name: &str) -> bool {
    [format!("fn {name}("), format!("fn {name}<")]
        .iter()
        .any(|head| text.contains(head))
}

/// The bodies of `proptest!`: each ends where a bracket stands below the beginning of its line.
fn properties(text: &str) -> String {
    let mut all = String::new();
    let mut end = None;
    for line in text.lines() {
        let indent = line.len() - line.trim_start().len();
        match &end {
            None if line.contains("proptest! {") => end = Some(format!("{}}}", " ".repeat(indent))),
            Some(last) if line == last => end = None,
            Some(_) => drop(writeln!(all, "{line}")),
            None => {}
        }
    }
    all
}

impl Decoder {
    fn complaints(&self) -> Vec<String> {
        let Self { from, file, .. } = self;
        let mut complaints = Vec::new();
        let source = text(file);
        let mut complain = |what: String| complaints.push(format!("{file} ({from}): {what}"));
        if self.tests.is_empty() {
            complain("it has no property test".to_owned());
        }
        let gone = self
            .functions
            .iter()
            .filter(|name| !has_function(&source, name));
        gone.for_each(|name| complain(format!("there is no function {name}")));
        for test in &self.tests {
            let (file, name) = test.split_once(": ").unwrap_or((file, test));
            if !has_function(&properties(&text(file)), name) {
                complain(format!("there is no property test {name} in {file}"));
            }
        }
        for target in &self.fuzz {
            if !text("agent/fuzz/src/lib.rs").contains(&format!("name: \"{target}\",")) {
                complain(format!("there is no fuzz target {target}"));
            }
        }
        complaints
    }
}

/// Hand-written Rust without tests.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && !["tests", "examples", "fake", "target"].contains(&&*name) {
            sources(&path, found);
        } else if Path::new(&*name)
            .extension()
            .is_some_and(|kind| kind == "rs")
            && !["tests.rs", "testing.rs"].contains(&&*name)
        {
            found.push(path);
        }
    }
}

/// Whether it reads bytes outside of its tests.
fn decodes(text: &str) -> bool {
    let code = text.split("\n#[cfg(test)]").next().unwrap_or_default();
    MARKS.iter().any(|mark| code.contains(mark))
}

#[test]
fn every_decoder_has_a_property_test_that_is_there() {
    let rows = table().decoder;
    let complaints: Vec<Vec<String>> = rows.iter().map(Decoder::complaints).collect();
    let lacking = complaints.iter().filter(|row| !row.is_empty()).count();
    // For `scripts/bench base`.
    eprintln!("\nfigure base-decoders {lacking}\n{} decoders", rows.len());
    assert_eq!(lacking, 0, "\n{}", complaints.concat().join("\n"));
}

#[test]
fn every_file_that_reads_bytes_is_in_the_table() {
    let table = table();
    let mut files = Vec::new();
    for folder in ["agent", "imagebuilder"] {
        sources(&root().join(folder), &mut files);
    }
    let relative = |path: &PathBuf| path.strip_prefix(root()).unwrap().display().to_string();
    let decoding: BTreeSet<String> = files
        .iter()
        .filter(|path| decodes(&fs::read_to_string(path).unwrap()))
        .map(relative)
        .collect();
    assert!(decoding.len() > 40, "{decoding:?}");
    let rows: BTreeSet<&str> = table.decoder.iter().map(|row| row.file.as_str()).collect();
    let is_ours = |file: &str| table.ours.iter().any(|ours| file.starts_with(&ours.file));
    let unknown = decoding
        .iter()
        .filter(|file| !rows.contains(file.as_str()) && !is_ours(file));
    let unknown: Vec<_> = unknown.collect();
    assert!(
        unknown.is_empty(),
        "they read bytes; say in docs/dev/decoders.toml whose, and which test shows that none break them: {unknown:#?}"
    );
    for ours in &table.ours {
        assert!(!ours.why.is_empty());
        let is_needed = decoding.iter().any(|file| file.starts_with(&ours.file));
        assert!(is_needed, "{} reads no bytes", ours.file);
    }
}

#[test]
fn what_is_gone_and_what_is_no_property_is_found() {
    let row = |functions: &[&str], tests: &[&str], fuzz: &[&str]| {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Decoder {
            from: "a test".to_owned(),
            file: "agent/artifacts/src/deb.rs".to_owned(),
            functions: owned(functions),
            tests: owned(tests),
            fuzz: owned(fuzz),
        }
    };
    let good = "no_input_breaks_it";
    assert!(row(&["parse"], &[good], &["disk"]).complaints().is_empty());
    for wrong in [
        row(&["parse"], &[], &[]),
        row(&["pars"], &[good], &[]),
        row(&[], &["no_input_breaks"], &[]),
        // An example is no property.
        row(&[], &["every_cut_is_an_error"], &[]),
        row(
            &[],
            &["agent/artifacts/src/chart.rs: no_input_breaks_it"],
            &[],
        ),
        row(&[], &["agent/nowhere.rs: no_input_breaks_it"], &[]),
        row(&[], &[good], &["disks"]),
    ] {
        assert_eq!(wrong.complaints().len(), 1);
    }
    assert!(decodes("let x: u8 = serde_json::from_slice(text)?;"));
    assert!(!decodes(
        "fn f() {}\n#[cfg(test)]\nmod tests { serde_json::from_slice(text) }"
    ));
}
