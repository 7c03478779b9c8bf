//! One run of the program `ssh`: how it is called, and what its end means.

use std::{net::Ipv4Addr, process::Output, time::Duration};

use base64::{Engine, engine::general_purpose::STANDARD_NO_PAD};
use sha2::{Digest, Sha256};
use tokio::process::Command;

use super::{SshError, keys::Dir};
use crate::child::{self, ChildError};

/// Of `ssh` itself: it has lost its connection, or never had one.
pub const LOST: i32 = 255;
/// Of `sudo`, when it runs nothing.
const SUDO: i32 = 1;
/// The end of what a command said, at most; that is where the reason is.
const MOST_TEXT: usize = 2000;
/// `SHA256:` and 43 letters.
const LONGEST_PRINT: usize = 64;

/// Whom to call, as whom, and what for.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    pub dir: &'a Dir,
    pub user: &'a str,
    pub address: Ipv4Addr,
    pub port: u16,
    /// After so long without a sign of life the node is gone.
    pub silence: Duration,
    pub command: &'a [&'a str],
}

impl Call<'_> {
    /// What `ssh` is started with.
    fn arguments(&self) -> Result<Vec<String>, SshError> {
        let known = format!("UserKnownHostsFile={}", self.dir.known_hosts().display());
        let alive = format!("ServerAliveInterval={}", self.silence.as_secs().div_ceil(4));
        let options = [
            "BatchMode=yes",
            "IdentitiesOnly=yes",
            "IdentityAgent=none",
            "PreferredAuthentications=publickey",
            "GlobalKnownHostsFile=/dev/null",
            // An emulated host on a busy machine takes a minute for a login.
            "ConnectTimeout=60",
            "ServerAliveCountMax=4",
            &alive,
            "LogLevel=ERROR",
            &known,
        ];
        let key = self.dir.key().display().to_string();
        let port = self.port.to_string();
        let fixed = ["-F", "/dev/null", "-T", "-p", &port, "-i", &key];
        let mut arguments: Vec<String> = fixed.map(str::to_owned).to_vec();
        for option in options.iter().chain(trust(&known_hosts(self.dir)?)) {
            arguments.extend(["-o".to_owned(), (*option).to_owned()]);
        }
        arguments.push(format!("{}@{}", self.user, self.address));
        arguments.push(quoted(self.command));
        Ok(arguments)
    }

    /// Returns when the command has ended, however it did.
    pub async fn output(&self, input: &[u8], time: Duration) -> Result<Output, SshError> {
        let mut ssh = Command::new("ssh");
        ssh.args(self.arguments()?);
        let output = child::output(&mut ssh, input, time).await;
        output.map_err(|error| match error {
            ChildError::Broken(error) => SshError::Unreachable(format!("ssh: {error}")),
            ChildError::Late(time) => SshError::Late(time),
            ChildError::TooMuch => SshError::TooMuch,
        })
    }

    /// What the command said, or why there is nothing of it.
    pub fn outcome(&self, output: Output) -> Result<Vec<u8>, SshError> {
        if output.status.success() {
            return Ok(output.stdout);
        }
        let text = String::from_utf8_lossy(&output.stderr);
        let text = text.trim();
        let last = ending(text.lines().last().unwrap_or("it said nothing").trim());
        Err(match output.status.code() {
            // Said by `ssh` before it sends anything.
            Some(LOST) if text.contains("Host key verification failed") => {
                SshError::HostKeyMismatch {
                    address: self.address,
                    shown: shown(text).to_owned(),
                    known: known(&known_hosts(self.dir)?),
                    dir: self.dir.path().to_owned(),
                }
            }
            Some(LOST) if text.contains("Permission denied") => SshError::Refused(last.to_owned()),
            Some(LOST) => SshError::Unreachable(last.to_owned()),
            Some(SUDO) if is_refusal(last) => SshError::Refused(last.to_owned()),
            Some(code) => SshError::Failed {
                code,
                text: ending(text).to_owned(),
            },
            None => SshError::Unreachable("ssh was killed".to_owned()),
        })
    }
}

/// For the shell at the other end, which splits what `ssh` sends it.
fn quoted(command: &[&str]) -> String {
    let words = command
        .iter()
        .map(|word| format!("'{}'", word.replace('\'', r"'\''")));
    words.collect::<Vec<_>>().join(" ")
}

