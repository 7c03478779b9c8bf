//! `firstlight agent`: an agent that was just compiled, into a box that runs. For whoever works on it: an edit is tried in
//! seconds. When the box starts again it has the agent of its stick.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use clap::Args;
use lab::MACHINES;

use crate::UsageError;
use crate::ssh::{ssh, ssh_to_machine};

#[derive(Debug, Args)]
pub struct AgentArgs {
    /// The program, for example target/debug/firstlight-agent
    program: PathBuf,
    /// The box of `firstlight boot`: the port that it named for SSH
    #[arg(
        long,
        value_name = "PORT",
        required_unless_present = "host",
        conflicts_with = "host"
    )]
    port: Option<u16>,
    /// Another box, as SSH is told
    #[arg(long = "box", value_name = "HOST")]
    host: Option<String>,
    /// SSH key, if it is not your default one
    #[arg(short, long, value_name = "FILE")]
    identity: Option<PathBuf>,
    /// Also into a box that is no virtual machine of `firstlight boot`
    #[arg(long)]
    real: bool,
}

/// Boxes that somebody may work on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Boxes {
    /// Virtual machines of `firstlight boot` and of the tests.
    OfTheLab,
    Any,
}

pub fn run(args: &AgentArgs) -> Result<String> {
    if !args.program.is_file() {
        let what = format!(
            "{}: no such program; `cargo build -p firstlight-agent` makes one",
            args.program.display()
        );
        return Err(UsageError(what).into());
    }
    let identity = args.identity.as_deref();
    let way = if let Some(host) = &args.host {
        let mut way = ssh(identity);
        way.arg("--").arg(host);
        way
    } else {
        let port = args.port.context("clap asks for a port or a box")?;
        let mut way = ssh_to_machine(identity, port);
        way.args(["--", "admin@127.0.0.1"]);
        way
    };
    let boxes = if args.real {
        Boxes::Any
    } else {
        Boxes::OfTheLab
    };
    put(way, &args.program, boxes)?;
    Ok("the box runs it until it starts again\n".to_owned())
}

/// Returns when the box runs `program` and says that it has started. `way` is an `ssh` with everything but the command.
pub fn put(mut way: Command, program: &Path, boxes: Boxes) -> Result<()> {
    // The login takes as long as the packing.
    let mut child = way
        .arg(script(boxes))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("running ssh; install openssh-client")?;
    let input = child.stdin.take().context("the input of ssh")?;
    let program = program.to_owned();
    let feeder = std::thread::spawn(move || send(&program, input));
    let output = child.wait_with_output().context("waiting for ssh")?;
    let sent = feeder.join().expect("sending does not panic");
    // A box that refuses does not read it all; what it says is the reason.
    ensure!(
        output.status.success(),
        "the box did not take the agent: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    sent
}

/// Packed; a part of it is no archive, and the box refuses that.
fn send(program: &Path, mut to: impl io::Write) -> Result<()> {
    let dir = tempfile::tempdir().context("a folder for the program")?;
    let small = dir.path().join("firstlight-agent");
    // Symbols are most of a program that was compiled for debugging.
    let stripped = Command::new("strip")
        .arg("-o")
        .arg(&small)
        .arg(program)
        .status();
    let sent = match stripped {
        Ok(status) if status.success() => &small,
        _ => program,
    };
    let mut gzip = Command::new("gzip")
        .args(["-1", "-c"])
        .arg(sent)
        .stdout(Stdio::piped())
        .spawn()
        .context("starting gzip")?;
    let packed = gzip.stdout.as_mut().context("the output of gzip")?;
    let copied = io::copy(packed, &mut to);
    let ended = gzip.wait().context("waiting for gzip")?;
    copied.context("sending the agent")?;
    ensure!(ended.success(), "gzip failed: {ended}");
    Ok(())
}

/// On the box: takes the program from its input, starts it, and fails if another one runs.
fn script(boxes: Boxes) -> String {
    let guard = match boxes {
        Boxes::Any => String::new(),
        Boxes::OfTheLab => format!(
            "case $(cat /sys/class/dmi/id/product_uuid) in {MACHINES}*) ;; \
             *) echo 'this box is no virtual machine of `firstlight boot`; --real means it all the same' >&2; exit 1 ;; esac; "
        ),
    };
    let script = format!(
        "{guard}cd /usr/bin; gzip -dc >.firstlight-agent; chmod 755 .firstlight-agent; \
         mv -f .firstlight-agent firstlight-agent; systemctl restart firstlight-agent; \
         [ /proc/$(systemctl show -P MainPID firstlight-agent)/exe -ef firstlight-agent ] \
         || {{ echo 'the box runs another agent than the one that was sent' >&2; exit 1; }}"
    );
    // Each `sudo` takes an emulated box half a second.
    format!("exec sudo sh -euc '{}'", script.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// What an `ssh` with a destination would run, here: with `sudo` and `systemctl` of a box whose UUID is `uuid`.
    fn way(dir: &Path, uuid: &str) -> Command {
        let tools = dir.join("bin");
        fs::create_dir_all(&tools).unwrap();
        let root = dir.display();
        let fakes = [
            // What is the box's, is in the folder here.
            (
                "sudo",
                format!(
                    "shift 2; exec sh -euc \"$(printf %s \"$1\" | sed 's#/sys/class/dmi/id#{root}#; s#/usr/bin#{root}#; s#/proc/.*/exe#{root}/runs#')\""
                ),
            ),
            (
                "systemctl",
                format!("ln -f {root}/firstlight-agent {root}/runs"),
            ),
        ];
        fs::write(dir.join("product_uuid"), uuid).unwrap();
        for (name, text) in fakes {
            let file = tools.join(name);
            fs::write(&file, format!("#!/bin/sh\n{text}\n")).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let mut way = Command::new("sh");
        let path = std::env::var("PATH").unwrap();
        way.env("PATH", format!("{}:{path}", tools.display()))
            .arg("-c");
        way
    }

    #[test]
    fn a_box_of_the_lab_takes_the_program_and_another_box_only_if_it_is_meant() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("program");
        fs::write(&program, "new").unwrap();
        let lab = format!("{MACHINES}525400f10000");
        put(way(dir.path(), &lab), &program, Boxes::OfTheLab).unwrap();
        assert_eq!(fs::read(dir.path().join("runs")).unwrap(), b"new");

        fs::write(&program, "newer").unwrap();
        let other = "4c4c4544-0000-4000-8000-000000000000";
        let refused = put(way(dir.path(), other), &program, Boxes::OfTheLab).unwrap_err();
        assert!(
            refused.to_string().contains("no virtual machine"),
            "{refused}"
        );
        assert_eq!(fs::read(dir.path().join("runs")).unwrap(), b"new");
        put(way(dir.path(), other), &program, Boxes::Any).unwrap();
        assert_eq!(fs::read(dir.path().join("runs")).unwrap(), b"newer");
    }
}
