//! A place outside that takes files by SFTP: the program `sftp`, with a key of the box's own.

use std::{path::Path, process::Output, time::Duration};

use anyhow::{Context, Result};
use firstlight_api::{
    backup::{BackupFile, Outside, surplus},
    site::SshKey,
};
use tokio::process::Command;

use super::Failed;
use crate::{
    child,
    files::{self, Access},
    ssh::make_pair,
};

/// Of hundreds of megabytes over somebody's uplink.
const TIME: Duration = Duration::from_hours(1);
const KEY: &str = "key";
const KNOWN: &str = "known_hosts";

/// The key that the place has to admit; made at the first question. `dir` is the box's own folder for it.
pub async fn public_key(dir: &Path) -> Result<SshKey> {
    files::make_dir(dir, 0o700)?;
    let public = dir.join("key.pub");
    if !public.exists() {
        let (private, text) = make_pair(dir, "firstlight-backups").await?;
        files::write(&dir.join(KEY), private.as_bytes(), Access::Owner)?;
        files::write(&public, text.as_bytes(), Access::Owner)?;
    }
    let text = std::fs::read_to_string(&public).context("reading the public key")?;
    SshKey::parse(text.trim()).context("the public key that ssh-keygen made")
}

/// Brings it there, and takes away those that are too many.
pub async fn bring(
    dir: &Path,
    outside: &Outside,
    file: &BackupFile,
    from: &Path,
    count: u8,
) -> Result<(), Failed> {
    let key = public_key(dir).await?;
    let place = &outside.place;
    let host = format!("[{}]:{}", place.address, place.port);
    let known = format!("{host} {}\n", outside.host_key.as_str());
    files::write(&dir.join(KNOWN), known.as_bytes(), Access::Owner)?;
    let folder = &place.folder;
    let name = &file.name;
    let orders = format!(
        "-rm \"{folder}/{name}.new\"\nput \"{}\" \"{folder}/{name}.new\"\nrename \"{folder}/{name}.new\" \"{folder}/{name}\"\nls -1 \"{folder}\"\n",
        from.display()
    );
    let said = sftp(dir, outside, &orders, &key).await?;
    let names = said
        .lines()
        .filter_map(|line| Some(line.trim().rsplit_once('/')?.1.to_owned()));
    let gone = surplus(names.collect(), name, count);
    let gone: Vec<String> = gone
        .iter()
        .map(|name| format!("rm \"{folder}/{name}\"\n"))
        .collect();
    if !gone.is_empty() {
        sftp(dir, outside, &gone.concat(), &key).await?;
    }
    Ok(())
}

async fn sftp(dir: &Path, outside: &Outside, orders: &str, key: &SshKey) -> Result<String, Failed> {
    let known = format!("UserKnownHostsFile={}", dir.join(KNOWN).display());
    let options = [
        "BatchMode=yes",
        "IdentitiesOnly=yes",
        "IdentityAgent=none",
        "PreferredAuthentications=publickey",
        "StrictHostKeyChecking=yes",
        "GlobalKnownHostsFile=/dev/null",
        "ConnectTimeout=60",
        "ServerAliveInterval=30",
        "ServerAliveCountMax=4",
        "LogLevel=ERROR",
        &known,
    ];
    let place = &outside.place;
    let mut sftp = Command::new("sftp");
    sftp.args(["-F", "/dev/null", "-b", "-", "-P", &place.port.to_string()]);
    sftp.arg("-i").arg(dir.join(KEY));
    for option in options {
        sftp.args(["-o", option]);
    }
    sftp.arg(format!("{}@{}", place.user, place.address));
    let output = child::output(&mut sftp, orders.as_bytes(), TIME).await;
    let output = output.context("running sftp")?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(failure(&output, key))
}

fn failure(output: &Output, key: &SshKey) -> Failed {
    let text = String::from_utf8_lossy(&output.stderr);
    // What `sftp` itself says at the end is that.
    let mut said = text.trim().lines();
    let last = said
        .rfind(|line| !line.starts_with("Connection closed"))
        .unwrap_or("the connection was closed");
    let last = firstlight_api::bounded::sentence(last.trim());
    let (why, definite) = if text.contains("Host key verification failed") {
        (
            "it shows another host key than site.yaml has".to_owned(),
            true,
        )
    } else if text.contains("Permission denied (") {
        (
            format!(
                "it does not let the box in ({last}); give it this key: {}",
                key.as_str()
            ),
            true,
        )
    } else {
        (last, false)
    };
    Failed { why, definite }
}
