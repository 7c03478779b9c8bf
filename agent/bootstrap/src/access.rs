//! The box's own login on this server, made before cloud-init and so whatever user data says: a user with one key, no
//! password, and a short list of commands as root.
//!
//! A new command that the box may run is a line in [`COMMANDS`]. It must be safe with any input: who has the box's key for this
//! server has this list, and nothing more.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context as _, Result, ensure};
use firstlight_client::net::interface::parse_mac;
use serde_json::{Map, Value};

use crate::files::{NewFile, write_files};

const HOME: &str = "var/lib/firstlight/access";
const SUDOERS: &str = "etc/sudoers.d/firstlight";
/// Where `visudo` looks at the list before sudo does: a list with a mistake would take sudo from everybody.
const DRAFT: &str = "run/firstlight/sudoers";
const PROGRAM: &str = "/usr/bin/firstlight-bootstrap";
/// Arguments of [`PROGRAM`], exactly; `{mac}` is this server's.
const COMMANDS: [&str; 8] = [
    "restart",
    "restart {mac}",
    "packages",
    "bmc look",
    "bmc make",
    "bmc remove",
    "kexec {mac}",
    "backup",
];

/// The key `firstlight_access` of a config drive's `meta_data.json`. Nothing of it is secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    pub user: String,
    /// As the box knows this server.
    pub mac: String,
    /// Of the box, for this server.
    pub key: String,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the config drive names no usable {0} for the box's login")]
pub struct AccessError(&'static str);

/// `None` when the drive was written by an older box, or by somebody else.
pub fn parse_access(meta_data: &Map<String, Value>) -> Result<Option<Access>, AccessError> {
    let Some(block) = meta_data.get("firstlight_access") else {
        return Ok(None);
    };
    let text = |key: &'static str, fits: fn(&str) -> bool| {
        let value = block.get(key).and_then(Value::as_str);
        value
            .filter(|text| fits(text))
            .map(str::to_owned)
            .ok_or(AccessError(key))
    };
    Ok(Some(Access {
        user: text("user", is_user)?,
        mac: text("mac", |mac| parse_mac(mac).is_some())?,
        key: text("key", is_key)?,
    }))
}

fn is_user(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    name.len() <= 32 && name.starts_with("box-") && name.bytes().all(plain)
}

fn is_key(key: &str) -> bool {
    key.starts_with("ssh-ed25519 ") && !key.contains(char::is_control)
}

/// Files below `/` but for the list of commands. They are root's: the user cannot let anybody else in.
pub fn plan_login(access: &Access) -> Vec<NewFile> {
    vec![NewFile::new(
        format!("{HOME}/.ssh/authorized_keys"),
        0o644,
        format!("restrict {}\n", access.key),
    )]
}

/// For `sudo`, which logs every use. Refusals too, only if it would ask for no password: it cannot with `-n`, and goes silently.
pub fn plan_sudoers(access: &Access) -> String {
    // A colon separates in this syntax.
    let mac = access.mac.replace(':', "\\:");
    let commands = COMMANDS.map(|command| format!("{PROGRAM} {}", command.replace("{mac}", &mac)));
    format!(
        "# The box's own login, and all that it may do as root. Written by firstlight-bootstrap.\n\
         Defaults:{user} !authenticate, syslog\n\
         {user} ALL=(root) NOPASSWD: {}\n",
        commands.join(", "),
        user = access.user,
    )
}

/// Brings the file system at `root` there. What an earlier attempt has done stays.
pub fn apply(root: &Path, access: &Access) -> Result<()> {
    write_files(root, &plan_login(access))?;
    make_user(root, access)?;
    grant(root, &plan_sudoers(access))
}

fn make_user(root: &Path, access: &Access) -> Result<()> {
    let known = |file: &str| -> Result<bool> {
        let path = root.join(file);
        let text =
            fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        let head = format!("{}:", access.user);
        Ok(text.lines().any(|line| line.starts_with(&head)))
    };
    if !known("etc/passwd")? {
        let user = format!("u {} - \"The box\" /{HOME} /bin/sh", access.user);
        let mut command = Command::new("systemd-sysusers");
        command.arg("--root").arg(root).args(["--inline", &user]);
        succeed(command)?;
    }
    // The power may have gone between the two files. What the first command makes of that is no password, but is not locked.
    if !known("etc/shadow")? {
        for words in [&["pwconv"][..], &["usermod", "--lock", &access.user]] {
            let mut command = Command::new(words[0]);
            command.args(&words[1..]).arg("--root").arg(root);
            succeed(command)?;
        }
    }
    Ok(())
}

