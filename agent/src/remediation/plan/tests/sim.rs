//! The API server's part: one object of each kind in memory, merge patches, versions, finalizers. And one node.

use std::{collections::BTreeMap, time::Duration};

use serde_json::{Value, json};

use super::super::{Plan, plan};
use crate::{
    capi::world::Host,
    objects::{Key, Part, testing::merge},
    remediation::{Action, Kind, Remediations, nodes::NodeOrder, nodes::NodeView},
};

pub const CLUSTER: &str = "lab";
pub const OFF: &str = "reboot.metal3.io/metal3-remediation-uid-Remediation";
const START: i64 = 1_795_219_200;

pub struct Sim {
    /// By kind.
    pub objects: BTreeMap<String, Value>,
    pub clusters: BTreeMap<String, Value>,
    pub is_partial: bool,
    pub now: i64,
    /// When the agent began.
    began: i64,
    /// The node's.
    pub is_ready: bool,
    pub is_tainted: bool,
    /// Seconds in which its cluster has not answered.
    pub silent_for: Option<u64>,
    /// What came of the last visit, and for which order.
    view: Option<(NodeOrder, NodeView)>,
}

fn at(kind: Kind) -> String {
    format!("{kind:?}")
}

impl Sim {
    pub fn new() -> Self {
        let cluster = json!({"metadata": {"name": CLUSTER, "namespace": "default"}});
        Self {
            objects: BTreeMap::new(),
            clusters: BTreeMap::from([(CLUSTER.to_owned(), cluster)]),
            is_partial: false,
            now: START,
            began: START - 10_000_000,
            is_ready: false,
            is_tainted: false,
            silent_for: None,
            view: None,
        }
    }

    fn add(&mut self, kind: &str, name: &str, object: &Value) {
        let mut made = json!({"metadata": {
            "name": name, "namespace": "default", "uid": format!("uid-{kind}"), "resourceVersion": "1",
            "labels": {"cluster.x-k8s.io/cluster-name": CLUSTER}, "annotations": {}, "finalizers": [],
        }});
        merge(&mut made, object);
        self.objects.insert(kind.to_owned(), made);
    }

