//! What is on the disk for certain, and what a power cut leaves of the rest.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{Change, Disk, Known, Power};
use crate::{
    random::Random,
    tree::{Ino, Node, PAGE, ROOT, What},
};

impl Disk {
    pub(super) fn flush_all(&mut self) {
        for changes in std::mem::take(&mut self.pending) {
            self.settle(&changes);
        }
        for ino in self.live.keys().copied().collect::<Vec<_>>() {
            self.flush(ino);
        }
    }

    /// Brings names to the disk.
    pub(super) fn settle(&mut self, changes: &[Change]) {
        for Change { dir, name, to } in changes {
            for ino in to.iter().chain([dir]) {
                if let (false, Some(node)) = (self.durable.contains_key(ino), self.live.get(ino)) {
                    self.durable.insert(*ino, node.bare());
                }
            }
            if let Some(Node {
                what: What::Dir(entries),
                ..
            }) = self.durable.get_mut(dir)
            {
                match to {
                    Some(ino) => entries.insert(name.clone(), *ino),
                    None => entries.remove(name),
                };
            }
        }
    }

    /// Brings the bytes and attributes of a file to the disk, the attributes of a directory.
    pub(super) fn flush(&mut self, ino: Ino) {
        let dirty = self.dirty.remove(&ino).unwrap_or_default();
        self.flush_pages(ino, &dirty);
        if let (Some(live), Some(durable)) = (self.live.get(&ino), self.durable.get_mut(&ino)) {
            (durable.mode, durable.owner, durable.modified) =
                (live.mode, live.owner, live.modified);
            if let (What::File(live), What::File(durable)) = (&live.what, &mut durable.what) {
                (durable.length, durable.reserved) = (live.length, live.reserved);
            }
        }
    }

    fn flush_pages(&mut self, ino: Ino, pages: &BTreeSet<u64>) {
        let Some(live) = self.live.get(&ino) else {
            return;
        };
        let durable = self.durable.entry(ino).or_insert_with(|| live.bare());
        let (What::File(live), What::File(durable)) = (&live.what, &mut durable.what) else {
            return;
        };
        for page in pages {
            match live.pages.get(page) {
                Some(content) => drop(durable.pages.insert(*page, content.clone())),
                None => drop(durable.pages.remove(page)),
            }
        }
    }

    /// The machine starts again: what was synchronised is there, and of the rest whatever the seed leaves: names up to some point,
    /// of each file nothing, all, or some pages. The power is on, and the faults are gone.
    pub fn survive(&mut self, seed: u64) {
        let mut random = Random::new(seed);
        let names = random.below(self.pending.len() as u64 + 1);
        let names = usize::try_from(names).unwrap_or(usize::MAX);
        for changes in self.pending.drain(..).take(names).collect::<Vec<_>>() {
            self.settle(&changes);
        }
        for (ino, pages) in std::mem::take(&mut self.dirty) {
            match random.below(3) {
                0 => {}
                1 => {
                    self.dirty.insert(ino, pages);
                    self.flush(ino);
                }
                _ => self.flush_some(ino, &pages, &mut random),
            }
        }
        self.reload();
    }

    fn flush_some(&mut self, ino: Ino, pages: &BTreeSet<u64>, random: &mut Random) {
        let kept: BTreeSet<u64> = pages
            .iter()
            .copied()
            .filter(|_| random.below(2) == 0)
            .collect();
        self.flush_pages(ino, &kept);
        let Some(What::File(live)) = self.live.get(&ino).map(|node| &node.what) else {
            return;
        };
        let Some(What::File(durable)) = self.durable.get_mut(&ino).map(|node| &mut node.what)
        else {
            return;
        };
        let end = kept.last().map_or(0, |page| (page + 1) * PAGE as u64);
        let length = match random.below(2) {
            0 => live.length,
            _ => durable.length.max(end.min(live.length)),
        };
        drop(durable.resize(length));
    }

    /// What the disk holds is all there is.
    fn reload(&mut self) {
        let mut known = BTreeMap::from([(ROOT, Known::default())]);
        let mut waiting = vec![ROOT];
        while let Some(dir) = waiting.pop() {
            for (name, ino) in self
                .durable
                .get(&dir)
                .and_then(Node::dir)
                .into_iter()
                .flatten()
            {
                if !known.contains_key(ino) {
                    waiting.push(*ino);
                }
                let known = known.entry(*ino).or_default();
                known.links += 1;
                known.place = (dir, name.clone());
            }
        }
        self.durable.retain(|ino, _| known.contains_key(ino));
        self.live = self.durable.clone();
        self.known = known;
        self.dirty.clear();
        self.faults.clear();
        self.pause = Duration::ZERO;
        self.power = Power::On;
    }
}
