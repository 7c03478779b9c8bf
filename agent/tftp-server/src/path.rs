//! File names from the network.

use std::fmt;

/// The longest name that is looked at.
const MAX_LENGTH: usize = 255;

/// Why a name is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum PathError {
    #[error("the file name is empty")]
    Empty,
    #[error("the file name is longer than {MAX_LENGTH} bytes")]
    TooLong,
    #[error("the file name has characters other than printable ASCII")]
    Characters,
    #[error("the file name has a .. in it")]
    Parent,
}

/// A relative name: no empty, `.` or `..` parts, no slash at either end. Firmware, shim and GRUB write the same file as `f`,
/// `/f`, `//f` and `\f`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FilePath(String);

impl FilePath {
    /// Of the request's first string, without its NUL. At most 255 bytes of printable ASCII.
    pub fn parse(raw: &[u8]) -> Result<Self, PathError> {
        if raw.len() > MAX_LENGTH {
            return Err(PathError::TooLong);
        }
        if !raw.iter().all(|b| (b' '..=b'~').contains(b)) {
            return Err(PathError::Characters);
        }
        let parts: Vec<&str> = std::str::from_utf8(raw)
            .map_err(|_| PathError::Characters)?
            .split(['/', '\\'])
            .filter(|part| !part.is_empty() && *part != ".")
            .collect();
        if parts.contains(&"..") {
            return Err(PathError::Parent);
        }
        if parts.is_empty() {
            return Err(PathError::Empty);
        }
        Ok(Self(parts.join("/")))
    }

    /// Without a leading slash.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for FilePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::{FilePath, PathError};

    fn parse(raw: &str) -> Result<String, PathError> {
        FilePath::parse(raw.as_bytes()).map(|path| path.as_str().to_owned())
    }

    #[test]
    fn one_file_has_one_name_however_it_is_written() {
        for raw in [
            "sub/grubx64.efi",
            "/sub/grubx64.efi",
            "/sub//grubx64.efi",
            "\\sub\\grubx64.efi",
            "./sub/./grubx64.efi/",
        ] {
            assert_eq!(parse(raw).as_deref(), Ok("sub/grubx64.efi"), "{raw}");
        }
        assert_eq!(
            parse("grub/mac-52:54:00:aa:00:01.cfg").as_deref(),
            Ok("grub/mac-52:54:00:aa:00:01.cfg")
        );
    }

    #[test]
    fn nothing_leads_out_of_the_tree() {
        for raw in [
            "..",
            "../etc/shadow",
            "/a/../../etc/shadow",
            "a\\..\\b",
            "a/..",
        ] {
            assert_eq!(parse(raw), Err(PathError::Parent), "{raw}");
        }
        assert_eq!(parse("..a/b..").as_deref(), Ok("..a/b.."));
    }

    #[test]
    fn names_that_name_nothing_are_refused() {
        assert_eq!(parse(""), Err(PathError::Empty));
        assert_eq!(parse("/./"), Err(PathError::Empty));
        assert_eq!(parse("a\nb"), Err(PathError::Characters));
        assert_eq!(parse("ä"), Err(PathError::Characters));
        assert_eq!(parse(&"a".repeat(256)), Err(PathError::TooLong));
    }
}
