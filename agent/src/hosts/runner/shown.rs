//! What others see of all hosts, changed in place: a host that changes costs the same, however many there are.

use std::sync::Arc;

use firstlight_api::status::HostStatus;
use firstlight_netboot::MacAddr;
use tokio::sync::watch;

use crate::{
    fleet::View,
    hosts::{event::Shown, objects::ObjectTarget},
};

pub struct Window {
    view: watch::Sender<Arc<View>>,
    /// By name.
    hosts: watch::Sender<Vec<HostStatus>>,
    wanted: watch::Sender<Arc<Vec<ObjectTarget>>>,
}

impl Window {
    pub fn new(
        view: watch::Sender<Arc<View>>,
        hosts: watch::Sender<Vec<HostStatus>>,
        wanted: watch::Sender<Arc<Vec<ObjectTarget>>>,
    ) -> Self {
        Self {
            view,
            hosts,
            wanted,
        }
    }

    /// Objects that are no hosts.
    pub fn stray(&self, strays: Vec<ObjectTarget>) {
        self.wanted.send_modify(|wanted| {
            let wanted = Arc::make_mut(wanted);
            wanted.retain(|one| !one.stray);
            wanted.extend(strays);
        });
    }

    /// `None`: it is forgotten.
    pub fn show(&self, mac: MacAddr, shown: Option<Box<Shown>>) {
        let (status, target, desired) = match shown.map(|shown| *shown) {
            Some(shown) => (Some(shown.status), Some(shown.target), shown.desired),
            None => (None, None, None),
        };
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
        let mac = mac.to_string();
        self.hosts.send_if_modified(|hosts| {
            let old = hosts.iter().position(|host| host.mac == mac);
            let old = old.map(|at| hosts.remove(at));
            let changed = old != status;
            if let Some(status) = status {
                let at = hosts.partition_point(|host| host.name < status.name);
                hosts.insert(at, status);
            }
            changed
        });
        self.wanted.send_if_modified(|wanted| {
            let of = |one: &ObjectTarget| !one.stray && one.host.spec.boot_mac_address == mac;
            let old = wanted.iter().position(of);
            if old.map(|at| &wanted[at]) == desired.as_ref() {
                return false;
            }
            let wanted = Arc::make_mut(wanted);
            match (old, desired) {
                (Some(at), Some(desired)) => wanted[at] = desired,
                (Some(at), None) => drop(wanted.remove(at)),
                (None, Some(desired)) => wanted.push(desired),
                (None, None) => {}
            }
            true
        });
    }
}
