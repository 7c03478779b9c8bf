//! `firstlight seal`: a recovery key for the box's encrypted state, and a TPM that opens it after a start of what runs now only.

use std::io::Write as _;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::UsageError;
use crate::secret;
use crate::ssh::BoxArgs;

const RENEW: &str = "sudo /usr/lib/firstlight/firstlight-update seal renew";
const STATUS: &str = "cat /run/firstlight-seal/status.json";

const WAY: &str =
    "A box whose machine has a TPM 2 encrypts what it remembers, and the TPM opens it by itself.
The recovery key opens it when the TPM does not: in another machine, after a change of the firmware's settings. It is shown once, at the
first call and at each later one, when the one before ends. From then on the TPM opens the state only after the firmware, loader, kernel,
initramfs and command line that the box was started by, and of an update that it was given.

  firstlight seal > lab.recovery-key     and keep it away from the box
  firstlight seal --recovery-key         after the old key was needed: what runs now is what is meant to run
  firstlight seal --status               what keeps the key, and whether anybody has a recovery key";

#[derive(Debug, Args)]
#[command(after_help = WAY)]
pub struct SealArgs {
    #[command(flatten)]
    the_box: BoxArgs,
    /// Open it with the recovery key of before, which is asked for or read from standard input
    #[arg(long)]
    recovery_key: bool,
    /// Change nothing, print what keeps the state's key as JSON
    #[arg(long, conflicts_with = "recovery_key")]
    status: bool,
}

pub fn run(args: &SealArgs) -> Result<String> {
    let old = if args.recovery_key {
        let old = secret::ask("The recovery key of before: ")?;
        if old.is_empty() {
            return Err(UsageError("no recovery key was given".to_owned()).into());
        }
        old
    } else {
        String::new()
    };
    let mut ssh = args
        .the_box
        .way()
        .arg(if args.status { STATUS } else { RENEW })
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("running ssh; install openssh-client")?;
    let mut to = ssh.stdin.take().context("ssh has no input")?;
    // It may have ended, and says why.
    drop(to.write_all(old.as_bytes()));
    drop(to);
    let output = ssh.wait_with_output().context("waiting for ssh")?;
    ensure!(
        output.status.success(),
        "the box did not do it, and says why above"
    );
    let mut text = String::from_utf8(output.stdout).context("what the box says")?;
    if args.status {
        text.push('\n');
    } else {
        eprintln!(
            "This recovery key is shown once, and opens what the box remembers on any machine; an older one does not any more:"
        );
    }
    Ok(text)
}
