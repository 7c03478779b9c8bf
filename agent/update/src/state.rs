//! The state partition over an update. Before a new system runs for the first time, what it may change is copied; when the box goes back,
//! the copy is what it goes on with, so that an older etcd, Ironic or agent never meets what a newer one wrote.
//!
//! `update/` on the state partition is root's: `trial.json` from the order to the outcome, `before/` the copy, `outcome.json` what came
//! of it. Each step may be cut anywhere and is taken up at the next start.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use firstlight_api::boot_choice::SystemSlot;
use firstlight_api::bounded;
use firstlight_api::update::UpdateOutcome;
use serde_json::{Value, json};

use crate::refusal::refuse;

/// Folders of the state partition that are copied as they are.
const WHOLE: [&str; 4] = ["pki", "kube", "ironic", "ssh"];
/// And those of which each entry is.
const PARTS: [&str; 2] = ["etcd", "agent"];
/// Large, and the same for every version: uploads by their digests, and what is made of them. etcd's own copies may be any number of
/// versions old as it is.
const LEFT: [&str; 6] = ["store", "images", "apt", "copy-1", "copy-2", "copy-new"];
/// A backup that the next start goes on with.
const RESTORE: &str = "restore";
/// Stays free beside a copy, in bytes.
pub const RESERVE: u64 = 256 << 20;
const NEVER_CAME: &str = "it did not come as far as the state partition";
const CUT_SHORT: &str = "the box started again before the new system had shown that it works";

/// An update from the order to its outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trial {
    pub from: SystemSlot,
    pub to: SystemSlot,
    /// Of Firstlight, in the new system.
    pub version: String,
}

/// What a start means for an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// There is none on its way.
    Plain,
    /// The new system runs for the first time, and the copy is made.
    Tried,
    /// The new system stays; what was left to tidy up is.
    Kept,
    /// The box is back at the old one.
    Back,
    /// It goes on with a backup.
    Restored,
}

/// The state partition.
#[derive(Clone, Copy, Debug)]
pub struct State<'a>(pub &'a Path);

impl State<'_> {
    fn own(&self, name: &str) -> PathBuf {
        self.0.join("update").join(name)
    }

    /// A folder of this name, empty. What is copied into it may be everybody's, because the folder that it is from is not.
    fn private(&self, name: &str) -> Result<PathBuf> {
        let folder = self.own(name);
        remove(&folder)?;
        let made = fs::create_dir_all(self.own(""))
            .and_then(|()| DirBuilder::new().mode(0o700).create(&folder));
        made.with_context(|| format!("making {}", folder.display()))?;
        Ok(folder)
    }

    /// Bytes.
    pub fn free(&self) -> Result<u64> {
        let found = nix::sys::statvfs::statvfs(self.0).context("asking for free room")?;
        Ok(found.blocks_available() * found.fragment_size())
    }

    pub fn outcome(&self) -> PathBuf {
        self.own("outcome.json")
    }

    /// Notes that the new system is about to be tried.
    pub fn begin(&self, trial: &Trial) -> Result<()> {
        let needed = self
            .items()?
            .iter()
            .map(|item| bytes_of(&self.0.join(item)))
            .sum::<u64>();
        let free = self.free()?;
        if needed.saturating_add(RESERVE) > free {
            return Err(refuse(
                format!(
                    "the state partition has {} MB free, and a copy of what the new system could change takes {}",
                    free >> 20,
                    (needed + RESERVE) >> 20
                ),
                "delete uploads that nobody needs (`firstlight push --help`), and order the update again",
            ));
        }
        self.private("newer")?;
        remove(&self.own("before"))?;
        remove(&self.own("why"))?;
        // Of the last one: nobody shall take it for this one's.
        remove(&self.outcome())?;
        let trial = json!({"from": trial.from, "to": trial.to, "version": trial.version});
        write(&self.own("trial.json"), trial.to_string().as_bytes())
    }

    pub fn trial(&self) -> Option<Trial> {
        let text = fs::read(self.own("trial.json")).ok()?;
        let value: Value = serde_json::from_slice(&text).ok()?;
        let slot = |key: &str| serde_json::from_value(value.get(key)?.clone()).ok();
        Some(Trial {
            from: slot("from")?,
            to: slot("to")?,
            version: value.get("version")?.as_str()?.to_owned(),
        })
    }

    /// Before anything of the box looks at the state partition. `is_trial`: GRUB started the running system for once.
    pub fn start(&self, running: SystemSlot, is_trial: bool) -> Result<Start> {
        let restore = self.own(RESTORE);
        if restore.exists() {
            self.restore(&restore)?;
            return Ok(Start::Restored);
        }
        let Some(trial) = self.trial() else {
            return Ok(Start::Plain);
        };
        if running != trial.to {
            self.go_back(&trial)?;
            return Ok(Start::Back);
        }
        if !is_trial {
            self.keep(&trial)?;
            return Ok(Start::Kept);
        }
        if !self.own("before/complete").exists() {
            self.copy()
                .context("copying what the new system could change")?;
        }
        Ok(Start::Tried)
    }

    /// Relative paths.
    fn items(&self) -> Result<Vec<PathBuf>> {
        items_below(self.0)
    }

    fn copy(&self) -> Result<()> {
        let before = self.private("before")?;
        for item in self.items()? {
            let to = before.join(&item);
            fs::create_dir_all(to.parent().context("an item has a folder")?)?;
            let copied = Command::new("cp")
                .args(["--archive", "--no-target-directory", "--"])
                .args([&self.0.join(&item), &to])
                .output()
                .context("starting cp")?;
            ensure!(
                copied.status.success(),
                "{}",
                bounded::sentence(String::from_utf8_lossy(&copied.stderr).trim())
            );
        }
        sync(self.0)?;
        write(&before.join("complete"), b"")
    }

    fn go_back(&self, trial: &Trial) -> Result<()> {
        let (before, newer) = (self.own("before"), self.own("newer"));
        let is_complete = before.join("complete").exists();
        if is_complete {
            for item in items_below(&before)? {
                let place = self.0.join(&item);
                put_aside(&place, &newer.join(&item))?;
                rename(&before.join(&item), &place)?;
            }
            sync(self.0)?;
        }
        let default = if is_complete { CUT_SHORT } else { NEVER_CAME };
        let why = fs::read(self.own("why")).ok();
        let why = why.map_or_else(
            || default.to_owned(),
            |why| bounded::sentence(String::from_utf8_lossy(&why).trim()),
        );
        self.end(trial, false, why)
    }

    /// Once GRUB starts it always.
    pub fn keep(&self, trial: &Trial) -> Result<()> {
        self.end(trial, true, String::new())
    }

    /// A folder for what is restored, empty.
    pub fn make_room_for_restore(&self) -> Result<PathBuf> {
        self.private("newer")?;
        self.private("restore.new")
    }

    /// `new` is whole: the next start goes on with it.
    pub fn restore_at_start(&self, new: &Path) -> Result<()> {
        sync(self.0)?;
        remove(&self.own(RESTORE))?;
        rename(new, &self.own(RESTORE))?;
        sync(self.0)
    }

    /// What the backup does not have is of another box, and goes.
    fn restore(&self, from: &Path) -> Result<()> {
        let theirs = items_below(from)?;
        let aside = self.own("newer");
        let mine = items_below(self.0)?.into_iter().filter(|item| {
            // Moved already, before a power cut.
            theirs.contains(item) || !from.join("swapped").exists()
        });
        for item in mine.collect::<Vec<_>>() {
            put_aside(&self.0.join(&item), &aside.join(&item))?;
        }
        write(&from.join("swapped"), b"")?;
        for item in theirs {
            let place = self.0.join(&item);
            fs::create_dir_all(place.parent().context("an item has a folder")?)?;
            rename(&from.join(&item), &place)?;
        }
        for copy in ["copy-1", "copy-2", "damaged", "restored"] {
            remove(&self.0.join("etcd").join(copy))?;
        }
        sync(self.0)?;
        // By another name at once: with its note gone and the rest of it there, it would be taken for one that had not begun.
        let done = self.own("restore.done");
        remove(&done)?;
        rename(from, &done)?;
        sync(self.0)?;
        remove(&done)?;
        remove(&aside)
    }

    fn end(&self, trial: &Trial, kept: bool, why: String) -> Result<()> {
        let outcome = UpdateOutcome {
            kept,
            version: bounded::text(&trial.version),
            why,
        };
        write(&self.outcome(), &serde_json::to_vec(&outcome)?)?;
        fs::remove_file(self.own("trial.json")).context("ending the update")?;
        for name in ["before", "newer", "why"] {
            remove(&self.own(name))?;
        }
        Ok(())
    }

    /// For the old system, which tells people.
    pub fn note_why(&self, why: &str) -> Result<()> {
        write(&self.own("why"), why.as_bytes())
    }
}

