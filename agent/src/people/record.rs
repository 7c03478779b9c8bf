//! What is kept of people and tokens, in one file.

use firstlight_api::people::{PasswordHash, PersonName, Role};
use serde::{Deserialize, Serialize};

/// Besides people.
pub const MOST_TOKENS: usize = 256;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Record {
    pub operators: Vec<Kept>,
    pub tokens: Vec<KeptToken>,
}

/// A person.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Kept {
    pub name: PersonName,
    pub role: Role,
    pub password: PasswordHash,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KeptToken {
    pub name: PersonName,
    pub role: Role,
    pub by: String,
    /// Seconds since 1970.
    pub ends: i64,
    /// SHA-256 of what was shown once.
    pub digest: [u8; 32],
}

impl Record {
    pub fn person(&self, name: &PersonName) -> Option<&Kept> {
        self.operators.iter().find(|person| person.name == *name)
    }
}
