//! The disk: a file system in memory of which only what was synchronised outlives a power cut.
//!
//! Two trees: `live`, what programs see, and `durable`, what the disk holds for certain. Names that changed wait in `pending`, in
//! order, pages in `dirty`. [`Disk::survive`] is what a machine finds that starts again.

mod durable;
mod names;

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::{OsStr, OsString},
    path::PathBuf,
    time::{Duration, SystemTime},
};

use nix::errno::Errno;

use crate::{
    fault::{Fault, Kind, Operation},
    tree::{Content, Ino, Node, ROOT, What},
};

type Tree = BTreeMap<Ino, Node>;
type Result<T> = std::result::Result<T, Errno>;

/// When a name is on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// When its directory was synchronised: all that POSIX promises.
    WithDirectory,
    /// When anything was synchronised that a waiting name is about, or whose length changed; all older ones with it. So does ext4.
    WithFile,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Power {
    On,
    Off,
}

/// One name comes, goes, or means another file.
#[derive(Clone, Debug)]
struct Change {
    dir: Ino,
    name: OsString,
    to: Option<Ino>,
}

#[derive(Clone, Debug, Default)]
struct Known {
    /// Where it was seen last.
    place: (Ino, OsString),
    links: u32,
    opened: u32,
}

#[derive(Clone, Debug)]
pub struct Disk {
    live: Tree,
    durable: Tree,
    /// All of one entry happens at once.
    pending: Vec<Vec<Change>>,
    dirty: BTreeMap<Ino, BTreeSet<u64>>,
    known: BTreeMap<Ino, Known>,
    next: Ino,
    names: Names,
    size: u64,
    faults: Vec<(Fault, u64)>,
    power: Power,
    pause: Duration,
    changes: u64,
    now: SystemTime,
}

impl Disk {
    /// An empty one of so many bytes.
    pub fn new(size: u64, names: Names) -> Self {
        let root = Node {
            what: What::Dir(BTreeMap::new()),
            mode: 0o755,
            owner: (
                nix::unistd::getuid().as_raw(),
                nix::unistd::getgid().as_raw(),
            ),
            modified: SystemTime::UNIX_EPOCH,
        };
        let tree = Tree::from([(ROOT, root)]);
        Self {
            live: tree.clone(),
            durable: tree,
            pending: Vec::new(),
            dirty: BTreeMap::new(),
            known: BTreeMap::from([(ROOT, Known::default())]),
            next: ROOT + 1,
            names,
            size,
            faults: Vec::new(),
            power: Power::On,
            pause: Duration::ZERO,
            changes: 0,
            now: SystemTime::UNIX_EPOCH,
        }
    }

    /// What later changes are dated.
    pub fn set_now(&mut self, now: SystemTime) {
        self.now = now;
    }

    pub fn add(&mut self, fault: Fault) {
        self.faults.push((fault, 0));
    }

    /// Operations go well again.
    pub fn clear(&mut self) {
        self.faults.clear();
    }

    /// How often each fault's operation was asked for, in their order.
    pub fn counts(&self) -> Vec<u64> {
        self.faults.iter().map(|(_, count)| *count).collect()
    }

    /// Operations so far that change something.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// What slow operations still owe; the caller waits.
    pub fn take_pause(&mut self) -> Duration {
        std::mem::take(&mut self.pause)
    }

    pub fn is_off(&self) -> bool {
        self.power == Power::Off
    }

    /// From now on nothing reaches the disk, and everything fails.
    pub fn cut(&mut self) {
        self.power = Power::Off;
    }

    /// Bytes in all, and bytes that are taken.
    pub fn usage(&self) -> (u64, u64) {
        let used = self.live.values().map(|node| match &node.what {
            What::File(content) => content.used(),
            _ => 0,
        });
        (self.size, used.sum())
    }

    pub fn resize_disk(&mut self, size: u64) {
        self.size = size;
    }

