//! The API server's part: objects in memory, merge patches, versions, finalizers.

use std::{collections::BTreeMap, sync::Arc};

use firstlight_api::site::parse_site;
use serde_json::{Value, json};

use super::super::plan;
use crate::{
    capi::addresses::{AddressClaim, GivenAddress, IpamApi},
    objects::{Key, Part, testing::merge},
    pools::{Action, Kind, Pools},
};

pub const NOW: &str = "2026-11-25T20:00:00Z";
pub const METAL3: Kind = Kind::Claim(IpamApi::Metal3);
pub const CONTRACT: Kind = Kind::Claim(IpamApi::Contract);
pub const ADDRESS: Kind = Kind::Address(IpamApi::Metal3);
pub const CONTRACT_ADDRESS: Kind = Kind::Address(IpamApi::Contract);

#[derive(Default)]
pub struct Sim {
    pub objects: BTreeMap<(String, String), Value>,
    pub clusters: BTreeMap<String, Value>,
    pub site: String,
    pub made: u64,
}

fn at(kind: Kind, name: &str) -> (String, String) {
    (format!("{kind:?}"), name.to_owned())
}

impl Sim {
    pub fn add(&mut self, kind: Kind, name: &str, mut object: Value) {
        self.made += 1;
        object["metadata"]["name"] = json!(name);
        object["metadata"]["namespace"] = json!("default");
        object["metadata"]["uid"] = json!(format!("uid-{}", self.made));
        object["metadata"]["resourceVersion"] = json!("1");
        self.objects.entry(at(kind, name)).or_insert(object);
    }

    pub fn pool(&mut self, name: &str, spec: Value) {
        let mut whole = json!({"namePrefix": name});
        merge(&mut whole, &spec);
        self.add(Kind::Pool, name, json!({"spec": whole}));
    }

    pub fn claim(&mut self, kind: Kind, name: &str, pool: &str) {
        let spec = match kind {
            CONTRACT => {
                json!({"poolRef": {"apiGroup": "ipam.metal3.io", "kind": "IPPool", "name": pool}})
            }
            _ => json!({"pool": {"name": pool}}),
        };
        self.add(kind, name, json!({"spec": spec}));
    }

    pub fn get(&self, kind: Kind, name: &str) -> &Value {
        self.objects.get(&at(kind, name)).unwrap_or(&Value::Null)
    }

    pub fn all(&self, kind: Kind) -> impl Iterator<Item = &Value> {
        let kind = format!("{kind:?}");
        let all = self.objects.iter();
        all.filter(move |((of, _), _)| *of == kind)
            .map(|(_, object)| object)
    }

    pub fn change(&mut self, kind: Kind, name: &str, change: &Value) {
        let object = self.objects.get_mut(&at(kind, name)).unwrap();
        merge(object, change);
        self.touch(kind, name);
    }

    /// As `kubectl delete` does.
    pub fn delete(&mut self, kind: Kind, name: &str) {
        if let Some(object) = self.objects.get_mut(&at(kind, name)) {
            object["metadata"]["deletionTimestamp"] = json!(NOW);
            self.touch(kind, name);
        }
    }

    fn touch(&mut self, kind: Kind, name: &str) {
        let meta = &mut self.objects.get_mut(&at(kind, name)).unwrap()["metadata"];
        let version: u64 = meta["resourceVersion"].as_str().unwrap().parse().unwrap();
        meta["resourceVersion"] = json!((version + 1).to_string());
        let is_free = meta["finalizers"].as_array().is_none_or(Vec::is_empty);
        if !meta["deletionTimestamp"].is_null() && is_free {
            self.objects.remove(&at(kind, name));
        }
    }

    pub fn seen(&self) -> Pools {
        let mut seen = Pools {
            site: Arc::new(parse_site(&self.site).unwrap()),
            ..Pools::default()
        };
        let key = |name: &str| Key::new("default", name);
        for ((kind, name), object) in &self.objects {
            let object = object.clone();
            let given = &mut seen.addresses.given;
            let claims = &mut seen.addresses.claims;
            if *kind == format!("{:?}", Kind::Pool) {
                let pool = serde_json::from_value(object).unwrap();
                seen.pools.insert(key(name), pool);
            } else if *kind == format!("{METAL3:?}") {
                let claim = AddressClaim::metal3(&serde_json::from_value(object).unwrap());
                claims.insert((claim.api, key(name)), claim);
            } else if *kind == format!("{CONTRACT:?}") {
                let claim = AddressClaim::contract(&serde_json::from_value(object).unwrap());
                claims.insert((claim.api, key(name)), claim);
            } else if *kind == format!("{ADDRESS:?}") {
                let it = GivenAddress::metal3(&serde_json::from_value(object).unwrap()).unwrap();
                given.insert((it.api, key(name)), it);
            } else {
                let it = GivenAddress::contract(&serde_json::from_value(object).unwrap()).unwrap();
                given.insert((it.api, key(name)), it);
            }
        }
        for (name, cluster) in &self.clusters {
            let cluster = serde_json::from_value(cluster.clone()).unwrap();
            seen.clusters.insert(key(name), cluster);
        }
        seen
    }

    pub fn plan(&self) -> Vec<Vec<Action>> {
        plan(&self.seen(), NOW)
    }

    /// False: refused.
    pub fn apply(&mut self, action: &Action) -> bool {
        match action {
            Action::Patch {
                kind,
                part,
                meta,
                patch,
            } => {
                let patched = match part {
                    Part::Object => "metadata",
                    Part::Status => "status",
                };
                let fields: Vec<_> = patch.as_object().unwrap().keys().collect();
                assert_eq!(fields, [patched]);
                let is_same = self.is_same(*kind, meta);
                if is_same {
                    self.change(*kind, &meta.name, patch);
                }
                is_same
            }
            Action::Create(kind, object) => {
                let name = object["metadata"]["name"].as_str().unwrap();
                self.add(*kind, name, object.clone());
                true
            }
            Action::Delete(kind, meta) => {
                let is_same = self.is_same(*kind, meta);
                if is_same {
                    self.delete(*kind, &meta.name);
                }
                is_same
            }
        }
    }

    fn is_same(&self, kind: Kind, meta: &firstlight_api::object::Meta) -> bool {
        let now = &self.get(kind, &meta.name)["metadata"];
        now["uid"] == meta.uid && now["resourceVersion"] == meta.resource_version
    }

    /// Plans and writes until nothing is left to do.
    pub fn settle(&mut self) {
        for _ in 0..50 {
            let plan = self.plan();
            if plan.is_empty() {
                return;
            }
            for steps in plan {
                steps.iter().all(|action| self.apply(action));
            }
        }
        panic!("it never comes to rest: {:?}", self.plan());
    }

    /// What the claim was told: its address, or why it has none.
    pub fn told(&self, kind: Kind, name: &str) -> Result<String, String> {
        let claim = self.get(kind, name);
        let (address, object) = match kind {
            CONTRACT => (&claim["status"]["addressRef"], CONTRACT_ADDRESS),
            _ => (&claim["status"]["address"], ADDRESS),
        };
        if let Some(address) = address["name"].as_str() {
            let ip = &self.get(object, address)["spec"]["address"];
            return Ok(ip
                .as_str()
                .unwrap_or("of an object that is gone")
                .to_owned());
        }
        let why = match kind {
            CONTRACT => &claim["status"]["conditions"][0]["message"],
            _ => &claim["status"]["errorMessage"],
        };
        Err(why.as_str().unwrap_or("nothing").to_owned())
    }
}
