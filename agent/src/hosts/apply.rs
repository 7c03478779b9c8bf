//! One action, carried out on Ironic. Each may be repeated: what was done before is no error.

use std::{net::SocketAddr, time::Duration};

use firstlight_api::{
    bmh::BareMetalHost,
    order::{self, DiskOrder},
    report::Report,
    repository::METADATA_KEY,
    signed::PublicKey,
    site::SshKey,
    status::Problem,
};
use firstlight_ironic::{
    Client, ClientError, ConfigDrive, NewNode, NodePatch, PowerTarget, ProvisionState,
    ProvisionTarget,
};
use firstlight_netboot::MacAddr;
use serde_json::json;
use sha2::{Digest, Sha256};

use tokio::{
    net::TcpStream,
    sync::{mpsc, oneshot},
};

use super::{
    bootstrap::{self, Reading, Secrets, Subject},
    drive::{DriveSpec, config_drive},
    image::instance_info,
    ledger::Deployment,
    plan::{Action, EXTRA_ATTEMPT, EXTRA_MAC},
    policy::Judgement,
    wish::{Data, Install},
};
use crate::{
    sources::Sources,
    ssh::{Keys, Pin},
};

/// For a ramdisk to take a connection; its kernel does that, however busy it is.
const ANSWER_TIME: Duration = Duration::from_secs(5);

