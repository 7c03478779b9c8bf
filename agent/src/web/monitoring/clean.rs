//! Lines without what nobody who reads logs should have.

use std::sync::LazyLock;

use firstlight_api::secrets::{REMOVED, scrub};
use regex::{Captures, Regex};

/// Letters of base64 that are no checksum and no name.
const KEY: usize = 60;

/// A line of a key that is printed over many.
static LONG: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"[A-Za-z0-9+/]+={0,2}").expect("it is one"));

pub fn clean(line: &str) -> String {
    let line = scrub(line);
    let clean = LONG.replace_all(&line, |found: &Captures<'_>| {
        let is_hex = found[0].bytes().all(|byte| byte.is_ascii_hexdigit());
        let is_path = found[0].matches('/').count() > 3;
        if found[0].len() < KEY || is_hex || is_path {
            found[0].to_owned()
        } else {
            REMOVED.to_owned()
        }
    });
    clean.into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_keys_are_not_kept_and_checksums_and_paths_are() {
        let key = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj";
        assert_eq!(clean(key), REMOVED);
        for line in [
            "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
            "/usr/lib/python3/dist-packages/cloudinit/config/modules/somewhere/very/deep/in/here",
        ] {
            assert_eq!(clean(line), line);
        }
    }
}
