//! What goes wrong, where and when: a value, and its text for a command line.

use std::{fmt, str::FromStr, time::Duration};

use crate::random::Random;

/// One way in which the disk fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Paths from the root of the disk, `/agent/hosts/*.json`: `*` is anything but a slash, `**` anything.
    pub paths: String,
    pub operation: Operation,
    pub when: When,
    pub kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Read,
    /// Of bytes, and of a length.
    Write,
    /// Of a file, a directory, or everything.
    Sync,
    /// From or to the path.
    Rename,
    /// Of a file, a directory or a link.
    Create,
    Remove,
    /// Each of these but reading.
    Change,
}

/// Counted over the operations that the fault matches, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    Always,
    Nth(u64),
    From(u64),
    Every(u64),
    Chance { percent: u64, seed: u64 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Full,
    Broken,
    ReadOnly,
    Slow(Duration),
    /// A write brings no more than this many bytes to the disk and fails.
    Torn(u64),
    /// The power goes before the operation.
    Cut,
}

impl When {
    pub(crate) fn holds(self, count: u64) -> bool {
        match self {
            Self::Always => true,
            Self::Nth(nth) => count == nth,
            Self::From(first) => count >= first,
            Self::Every(every) => every != 0 && count.is_multiple_of(every),
            Self::Chance { percent, seed } => {
                Random::new(seed ^ count.rotate_left(32)).below(100) < percent
            }
        }
    }
}

impl Operation {
    pub(crate) fn covers(self, other: Self) -> bool {
        self == other || (self == Self::Change && other != Self::Read)
    }
}

impl Fault {
    pub fn new(paths: &str, operation: Operation, when: When, kind: Kind) -> Self {
        Self {
            paths: paths.to_owned(),
            operation,
            when,
            kind,
        }
    }

    pub(crate) fn names(&self, path: &str) -> bool {
        matches(self.paths.as_bytes(), path.as_bytes())
    }
}

fn matches(pattern: &[u8], text: &[u8]) -> bool {
    match pattern {
        [] => text.is_empty(),
        [b'*', b'*', rest @ ..] => (0..=text.len()).any(|at| matches(rest, &text[at..])),
        [b'*', rest @ ..] => {
            let end = text.iter().position(|byte| *byte == b'/');
            (0..=end.unwrap_or(text.len())).any(|at| matches(rest, &text[at..]))
        }
        [first, rest @ ..] => text.first() == Some(first) && matches(rest, &text[1..]),
    }
}

/// A word that is none of the known ones.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{word:?} is no {wanted}")]
pub struct Refused {
    word: String,
    wanted: &'static str,
}

fn refuse<T>(word: &str, wanted: &'static str) -> Result<T, Refused> {
    Err(Refused {
        word: word.to_owned(),
        wanted,
    })
}

/// `KIND[=NUMBER] OPERATION[@WHEN] PATHS`, as `eio read /pki/**` or `full write@nth=3 **`.
impl FromStr for Fault {
    type Err = Refused;

    fn from_str(text: &str) -> Result<Self, Refused> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let [kind, operation, paths] = words[..] else {
            return refuse(text, "fault: KIND[=NUMBER] OPERATION[@WHEN] PATHS");
        };
        let (operation, when) = operation.split_once('@').unwrap_or((operation, "always"));
        Ok(Self::new(
            paths,
            operation.parse()?,
            when.parse()?,
            kind.parse()?,
        ))
    }
}

impl FromStr for Operation {
    type Err = Refused;

    fn from_str(word: &str) -> Result<Self, Refused> {
        Ok(match word {
            "read" => Self::Read,
            "write" => Self::Write,
            "sync" => Self::Sync,
            "rename" => Self::Rename,
            "create" => Self::Create,
            "remove" => Self::Remove,
            "change" => Self::Change,
            _ => return refuse(word, "read, write, sync, rename, create, remove or change"),
        })
    }
}

impl FromStr for When {
    type Err = Refused;

    fn from_str(word: &str) -> Result<Self, Refused> {
        const WANTED: &str = "always, nth=N, from=N, every=N or chance=PERCENT/SEED";
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        let (first, second) = value.split_once('/').unwrap_or((value, ""));
        Ok(match (name, first.parse(), second.parse()) {
            ("always", Err(_), Err(_)) => Self::Always,
            ("nth", Ok(nth), Err(_)) => Self::Nth(nth),
            ("from", Ok(first), Err(_)) => Self::From(first),
            ("every", Ok(every), Err(_)) => Self::Every(every),
            ("chance", Ok(percent), Ok(seed)) => Self::Chance { percent, seed },
            _ => return refuse(word, WANTED),
        })
    }
}

impl FromStr for Kind {
    type Err = Refused;

    fn from_str(word: &str) -> Result<Self, Refused> {
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        Ok(match (name, value.parse()) {
            ("full", _) => Self::Full,
            ("eio", _) => Self::Broken,
            ("read-only", _) => Self::ReadOnly,
            ("cut", _) => Self::Cut,
            ("slow", Ok(milliseconds)) => Self::Slow(Duration::from_millis(milliseconds)),
            ("torn", Ok(bytes)) => Self::Torn(bytes),
            _ => {
                return refuse(
                    word,
                    "full, eio, read-only, cut, slow=MILLISECONDS or torn=BYTES",
                );
            }
        })
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Sync => "sync",
            Self::Rename => "rename",
            Self::Create => "create",
            Self::Remove => "remove",
            Self::Change => "change",
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_star_stays_in_its_folder_and_two_do_not() {
        for (pattern, path, wanted) in [
            ("/agent/*.json", "/agent/a.json", true),
            ("/agent/*.json", "/agent/hosts/a.json", false),
            ("/agent/**.json", "/agent/hosts/a.json", true),
            ("**", "/", true),
            ("**/ca.key", "/pki/ca.key", true),
            ("**/ca.key", "/pki/ca.key.new", false),
        ] {
            assert_eq!(
                matches(pattern.as_bytes(), path.as_bytes()),
                wanted,
                "{pattern} {path}"
            );
        }
    }

    #[test]
    fn a_fault_is_read_from_its_text_and_a_wrong_word_says_what_is_wanted() {
        let chance = When::Chance {
            percent: 5,
            seed: 9,
        };
        for (text, wanted) in [
            (
                "eio read /pki/**",
                Fault::new("/pki/**", Operation::Read, When::Always, Kind::Broken),
            ),
            (
                "torn=7 write@nth=3 **",
                Fault::new("**", Operation::Write, When::Nth(3), Kind::Torn(7)),
            ),
            (
                "full change@chance=5/9 *",
                Fault::new("*", Operation::Change, chance, Kind::Full),
            ),
        ] {
            assert_eq!(text.parse(), Ok(wanted));
        }
        for text in [
            "",
            "eio",
            "eio look **",
            "eio read@nth **",
            "slow read **",
            "eio read@always=3 *",
        ] {
            assert!(text.parse::<Fault>().is_err(), "{text}");
        }
        assert_eq!(
            "ei read *".parse::<Fault>().unwrap_err().to_string(),
            "\"ei\" is no full, eio, read-only, cut, slow=MILLISECONDS or torn=BYTES"
        );
    }
}
