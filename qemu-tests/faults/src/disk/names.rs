//! Names: made, moved, taken away.

use std::ffi::OsStr;

use nix::errno::Errno;

use super::{Change, Disk, Result};
use crate::{
    fault::Operation,
    tree::{Ino, Node, What},
};

impl Disk {
    /// A file without a name that nobody has open takes no room.
    pub(super) fn forget(&mut self, ino: Ino) {
        let is_gone = self
            .known
            .get(&ino)
            .is_some_and(|known| known.links == 0 && known.opened == 0);
        if let (true, Some(node)) = (is_gone, self.live.get_mut(&ino)) {
            *node = node.bare();
            self.dirty.remove(&ino);
        }
    }

    fn change(&mut self, changes: Vec<Change>) {
        for Change { dir, name, to } in &changes {
            let Some(Node {
                what: What::Dir(entries),
                modified,
                ..
            }) = self.live.get_mut(dir)
            else {
                continue;
            };
            *modified = self.now;
            let before = match to {
                Some(ino) => entries.insert(name.clone(), *ino),
                None => entries.remove(name),
            };
            if let Some(ino) = to {
                let known = self.known.entry(*ino).or_default();
                known.links += 1;
                known.place = (*dir, name.clone());
            }
            if let Some(ino) = before {
                let known = self.known.entry(ino).or_default();
                known.links = known.links.saturating_sub(1);
                self.forget(ino);
            }
        }
        self.pending.push(changes);
    }

    /// A file, a directory or a link that is not there yet.
    pub fn create(&mut self, dir: Ino, name: &OsStr, node: Node) -> Result<Ino> {
        self.enter(Operation::Create, &[self.path_in(dir, name)])?;
        if self.entries(dir)?.contains_key(name) {
            return Err(Errno::EEXIST);
        }
        let ino = self.next;
        self.next += 1;
        self.live.insert(
            ino,
            Node {
                modified: self.now,
                ..node
            },
        );
        self.change(vec![Change {
            dir,
            name: name.to_owned(),
            to: Some(ino),
        }]);
        Ok(ino)
    }

    pub fn link(&mut self, ino: Ino, dir: Ino, name: &OsStr) -> Result<()> {
        self.enter(Operation::Create, &[self.path_in(dir, name)])?;
        if self.node(ino)?.dir().is_some() {
            return Err(Errno::EPERM);
        }
        if self.entries(dir)?.contains_key(name) {
            return Err(Errno::EEXIST);
        }
        self.change(vec![Change {
            dir,
            name: name.to_owned(),
            to: Some(ino),
        }]);
        Ok(())
    }

    /// Of a file or a link.
    pub fn unlink(&mut self, dir: Ino, name: &OsStr) -> Result<()> {
        self.enter(Operation::Remove, &[self.path_in(dir, name)])?;
        let ino = self.lookup(dir, name)?;
        if self.node(ino)?.dir().is_some() {
            return Err(Errno::EISDIR);
        }
        self.change(vec![Change {
            dir,
            name: name.to_owned(),
            to: None,
        }]);
        Ok(())
    }

    pub fn rmdir(&mut self, dir: Ino, name: &OsStr) -> Result<()> {
        self.enter(Operation::Remove, &[self.path_in(dir, name)])?;
        let ino = self.lookup(dir, name)?;
        if !self.entries(ino)?.is_empty() {
            return Err(Errno::ENOTEMPTY);
        }
        self.change(vec![Change {
            dir,
            name: name.to_owned(),
            to: None,
        }]);
        Ok(())
    }

    /// `from` and `to` are a directory and a name in it. The kernel has seen to it that no directory gets into itself.
    pub fn rename(&mut self, from: (Ino, &OsStr), to: (Ino, &OsStr)) -> Result<()> {
        let paths = [self.path_in(from.0, from.1), self.path_in(to.0, to.1)];
        self.enter(Operation::Rename, &paths)?;
        let ino = self.lookup(from.0, from.1)?;
        match self.lookup(to.0, to.1) {
            Ok(there) if there == ino => return Ok(()),
            Ok(there) => {
                let is_dir = self.node(ino)?.dir().is_some();
                match self.node(there)?.dir() {
                    Some(_) if !is_dir => return Err(Errno::EISDIR),
                    Some(entries) if !entries.is_empty() => return Err(Errno::ENOTEMPTY),
                    None if is_dir => return Err(Errno::ENOTDIR),
                    _ => {}
                }
            }
            Err(Errno::ENOENT) => {}
            Err(error) => return Err(error),
        }
        self.change(vec![
            Change {
                dir: to.0,
                name: to.1.to_owned(),
                to: Some(ino),
            },
            Change {
                dir: from.0,
                name: from.1.to_owned(),
                to: None,
            },
        ]);
        Ok(())
    }
}
