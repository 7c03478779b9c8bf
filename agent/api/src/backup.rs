//! Backups that the box makes by itself (`backup` of site.yaml): for whom they are encrypted, where they are kept, and what is told of them.

use std::{fmt, net::Ipv4Addr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::site::{SshKey, ValueError};

/// How many are kept in each place.
pub const USUAL_COUNT: u8 = 7;
/// More are for an archive.
pub const MOST_COUNT: u8 = 60;
/// Recipients.
pub const MOST_RECIPIENTS: usize = 8;
/// Of the file's name, behind the box's name and the time.
pub const SUFFIX: &str = ".backup";
const LONGEST_NAME: usize = 128;
const USUAL_PORT: u16 = 22;

/// `backup` of site.yaml.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupPlan {
    /// Who can read them: one at least.
    pub recipients: Vec<AgeRecipient>,
    /// How many are kept in each place.
    pub count: u8,
    /// A place that is not of the site.
    pub outside: Option<Outside>,
}

/// The public half of a key of age's (`age-keygen`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub struct AgeRecipient(String);

impl AgeRecipient {
    /// # Errors
    /// Also where a letter of it is another one.
    pub fn parse(text: &str) -> Result<Self, ValueError> {
        let key = bech32::decode(text).ok().and_then(|(kind, data, variant)| {
            let fits = kind == "age" && variant == bech32::Variant::Bech32;
            fits.then(|| <Vec<u8> as bech32::FromBase32>::from_base32(&data).ok())?
        });
        if key.is_some_and(|key| key.len() == 32) {
            return Ok(Self(text.to_owned()));
        }
        let hint = if text.starts_with("AGE-SECRET-KEY-") {
            "this is the secret half of a key, which belongs nowhere but to whoever restores; make another key, and write its public half"
        } else {
            "this is no public key of age's; `age-keygen -y KEY-FILE` prints one, like age1…"
        };
        Err(ValueError(hint.to_owned()))
    }

    /// `age1…`
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for AgeRecipient {
    type Error = ValueError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(&text)
    }
}

impl From<AgeRecipient> for String {
    fn from(recipient: AgeRecipient) -> Self {
        recipient.0
    }
}

/// `backup.outside`: a machine that takes files by SFTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outside {
    /// Where it is.
    pub place: SftpPlace,
    /// By which the box knows it.
    pub host_key: SshKey,
}

/// `sftp://USER@ADDRESS[:PORT]/FOLDER`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SftpPlace {
    /// Whom the box logs in as.
    pub user: String,
    /// No name: a box need not have name servers.
    pub address: Ipv4Addr,
    /// Of its SSH server.
    pub port: u16,
    /// From its root, without a `/` at the end.
    pub folder: String,
}

impl SftpPlace {
    /// # Errors
    /// Where it is none, or one that a program would take for something else.
    pub fn parse(text: &str) -> Result<Self, ValueError> {
        parse_place(text).ok_or_else(|| {
            ValueError(format!(
                "`{text}` is no place for files; write it like sftp://backup@192.0.2.9/srv/backups, with the machine's IPv4 address"
            ))
        })
    }
}

impl fmt::Display for SftpPlace {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            user,
            address,
            port,
            folder,
        } = self;
        write!(out, "sftp://{user}@{address}")?;
        if *port != USUAL_PORT {
            write!(out, ":{port}")?;
        }
        write!(out, "{folder}")
    }
}

fn parse_place(text: &str) -> Option<SftpPlace> {
    let (user, rest) = text.strip_prefix("sftp://")?.split_once('@')?;
    let (host, folder) = rest.split_once('/')?;
    let (address, port) = match host.split_once(':') {
        Some((address, port)) => (address, port.parse().ok().filter(|port| *port > 0)?),
        None => (host, USUAL_PORT),
    };
    let address: Ipv4Addr = address.parse().ok()?;
    let plain = |text: &str, more: &[u8]| {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || more.contains(&byte);
        !text.is_empty() && text.len() <= LONGEST_NAME && text.bytes().all(fits)
    };
    let folder = folder.trim_end_matches('/');
    let parts = folder.split('/');
    let is_folder =
        plain(folder, b"/._-") && parts.clone().all(|part| !part.is_empty() && part != "..");
    let is_host = !address.is_unspecified() && !address.is_multicast() && !address.is_broadcast();
    let is_user = plain(user, b"._-") && !user.starts_with('-');
    (is_user && is_folder && is_host).then(|| SftpPlace {
        user: user.to_owned(),
        address,
        port,
        folder: format!("/{folder}"),
    })
}

/// A backup that was made. Names of one box sort by their time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BackupFile {
    /// `SITE-YYYYMMDDTHHMMSSZ.backup`
    pub name: String,
    /// Of the encrypted file.
    pub bytes: u64,
}

