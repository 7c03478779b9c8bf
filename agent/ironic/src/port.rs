//! Ports, one for each NIC: `/v1/ports`. Ironic's lookup finds a node by any of them.

use http::Method;
use serde::Deserialize;
use serde_json::json;

use crate::{Client, ClientError};

/// A NIC of a node, `Port` of the API reference.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Port {
    /// Chosen by Ironic.
    pub uuid: String,
    /// MAC, lower case with colons.
    pub address: String,
}

impl Client {
    /// A conflict when any node has a port of that MAC already.
    pub async fn create_port(&self, node_uuid: &str, mac: &str) -> Result<Port, ClientError> {
        self.call(
            Method::POST,
            "/v1/ports",
            Some(&json!({"node_uuid": node_uuid, "address": mac})),
        )
        .await
    }

    /// All ports of a node, by its UUID or name.
    pub async fn ports(&self, node: &str) -> Result<Vec<Port>, ClientError> {
        #[derive(Deserialize)]
        struct Ports {
            ports: Vec<Port>,
        }
        Ok(self
            .get::<Ports>(&format!("/v1/nodes/{node}/ports?fields=uuid,address"))
            .await?
            .ports)
    }
}
