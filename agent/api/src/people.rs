//! People who log in at a box, and programs that have a token: who they are, what they may do, and what is asked and answered at
//! `/api/v1/operators`, `/api/v1/tokens` and `/api/v1/audit` (docs/people.md).
//!
//! Must not: know how a password or a token is checked.

use std::{fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Bytes of a password.
pub const LONGEST_PASSWORD: usize = 256;
/// Characters of a password.
pub const SHORTEST_PASSWORD: usize = 12;
/// Days after which a token ends, if nobody says another number.
pub const TOKEN_DAYS: u32 = 90;
/// Days that a token may last.
pub const MOST_TOKEN_DAYS: u32 = 366;
/// Of one site, those of site.yaml included.
pub const MOST_OPERATORS: usize = 64;
const LONGEST_NAME: usize = 32;
/// What a site.yaml may cost the box for each login, in KiB and rounds.
const MOST_MEMORY: u32 = 64 * 1024;
const MOST_ROUNDS: u32 = 16;

/// What somebody may do. Each may do what those before may.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Reads.
    Viewer,
    /// Changes what servers and clusters do.
    Operator,
    /// Says who may do what.
    Admin,
}

impl Role {
    /// From the least on.
    pub const ALL: [Self; 3] = [Self::Viewer, Self::Operator, Self::Admin];

    /// As it is written.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }

    /// By which the box's Kubernetes knows it.
    pub const fn group(self) -> &'static str {
        match self {
            Self::Viewer => "firstlight:viewer",
            Self::Operator => "firstlight:operator",
            Self::Admin => "firstlight:admin",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A sentence with what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unfit(String);

impl FromStr for Role {
    type Err = Unfit;

    fn from_str(text: &str) -> Result<Self, Unfit> {
        let role = Self::ALL.into_iter().find(|role| role.as_str() == text);
        role.ok_or_else(|| {
            Unfit(format!(
                "`{text}` is no role; use viewer (reads), operator (changes what servers and clusters do) or admin (says who may do what)"
            ))
        })
    }
}

/// Of a person or of a token.
#[derive(
    Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(try_from = "String", into = "String")]
pub struct PersonName(String);

impl PersonName {
    /// Small letters, digits, `-`, `.` and `_`.
    pub fn parse(text: &str) -> Result<Self, Unfit> {
        let first = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let letter = |byte: u8| first(byte) || b"-._".contains(&byte);
        let fits = text.len() <= LONGEST_NAME
            && text.bytes().next().is_some_and(first)
            && text.bytes().all(letter);
        if fits {
            return Ok(Self(text.to_owned()));
        }
        Err(Unfit(format!(
            "{:?} is no name of a person; use 1 to {LONGEST_NAME} small letters, digits, `-`, `.` and `_`, the first a letter or a digit",
            crate::bounded::text(text)
        )))
    }

    /// As it is written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PersonName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for PersonName {
    type Error = Unfit;

    fn try_from(text: String) -> Result<Self, Unfit> {
        Self::parse(&text)
    }
}

impl From<PersonName> for String {
    fn from(name: PersonName) -> Self {
        name.0
    }
}

/// What is kept of a password: argon2id in the PHC string format, `$argon2id$v=19$m=…,t=…,p=…$SALT$HASH`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub struct PasswordHash(String);

impl PasswordHash {
    /// A hash that costs the box no more than it can bear.
    pub fn parse(text: &str) -> Result<Self, Unfit> {
        let unfit = |why: &str| {
            Unfit(format!(
                "this is no hash of a password: {why}; make one with `firstlight operators hash`"
            ))
        };
        let mut parts = text.split('$').skip(1);
        let [kind, version, cost, salt, hash] =
            std::array::from_fn(|_| parts.next().unwrap_or_default());
        if !text.starts_with("$argon2id$") || kind != "argon2id" || parts.next().is_some() {
            return Err(unfit("it does not begin with $argon2id$"));
        }
        if version != "v=19" {
            return Err(unfit("its version is not 19"));
        }
        let mut costs = cost.split(',');
        let [memory, rounds, lanes] = ["m=", "t=", "p="].map(|name| {
            let number = costs.next()?.strip_prefix(name)?;
            number.parse::<u32>().ok()
        });
        let bearable = memory.is_some_and(|memory| (8..=MOST_MEMORY).contains(&memory))
            && rounds.is_some_and(|rounds| (1..=MOST_ROUNDS).contains(&rounds))
            && lanes == Some(1)
            && costs.next().is_none();
        if !bearable {
            return Err(unfit(
                "its cost is not m=8 to 65536 (KiB), t=1 to 16 and p=1",
            ));
        }
        let is_base64 = |text: &str, least: usize| {
            let letter = |byte: u8| byte.is_ascii_alphanumeric() || b"+/".contains(&byte);
            (least..=128).contains(&text.len()) && text.bytes().all(letter)
        };
        if !is_base64(salt, 11) || !is_base64(hash, 22) {
            return Err(unfit("its salt or its end is missing or too short"));
        }
        Ok(Self(text.to_owned()))
    }

    /// As it is kept.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// No log has it.
impl fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PasswordHash")
    }
}

impl TryFrom<String> for PasswordHash {
    type Error = Unfit;

    fn try_from(text: String) -> Result<Self, Unfit> {
        Self::parse(&text)
    }
}

impl From<PasswordHash> for String {
    fn from(hash: PasswordHash) -> Self {
        hash.0
    }
}

/// A person of site.yaml.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteOperator {
    /// By which others know them.
    pub name: PersonName,
    /// What they may do.
    pub role: Role,
    /// Its hash.
    pub password: PasswordHash,
}

