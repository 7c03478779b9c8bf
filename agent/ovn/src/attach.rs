//! An interface of a pod on this node: a `LogicalPort` says what it is to be called and numbered, a pair of devices leads from the pod to
//! OVN's bridge, and it is handed over when OVN has made its way. Asked twice for the same, it does the same.

use std::{net::IpAddr, time::Duration};

use anyhow::{Context as _, Result, bail, ensure};
use ipnet::IpNet;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
    core::DynamicObject,
};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use crate::{
    kinds::{self, Port, PortSpec, PortStatus},
    node::Datapath,
    plugin::{Answer, Request},
    program,
};

/// The bridge that OVN makes.
const BRIDGE: &str = "br-int";
/// For an address, and for the way: containerd waits for two minutes.
const PATIENCE: Duration = Duration::from_secs(45);
const PAUSE: Duration = Duration::from_millis(100);
/// Of any plugin's own errors, the first by the specification.
const OWN: u32 = 100;
const NAMESPACES: [&str; 2] = ["/var/run/netns/", "/run/netns/"];

#[derive(Clone)]
pub struct Attacher {
    pub client: Client,
    pub node: String,
    pub datapath: Datapath,
}

impl Attacher {
    pub async fn answer(&self, request: &Request) -> Answer {
        let done = match &*request.command {
            "ADD" => self.add(request).await,
            "DEL" => self.delete(request).await.map(|()| Value::Null),
            "CHECK" => self.check(request).await.map(|()| Value::Null),
            "STATUS" | "GC" => Ok(Value::Null),
            _ => return Err((4, format!("unknown command {:.20}", request.command))),
        };
        done.map_err(|error| {
            let error = format!("{error:#}");
            tracing::warn!(
                command = request.command,
                interface = request.interface,
                error,
                "an interface"
            );
            (OWN, error)
        })
    }

    async fn add(&self, request: &Request) -> Result<Value> {
        let wish = Wish::of(request, &self.node)?;
        let port = self.port(&wish).await?;
        let (address, mac) = (
            port.address.context("no address")?,
            port.mac.context("no MAC address")?,
        );
        let mtu = port.mtu.context("no MTU")?;
        let device = device(&request.container, &request.interface);
        // Left from an attempt that was cut.
        drop(self.remove(&device).await);
        let made = async {
            connect(&device, &wish, &mac, mtu).await?;
            number(&wish, address, &port.routes).await?;
            if self.datapath == Datapath::Netdev {
                // Nobody fills sums in on that way.
                let words = [
                    "netns",
                    "exec",
                    &wish.netns,
                    "ethtool",
                    "-K",
                    &request.interface,
                    "tx",
                    "off",
                ];
                program::run("ip", words).await?;
            }
            let interface = ["--", "set", "Interface", &device];
            let ids = [
                format!("external_ids:iface-id=\"{}\"", wish.key()),
                format!("external_ids:attached-mac=\"{mac}\""),
            ];
            let mut words = vec!["--may-exist", "add-port", BRIDGE, &device];
            words.extend(interface);
            words.extend(ids.iter().map(String::as_str));
            program::run("ovs-vsctl", words).await?;
            let patience = format!("--timeout={}", PATIENCE.as_secs());
            let installed = [
                &patience,
                "wait-until",
                "Interface",
                &device,
                "external_ids:ovn-installed=true",
            ];
            program::run("ovs-vsctl", installed)
                .await
                .context("OVN has not made the port's way: `kubectl logs -n kube-system -l app=ovn-node -c controller` on this node says why")
        };
        if let Err(error) = made.await {
            drop(self.remove(&device).await);
            return Err(error);
        }
        Ok(result(request, &device, &mac, address, &port.routes))
    }

    async fn delete(&self, request: &Request) -> Result<()> {
        self.remove(&device(&request.container, &request.interface))
            .await?;
        let Ok(wish) = Wish::of(request, &self.node) else {
            return Ok(());
        };
        // Unless the same pod has begun anew meanwhile, in another sandbox.
        let ports = self.ports(&wish);
        if let Some(found) = ports.get_opt(&wish.name).await?
            && found.annotations().get(SANDBOX) == Some(&request.container)
        {
            remove_object(&ports, &found).await?;
        }
        Ok(())
    }

    async fn check(&self, request: &Request) -> Result<()> {
        let device = device(&request.container, &request.interface);
        let words = ["get", "Interface", &device, "external_ids:ovn-installed"];
        let said = program::run("ovs-vsctl", words).await?;
        ensure!(
            said.contains("true"),
            "OVN has taken the way of {} away",
            request.interface
        );
        Ok(())
    }

    async fn remove(&self, device: &str) -> Result<()> {
        program::run("ovs-vsctl", ["--if-exists", "del-port", BRIDGE, device]).await?;
        // It goes with the pod's end of it, too.
        drop(program::run("ip", ["link", "delete", device]).await);
        Ok(())
    }

