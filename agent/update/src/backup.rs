//! What a box remembers, as one stream: a tar, compressed with zstd. It has the keys of the site in it; whoever asks for it encrypts it.
//!
//! First comes `backup.json`, last `end`: without it the stream was cut. Uploads are not in it, and neither is Ironic's database, which
//! the box makes anew out of its hosts.

use std::fs;
use std::io::{Read, Write};
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use firstlight_api::bounded;
use firstlight_api::versions::{older, pick};
use serde_json::{Value, json};
use tar::{Archive, Builder, EntryType, Header};

use crate::refusal::refuse;
use crate::state::{RESERVE, State, bytes_of};

const FORMAT: u64 = 1;
const ABOUT: &str = "backup.json";
const END: &str = "end";
const LEVEL: i32 = 9;
/// etcd's own copy, which `etcd-data` makes while etcd is stopped.
const ETCD_COPY: &str = "etcd/copy-1";
const ETCD: &str = "etcd/member";
/// Asks for one, however young the last one is.
const WANTED: &str = "etcd/copy-wanted";
/// Folders that are copied as they are, and those of which each entry is.
const WHOLE: [&str; 3] = ["pki", "kube", "ssh"];
/// Of `agent/`: large, and of the machine.
const LEFT: [&str; 5] = [
    "store",
    "images",
    "apt",
    "provisioning-nic",
    "before-update.json",
];
/// Of all that is unpacked: etcd's quota and as much again.
const MOST: u64 = 2 << 30;

/// Has etcd make a copy of this moment: the box's Kubernetes is away for some seconds.
pub fn copy_etcd(state: State<'_>) -> Result<()> {
    fs::write(state.0.join(WANTED), "").context("asking for a copy of etcd's data")?;
    let restarted = Command::new("systemctl")
        .args(["restart", "etcd.service"])
        .output();
    let restarted = restarted.context("starting systemctl")?;
    let said = bounded::sentence(String::from_utf8_lossy(&restarted.stderr).trim());
    ensure!(
        restarted.status.success(),
        "etcd does not start again: {said}"
    );
    // Gone, if there is one.
    ensure!(
        fs::remove_file(state.0.join(WANTED)).is_err(),
        "etcd made no copy of its data: see `journalctl -u etcd`; is there room for one?"
    );
    Ok(())
}

/// What one may take, in bytes.
pub fn most_bytes(state: State<'_>) -> u64 {
    let parts = WHOLE.iter().chain(&["etcd/member"]);
    let parts = parts.map(|name| bytes_of(&state.0.join(name)));
    let agent = state.0.join("agent");
    let own = entries(&agent).unwrap_or_default();
    let own = own.iter().map(|name| bytes_of(&agent.join(name)));
    parts.chain(own).sum()
}

/// `versions`: this system's.
pub fn write(state: State<'_>, versions: &Value, output: impl Write) -> Result<()> {
    let mut tar = Builder::new(zstd::Encoder::new(output, LEVEL)?);
    tar.follow_symlinks(false);
    // One kind of file is enough for who reads it; zeros are packed to nothing.
    tar.sparse(false);
    let about = json!({"format": FORMAT, "versions": versions}).to_string();
    append(&mut tar, ABOUT, about.as_bytes())?;
    let mut items: Vec<(PathBuf, PathBuf)> = Vec::new();
    for name in WHOLE {
        items.push((name.into(), name.into()));
    }
    for name in entries(&state.0.join("agent"))? {
        let name = Path::new("agent").join(name);
        items.push((name.clone(), name));
    }
    items.push((ETCD_COPY.into(), ETCD.into()));
    for (from, name) in items {
        let path = state.0.join(&from);
        let what = || format!("reading {}", path.display());
        let kind = path.symlink_metadata().with_context(what)?.file_type();
        if kind.is_dir() {
            tar.append_dir_all(&name, &path).with_context(what)?;
        } else if kind.is_file() {
            tar.append_path_with_name(&path, &name).with_context(what)?;
        }
    }
    append(&mut tar, END, b"")?;
    tar.into_inner()?.finish()?.flush()?;
    Ok(())
}

fn append(tar: &mut Builder<impl Write>, name: &str, content: &[u8]) -> Result<()> {
    let mut header = Header::new_gnu();
    header.set_mode(0o600);
    header.set_size(content.len() as u64);
    Ok(tar.append_data(&mut header, name, content)?)
}

fn entries(agent: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(agent).with_context(|| format!("reading {}", agent.display()))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if !LEFT.contains(&name.as_str()) {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// Unpacks a backup beside the state; the next start of the box goes on with it.
pub fn unpack(state: State<'_>, versions: &Value, input: impl Read) -> Result<()> {
    if state.trial().is_some() {
        return Err(refuse(
            "an update is on its way",
            "wait until the page says that the running system stays",
        ));
    }
    let new = state.make_room_for_restore()?;
    // The programs of the box go on beside it, and write, too.
    let room = MOST.min(state.free()?.saturating_sub(RESERVE));
    match unpack_into(&new, versions, input, room) {
        Ok(()) => state.restore_at_start(&new),
        Err(error) => {
            state.make_room_for_restore()?;
            Err(error)
        }
    }
}

fn unpack_into(new: &Path, versions: &Value, input: impl Read, room: u64) -> Result<()> {
    let mut archive = Archive::new(zstd::Decoder::new(input)?.take(room));
    archive.set_preserve_permissions(true);
    archive.set_preserve_ownerships(true);
    archive.set_unpack_xattrs(false);
    let mut about = false;
    let mut ended = false;
    for entry in archive.entries().context("reading the backup")? {
        let mut entry =
            entry.context("reading the backup: was it cut, or is there no room for it?")?;
        let path = entry.path().context("reading the backup")?.into_owned();
        let name = bounded::text(&path.display().to_string());
        ensure!(!ended, "the backup goes on after its end");
        if path == Path::new(ABOUT) {
            check(&mut entry, versions)?;
            about = true;
            continue;
        }
        ensure!(about, "this is no backup of a box: it begins with {name}");
        if path == Path::new(END) {
            ended = true;
            continue;
        }
        let kind = entry.header().entry_type();
        let plain = matches!(kind, EntryType::Regular | EntryType::Directory);
        ensure!(
            plain && is_known(&path),
            "{name} is nothing that a backup has"
        );
        ensure!(
            entry
                .unpack_in(new)
                .with_context(|| format!("unpacking {name}"))?,
            "{name} leads out of the backup"
        );
    }
    ensure!(
        ended,
        "the backup was cut, or there is no room for it: it has no end"
    );
    Ok(())
}

fn check(entry: &mut impl Read, versions: &Value) -> Result<()> {
    let mut text = Vec::new();
    entry.take(1 << 20).read_to_end(&mut text)?;
    let about: Value =
        serde_json::from_slice(&text).context("the backup does not say what it is")?;
    ensure!(
        about.get("format").and_then(Value::as_u64) == Some(FORMAT),
        "the backup is of another format"
    );
    let theirs = pick(about.get("versions").unwrap_or(&Value::Null));
    match older(&pick(versions), &theirs) {
        None => Ok(()),
        Some(older) => Err(refuse(
            format!("this box is older than the backup: it has {older}"),
            "write the image of that version, or a newer one, to the stick",
        )),
    }
}

fn is_known(path: &Path) -> bool {
    let mut parts = path.components();
    let Some(Component::Normal(first)) = parts.next() else {
        return false;
    };
    let is_folder = WHOLE.iter().chain(&["agent"]).any(|name| first == *name);
    (is_folder || path.starts_with(ETCD)) && parts.all(|part| matches!(part, Component::Normal(_)))
}