    /// Whether the faults let an operation happen; a write perhaps in part.
    fn enter(&mut self, operation: Operation, paths: &[String]) -> Result<Option<u64>> {
        if operation != Operation::Read {
            self.changes += 1;
        }
        let mut part = None;
        for (fault, count) in &mut self.faults {
            let is_meant =
                fault.operation.covers(operation) && paths.iter().any(|path| fault.names(path));
            if !is_meant || self.power == Power::Off {
                continue;
            }
            *count += 1;
            if !fault.when.holds(*count) {
                continue;
            }
            match fault.kind {
                Kind::Full => return Err(Errno::ENOSPC),
                Kind::Broken => return Err(Errno::EIO),
                Kind::ReadOnly => return Err(Errno::EROFS),
                Kind::Slow(time) => self.pause += time,
                Kind::Torn(bytes) => part = Some(bytes),
                Kind::Cut => self.power = Power::Off,
            }
        }
        match self.power {
            Power::On => Ok(part),
            Power::Off => Err(Errno::EIO),
        }
    }

    /// Whether a change of this would be refused for good, as `access` asks; counts nothing.
    pub fn is_writable(&self, ino: Ino) -> bool {
        let path = self.path(ino);
        let forbids = |fault: &Fault| fault.kind == Kind::ReadOnly && fault.names(&path);
        !self.faults.iter().any(|(fault, _)| forbids(fault))
    }

    /// From the root of the disk; of a file that has no name any more, the last one.
    pub fn path(&self, ino: Ino) -> String {
        let mut path = String::new();
        let mut at = ino;
        while at != ROOT {
            let Some(known) = self.known.get(&at) else {
                break;
            };
            path = format!("/{}{path}", known.place.1.to_string_lossy());
            at = known.place.0;
        }
        if path.is_empty() {
            "/".to_owned()
        } else {
            path
        }
    }

    fn path_in(&self, dir: Ino, name: &OsStr) -> String {
        let path = self.path(dir);
        format!("{}/{}", path.trim_end_matches('/'), name.to_string_lossy())
    }

    pub fn node(&self, ino: Ino) -> Result<&Node> {
        if self.power == Power::Off {
            return Err(Errno::EIO);
        }
        self.live.get(&ino).ok_or(Errno::ENOENT)
    }

    pub fn links(&self, ino: Ino) -> u32 {
        self.known.get(&ino).map_or(0, |known| known.links)
    }

    fn entries(&self, dir: Ino) -> Result<&BTreeMap<OsString, Ino>> {
        self.node(dir)?.dir().ok_or(Errno::ENOTDIR)
    }

    pub fn lookup(&self, dir: Ino, name: &OsStr) -> Result<Ino> {
        self.entries(dir)?.get(name).copied().ok_or(Errno::ENOENT)
    }

    pub fn list(&self, dir: Ino) -> Result<Vec<(OsString, Ino)>> {
        let entries = self.entries(dir)?.iter();
        Ok(entries.map(|(name, ino)| (name.clone(), *ino)).collect())
    }

    pub fn open(&mut self, ino: Ino) -> Result<()> {
        self.node(ino)?;
        self.known.entry(ino).or_default().opened += 1;
        Ok(())
    }

    pub fn close(&mut self, ino: Ino) {
        if let Some(known) = self.known.get_mut(&ino) {
            known.opened = known.opened.saturating_sub(1);
        }
        self.forget(ino);
    }

    pub fn read(&mut self, ino: Ino, offset: u64, size: usize) -> Result<Vec<u8>> {
        self.enter(Operation::Read, &[self.path(ino)])?;
        match &self.node(ino)?.what {
            What::File(content) => Ok(content.read(offset, size)),
            _ => Err(Errno::EISDIR),
        }
    }

    pub fn read_link(&self, ino: Ino) -> Result<PathBuf> {
        match &self.node(ino)?.what {
            What::Link(target) => Ok(target.clone()),
            _ => Err(Errno::EINVAL),
        }
    }

