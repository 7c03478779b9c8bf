//! `Software` (`firstlight.internal/v1alpha1`): exact versions of Debian packages on installed servers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    capm3::HostSelector,
    object::{Condition, Object},
};

/// Of the box's own kinds.
pub const GROUP: &str = "firstlight.internal";
/// The only one that is served.
pub const VERSION: &str = "v1alpha1";
/// As in a manifest.
pub const KIND: &str = "Software";
/// What tools make of the kind without asking; `kubectl get software` works too.
pub const PLURAL: &str = "softwares";
/// Kept while a server is held out of its cluster for a restart.
pub const FINALIZER: &str = "firstlight.internal/software";
/// With `gate: manual`: the generation whose packages a person takes for good.
pub const APPROVED_ANNOTATION: &str = "firstlight.internal/approved";
/// On a node that was cordoned for a restart: `NAMESPACE/NAME` of the Software. Without it the node stays cordoned.
pub const CORDONED_ANNOTATION: &str = "firstlight.internal/cordoned-for";
/// Condition: every selected server has every package as it is wanted.
pub const PACKAGES_READY: &str = "PackagesReady";
/// Condition: what depends on the packages may go on.
pub const APPROVED: &str = "Approved";
/// In place of a version: the package is not there.
pub const NONE: &str = "none";

/// Deleting one removes no package.
pub type Software = Object<SoftwareSpec, SoftwareStatus>;

/// Which packages, on which servers, and how carefully.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SoftwareSpec {
    /// Over the labels of `BareMetalHost` objects.
    #[serde(default)]
    pub selector: HostSelector,
    /// 1 to 200, each named once; `crd-software.yaml` holds that. One run of apt takes all of them.
    #[serde(default)]
    pub packages: Vec<PackageSpec>,
    /// What shall be true of `packages`.
    #[serde(default)]
    pub state: Presence,
    /// Whether a server may be restarted for them.
    #[serde(default)]
    pub reboot: Reboot,
    /// How many servers at a time.
    #[serde(default)]
    pub max_unavailable: MaxUnavailable,
    /// When what depends on the packages may go on.
    #[serde(default)]
    pub gate: Gate,
}

/// One Debian package in one version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PackageSpec {
    /// Of the binary package, 2 to 256 characters: see [`crate::packages::is_name`].
    pub name: String,
    /// May be empty where the package is to go.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,
}

/// What shall be true of packages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Presence {
    /// They are installed in exactly these versions.
    #[default]
    Present,
    /// They are not installed; their configuration files stay.
    Absent,
}

impl Presence {
    /// How a package shall be, as the status writes it.
    pub fn of(self, package: &PackageSpec) -> &str {
        match self {
            Self::Present => &package.version,
            Self::Absent => NONE,
        }
    }
}

/// Whether a server is restarted when its packages ask for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Reboot {
    /// The status says that a restart is needed.
    #[default]
    Never,
    /// It is drained, restarted, and given back to its cluster.
    IfNeeded,
}

/// Who says that packages are good.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Gate {
    /// A person approves what is installed before anything that depends on it goes on.
    Manual,
    /// They are good as soon as all are there.
    #[default]
    Auto,
}

/// How many servers may be worked on or broken at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Value", into = "Value")]
pub enum MaxUnavailable {
    /// Servers, at least 1; on the wire a number.
    Count(usize),
    /// Of those that are selected, 1 to 100; on the wire `25%`.
    Percent(usize),
}

impl Default for MaxUnavailable {
    fn default() -> Self {
        Self::Count(1)
    }
}

impl MaxUnavailable {
    /// Rounded down, as Kubernetes does it, but never to none.
    pub fn of(self, total: usize) -> usize {
        match self {
            Self::Count(count) => count,
            Self::Percent(percent) => (total * percent / 100).max(1),
        }
    }
}

impl TryFrom<Value> for MaxUnavailable {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        let parsed = match &value {
            Value::Number(number) => number
                .as_u64()
                .and_then(|count| usize::try_from(count).ok())
                .filter(|count| *count > 0)
                .map(Self::Count),
            Value::String(text) => text
                .strip_suffix('%')
                .and_then(|number| number.parse().ok())
                .filter(|percent| (1..=100).contains(percent))
                .map(Self::Percent),
            _ => None,
        };
        parsed.ok_or_else(|| format!("{value} is neither a number from 1 nor a percentage"))
    }
}

impl From<MaxUnavailable> for Value {
    fn from(value: MaxUnavailable) -> Self {
        match value {
            MaxUnavailable::Count(count) => count.into(),
            MaxUnavailable::Percent(percent) => format!("{percent}%").into(),
        }
    }
}

