//! Claims of IP addresses and what they got, as both APIs have them that speak of it: Metal3's, and Cluster API's contract.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use anyhow::Result;
use firstlight_api::{
    ipam::{self, ContractAddress, ContractClaim, IpAddress, IpClaim, PoolRef},
    object::{Condition, ConditionStatus, Meta},
};

use crate::objects::{Key, Objects, Resource, Selection, Watches, Writer};

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum IpamApi {
    Metal3,
    Contract,
}

impl IpamApi {
    pub fn claim(self) -> Resource {
        match self {
            Self::Metal3 => Resource(ipam::GROUP, ipam::VERSION, "IPClaim", "ipclaims"),
            Self::Contract => Resource(
                ipam::CONTRACT_GROUP,
                ipam::CONTRACT_VERSION,
                "IPAddressClaim",
                "ipaddressclaims",
            ),
        }
    }

    pub fn address(self) -> Resource {
        let (group, version) = match self {
            Self::Metal3 => (ipam::GROUP, ipam::VERSION),
            Self::Contract => (ipam::CONTRACT_GROUP, ipam::CONTRACT_VERSION),
        };
        Resource(group, version, "IPAddress", "ipaddresses")
    }

    /// Holds a claim until its address is free again.
    pub fn claim_finalizer(self) -> &'static str {
        match self {
            Self::Metal3 => "ipclaim.ipam.metal3.io",
            Self::Contract => "ipam.metal3.io/ipaddressclaim",
        }
    }

    /// Holds an address until its claim goes.
    pub fn address_finalizer(self) -> &'static str {
        match self {
            Self::Metal3 => "ipaddress.ipam.metal3.io",
            Self::Contract => "ipam.metal3.io/ipaddress",
        }
    }
}

/// The condition of a claim of the contract; an address is there.
pub const READY: &str = "Ready";

/// Somebody needs an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressClaim {
    pub api: IpamApi,
    pub meta: Meta,
    pub pool: PoolRef,
    /// Where the pool is wanted to be.
    pub pool_namespace: String,
    /// The `Cluster` that it belongs to, if it says so.
    pub cluster: String,
    /// The object of the address that it was told of.
    pub address: Option<String>,
    /// Why it has none, as it was told.
    pub error: Option<String>,
    pub conditions: Vec<Condition>,
}

/// An address that somebody has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenAddress {
    pub api: IpamApi,
    pub meta: Meta,
    pub pool: PoolRef,
    /// Name of the claim.
    pub claim: String,
    pub ip: IpAddr,
    /// Bits of its network, where the pool knows them.
    pub prefix: Option<u8>,
    pub gateway: Option<IpAddr>,
    pub dns_servers: Vec<IpAddr>,
}

impl AddressClaim {
    pub fn metal3(claim: &IpClaim) -> Self {
        let (meta, pool) = (&claim.metadata, &claim.spec.pool);
        let namespace = [&pool.namespace, &meta.namespace]
            .into_iter()
            .find(|namespace| !namespace.is_empty());
        Self {
            api: IpamApi::Metal3,
            meta: meta.clone(),
            pool: PoolRef::metal3(&pool.name),
            pool_namespace: namespace.cloned().unwrap_or_default(),
            cluster: String::new(),
            address: claim.status.address.as_ref().map(|it| it.name.clone()),
            error: claim.status.error_message.clone(),
            conditions: Vec::new(),
        }
    }

    pub fn contract(claim: &ContractClaim) -> Self {
        let (meta, status) = (&claim.metadata, &claim.status);
        let mut conditions = status.conditions.iter();
        let failed = conditions.find(|it| it.kind == READY && it.status == ConditionStatus::False);
        Self {
            api: IpamApi::Contract,
            meta: meta.clone(),
            pool: claim.spec.pool_ref.clone(),
            pool_namespace: meta.namespace.clone(),
            cluster: claim.spec.cluster_name.clone(),
            address: status.address_ref.as_ref().map(|it| it.name.clone()),
            error: failed.map(|it| it.message.clone()),
            conditions: status.conditions.clone(),
        }
    }
}