    /// What `change` makes of a file's content, if there is room for it.
    fn rewrite(
        &mut self,
        ino: Ino,
        change: impl FnOnce(&mut Content) -> BTreeSet<u64>,
    ) -> Result<()> {
        let (size, used) = self.usage();
        let now = self.now;
        let Some(Node {
            what: What::File(content),
            modified,
            ..
        }) = self.live.get_mut(&ino)
        else {
            return Err(Errno::EISDIR);
        };
        let mut changed = content.clone();
        let dirty = change(&mut changed);
        if changed.used() > content.used() && used - content.used() + changed.used() > size {
            return Err(Errno::ENOSPC);
        }
        *content = changed;
        *modified = now;
        self.dirty.entry(ino).or_default().extend(dirty);
        Ok(())
    }

    /// Tells how many bytes were written. A torn write reaches the disk in part, and fails.
    pub fn write(&mut self, ino: Ino, offset: u64, bytes: &[u8]) -> Result<usize> {
        let part = self.enter(Operation::Write, &[self.path(ino)])?;
        let Some(part) = part else {
            self.rewrite(ino, |content| content.write(offset, bytes))?;
            return Ok(bytes.len());
        };
        let part = usize::try_from(part).map_or(bytes.len(), |part| part.min(bytes.len()));
        self.rewrite(ino, |content| content.write(offset, &bytes[..part]))?;
        self.flush(ino);
        Err(Errno::EIO)
    }

    pub fn resize(&mut self, ino: Ino, length: u64) -> Result<()> {
        self.enter(Operation::Write, &[self.path(ino)])?;
        self.rewrite(ino, |content| content.resize(length))
    }

    /// Keeps room for a file up to this byte; the file is as long as it was, unless it shall `grow`.
    pub fn reserve(&mut self, ino: Ino, end: u64, length: Option<u64>) -> Result<()> {
        self.enter(Operation::Write, &[self.path(ino)])?;
        self.rewrite(ino, |content| {
            content.reserved = content.reserved.max(end);
            content.length = content.length.max(length.unwrap_or(0));
            BTreeSet::new()
        })
    }

    /// Permissions, owner and date.
    pub fn describe(&mut self, ino: Ino, change: impl FnOnce(&mut Node)) -> Result<()> {
        self.enter(Operation::Change, &[self.path(ino)])?;
        self.node(ino)?;
        if let Some(node) = self.live.get_mut(&ino) {
            change(node);
        }
        Ok(())
    }

    /// `fsync` of a file or a directory. One that fails loses what waited, as in Linux: the next one says nothing of it.
    pub fn sync(&mut self, ino: Ino) -> Result<()> {
        if let Err(error) = self.enter(Operation::Sync, &[self.path(ino)]) {
            self.dirty.remove(&ino);
            return Err(error);
        }
        self.node(ino)?;
        let concerns = |changes: &Vec<Change>| {
            changes
                .iter()
                .any(|change| change.dir == ino || change.to == Some(ino))
        };
        let length = |tree: &Tree| match tree.get(&ino).map(|node| &node.what) {
            Some(What::File(content)) => Some(content.length),
            _ => None,
        };
        let in_order =
            length(&self.live) != length(&self.durable) || self.pending.iter().any(concerns);
        self.flush(ino);
        let waiting = std::mem::take(&mut self.pending);
        for changes in waiting {
            let is_due = match self.names {
                Names::WithFile => in_order,
                Names::WithDirectory => changes.iter().any(|change| change.dir == ino),
            };
            if is_due {
                self.settle(&changes);
            } else {
                self.pending.push(changes);
            }
        }
        Ok(())
    }

    /// `syncfs`.
    pub fn sync_all(&mut self) -> Result<()> {
        self.enter(Operation::Sync, &["/".to_owned()])?;
        self.flush_all();
        Ok(())
    }
}

#[cfg(test)]
mod tests;
