//! Files, directories and links as values that are cheap to copy: pages are shared.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    path::PathBuf,
    sync::Arc,
    time::SystemTime,
};

pub type Ino = u64;
pub const ROOT: Ino = 1;
pub const PAGE: usize = 4096;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub what: What,
    /// Permissions, without the kind.
    pub mode: u32,
    pub owner: (u32, u32),
    pub modified: SystemTime,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    File(Content),
    Dir(BTreeMap<OsString, Ino>),
    Link(PathBuf),
}

/// Bytes of a file. A page that is not there is zeros.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Content {
    pub length: u64,
    pub pages: BTreeMap<u64, Arc<[u8; PAGE]>>,
    /// Bytes that a reservation (`fallocate`) holds.
    pub reserved: u64,
}

/// Page and place in it of a byte.
fn place(at: u64) -> (u64, usize) {
    let within = usize::try_from(at % PAGE as u64).unwrap_or(0);
    (at / PAGE as u64, within)
}

impl Content {
    pub fn read(&self, offset: u64, size: usize) -> Vec<u8> {
        let left = usize::try_from(self.length.saturating_sub(offset)).unwrap_or(usize::MAX);
        let mut bytes = vec![0; size.min(left)];
        let mut done = 0;
        while done < bytes.len() {
            let (page, within) = place(offset + done as u64);
            let count = (PAGE - within).min(bytes.len() - done);
            if let Some(page) = self.pages.get(&page) {
                bytes[done..done + count].copy_from_slice(&page[within..within + count]);
            }
            done += count;
        }
        bytes
    }

    /// Tells which pages are other ones now.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) -> BTreeSet<u64> {
        let mut dirty = BTreeSet::new();
        let mut done = 0;
        while done < bytes.len() {
            let (number, within) = place(offset + done as u64);
            let count = (PAGE - within).min(bytes.len() - done);
            let page = self
                .pages
                .entry(number)
                .or_insert_with(|| Arc::new([0; PAGE]));
            Arc::make_mut(page)[within..within + count].copy_from_slice(&bytes[done..done + count]);
            dirty.insert(number);
            done += count;
        }
        self.length = self.length.max(offset + bytes.len() as u64);
        dirty
    }

    /// Cuts off or adds zeros; tells which pages are other ones now.
    pub fn resize(&mut self, length: u64) -> BTreeSet<u64> {
        let mut dirty = BTreeSet::new();
        if length < self.length {
            let (last, within) = place(length);
            dirty.extend(self.pages.range(last..).map(|(number, _)| *number));
            self.pages
                .retain(|number, _| *number < last || (*number == last && within > 0));
            if let Some(page) = self.pages.get_mut(&last) {
                Arc::make_mut(page)[within..].fill(0);
            }
            self.reserved = self.reserved.min(length);
        }
        self.length = length;
        dirty
    }

    /// Bytes of the disk that it takes.
    pub fn used(&self) -> u64 {
        (self.pages.len() as u64 * PAGE as u64).max(self.reserved)
    }
}

impl Node {
    pub fn dir(&self) -> Option<&BTreeMap<OsString, Ino>> {
        match &self.what {
            What::Dir(entries) => Some(entries),
            _ => None,
        }
    }

    /// As it is on the disk before anything of it was synchronised: a name and nothing behind it.
    #[must_use]
    pub fn bare(&self) -> Self {
        let what = match &self.what {
            What::File(_) => What::File(Content::default()),
            What::Dir(_) => What::Dir(BTreeMap::new()),
            link @ What::Link(_) => link.clone(),
        };
        Self {
            what,
            ..self.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_cut_off_does_not_come_back_when_the_file_grows() {
        let mut content = Content::default();
        content.write(4090, b"0123456789");
        assert_eq!(content.read(4094, 100), b"456789");
        assert_eq!(content.resize(4093), BTreeSet::from([0, 1]));
        content.resize(4097);
        assert_eq!(content.read(4091, 100), b"12\0\0\0\0");
        assert_eq!(content.pages.len(), 1);
    }
}