fn grant(root: &Path, list: &str) -> Result<()> {
    if fs::read(root.join(SUDOERS)).is_ok_and(|old| old == list.as_bytes()) {
        return Ok(());
    }
    let file = |path: &str| [NewFile::new(path, 0o440, list)];
    write_files(root, &file(DRAFT))?;
    let mut check = Command::new("visudo");
    check.args(["-c", "-q", "-f"]).arg(root.join(DRAFT));
    match succeed(check) {
        Err(error) if !is_missing(&error) => return Err(error),
        _ => {}
    }
    write_files(root, &file(SUDOERS))
}

fn is_missing(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<io::Error>()
        .is_some_and(|error| error.kind() == io::ErrorKind::NotFound)
}

fn succeed(mut command: Command) -> Result<()> {
    let program = PathBuf::from(command.get_program());
    let Output { status, stderr, .. } = command
        .output()
        .with_context(|| format!("starting {}", program.display()))?;
    let text = String::from_utf8_lossy(&stderr);
    ensure!(status.success(), "{}: {}", program.display(), text.trim());
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::os::unix::fs::PermissionsExt as _;

    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const KEY: &str = "ssh-ed25519 AAAA firstlight-box";

    fn access() -> Access {
        Access {
            user: "box-525400000001".to_owned(),
            mac: "52:54:00:00:00:01".to_owned(),
            key: KEY.to_owned(),
        }
    }

    #[test]
    fn a_login_is_whole_or_an_error() {
        let whole = json!({"user": "box-525400000001", "mac": "52:54:00:00:00:01", "key": KEY});
        let with = |key: &str, value: &str| {
            let mut block = whole.clone();
            block[key] = json!(value);
            json!({"firstlight_access": block})
        };
        let wrong = |key| Err(AccessError(key));
        let cases = [
            (json!({"name": "n1"}), Ok(None)),
            (json!({"firstlight_access": whole}), Ok(Some(access()))),
            (json!({"firstlight_access": "yes"}), wrong("user")),
            (with("user", "root"), wrong("user")),
            (with("user", "box-1 ALL=(ALL) ALL"), wrong("user")),
            (
                with("user", &format!("box-{}", "0".repeat(29))),
                wrong("user"),
            ),
            (with("mac", "any, ALL"), wrong("mac")),
            (with("key", &format!("{KEY}\nssh-ed25519 B")), wrong("key")),
            (with("key", "command=\"sh\" ssh-ed25519 A"), wrong("key")),
        ];
        for (meta_data, expected) in cases {
            let parsed = parse_access(meta_data.as_object().unwrap());
            assert_eq!(parsed, expected, "{meta_data}");
        }
    }

    #[test]
    fn sudo_gets_exactly_these_commands() {
        let list = plan_sudoers(&access());
        let rule = list.lines().last().unwrap();
        assert_eq!(
            rule,
            "box-525400000001 ALL=(root) NOPASSWD: /usr/bin/firstlight-bootstrap restart, \
             /usr/bin/firstlight-bootstrap restart 52\\:54\\:00\\:00\\:00\\:01, /usr/bin/firstlight-bootstrap packages, \
             /usr/bin/firstlight-bootstrap bmc look, /usr/bin/firstlight-bootstrap bmc make, \
             /usr/bin/firstlight-bootstrap bmc remove, /usr/bin/firstlight-bootstrap kexec 52\\:54\\:00\\:00\\:00\\:01, \
             /usr/bin/firstlight-bootstrap backup"
        );
    }

    #[test]
    fn a_list_that_is_there_already_is_not_written_again() {
        let dir = tempfile::tempdir().unwrap();
        let list = plan_sudoers(&access());
        write_files(dir.path(), &[NewFile::new(SUDOERS, 0o440, list.as_str())]).unwrap();
        grant(dir.path(), &list).unwrap();
        assert!(!dir.path().join(DRAFT).exists());
        let mode = fs::metadata(dir.path().join(SUDOERS)).unwrap();
        assert_eq!(mode.permissions().mode() & 0o777, 0o440);
    }

    proptest! {
        #[test]
        fn whatever_a_drive_says_the_list_of_commands_keeps_its_lines(
            user in "(box-)?.{0,12}",
            mac in "(52:54:00:00:00:01|.{0,17})",
            key in "(ssh-ed25519 )?.{0,20}",
        ) {
            let meta_data = json!({"firstlight_access": {"user": user, "mac": mac, "key": key}});
            let Ok(Some(access)) = parse_access(meta_data.as_object().unwrap()) else { return Ok(()) };
            let honest = Access { user: "box-a".into(), mac: "52:54:00:00:00:01".into(), key: KEY.into() };
            prop_assert_eq!(plan_sudoers(&access).lines().count(), plan_sudoers(&honest).lines().count());
            prop_assert_eq!(String::from_utf8_lossy(&plan_login(&access)[0].content).lines().count(), 1);
        }
    }
}
