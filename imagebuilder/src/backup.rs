//! `firstlight backup` and `firstlight restore`: what a box remembers, as an encrypted file, and a new box that goes on with it.
//!
//! The box makes and reads the stream (`agent/update/src/backup.rs`), SSH carries it, and the file is in the age format: who has the
//! passphrase, or the key of a recipient, can read it with `age`, too.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::str::FromStr as _;

use age::secrecy::SecretString;
use age::x25519;
use anyhow::{Context, Result, anyhow, ensure};
use clap::Args;
use firstlight_api::backup::{BackupFile, SUFFIX};

use crate::UsageError;
use crate::box_client::BoxClient;
use crate::build::preflight::output_folder;
use crate::secret;
use crate::ssh::BoxArgs;

const MAKE: &str = "/api/v1/update/backup";
/// On the box.
const FOLDER: &str = "/var/lib/firstlight/backups";
const PROGRAM: &str = "sudo /usr/lib/firstlight/firstlight-update";
/// A file holds every key of the site.
const LEAST_PASSPHRASE: usize = 12;

const WAY: &str = "A backup has the box's keys, its Kubernetes, what it knows of servers, leases and people; not what was uploaded. The box's own Kubernetes is away for some
seconds while it is made; clusters and servers do not notice. The passphrase is asked for, or read from standard input:

  firstlight backup -o lab.backup
  firstlight backup --recipient age1… -o lab.backup    for a key instead (`age-keygen`), so that a nightly job knows no passphrase

With `backup` in site.yaml the box makes one by itself every night:

  firstlight backup --list                             those that are on its stick
  firstlight backup --get NAME -o lab.backup           one of them
  firstlight backup --now                              one more, now

and when the stick or the machine has died, with a new stick of the same or a newer version, in any machine, with the old one's site.yaml:

  firstlight restore lab.backup --box admin@172.22.0.1";

#[derive(Debug, Args)]
#[command(after_help = WAY)]
pub struct BackupArgs {
    #[command(flatten)]
    the_box: BoxArgs,
    /// File to write; it appears when it is complete
    #[arg(short, long, value_name = "FILE", default_value = "firstlight.backup")]
    output: PathBuf,
    /// Encrypt it for this key of age's, instead of a passphrase; may be given several times
    #[arg(long, value_name = "AGE1…", value_parser = recipient)]
    recipient: Vec<x25519::Recipient>,
    #[command(flatten)]
    of_box: OfBox,
}

/// Backups that the box makes by itself.
#[derive(Debug, Args)]
#[group(multiple = false, conflicts_with = "recipient")]
struct OfBox {
    /// Have the box make one now, onto its stick and wherever its site.yaml says, for those whom that names
    #[arg(long)]
    now: bool,
    /// List those that are on its stick
    #[arg(long)]
    list: bool,
    /// Fetch one of those as it is: encrypted for those whom its site.yaml named
    #[arg(long, value_name = "NAME", value_parser = name)]
    get: Option<String>,
}

#[derive(Debug, Args)]
#[command(after_help = WAY)]
pub struct RestoreArgs {
    /// Made by `firstlight backup`
    backup: PathBuf,
    #[command(flatten)]
    the_box: BoxArgs,
    /// File with the key of a recipient, as `age-keygen` writes it
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
}

fn recipient(text: &str) -> Result<x25519::Recipient, String> {
    x25519::Recipient::from_str(text)
        .map_err(|why| format!("{text}: {why}; `age-keygen -y` prints one"))
}

fn name(text: &str) -> Result<String, &'static str> {
    if BackupFile::is_name(text) {
        return Ok(text.to_owned());
    }
    Err("this is no name of a backup; `firstlight backup --list` prints them")
}

pub fn run(args: &BackupArgs) -> Result<String> {
    let of_box = &args.of_box;
    if of_box.now {
        return make(args);
    }
    if of_box.list {
        return list(args);
    }
    match &of_box.get {
        Some(name) => get(args, name),
        None => save(args),
    }
}

fn make(args: &BackupArgs) -> Result<String> {
    let answer = BoxClient::new(&args.the_box)?.ask("POST", MAKE, &[], &[])?;
    answer.check()?;
    let file: BackupFile =
        serde_json::from_slice(&answer.body).context("the box's answer is none")?;
    Ok(format!(
        "{} is on the stick, {} MB\n",
        file.name,
        file.bytes.div_ceil(1 << 20)
    ))
}

