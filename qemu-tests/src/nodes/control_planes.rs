//! Several control planes that share an address, told what the objects of a cluster tell them.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use imagebuilder::build::settings::find_source;
use serde_json::{Value, json};

use super::machine::{AUTHORITY, Node};
use super::{Cluster, Nodes, Setup};

/// The address of their API.
pub const ENDPOINT: &str = "172.22.0.9";
/// Objects of a cluster with three control planes, as the agent makes them.
const OBJECTS: &str = "agent/src/clusters/golden/three.json";
/// Of the site that they are about.
const THEIRS: [(&str, &str); 2] = [("10.0.9.9", ENDPOINT), ("10.0.0.0/16", "172.22.0.0/24")];
/// What Cluster API puts on each control plane before its first start.
const SHARED: &str = "pki/ca.crt pki/ca.key pki/sa.key pki/sa.pub pki/front-proxy-ca.crt pki/front-proxy-ca.key pki/etcd/ca.crt pki/etcd/ca.key";

impl Cluster {
    /// Three nodes, each a control plane, all Ready.
    pub fn start_three(parts: &Nodes, place: &Path) -> Result<Self> {
        let cluster = Self::make(parts, None, place, 3, Setup::Ours)?;
        let told = Told::read()?;
        let (first, others) = cluster.nodes.split_first().context("no nodes")?;
        first.answers()?;
        let version = first.run("kubeadm version --output=short")?;
        first.run("kubeadm init phase certs sa")?;
        told.prepare(first)?;
        let mut wish = first.machine.init(&version);
        told.complete(&mut wish)?;
        first.kubeadm("init", &wish)?;
        cluster.take_over(first)?;
        let authority = first.run(AUTHORITY)?;
        let pki = first.run(&format!("tar -C /etc/kubernetes -c {SHARED} | base64 -w0"))?;
        for node in others {
            node.run(&format!(
                "mkdir -p /etc/kubernetes; base64 -d <<'PKI' | tar -C /etc/kubernetes -x\n{pki}\nPKI"
            ))?;
            told.prepare(node)?;
            let mut wish = node.machine.join(ENDPOINT, &authority);
            wish[0]["controlPlane"] =
                json!({"localAPIEndpoint": {"advertiseAddress": node.machine.address()}});
            wish[0]["patches"] = told.patches.clone();
            node.kubeadm("join", &wish)?;
        }
        cluster.kubectl("wait --for=condition=Ready nodes --all --timeout=180s")?;
        Ok(cluster)
    }

    /// The name of the node that has the address.
    pub fn holder(&self) -> Result<String> {
        let holds = |node: &&Node| {
            let shown = node.run("ip -4 -o address show dev eth0");
            shown.is_ok_and(|shown| shown.contains(&format!(" {ENDPOINT}/")))
        };
        let holder = self
            .nodes
            .iter()
            .find(holds)
            .context("nobody has the address")?;
        Ok(holder.machine.name())
    }

    /// Everything of a node ends, as with its power.
    pub fn cut(&mut self, name: &str) -> Result<()> {
        self.node(name)?.stop()
    }
}

/// What a box makes for each cluster, with a key that everybody knows.
fn encryption() -> Value {
    let keys = json!([{"name": "lab", "secret": "A".repeat(43) + "="}]);
    json!({
        "apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration",
        "resources": [{"resources": ["secrets"], "providers": [{"secretbox": {"keys": keys}}, {"identity": {}}]}],
    })
}

/// What the objects say.
struct Told {
    configuration: Value,
    patches: Value,
    files: Vec<Value>,
    commands: Vec<String>,
}

impl Told {
    fn read() -> Result<Self> {
        let mut text = fs::read_to_string(find_source()?.join(OBJECTS))?;
        for (theirs, ours) in THEIRS {
            text = text.replace(theirs, ours);
        }
        let objects = serde_json::Deserializer::from_str(&text).into_iter::<Value>();
        let objects: Vec<Value> = objects.collect::<Result<_, _>>()?;
        let mut objects = objects.into_iter();
        let control_plane = objects.find(|object| object["kind"] == "KubeadmControlPlane");
        let mut spec =
            control_plane.context("no control plane")?["spec"]["kubeadmConfigSpec"].take();
        let mut configuration = spec["clusterConfiguration"].take();
        // Cluster API's own word.
        let fields = configuration.as_object_mut().context("no configuration")?;
        fields.remove("certificateValidityPeriodDays");
        Ok(Self {
            configuration,
            patches: spec["initConfiguration"]["patches"].take(),
            files: serde_json::from_value(spec["files"].take())?,
            commands: serde_json::from_value(spec["preKubeadmCommands"].take())?,
        })
    }

    /// Cloud-init's part, but for what systemd does on a machine.
    fn prepare(&self, node: &Node) -> Result<()> {
        for file in &self.files {
            let path = file["path"].as_str().context("no path")?;
            let content = match file["content"].as_str() {
                Some(content) => content.to_owned(),
                // Cluster API's part: it is in a Secret.
                None => encryption().to_string(),
            };
            node.run(&format!(
                "mkdir -p \"$(dirname {path})\"; cat >{path} <<'CONTENT'\n{content}\nCONTENT"
            ))?;
        }
        for command in self
            .commands
            .iter()
            .filter(|it| !it.starts_with("networkctl "))
        {
            node.run(&format!("PATH=/usr/local/sbin:$PATH\n{command}"))?;
        }
        Ok(())
    }

    /// `wish` is kubeadm's for a cluster of one control plane.
    fn complete(&self, wish: &mut [Value]) -> Result<()> {
        for object in wish {
            match object["kind"].as_str() {
                Some("InitConfiguration") => object["patches"] = self.patches.clone(),
                Some("ClusterConfiguration") => {
                    let fields = object.as_object_mut().context("no configuration")?;
                    let told = self.configuration.as_object().context("no configuration")?;
                    fields.extend(told.clone());
                    object["controlPlaneEndpoint"] = json!(format!("{ENDPOINT}:6443"));
                }
                _ => {}
            }
        }
        Ok(())
    }
}
