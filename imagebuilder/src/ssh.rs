//! The way to a box that runs, for the subcommands that talk to one: the `ssh` program, as its owner has set it up.

use std::path::Path;
use std::process::Command;

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