/// Written by the agent's `software`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SoftwareStatus {
    /// Where the roll-out stands.
    #[serde(default)]
    pub state: SoftwareState,
    /// Why not all is as wanted, and what to do about it.
    #[serde(default)]
    pub message: String,
    /// `2/3`: servers that are ready, and all that are selected.
    #[serde(default)]
    pub ready: String,
    /// `metadata.generation` of the spec that this is about.
    #[serde(default)]
    pub observed_generation: i64,
    /// Selected servers that carry a system, by name.
    #[serde(default)]
    pub nodes: Vec<NodeStatus>,
    /// [`PACKAGES_READY`] and [`APPROVED`].
    #[serde(default)]
    pub conditions: Vec<Condition>,
}

/// Written as here, in upper camel case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum SoftwareState {
    /// No server is selected, or all wait for something that the message names.
    #[default]
    Pending,
    /// Servers are worked on, or wait for their turn.
    Installing,
    /// All servers have all packages as they are wanted.
    Ready,
    /// Servers failed; others may still be worked on.
    Failed,
    /// As many failed as may be unavailable: no further server is touched.
    Stopped,
}

impl SoftwareState {
    /// As it is written in objects and on the page.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Installing => "Installing",
            Self::Ready => "Ready",
            Self::Failed => "Failed",
            Self::Stopped => "Stopped",
        }
    }
}

/// One selected server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeStatus {
    /// Its `BareMetalHost`.
    pub name: String,
    /// Cluster and node that it is, empty if none.
    #[serde(default)]
    pub cluster: String,
    /// Its name in `cluster`.
    #[serde(default)]
    pub node: String,
    /// What is being done with it.
    #[serde(default)]
    pub state: NodeState,
    /// One word in `CamelCase`, empty if all is well.
    #[serde(default)]
    pub reason: String,
    /// The sentence to it.
    #[serde(default)]
    pub message: String,
    /// RFC 3339: when this state began.
    #[serde(default)]
    pub since: String,
    /// Digest of the wish that this is about.
    #[serde(default)]
    pub wish: String,
    /// In the order of the spec.
    #[serde(default)]
    pub packages: Vec<PackageStatus>,
}

/// Written as here, in upper camel case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum NodeState {
    /// For its turn, or for what the message names.
    #[default]
    Waiting,
    /// It has an order for packages.
    Installing,
    /// Its pods are moved away before a restart.
    Draining,
    /// It was told to, and has not answered since.
    Restarting,
    /// Its packages are as they are wanted; it may still need a restart that `reboot: never` leaves to a person.
    Ready,
    /// The reason and the message say what is wrong; it is tried again.
    Failed,
}

impl NodeState {
    /// As it is written in objects and on the page.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "Waiting",
            Self::Installing => "Installing",
            Self::Draining => "Draining",
            Self::Restarting => "Restarting",
            Self::Ready => "Ready",
            Self::Failed => "Failed",
        }
    }

    /// Somebody works on it, or should.
    pub const fn is_working(self) -> bool {
        matches!(self, Self::Installing | Self::Draining | Self::Restarting)
    }
}

/// One package of one server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PackageStatus {
    /// As in the spec.
    pub name: String,
    /// A version, or [`NONE`].
    #[serde(default)]
    pub wanted: String,
    /// A version, [`NONE`], or empty while nobody has asked.
    #[serde(default)]
    pub have: String,
    /// How `have` stands to `wanted`.
    #[serde(default)]
    pub state: PackageState,
    /// The line of apt or dpkg that says why not; empty if all is well.
    #[serde(default)]
    pub reason: String,
    /// RFC 3339: when this state began.
    #[serde(default)]
    pub since: String,
}

/// Written as here, in upper camel case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PackageState {
    /// Not yet as it is wanted, or nobody has asked.
    #[default]
    Pending,
    /// As it is wanted.
    Ready,
    /// It was tried, and is not as it is wanted.
    Failed,
}

impl PackageState {
    /// As it is written in objects and on the page.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Ready => "Ready",
            Self::Failed => "Failed",
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    #[test]
    fn a_limit_is_a_number_or_a_share() {
        for (given, total, limit) in [
            (json!(1), 5, 1),
            (json!(7), 5, 7),
            (json!("100%"), 5, 5),
            (json!("25%"), 50, 12),
            (json!("10%"), 3, 1),
        ] {
            let read: MaxUnavailable = serde_json::from_value(given.clone()).unwrap();
            assert_eq!(read.of(total), limit, "{given}");
            assert_eq!(serde_json::to_value(read).unwrap(), given);
        }
        for wrong in [
            json!(0),
            json!("0%"),
            json!("101%"),
            json!("2"),
            json!(-1),
            json!(1.5),
        ] {
            assert!(
                serde_json::from_value::<MaxUnavailable>(wrong.clone()).is_err(),
                "{wrong}"
            );
        }
    }
}
