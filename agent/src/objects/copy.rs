//! The copy of all objects of a kind: kube's reflector with a limit of memory, and how far it has come.

use std::{collections::BTreeSet, sync::Arc};

use kube::{
    Resource as _,
    api::ApiResource,
    runtime::{
        reflector::{ObjectRef, Store, store::Writer},
        watcher::Event,
    },
};
use tokio::sync::watch;

use super::read::{Readable, Seen};

/// For all objects of a kind, about: a thousand hosts with all that is known of their hardware, several times over. Without a
/// limit, whoever fills etcd ends the agent.
pub const ROOM: usize = 64 << 20;

/// What readers and writers share with the watch.
pub type Standing = watch::Sender<State>;

/// How far a copy has come.
#[derive(Debug, Default)]
pub struct State {
    is_listed: bool,
    /// Why the copy may be old.
    trouble: Option<String>,
    /// Some objects are left out.
    pub is_crowded: bool,
    /// The newest version that the watch told, and the newest that we wrote.
    seen: u64,
    written: u64,
    /// UIDs of what we deleted and the watch has not told: the answer to a deletion has no version.
    leaving: BTreeSet<String>,
    /// Writes of which nobody knows whether they came to be, and as many as a list has answered that was asked for afterwards.
    doubts: u64,
    answered: u64,
}

impl State {
    /// Everything is there, also what we wrote; or the reason why it does not come. `None`: it is on its way.
    pub fn verdict(&self) -> Option<Result<(), String>> {
        if let Some(trouble) = &self.trouble {
            return Some(Err(trouble.clone()));
        }
        let is_sure = self.answered >= self.doubts;
        let is_new = self.seen >= self.written && self.leaving.is_empty();
        (self.is_listed && is_sure && is_new).then_some(Ok(()))
    }

    /// About to be deleted; true unless it is on its way already.
    pub fn leaves(&mut self, uid: &str) -> bool {
        self.leaving.insert(uid.to_owned())
    }

    /// It was not deleted, or it was gone before.
    pub fn stays(&mut self, uid: &str) {
        self.leaving.remove(uid);
    }

    /// A version from an answer to a write. Versions of one API server grow.
    pub fn wrote(&mut self, version: &str) {
        self.written = self.written.max(version.parse().unwrap_or_default());
    }

    /// A write ended without an answer: what is known may be from before it, and only a list can tell.
    pub fn doubts(&mut self) {
        self.doubts += 1;
    }

    pub fn has_doubts_since(&self, asked: u64) -> bool {
        self.doubts > asked
    }

    /// What was written does not come: its object went before it was listed. Doubts stay until a list has come.
    pub fn give_up(&mut self) {
        self.written = self.seen;
        self.leaving.clear();
    }
}

/// The end of the copy that its watch holds.
pub struct Copy<K: 'static> {
    store: Writer<Seen<K>>,
    standing: Arc<Standing>,
    room: usize,
    kind: ApiResource,
    /// Something did not fit.
    crowded: bool,
    /// Of what is kept.
    size: usize,
    /// While a list comes: its size until now, and the newest version of which it is known that it is in it.
    coming: usize,
    newest: u64,
    /// The doubts that the last list answers.
    asked: u64,
}

impl<K: Readable> Copy<K> {
    pub fn new(kind: ApiResource, standing: Arc<Standing>, room: usize) -> Self {
        Self {
            store: Writer::new(kind.clone()),
            standing,
            kind,
            room,
            crowded: false,
            size: 0,
            coming: 0,
            newest: 0,
            asked: 0,
        }
    }

    /// A list is about to be asked for; returns the doubts that it answers.
    pub fn ask(&mut self) -> u64 {
        self.asked = self.standing.borrow().doubts;
        self.asked
    }

    pub fn standing(&self) -> watch::Receiver<State> {
        self.standing.subscribe()
    }

    pub fn reader(&self) -> Store<Seen<K>> {
        self.store.as_reader()
    }

