//! An interface of a pod on this node: a `LogicalPort` says what it is to be called and numbered, a pair of devices leads from the pod to
//! OVN's bridge, and it is handed over when OVN has made its way. Asked twice for the same, it does the same.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use ipnet::IpNet;
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
    core::DynamicObject,
};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    attachment::{Attachment, SANDBOX},
    devices,
    kinds::{self, Port, PortStatus, Route},
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
        let attachment = Attachment::of(request, &self.node)?;
        let port = self.port(&attachment).await?;
        let (address, mac) = (
            port.address.context("no address")?,
            port.mac.context("no MAC address")?,
        );
        let mtu = port.mtu.context("no MTU")?;
        let device = devices::name(&request.container, &request.interface);
        // Left from an attempt that was cut.
        drop(self.remove(&device).await);
        let made = async {
            devices::connect(&device, &attachment, &mac, mtu).await?;
            devices::number(&attachment, address, &port.routes).await?;
            if self.datapath == Datapath::Netdev {
                devices::fill_in_sums(&attachment).await?;
            }
            let (key, patience) = (attachment.key(), PATIENCE.as_secs());
            let join = format!(
                "--may-exist add-port {BRIDGE} {device} -- set Interface {device} external_ids:iface-id=\"{key}\" external_ids:attached-mac=\"{mac}\""
            );
            program::say("ovs-vsctl", &join).await?;
            let until = format!(
                "--timeout={patience} wait-until Interface {device} external_ids:ovn-installed=true"
            );
            program::say("ovs-vsctl", &until)
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
        self.remove(&devices::name(&request.container, &request.interface))
            .await?;
        let Ok(attachment) = Attachment::of(request, &self.node) else {
            return Ok(());
        };
        // Unless the same pod has begun anew meanwhile, in another sandbox.
        let ports = self.ports(&attachment);
        if let Some(found) = ports.get_opt(&attachment.name).await?
            && found.annotations().get(SANDBOX) == Some(&request.container)
        {
            remove_object(&ports, &found).await?;
        }
        Ok(())
    }

    async fn check(&self, request: &Request) -> Result<()> {
        let device = devices::name(&request.container, &request.interface);
        let ask = format!("get Interface {device} external_ids:ovn-installed");
        let said = program::say("ovs-vsctl", &ask).await?;
        ensure!(
            said.contains("true"),
            "OVN has taken the way of {} away",
            request.interface
        );
        Ok(())
    }

    async fn remove(&self, device: &str) -> Result<()> {
        let forget = format!("--if-exists del-port {BRIDGE} {device}");
        program::say("ovs-vsctl", &forget).await?;
        // It goes with the pod's end of it, too.
        drop(program::say("ip", &format!("link delete {device}")).await);
        Ok(())
    }

    fn ports(&self, attachment: &Attachment) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &attachment.namespace, &kinds::ports())
    }

    /// Made if it is not there, with the address that it has got.
    async fn port(&self, attachment: &Attachment) -> Result<PortStatus> {
        let ports = self.ports(attachment);
        let end = Instant::now() + PATIENCE;
        let mut problem =
            "nobody gave an address: is the pod ovn-central in kube-system running?".to_owned();
        while Instant::now() < end {
            match ports.get_opt(&attachment.name).await? {
                None => {
                    let made = ports
                        .create(&PostParams::default(), &attachment.object())
                        .await;
                    if let Err(kube::Error::Api(error)) = &made
                        && error.code == 409
                    {
                        continue;
                    }
                    made.context("making the LogicalPort")?;
                }
                Some(found) if !attachment.owns(&found) => remove_object(&ports, &found).await?,
                Some(found) => {
                    let port = Port::parse(&found).map_err(anyhow::Error::msg)?;
                    if port.spec.network != attachment.spec.network {
                        remove_object(&ports, &found).await?;
                    } else if port.status.address.is_some() {
                        let mark = json!({"metadata": {"annotations": {SANDBOX: attachment.container}}, "spec": {"node": attachment.spec.node}});
                        ports
                            .patch(
                                &attachment.name,
                                &PatchParams::default(),
                                &Patch::Merge(&mark),
                            )
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

fn result(request: &Request, device: &str, mac: &str, address: IpNet, routes: &[Route]) -> Value {
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::testing::request;

    #[test]
    fn the_answer_is_of_the_version_that_was_asked_for() {
        let told = |version: &str, address: &str| {
            let request = request(&json!({"cniVersion": version}));
            result(
                &request,
                "ovn1",
                "0a:00:00:00:00:07",
                address.parse().unwrap(),
                &[],
            )
        };
        let new = told("1.0.0", "10.20.0.7/24");
        assert_eq!(
            new["ips"],
            json!([{"address": "10.20.0.7/24", "interface": 1}])
        );
        assert_eq!(new["interfaces"][1]["sandbox"], "/var/run/netns/cni-7");
        assert_eq!(told("0.3.1", "fd00::7/64")["ips"][0]["version"], "6");
    }
}