/// Empty before the first sight. One that cannot be read is not that: any machine would be believed.
fn known_hosts(dir: &Dir) -> Result<String, SshError> {
    match std::fs::read_to_string(dir.known_hosts()) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
        read => read.map_err(|error| SshError::KeyFile {
            path: dir.known_hosts(),
            error: error.to_string(),
        }),
    }
}

/// What `ssh` shall make of the key that it is shown. The node has one name, for it may move to another address.
fn trust(known: &str) -> &'static [&'static str] {
    const ALIAS: &str = "HostKeyAlias=node";
    if known.is_empty() {
        &["StrictHostKeyChecking=accept-new", ALIAS]
    } else if known.starts_with("node ") {
        &["StrictHostKeyChecking=yes", ALIAS]
    } else {
        // By an older box, under the address.
        &["StrictHostKeyChecking=accept-new"]
    }
}

/// Sudo warns of other things in the same place.
fn is_refusal(line: &str) -> bool {
    let none = ["a password is required", "command not found"];
    line.starts_with("Sorry, user ")
        || line.starts_with("sudo: ") && none.iter().any(|end| line.ends_with(end))
}

/// The fingerprint is in the middle of a warning for people.
fn shown(text: &str) -> &str {
    let mut words = text.split_whitespace();
    let print = words.find(|word| word.starts_with("SHA256:"));
    let print = print.filter(|print| print.len() <= LONGEST_PRINT);
    print.map_or("another one", |print| print.trim_end_matches('.'))
}

/// The fingerprint of its first line.
fn known(hosts: &str) -> String {
    let key = hosts.lines().next().and_then(|line| line.split_once(' '));
    let print = key.and_then(|(_, key)| fingerprint(key));
    print.unwrap_or_else(|| "none".to_owned())
}

/// Of a public key, `TYPE BASE64 …`, as `ssh-keygen -l` shows it.
fn fingerprint(key: &str) -> Option<String> {
    let blob = key.split_ascii_whitespace().nth(1)?;
    let blob = STANDARD_NO_PAD.decode(blob.trim_end_matches('=')).ok()?;
    Some(format!(
        "SHA256:{}",
        STANDARD_NO_PAD.encode(Sha256::digest(blob))
    ))
}

