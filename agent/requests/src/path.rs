//! Paths of requests, and the names of files in them: percent-encoding (RFC 3986, section 2.1), and nothing that leads out of a directory.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

/// `%2F` and the like; what is no escape stays.
pub fn unescape(text: &str) -> Cow<'_, str> {
    percent_decode_str(text).decode_utf8_lossy()
}

/// shim asks for `/sub//grubx64.efi` after it was loaded from `/sub/`.
pub fn normalize(path: &str) -> String {
    let mut normal = String::with_capacity(path.len());
    for letter in path.chars() {
        if !(letter == '/' && normal.ends_with('/')) {
            normal.push(letter);
        }
    }
    normal
}

/// A file's name that cannot lead out of its directory.
pub fn is_plain(name: &str) -> bool {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    !name.is_empty() && !name.starts_with('.') && name.bytes().all(good)
}

/// The same with what the version of a package may have in it.
pub fn is_plain_version(name: &str) -> bool {
    is_plain(&name.replace(['~', '+'], "."))
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn no_path_leads_out_of_its_directory(path in "[/.%a-z0-9~+A-F\\x00é]{0,80}") {
            let normal = normalize(&path);
            proptest::prop_assert!(!normal.contains("//"));
            proptest::prop_assert_eq!(&normalize(&normal), &normal);
            let below = unescape(&path);
            if below.split('/').all(is_plain_version) {
                let joined = std::path::Path::new("/srv").join(&*below);
                proptest::prop_assert!(joined.starts_with("/srv"));
                let plain = |part: std::path::Component| !matches!(part, std::path::Component::ParentDir);
                proptest::prop_assert!(joined.components().all(plain));
            }
            if is_plain(&path) {
                proptest::prop_assert!(!path.contains('/') && path != "..");
            }
        }

        #[test]
        fn what_is_escaped_is_read_back(text: String) {
            let escaped = percent_encoding::utf8_percent_encode(&text, percent_encoding::NON_ALPHANUMERIC);
            let escaped = escaped.to_string();
            proptest::prop_assert_eq!(unescape(&escaped), text);
        }
    }

    #[test]
    fn double_slashes_collapse_and_names_stay_in_their_directory() {
        assert_eq!(normalize("//sub///grubx64.efi"), "/sub/grubx64.efi");
        for (name, good) in [
            ("node.raw.zst", true),
            ("", false),
            (".", false),
            ("..", false),
            ("../x", false),
            ("a/b", false),
            ("a%2fb", false),
            ("a\0", false),
        ] {
            assert_eq!(is_plain(name), good, "{name:?}");
        }
    }

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
