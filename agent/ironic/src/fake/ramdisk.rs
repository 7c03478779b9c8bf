//! The ramdisk's three calls to Ironic, without a machine behind them. Works with the fake and with a live Ironic.

use std::net::{IpAddr, SocketAddr};

use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{Client, ClientError};

/// Plays the deploy ramdisk of one server, as far as Ironic can tell.
#[derive(Clone, Debug)]
pub struct Ramdisk {
    client: Client,
    mac: String,
    /// Where it says that it listens.
    address: SocketAddr,
}

/// What lookup and `continue_inspection` hand out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LookupAnswer {
    /// UUID of the node that has a port of the ramdisk's MAC.
    pub node: String,
    /// `None` when Ironic gave its token away before and shows `******`.
    pub token: Option<String>,
}

#[derive(Deserialize)]
struct Wire {
    node: WireNode,
    config: WireConfig,
}

#[derive(Deserialize)]
struct WireNode {
    uuid: String,
}

#[derive(Deserialize)]
struct WireConfig {
    agent_token: String,
}

impl From<Wire> for LookupAnswer {
    fn from(wire: Wire) -> Self {
        let token = Some(wire.config.agent_token).filter(|token| token != "******");
        Self {
            node: wire.node.uuid,
            token,
        }
    }
}

impl Ramdisk {
    /// `client`: of the Ironic to talk to. `mac`: of the one NIC. `address`: told to Ironic, and never listened on.
    pub fn new(client: Client, mac: &str, address: SocketAddr) -> Self {
        Self {
            client,
            mac: mac.to_owned(),
            address,
        }
    }

    /// As in [`Ramdisk::inventory_of`].
    pub fn inventory(&self) -> Value {
        Self::inventory_of(&self.mac, self.address.ip())
    }

    /// An inventory of one NIC and one disk of 8 GiB.
    pub fn inventory_of(mac: &str, address: IpAddr) -> Value {
        json!({
            "interfaces": [{"name": "eth0", "mac_address": mac, "ipv4_address": address, "has_carrier": true}],
            "cpu": {"architecture": "x86_64", "count": 2, "model_name": "QEMU Virtual CPU"},
            "memory": {"total": 1_073_741_824_u64, "physical_mb": 1024},
            "disks": [{"name": "/dev/vda", "model": "", "size": 8_589_934_592_u64, "rotational": true}],
            "boot": {"current_boot_mode": "uefi", "pxe_interface": mac},
            "system_vendor": {"manufacturer": "QEMU", "product_name": "Standard PC", "serial_number": ""},
            "bmc_address": null, "bmc_v6address": null, "hostname": "ramdisk",
        })
    }

    /// `None`: 404, unregistered or not wanted.
    pub async fn lookup(&self) -> Result<Option<LookupAnswer>, ClientError> {
        let path = format!("/v1/lookup?addresses={}", self.mac);
        optional(self.client.get::<Wire>(&path).await)
    }

    /// Posts the inventory, as ironic-python-agent does; `None` as in [`Ramdisk::lookup`].
    pub async fn continue_inspection(&self) -> Result<Option<LookupAnswer>, ClientError> {
        let inventory = self.inventory();
        let body = json!({
            "root_disk": inventory["disks"][0], "inventory": inventory, "boot_interface": self.mac,
            "error": null, "configuration": {},
        });
        optional(
            self.client
                .call::<Wire, _>(Method::POST, "/v1/continue_inspection", Some(&body))
                .await,
        )
    }

    /// Refused without the token that the lookup handed out.
    pub async fn heartbeat(&self, known: &LookupAnswer) -> Result<(), ClientError> {
        let body = json!({
            "callback_url": format!("https://{}", self.address), "agent_token": known.token, "agent_version": "11.0.0",
            "agent_verify_ca": null,
        });
        self.client
            .order(
                Method::POST,
                &format!("/v1/heartbeat/{}", known.node),
                Some(&body),
            )
            .await
    }
}

fn optional(answer: Result<Wire, ClientError>) -> Result<Option<LookupAnswer>, ClientError> {
    match answer {
        Ok(wire) => Ok(Some(wire.into())),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}
