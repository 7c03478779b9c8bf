//! What a look at Ironic and at Kubernetes shows.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use firstlight_api::{
    bmh::{APPROVE_ANNOTATION, BareMetalHost, CredentialsStatus, SecretReference},
    site::InstallPolicy,
};
use firstlight_ironic::Node;
use firstlight_netboot::MacAddr;

use super::Hosts;
use crate::{
    clock,
    hosts::{
        bmc,
        event::{Effect, Now},
        host::Host,
        made,
        node_uuid::node_uuid,
        object,
        plan::EXTRA_MAC,
        store::Versions,
        stray::{self, Strays, Why},
    },
    network::firewall::Endpoint,
    objects::Key,
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
            if let Some(mac) = mac_of(&node) {
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

    pub(super) fn node(
        &mut self,
        mac: MacAddr,
        node: Option<Node>,
        asked: Duration,
        now: Duration,
    ) {
        self.ironic.up = true;
        let node = node.filter(|node| mac_of(node) == Some(mac));
        let host = self.all.get_mut(&mac);
        let host = host.filter(|host| host.work.is_shown_by(asked));
        if host.is_some_and(|host| host.observe_node(node, now)) {
            self.dirty.insert(mac);
        }
    }

    pub(super) fn objects(&mut self, objects: Vec<Arc<BareMetalHost>>, now: Now) {
        self.effects.push(Effect::Use(disks_of(&objects)));
        self.effects.push(Effect::Bmcs(bmcs_of(&objects)));
        let mut gone: BTreeSet<MacAddr> = self.all.keys().copied().collect();
        let mut by_mac: BTreeMap<MacAddr, Vec<Arc<BareMetalHost>>> = BTreeMap::new();
        let mut strays = Strays::default();
        let wall = clock::rfc3339_of(now.wall);
        for object in objects {
            match object.spec.boot_mac_address.to_lowercase().parse() {
                Ok(mac) => by_mac.entry(mac).or_default().push(object),
                Err(_) => strays.tell(&object, &Why::NoAddress, &wall),
            }
        }
        let now = now.up;
        for (mac, objects) in by_mac {
            gone.remove(&mac);
            let host = self.all.get(&mac).filter(|host| host.object.is_some());
            let known = host.map(|host| (host.namespace.as_str(), host.name.as_str()));
            let Some(parted) = stray::part(objects, known) else {
                continue;
            };
            let counts = stray::called(&parted.counts);
            for other in &parted.others {
                let counts = counts.clone();
                strays.tell(other, &Why::Second { counts, mac }, &wall);
            }
            for made in &parted.replaced {
                strays.replace(made);
            }
            let has_twin = !parted.others.is_empty();
            let before = std::mem::replace(&mut self.host(mac, now).rules.twin, has_twin);
            if self.object(mac, parted.counts, now) || has_twin != before {
                self.dirty.insert(mac);
            }
        }
        if self.strays != strays {
            self.strays.clone_from(&strays);
            self.effects.push(Effect::Strays(strays));
        }
        for mac in gone {
            if let Some(host) = self.all.get_mut(&mac) {
                host.has_moved();
                if std::mem::take(&mut host.rules.twin) | host.observe_object(None) {
                    self.dirty.insert(mac);
                }
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
        self.objects_known = true;
        self.name_the_nameless();
    }

    /// Whose names waited for this look, and who lost one that it had no object of yet: somebody has written one of that name.
    fn name_the_nameless(&mut self) {
        let mut taken: BTreeSet<&str> = self.strays.names_in(made::NAMESPACE).collect();
        let objects = self.all.values().filter_map(|host| host.object.as_ref());
        let metas = objects.map(|object| &object.metadata);
        let here = metas.filter(|meta| meta.namespace == made::NAMESPACE);
        taken.extend(here.map(|meta| meta.name.as_str()));
        let lost = |host: &Host| {
            let numbered = host.ledger().numbered.as_ref();
            numbered.is_some_and(|it| taken.contains(it.name.as_str()))
        };
        let all = self.all.iter().filter(|(_, host)| host.object.is_none());
        let waiting = all.filter(|(_, host)| host.ruled.is_nameless() || lost(host));
        let waiting: Vec<(MacAddr, bool)> = waiting.map(|(mac, host)| (*mac, lost(host))).collect();
        for (mac, lost) in waiting {
            // Nobody makes an object of that name, also where it is not known yet which number comes next.
            if let Some(host) = self.all.get_mut(&mac).filter(|_| lost) {
                let name = self.settings.site.host_name(mac);
                host.rename(made::NAMESPACE, name.as_str());
            }
            if self.take_rule(mac) || lost {
                self.dirty.insert(mac);
            }
        }
    }

    /// True if it says something new.
    fn object(&mut self, mac: MacAddr, object: Arc<BareMetalHost>, now: Duration) -> bool {
        let site = self.settings.site.clone();
        let versions = self.credentials.clone();
        let host = self.host(mac, now);
        let before = (host.rules.clone(), host.ledger().clone());
        let object = host.moved_in(object);
        let renamed = versions.is_some_and(|versions| is_named(host, &object, &versions));
        let annotations = &object.metadata.annotations;
        host.approve(annotations.get(APPROVE_ANNOTATION).map(String::as_str));
        let asked = object.spec.image.is_some() || object.spec.externally_provisioned;
        host.rename(&object.metadata.namespace, &object.metadata.name);
        host.address = host.address.or_else(|| object::known_address(&object));
        // Whoever writes into it has use for it.
        let is_of_use = !object.is_deleted() && !made::is_as_made(&object);
        let news = host.observe_object(Some(object));
        host.take_policy(&site);
        let word = host.install_word();
        let taken_back = asked || word.is_some_and(|word| word != InstallPolicy::Never);
        host.memory.note(|ledger| {
            ledger.removed &= !taken_back;
            ledger.passing &= !is_of_use;
        });
        let words = before != (host.rules.clone(), host.ledger().clone());
        let ruled = news && self.take_rule(mac);
        ruled || news || words || renamed
    }

    pub(super) fn secrets(&mut self, versions: Versions) {
        for (mac, host) in &mut self.all {
            if let Some(object) = host.object.clone()
                && is_named(host, &object, &versions)
            {
                self.dirty.insert(*mac);
            }
        }
        self.credentials = Some(versions);
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

/// Of a node of ours, whose it is.
fn mac_of(node: &Node) -> Option<MacAddr> {
    let mac = node.extra[EXTRA_MAC].as_str()?.parse().ok()?;
    (node.uuid == node_uuid(mac)).then_some(mac)
}

/// True if it names another BMC than before, or other credentials.
fn is_named(host: &mut Host, object: &BareMetalHost, versions: &Versions) -> bool {
    let bmc = object.spec.bmc.as_ref();
    let key = bmc.map(|bmc| Key::new(&object.metadata.namespace, &bmc.credentials_name));
    let credentials = key.and_then(|key| {
        Some(CredentialsStatus {
            credentials_version: versions.get(&key)?.clone(),
            credentials: Some(SecretReference {
                name: key.name,
                namespace: key.namespace,
            }),
        })
    });
    host.remote.is_named(&object.spec, credentials)
}

/// Which disks hosts refer to.
fn disks_of(objects: &[Arc<BareMetalHost>]) -> Vec<Reference> {
    let wanted = objects.iter().filter_map(|object| {
        let image = object.spec.image.as_ref()?;
        Some(Reference {
            by: format!("BareMetalHost {}", stray::called(object)),
            to: Target::Disk(image.url.clone()),
        })
    });
    wanted.collect()
}

/// Where the BMCs listen that hosts name by an address.
fn bmcs_of(objects: &[Arc<BareMetalHost>]) -> BTreeSet<Endpoint> {
    let named = objects.iter().filter_map(|object| object.spec.bmc.as_ref());
    named
        .filter_map(|details| bmc::read(details).ok()?.endpoint())
        .collect()
}