fn list(args: &BackupArgs) -> Result<String> {
    let find = format!("[ ! -d {FOLDER} ] || find {FOLDER} -name '*{SUFFIX}' -printf '%f %s\\n'");
    let said = args.the_box.ask(&find)?;
    let mut files: Vec<(&str, u64)> = said
        .lines()
        .filter_map(|line| line.split_once(' '))
        .filter(|(name, _)| BackupFile::is_name(name))
        .filter_map(|(name, bytes)| Some((name, bytes.parse().ok()?)))
        .collect();
    if files.is_empty() {
        return Ok(
            "none; `backup` in site.yaml has the box make them (docs/backup.md)\n".to_owned(),
        );
    }
    files.sort_unstable();
    let line = |(name, bytes): &(&str, u64)| format!("{name}  {} MB\n", bytes.div_ceil(1 << 20));
    Ok(files.iter().map(line).collect())
}

fn get(args: &BackupArgs, name: &str) -> Result<String> {
    let bytes = receive(args, &format!("cat {FOLDER}/{name}"), |from, file| {
        io::copy(from, file).context("writing what the box sends")
    })?;
    Ok(format!(
        "{} is {name}, {} MB\n",
        args.output.display(),
        bytes.div_ceil(1 << 20)
    ))
}

/// What a command on the box prints, into a file that appears when it is complete.
fn receive(
    args: &BackupArgs,
    command: &str,
    take: impl FnOnce(&mut dyn Read, &mut dyn Write) -> Result<u64>,
) -> Result<u64> {
    let what = || format!("writing {}", args.output.display());
    let mut file =
        tempfile::NamedTempFile::new_in(output_folder(&args.output)).with_context(what)?;
    let mut ssh = args
        .the_box
        .way()
        .arg(command)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("running ssh; install openssh-client")?;
    let mut from = ssh.stdout.take().context("ssh has no output")?;
    let taken = take(&mut from, &mut file);
    end(&mut ssh)?;
    let bytes = taken?;
    ensure!(bytes > 0, "the box sent nothing");
    file.as_file().sync_all()?;
    file.persist(&args.output).with_context(what)?;
    Ok(bytes)
}

fn save(args: &BackupArgs) -> Result<String> {
    let encryptor = if args.recipient.is_empty() {
        age::Encryptor::with_user_passphrase(new_passphrase()?)
    } else {
        let recipients = args.recipient.iter().map(|one| one as &dyn age::Recipient);
        age::Encryptor::with_recipients(recipients).map_err(|error| anyhow!("{error}"))?
    };
    let bytes = receive(args, &format!("{PROGRAM} backup"), |from, file| {
        let mut writer = encryptor.wrap_output(file)?;
        let bytes = io::copy(from, &mut writer).context("writing what the box sends")?;
        writer.finish()?.flush()?;
        Ok(bytes)
    })?;
    Ok(format!(
        "{} has what the box remembers, {} MB; it and its passphrase are enough to be this site's box\n",
        args.output.display(),
        bytes.div_ceil(1 << 20)
    ))
}

pub fn restore(args: &RestoreArgs) -> Result<String> {
    let name = args.backup.display();
    let file = File::open(&args.backup).map_err(|error| UsageError(format!("{name}: {error}")))?;
    let mut reader = open(file, args.key.as_deref()).with_context(|| format!("opening {name}"))?;
    let mut ssh = args
        .the_box
        .way()
        .arg(format!("{PROGRAM} restore"))
        .stdin(Stdio::piped())
        .spawn()
        .context("running ssh; install openssh-client")?;
    let mut to = ssh.stdin.take().context("ssh has no input")?;
    // A part that was changed is told before anything of it is used; what the box says comes first.
    let sent = io::copy(&mut reader, &mut to).and_then(|_| to.flush());
    if sent.is_err() {
        // Without its end the box takes none of it.
        drop(ssh.kill());
    }
    drop(to);
    let ended = end(&mut ssh);
    match sent {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            return Err(error).with_context(|| format!("reading {name}"));
        }
        _ => ended?,
    }
    Ok("the box restarts, and is then the one of the backup, with its keys: its SSH host key, too. Put the old stick away: two boxes with one address get in each other's way\n".to_owned())
}

