//! One action, carried out on Ironic. Each may be repeated: what was done before is no error.

use firstlight_api::{report::Report, site::SshKey};
use firstlight_ironic::{Client, ClientError, NewNode, NodePatch, PowerTarget, ProvisionTarget};
use firstlight_netboot::MacAddr;
use serde_json::json;
use sha2::{Digest, Sha256};

use super::{
    drive::{DriveSpec, config_drive},
    image::NodeImage,
    plan::{Action, EXTRA_ATTEMPT, EXTRA_DISKS, EXTRA_MAC},
};

/// What an action needs besides itself, owned: it runs in a task of its own.
#[derive(Clone, Debug)]
pub struct Task {
    pub action: Action,
    pub mac: MacAddr,
    pub name: String,
    pub report: Option<Report>,
    pub image: Option<NodeImage>,
    pub box_http: String,
    pub ssh_keys: Vec<SshKey>,
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
    let hex = crate::pki::hex(&bytes);
    [
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..],
    ]
    .join("-")
}

pub async fn apply(client: &Client, task: &Task) -> Result<(), ClientError> {
    let node = node_uuid(task.mac);
    match &task.action {
        Action::Register => register(client, task, &node).await,
        Action::PowerOn => client.set_power(&node, PowerTarget::On).await,
        Action::ForgetToken => client.set_power(&node, PowerTarget::Reboot).await,
        Action::Inspect => client.provision(&node, &ProvisionTarget::Inspect).await,
        Action::Provide => client.provision(&node, &ProvisionTarget::Provide).await,
        Action::Manage => client.provision(&node, &ProvisionTarget::Manage).await,
        Action::Abort => client.provision(&node, &ProvisionTarget::Abort).await,
        Action::Release => client.provision(&node, &ProvisionTarget::Deleted).await,
        Action::Deploy { attempt, disks } => deploy(client, task, &node, *attempt, disks).await,
    }
}

async fn register(client: &Client, task: &Task, node: &str) -> Result<(), ClientError> {
    let inventory = task.report.as_ref().map(|report| &report.inventory);
    let text = |pointer: &str| {
        inventory
            .and_then(|inventory| inventory.pointer(pointer)?.as_str())
            .map(str::to_owned)
    };
    let new = NewNode {
        uuid: node.to_owned(),
        name: task.name.clone(),
        cpu_arch: text("/cpu/architecture").unwrap_or_else(|| "x86_64".to_owned()),
        boot_mode: text("/boot/current_boot_mode").unwrap_or_else(|| "uefi".to_owned()),
        extra: vec![(EXTRA_MAC.to_owned(), task.mac.to_string())],
    };
    match client.create_node(&new).await {
        Err(error) if error.is_conflict() => {
            client.node(node).await?;
        }
        created => drop(created?),
    }
    for mac in macs(task, inventory) {
        match client.create_port(node, &mac).await {
            // It may be another node's: a NIC that moved, or a MAC that two servers share. The boot NIC must be ours.
            Err(error) if error.is_conflict() => {
                let ours = client
                    .ports(node)
                    .await?
                    .iter()
                    .any(|port| port.address == mac);
                if !ours && mac == task.mac.to_string() {
                    return Err(error);
                }
            }
            created => drop(created?),
        }
    }
    client.provision(node, &ProvisionTarget::Manage).await
}

/// The boot NIC and all others.
fn macs(task: &Task, inventory: Option<&serde_json::Value>) -> Vec<String> {
    let interfaces = inventory
        .and_then(|inventory| inventory["interfaces"].as_array())
        .into_iter()
        .flatten();
    let others = interfaces.filter_map(|nic| {
        nic["mac_address"]
            .as_str()?
            .to_lowercase()
            .parse::<MacAddr>()
            .ok()
    });
    let mut macs: Vec<String> = std::iter::once(task.mac)
        .chain(others)
        .map(|mac| mac.to_string())
        .collect();
    macs.sort();
    macs.dedup();
    macs
}

async fn deploy(
    client: &Client,
    task: &Task,
    node: &str,
    attempt: u64,
    disks: &str,
) -> Result<(), ClientError> {
    let image = task
        .image
        .as_ref()
        .expect("nothing is deployed without an image");
    // The marks come first: an attempt that was begun counts, and its disks are ours, whatever happens next.
    let patches = [
        NodePatch::InstanceInfo(image.instance_info(&task.box_http)),
        NodePatch::Extra(EXTRA_ATTEMPT.to_owned(), json!(attempt)),
        NodePatch::Extra(EXTRA_DISKS.to_owned(), json!(disks)),
    ];
    client.patch_node(node, &patches).await?;
    let drive = config_drive(&DriveSpec {
        name: &task.name,
        mac: task.mac,
        ssh_keys: &task.ssh_keys,
    });
    client
        .provision(node, &ProvisionTarget::Active(drive))
        .await
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
