//! The way to a box that runs, for the subcommands that talk to one: the `ssh` program, as its owner has set it up.

use std::path::Path;
use std::process::Command;

/// Asks nobody anything; what follows is up to the caller.
pub fn ssh(identity: Option<&Path>) -> Command {
    let mut ssh = Command::new("ssh");
    ssh.args(["-o", "BatchMode=yes", "-o", "ConnectTimeout=30"]);
    if let Some(identity) = identity {
        ssh.arg("-i").arg(identity);
    }
    ssh
}
