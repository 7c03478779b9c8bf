//! What a `Metal3DataTemplate` takes from pools of addresses.

use serde::{Deserialize, Serialize};

use super::data::{AnnotationOf, Route};
use crate::ipam::PoolRef;

/// Upstream's `FromPool`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FromPool {
    /// Of the metadata.
    pub key: String,
    /// The machine gets one address of it, however often it is named.
    #[serde(flatten)]
    pub pool: PoolRef,
}

/// Upstream's `NetworkDataIPv4` and `NetworkDataIPv6`: of three ways to say the pool, the first counts that is there, from below.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StaticNetwork {
    /// Of the network.
    pub id: String,
    /// [`Link::id`] of the interface.
    pub link: String,
    /// `ipAddressFromIPPool`: the name of an `IPPool`.
    #[serde(rename = "ipAddressFromIPPool")]
    pub ip_address_from_ip_pool: Option<String>,
    /// A pool of whatever kind.
    pub from_pool_ref: Option<PoolRef>,
    /// Its value is the name of an `IPPool`.
    pub from_pool_annotation: Option<AnnotationOf>,
    /// Of the network.
    pub routes: Vec<Route>,
}

/// Upstream's `NetworkGatewayv4` and `NetworkGatewayv6`: the address itself, else as with [`StaticNetwork`] that of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Gateway {
    /// The address itself.
    pub string: String,
    /// `fromIPPool`: the name of an `IPPool`.
    #[serde(rename = "fromIPPool")]
    pub from_ip_pool: Option<String>,
    /// A pool of whatever kind.
    pub from_pool_ref: Option<PoolRef>,
    /// Its value is the name of an `IPPool`.
    pub from_pool_annotation: Option<AnnotationOf>,
}

/// Upstream's `NetworkDataService`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NetworkServices {
    /// Addresses of name servers.
    pub dns: Vec<String>,
    /// `dnsFromIPPool`: the name of an `IPPool`, whose name servers follow.
    #[serde(rename = "dnsFromIPPool")]
    pub dns_from_ip_pool: Option<String>,
}

/// How a template says which pool it means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoolChoice<'a> {
    /// The value of the annotation is the name of an `IPPool`.
    Annotation(&'a AnnotationOf),
    /// This one.
    Pool(PoolRef),
}

impl<'a> PoolChoice<'a> {
    fn first(
        annotation: Option<&'a AnnotationOf>,
        reference: Option<&PoolRef>,
        name: Option<&String>,
    ) -> Option<Self> {
        let name = name.filter(|name| !name.is_empty());
        let pool = || {
            Some(Self::Pool(
                reference
                    .cloned()
                    .or_else(|| Some(PoolRef::metal3(name?)))?,
            ))
        };
        annotation.map(Self::Annotation).or_else(pool)
    }
}

impl StaticNetwork {
    /// Where its address is from.
    pub fn pool(&self) -> Option<PoolChoice<'_>> {
        PoolChoice::first(
            self.from_pool_annotation.as_ref(),
            self.from_pool_ref.as_ref(),
            self.ip_address_from_ip_pool.as_ref(),
        )
    }
}

impl Gateway {
    /// Where the gateway is from, unless it is said.
    pub fn pool(&self) -> Option<PoolChoice<'_>> {
        let is_said = !self.string.is_empty();
        let choice = PoolChoice::first(
            self.from_pool_annotation.as_ref(),
            self.from_pool_ref.as_ref(),
            self.from_ip_pool.as_ref(),
        );
        choice.filter(|_| !is_said)
    }
}

impl NetworkServices {
    /// Where more name servers are from.
    pub fn pool(&self) -> Option<PoolChoice<'_>> {
        PoolChoice::first(None, None, self.dns_from_ip_pool.as_ref())
    }
}
