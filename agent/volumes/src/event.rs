//! What became of a claim, where its owner looks: `kubectl describe pvc`.

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::{
    Api, Client, Resource as _,
    runtime::events::{Event, EventType, Recorder, Reporter},
};

use crate::order::Claim;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    Refused,
    SizeNotEnforced,
}

impl Reason {
    const fn word(self) -> &'static str {
        match self {
            Self::Refused => "VolumeRefused",
            Self::SizeNotEnforced => "SizeNotEnforced",
        }
    }
}

/// The log has it too, so that a claim that is gone or an API that is away is no reason to fail.
pub async fn tell(claim: &Claim, reason: Reason, sentence: &str) {
    if let Err(error) = try_to_tell(claim, reason, sentence).await {
        tracing::warn!(
            claim = %format_args!("{}/{}", claim.namespace, claim.name),
            "its event cannot be written: {error:#}"
        );
    }
}

async fn try_to_tell(claim: &Claim, reason: Reason, sentence: &str) -> Result<()> {
    let client = Client::try_default().await?;
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), &claim.namespace);
    let found = claims.get(&claim.name).await.context("reading the claim")?;
    let reporter = Reporter {
        controller: "firstlight-volumes".to_owned(),
        instance: std::env::var("NODE_NAME").ok(),
    };
    let event = Event {
        type_: EventType::Warning,
        reason: reason.word().to_owned(),
        note: Some(sentence.to_owned()),
        action: "Provision".to_owned(),
        secondary: None,
    };
    Recorder::new(client, reporter)
        .publish(&event, &found.object_ref(&()))
        .await
        .context("writing an event")
}
