//! Writes as values: what planning comes to, and what [`ProviderObjects`](super::ProviderObjects) carries out.

use std::collections::BTreeMap;

use firstlight_api::object::Meta;
use serde_json::{Value, json};

use super::{
    addresses::{AddressClaim, IpamApi},
    world::Key,
};

/// What is written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Host,
    Metal3Cluster,
    Metal3Machine,
    DataTemplate,
    Machine,
    ControlPlane,
    Deployment,
    AddressClaim(IpamApi),
}

/// One write. Those of one machine follow each other; the first that fails ends its list until the next look.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// A JSON merge patch. With a `version` it is refused if somebody wrote in between.
    Patch {
        kind: Kind,
        key: Key,
        version: Option<String>,
        patch: Value,
    },
    /// Nobody touches the host any more, and its status goes with it where it goes.
    PauseHost {
        key: Key,
        version: String,
        by: String,
    },
    PatchStatus {
        kind: Kind,
        key: Key,
        patch: Value,
    },
    /// Metadata or network data; it goes away with the machine.
    PutData {
        key: Key,
        owner: Box<firstlight_api::object::OwnerReference>,
        cluster: String,
        data: BTreeMap<String, String>,
    },
    /// An object that is there already stays as it is.
    Create(Value),
    /// Unless somebody wrote since.
    Delete(Kind, Box<Meta>),
    /// With what the cluster encrypts Secrets in its etcd ([`super::SECRETS_KEY`]); one that is there already stays.
    CreateSecretsKey {
        cluster: Key,
    },
    /// As given, whoever wrote it before.
    Put(Value),
    /// So much of an object, whoever wrote it before; one that somebody has removed stays away.
    Change(Value),
    /// Secrets that a deleted cluster of this name owned and Kubernetes has not collected yet: a new one would take its keys for its own, and
    /// then lose them.
    ForgetKeys(Key),
}

impl Action {
    /// Gives a claim back that `finalizer` holds for whoever needed it, in two looks.
    pub fn release(claim: &AddressClaim, finalizer: &str) -> Self {
        let (kind, meta) = (Kind::AddressClaim(claim.api), &claim.meta);
        if !meta.is_deleting() {
            return Self::Delete(kind, Box::new(meta.clone()));
        }
        let mut finalizers = meta.finalizers.clone();
        finalizers.retain(|it| it != finalizer);
        Self::Patch {
            kind,
            key: Key::of(meta),
            version: Some(meta.resource_version.clone()),
            patch: json!({"metadata": {"finalizers": finalizers}}),
        }
    }
}

/// The writes for one object, in order.
pub type Steps = Vec<Action>;
