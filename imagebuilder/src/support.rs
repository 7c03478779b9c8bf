//! `firstlight support`: what somebody who helps needs to see of a box, in one file that may be sent by mail. It is collected by one login,
//! and what is a secret there is taken out on the way (`scrub`), before anything is written here.

mod scrub;

use std::fmt::Write as _;
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use firstlight_api::bounded;
use firstlight_api::health::health;
use firstlight_api::status::SiteStatus;
use tar::{Archive, Builder, EntryType, Header};

use crate::UsageError;
use crate::build::preflight::output_folder;
use crate::ssh::BoxArgs;
use crate::status;
use scrub::Secrets;

const HELPING: &str = "The file has versions, what the page says, the box's journal, its objects (no Secrets), the logs of its pods, its network, disks and hardware. Every
value of every Secret of the box, and what looks like a password, a token or a private key, is replaced by (removed).

  firstlight support                            writes firstlight-support.tar.zst
  firstlight support --read that-file.tar.zst   says how that site was, and what is in the file

Other names and addresses stay: of servers, of people who log in, of networks. Look into it before you send it: `tar --zstd -xf FILE`.";

/// Bytes of one part.
const MOST_OF_PART: u64 = 4 << 20;
/// Bytes of all parts together, and of the file that is written.
const MOST: u64 = 160 << 20;
const LARGEST_FILE: u64 = 20 << 20;
/// What comes along for `scrub`, and is not written.
const SECRETS: &str = "secrets.json";
const STATUS: &str = "status.json";

/// Name of the file, and the command on the box. What fails there is in the file, too.
const PARTS: [(&str, &str); 20] = [
    (
        SECRETS,
        "kubectl get secrets --all-namespaces --output json",
    ),
    (
        STATUS,
        r#"bash -c 'exec 3<>/dev/tcp/127.0.0.1/80; printf "GET /api/v1/status HTTP/1.0\r\nHost: box\r\n\r\n" >&3; sed "1,/^\r$/d" <&3'"#,
    ),
    ("versions.json", "cat /usr/share/firstlight/versions.json"),
    ("site.yaml", "cat /firstlight/site/site.yaml"),
    (
        "journal.txt",
        "journalctl --boot --no-pager --output short-monotonic",
    ),
    (
        "warnings-before.txt",
        "cat /var/lib/firstlight/agent/warnings.log",
    ),
    ("units.txt", "systemctl --no-pager --all list-units"),
    ("kernel.txt", "sh -c 'uname -a; cat /proc/cmdline; dmesg'"),
    (
        "hardware.txt",
        "sh -c 'head -30 /proc/cpuinfo; cat /proc/meminfo; for file in vendor name version bios_version; do cat /sys/class/dmi/id/*$file; done'",
    ),
    (
        "disks.txt",
        "sh -c 'lsblk --output-all; df -h; df -i; cat /proc/mdstat'",
    ),
    (
        "network.txt",
        "sh -c 'ip -details address; ip route; ip neighbour; ss -lntu; nft list ruleset'",
    ),
    (
        "time.txt",
        "sh -c 'date; chronyc -n sources; chronyc tracking'",
    ),
    (
        "memory.txt",
        "sh -c 'free -m; ps -eo pid,user,rss,pcpu,etime,comm --sort -rss'",
    ),
    (
        "pods.txt",
        "kubectl get pods --all-namespaces --output wide",
    ),
    (
        "events.txt",
        "kubectl get events --all-namespaces --sort-by .lastTimestamp",
    ),
    (
        "hosts.yaml",
        "kubectl get baremetalhosts,hardwaredata --all-namespaces --output yaml",
    ),
    (
        "clusters.yaml",
        "kubectl get clusters,machines,machinesets,machinedeployments,machinehealthchecks,kubeadmcontrolplanes,metal3clusters,metal3machines,metal3remediations --all-namespaces --output yaml",
    ),
    (
        "work.yaml",
        "kubectl get addons,software,clusterupgrades,ippools,ipclaims,ipaddresses --all-namespaces --output yaml",
    ),
    (
        "pod-logs.txt",
        "sh -c 'cd /var/lib/firstlight/log/pods && for log in */*/*.log; do echo \"== $log\"; tail -n 300 \"$log\"; done'",
    ),
    (
        "etcd.txt",
        "sh -c 'du -sh /var/lib/firstlight/*; ls -la /var/lib/firstlight/agent'",
    ),
];

#[derive(Debug, Args)]
#[command(after_help = HELPING)]
pub struct SupportArgs {
    #[command(flatten)]
    the_box: BoxArgs,
    /// File to write; it appears when it is complete
    #[arg(
        short,
        long,
        value_name = "FILE",
        default_value = "firstlight-support.tar.zst"
    )]
    output: PathBuf,
    /// Ask no box, but say what is in such a file
    #[arg(long, value_name = "FILE")]
    read: Option<PathBuf>,
}

