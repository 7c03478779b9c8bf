//! Which servers a Software is about: pure.

use std::{collections::BTreeMap, net::Ipv4Addr};

use firstlight_api::{
    bmh::ProvisioningState,
    capi,
    object::Meta,
    software::{PackageSpec, Presence, Software},
};
use firstlight_netboot::MacAddr;
use sha2::{Digest, Sha256};

use crate::capi::world::{Host, HostExt, World, is_control_plane};

/// A selected server that carries a system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    pub name: String,
    pub mac: MacAddr,
    pub address: Option<Ipv4Addr>,
    /// Empty: it belongs to none.
    pub cluster: String,
    /// Empty while it has not joined.
    pub node: String,
    pub control_plane: bool,
    /// Changes when it is installed again.
    pub system: String,
}

impl Server {
    fn of(world: &World, host: &Host) -> Option<Self> {
        let is_installed = host.state() == ProvisioningState::Provisioned;
        if !is_installed || host.metadata.is_deleting() {
            return None;
        }
        let claimed = host.consumer().map(String::as_str).unwrap_or_default();
        let metal3 = world.metal3_machines.values().find(|machine| {
            machine.metadata.name == claimed
                && machine.metadata.namespace == host.metadata.namespace
        });
        let machine = metal3.and_then(|metal3| world.owner_machine(metal3));
        let node = machine.and_then(|machine| machine.status.node_ref.as_ref());
        let image = host.status.provisioning.image.as_ref();
        Some(Self {
            name: host.metadata.name.clone(),
            mac: host.spec.boot_mac_address.parse().ok()?,
            address: world.address(host).and_then(|address| address.parse().ok()),
            cluster: machine
                .map(|machine| machine.spec.cluster_name.clone())
                .unwrap_or_default(),
            node: node.map(|node| node.name.clone()).unwrap_or_default(),
            control_plane: machine.is_some_and(|machine| is_control_plane(&machine.metadata)),
            system: format!(
                "{} {claimed} {}",
                host.metadata.uid,
                image.map(|image| image.url.as_str()).unwrap_or_default()
            ),
        })
    }

    /// Why nothing can be done to it yet.
    pub fn waits(&self) -> Option<(&'static str, &'static str)> {
        if self.address.is_none() {
            Some(("NoAddress", "its address is not known yet"))
        } else if !self.cluster.is_empty() && self.node.is_empty() {
            Some(("NotJoined", "it has not joined its cluster yet"))
        } else {
            None
        }
    }

    /// The labels of Cluster API's machine count as if they were the host's own.
    fn labels(&self, meta: &Meta) -> BTreeMap<String, String> {
        let mut labels = meta.labels.clone();
        if !self.cluster.is_empty() {
            labels.insert(capi::CLUSTER_LABEL.to_owned(), self.cluster.clone());
        }
        if self.control_plane {
            labels.insert(capi::CONTROL_PLANE_LABEL.to_owned(), String::new());
        }
        labels
    }
}

/// Those of a namespace, with the metadata of their hosts, in the order of their names.
fn all<'a>(world: &'a World, namespace: &'a str) -> impl Iterator<Item = (&'a Meta, Server)> {
    let hosts = world.hosts.iter();
    let own = hosts.filter(move |(key, _)| key.namespace == namespace);
    own.filter_map(move |(_, host)| Some((&host.metadata, Server::of(world, host)?)))
}

/// All of a cluster's.
pub fn installed(world: &World, namespace: &str, cluster: &str) -> Vec<Server> {
    let servers = all(world, namespace).map(|(_, server)| server);
    servers.filter(|server| server.cluster == cluster).collect()
}

pub fn selected(world: &World, software: &Software) -> Vec<Server> {
    let is_meant =
        |(meta, server): &(&Meta, Server)| software.spec.selector.matches(&server.labels(meta));
    let mine = all(world, &software.metadata.namespace).filter(is_meant);
    mine.map(|(_, server)| server).collect()
}

/// Digest of everything that one server is asked to be. Which servers, how many at a time and who approves is not part of it.
pub fn wish(software: &Software, server: &Server) -> String {
    let spec = &software.spec;
    let text = serde_json::json!([spec.packages, spec.state, spec.reboot, server.system]);
    firstlight_artifacts::hex(&Sha256::digest(text.to_string()))[..16].to_owned()
}

/// By server: what another Software wants otherwise. Neither is carried out, or both would undo each other for ever.
pub fn conflicts(
    software: &Software,
    servers: &[Server],
    all: &[(Software, Vec<Server>)],
) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for (other, theirs) in all {
        if other.metadata == software.metadata || other.metadata.is_deleting() {
            continue;
        }
        let Some((package, wanted)) = differs(software, other) else {
            continue;
        };
        let shared = servers.iter().filter(|server| theirs.contains(server));
        let say = |server: &Server| {
            let name = &other.metadata.name;
            let why =
                format!("Software {name} wants {package} {wanted} on it; change one of the two");
            (server.name.clone(), why)
        };
        found.extend(shared.map(say));
    }
    found
}