/// Whether a person can be let in by this password at all.
pub fn check_password(name: &PersonName, password: &str) -> Result<(), Unfit> {
    let length = password.chars().count();
    if length < SHORTEST_PASSWORD {
        return Err(Unfit(format!(
            "a password has {SHORTEST_PASSWORD} characters at least; four words that have nothing to do with each other are easy to keep"
        )));
    }
    if password.len() > LONGEST_PASSWORD {
        return Err(Unfit(format!(
            "a password has {LONGEST_PASSWORD} bytes at most"
        )));
    }
    let mut letters: Vec<char> = password.chars().collect();
    letters.sort_unstable();
    letters.dedup();
    if letters.len() < 5 || password.to_ascii_lowercase().contains(name.as_str()) && length < 16 {
        return Err(Unfit(
            "this password is guessed at once: it repeats a few letters, or is little more than the name".to_owned(),
        ));
    }
    Ok(())
}

/// A person, as others see them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Operator {
    /// By which others know them.
    pub name: PersonName,
    /// What they may do.
    pub role: Role,
    /// From site.yaml: changed there, not here.
    pub of_site: bool,
}

/// `POST /api/v1/operators`, and `POST /api/v1/first` with the code of the console.
#[derive(Clone, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NewOperator {
    /// By which others know them.
    pub name: PersonName,
    /// What they may do.
    pub role: Role,
    /// In clear, over TLS or on the box.
    pub password: String,
}

/// `POST /api/v1/tokens`.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NewToken {
    /// By which others know them.
    pub name: PersonName,
    /// What they may do.
    pub role: Role,
    /// From now on.
    pub days: u32,
}

/// A token, as others see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Token {
    /// By which others know them.
    pub name: PersonName,
    /// What they may do.
    pub role: Role,
    /// Who made it.
    pub by: String,
    /// RFC 3339.
    pub ends: String,
}

/// The answer to who made it, and the only time that it is said.
#[derive(Clone, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MadeToken {
    /// For `Authorization: Bearer`.
    pub token: String,
    /// RFC 3339.
    pub ends: String,
}

/// `GET /api/v1/me`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Me {
    /// As the audit log has it.
    pub name: String,
    /// What they may do.
    pub role: Role,
}

/// A line of the audit log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuditLine {
    /// RFC 3339, by the box's clock.
    pub time: String,
    /// The person, `token NAME`, `box` (who is logged in there) or `nobody`.
    pub who: String,
    /// The address.
    pub from: String,
    /// What was asked, e.g. `host retry`.
    pub what: String,
    /// Of whom or of what; may be empty.
    #[serde(default)]
    pub target: String,
    /// `done`, or why not.
    pub outcome: String,
}

/// `/api/v1/certificate`: of the page, by somebody else's authority.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CertificateView {
    /// For which it is.
    pub names: Vec<String>,
    /// Seconds since 1970.
    pub end: i64,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    const HASH: &str = "$argon2id$v=19$m=19456,t=2,p=1$c29tZXNhbHQxMjM$Sd8fM3Hr6aFy1x0Qq3eTfQm5o8mUQ7c1yXK5b3d0aXc";

    #[test]
    fn a_hash_is_argon2id_and_costs_no_more_than_the_box_can_bear() {
        assert_eq!(PasswordHash::parse(HASH).unwrap().as_str(), HASH);
        for (change, to) in [
            ("argon2id", "argon2i"),
            ("v=19", "v=16"),
            ("m=19456", "m=4194304"),
            ("m=19456", "m=1"),
            ("t=2", "t=0"),
            ("t=2", "t=4000000"),
            ("p=1", "p=8"),
            ("p=1", "p=1,keyid=a"),
            ("$c29tZXNhbHQxMjM", ""),
            ("c29tZXNhbHQxMjM", "c29"),
            ("0aXc", "0aXc$"),
        ] {
            let changed = HASH.replacen(change, to, 1);
            let refused = PasswordHash::parse(&changed).unwrap_err().to_string();
            assert!(
                refused.contains("firstlight operators hash"),
                "{changed}: {refused}"
            );
        }
        assert!(!format!("{:?}", PasswordHash::parse(HASH).unwrap()).contains('$'));
    }

    #[test]
    fn a_password_that_is_guessed_at_once_is_none() {
        let name = PersonName::parse("ada").unwrap();
        for bad in [
            "",
            "short",
            "aaaaaaaaaaaaaaa",
            "ababababababab",
            "ada-is-here!",
            &"x1y2z".repeat(60),
        ] {
            assert!(check_password(&name, bad).is_err(), "{bad}");
        }
        for good in ["four plain words here", "kühler Regen im Mai"] {
            check_password(&name, good).unwrap();
        }
    }

    #[test]
    fn each_role_may_what_those_before_may() {
        assert!(Role::Viewer < Role::Operator && Role::Operator < Role::Admin);
        for role in Role::ALL {
            assert_eq!(role.as_str().parse(), Ok(role));
        }
        assert!("root".parse::<Role>().is_err());
    }

    proptest! {
        #[test]
        fn whatever_is_called_a_hash_or_a_person_is_one_or_refused(text in ".{0,80}|\\$argon2id\\$v=19\\$m=[0-9]{1,9},t=[0-9]{1,9},p=[0-9]{1,3}\\$[a-z/]{0,30}\\$[a-z/]{0,50}") {
            if let Ok(hash) = PasswordHash::parse(&text) {
                prop_assert_eq!(hash.as_str(), &text);
            }
            if let Ok(name) = PersonName::parse(&text) {
                prop_assert!(name.as_str().bytes().all(|byte| byte.is_ascii_graphic()));
            }
        }
    }
}
