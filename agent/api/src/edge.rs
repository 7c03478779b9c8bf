//! What programs of many sites ask each of them: which machines run Kubernetes there, and whether they do (docs/reference.md).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Answers with an [`EdgeReport`].
pub const PATH: &str = "/api/v1/edge";

/// Of one site. Its keys are those of the edge reports of others, and so not written as ours.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EdgeReport {
    /// Machines of all clusters of the site, by name.
    pub hosts: Vec<EdgeHost>,
}

/// A machine of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EdgeHost {
    /// Of its node, or of the server while it has none.
    pub hostname: String,
    /// It runs a control plane.
    pub control_plane: bool,
    /// Of its kubelet, `v1.36.3`; while nobody has heard it, the one that is wanted.
    pub k8s_version: String,
    /// `amd64`; empty while it is not known.
    pub arch: String,
    /// `Debian GNU/Linux 13 (trixie)`; empty while it is not known.
    pub os_version: String,
    /// Its node is Ready, and its cluster answers.
    pub ready: bool,
    /// A taint of its owner keeps pods away that are not for it: it is there for a purpose.
    pub specialised: bool,
}
