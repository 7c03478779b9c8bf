//! Objects for tests.

use kube::core::DynamicObject;
use serde_json::{Value, json};

use crate::{
    kinds::{self, Network, Port, PortSpec, PortStatus},
    plugin::Request,
};

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

/// For the interface `net1` of the pod `a/web-0`.
pub fn request(config: &Value) -> Request {
    Request {
        command: "ADD".to_owned(),
        container: "c1".to_owned(),
        netns: "/var/run/netns/cni-7".to_owned(),
        interface: "net1".to_owned(),
        arguments: "IgnoreUnknown=1;K8S_POD_NAMESPACE=a;K8S_POD_NAME=web-0;K8S_POD_UID=u1"
            .to_owned(),
        config: config.clone(),
    }
}
