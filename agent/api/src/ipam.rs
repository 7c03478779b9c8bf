//! Pools of IP addresses: `ipam.metal3.io/v1alpha1` as ip-address-manager 1.10 to 1.13 has it, and Cluster API's contract for the same,
//! `ipam.cluster.x-k8s.io/v1beta2`. Field names and meanings are upstream's.
//!
//! To add a field: here, and for Metal3's kinds in `crd-ip*.yaml`. Cluster API brings its own definitions.

use std::{collections::BTreeMap, fmt, net::IpAddr, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use serde_json::Value;

use crate::{
    net::ValueError,
    object::{Condition, Object},
};

/// Of Metal3's kinds.
pub const GROUP: &str = "ipam.metal3.io";
/// Of Metal3's kinds.
pub const VERSION: &str = "v1alpha1";
/// [`GROUP`] and [`VERSION`], as in a manifest.
pub const API_VERSION: &str = "ipam.metal3.io/v1alpha1";
/// The kind of Metal3's pools.
pub const POOL_KIND: &str = "IPPool";
/// Of Cluster API's kinds.
pub const CONTRACT_GROUP: &str = "ipam.cluster.x-k8s.io";
/// In which Cluster API's kinds are read and written.
pub const CONTRACT_VERSION: &str = "v1beta2";
/// [`CONTRACT_GROUP`] and [`CONTRACT_VERSION`], as in a manifest.
pub const CONTRACT_API_VERSION: &str = "ipam.cluster.x-k8s.io/v1beta2";

/// Holds a deleted `IPPool` back while addresses of it are in use.
pub const POOL_FINALIZER: &str = "ippool.ipam.metal3.io";
/// On a claim of either kind: the address that should be given, unless somebody has it.
pub const REQUEST_ANNOTATION: &str = "ipAddress";

/// Ranges that addresses are taken from.
pub type IpPool = Object<IpPoolSpec, IpPoolStatus>;
/// Somebody needs one address of a pool.
pub type IpClaim = Object<IpClaimSpec, IpClaimStatus>;
/// What a claim got.
pub type IpAddress = Object<IpAddressSpec, Value>;
/// [`IpClaim`], as Cluster API spells it.
pub type ContractClaim = Object<ContractClaimSpec, ContractClaimStatus>;
/// [`IpAddress`], as Cluster API spells it.
pub type ContractAddress = Object<ContractAddressSpec, Value>;

/// Upstream's `IPPoolSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IpPoolSpec {
    /// The `Cluster` that the pool goes with, and that must be there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_name: Option<String>,
    /// Used up one after the other.
    pub pools: Vec<IpRange>,
    /// Within a range.
    pub allocation_strategy: AllocationStrategy,
    /// By the name of the claim; nobody else gets these.
    pub pre_allocations: BTreeMap<String, IpAddr>,
    /// Bits of the network, for ranges that say nothing else.
    pub prefix: u8,
    /// For ranges that have none of their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway: Option<IpAddr>,
    /// For ranges that have none of their own.
    #[serde(rename = "dnsServers")]
    pub dns_servers: Vec<IpAddr>,
    /// Names of addresses begin with it.
    pub name_prefix: String,
}

/// Which address of a range is next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AllocationStrategy {
    /// The lowest that is free.
    #[default]
    Sequential,
    /// Any that is free.
    Random,
}

/// Upstream's `Pool`. It begins at `start`, else after the first address of `subnet`, and ends at `end` or with `subnet`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IpRange {
    /// Itself given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<IpAddr>,
    /// Itself given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<IpAddr>,
    /// Nothing outside of it is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subnet: Option<IpSubnet>,
    /// Bits of the network; 0: as the pool says.
    pub prefix: u8,
    /// Absent: as the pool says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway: Option<IpAddr>,
    /// Empty: as the pool says.
    #[serde(rename = "dnsServers")]
    pub dns_servers: Vec<IpAddr>,
}

/// A network, written as any address of it and its bits: `192.168.0.0/24`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpSubnet {
    address: IpAddr,
    bits: u8,
}

impl IpSubnet {
    /// The first address of the network.
    pub fn first(self) -> IpAddr {
        let bits = u32::from(self.bits);
        match self.address {
            IpAddr::V4(address) => {
                let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
                IpAddr::V4((address.to_bits() & mask).into())
            }
            IpAddr::V6(address) => {
                let mask = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
                IpAddr::V6((address.to_bits() & mask).into())
            }
        }
    }

    /// The last address of the network, in IPv4 the one for broadcasts.
    pub fn last(self) -> IpAddr {
        let bits = u32::from(self.bits);
        match self.first() {
            IpAddr::V4(first) => {
                let host = u32::MAX.checked_shr(bits).unwrap_or(0);
                IpAddr::V4((first.to_bits() | host).into())
            }
            IpAddr::V6(first) => {
                let host = u128::MAX.checked_shr(bits).unwrap_or(0);
                IpAddr::V6((first.to_bits() | host).into())
            }
        }
    }
}

