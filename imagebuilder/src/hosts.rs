//! `firstlight hosts`: the servers that the box knows, and a person's word that one of them may join (`join: approve`).
//!
//! What is known comes from the box's status. The word is an annotation of the `BareMetalHost`, which whoever may log in
//! as `admin` may write: the segment has no way to it. The box compares the code again with the key that speaks then.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use clap::{Args, Subcommand};
use firstlight_api::bmh::APPROVE_ANNOTATION;
use firstlight_api::signed::same_code;
use firstlight_api::site::HostName;
use firstlight_api::status::{HostStatus, SiteStatus};

use crate::UsageError;
use crate::box_client::BoxClient;
use crate::ssh::ssh;

const STATUS_PATH: &str = "/api/v1/status";

const APPROVING: &str = "With `join: approve` in site.yaml the box leaves a new server alone until somebody has compared its code:

  1. firstlight hosts list                     which servers wait
  2. read the code on the server's own screen, not in the list: whoever pretends to be it has another one
  3. firstlight hosts approve NAME --code 7Q2M-XK4P-09AB-CDEF

The approval is for the key that this server made when it started its ramdisk, and for its TPM, if it has one: then it holds
after restarts too. A server whose mainboard or TPM was replaced is approved again, with the code on its screen.";

#[derive(Debug, Args)]
pub struct HostsArgs {
    #[command(subcommand)]
    command: HostsCommand,
    /// The box, as SSH is told; `list` also takes a forwarded port, like `http://127.0.0.1:8080`
    #[arg(
        long = "box",
        value_name = "HOST",
        default_value = "admin@172.22.0.1",
        global = true
    )]
    host: String,
    /// SSH key, if it is not your default one
    #[arg(short, long, value_name = "FILE", global = true)]
    identity: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum HostsCommand {
    /// Each server: name, MAC address, state, code, and what happens or why not
    List,
    /// Let a server join whose code you have read on its own screen
    #[command(after_help = APPROVING)]
    Approve(ApproveArgs),
}

#[derive(Debug, Args)]
struct ApproveArgs {
    /// Its name, the beginning of it, or its MAC address
    #[arg(value_name = "NAME|MAC")]
    server: String,
    /// As its screen shows it; dashes and capitals do not matter
    #[arg(long)]
    code: String,
}

pub fn run(args: &HostsArgs) -> Result<String> {
    let hosts = look(&mut BoxClient::new(&args.host, args.identity.as_deref())?)?;
    match &args.command {
        HostsCommand::List => Ok(list(&hosts)),
        HostsCommand::Approve(approve) => {
            let (host, code) = compared(&hosts, approve)?;
            if args.host.starts_with("http://") {
                let what =
                    "an approval needs a login: give --box as SSH is told, like admin@172.22.0.1";
                return Err(UsageError(what.to_owned()).into());
            }
            let mut way = ssh(args.identity.as_deref());
            way.arg("--").arg(&args.host);
            annotate(way, host, code)
        }
    }
}

fn look(the_box: &mut BoxClient) -> Result<Vec<HostStatus>> {
    let answer = the_box.ask("GET", STATUS_PATH, &[], &[])?;
    answer.check()?;
    let status: SiteStatus = serde_json::from_slice(&answer.body)
        .context("the box's answer is no status; is it of another version?")?;
    Ok(status.hosts)
}

fn list(hosts: &[HostStatus]) -> String {
    let head = ["NAME", "MAC", "STATE", "CODE", "WHY"].map(str::to_owned);
    let rows: Vec<[String; 5]> = std::iter::once(head).chain(hosts.iter().map(row)).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: [usize; 4] = std::array::from_fn(|column| width(column).unwrap_or(0));
    let mut text = String::new();
    for row in &rows {
        for (cell, width) in row.iter().zip(widths) {
            let _ = write!(text, "{cell:width$}  ");
        }
        let _ = writeln!(text, "{}", row[4]);
    }
    text
}

/// One line each, so that nothing that a server says can look like another server's line.
fn row(host: &HostStatus) -> [String; 5] {
    let why = match &host.problem {
        Some(problem) => format!("{}; {}", problem.what, problem.next),
        None => host.step.clone(),
    };
    let code = Some(&host.code).filter(|code| !code.is_empty());
    let code = code.map_or("-", String::as_str);
    [
        host.name.as_str(),
        &host.mac,
        host.state.as_str(),
        code,
        &why,
    ]
    .map(|text| {
        text.chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect()
    })
}

/// The host that is meant and its code, if that was given: of the machine that the box hears as this host, or of one that it
/// does not believe because its TPM is not the host's.
fn compared<'a>(
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

fn find<'a>(hosts: &'a [HostStatus], wanted: &str) -> Result<&'a HostStatus> {
    let wanted = wanted.to_lowercase();
    let mac = wanted.replace('-', ":");
    let named: Vec<_> = hosts
        .iter()
        .filter(|host| host.name == wanted || host.mac == mac)
        .collect();
    let found = if named.is_empty() {
        let begins = |host: &&HostStatus| host.name.starts_with(&wanted);
        hosts.iter().filter(begins).collect()
    } else {
        named
    };
    match found[..] {
        [host] => Ok(host),
        [] => Err(UsageError(unknown(hosts, &wanted)).into()),
        _ => {
            let candidates: Vec<String> = found
                .iter()
                .map(|host| format!("{} ({})", host.name, host.mac))
                .collect();
            Err(UsageError(format!(
                "`{wanted}` may be {}; give the whole name or the MAC address",
                candidates.join(", ")
            ))
            .into())
        }
    }
}

fn unknown(hosts: &[HostStatus], wanted: &str) -> String {
    let distance = |host: &&HostStatus| strsim::damerau_levenshtein(wanted, &host.name);
    match hosts.iter().min_by_key(distance) {
        Some(nearest) => format!(
            "the box knows no server `{wanted}`; the nearest name is {} ({})",
            nearest.name, nearest.mac
        ),
        None => "the box has seen no server yet: start one from the network, on the box's segment"
            .to_owned(),
    }
}

/// `way` is an `ssh` with everything but the command.
fn annotate(mut way: Command, host: &HostStatus, code: &str) -> Result<String> {
    let output = way
        .arg(annotation(host, code)?)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .output()
        .context("running ssh; install openssh-client")?;
    ensure!(
        output.status.success(),
        "the box did not take the approval of {}: {}",
        host.name,
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(format!(
        "{} ({}) is approved; the box goes on with it within ten seconds\n",
        host.name, host.mac
    ))
}

/// It goes into a shell on the box: only what can be a name and a code is let through.
fn annotation(host: &HostStatus, code: &str) -> Result<String> {
    let name = HostName::parse(&host.name)?;
    let namespace = HostName::parse(&host.namespace)?;
    let letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    ensure!(code.bytes().all(letter), "the box's code of {name} is none");
    Ok(format!(
        "kubectl annotate --overwrite baremetalhosts.metal3.io {name} --namespace {namespace} {APPROVE_ANNOTATION}={code}"
    ))
}

#[cfg(test)]
mod tests;