/// Why an action was not done.
#[derive(Debug, thiserror::Error)]
pub enum ActionError {
    #[error(transparent)]
    Ironic(#[from] ClientError),
    /// Something that Ironic has nothing to do with, as a sentence.
    #[error("{}", .0.what)]
    Other(Problem),
}

/// What an action needs besides itself, owned: it runs in a task of its own.
#[derive(Clone)]
pub struct Task {
    pub action: Action,
    pub mac: MacAddr,
    pub name: String,
    pub report: Option<Report>,
    /// Where its ramdisk listens.
    pub ramdisk: Option<SocketAddr>,
    pub object: Option<BareMetalHost>,
    /// What the disk holds already, or is to get.
    pub deployment: Option<Deployment>,
    pub ssh_keys: Vec<SshKey>,
    pub keys: Keys,
    pub endpoint: Option<Endpoint>,
    pub packages: Sources,
    pub secrets: mpsc::Sender<Reading>,
}

/// Where and with what a host asks for its bootstrap data.
#[derive(Clone)]
pub struct Endpoint {
    /// Without the host's part.
    pub url: String,
    /// PEM
    pub ca: String,
    pub token: String,
    /// Of the ramdisk that writes the image.
    pub key: Option<PublicKey>,
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Endpoint")
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

/// The UUID of a host's node, made from its MAC: a node that is created twice is the same node.
pub fn node_uuid(mac: MacAddr) -> String {
    let digest = Sha256::digest(format!("firstlight host {mac}"));
    let mut bytes: [u8; 16] = digest[..16]
        .try_into()
        .expect("a SHA-256 digest has more than 16 bytes");
    // RFC 9562: version 8 (custom), variant 10.
    bytes[6] = bytes[6] & 0x0f | 0x80;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex = firstlight_artifacts::hex(&bytes);
    [
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..],
    ]
    .join("-")
}

pub async fn apply(client: &Client, task: &Task) -> Result<(), ActionError> {
    let node = node_uuid(task.mac);
    if let Action::Deploy {
        attempt,
        judgement,
        install,
    } = &task.action
    {
        return deploy(client, task, &node, *attempt, judgement, install).await;
    }
    Ok(simple(client, task, &node).await?)
}

async fn simple(client: &Client, task: &Task, node: &str) -> Result<(), ClientError> {
    let go = async |target| client.provision(node, &target).await;
    match &task.action {
        Action::Register => register(client, task, node).await,
        Action::PowerOn => client.set_power(node, PowerTarget::On).await,
        Action::ForgetToken => client.set_power(node, PowerTarget::Reboot).await,
        Action::Inspect => go(ProvisionTarget::Inspect).await,
        Action::Provide { clean } => {
            if !clean {
                client.patch_node(node, &uncleaned()).await?;
            }
            go(ProvisionTarget::Provide).await
        }
        Action::Manage => go(ProvisionTarget::Manage).await,
        Action::Abort => go(ProvisionTarget::Abort).await,
        Action::Release => go(ProvisionTarget::Deleted).await,
        Action::Retract => tear_down(client, node, None).await,
        Action::TearDown { clean } => tear_down(client, node, clean.as_ref()).await,
        Action::Adopt => {
            if let Some(held) = task.deployment.as_ref().filter(|it| it.written) {
                let info = instance_info(&held.image, None);
                client
                    .patch_node(node, &[NodePatch::InstanceInfo(info)])
                    .await?;
            }
            go(ProvisionTarget::Adopt).await
        }
        Action::ClearFault => client.set_maintenance(node, false).await,
        Action::Unregister => unregister(client, node).await,
        Action::Deploy { .. } => Ok(()),
    }
}

/// Nothing is erased, and no ramdisk finds an order to do so.
fn uncleaned() -> Vec<NodePatch> {
    vec![
        NodePatch::AutomatedClean(false),
        NodePatch::Extra(order::EXTRA.to_owned(), json!("")),
    ]
}

async fn tear_down(
    client: &Client,
    node: &str,
    clean: Option<&DiskOrder>,
) -> Result<(), ClientError> {
    let mut patches = match clean {
        None => uncleaned(),
        Some(order) => vec![
            NodePatch::AutomatedClean(true),
            NodePatch::Extra(order::EXTRA.to_owned(), json!(order)),
        ],
    };
    // What comes after has all its attempts.
    patches.push(NodePatch::Extra(EXTRA_ATTEMPT.to_owned(), json!(0)));
    client.patch_node(node, &patches).await?;
    client.provision(node, &ProvisionTarget::Deleted).await
}

/// Maintenance lets Ironic forget a node that it would rather keep.
async fn unregister(client: &Client, node: &str) -> Result<(), ClientError> {
    use ProvisionState as S;
    let found = match client.node(node).await {
        Err(error) if error.is_not_found() => return Ok(()),
        found => found?,
    };
    let free = matches!(
        found.provision_state,
        S::Enroll | S::Manageable | S::Available | S::AdoptFailed
    );
    if !free && !found.maintenance {
        client.set_maintenance(node, true).await?;
    }
    client.delete_node(node).await
}

async fn register(client: &Client, task: &Task, node: &str) -> Result<(), ClientError> {
    let inventory = task.report.as_ref().map(|report| &report.inventory);
    let or = |found: Option<&String>, other: &str| {
        let found = found.filter(|text| !text.is_empty());
        found.map_or_else(|| other.to_owned(), Clone::clone)
    };
    let new = NewNode {
        uuid: node.to_owned(),
        name: task.name.clone(),
        cpu_arch: or(inventory.map(|it| &it.hardware.cpu.arch), "x86_64"),
        boot_mode: or(inventory.map(|it| &it.boot_mode), "uefi"),
        extra: vec![(EXTRA_MAC.to_owned(), task.mac.to_string())],
    };
    match client.create_node(&new).await {
        Err(error) if error.is_conflict() => {
            client.node(node).await?;
        }
        created => drop(created?),
    }
    // The boot NIC alone: what a report says of other NICs may be the NICs of other servers.
    let mac = task.mac.to_string();
    match client.create_port(node, &mac).await {
        Err(error) if error.is_conflict() => {
            let ports = client.ports(node).await?;
            if !ports.iter().any(|port| port.address == mac) {
                return Err(error);
            }
        }
        created => drop(created?),
    }
    client.provision(node, &ProvisionTarget::Manage).await
}

async fn deploy(
    client: &Client,
    task: &Task,
    node: &str,
    attempt: u64,
    judgement: &Judgement,
    install: &Install,
) -> Result<(), ActionError> {
    answers(task).await?;
    let mut drive = drive(task, node, &install.data).await?;
    if let Some(repository) = task.packages.load().await.map_err(ActionError::Other)? {
        drive.meta_data[METADATA_KEY] = json!(repository);
    }
    let deployment = task.deployment.as_ref().and_then(|it| it.id);
    // The marks come first: an attempt that was begun counts, and the ramdisk writes nothing without its order.
    let patches = [
        NodePatch::InstanceInfo(instance_info(&install.image, install.hints.as_ref())),
        NodePatch::Extra(EXTRA_ATTEMPT.to_owned(), json!(attempt)),
        NodePatch::Extra(order::EXTRA.to_owned(), json!(judgement.order(deployment))),
        // A deployment that is given up goes straight back; who wants it cleaned says so when it is torn down.
        NodePatch::AutomatedClean(false),
    ];
    client.patch_node(node, &patches).await?;
    let target = ProvisionTarget::Active(drive);
    Ok(client.provision(node, &target).await?)
}

/// A server that was switched off a moment ago is still believed to be there. Ironic would try for a while, and an attempt
/// would be spent.
async fn answers(task: &Task) -> Result<(), ActionError> {
    let Some(address) = task.ramdisk else {
        return Ok(());
    };
    let connected = tokio::time::timeout(ANSWER_TIME, TcpStream::connect(address)).await;
    if matches!(connected, Ok(Ok(_))) {
        return Ok(());
    }
    Err(ActionError::Other(Problem {
        what: format!("its ramdisk does not answer at {address}"),
        next: "if the server is off, start it from the network: the installation begins by itself"
            .to_owned(),
    }))
}

async fn drive(task: &Task, node: &str, data: &Data) -> Result<ConfigDrive, ActionError> {
    let other = |what: String| {
        ActionError::Other(Problem {
            what,
            next: "the box tries again; if it stays, restart the box".to_owned(),
        })
    };
    // An image that does not ask for its data has no safe way to a host key.
    let pin = match data {
        Data::Endpoint => Pin::Made,
        Data::Site | Data::Drive => Pin::FirstSight,
    };
    let own = task.keys.prepare(task.mac, pin).await;
    let own = own.map_err(|error| other(format!("no SSH key could be made for it: {error:#}")))?;
    let site = || {
        config_drive(&DriveSpec {
            name: &task.name,
            mac: task.mac,
            ssh_keys: &task.ssh_keys,
            box_key: Some(&own),
        })
    };
    match data {
        Data::Site => Ok(site()),
        Data::Endpoint => {
            let endpoint = task.endpoint.as_ref();
            let endpoint =
                endpoint.ok_or_else(|| other("the bootstrap endpoint is not up yet".to_owned()))?;
            Ok(endpoint_drive(site(), node, endpoint))
        }
        Data::Drive => {
            let subject = Subject {
                name: &task.name,
                mac: task.mac,
                object: task.object.as_ref(),
                // Nobody makes a user for the box there.
                ssh_keys: &[&task.ssh_keys[..], std::slice::from_ref(&own)].concat(),
                box_key: Some(&own),
                host_key: None,
            };
            let secrets = read(task).await?;
            let data = bootstrap::data(&subject, &secrets).map_err(ActionError::Other)?;
            Ok(ConfigDrive {
                meta_data: data.meta_data,
                // An image that is not ours has its owner's idea of a login, or none.
                user_data: if secrets.user.is_some() {
                    data.user_data
                } else {
                    String::new()
                },
                network_data: data.network_data,
            })
        }
    }
}

/// No user data: the system asks for it, with a token that is good for this one installation.
fn endpoint_drive(site: ConfigDrive, node: &str, endpoint: &Endpoint) -> ConfigDrive {
    let mut meta_data = site.meta_data;
    meta_data["firstlight"] = json!({
        "url": format!("{}/{node}", endpoint.url),
        "token": endpoint.token,
        "ca": endpoint.ca,
    });
    if let Some(key) = endpoint.key {
        meta_data["firstlight"]["key"] = json!(key.to_string());
    }
    ConfigDrive {
        meta_data,
        user_data: String::new(),
        network_data: site.network_data,
    }
}

async fn read(task: &Task) -> Result<Secrets, ActionError> {
    let Some(host) = task.object.clone() else {
        return Ok(Secrets::default());
    };
    let (answer, answered) = oneshot::channel();
    let gone = || {
        ActionError::Other(Problem {
            what: "the controller is stopping".to_owned(),
            next: "nothing: the box tries again".to_owned(),
        })
    };
    task.secrets
        .send(Reading { host, answer })
        .await
        .map_err(|_| gone())?;
    let secrets = answered.await.map_err(|_| gone())?;
    secrets.map_err(ActionError::Other)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::node_uuid;

    #[test]
    fn a_host_has_one_uuid_and_two_hosts_have_two() {
        let of = |mac: &str| node_uuid(mac.parse().unwrap());
        assert_eq!(of("52:54:00:00:00:01"), of("52-54-00-00-00-01"));
        assert_ne!(of("52:54:00:00:00:01"), of("52:54:00:00:00:02"));
        let parts: Vec<usize> = of("52:54:00:00:00:01").split('-').map(str::len).collect();
        assert_eq!(parts, [8, 4, 4, 4, 12]);
        assert_eq!(&of("52:54:00:00:00:01")[14..15], "8");
    }
}