impl fmt::Display for IpSubnet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

impl FromStr for IpSubnet {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let parse = || {
            let (address, bits) = text.split_once('/')?;
            let (address, bits): (IpAddr, u8) = (address.parse().ok()?, bits.parse().ok()?);
            let most = if address.is_ipv4() { 32 } else { 128 };
            (bits <= most).then_some(Self { address, bits })
        };
        parse().ok_or_else(|| {
            ValueError(format!(
                "`{text}` is not a network; write it like 192.168.0.0/24"
            ))
        })
    }
}

impl Serialize for IpSubnet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for IpSubnet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(D::Error::custom)
    }
}

/// Upstream's `IPPoolStatus`, and conditions beside it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IpPoolStatus {
    /// RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_updated: Option<String>,
    /// `indexes`: names of claims with what they have.
    #[serde(rename = "indexes", skip_serializing_if = "BTreeMap::is_empty")]
    pub allocations: BTreeMap<String, IpAddr>,
    /// `Ready`: addresses are given. Not upstream's, which tells of a pool nothing but [`Self::allocations`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// Of upstream's `ObjectReference` what is read here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LocalRef {
    /// Of the object.
    pub name: String,
    /// The object's, which is that of the one that refers to it; empty: the same.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
}

/// Upstream's `IPClaimSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct IpClaimSpec {
    /// The `IPPool`.
    pub pool: LocalRef,
}

/// Upstream's `IPClaimStatus`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IpClaimStatus {
    /// The `IPAddress`, once there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<LocalRef>,
    /// Why there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_message: Option<String>,
}

/// Upstream's `IPAddressSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IpAddressSpec {
    /// Itself; the schema demands it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// The `IPPool`.
    #[serde(default)]
    pub pool: LocalRef,
    /// The `IPClaim`.
    #[serde(default)]
    pub claim: LocalRef,
    /// Bits of its network.
    #[serde(default)]
    pub prefix: u8,
    /// Of its network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<IpAddr>,
    /// For whoever has the address.
    #[serde(rename = "dnsServers", default, skip_serializing_if = "Vec::is_empty")]
    pub dns_servers: Vec<IpAddr>,
}

/// Upstream's `IPPoolReference`: a pool of whatever kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolRef {
    /// Of the pool's kind, without a version.
    #[serde(default = "group")]
    pub api_group: String,
    /// Of the pool.
    #[serde(default = "kind")]
    pub kind: String,
    /// Of the pool.
    #[serde(default)]
    pub name: String,
}

fn group() -> String {
    GROUP.to_owned()
}

fn kind() -> String {
    POOL_KIND.to_owned()
}

impl Default for PoolRef {
    fn default() -> Self {
        Self::metal3("")
    }
}

impl PoolRef {
    /// An `IPPool`.
    pub fn metal3(name: &str) -> Self {
        Self {
            api_group: group(),
            kind: kind(),
            name: name.to_owned(),
        }
    }

    /// An [`IpPool`], which this box serves.
    pub fn is_metal3(&self) -> bool {
        self.api_group == GROUP && self.kind == POOL_KIND
    }
}

/// Of upstream's `IPAddressClaimSpec` what is read here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ContractClaimSpec {
    /// The `Cluster` whose pause counts; empty: the pool's.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cluster_name: String,
    /// Where the address is to come from.
    #[serde(default)]
    pub pool_ref: PoolRef,
}

/// Of upstream's `IPAddressClaimStatus` what is read here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContractClaimStatus {
    /// The `IPAddress`, once there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address_ref: Option<LocalRef>,
    /// `Ready` among them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// Upstream's `IPAddressSpec` of Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ContractAddressSpec {
    /// Itself; the schema demands it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// Where it is from.
    #[serde(default)]
    pub pool_ref: PoolRef,
    /// The `IPAddressClaim`.
    #[serde(default)]
    pub claim_ref: LocalRef,
    /// Bits of its network; absent where a provider knows none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<u8>,
    /// Of its network; empty where there is none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub gateway: String,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_network_has_a_first_and_a_last_address() {
        for (text, first, last) in [
            ("192.168.0.7/24", "192.168.0.0", "192.168.0.255"),
            ("10.0.0.1/32", "10.0.0.1", "10.0.0.1"),
            ("10.0.0.1/0", "0.0.0.0", "255.255.255.255"),
            ("2001:db8::9/126", "2001:db8::8", "2001:db8::b"),
            ("::1/0", "::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
            ("2001:db8::9/128", "2001:db8::9", "2001:db8::9"),
        ] {
            let subnet: IpSubnet = text.parse().unwrap();
            let ends = (subnet.first().to_string(), subnet.last().to_string());
            assert_eq!(ends, (first.to_owned(), last.to_owned()), "{text}");
            assert_eq!(subnet.to_string(), text);
        }
        for wrong in ["10.0.0.0", "10.0.0.0/33", "::/129", "a/8", "10.0.0.0/"] {
            assert!(wrong.parse::<IpSubnet>().is_err(), "{wrong}");
        }
    }
}