pub fn run(args: &SupportArgs) -> Result<String> {
    if let Some(file) = &args.read {
        return read(file);
    }
    let mut ssh = args
        .the_box
        .ssh()
        .args(["--", &args.the_box.host, &command()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("running ssh; install openssh-client")?;
    let collected = ssh.stdout.take().context("ssh has no output")?;
    let parts = collect(collected);
    let ended = ssh.wait().context("waiting for ssh")?;
    ensure!(
        ended.success(),
        "the box could not be asked: ssh said why above"
    );
    let count = write(&parts?, &args.output)?;
    Ok(format!(
        "{} has {count} parts without the box's secrets; it may be sent. `firstlight support --read` says what is in it\n",
        args.output.display()
    ))
}

/// One script for root on the box, whose output is a tar. Its folder is in memory.
fn command() -> String {
    let mut script = "cd $(mktemp -d) && trap \"rm -rf $PWD\" EXIT\n".to_owned();
    for (name, command) in PARTS {
        let most = MOST_OF_PART;
        // The end of what is too long: a log's newest lines.
        let _ = writeln!(
            script,
            "{{ timeout 60 {command} 2>&1 || echo \"(ended with $?)\"; }} | tail -c {most} >{name}"
        );
    }
    script.push_str("tar -cf - *\n");
    // Quoted once more for the login's shell.
    format!("sudo sh -c '{}'", script.replace('\'', r"'\''"))
}

type Part = (String, String);

fn collect(tar: impl Read) -> Result<Vec<Part>> {
    let mut parts = Vec::new();
    let mut archive = Archive::new(tar.take(MOST));
    for entry in archive.entries().context("reading what the box sent")? {
        let entry = entry.context("reading what the box sent; was the connection cut?")?;
        let path = entry.path().context("a part has no name")?;
        let name = path.to_string_lossy().trim_start_matches("./").to_owned();
        let known = PARTS.iter().any(|(known, _)| *known == name);
        ensure!(
            known && entry.header().entry_type() == EntryType::Regular,
            "the box sent {:?}, which is no part of a bundle",
            bounded::text(&name)
        );
        let mut bytes = Vec::new();
        // A half letter at its beginning is none.
        entry.take(MOST_OF_PART + 1).read_to_end(&mut bytes)?;
        parts.push((name, String::from_utf8_lossy(&bytes).into_owned()));
    }
    Ok(parts)
}

/// How many parts there are.
fn write(parts: &[Part], output: &Path) -> Result<usize> {
    let secrets = parts.iter().find(|(name, _)| name == SECRETS);
    let (_, secrets) = secrets.context(
        "the box did not say what its secrets are, so nothing was written; is its Kubernetes up?",
    )?;
    let secrets = Secrets::parse(secrets).context(
        "the box did not say what its secrets are, so nothing was written; is its Kubernetes up? `ssh admin@BOX kubectl get secrets -A` tells",
    )?;
    let mut file = tempfile::NamedTempFile::new_in(output_folder(output))?;
    let mut builder = Builder::new(zstd::Encoder::new(&mut file, 9)?);
    let mut count = 0;
    for (name, text) in parts.iter().filter(|(name, _)| name != SECRETS) {
        let text = secrets.scrub(text);
        let mut header = Header::new_ustar();
        header.set_mode(0o644);
        header.set_size(text.len() as u64);
        builder.append_data(&mut header, name, text.as_bytes())?;
        count += 1;
    }
    builder.into_inner()?.finish()?.flush()?;
    let size = file.as_file().metadata()?.len();
    ensure!(
        size <= LARGEST_FILE,
        "it would be {} MiB, and no more than {} are sent by mail",
        size >> 20,
        LARGEST_FILE >> 20
    );
    file.persist(output)
        .with_context(|| format!("writing {}", output.display()))?;
    Ok(count)
}

fn read(file: &Path) -> Result<String> {
    let name = file.display();
    let opened = File::open(file).map_err(|error| UsageError(format!("{name}: {error}")))?;
    let parts =
        collect(zstd::Decoder::new(opened)?).with_context(|| format!("{name} is no such file"))?;
    let Some((_, site)) = parts.iter().find(|(part, _)| part == STATUS) else {
        bail!("{name} does not have {STATUS}");
    };
    let mut out = match serde_json::from_str::<SiteStatus>(site) {
        Ok(site) => status::text(&site, &health(&site)),
        Err(error) => format!("what the page said cannot be read: {error}\n"),
    };
    out.push_str("\nIn the file:\n");
    for (part, text) in &parts {
        let _ = writeln!(out, "  {part:<22} {} lines", text.lines().count());
    }
    Ok(out)
}

#[cfg(test)]
mod tests;
