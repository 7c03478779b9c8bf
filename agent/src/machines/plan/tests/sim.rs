//! The API server's part: objects in memory, merge patches, versions, finalizers.

use firstlight_api::{bmh::annotations, capi, capm3, object::Object};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::super::plan;
use crate::{
    capi::{
        Action, Kind, Steps,
        addresses::{AddressClaim, GivenAddress, IpamApi},
        world::{Key, World},
    },
    objects::testing::merge,
};

#[derive(Clone, Default)]
pub struct Sim {
    pub world: World,
    /// With the fields that the provider only writes.
    pub raw_hosts: std::collections::BTreeMap<Key, Value>,
    pub writes: usize,
    /// The plan that makes the write with this number ends after it.
    pub cut_after: Option<usize>,
}

pub fn key(name: &str) -> Key {
    Key::new("default", name)
}

type Map<S, T> = std::collections::BTreeMap<Key, Object<S, T>>;

/// Changes one object by a merge patch; a patch with another version than the object's is refused.
fn patch<S, T>(map: &mut Map<S, T>, key: &Key, change: &Value) -> Result<(), ()>
where
    Object<S, T>: Serialize + DeserializeOwned,
{
    let object = map.get(key).ok_or(())?;
    let mut value = serde_json::to_value(object).unwrap();
    let wanted = &change["metadata"]["resourceVersion"];
    if !wanted.is_null() && *wanted != value["metadata"]["resourceVersion"] {
        return Err(());
    }
    merge(&mut value, change);
    let version: u64 = object.metadata.resource_version.parse().unwrap_or(0);
    value["metadata"]["resourceVersion"] = json!((version + 1).to_string());
    let object: Object<S, T> = serde_json::from_value(value).unwrap();
    if object.metadata.is_deleting() && object.metadata.finalizers.is_empty() {
        map.remove(key);
    } else {
        map.insert(key.clone(), object);
    }
    Ok(())
}

fn insert<S, T>(map: &mut Map<S, T>, mut value: Value)
where
    Object<S, T>: DeserializeOwned,
{
    value["metadata"]["namespace"] = json!("default");
    value["metadata"]["resourceVersion"] = json!("1");
    let name = value["metadata"]["name"].as_str().unwrap().to_owned();
    value["metadata"]["uid"] = json!(format!("uid-{name}"));
    map.insert(key(&name), serde_json::from_value(value).unwrap());
}

impl Sim {
    pub fn add(&mut self, kind: &str, value: Value) {
        let world = &mut self.world;
        match kind {
            "cluster" => insert(&mut world.clusters, value),
            "machine" => insert(&mut world.machines, value),
            "metal3_machine" => insert(&mut world.metal3_machines, value),
            "metal3_cluster" => insert(&mut world.metal3_clusters, value),
            "template" => insert(&mut world.templates, value),
            "data" => insert(&mut world.data_templates, value),
            "deployment" => insert(&mut world.deployments, value),
            _ => panic!("{kind}"),
        }
    }