    fn ports(&self, wish: &Wish) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &wish.namespace, &kinds::ports())
    }

    /// Made if it is not there, with the address that it has got.
    async fn port(&self, wish: &Wish) -> Result<PortStatus> {
        let ports = self.ports(wish);
        let end = Instant::now() + PATIENCE;
        let mut problem =
            "nobody gave an address: is the pod ovn-central in kube-system running?".to_owned();
        while Instant::now() < end {
            match ports.get_opt(&wish.name).await? {
                None => {
                    let made = ports.create(&PostParams::default(), &wish.object()).await;
                    if let Err(kube::Error::Api(error)) = &made
                        && error.code == 409
                    {
                        continue;
                    }
                    made.context("making the LogicalPort")?;
                }
                Some(found) if !wish.owns(&found) => remove_object(&ports, &found).await?,
                Some(found) => {
                    let port = Port::parse(&found).map_err(anyhow::Error::msg)?;
                    if port.spec.network != wish.spec.network {
                        remove_object(&ports, &found).await?;
                    } else if port.status.address.is_some() {
                        let mark = json!({"metadata": {"annotations": {SANDBOX: wish.container}}, "spec": {"node": wish.spec.node}});
                        ports
                            .patch(&wish.name, &PatchParams::default(), &Patch::Merge(&mark))
                            .await?;
                        return Ok(port.status);
                    } else if let Some(told) = port.status.problem {
                        problem = told;
                    }
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
        bail!(problem)
    }
}

/// Which sandbox of the pod has the interface now.
const SANDBOX: &str = "firstlight.internal/sandbox";

async fn remove_object(ports: &Api<DynamicObject>, found: &DynamicObject) -> Result<()> {
    let same = Preconditions {
        uid: found.uid(),
        resource_version: None,
    };
    let params = DeleteParams::default().preconditions(same);
    match ports.delete(&found.name_any(), &params).await {
        Err(kube::Error::Api(error)) if [404, 409].contains(&error.code) => Ok(()),
        deleted => deleted.map(drop).map_err(Into::into),
    }
}

/// What a request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Wish {
    namespace: String,
    /// Of the `LogicalPort`.
    name: String,
    uid: String,
    container: String,
    interface: String,
    /// Name of the network namespace.
    netns: String,
    spec: PortSpec,
}

impl Wish {
    fn of(request: &Request, node: &str) -> Result<Self> {
        let argument = |name: &str| {
            let found = request.argument(name).filter(|value| !value.is_empty());
            found.map(str::to_owned).with_context(|| {
                format!("CNI_ARGS has no {name}: the plugin is for pods of Kubernetes")
            })
        };
        let pod = argument("K8S_POD_NAME")?;
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

    fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    fn object(&self) -> DynamicObject {
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
    fn owns(&self, found: &DynamicObject) -> bool {
        found
            .owner_references()
            .iter()
            .any(|owner| owner.uid == self.uid)
    }
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

/// The node's end of the pair; fifteen characters is what the kernel takes.
fn device(container: &str, interface: &str) -> String {
    format!("ovn{}", short(&format!("{container} {interface}")))
}

fn short(text: &str) -> String {
    let digest = Sha256::digest(text);
    digest
        .iter()
        .take(6)
        .fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}

async fn connect(device: &str, wish: &Wish, mac: &str, mtu: u32) -> Result<()> {
    ensure!(
        !wish.netns.is_empty(),
        "the pod's network namespace is not below {}",
        NAMESPACES[1]
    );
    let mtu = mtu.to_string();
    let pair = [
        "link",
        "add",
        device,
        "mtu",
        &mtu,
        "type",
        "veth",
        "peer",
        "name",
        &wish.interface,
        "mtu",
        &mtu,
        "address",
        mac,
        "netns",
        &wish.netns,
    ];
    program::run("ip", pair).await?;
    program::run("ip", ["link", "set", device, "up"]).await?;
    program::run(
        "ip",
        ["-n", &wish.netns, "link", "set", &wish.interface, "up"],
    )
    .await
    .map(drop)
}

async fn number(wish: &Wish, address: IpNet, routes: &[kinds::Route]) -> Result<()> {
    let text = address.to_string();
    let mut words = vec![
        "-n",
        &wish.netns,
        "address",
        "add",
        &text,
        "dev",
        &wish.interface,
    ];
    if address.addr().is_ipv6() {
        // Nobody else can have it, and the pod wants to use it now.
        words.push("nodad");
    }
    program::run("ip", words).await?;
    for route in routes {
        let (to, via) = (route.to.to_string(), route.via.to_string());
        let words = [
            "-n",
            &wish.netns,
            "route",
            "add",
            &to,
            "via",
            &via,
            "dev",
            &wish.interface,
        ];
        program::run("ip", words)
            .await
            .with_context(|| format!("the route to {to}"))?;
    }
    Ok(())
}

fn result(
    request: &Request,
    device: &str,
    mac: &str,
    address: IpNet,
    routes: &[kinds::Route],
) -> Value {
    let mut ip = json!({"address": address.to_string(), "interface": 1});
    if request.version().starts_with("0.") {
        ip["version"] = json!(if address.addr().is_ipv4() { "4" } else { "6" });
    }
    let routes: Vec<Value> = routes
        .iter()
        .map(|route| json!({"dst": route.to.to_string(), "gw": route.via.to_string()}))
        .collect();
    json!({
        "cniVersion": request.version(),
        "interfaces": [{"name": device}, {"name": request.interface, "mac": mac, "sandbox": request.netns}],
        "ips": [ip],
        "routes": routes,
        "dns": {},
    })
}
