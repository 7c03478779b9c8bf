//! Beside OVN's databases: what people wrote and what nodes ask for, addresses given out, the northbound database kept as it is to be, and
//! said what came of it. One of it runs in a cluster.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, Result};
use futures_util::StreamExt as _;
use k8s_openapi::{
    api::core::v1::{Node, Pod},
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{
    Api, Client, Resource, ResourceExt as _,
    api::{Patch, PatchParams},
    core::{ApiResource, DynamicObject, PartialObjectMeta},
    runtime::{
        WatchStreamExt as _,
        reflector::{self, Store},
        watcher,
    },
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::{sync::Notify, time::Instant};

use crate::{
    addresses,
    kinds::{self, Network, Port, PortStatus, key},
    northbound::{self, Intent},
    program,
};

const MANAGER: &str = "firstlight-ovn";
/// What comes together is looked at together.
const GATHER: Duration = Duration::from_millis(100);
const AGAIN: Duration = Duration::from_secs(3);
/// If nothing changes: somebody may have written into a database.
const LOOK: Duration = Duration::from_mins(1);
const SOUTHBOUND: &str = "--db=unix:/run/ovn/sb.sock";

struct Copies {
    networks: Store<DynamicObject>,
    ports: Store<DynamicObject>,
    definitions: Store<DynamicObject>,
    pods: Store<PartialObjectMeta<Pod>>,
    nodes: Store<PartialObjectMeta<Node>>,
}

pub async fn run(client: Client) -> Result<()> {
    let changed = Arc::new(Notify::new());
    let copies = Copies {
        networks: follow(&client, kinds::networks(), &changed),
        ports: follow(&client, kinds::ports(), &changed),
        definitions: follow(&client, kinds::definitions(), &changed),
        pods: follow_names(&client, &changed),
        nodes: follow_names(&client, &changed),
    };
    copies.wait().await?;
    let mut controller = Controller {
        client,
        copies,
        given: BTreeMap::new(),
        listen: listen()?,
        is_open: false,
        settled: None,
    };
    loop {
        let rest = match controller.round().await {
            Ok(()) => LOOK,
            Err(error) => {
                tracing::warn!(error = format!("{error:#}"), "it is tried again");
                AGAIN
            }
        };
        drop(tokio::time::timeout(rest, changed.notified()).await);
        tokio::time::sleep(GATHER).await;
    }
}

/// Of the pod's family: a kernel may have one only.
fn listen() -> Result<String> {
    let address = std::env::var("POD_ADDRESS").context("POD_ADDRESS is not set")?;
    let any = match address.parse().context("POD_ADDRESS")? {
        IpAddr::V4(_) => "0.0.0.0",
        IpAddr::V6(_) => "[::]",
    };
    Ok(format!("pssl:6642:{any}"))
}

fn follow(client: &Client, kind: ApiResource, changed: &Arc<Notify>) -> Store<DynamicObject> {
    let api = Api::all_with(client.clone(), &kind);
    let writer = reflector::store::Writer::new(kind);
    let store = writer.as_reader();
    spawn(
        reflector::reflector(writer, watcher(api, watcher::Config::default())),
        changed,
    );
    store
}

/// Of them only what they are called and labelled.
fn follow_names<K>(client: &Client, changed: &Arc<Notify>) -> Store<PartialObjectMeta<K>>
where
    K: Resource<DynamicType = ()>
        + Clone
        + DeserializeOwned
        + std::fmt::Debug
        + Send
        + Sync
        + 'static,
{
    let api: Api<PartialObjectMeta<K>> = Api::all(client.clone());
    let (store, writer) = reflector::store();
    spawn(
        reflector::reflector(writer, watcher(api, watcher::Config::default())),
        changed,
    );
    store
}

/// A watch that breaks off begins again by itself.
fn spawn<K: Send + 'static>(
    events: impl futures_util::Stream<Item = watcher::Result<watcher::Event<K>>> + Send + 'static,
    changed: &Arc<Notify>,
) {
    let changed = changed.clone();
    tokio::spawn(async move {
        let mut events = std::pin::pin!(events.default_backoff());
        while let Some(event) = events.next().await {
            match event {
                Ok(_) => changed.notify_one(),
                Err(error) => tracing::warn!(%error, "watching"),
            }
        }
    });
}

impl Copies {
    async fn wait(&self) -> Result<()> {
        self.networks.wait_until_ready().await?;
        self.ports.wait_until_ready().await?;
        self.definitions.wait_until_ready().await?;
        self.pods.wait_until_ready().await?;
        Ok(self.nodes.wait_until_ready().await?)
    }
}

struct Controller {
    client: Client,
    copies: Copies,
    /// What was written to ports and may not be in the copy yet.
    given: BTreeMap<String, PortStatus>,
    /// Where the southbound database is for nodes, by TLS.
    listen: String,
    /// Nodes may read it: it is whole.
    is_open: bool,
    /// When everything was as it is to be, and by what.
    settled: Option<(Inputs, Instant)>,
}

/// What a round is made from. Pods and nodes change all the time, and mostly in what nobody here looks at.
#[derive(PartialEq, Eq)]
struct Inputs {
    /// Of networks, ports and definitions.
    versions: BTreeSet<Option<String>>,
    /// Of pods that have ports.
    labels: BTreeMap<String, BTreeMap<String, String>>,
    nodes: BTreeSet<String>,
}

impl Controller {
    async fn round(&mut self) -> Result<()> {
        let inputs = self.inputs();
        let settled = self.settled.take();
        if let Some((known, since)) = settled
            && known == inputs
            && since.elapsed() < LOOK
        {
            self.settled = Some((known, since));
            return Ok(());
        }
        self.look(&inputs).await?;
        self.settled = Some((inputs, Instant::now()));
        Ok(())
    }

    fn inputs(&self) -> Inputs {
        let ports = self.copies.ports.state();
        let pods: BTreeSet<String> = ports
            .iter()
            .filter_map(|object| Port::parse(object).ok())
            .map(|port| port.pod_key())
            .collect();
        let all = [&self.copies.networks, &self.copies.definitions];
        let objects = all.into_iter().flat_map(Store::state).chain(ports);
        let labels = self.copies.pods.state().into_iter().filter_map(|pod| {
            let key = key(&pod.metadata);
            let labels = pod.metadata.labels.clone().unwrap_or_default();
            pods.contains(&key).then_some((key, labels))
        });
        let nodes = self.copies.nodes.state();
        Inputs {
            versions: objects.map(|object| object.resource_version()).collect(),
            labels: labels.collect(),
            nodes: nodes.iter().map(|node| node.name_any()).collect(),
        }
    }

    async fn look(&mut self, inputs: &Inputs) -> Result<()> {
        let networks = self.copies.networks.state();
        let mut usable = BTreeMap::new();
        let mut told: BTreeMap<String, String> = BTreeMap::new();
        // An object that cannot be written holds up no other.
        let mut failures = Vec::new();
        for object in &networks {
            match self.usable(object) {
                Ok(network) => drop(usable.insert(network.key.clone(), network)),
                Err(why) => drop(told.insert(key(&object.metadata), why)),
            }
        }
        let ports = self.give(&usable, &mut failures).await;
        let wanted = Intent {
            ports: ports
                .iter()
                .filter(|port| port.status.address.is_some())
                .collect(),
            networks: usable,
            kept: told.keys().cloned().collect(),
            labels: inputs.labels.clone(),
        };
        // Options for DHCP have to be there before their ports can have them.
        for _ in 0..2 {
            let changes = northbound::plan(&northbound::read().await?, &wanted);
            if changes.is_empty() {
                break;
            }
            told.extend(northbound::apply(&changes).await);
        }
        self.forget_nodes(&inputs.nodes).await?;
        self.open().await?;
        for object in &networks {
            let why = told.get(&key(&object.metadata)).map(String::as_str);
            let told = self.tell(object, why, &ports).await;
            failures.extend(told.err());
        }
        match failures.pop() {
            None => Ok(()),
            Some(error) => Err(error),
        }
    }

    /// With the definition by which Multus finds it, unless somebody else has one of that name.
    fn usable(&self, object: &DynamicObject) -> Result<Network, String> {
        let network = Network::parse(object)?;
        let definition = self.definition_of(object);
        if definition.is_some_and(|found| !is_owned_by(&found, object)) {
            return Err(format!(
                "there is a NetworkAttachmentDefinition {} that somebody made by hand; take another name, or delete it",
                network.key
            ));
        }
        Ok(network)
    }

    fn definition_of(&self, object: &DynamicObject) -> Option<Arc<DynamicObject>> {
        let of = key(&object.metadata);
        self.copies
            .definitions
            .find(|found| key(&found.metadata) == of)
    }

    /// Ports as they are after addresses are given to those that have none.
    async fn give(
        &mut self,
        networks: &BTreeMap<String, Network>,
        failures: &mut Vec<anyhow::Error>,
    ) -> Vec<Port> {
        let objects = self.copies.ports.state();
        let uids: BTreeSet<String> = objects.iter().filter_map(|object| object.uid()).collect();
        self.given.retain(|uid, _| uids.contains(uid));
        let mut ports = Vec::new();
        for object in &objects {
            match Port::parse(object) {
                Ok(mut port) => {
                    let given = object.uid().and_then(|uid| self.given.get(&uid));
                    if port.status.address.is_none()
                        && let Some(given) = given
                    {
                        port.status = given.clone();
                    }
                    ports.push((port, object));
                }
                Err(error) => tracing::warn!(port = key(&object.metadata), error, "not understood"),
            }
        }
        let plain: Vec<Port> = ports.iter().map(|(port, _)| port.clone()).collect();
        let given: BTreeMap<String, PortStatus> =
            addresses::give(networks, &plain).into_iter().collect();
        for (port, object) in &mut ports {
            if let Some(status) = given.get(&port.key) {
                let written = self.write_status(&kinds::ports(), object, status).await;
                if let Err(error) = written {
                    failures.push(error);
                    continue;
                }
                if let (Some(uid), Some(_)) = (object.uid(), status.address) {
                    self.given.insert(uid, status.clone());
                }
                port.status = status.clone();
            }
        }
        ports.into_iter().map(|(port, _)| port).collect()
    }

    /// Two of one address cannot be, so one that has gone makes room for the next.
    async fn forget_nodes(&self, nodes: &BTreeSet<String>) -> Result<()> {
        let list = format!("{SOUTHBOUND} --bare --columns=name list Chassis");
        let known = program::say("ovn-sbctl", &list).await?;
        for name in known
            .split_whitespace()
            .filter(|name| !nodes.contains(*name))
        {
            tracing::info!(node = name, "it has gone");
            let forget = format!("{SOUTHBOUND} --if-exists chassis-del {name}");
            program::say("ovn-sbctl", &forget).await?;
        }
        Ok(())
    }

    /// Only once all is in it: nodes take away what they do not find there.
    async fn open(&mut self) -> Result<()> {
        if !self.is_open {
            northbound::settle().await?;
            let listen = format!("{SOUTHBOUND} set-connection {}", self.listen);
            program::say("ovn-sbctl", &listen).await?;
            tracing::info!("nodes may come");
            self.is_open = true;
        }
        Ok(())
    }

    async fn tell(&self, object: &DynamicObject, why: Option<&str>, ports: &[Port]) -> Result<()> {
        let name = key(&object.metadata);
        let count = ports
            .iter()
            .filter(|port| port.spec.network == name)
            .count();
        let (status, reason) = match why {
            None => ("True", "Made"),
            Some(_) => ("False", "Refused"),
        };
        let generation = object.metadata.generation;
        let told = json!({
            "conditions": [{
                "type": "Ready", "status": status, "reason": reason, "message": why.unwrap_or_default(),
                "observedGeneration": generation, "lastTransitionTime": since(object, status),
            }],
            "ports": count,
        });
        if why.is_none() && self.definition_of(object).is_none() {
            self.define(object).await?;
        }
        if object.data["status"] != told {
            self.write_status(&kinds::networks(), object, &told).await?;
        }
        Ok(())
    }

    async fn define(&self, object: &DynamicObject) -> Result<()> {
        let (name, namespace) = (object.name_any(), object.namespace().unwrap_or_default());
        let of = key(&object.metadata);
        let config = json!({
            "cniVersion": "1.0.0", "name": of.replace('/', "."), "type": MANAGER, "network": of,
            "capabilities": {"ips": true, "mac": true},
        });
        let owner = OwnerReference {
            api_version: format!("{}/{}", kinds::networks().group, kinds::networks().version),
            kind: kinds::networks().kind,
            name: name.clone(),
            uid: object.uid().unwrap_or_default(),
            controller: Some(true),
            block_owner_deletion: None,
        };
        let mut definition = DynamicObject::new(&name, &kinds::definitions()).within(&namespace);
        definition.metadata.owner_references = Some(vec![owner]);
        definition.data = json!({"spec": {"config": config.to_string()}});
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), &namespace, &kinds::definitions());
        let params = PatchParams::apply(MANAGER).force();
        let made = api.patch(&name, &params, &Patch::Apply(&definition)).await;
        made.map(drop)
            .with_context(|| format!("making the NetworkAttachmentDefinition {namespace}/{name}"))
    }

    async fn write_status(
        &self,
        kind: &ApiResource,
        object: &DynamicObject,
        status: &impl Serialize,
    ) -> Result<()> {
        let namespace = object.namespace().unwrap_or_default();
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), &namespace, kind);
        let patch = json!({"metadata": {"uid": object.uid()}, "status": status});
        let written = api
            .patch_status(
                &object.name_any(),
                &PatchParams::default(),
                &Patch::Merge(&patch),
            )
            .await;
        match written {
            Ok(_) => Ok(()),
            // It has gone meanwhile, or another one of its name has come.
            Err(kube::Error::Api(error)) if [404, 409].contains(&error.code) => Ok(()),
            Err(error) => {
                Err(error).with_context(|| format!("the status of {}", key(&object.metadata)))
            }
        }
    }
}

fn is_owned_by(object: &DynamicObject, owner: &DynamicObject) -> bool {
    object
        .owner_references()
        .iter()
        .any(|found| Some(&found.uid) == owner.metadata.uid.as_ref())
}

/// The condition's time stays as long as it says the same.
fn since(object: &DynamicObject, status: &str) -> Value {
    let before = &object.data["status"]["conditions"][0];
    if before["status"] == status {
        return before["lastTransitionTime"].clone();
    }
    json!(
        k8s_openapi::jiff::Timestamp::now()
            .strftime("%Y-%m-%dT%H:%M:%SZ")
            .to_string()
    )
}