/// If there is something.
fn put_aside(place: &Path, aside: &Path) -> Result<()> {
    if place.symlink_metadata().is_err() {
        return Ok(());
    }
    remove(aside)?;
    fs::create_dir_all(aside.parent().context("an item has a folder")?)?;
    rename(place, aside)
}

/// What is copied, or in a copy.
fn items_below(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut items = Vec::new();
    for name in WHOLE {
        if folder.join(name).symlink_metadata().is_ok() {
            items.push(PathBuf::from(name));
        }
    }
    for name in PARTS {
        let entries = match fs::read_dir(folder.join(name)) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error).with_context(|| format!("reading {name}")),
        };
        for entry in entries {
            let entry = entry?.file_name();
            if !LEFT.iter().any(|left| entry == *left) {
                items.push(Path::new(name).join(entry));
            }
        }
    }
    Ok(items)
}

pub fn bytes_of(path: &Path) -> u64 {
    let Ok(meta) = path.symlink_metadata() else {
        return 0;
    };
    let below = fs::read_dir(path).into_iter().flatten().flatten();
    let below = below.map(|entry| bytes_of(&entry.path())).sum::<u64>();
    let own = if meta.is_dir() { 4096 } else { meta.len() };
    own + below
}

fn rename(from: &Path, to: &Path) -> Result<()> {
    fs::rename(from, to).with_context(|| format!("moving {} to {}", from.display(), to.display()))
}

fn remove(path: &Path) -> Result<()> {
    let removed = match path.symlink_metadata() {
        Ok(meta) if meta.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    };
    removed.with_context(|| format!("removing {}", path.display()))
}

/// Whole or as it was.
fn write(path: &Path, content: &[u8]) -> Result<()> {
    let what = || format!("writing {}", path.display());
    let new = path.with_extension("new");
    let mut file = File::create(&new).with_context(what)?;
    file.write_all(content)
        .and_then(|()| file.sync_all())
        .with_context(what)?;
    rename(&new, path)?;
    sync(path.parent().context("a file has a folder")?)
}

fn sync(folder: &Path) -> Result<()> {
    let folder = File::open(folder)?;
    nix::unistd::syncfs(&folder).context("writing to the state partition")
}