impl GivenAddress {
    pub fn metal3(address: &IpAddress) -> Option<Self> {
        let spec = &address.spec;
        Some(Self {
            api: IpamApi::Metal3,
            meta: address.metadata.clone(),
            pool: PoolRef::metal3(&spec.pool.name),
            claim: spec.claim.name.clone(),
            ip: spec.address?,
            prefix: Some(spec.prefix),
            gateway: spec.gateway,
            dns_servers: spec.dns_servers.clone(),
        })
    }

    pub fn contract(address: &ContractAddress) -> Option<Self> {
        let spec = &address.spec;
        Some(Self {
            api: IpamApi::Contract,
            meta: address.metadata.clone(),
            pool: spec.pool_ref.clone(),
            claim: spec.claim_ref.name.clone(),
            ip: spec.address?,
            prefix: spec.prefix,
            gateway: spec.gateway.parse().ok(),
            dns_servers: Vec::new(),
        })
    }
}

/// All claims and addresses.
#[derive(Clone, Debug, Default)]
pub struct Addresses {
    pub claims: BTreeMap<(IpamApi, Key), AddressClaim>,
    pub given: BTreeMap<(IpamApi, Key), GivenAddress>,
    /// A sentence for each address that cannot be read: somebody has it, and nobody knows which it is.
    pub hidden: Vec<String>,
}

/// As everybody reads and writes them. Cluster API's kinds come later than ours, or never.
pub struct AddressObjects {
    claims: Objects<IpClaim>,
    given: Objects<IpAddress>,
    contract_claims: Objects<ContractClaim>,
    contract_given: Objects<ContractAddress>,
}

impl AddressObjects {
    pub fn new(watches: &mut Watches) -> Self {
        let (metal3, contract) = (IpamApi::Metal3, IpamApi::Contract);
        Self {
            claims: watches.objects(Selection::perhaps(metal3.claim())),
            given: watches.objects(Selection::perhaps(metal3.address())),
            contract_claims: watches.objects(Selection::perhaps(contract.claim())),
            contract_given: watches.objects(Selection::perhaps(contract.address())),
        }
    }

    /// What cannot be read is added to `unreadable`.
    pub async fn look(&self, unreadable: &mut Vec<String>) -> Result<Addresses> {
        let mut seen = Addresses::default();
        let claims = self.claims.all().await?;
        let contract_claims = self.contract_claims.all().await?;
        let metal3 = claims
            .objects
            .iter()
            .map(|it: &Arc<_>| AddressClaim::metal3(it));
        let contract = contract_claims.objects.iter();
        let contract = contract.map(|it: &Arc<_>| AddressClaim::contract(it));
        let all = metal3.chain(contract);
        seen.claims = all.map(|it| ((it.api, Key::of(&it.meta)), it)).collect();
        unreadable.extend(claims.unreadable);
        unreadable.extend(contract_claims.unreadable);
        let given = self.given.all().await?;
        let contract_given = self.contract_given.all().await?;
        let metal3 = given
            .objects
            .iter()
            .filter_map(|it: &Arc<_>| GivenAddress::metal3(it));
        let contract = contract_given.objects.iter();
        let contract = contract.filter_map(|it: &Arc<_>| GivenAddress::contract(it));
        let all = metal3.chain(contract);
        seen.given = all.map(|it| ((it.api, Key::of(&it.meta)), it)).collect();
        seen.hidden = [given.unreadable, contract_given.unreadable].concat();
        unreadable.extend(seen.hidden.iter().cloned());
        Ok(seen)
    }

    pub fn claim_writer(&self, api: IpamApi) -> &Writer {
        match api {
            IpamApi::Metal3 => self.claims.writer(),
            IpamApi::Contract => self.contract_claims.writer(),
        }
    }

    pub fn given_writer(&self, api: IpamApi) -> &Writer {
        match api {
            IpamApi::Metal3 => self.given.writer(),
            IpamApi::Contract => self.contract_given.writer(),
        }
    }
}
