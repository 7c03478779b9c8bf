//! What a look at Ironic and at Kubernetes shows.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use firstlight_api::{
    bmh::{APPROVE_ANNOTATION, BareMetalHost, FINALIZER, INSTALL_ANNOTATION},
    site::InstallPolicy,
    status::Problem,
};
use firstlight_ironic::Node;
use firstlight_netboot::MacAddr;

use super::Hosts;
use crate::{
    hosts::{
        apply::node_uuid,
        event::Effect,
        host::{Host, PolicyOf},
        made, object,
        plan::EXTRA_MAC,
        policy,
    },
    store::{Reference, Target},
};

impl Hosts {
    pub(super) fn nodes(&mut self, nodes: Vec<Node>, asked: Duration, now: Duration) {
        if !std::mem::replace(&mut self.ironic.known, true) {
            self.touch_all();
        }
        self.ironic.up = true;
        let mut by_mac: BTreeMap<MacAddr, Node> = BTreeMap::new();
        for node in nodes {
            let mac = node.extra[EXTRA_MAC].as_str();
            let mac = mac.and_then(|mac| mac.parse::<MacAddr>().ok());
            if let Some(mac) = mac.filter(|mac| node.uuid == node_uuid(*mac)) {
                self.host(mac, now);
                by_mac.insert(mac, node);
            }
        }
        for (mac, host) in &mut self.all {
            // A list from before the last action would show the state before it.
            if host.work.is_shown_by(asked) && host.observe_node(by_mac.remove(mac), now) {
                self.dirty.insert(*mac);
            }
        }
    }

    pub(super) fn objects(&mut self, objects: Vec<BareMetalHost>, now: Duration) {
        self.effects.push(Effect::Use(disks_of(&objects)));
        let mut gone: BTreeSet<MacAddr> = self.all.keys().copied().collect();
        let mut by_mac: BTreeMap<MacAddr, Vec<BareMetalHost>> = BTreeMap::new();
        for object in objects {
            if let Ok(mac) = object.spec.boot_mac_address.to_lowercase().parse() {
                by_mac.entry(mac).or_default().push(object);
            }
        }
        let mut twins = Vec::new();
        for (mac, objects) in by_mac {
            gone.remove(&mac);
            let Some((object, others)) = self.of_one_server(mac, objects) else {
                continue;
            };
            twins.extend(others.iter().map(|other| twin(mac, &object, other)));
            let has_twin = !others.is_empty();
            let before = std::mem::replace(&mut self.host(mac, now).rules.twin, has_twin);
            if self.object(mac, object, now) || has_twin != before {
                self.dirty.insert(mac);
            }
        }
        if self.twins != twins {
            self.twins.clone_from(&twins);
            self.effects.push(Effect::Twins(twins));
        }
        for mac in gone {
            let host = self.all.get_mut(&mac);
            if host.is_some_and(|host| {
                std::mem::take(&mut host.rules.twin) | host.observe_object(None)
            }) {
                self.dirty.insert(mac);
            }
            let known = self.ironic.known;
            let is_gone = |host: &Host| {
                let passed = host.ledger().passing && host.node.is_none() && known;
                host.work.removed || passed
            };
            if self.all.get(&mac).is_some_and(is_gone) {
                self.let_go(mac);
            }
        }
    }

    /// The object that is looked at, and others that somebody made for the same server: what they ask for counts for nothing.
    fn of_one_server(
        &self,
        mac: MacAddr,
        mut objects: Vec<BareMetalHost>,
    ) -> Option<(BareMetalHost, Vec<BareMetalHost>)> {
        let host = self.all.get(&mac);
        let known = host.and_then(|host| host.object.as_ref());
        let known = known.map(|object| object.metadata.name.as_str());
        let is_new = |object: &BareMetalHost| {
            let ours = object.metadata.finalizers.iter().any(|it| it == FINALIZER);
            (known != Some(&object.metadata.name), !ours)
        };
        objects.sort_by(|one, other| {
            let name = |object: &BareMetalHost| object.metadata.name.clone();
            (is_new(one), name(one)).cmp(&(is_new(other), name(other)))
        });
        let mut objects = objects.into_iter();
        Some((objects.next()?, objects.collect()))
    }

    /// True if it says something new.
    fn object(&mut self, mac: MacAddr, object: BareMetalHost, now: Duration) -> bool {
        let rule = self.settings.site.install_policy(mac);
        let own_rule = self.settings.site.host(mac);
        let own_rule = own_rule.is_some_and(|host| host.install.is_some());
        let host = self.host(mac, now);
        let before = (host.rules, host.ledger().clone());
        let annotations = &object.metadata.annotations;
        let word = annotations.get(INSTALL_ANNOTATION);
        let word = word.and_then(|word| policy::parse(word));
        host.rules.policy = word.unwrap_or(rule);
        host.rules.policy_of = PolicyOf::this_if(word.is_some() || own_rule);
        host.approve(annotations.get(APPROVE_ANNOTATION).map(String::as_str));
        let taken_back = word.is_some_and(|word| word != InstallPolicy::Never)
            || object.spec.image.is_some()
            || object.spec.externally_provisioned;
        // Whoever writes into it has use for it.
        let is_of_use = !object.is_deleted() && !made::is_as_made(&object);
        host.memory.note(|ledger| {
            ledger.removed &= !taken_back;
            ledger.passing &= !is_of_use;
        });
        // A person may have made the object, and chosen the name.
        host.name.clone_from(&object.metadata.name);
        host.address = host.address.or_else(|| object::known_address(&object));
        let words = before != (host.rules, host.ledger().clone());
        host.observe_object(Some(object)) || words
    }

    /// A host whose deleted object is gone. It is new if it shows up again, and left alone if a person deleted it.
    fn let_go(&mut self, mac: MacAddr) {
        if let Some(host) = self.forget(mac) {
            tracing::info!(host = host.name, %mac, "a deleted host is gone");
            self.effects.push(Effect::ForgetKeys(mac));
            if host.ledger().passing {
                self.effects.push(Effect::ForgetLedger(mac));
            } else {
                self.remembered.insert(mac, host.ledger().clone());
            }
        }
    }
}

fn twin(mac: MacAddr, object: &BareMetalHost, other: &BareMetalHost) -> Problem {
    let (name, other) = (&object.metadata.name, &other.metadata.name);
    Problem {
        what: format!(
            "two BareMetalHost objects are about the server {mac}: {name} counts, {other} is not looked at, and nothing new is installed"
        ),
        next: format!(
            "delete {other} (`kubectl delete bmh {other}`), or give it the MAC address of its own server"
        ),
    }
}

/// Which disks hosts refer to.
fn disks_of(objects: &[BareMetalHost]) -> Vec<Reference> {
    let wanted = objects.iter().filter_map(|object| {
        let image = object.spec.image.as_ref()?;
        Some(Reference {
            by: format!("BareMetalHost {}", object.metadata.name),
            to: Target::Disk(image.url.clone()),
        })
    });
    wanted.collect()
}
