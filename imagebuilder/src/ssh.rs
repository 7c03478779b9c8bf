//! The way to a box that runs, for the subcommands that talk to one: the `ssh` program, as its owner has set it up.

use std::num::NonZeroU16;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use clap::Args;

/// Which box, and the way there. What is not said here is as `~/.ssh/config` has it.
#[derive(Clone, Debug, Args)]
pub struct BoxArgs {
    /// The box, as SSH is told: `admin@HOST`, `ssh://admin@HOST:PORT`, or a name of ~/.ssh/config
    #[arg(
        long = "box",
        value_name = "HOST",
        default_value = "admin@172.22.0.1",
        global = true
    )]
    pub host: String,
    /// Port of its SSH server, for a box behind a forwarded port
    #[arg(short, long, value_name = "PORT", global = true)]
    port: Option<NonZeroU16>,
    /// SSH key, if it is not your default one
    #[arg(short, long, value_name = "FILE", global = true)]
    identity: Option<PathBuf>,
    /// File with its host key, if ssh does not know that yet
    #[arg(long, value_name = "FILE", global = true)]
    known_hosts: Option<PathBuf>,
}

impl BoxArgs {
    #[cfg(test)]
    pub fn at(host: &str) -> Self {
        Self {
            host: host.to_owned(),
            port: None,
            identity: None,
            known_hosts: None,
        }
    }

    /// As they were given, for a call from elsewhere.
    pub fn words(&self) -> Result<Vec<String>> {
        let mut words = vec!["--box".to_owned(), self.host.clone()];
        if let Some(port) = self.port {
            words.extend(["--port".to_owned(), port.to_string()]);
        }
        for (name, file) in [
            ("--identity", &self.identity),
            ("--known-hosts", &self.known_hosts),
        ] {
            if let Some(file) = file {
                let file = std::path::absolute(file).context("reading the current folder")?;
                words.extend([name.to_owned(), file.display().to_string()]);
            }
        }
        Ok(words)
    }

    /// `ssh` with everything but the destination; asks nobody anything.
    pub fn ssh(&self) -> Command {
        let mut ssh = ssh(self.identity.as_deref());
        if let Some(port) = self.port {
            ssh.args(["-p", &port.to_string()]);
        }
        if let Some(file) = &self.known_hosts {
            // Quoted, for `ssh` takes more than one file.
            ssh.arg("-o");
            ssh.arg(format!("UserKnownHostsFile=\"{}\"", file.display()));
        }
        ssh
    }

    /// With everything but the command.
    pub fn way(&self) -> Command {
        let mut way = self.ssh();
        way.arg("--").arg(&self.host);
        way
    }

    /// What a command on the box prints. What SSH has to say goes to the person as it is.
    pub fn ask(&self, command: &str) -> Result<String> {
        let output = self
            .way()
            .arg(command)
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .context("running ssh; install openssh-client")?;
        ensure!(
            output.status.success(),
            "`{command}` on {} failed, see above; `sshKeys` in site.yaml says who may log in",
            self.host
        );
        String::from_utf8(output.stdout).context("the box's answer is not text")
    }
}

/// Asks nobody anything; what follows is up to the caller.
pub fn ssh(identity: Option<&Path>) -> Command {
    with_patience(identity, 30)
}

/// To a virtual machine behind a `port` of ours: each has a host key of its own at the same address.
pub fn ssh_to_machine(identity: Option<&Path>, port: u16) -> Command {
    let mut ssh = with_patience(identity, 60);
    ssh.args(["-p", &port.to_string()]);
    for option in [
        "StrictHostKeyChecking=no",
        "UserKnownHostsFile=/dev/null",
        "LogLevel=ERROR",
    ] {
        ssh.args(["-o", option]);
    }
    ssh
}

fn with_patience(identity: Option<&Path>, seconds: u8) -> Command {
    let mut ssh = Command::new("ssh");
    ssh.args(["-o", "BatchMode=yes"]);
    ssh.args(["-o", &format!("ConnectTimeout={seconds}")]);
    if let Some(identity) = identity {
        ssh.arg("-i").arg(identity);
    }
    ssh
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Told {
        #[command(flatten)]
        the_box: BoxArgs,
    }

    #[test]
    fn the_way_is_said_again_from_anywhere() {
        let told = ["firstlight", "--box", "me@box", "-p", "2222", "-i", "key"];
        let words = Told::try_parse_from(told).unwrap().the_box.words().unwrap();
        let key = std::env::current_dir().unwrap().join("key");
        let wanted = [
            "--box",
            "me@box",
            "--port",
            "2222",
            "--identity",
            key.to_str().unwrap(),
        ];
        assert_eq!(words, wanted);
    }

    fn way(arguments: &[&str]) -> String {
        let arguments = [&["firstlight"], arguments].concat();
        let way = Told::try_parse_from(arguments).unwrap().the_box.way();
        let words: Vec<_> = way.get_args().map(|word| word.to_str().unwrap()).collect();
        words.join(" ")
    }

    #[test]
    fn ssh_is_told_what_was_said_and_nothing_else() {
        let always = "-o BatchMode=yes -o ConnectTimeout=30";
        assert_eq!(way(&[]), format!("{always} -- admin@172.22.0.1"));
        assert_eq!(
            way(&[
                "--box",
                "admin@127.0.0.1",
                "-p",
                "2222",
                "-i",
                "id",
                "--known-hosts",
                "my box"
            ]),
            format!("{always} -i id -p 2222 -o UserKnownHostsFile=\"my box\" -- admin@127.0.0.1")
        );
        assert_eq!(
            way(&["--box", "ssh://admin@[::1]:2222"]),
            format!("{always} -- ssh://admin@[::1]:2222")
        );
        assert!(Told::try_parse_from(["firstlight", "--port", "0"]).is_err());
    }
}