    /// False if there may be room now for what was left out: everything is to be listed again.
    pub fn hear(&mut self, event: Event<Seen<K>>) -> bool {
        match event {
            Event::Init => {
                (self.coming, self.crowded) = (0, false);
                self.ask();
                // What was written before it was asked for, there or gone already.
                self.newest = self.standing.borrow().written;
                self.store.apply_watcher_event(&Event::Init);
                true
            }
            Event::InitApply(object) => {
                self.coming += object.size;
                self.newest = self.newest.max(version(&object));
                self.crowded |= self.coming > self.room;
                if !self.crowded {
                    self.store.apply_watcher_event(&Event::InitApply(object));
                }
                true
            }
            Event::InitDone => {
                self.store.apply_watcher_event(&Event::InitDone);
                let asked = self.asked;
                let there = self.reader().state();
                self.size = there.iter().map(|seen| seen.size).sum();
                self.standing.send_modify(|state| {
                    state.answered = state.answered.max(asked);
                    state
                        .leaving
                        .retain(|uid| there.iter().any(|it| it.meta().uid.as_ref() == Some(uid)));
                });
                self.now(self.newest);
                true
            }
            Event::Apply(object) => {
                let seen = version(&object);
                self.size -= self.kept(&object);
                let fits = self.size + object.size <= self.room;
                self.crowded |= !fits;
                self.size += if fits { object.size } else { 0 };
                let event = if fits { Event::Apply } else { Event::Delete };
                self.store.apply_watcher_event(&event(object));
                self.now(seen);
                true
            }
            Event::Delete(object) => {
                let seen = version(&object);
                let uid = object.meta().uid.clone().unwrap_or_default();
                self.size -= self.kept(&object);
                self.store.apply_watcher_event(&Event::Delete(object));
                self.standing.send_modify(|state| state.stays(&uid));
                self.now(seen);
                !self.crowded
            }
        }
    }

    /// The watch has lost its way; the copy stays as it is until everything was listed again.
    pub fn fail(&self, trouble: String) {
        self.standing
            .send_modify(|state| state.trouble = Some(trouble));
    }

    /// There is nothing, and that is no trouble.
    pub fn be_empty(&mut self) {
        for event in [Event::Init, Event::InitDone] {
            self.hear(event);
        }
    }

    fn now(&self, seen: u64) {
        self.standing.send_modify(|state| {
            state.is_listed = true;
            state.trouble = None;
            state.is_crowded = self.crowded;
            state.seen = state.seen.max(seen);
        });
    }

    /// The size of what is kept of this object.
    fn kept(&self, object: &Seen<K>) -> usize {
        let name = ObjectRef::from_obj_with(object, self.kind.clone());
        self.reader().get(&name).map_or(0, |kept| kept.size)
    }
}

/// Also when it panicked: nobody takes an old copy for a new one.
impl<K: 'static> Drop for Copy<K> {
    fn drop(&mut self) {
        let ended = "a watch of the box's API server ended".to_owned();
        self.standing
            .send_modify(|state| state.trouble = Some(ended));
    }
}