/// A package of both, and how the other wants it.
fn differs<'a>(one: &Software, other: &'a Software) -> Option<(&'a str, &'a str)> {
    let wanted = |software: &Software, name: &str| {
        let mut packages = software.spec.packages.iter();
        let found = packages.find(|package| package.name == name)?;
        Some(software.spec.state.of(found).to_owned())
    };
    let state: Presence = other.spec.state;
    other
        .spec
        .packages
        .iter()
        .find_map(|package: &PackageSpec| {
            let theirs = state.of(package);
            let ours = wanted(one, &package.name)?;
            (ours != theirs).then_some((package.name.as_str(), theirs))
        })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value, json};

    use super::*;
    use crate::capi::world::Key;

    fn host(name: &str, state: &str, consumer: &str) -> (Key, Host) {
        let host: Host = serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "default", "labels": {"rack": "7"}},
            "spec": {
                "bootMACAddress": "52:54:00:00:00:01",
                "consumerRef": {"apiVersion": "infrastructure.cluster.x-k8s.io/v1beta2", "kind": "Metal3Machine", "name": consumer},
            },
            "status": {
                "provisioning": {"state": state},
                "hardware": {"nics": [{"ip": "172.22.0.101"}]},
            },
        }))
        .unwrap();
        (Key::of(&host.metadata), host)
    }

    fn world() -> World {
        let read = |value: Value| serde_json::from_value(value).unwrap();
        let metal3 = read(
            json!({"metadata": {"name": "m3", "namespace": "default", "ownerReferences": [
            {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "name": "m", "uid": "u"}]}}),
        );
        let machine = serde_json::from_value(json!({
            "metadata": {"name": "m", "namespace": "default", "labels": {"cluster.x-k8s.io/control-plane": ""}},
            "spec": {"clusterName": "lab"},
            "status": {"nodeRef": {"name": "node-a"}},
        }));
        World {
            hosts: [
                host("a", "provisioned", "m3"),
                host("b", "available", ""),
                host("c", "provisioned", ""),
                host("d", "provisioning", ""),
            ]
            .into(),
            metal3_machines: [(Key::new("default", "m3"), metal3)].into(),
            machines: [(Key::new("default", "m"), machine.unwrap())].into(),
            ..World::default()
        }
    }

    fn software(name: &str, spec: &Value) -> Software {
        serde_json::from_value(
            json!({"metadata": {"name": name, "namespace": "default"}, "spec": spec}),
        )
        .unwrap()
    }

    #[test]
    fn installed_servers_are_selected_by_their_labels_and_those_of_their_machines() {
        let world = world();
        for (selector, names) in [
            (json!({}), &["a", "c"][..]),
            (json!({"matchLabels": {"rack": "7"}}), &["a", "c"]),
            (json!({"matchLabels": {"rack": "8"}}), &[]),
            (
                json!({"matchLabels": {"cluster.x-k8s.io/cluster-name": "lab"}}),
                &["a"],
            ),
            (
                json!({"matchExpressions": [{"key": "cluster.x-k8s.io/control-plane", "operator": "DoesNotExist"}]}),
                &["c"],
            ),
        ] {
            let found = selected(
                &world,
                &software("s", &json!({"selector": selector.clone()})),
            );
            let found: Vec<&str> = found.iter().map(|server| server.name.as_str()).collect();
            assert_eq!(found, names, "{selector}");
        }
        let all = selected(&world, &software("s", &json!({})));
        assert_eq!(
            (all[0].node.as_str(), all[0].control_plane),
            ("node-a", true)
        );
        assert_eq!(
            (all[0].address, all[0].waits()),
            (Some([172, 22, 0, 101].into()), None)
        );
        let joining = Server {
            node: String::new(),
            ..all[0].clone()
        };
        assert_eq!(joining.waits().unwrap().0, "NotJoined");
    }

    #[test]
    fn a_wish_is_another_one_when_packages_or_the_system_change_and_only_then() {
        let server = selected(&world(), &software("s", &json!({}))).remove(0);
        let spec = |version: &str, most: u32| {
            software(
                "s",
                &json!({"packages": [{"name": "htop", "version": version}], "maxUnavailable": most}),
            )
        };
        let first = wish(&spec("1", 1), &server);
        assert_eq!(wish(&spec("1", 2), &server), first);
        assert_ne!(wish(&spec("2", 1), &server), first);
        let again = Server {
            system: "another".to_owned(),
            ..server
        };
        assert_ne!(wish(&spec("1", 1), &again), first);
    }

    #[test]
    fn two_that_want_different_versions_on_one_server_are_both_told() {
        let world = world();
        let make = |name: &str, selector: &Value, version: &str| {
            let spec =
                json!({"selector": selector, "packages": [{"name": "htop", "version": version}]});
            let software = software(name, &spec);
            let servers = selected(&world, &software);
            (software, servers)
        };
        let one = make("one", &json!({}), "1");
        let two = make(
            "two",
            &json!({"matchLabels": {"cluster.x-k8s.io/cluster-name": "lab"}}),
            "2",
        );
        let same = make("same", &json!({}), "1");
        let all = [one.clone(), two.clone(), same];
        let of = |(software, servers): &(Software, Vec<Server>)| conflicts(software, servers, &all);
        assert_eq!(of(&one).keys().collect::<Vec<_>>(), ["a"]);
        assert!(of(&one)["a"].contains("Software two wants htop 2"));
        assert!(of(&two)["a"].contains("wants htop 1"));
    }
}
