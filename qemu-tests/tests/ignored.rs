//! No test passes by being skipped: one that cargo leaves out names the script that runs it, and that script is run by `scripts/test`
//! and names the test's binary. What needs more than a machine has is listed here.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Reasons that name no script, and why there is none.
const BY_HAND: [(&str, &str); 1] = [(
    "needs FIRSTLIGHT_IRONIC_URL: a live Ironic on this machine",
    "the stories in virtual machines play against the Ironic of a box",
)];
/// Figures are no tests: they print, and never fail.
const FIGURES: &str = "scripts/bench";

/// A test that cargo leaves out.
#[derive(Debug)]
struct Ignored {
    file: PathBuf,
    reason: String,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

fn sources(below: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(below).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
            sources(&path, into);
        } else if path.extension().is_some_and(|end| end == "rs") {
            into.push(path);
        }
    }
}

fn ignored() -> Vec<Ignored> {
    let mut files = Vec::new();
    for top in ["agent", "imagebuilder", "qemu-tests"] {
        sources(&root().join(top), &mut files);
    }
    let mut found = Vec::new();
    for file in files {
        for line in fs::read_to_string(&file).unwrap().lines() {
            let Some(rest) = line.trim().strip_prefix("#[ignore") else {
                continue;
            };
            let reason = rest.trim_matches(|c: char| " =\"]".contains(c)).to_owned();
            let file = file.clone();
            found.push(Ignored { file, reason });
        }
    }
    found
}

/// As `cargo test` is told: `--lib`, or `--test NAME`.
fn binary(file: &Path) -> String {
    let parts: Vec<_> = file.iter().map(|part| part.to_str().unwrap()).collect();
    let below = parts.iter().position(|part| *part == "tests");
    let in_library = parts.contains(&"src");
    match below.and_then(|at| parts.get(at + 1)) {
        Some(name) if !in_library => format!("--test {}", name.trim_end_matches(".rs")),
        _ => "--lib".to_owned(),
    }
}

fn complaint(test: &Ignored, all_tests: &str) -> Option<String> {
    let Ignored { file, reason } = test;
    let script = reason
        .split([' ', ','])
        .find(|word| word.starts_with("scripts/"));
    let Some(script) = script else {
        let known = BY_HAND.iter().any(|(known, _)| known == reason);
        return (!known).then(|| format!("{}: nobody runs it: {reason}", file.display()));
    };
    if script == FIGURES {
        return None;
    }
    let content = fs::read_to_string(root().join(script)).unwrap_or_default();
    let binary = binary(file);
    let runs =
        content.contains(&binary) && content.contains("ignored") && all_tests.contains(script);
    (!runs).then(|| format!("{}: {script} does not run {binary}", file.display()))
}

#[test]
fn every_test_that_cargo_leaves_out_is_run_by_a_script() {
    let all_tests = fs::read_to_string(root().join("scripts/test")).unwrap();
    let tests = ignored();
    assert!(tests.len() > 30, "{} are left out", tests.len());
    let complaints: Vec<_> = tests
        .iter()
        .filter_map(|test| complaint(test, &all_tests))
        .collect();
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
    let reasons: BTreeSet<&str> = tests.iter().map(|test| test.reason.as_str()).collect();
    for (reason, why) in BY_HAND {
        assert!(reasons.contains(reason), "nothing is so: {reason} ({why})");
    }
}

#[test]
fn a_test_that_nobody_runs_is_found() {
    let all_tests = "scripts/test-store";
    let told = |file: &str, reason: &str| {
        let test = Ignored {
            file: file.into(),
            reason: reason.to_owned(),
        };
        complaint(&test, all_tests)
    };
    let store = "needs FIRSTLIGHT_REGISTRY: scripts/test-store";
    assert_eq!(told("agent/tests/store.rs", store), None);
    for (file, reason) in [
        ("agent/tests/store.rs", ""),
        ("agent/tests/store.rs", "slow"),
        ("agent/tests/store.rs", "scripts/test-nothing"),
        ("agent/tests/store.rs", "scripts/test-nodes"),
        ("agent/tests/faults/main.rs", store),
        ("agent/src/store/tests.rs", store),
    ] {
        assert!(told(file, reason).is_some(), "{file}: {reason}");
    }
}
