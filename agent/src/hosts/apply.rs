//! One action, carried out on Ironic. Each may be repeated: what was done before is no error.

use std::time::Duration;

use firstlight_api::{
    bmh::BootMode,
    order::{self, DiskOrder},
    repository::METADATA_KEY,
    site::SshKey,
    site::proxy::METADATA_KEY as PROXY_KEY,
    start,
    status::Problem,
};
use firstlight_ironic::{
    Client, ClientError, ConfigDrive, InstanceInfo, NewNode, Node, NodePatch, PowerTarget,
    ProvisionState, ProvisionTarget, StartedBy,
};
use serde_json::{Value, json};

use tokio::{net::TcpStream, sync::mpsc};

mod power;

use super::{
    bootstrap::{self, Reading, Secrets, Subject},
    delivery,
    drive::{DriveSpec, config_drive},
    event::Act,
    image::instance_info,
    intent::Data,
    made::NAMESPACE,
    node_uuid::node_uuid,
    plan::{Action, EXTRA_ATTEMPT, EXTRA_MAC},
    poll::IronicEnd,
    ramdisk_files::RamdiskFiles,
    rmcp::Hail,
};
use crate::{
    sources::Sources,
    ssh::{self, Keys, Pin},
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

/// What every action may need, owned: each runs in a task of its own.
#[derive(Clone)]
pub struct Hands {
    pub ssh_keys: Vec<SshKey>,
    pub keys: Keys,
    pub packages: Sources,
    /// What servers are told of the site's proxy.
    pub proxy: Option<Value>,
    pub secrets: mpsc::Sender<Reading>,
    /// Whether a BMC is there that speaks IPMI.
    pub hail: Hail,
    pub ramdisk: RamdiskFiles,
}

pub async fn apply(end: &IronicEnd, hands: &Hands, act: &Act) -> Result<(), ActionError> {
    let node = node_uuid(act.mac);
    if let Action::Deploy {
        attempt,
        judgement,
        install,
    } = &act.action
    {
        answers(act).await?;
        let drive = drive(end, hands, act, &node, &install.data).await?;
        let order = judgement.order(act.deployment.as_ref().and_then(|it| it.id));
        // Ironic restarts it if the ramdisk is gone by then.
        power::before_ramdisk(end, act, &node).await?;
        let marks = [
            (EXTRA_ATTEMPT, json!(attempt)),
            (order::EXTRA, json!(order)),
            (start::EXTRA, json!(act.start)),
        ];
        let info = instance_info(&install.image, order.root.as_ref());
        let started_by = match &act.bmc {
            Some(_) if act.start.kexec => StartedBy::Ramdisk,
            _ => StartedBy::Power,
        };
        return Ok(deploy(&end.client, &node, info, marks, drive, started_by).await?);
    }
    if matches!(
        act.action,
        Action::Provide { clean: true } | Action::TearDown { clean: Some(_) } | Action::ForgetToken
    ) {
        power::before_ramdisk(end, act, &node).await?;
    }
    match &act.action {
        Action::Register => {
            let known = register(&end.client, act, &node).await?;
            power::tell(&end.client, hands, act, &known).await?;
            Ok(end
                .client
                .provision(&node, &ProvisionTarget::Manage)
                .await?)
        }
        Action::Connect => power::connect(&end.client, hands, act, &node).await,
        Action::Disconnect => power::disconnect(&end.client, &node).await,
        Action::Summon => {
            power::before_ramdisk(end, act, &node).await?;
            power::switch(&end.client, &node, PowerTarget::Reboot).await
        }
        Action::Eject => power::eject(&end.client, &node).await,
        Action::Unregister => {
            power::let_go(&end.client, &node).await?;
            Ok(simple(&end.client, act, &node).await?)
        }
        Action::Switch(target) => power::switch(&end.client, &node, *target).await,
        _ => Ok(simple(&end.client, act, &node).await?),
    }
}

/// What needs Ironic alone.
async fn simple(client: &Client, act: &Act, node: &str) -> Result<(), ClientError> {
    let go = async |target| client.provision(node, &target).await;
    match &act.action {
        Action::ForgetToken => client.set_power(node, PowerTarget::Reboot).await,
        Action::Inspect => go(ProvisionTarget::Inspect).await,
        Action::Provide { clean } => {
            if !clean && !act.uncleaned {
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
            if let Some(held) = act.deployment.as_ref().filter(|it| it.written) {
                let root = held.root.as_ref().map(|root| &root.disk);
                let info = instance_info(&held.image, root);
                client
                    .patch_node(node, &[NodePatch::InstanceInfo(info)])
                    .await?;
            }
            go(ProvisionTarget::Adopt).await
        }
        Action::EndMaintenance => client.set_maintenance(node, false).await,
        Action::Unregister => unregister(client, node).await,
        Action::Deploy { .. }
        | Action::Register
        | Action::Connect
        | Action::Disconnect
        | Action::Summon
        | Action::Eject
        | Action::Switch(_) => Ok(()),
    }
}

/// By the kernel of the system that runs there; an error is a sentence.
pub async fn start_ramdisk(hands: &Hands, node: &ssh::Node) -> Result<(), String> {
    let order = hands.ramdisk.order(node.mac).await?;
    let started = hands.keys.start_ramdisk(node, &order).await;
    started.map_err(|error| error.to_string())
}

/// Unique in Ironic, as Metal3 makes it.
fn node_name(act: &Act) -> String {
    let namespace = act.object.as_ref().map(|object| &object.metadata.namespace);
    match namespace.filter(|namespace| *namespace != NAMESPACE) {
        Some(namespace) => format!("{namespace}~{}", act.name),
        None => act.name.clone(),
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

async fn register(client: &Client, act: &Act, node: &str) -> Result<Node, ClientError> {
    let inventory = act.report.as_ref().map(|report| &report.inventory);
    let or = |found: Option<&String>, other: &str| {
        let found = found.filter(|text| !text.is_empty());
        found.map_or_else(|| other.to_owned(), Clone::clone)
    };
    let new = NewNode {
        uuid: node.to_owned(),
        name: node_name(act),
        cpu_arch: or(inventory.map(|it| &it.hardware.cpu.arch), "x86_64"),
        boot_mode: or(inventory.map(|it| &it.boot_mode), boot_mode(act)),
        extra: vec![(EXTRA_MAC.to_owned(), act.mac.to_string())],
    };
    let known = match client.create_node(&new).await {
        Err(error) if error.is_conflict() => client.node(node).await?,
        created => created?,
    };
    // The boot NIC alone: what a report says of other NICs may be the NICs of other servers.
    let mac = act.mac.to_string();
    match client.create_port(node, &mac).await {
        Err(error) if error.is_conflict() => {
            let ports = client.ports(node).await?;
            if !ports.iter().any(|port| port.address == mac) {
                return Err(error);
            }
        }
        created => drop(created?),
    }
    Ok(known)
}

/// As its owner says, for whom nobody has seen yet.
fn boot_mode(act: &Act) -> &'static str {
    let said = act.object.as_ref().and_then(|object| object.spec.boot_mode);
    if said == Some(BootMode::Legacy) {
        "bios"
    } else {
        "uefi"
    }
}

async fn deploy(
    client: &Client,
    node: &str,
    info: InstanceInfo,
    marks: [(&str, Value); 3],
    drive: ConfigDrive,
    started_by: StartedBy,
) -> Result<(), ClientError> {
    let mut patches = vec![
        NodePatch::InstanceInfo(info),
        // A deployment that is given up goes straight back; who wants it cleaned says so when it is torn down.
        NodePatch::AutomatedClean(false),
    ];
    // Before it begins: an attempt that was begun counts, and the ramdisk writes nothing without its order.
    let marks = marks.into_iter();
    patches.extend(marks.map(|(key, value)| NodePatch::Extra(key.to_owned(), value)));
    if started_by == StartedBy::Ramdisk {
        // Until the deployment has ended: `plan::power` takes it back.
        patches.push(NodePatch::DisablePowerOff);
    }
    client.patch_node(node, &patches).await?;
    let target = ProvisionTarget::Active(drive, started_by);
    client.provision(node, &target).await
}

/// A server that was switched off a moment ago is still believed to be there. Ironic would try for a while, and an attempt
/// would be spent.
async fn answers(act: &Act) -> Result<(), ActionError> {
    let Some(address) = act.ramdisk else {
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

async fn drive(
    end: &IronicEnd,
    hands: &Hands,
    act: &Act,
    node: &str,
    data: &Data,
) -> Result<ConfigDrive, ActionError> {
    // An image that does not ask for its data has no safe way to a host key.
    let pin = match data {
        Data::Endpoint => Pin::Made,
        Data::Site | Data::Drive => Pin::FirstSight,
    };
    let own = hands.keys.prepare(act.mac, pin).await;
    let own = own.map_err(|error| {
        ActionError::Other(Problem {
            what: format!("no SSH key could be made for it: {error:#}"),
            next: "the box tries again; if it stays, restart the box".to_owned(),
        })
    })?;
    let site = || {
        config_drive(&DriveSpec {
            name: &act.name,
            mac: act.mac,
            ssh_keys: &hands.ssh_keys,
            box_key: Some(&own),
        })
    };
    let mut drive = match data {
        Data::Site => with_its_networks(hands, act, site()).await?,
        Data::Endpoint => endpoint_drive(site(), node, end, act),
        Data::Drive => drive_of_its_owner(hands, act, &own).await?,
    };
    let packages = hands.packages.load().await.map_err(ActionError::Other)?;
    if let Some(repository) = packages {
        drive.meta_data[METADATA_KEY] = json!(repository);
    }
    if let Some(proxy) = &hands.proxy {
        drive.meta_data[PROXY_KEY] = proxy.clone();
    }
    Ok(drive)
}

async fn with_its_networks(
    hands: &Hands,
    act: &Act,
    site: ConfigDrive,
) -> Result<ConfigDrive, ActionError> {
    let secrets = secrets(hands, act).await?;
    let own = bootstrap::network_data(&secrets).map_err(ActionError::Other)?;
    Ok(ConfigDrive {
        network_data: own.unwrap_or(site.network_data),
        ..site
    })
}

async fn secrets(hands: &Hands, act: &Act) -> Result<Secrets, ActionError> {
    let secrets = match &act.object {
        Some(object) => delivery::read(&hands.secrets, object.clone()).await,
        None => Ok(Secrets::default()),
    };
    secrets.map_err(ActionError::Other)
}

/// An image that is not ours has its owner's idea of a login, or none.
async fn drive_of_its_owner(
    hands: &Hands,
    act: &Act,
    own: &SshKey,
) -> Result<ConfigDrive, ActionError> {
    let subject = Subject {
        name: &act.name,
        mac: act.mac,
        object: act.object.as_deref(),
        // Nobody makes a user for the box there.
        ssh_keys: &[&hands.ssh_keys[..], std::slice::from_ref(own)].concat(),
        box_key: Some(own),
        host_key: None,
    };
    let secrets = secrets(hands, act).await?;
    let data = bootstrap::data(&subject, &secrets).map_err(ActionError::Other)?;
    Ok(ConfigDrive {
        meta_data: data.meta_data,
        user_data: if secrets.user.is_some() {
            data.user_data
        } else {
            String::new()
        },
        network_data: data.network_data,
    })
}

/// No user data: the system asks for it, with a token that is good for this one installation.
fn endpoint_drive(site: ConfigDrive, node: &str, end: &IronicEnd, act: &Act) -> ConfigDrive {
    let mut meta_data = site.meta_data;
    meta_data["firstlight"] = json!({
        "url": format!("{}/{node}", end.bootstrap),
        "token": act.token.reveal(),
        "ca": end.ca,
    });
    if let Some(key) = act.key {
        meta_data["firstlight"]["key"] = json!(key.to_string());
    }
    ConfigDrive {
        meta_data,
        user_data: String::new(),
        network_data: site.network_data,
    }
}
