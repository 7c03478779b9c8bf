use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Initialization;
use crate::{
    capi::Endpoint,
    object::{Condition, Object},
};

/// The infrastructure of one cluster: where its API is.
pub type Metal3Cluster = Object<Metal3ClusterSpec, Metal3ClusterStatus>;

/// Upstream's `Metal3ClusterSpec`, without what is of old.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Metal3ClusterSpec {
    /// Where the cluster's API will be: an address that somebody chose. While it is not whole, that of the `Cluster` is taken.
    #[serde(default)]
    pub control_plane_endpoint: Endpoint,
    /// With `true` somebody else sets the provider ID of nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cloud_provider_enabled: Option<bool>,
    /// Places of hosts; the status repeats them for Cluster API.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failure_domains: Vec<FailureDomain>,
}

/// Cluster API's `FailureDomain`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FailureDomain {
    /// As in [`FAILURE_DOMAIN_LABEL`](super::FAILURE_DOMAIN_LABEL) of hosts.
    pub name: String,
    /// `true`: Cluster API may place control planes there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_plane: Option<bool>,
    /// Upstream's: anything for people.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, String>,
}

/// Upstream's `Metal3ClusterStatus`, written by `machines`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Metal3ClusterStatus {
    /// `Ready`, `InfrastructureReady` and `Paused`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Done once the endpoint is whole.
    #[serde(default, skip_serializing_if = "Initialization::is_empty")]
    pub initialization: Initialization,
    /// Those of the spec.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failure_domains: Vec<FailureDomain>,
    /// RFC 3339: when the status changed last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_updated: Option<String>,
}
