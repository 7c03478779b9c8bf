//! What others see of all hosts, changed in place: a host that changes costs the same, however many there are.

use std::{collections::BTreeMap, sync::Arc};

use firstlight_api::{signed::PublicKey, status::HostStatus};
use firstlight_netboot::MacAddr;
use tokio::sync::watch;

use crate::{
    fleet::{Named, View},
    hosts::{
        event::Shown,
        objects::{ObjectTarget, Targets},
    },
    status::{StatusSender, Update},
};

pub struct Window {
    view: watch::Sender<Arc<View>>,
    status: StatusSender,
    /// As the page has them.
    told: BTreeMap<MacAddr, Arc<HostStatus>>,
    wanted: watch::Sender<Arc<Targets>>,
    /// As the view has them.
    speakers: BTreeMap<MacAddr, (Named, Vec<PublicKey>)>,
}

impl Window {
    pub fn new(
        view: watch::Sender<Arc<View>>,
        status: StatusSender,
        wanted: watch::Sender<Arc<Targets>>,
    ) -> Self {
        Self {
            view,
            status,
            told: BTreeMap::new(),
            wanted,
            speakers: BTreeMap::new(),
        }
    }

    /// Objects that are no hosts.
    pub fn stray(&self, strays: Vec<Arc<ObjectTarget>>) {
        self.wanted
            .send_modify(|wanted| Arc::make_mut(wanted).strays = strays);
    }

    /// `None`: it is forgotten.
    pub fn show(&mut self, mac: MacAddr, shown: Option<Shown>) {
        let name = shown.as_ref().map(|shown| shown.status.name.clone());
        let (status, target, keys, desired) = match shown {
            Some(shown) => (
                Some(shown.status),
                Some(shown.target),
                shown.keys,
                shown.desired,
            ),
            None => (None, None, Vec::new(), None),
        };
        self.speaks(mac, name.unwrap_or_default(), keys);
        self.view.send_if_modified(|view| {
            if view.targets.get(&mac) == target.as_ref() {
                return false;
            }
            let targets = &mut Arc::make_mut(view).targets;
            match target {
                Some(target) => drop(targets.insert(mac, target)),
                None => drop(targets.remove(&mac)),
            }
            true
        });
        if !is_same(self.told.get(&mac), status.as_ref()) {
            let host = status.as_deref().cloned().map(Box::new);
            self.status.send(Update::Host(mac.to_string(), host));
            match status {
                Some(status) => drop(self.told.insert(mac, status)),
                None => drop(self.told.remove(&mac)),
            }
        }
        self.wanted.send_if_modified(|wanted| {
            if is_same(wanted.hosts.get(&mac), desired.as_ref()) {
                return false;
            }
            let hosts = &mut Arc::make_mut(wanted).hosts;
            match desired {
                Some(desired) => drop(hosts.insert(mac, desired)),
                None => drop(hosts.remove(&mac)),
            }
            true
        });
    }

    fn speaks(&mut self, mac: MacAddr, name: String, keys: Vec<PublicKey>) {
        let named = Named { mac, name };
        let said = Some((named.clone(), keys.clone())).filter(|(_, keys)| !keys.is_empty());
        let before = self.speakers.get(&mac);
        if before == said.as_ref() {
            return;
        }
        let gone = before.map_or(Vec::new(), |(_, keys)| keys.clone());
        self.view.send_modify(|view| {
            let speakers = &mut Arc::make_mut(view).speakers;
            for key in gone {
                speakers.remove(&key);
            }
            speakers.extend(keys.into_iter().map(|key| (key, named.clone())));
        });
        match said {
            Some(said) => drop(self.speakers.insert(mac, said)),
            None => drop(self.speakers.remove(&mac)),
        }
    }
}

/// What has not changed is the same value.
fn is_same<T>(old: Option<&Arc<T>>, new: Option<&Arc<T>>) -> bool {
    match (old, new) {
        (Some(old), Some(new)) => Arc::ptr_eq(old, new),
        (None, None) => true,
        _ => false,
    }
}
