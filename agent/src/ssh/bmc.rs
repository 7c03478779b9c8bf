//! The account in a node's BMC, by the node's own system.

use std::time::Duration;

use firstlight_api::account::{Ask, Told};

use super::{Keys, Node, SshError};

/// A BMC may take 20 s for a command, and a login on an emulated node a minute.
const TIME: Duration = Duration::from_mins(4);

impl Keys {
    /// What the node says. A password may be in it, so no error quotes it.
    pub async fn ask_bmc(&self, node: &Node, ask: Ask) -> Result<Told, SshError> {
        let command = ["firstlight-bootstrap", "bmc", ask.word()];
        let said = self.run(node, &command, b"", TIME).await?;
        Told::parse(&said).map_err(|error| SshError::Nonsense(error.to_string()))
    }
}
