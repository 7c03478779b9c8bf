//! The root of the API, which answers without a password: is Ironic up?

use std::time::Duration;

use serde::Deserialize;

use crate::{Client, ClientError};

#[derive(Deserialize)]
struct Root {
    version: Version,
}

#[derive(Deserialize)]
struct Version {
    version: String,
}

impl Client {
    /// The newest microversion that Ironic speaks.
    pub async fn version(&self) -> Result<String, ClientError> {
        Ok(self.get::<Root>("/v1").await?.version.version)
    }

    /// Asks every `pause` until the API answers, and returns its newest microversion. Ends early on an answer that time
    /// does not mend, such as something else than Ironic on that port.
    #[expect(
        clippy::disallowed_methods,
        reason = "the one wait, at the start of the caller"
    )]
    pub async fn wait_until_up(&self, pause: Duration) -> Result<String, ClientError> {
        loop {
            match self.version().await {
                Err(error) if error.is_transient() => tokio::time::sleep(pause).await,
                answer => return answer,
            }
        }
    }
}
