//! Percent-encoding in paths and queries (RFC 3986, section 2.1).

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

/// `%2F` and the like; what is no escape stays.
pub fn unescape(text: &str) -> Cow<'_, str> {
    percent_decode_str(text).decode_utf8_lossy()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_undone_and_others_stay() {
        for (text, plain) in [
            ("a%2Fb", "a/b"),
            ("a%2", "a%2"),
            ("%", "%"),
            ("%zz", "%zz"),
            ("a+b", "a+b"),
        ] {
            assert_eq!(unescape(text), plain);
        }
    }
}
