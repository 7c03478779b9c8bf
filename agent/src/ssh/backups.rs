//! Backups of the box that its servers keep.

use std::time::Duration;

use anyhow::Result;
use firstlight_api::backup::KeepOrder;

use super::{Keys, Node, SshError};

/// Of a login, and of hundreds of megabytes over a slow cable.
const TIME: Duration = Duration::from_mins(15);

impl Keys {
    /// `content`: of the file that the order names.
    pub async fn keep_backup(
        &self,
        node: &Node,
        order: &KeepOrder,
        content: &[u8],
    ) -> Result<(), SshError> {
        let line =
            serde_json::to_vec(order).map_err(|error| SshError::Nonsense(error.to_string()))?;
        let input = [line.as_slice(), b"\n", content].concat();
        let command = ["firstlight-bootstrap", "backup"];
        self.run(node, &command, &input, TIME).await.map(drop)
    }
}
