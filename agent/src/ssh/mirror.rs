//! The mirror that a node's root is on, by the node's own system.

use std::time::Duration;

use firstlight_api::mirror::Told;

use super::{Keys, Node, SshError};

/// A login on an emulated node takes a minute.
const TIME: Duration = Duration::from_mins(3);

impl Keys {
    pub async fn look_at_mirror(&self, node: &Node) -> Result<Told, SshError> {
        let command = ["firstlight-bootstrap", "mirror"];
        let said = self.run_as_itself(node, &command, b"", TIME).await?;
        Told::parse(&said).map_err(|error| SshError::Nonsense(error.to_string()))
    }
}
