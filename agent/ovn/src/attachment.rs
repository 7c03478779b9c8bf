//! What containerd asks for an interface of a pod, and the `LogicalPort` that stands for it.

use std::net::IpAddr;

use anyhow::{Context as _, Result, ensure};
use ipnet::IpNet;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{ResourceExt as _, core::DynamicObject};
use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::{
    kinds::{self, PortSpec},
    plugin::Request,
};

/// Which sandbox of the pod has the interface now.
pub const SANDBOX: &str = "firstlight.internal/sandbox";
const NAMESPACES: [&str; 2] = ["/var/run/netns/", "/run/netns/"];

/// What a request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    pub namespace: String,
    /// Of the `LogicalPort`.
    pub name: String,
    pub uid: String,
    pub container: String,
    pub interface: String,
    /// Name of the network namespace.
    pub netns: String,
    pub spec: PortSpec,
}

impl Attachment {
    pub fn of(request: &Request, node: &str) -> Result<Self> {
        let argument = |name: &str| {
            let found = request.argument(name).filter(|value| !value.is_empty());
            found.map(str::to_owned).with_context(|| {
                format!("CNI_ARGS has no {name}: the plugin is for pods of Kubernetes")
            })
        };
        let pod = argument("K8S_POD_NAME")?;
        ensure!(
            is_name(&request.interface),
            "the pod's interface cannot be called `{:.30}`",
            request.interface
        );
        let netns = NAMESPACES
            .iter()
            .find_map(|folder| request.netns.strip_prefix(folder));
        let network = request.config["network"].as_str();
        let network = network.context(
            "the configuration names no `network`: a LogicalNetwork makes one that does",
        )?;
        let asked = &request.config["runtimeConfig"];
        let address = match asked["ips"][0].as_str() {
            None => None,
            Some(text) => {
                let address = text
                    .parse::<IpNet>()
                    .map(|net| net.addr())
                    .or_else(|_| text.parse::<IpAddr>());
                Some(address.with_context(|| {
                    format!("the pod asks for `{text:.60}`, which is no address")
                })?)
            }
        };
        let mac = asked["mac"].as_str().map(parse_mac).transpose()?;
        Ok(Self {
            namespace: argument("K8S_POD_NAMESPACE")?,
            name: port_name(&pod, &request.interface),
            uid: argument("K8S_POD_UID")?,
            container: request.container.clone(),
            interface: request.interface.clone(),
            netns: netns.unwrap_or_default().to_owned(),
            spec: PortSpec {
                network: network.to_owned(),
                pod,
                node: node.to_owned(),
                address,
                mac,
            },
        })
    }

    pub fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    pub fn object(&self) -> DynamicObject {
        let mut object = DynamicObject::new(&self.name, &kinds::ports()).within(&self.namespace);
        object.metadata.owner_references = Some(vec![OwnerReference {
            api_version: "v1".to_owned(),
            kind: "Pod".to_owned(),
            name: self.spec.pod.clone(),
            uid: self.uid.clone(),
            controller: None,
            block_owner_deletion: None,
        }]);
        object.metadata.annotations = Some([(SANDBOX.to_owned(), self.container.clone())].into());
        object.data = json!({"spec": self.spec});
        object
    }

    /// It is of this pod, not of an earlier one of its name.
    pub fn owns(&self, found: &DynamicObject) -> bool {
        found
            .owner_references()
            .iter()
            .any(|owner| owner.uid == self.uid)
    }
}

/// Of a device, and no option of a program.
fn is_name(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    (1..=15).contains(&text.len())
        && text.as_bytes()[0].is_ascii_alphanumeric()
        && text.bytes().all(is_part)
}

/// Readable, unless that is too long for a name.
fn port_name(pod: &str, interface: &str) -> String {
    let name = format!("{pod}.{}", interface.to_ascii_lowercase().replace('_', "-"));
    if name.len() <= 253 {
        name
    } else {
        format!("port-{}", short(&name))
    }
}

fn parse_mac(text: &str) -> Result<String> {
    let bytes: Vec<&str> = text.split(':').collect();
    let is_byte = |byte: &&str| byte.len() == 2 && u8::from_str_radix(byte, 16).is_ok();
    ensure!(
        bytes.len() == 6
            && bytes.iter().all(is_byte)
            && u8::from_str_radix(bytes[0], 16).is_ok_and(|first| first & 1 == 0),
        "the pod asks for `{text:.60}`, which is no MAC address of one station"
    );
    Ok(text.to_ascii_lowercase())
}

/// A few letters that stand for a text.
pub fn short(text: &str) -> String {
    let digest = Sha256::digest(text);
    digest
        .iter()
        .take(6)
        .fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::Value;

    use super::*;
    use crate::{kinds::Port, testing::request};

    #[test]
    fn a_request_says_whose_interface_it_is_and_what_the_pod_asks_for() {
        let asked = json!({"ips": ["10.20.0.7/24"], "mac": "0A:00:00:00:00:07"});
        let config = json!({"cniVersion": "1.0.0", "network": "a/blue", "runtimeConfig": asked});
        let attachment = Attachment::of(&request(&config), "node-1").unwrap();
        assert_eq!(
            (&*attachment.key(), &*attachment.netns, &*attachment.uid),
            ("a/web-0.net1", "cni-7", "u1")
        );
        assert_eq!(attachment.spec.address, Some("10.20.0.7".parse().unwrap()));
        assert_eq!(attachment.spec.mac.as_deref(), Some("0a:00:00:00:00:07"));
        let object = attachment.object();
        assert!(attachment.owns(&object));
        let port = Port::parse(&object).unwrap();
        assert_eq!((port.spec, &*port.key), (attachment.spec, "a/web-0.net1"));
    }

    #[test]
    fn what_cannot_be_made_is_refused_in_a_sentence() {
        let blue = json!({"network": "a/blue"});
        let with = |asked: Value| json!({"network": "a/blue", "runtimeConfig": asked});
        for (config, interface, why) in [
            (json!({}), "net1", "names no `network`"),
            (
                with(json!({"ips": ["blue"]})),
                "net1",
                "`blue`, which is no address",
            ),
            (
                with(json!({"mac": "01:00:5e:00:00:01"})),
                "net1",
                "no MAC address of one station",
            ),
            (
                with(json!({"mac": "0a:00:00:00:00"})),
                "net1",
                "no MAC address",
            ),
            (blue.clone(), "-batch", "cannot be called `-batch`"),
            (blue.clone(), "a b", "cannot be called"),
            (blue, "sixteen-letters-", "cannot be called"),
        ] {
            let mut request = request(&config);
            interface.clone_into(&mut request.interface);
            let told = format!("{:#}", Attachment::of(&request, "node-1").unwrap_err());
            assert!(told.contains(why), "{told}");
        }
        let mut of_nobody = request(&json!({"network": "a/blue"}));
        of_nobody.arguments.clear();
        let told = Attachment::of(&of_nobody, "node-1")
            .unwrap_err()
            .to_string();
        assert!(told.contains("K8S_POD_NAME"), "{told}");
    }

    #[test]
    fn names_fit_where_they_are_used() {
        assert_eq!(port_name("web-0", "Net_1"), "web-0.net-1");
        assert!(port_name(&"a".repeat(253), "net1").len() < 253);
    }
}
