use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Initialization;
use crate::{
    capi::Endpoint,
    object::{Condition, Object},
};

/// The infrastructure of one cluster: where its API is.
pub type Metal3Cluster = Object<Metal3ClusterSpec, Metal3ClusterStatus>;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Metal3ClusterSpec {
    #[serde(default)]
    pub control_plane_endpoint: Endpoint,
    /// With `true` somebody else sets the provider ID of nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cloud_provider_enabled: Option<bool>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failure_domains: Vec<FailureDomain>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FailureDomain {
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_plane: Option<bool>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Metal3ClusterStatus {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    #[serde(default, skip_serializing_if = "Initialization::is_empty")]
    pub initialization: Initialization,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failure_domains: Vec<FailureDomain>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_updated: Option<String>,
}