impl BackupFile {
    /// Whether a file may have this name: nothing but what the box gives.
    pub fn is_name(name: &str) -> bool {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        name.len() <= LONGEST_NAME
            && name.strip_suffix(SUFFIX).is_some_and(|stem| {
                !stem.is_empty() && stem.bytes().all(plain) && !stem.starts_with('-')
            })
    }
}

/// Which of these files have to go where `count` stay, `new` among them whatever the clock said when the others were made; those
/// that are no backups stay.
pub fn surplus(mut names: Vec<String>, new: &str, count: u8) -> Vec<String> {
    names.retain(|name| BackupFile::is_name(name) && name != new);
    names.sort();
    let others = usize::from(count).saturating_sub(1);
    names.truncate(names.len().saturating_sub(others));
    names
}

/// The first line of what a server is sent to keep; the bytes follow it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KeepOrder {
    /// Which.
    pub file: BackupFile,
    /// How many of them stay there.
    pub count: u8,
}

/// What the page says of backups.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupStatus {
    /// The last one, on the stick.
    pub last: Option<BackupFile>,
    /// When it was made, in seconds since 1970.
    pub made: i64,
    /// Where else it is: names of servers, and the place outside.
    pub copies: Vec<String>,
}

impl BackupStatus {
    /// For people.
    pub fn sentence(&self) -> String {
        let Some(last) = &self.last else {
            return "the box has made no backup yet".to_owned();
        };
        let copies = match self.copies.as_slice() {
            [] => "on the stick alone".to_owned(),
            copies => format!("on the stick, {}", copies.join(", ")),
        };
        format!(
            "last backup {} ({} MB), {copies}",
            last.name,
            last.bytes.div_ceil(1 << 20)
        )
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    /// Of age's own documentation.
    const KEY: &str = "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p";

    #[test]
    fn a_recipient_is_a_public_key_without_a_typing_mistake() {
        assert_eq!(AgeRecipient::parse(KEY).unwrap().as_str(), KEY);
        let why = |text: &str| AgeRecipient::parse(text).unwrap_err().0;
        assert!(why(&KEY.replace("ql3z", "ql3x")).contains("age-keygen"));
        assert!(why(&KEY[..60]).contains("age-keygen"));
        assert!(why("AGE-SECRET-KEY-1QQ").contains("secret half"));
        assert!(why("ssh-ed25519 AAAA").contains("age1"));
    }

    #[test]
    fn a_place_outside_is_a_folder_on_a_machine() {
        let place = SftpPlace::parse("sftp://box-7@192.0.2.9:2222/srv/backups/").unwrap();
        assert_eq!((place.port, place.folder.as_str()), (2222, "/srv/backups"));
        for text in ["sftp://a@192.0.2.9/b", "sftp://a@192.0.2.9:2222/b/c"] {
            assert_eq!(SftpPlace::parse(text).unwrap().to_string(), text);
        }
        for text in [
            "sftp://192.0.2.9/srv",
            "sftp://a@nas/srv",
            "sftp://a@192.0.2.9",
            "sftp://a@192.0.2.9/",
            "sftp://a@192.0.2.9/../etc",
            "sftp://-oProxyCommand=x@192.0.2.9/srv",
            "sftp://a@192.0.2.9:0/srv",
            "sftp://a@0.0.0.0/srv",
            "sftp://a@192.0.2.9/a b",
            "ftp://a@192.0.2.9/srv",
        ] {
            assert!(SftpPlace::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn names_of_backups_are_files_and_nothing_else() {
        assert!(BackupFile::is_name("lab-20261129T030000Z.backup"));
        for name in [
            "",
            ".backup",
            "../a.backup",
            "a.backup.new",
            "-a.backup",
            "a/b.backup",
            "a b.backup",
        ] {
            assert!(!BackupFile::is_name(name), "{name}");
        }
    }

    #[test]
    fn the_oldest_go_and_the_new_one_stays() {
        let gone = |names: &str, new, count| {
            let names = names.split(' ').map(|name| format!("{name}.backup"));
            let mut names: Vec<String> = names.collect();
            names.push("notes".to_owned());
            surplus(names, new, count).join(" ")
        };
        assert_eq!(gone("c a b", "c.backup", 2), "a.backup");
        assert_eq!(gone("a b c", "a.backup", 2), "b.backup");
        assert_eq!(gone("a b c", "c.backup", 7), "");
        assert_eq!(gone("a b", "b.backup", 0), "a.backup");
    }

    proptest! {
        #[test]
        fn any_text_is_a_place_or_none(text in "(sftp://)?[a-z./@:0-9-]{0,40}", noise in "\\PC{0,60}") {
            for text in [text, noise] {
                if let Ok(place) = SftpPlace::parse(&text) {
                    prop_assert_eq!(SftpPlace::parse(&place.to_string()).unwrap(), place);
                }
                drop(AgeRecipient::parse(&text));
            }
        }
    }
}
