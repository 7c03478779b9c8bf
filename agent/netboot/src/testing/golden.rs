//! Golden files: `UPDATE_GOLDEN=1 cargo test` writes what is generated now, to be looked at in the diff.
#![allow(
    clippy::disallowed_methods,
    reason = "a test harness reads files; the crate does not"
)]

use std::path::Path;

#[track_caller]
pub fn expect_golden(name: &str, generated: &str) {
    let path = Path::new("golden").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, generated).expect("writing a golden file");
        return;
    }
    let wanted = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}; UPDATE_GOLDEN=1 writes it", path.display()));
    assert_eq!(
        generated, wanted,
        "{name} differs; if that is meant, UPDATE_GOLDEN=1 rewrites it"
    );
}