    /// A machine with its data, as Cluster API leaves it, and its `Metal3Machine`, changed by `change`.
    pub fn machine(&mut self, name: &str, control_plane: bool, change: Value) {
        let mut labels = json!({capi::CLUSTER_LABEL: "lab"});
        if control_plane {
            labels[capi::CONTROL_PLANE_LABEL] = json!("");
        }
        self.add("machine", json!({
            "metadata": {"name": name, "labels": labels},
            "spec": {"clusterName": "lab", "bootstrap": {"dataSecretName": format!("{name}-data")}},
        }));
        let mut value = json!({
            "metadata": {
                "name": name,
                "labels": labels,
                "ownerReferences": [{"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "name": name, "uid": "1"}],
            },
            "spec": {"image": {"url": "http://box/node.raw.zst", "checksum": "abcd", "checksumType": "sha256", "diskFormat": "raw"}},
        });
        merge(&mut value, &change);
        self.add("metal3_machine", value);
    }

    /// `n1` has the address 172.22.0.101.
    pub fn host(&mut self, name: &str, state: &str) {
        let number = name.trim_start_matches('n');
        let mac = format!("52:54:00:00:00:0{number}");
        let value = json!({
            "metadata": {"name": name},
            "spec": {"online": true, "bootMACAddress": mac, "disablePowerOff": false},
            "status": {
                "provisioning": {"state": state},
                "conditions": [{
                    "type": "Trusted", "status": "True", "reason": "KnownBefore", "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }],
                "hardware": {"nics": [{"name": "eth0", "mac": mac, "ip": format!("172.22.0.10{number}"), "pxe": true}]},
            },
        });
        insert(&mut self.world.hosts, value.clone());
        self.raw_hosts.insert(key(name), value);
    }

    pub fn set_host(&mut self, name: &str, change: Value) {
        patch(&mut self.world.hosts, &key(name), &change).unwrap();
    }

    pub fn change(&mut self, kind: &str, name: &str, change: Value) {
        let (world, key) = (&mut self.world, key(name));
        match kind {
            "cluster" => patch(&mut world.clusters, &key, &change),
            "machine" => patch(&mut world.machines, &key, &change),
            "metal3_machine" => patch(&mut world.metal3_machines, &key, &change),
            "metal3_cluster" => patch(&mut world.metal3_clusters, &key, &change),
            _ => panic!("{kind}"),
        }
        .unwrap();
    }

    /// As `kubectl delete` does: gone once its finalizers are.
    pub fn delete(&mut self, kind: &str, name: &str) {
        self.change(
            kind,
            name,
            json!({"metadata": {"deletionTimestamp": "2026-11-21T21:00:00Z"}}),
        );
    }

    /// Plans and writes until nothing is left to do.
    pub fn settle(&mut self) {
        for _ in 0..50 {
            let steps = plan(&self.world, super::NOW);
            if steps.is_empty() {
                // Time alone is no reason to write.
                assert_eq!(plan(&self.world, super::LATER), Vec::<Steps>::new());
                return;
            }
            self.write(&steps);
        }
        panic!(
            "it never comes to rest: {:?}",
            plan(&self.world, super::NOW)
        );
    }

    fn write(&mut self, plan: &[Vec<Action>]) {
        for steps in plan {
            for action in steps {
                if self.apply(action).is_err() {
                    break;
                }
                self.writes += 1;
                if self.cut_after == Some(self.writes - 1) {
                    return;
                }
            }
        }
    }

    pub fn apply(&mut self, action: &Action) -> Result<(), ()> {
        let world = &mut self.world;
        match action {
            Action::Patch {
                kind,
                key,
                version,
                patch: change,
            } => {
                let mut change = change.clone();
                if let Some(version) = version {
                    change["metadata"]["resourceVersion"] = json!(version);
                }
                match kind {
                    Kind::Host => {
                        patch(&mut world.hosts, key, &change)?;
                        merge(self.raw_hosts.get_mut(key).unwrap(), &change);
                        Ok(())
                    }
                    Kind::Metal3Cluster => patch(&mut world.metal3_clusters, key, &change),
                    Kind::Metal3Machine => patch(&mut world.metal3_machines, key, &change),
                    Kind::Machine => patch(&mut world.machines, key, &change),
                    Kind::AddressClaim(api) => {
                        let claim = world.addresses.claims.get_mut(&(*api, key.clone()));
                        let left = change["metadata"]["finalizers"].clone();
                        claim.unwrap().meta.finalizers = serde_json::from_value(left).unwrap();
                        Ok(())
                    }
                    other => panic!("{other:?}"),
                }
            }
            Action::PauseHost { key, version, by } => {
                let annotations = json!({
                    annotations::PAUSED: by,
                    annotations::STATUS: self.raw_hosts[key]["status"].to_string(),
                    capm3::BLOCK_MOVE_ANNOTATION: null,
                });
                let change =
                    json!({"metadata": {"resourceVersion": version, "annotations": annotations}});
                patch(&mut world.hosts, key, &change)?;
                merge(self.raw_hosts.get_mut(key).unwrap(), &change);
                Ok(())
            }
            Action::PatchStatus {
                kind,
                key,
                patch: change,
            } => match kind {
                Kind::Metal3Cluster => patch(&mut world.metal3_clusters, key, change),
                Kind::Metal3Machine => patch(&mut world.metal3_machines, key, change),
                Kind::DataTemplate => patch(&mut world.data_templates, key, change),
                other => panic!("{other:?}"),
            },
            Action::PutData { key, data, .. } => {
                world.data.insert(key.clone(), data.clone());
                Ok(())
            }
            Action::Create(object) => {
                let object = object.clone();
                let claim = match object["kind"].as_str().unwrap() {
                    "IPClaim" => AddressClaim::metal3(&serde_json::from_value(object).unwrap()),
                    _ => AddressClaim::contract(&serde_json::from_value(object).unwrap()),
                };
                let key = (claim.api, Key::of(&claim.meta));
                world.addresses.claims.entry(key).or_insert(claim);
                Ok(())
            }
            Action::Delete(Kind::AddressClaim(api), meta) => {
                let claim = world.addresses.claims.get_mut(&(*api, Key::of(meta)));
                claim.unwrap().meta.deletion_timestamp = Some(super::NOW.to_owned());
                Ok(())
            }
            Action::Put(_)
            | Action::Change(_)
            | Action::Delete(..)
            | Action::ForgetKeys(_)
            | Action::CreateSecretsKey { .. } => {
                panic!("not of this plan")
            }
        }
    }

    /// What the pool's controller does for a claim of Metal3's API.
    pub fn give(&mut self, claim: &str, address: Value) {
        let addresses = &mut self.world.addresses;
        let key = key(claim);
        let mut spec = address;
        spec["claim"] = json!({"name": claim});
        let object = json!({"metadata": {"name": format!("{claim}-x"), "namespace": "default"}, "spec": spec});
        let given = GivenAddress::metal3(&serde_json::from_value(object).unwrap()).unwrap();
        let claim = addresses.claims.get_mut(&(IpamApi::Metal3, key)).unwrap();
        claim.address = Some(given.meta.name.clone());
        let key = Key::of(&given.meta);
        addresses.given.insert((IpamApi::Metal3, key), given);
    }

    /// All objects as text, for comparison; a cut costs versions.
    pub fn without_versions(&self) -> String {
        let world = &self.world;
        let mut value = json!({
            "hosts": world.hosts.values().collect::<Vec<_>>(),
            "machines": world.metal3_machines.values().collect::<Vec<_>>(),
            "data": world.data.values().collect::<Vec<_>>(),
        });
        for kind in ["hosts", "machines"] {
            for object in value[kind].as_array_mut().unwrap() {
                object["metadata"]["resourceVersion"] = Value::Null;
            }
        }
        value.to_string()
    }
}