fn end(ssh: &mut Child) -> Result<()> {
    let ended = ssh.wait().context("waiting for ssh")?;
    ensure!(ended.success(), "the box did not do it, and says why above");
    Ok(())
}

fn new_passphrase() -> Result<SecretString> {
    let passphrase = secret::ask_new("A passphrase for the backup: ", "passphrases")?;
    if passphrase.chars().count() < LEAST_PASSPHRASE {
        return Err(UsageError(format!(
            "a passphrase of {LEAST_PASSPHRASE} letters at least: it guards every key of the site"
        ))
        .into());
    }
    Ok(SecretString::from(passphrase))
}

/// What is in a backup; each part is checked as it is read.
fn open<'a>(file: impl Read + 'a, key: Option<&Path>) -> Result<Box<dyn Read + 'a>> {
    let decryptor = age::Decryptor::new(file)
        .map_err(|error| UsageError(format!("this is no backup: {error}")))?;
    let identities = identities(&decryptor, key)?;
    let reader = decryptor
        .decrypt(identities.iter().map(AsRef::as_ref))
        .map_err(|error| UsageError(format!("it does not open: {error}")))?;
    Ok(Box::new(reader))
}

fn identities(
    decryptor: &age::Decryptor<impl Read>,
    key: Option<&Path>,
) -> Result<Vec<Box<dyn age::Identity>>> {
    if let Some(path) = key {
        let file = age::IdentityFile::from_file(path.display().to_string())
            .map_err(|error| UsageError(format!("{}: {error}", path.display())))?;
        return file
            .into_identities()
            .map_err(|error| UsageError(format!("{}: {error}", path.display())).into());
    }
    if !decryptor.is_scrypt() {
        return Err(
            UsageError("this backup is for a key: name its file with --key".to_owned()).into(),
        );
    }
    let passphrase = secret::ask("The passphrase of the backup: ")?;
    Ok(vec![Box::new(age::scrypt::Identity::new(
        SecretString::from(passphrase),
    ))])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use age::secrecy::ExposeSecret as _;
    use proptest::prelude::*;

    use super::*;

    /// A backup, and the file with its key.
    fn sealed(content: &[u8], folder: &Path) -> (Vec<u8>, PathBuf) {
        let key = x25519::Identity::generate();
        let recipient = recipient(&key.to_public().to_string()).unwrap();
        let recipients = std::iter::once(&recipient as &dyn age::Recipient);
        let mut file = Vec::new();
        let mut writer = age::Encryptor::with_recipients(recipients)
            .unwrap()
            .wrap_output(&mut file)
            .unwrap();
        writer.write_all(content).unwrap();
        writer.finish().unwrap();
        let path = folder.join("key.txt");
        std::fs::write(&path, key.to_string().expose_secret()).unwrap();
        (file, path)
    }

    fn read(file: &[u8], key: &Path) -> Result<Vec<u8>> {
        let mut content = Vec::new();
        open(file, Some(key))?.read_to_end(&mut content)?;
        Ok(content)
    }

    #[test]
    fn a_backup_opens_with_its_key_and_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let (file, key) = sealed(b"every key of the site", folder.path());
        assert_eq!(read(&file, &key).unwrap(), b"every key of the site");
        assert!(!file.windows(5).any(|bytes| bytes == b"every"));
        let other = tempfile::tempdir().unwrap();
        let (_, other) = sealed(b"", other.path());
        let error = read(&file, &other).unwrap_err();
        assert!(error.downcast_ref::<UsageError>().is_some(), "{error:#}");
        let error = open(file.as_slice(), None).err().unwrap();
        assert!(error.to_string().contains("--key"), "{error:#}");
        assert!(recipient("age1x").unwrap_err().contains("age-keygen"));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn a_backup_that_was_changed_or_cut_is_an_error(at: prop::sample::Index, bit in 0..8_u8, cut: bool) {
            let folder = tempfile::tempdir().unwrap();
            let content = vec![7; 100_000];
            let (mut file, key) = sealed(&content, folder.path());
            let at = at.index(file.len());
            if cut {
                file.truncate(at);
            } else {
                file[at] ^= 1 << bit;
            }
            prop_assert!(read(&file, &key).is_err());
        }
    }
}
