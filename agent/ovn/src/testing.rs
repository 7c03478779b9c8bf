//! Objects for tests.

use kube::core::DynamicObject;
use serde_json::{Value, json};

use crate::kinds::{self, Network, Port, PortSpec, PortStatus};

pub fn network(key: &str, spec: &Value) -> Result<Network, String> {
    let (namespace, name) = key.split_once('/').expect("a namespace");
    let mut object = DynamicObject::new(name, &kinds::networks()).within(namespace);
    object.data = json!({"spec": spec});
    Network::parse(&object)
}

pub fn port(key: &str, network: &str) -> Port {
    Port {
        key: key.to_owned(),
        spec: PortSpec {
            network: network.to_owned(),
            pod: "pod".to_owned(),
            node: "node-1".to_owned(),
            address: None,
            mac: None,
        },
        status: PortStatus::default(),
    }
}
