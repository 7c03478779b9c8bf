//! A backup that the box makes by itself, onto its state partition: encrypted for those who may read it, before a byte of it is written.

use std::fs::{self, File, Permissions};
use std::io::{BufWriter, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use age::x25519::Recipient;
use anyhow::{Context, Result, anyhow, ensure};
use firstlight_api::backup::{AgeRecipient, BackupFile, surplus};
use serde_json::Value;

use crate::backup;
use crate::refusal::refuse;
use crate::state::{RESERVE, State};

const FOLDER: &str = "backups";
const UNFINISHED: &str = "unfinished";

/// What is wanted.
#[derive(Clone, Copy, Debug)]
pub struct NewBackup<'a> {
    /// Of the file.
    pub name: &'a str,
    pub recipients: &'a [AgeRecipient],
    /// How many stay.
    pub count: u8,
}

/// Has etcd make a copy of this moment first.
pub fn make(state: State<'_>, versions: &Value, wanted: NewBackup<'_>) -> Result<BackupFile> {
    check_room(state)?;
    backup::copy_etcd(state)?;
    write(state, versions, wanted)
}

fn check_room(state: State<'_>) -> Result<()> {
    let (needed, free) = (backup::most_bytes(state), state.free()?);
    if needed.saturating_add(RESERVE) <= free {
        return Ok(());
    }
    Err(refuse(
        format!(
            "the state partition has {} MB free, and a backup may take {}",
            free >> 20,
            (needed + RESERVE) >> 20
        ),
        "delete uploads that nobody needs (`firstlight push --help`), or keep fewer backups (`backup.count` in site.yaml)",
    ))
}

/// Of what is on the state partition, with the copy that etcd has made.
pub fn write(state: State<'_>, versions: &Value, wanted: NewBackup<'_>) -> Result<BackupFile> {
    ensure!(
        BackupFile::is_name(wanted.name),
        "a backup cannot have the name {:?}",
        wanted.name
    );
    let keys = wanted
        .recipients
        .iter()
        .map(parse)
        .collect::<Result<Vec<_>>>()?;
    let folder = state.0.join(FOLDER);
    fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    let unfinished = folder.join(UNFINISHED);
    let written = encrypt(state, versions, &keys, &unfinished);
    let bytes = match written {
        Ok(bytes) => bytes,
        Err(error) => {
            drop(fs::remove_file(&unfinished));
            return Err(error);
        }
    };
    let path = folder.join(wanted.name);
    fs::rename(&unfinished, &path).with_context(|| format!("naming {}", path.display()))?;
    File::open(&folder)?.sync_all()?;
    thin_out(&folder, wanted)?;
    Ok(BackupFile {
        name: wanted.name.to_owned(),
        bytes,
    })
}

fn parse(recipient: &AgeRecipient) -> Result<Recipient> {
    let key = recipient.as_str().parse();
    key.map_err(|why| anyhow!("{}: {why}", recipient.as_str()))
}

fn encrypt(state: State<'_>, versions: &Value, keys: &[Recipient], path: &Path) -> Result<u64> {
    let keys = keys.iter().map(|key| key as &dyn age::Recipient);
    let encryptor = age::Encryptor::with_recipients(keys).map_err(|error| anyhow!("{error}"))?;
    let what = || format!("writing {}", path.display());
    let file = File::create(path).with_context(what)?;
    // The agent brings it to other places; what it can read is of no use to it.
    file.set_permissions(Permissions::from_mode(0o644))?;
    let mut writer = encryptor.wrap_output(BufWriter::new(file))?;
    backup::write(state, versions, &mut writer)?;
    let mut file = writer.finish()?;
    file.flush().with_context(what)?;
    let file = file.into_inner().with_context(what)?;
    file.sync_all().with_context(what)?;
    Ok(file.metadata()?.len())
}

fn thin_out(folder: &Path, wanted: NewBackup<'_>) -> Result<()> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    for name in surplus(names, wanted.name, wanted.count) {
        fs::remove_file(folder.join(&name)).with_context(|| format!("removing {name}"))?;
    }
    Ok(())
}
