//! A person's word that one server may join (`join: approve`).

use anyhow::{Result, ensure};
use clap::Args;
use firstlight_api::{bmh::APPROVE_ANNOTATION, signed::same_code, status::HostStatus};
use serde_json::json;

use super::find::find;
use super::orders::{Order, Write};
use crate::UsageError;

pub const APPROVING: &str = "With `join: approve` in site.yaml the box leaves a new server alone until somebody has compared its code:

  1. firstlight hosts list                     which servers wait
  2. read the code on the server's own screen, not in the list: whoever pretends to be it has another one
  3. firstlight hosts approve NAME --code 7Q2M-XK4P-09AB-CDEF

The approval is for the key that this server made when it started its ramdisk, and for its TPM, if it has one: then it holds
after restarts too. A server whose mainboard or TPM was replaced is approved again, with the code on its screen.";

#[derive(Debug, Args)]
pub struct ApproveArgs {
    /// Its name, the beginning of it, or its MAC address
    #[arg(value_name = "NAME|MAC")]
    pub server: String,
    /// As its screen shows it; dashes and capitals do not matter
    #[arg(long)]
    pub code: String,
}

pub fn order<'a>(hosts: &'a [HostStatus], args: &ApproveArgs) -> Result<Order<'a>> {
    let (host, code) = compared(hosts, args)?;
    let letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    let name = &host.name;
    ensure!(code.bytes().all(letter), "the box's code of {name} is none");
    let said = json!({"metadata": {"annotations": {APPROVE_ANNOTATION: code}}});
    Ok(Order {
        hosts: vec![host],
        verb: "approve",
        writes: vec![Write::to_host(host, said)],
        done: format!(
            "{name} ({}) is approved; the box goes on with it within ten seconds",
            host.mac
        ),
    })
}

/// The host that is meant and its code, if that was given: of the machine that the box hears as this host, or of one that it
/// does not believe because its TPM is not the host's.
pub fn compared<'a>(
    hosts: &'a [HostStatus],
    approve: &ApproveArgs,
) -> Result<(&'a HostStatus, &'a str)> {
    let host = find(hosts, &approve.server)?;
    let mut codes = [&host.code, &host.other_code]
        .into_iter()
        .filter(|code| !code.is_empty())
        .peekable();
    if codes.peek().is_none() {
        return Err(UsageError(format!(
            "{} has no code yet: it is not in the ramdisk. Start it from the network, and read the code on its screen",
            host.name
        ))
        .into());
    }
    let Some(code) = codes.find(|code| same_code(&approve.code, code)) else {
        return Err(UsageError(format!(
            "this is not the code of the machine that the box hears as {} ({}); nothing was approved. Read the code on the \
             server's own screen again. If it is as you wrote it, another machine pretends to be this server: find it on the \
             switch, take it off, and start the server again",
            host.name, host.mac
        ))
        .into());
    };
    Ok((host, code))
}
