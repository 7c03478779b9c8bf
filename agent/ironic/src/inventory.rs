//! What inspection found: `/v1/nodes/ID/inventory`.

use serde::Deserialize;
use serde_json::Value;

use crate::{Client, ClientError};

/// What a ramdisk posted to `continue_inspection`, as Ironic keeps it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Inventory {
    /// In ironic-python-agent's field names.
    pub inventory: Value,
    /// What Ironic's inspection hooks made of it.
    pub plugin_data: Value,
}

impl Client {
    /// Not found until the node was inspected once.
    pub async fn inventory(&self, node: &str) -> Result<Inventory, ClientError> {
        self.get(&format!("/v1/nodes/{node}/inventory")).await
    }
}