fn version<K>(object: &Seen<K>) -> u64 {
    let version = object.meta().resource_version.as_ref();
    version.and_then(|it| it.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use firstlight_api::addon::{self, Addon};
    use serde_json::json;

    use super::{super::Resource, *};

    const ADDONS: Resource = Resource(addon::GROUP, addon::VERSION, addon::KIND, addon::PLURAL);

    fn copy(room: usize) -> (Copy<Addon>, Arc<Standing>) {
        let standing: Arc<Standing> = Arc::default();
        (Copy::new(ADDONS.api(), standing.clone(), room), standing)
    }

    fn object(name: &str, version: &str, text: usize) -> Seen<Addon> {
        let metadata = json!({"name": name, "namespace": "default", "resourceVersion": version, "uid": format!("uid of {name}")});
        let spec = json!({"cluster": "lab", "manifests": "x".repeat(text)});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
    }

    fn names(copy: &Copy<Addon>) -> Vec<String> {
        let all = copy.reader().state().into_iter();
        let mut names: Vec<String> = all.filter_map(|it| it.meta().name.clone()).collect();
        names.sort();
        names
    }

    #[test]
    fn what_has_no_room_is_left_out_and_told_until_something_went() {
        let (mut copy, standing) = copy(100 << 10);
        for event in [
            Event::Init,
            Event::InitApply(object("a", "1", 40 << 10)),
            Event::InitApply(object("b", "2", 40 << 10)),
            Event::InitDone,
        ] {
            assert!(copy.hear(event));
        }
        assert!(!standing.borrow().is_crowded);
        // One that grows takes its own place only; the next has none, and one that grows too much loses its.
        assert!(copy.hear(Event::Apply(object("b", "3", 50 << 10))));
        assert!(!standing.borrow().is_crowded);
        assert!(copy.hear(Event::Apply(object("c", "4", 40 << 10))));
        assert!(standing.borrow().is_crowded);
        assert_eq!(names(&copy), ["a", "b"]);
        assert!(copy.hear(Event::Apply(object("b", "5", 90 << 10))));
        assert_eq!(names(&copy), ["a"]);
        assert!(!copy.hear(Event::Delete(object("a", "6", 0))));
        for event in [
            Event::Init,
            Event::InitApply(object("b", "5", 90 << 10)),
            Event::InitApply(object("c", "4", 40 << 10)),
            Event::InitDone,
        ] {
            copy.hear(event);
        }
        assert!(standing.borrow().is_crowded);
        assert_eq!(names(&copy), ["b"]);
    }

    #[test]
    fn a_copy_is_new_when_it_has_what_was_written() {
        let (mut copy, standing) = copy(ROOM);
        let verdict = || standing.borrow().verdict();
        let list = [Event::Init, Event::InitApply(object("a", "7", 0))];
        assert_eq!(verdict(), None);
        for event in list {
            copy.hear(event);
        }
        // Written while the list was on its way, which may be older.
        standing.send_modify(|state| state.wrote("9"));
        copy.hear(Event::InitDone);
        assert_eq!(verdict(), None);
        copy.hear(Event::Apply(object("a", "8", 0)));
        assert_eq!(verdict(), None);
        copy.hear(Event::Apply(object("a", "9", 0)));
        assert_eq!(verdict(), Some(Ok(())));
        standing.send_modify(|state| state.wrote("10"));
        assert_eq!(verdict(), None);
        standing.send_modify(State::give_up);
        assert_eq!(verdict(), Some(Ok(())));
        // A list that has something newer, or was asked for afterwards, has it or has seen it go.
        copy.hear(Event::Init);
        standing.send_modify(|state| state.wrote("11"));
        copy.hear(Event::InitApply(object("a", "11", 0)));
        copy.hear(Event::InitDone);
        assert_eq!(verdict(), Some(Ok(())));
        standing.send_modify(|state| state.wrote("12"));
        copy.fail("no route".to_owned());
        assert_eq!(verdict(), Some(Err("no route".to_owned())));
        copy.be_empty();
        assert_eq!(verdict(), Some(Ok(())));
        assert!(names(&copy).is_empty());
        // A write without an answer, before a list and while it comes.
        standing.send_modify(State::doubts);
        assert_eq!(verdict(), None);
        copy.hear(Event::Apply(object("a", "13", 0)));
        assert_eq!(verdict(), None, "the watch may be behind");
        copy.hear(Event::Init);
        standing.send_modify(State::doubts);
        copy.hear(Event::InitDone);
        assert_eq!(verdict(), None);
        copy.be_empty();
        assert_eq!(verdict(), Some(Ok(())));
        // A deletion, until the watch tells it or a list lacks the object.
        for told in [Event::Delete(object("a", "20", 0)), Event::InitDone] {
            copy.hear(Event::Apply(object("a", "19", 0)));
            assert!(standing.send_if_modified(|state| state.leaves("uid of a")));
            assert!(!standing.send_if_modified(|state| state.leaves("uid of a")));
            copy.hear(Event::Apply(object("b", "19", 0)));
            copy.hear(Event::Init);
            copy.hear(Event::InitApply(object("a", "19", 0)));
            copy.hear(Event::InitDone);
            assert_eq!(verdict(), None);
            copy.hear(Event::Init);
            copy.hear(told);
            assert_eq!(verdict(), Some(Ok(())));
        }
        drop(copy);
        assert!(verdict().unwrap().unwrap_err().contains("ended"));
    }
}