    fn owned() -> Value {
        json!([{"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "name": "m", "uid": "uid-Machine"}])
    }

    /// The machine m on the host n1, which is on.
    pub fn server(&mut self, spec: Value) {
        let mut host = json!({
            "spec": {"online": true, "consumerRef": {"apiVersion": "infrastructure.cluster.x-k8s.io/v1beta2", "kind": "Metal3Machine", "name": "m3m"}},
            "status": {"poweredOn": true},
        });
        merge(&mut host["spec"], &spec);
        self.add("Host", "n1", &host);
        let machine = json!({
            "spec": {"clusterName": CLUSTER},
            "status": {"nodeRef": {"name": "node-1"}, "conditions": []},
        });
        self.add("Machine", "m", &machine);
        let owned = json!({"metadata": {"ownerReferences": Self::owned()}});
        self.add("Metal3Machine", "m3m", &owned);
    }

    pub fn remediate(&mut self, strategy: Value) {
        let mut made = json!({"metadata": {"ownerReferences": Self::owned()}, "spec": {}});
        made["spec"]["strategy"] = strategy;
        self.add("Remediation", "m", &made);
    }

    pub fn get(&self, kind: Kind) -> &Value {
        self.objects.get(&at(kind)).unwrap_or(&Value::Null)
    }

    /// Of the host; empty if it has none.
    pub fn annotation(&self, name: &str) -> &str {
        let all = &self.get(Kind::Host)["metadata"]["annotations"];
        all[name].as_str().unwrap_or_default()
    }

    pub fn change(&mut self, kind: Kind, change: Value) {
        let object = self.objects.get_mut(&at(kind)).unwrap();
        merge(object, &change);
        let meta = &mut object["metadata"];
        let version: u64 = meta["resourceVersion"].as_str().unwrap().parse().unwrap();
        meta["resourceVersion"] = json!((version + 1).to_string());
        let is_free = meta["finalizers"] == json!([]);
        if !meta["deletionTimestamp"].is_null() && is_free && kind == Kind::Remediation {
            self.objects.remove(&at(kind));
        }
    }

    pub fn rename(&mut self, kind: Kind, name: &str) {
        self.change(kind, json!({"metadata": {"name": name}}));
    }

    pub fn delete(&mut self, kind: Kind) {
        let now = json!({"metadata": {"deletionTimestamp": "2026-11-26T00:00:00Z"}});
        self.change(kind, now);
    }

    pub fn cluster(&mut self, change: Value) {
        merge(self.clusters.get_mut(CLUSTER).unwrap(), &change);
    }

    pub fn plan(&self) -> Plan {
        let mut seen = Remediations {
            is_partial: self.is_partial,
            awake: Duration::from_secs((self.now - self.began).try_into().unwrap_or_default()),
            ..Remediations::default()
        };
        for (kind, object) in &self.objects {
            let object = object.clone();
            let name = object["metadata"]["name"].as_str().unwrap();
            let key = Key::new("default", name);
            match kind.as_str() {
                "Remediation" => {
                    let it = serde_json::from_value(object).unwrap();
                    seen.remediations.insert(key, it);
                }
                "Machine" => {
                    let it = serde_json::from_value(object).unwrap();
                    seen.machines.insert(key, it);
                }
                "Host" => {
                    let it: Host = serde_json::from_value(object).unwrap();
                    seen.hosts.insert(key, it);
                }
                _ => {
                    let it = serde_json::from_value(object).unwrap();
                    seen.metal3_machines.insert(key, it);
                }
            }
        }
        for (name, cluster) in &self.clusters {
            let cluster = serde_json::from_value(cluster.clone()).unwrap();
            seen.clusters.insert(Key::new("default", name), cluster);
        }
        let view = self.view.iter();
        let uid = "uid-Remediation".to_owned();
        seen.nodes = view.map(|(_, view)| (uid.clone(), view.clone())).collect();
        plan(&seen, self.now)
    }

    /// False: refused.
    pub fn apply(&mut self, action: &Action) -> bool {
        let mut fields = action.patch.as_object().unwrap().keys();
        let written = match action.part {
            Part::Object => "metadata",
            Part::Status => "status",
        };
        assert!(fields.all(|field| field == written), "{action:?}");
        let now = &self.get(action.kind)["metadata"];
        let is_same =
            now["uid"] == action.meta.uid && now["resourceVersion"] == action.meta.resource_version;
        if is_same {
            self.change(action.kind, action.patch.clone());
        }
        is_same
    }

    /// As [`Nodes`](crate::remediation::nodes::Nodes) has it: what was found is forgotten with its order. Whether there is news.
    pub fn visit(&mut self, order: Option<&NodeOrder>) -> bool {
        let before = self.view.take();
        let Some(order) = order else {
            return before.is_some();
        };
        let view = if let Some(seconds) = self.silent_for {
            NodeView::Silent(Duration::from_secs(seconds))
        } else {
            self.is_tainted = order.taint.keeps(self.is_ready, self.is_tainted);
            NodeView::There {
                is_ready: self.is_ready,
                is_tainted: self.is_tainted,
            }
        };
        self.view = Some((order.clone(), view));
        self.view != before
    }

    /// A restart of the agent.
    pub fn restart(&mut self) {
        (self.view, self.began) = (None, self.now);
    }

    /// Plans, writes and visits until nothing is left to do.
    pub fn settle(&mut self) {
        for _ in 0..50 {
            let plan = self.plan();
            let steps = !plan.steps.is_empty();
            for steps in &plan.steps {
                steps.iter().all(|action| self.apply(action));
            }
            let order = plan.nodes.get("uid-Remediation");
            if let Some((of, _)) = &self.view
                && order != Some(of)
            {
                self.view = None;
            }
            let is_news = self.visit(order);
            if !steps && !is_news {
                return;
            }
        }
        panic!("it never comes to rest: {:?}", self.plan());
    }
}