fn ending(text: &str) -> &str {
    let start = text.len().saturating_sub(MOST_TEXT);
    let start = (start..text.len()).find(|at| text.is_char_boundary(*at));
    &text[start.unwrap_or(0)..]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::{os::unix::process::ExitStatusExt, process::ExitStatus};

    use super::*;

    const KNOWN: &str =
        "node ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ0iVdvSbJ4m7y7C5jzUVzQ9c0GvYqFo0x9r6b5mN3pZ x\n";
    /// By `ssh-keygen -lf`.
    const PRINT: &str = "SHA256:JMDA8O+ENAx0XHGaiD2Ygm/1IiFU+WazvD2354j8cXI";
    /// OpenSSH 9.2, with `LogLevel=ERROR`.
    const CHANGED: &str = "@@@@@@@@@@@\n@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @\n\
        The fingerprint for the ED25519 key sent by the remote host is\nSHA256:abc.\n\
        Add correct host key in /x to get rid of this message.\nHost key verification failed.\n";
    const UNKNOWN: &str = "No ECDSA host key is known for node and you have requested strict checking.\n\
         Host key verification failed.\n";

    #[test]
    fn each_end_is_one_outcome() {
        let dir = tempfile::tempdir().unwrap();
        let of = Dir::new(dir.path(), "52:54:00:00:00:01".parse().unwrap());
        std::fs::create_dir(of.path()).unwrap();
        std::fs::write(of.known_hosts(), KNOWN).unwrap();
        let call = Call {
            dir: &of,
            user: "box",
            address: Ipv4Addr::LOCALHOST,
            port: 22,
            silence: Duration::ZERO,
            command: &[],
        };
        let mismatch = |shown: &str| SshError::HostKeyMismatch {
            address: Ipv4Addr::LOCALHOST,
            shown: shown.to_owned(),
            known: PRINT.to_owned(),
            dir: of.path().to_owned(),
        };
        let refused = |text: &str| SshError::Refused(text.to_owned());
        let failed = |code, text: &str| SshError::Failed {
            code,
            text: text.to_owned(),
        };
        let warning = "sudo: unable to resolve host n1: Name or service not known";
        let long = "é".repeat(MOST_TEXT);
        for (code, text, expected) in [
            (255, CHANGED, mismatch("SHA256:abc")),
            (255, UNKNOWN, mismatch("another one")),
            (
                255,
                "box@h: Permission denied (publickey).\n",
                refused("box@h: Permission denied (publickey)."),
            ),
            (
                255,
                "ssh: connect to host h port 22: No route to host\r\n",
                SshError::Unreachable(
                    "ssh: connect to host h port 22: No route to host".to_owned(),
                ),
            ),
            (255, "", SshError::Unreachable("it said nothing".to_owned())),
            (
                1,
                "Sorry, user box is not allowed",
                refused("Sorry, user box is not allowed"),
            ),
            (
                1,
                "sudo: a password is required",
                refused("sudo: a password is required"),
            ),
            (1, warning, failed(1, warning)),
            (2, "a\nb\n", failed(2, "a\nb")),
            // What a command says of host keys is not ssh's.
            (1, UNKNOWN, failed(1, UNKNOWN.trim())),
            (3, &long, failed(3, &"é".repeat(MOST_TEXT / 2))),
        ] {
            let output = Output {
                status: ExitStatus::from_raw(code << 8),
                stdout: b"out".to_vec(),
                stderr: text.into(),
            };
            assert_eq!(call.outcome(output), Err(expected), "{text}");
        }
        let output = Output {
            status: ExitStatus::from_raw(0),
            stdout: b"out".to_vec(),
            stderr: b"a warning".to_vec(),
        };
        assert_eq!(call.outcome(output), Ok(b"out".to_vec()));
    }

    #[tokio::test]
    async fn host_keys_that_cannot_be_read_are_not_learned_anew() {
        let dir = tempfile::tempdir().unwrap();
        let of = Dir::new(dir.path(), "52:54:00:00:00:01".parse().unwrap());
        std::fs::create_dir_all(of.known_hosts()).unwrap();
        let call = Call {
            dir: &of,
            user: "box",
            address: Ipv4Addr::LOCALHOST,
            port: 9,
            silence: Duration::ZERO,
            command: &["true"],
        };
        let called = call.output(b"", Duration::from_secs(5)).await;
        assert!(
            matches!(called, Err(SshError::KeyFile { .. })),
            "{called:?}"
        );
    }

    proptest::proptest! {
        #[test]
        fn whatever_ssh_prints_is_an_outcome(piece: Vec<u8>, times in 1..2000_usize, code: u8, hint in 0..3_usize) {
            let dir = tempfile::tempdir().unwrap();
            let of = Dir::new(dir.path(), "52:54:00:00:00:01".parse().unwrap());
            let call = Call { dir: &of, user: "box", address: Ipv4Addr::LOCALHOST, port: 22, silence: Duration::ZERO, command: &[] };
            let text = piece.repeat(times);
            let said = ["", "Host key verification failed. SHA256:", "Permission denied"][hint];
            let output = Output {
                status: ExitStatus::from_raw(i32::from(code) << 8),
                stdout: Vec::new(),
                stderr: [&text, said.as_bytes(), &text].concat(),
            };
            let length = call.outcome(output).map_or_else(|error| error.to_string().len(), |_| 0);
            proptest::prop_assert!(length < 4 * MOST_TEXT);
        }
    }

    #[test]
    fn only_a_node_that_nobody_has_seen_may_show_any_key() {
        let alias = "HostKeyAlias=node";
        for (known, expected) in [
            ("", &["StrictHostKeyChecking=accept-new", alias][..]),
            (KNOWN, &["StrictHostKeyChecking=yes", alias]),
            (
                "172.22.0.7 ssh-ed25519 AAAA\n",
                &["StrictHostKeyChecking=accept-new"],
            ),
        ] {
            assert_eq!(trust(known), expected, "{known}");
        }
    }

    #[test]
    fn the_shell_at_the_other_end_sees_the_same_words() {
        let words = ["a b", "it's", "$(id)", "", "`x`;\n\\"];
        let script = format!(
            "for word in {}; do printf '%s|' \"$word\"; done",
            quoted(&words)
        );
        let said = std::process::Command::new("sh")
            .args(["-c", &script])
            .output();
        let said = String::from_utf8(said.unwrap().stdout).unwrap();
        assert_eq!(said, words.map(|word| format!("{word}|")).concat());
    }

    #[test]
    fn a_fingerprint_that_cannot_be_made_is_no_panic() {
        for text in ["", "node", "node ssh-ed25519", "node ssh-ed25519 ???"] {
            assert_eq!(known(text), "none");
        }
    }
}
