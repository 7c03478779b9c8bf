//! The values that only `site.yaml` has: each is parsed once and cannot be wrong afterwards.

use std::{fmt, str::FromStr};

use base64::{Engine as _, engine::general_purpose::STANDARD};

use crate::net::ValueError;

fn refuse<T>(message: impl Into<String>) -> Result<T, ValueError> {
    Err(ValueError(message.into()))
}

/// One line of an `authorized_keys` file, without options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SshKey(String);

const SSH_KEY_TYPES: [&str; 7] = [
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "ssh-rsa",
    "sk-ssh-ed25519@openssh.com",
    "sk-ecdsa-sha2-nistp256@openssh.com",
];

impl SshKey {
    /// Accepts the content of an `id_*.pub` file (RFC 4253 section 6.6: the type is repeated inside the base64).
    pub fn parse(text: &str) -> Result<Self, ValueError> {
        if text.contains("PRIVATE KEY") {
            return refuse(
                "this is a private key; it must never leave your machine. Put the content of its .pub file here",
            );
        }
        let wrong = |why: &str| {
            ValueError(format!(
                "not an SSH public key ({why}); paste the line of your id_ed25519.pub here"
            ))
        };
        if text.contains(['\n', '\r']) {
            return Err(wrong("more than one line"));
        }
        let mut words = text.split_ascii_whitespace();
        let (Some(kind), Some(blob)) = (words.next(), words.next()) else {
            return Err(wrong("it needs a type and a base64 part"));
        };
        if !SSH_KEY_TYPES.contains(&kind) {
            return Err(wrong(&format!("unknown type `{kind}`")));
        }
        let blob = STANDARD
            .decode(blob)
            .map_err(|_| wrong("its base64 part is damaged or cut off"))?;
        let fields = ssh_strings(&blob).ok_or_else(|| wrong("its base64 part is cut off"))?;
        if fields.first() != Some(&kind.as_bytes()) || fields.len() < 2 {
            return Err(wrong("its base64 part is of another type"));
        }
        Ok(Self(text.trim().to_owned()))
    }

    /// Type, base64 and comment, as they were given.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The length-prefixed strings that fill `blob` exactly (RFC 4251 section 5).
fn ssh_strings(mut blob: &[u8]) -> Option<Vec<&[u8]>> {
    let mut strings = Vec::new();
    while !blob.is_empty() {
        let (length, rest) = blob.split_first_chunk::<4>()?;
        let (string, rest) =
            rest.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).ok()?)?;
        strings.push(string);
        blob = rest;
    }
    Some(strings)
}

impl fmt::Display for SshKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// So much of a link in a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BitRate {
    megabits: u64,
}

impl BitRate {
    /// Of what is sent.
    pub fn bytes_per_second(self) -> u64 {
        self.megabits * 1_000_000 / 8
    }
}

impl FromStr for BitRate {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let number = |number: &str| number.trim_end().parse::<u64>().ok();
        let megabits = if let Some(text) = text.strip_suffix("Mbit/s") {
            number(text)
        } else {
            let gigabits = text.strip_suffix("Gbit/s").and_then(number);
            gigabits.and_then(|it| it.checked_mul(1000))
        };
        let possible = megabits.filter(|it| (1..=400_000).contains(it));
        possible.map(|megabits| Self { megabits }).ok_or_else(|| {
            ValueError(format!(
                "`{text}` is no bandwidth; write whole numbers such as 400 Mbit/s or 10 Gbit/s, from 1 Mbit/s to 400 Gbit/s"
            ))
        })
    }
}
