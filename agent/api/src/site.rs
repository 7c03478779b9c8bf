//! `site.yaml`: the one file a person may edit.
//!
//! [`parse_site`] turns the bytes of the file into a [`SiteConfig`] that cannot be wrong, or into every problem it
//! found, each with its line and column. `firstlight build`, `firstlight check` and the box call the same function.
//!
//! Must not: read files or the environment. The caller brings the bytes.
//! To add a key: the `*Spec` type in [`schema`] (its doc comment is the operator's help), the walk in `parse`, a
//! default in [`SiteConfig::default`], a case in `tests`; then renew `docs/site.schema.json` with `UPDATE_GOLDEN=1`.

pub mod alarms;
pub mod cluster;
pub mod ipv6;
pub mod networks;
mod parse;
pub mod proxy;
mod relayed;
pub mod rules;
pub mod schema;
#[cfg(test)]
mod tests;
pub mod uplink;
mod values;
mod yaml;

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddrV4},
    str::FromStr,
};

use crate::{backup::BackupPlan, people::SiteOperator, status::HardwareSummary};

pub use cluster::{
    ClusterChoice, ClusterConfig, ClusterIpv6, ControlPlanes, Heal, HostRole, Ipv4Network, Workers,
};
pub use networks::{Domain, HostAddresses, Layout, SiteNetwork};
pub use parse::parse_site;
pub use proxy::Proxy;
pub use relayed::RelayedNetwork;
pub use rules::{BmcAccount, GivenRootDisk, Gives, Rule};
pub use uplink::Uplink;
pub use values::{BitRate, SshKey};

pub use crate::net::{AddressRange, HostName, MacAddr, Subnet, ValueError};
pub use crate::seal::RootOfTrust;

/// A `site.yaml` after every check; [`SiteConfig::default`] is what an empty file means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteConfig {
    /// `name`: shown on the page, and the name of the workload cluster.
    pub name: HostName,
    /// `provisioning`: where hosts boot.
    pub provisioning: ProvisioningConfig,
    /// `networks`: what installed servers have beside that one, by name.
    pub networks: BTreeMap<String, SiteNetwork>,
    /// `uplink`: the box's way to everything else; absent: it has none.
    pub uplink: Option<Uplink>,
    /// `proxy`: how servers reach the Web; absent: as the network lets them.
    pub proxy: Option<Proxy>,
    /// `alarms`: whom the box tells what somebody should know; absent: nobody but those who look.
    pub alarms: Option<alarms::Alarms>,
    /// What happens to a host that has no `install` of its own.
    pub install: InstallPolicy,
    /// Who may become a host.
    pub join: JoinPolicy,
    /// What a server's TPM has to say of how it was started.
    pub measured_boot: MeasuredBoot,
    /// Keys of the person who runs the site: for `admin` on the box and on every installed host.
    pub ssh_keys: Vec<SshKey>,
    /// `hosts`: servers with a setting of their own, each MAC address once.
    pub hosts: Vec<HostConfig>,
    /// For servers that are new; without any, each is taken as it is.
    pub rules: Vec<Rule>,
    /// `cluster`: what installed hosts are for.
    pub cluster: ClusterChoice,
    /// `clusters`: further ones, by their names. Each has the hosts that are said to be its, and no others.
    pub clusters: BTreeMap<HostName, ClusterConfig>,
    /// Addons of the stick that each generated cluster gets.
    pub addons: Addons,
    /// Debian packages that the stick brings for servers, with what they depend on.
    pub packages: Vec<String>,
    /// People who may log in at the page.
    pub operators: Vec<SiteOperator>,
    /// Where a copy of the audit log goes.
    pub log_host: Option<SocketAddrV4>,
    /// `backup`: backups that the box makes by itself.
    pub backup: Option<BackupPlan>,
    /// `box.workloads`: whether people may run pods on the box.
    pub box_workloads: bool,
    /// `box.seal`: what keeps the key of the state partition, where the machine has it.
    pub box_seal: RootOfTrust,
    /// Not a key of the file: the box sets it.
    pub standing: Standing,
}

/// Which addons a generated cluster gets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Addons {
    /// What people expect of a cluster on its first day.
    #[default]
    Usual,
    /// These and no others, by the names of their folders.
    Named(Vec<String>),
}

/// Where the settings are from, and so what may be done by them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Standing {
    /// The file of the stick as it is.
    #[default]
    Current,
    /// The file of an earlier start, because the one of the stick cannot be used: what runs goes on, addresses are leased, and
    /// no server is installed, erased or given bootstrap data.
    LastGood,
    /// Nobody knows the site's settings: no address is leased either.
    Unknown,
}

/// The network that hosts boot from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProvisioningConfig {
    /// The box's NIC on this network.
    pub interface: InterfaceChoice,
    /// The box's own address with the length of its network.
    pub address: Subnet,
    /// Leased to hosts without an address of their own. Inside the network, and never holds the box's address.
    pub range: AddressRange,
    /// The router of this network, which hosts are told, and behind which the relayed networks are. Neither the box's address
    /// nor in the range.
    pub gateway: Option<Ipv4Addr>,
    /// What the box's DHCP does on this network.
    pub dhcp: DhcpRole,
    /// What files of the box may take of the link, all together; absent: all of it.
    pub bandwidth: Option<BitRate>,
    /// Networks whose servers reach the box through a relay agent and `gateway`; no two of all overlap.
    pub relayed: Vec<RelayedNetwork>,
}

/// How a person names one of the box's NICs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InterfaceChoice {
    /// The first physical Ethernet NIC, by PCI path, that has a carrier and on whose network no router and no DHCP server is heard; a NIC that
    /// the box has served on comes before all others.
    Auto,
    /// Kernel name, e.g. `enp1s0`.
    Name(String),
    /// The NIC with this address.
    Mac(MacAddr),
}

/// What the box's DHCP server does on the provisioning network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DhcpRole {
    /// Leases addresses, unless another server does.
    #[default]
    Serve,
    /// Gives boot information beside another server, which leases the addresses.
    Proxy,
    /// Answers what relay agents forward, and nobody on the network itself.
    Relay,
}

impl DhcpRole {
    /// As in `site.yaml`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Serve => "serve",
            Self::Proxy => "proxy",
            Self::Relay => "relay",
        }
    }
}

/// When a discovered host may be written to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InstallPolicy {
    /// If none of its disks has a partition table or a file system signature.
    #[default]
    Blank,
    /// Always: whatever is on its disks is lost.
    Wipe,
    /// Listed and left alone.
    Never,
}

impl InstallPolicy {
    const ALL: [Self; 3] = [Self::Blank, Self::Wipe, Self::Never];

    /// As in `site.yaml`, and in the annotation of a `BareMetalHost`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Blank => "blank",
            Self::Wipe => "wipe",
            Self::Never => "never",
        }
    }
}

/// What is erased of a server that is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clean {
    /// The disk that got the image.
    Root,
    /// Those that were blank when it did, too; with [`InstallPolicy::Wipe`] every disk.
    All,
}

impl Clean {
    /// As in `site.yaml`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::All => "all",
        }
    }
}

impl FromStr for Clean {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let all = [Self::Root, Self::All];
        let clean = all.into_iter().find(|clean| clean.word() == text);
        clean.ok_or_else(|| {
            ValueError(format!(
                "`{text}` cleans nothing; use root (only the disk that got the image) or all (those that were blank, too)"
            ))
        })
    }
}

impl FromStr for InstallPolicy {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let policy = Self::ALL.into_iter().find(|policy| policy.word() == text);
        policy.ok_or_else(|| {
            ValueError(format!(
                "`{text}` is no install policy; use blank (only servers whose disks are all blank), wipe (whatever is on them) or never"
            ))
        })
    }
}

/// Which servers are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JoinPolicy {
    /// Every server that boots from the network.
    #[default]
    Open,
    /// Those whose code a person has compared.
    Approve,
    /// Those in `hosts`.
    Named,
}

impl JoinPolicy {
    /// As in site.yaml.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Approve => "approve",
            Self::Named => "named",
        }
    }
}

/// Which word of a TPM on how its server was started is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MeasuredBoot {
    /// A server that was started by something else is not believed, nor one that has shown it before and does not any more.
    #[default]
    Compare,
    /// Nobody is believed who does not show it.
    Required,
    /// What is found is shown, and nobody is refused for it.
    Ignore,
}

/// One entry of `hosts`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostConfig {
    /// Of the NIC that it boots from.
    pub mac: MacAddr,
    /// Absent: `host-` and its MAC without colons.
    pub name: Option<HostName>,
    /// Inside the provisioning network or a relayed one, not the box's, no router's, unique.
    pub address: Option<Ipv4Addr>,
    /// Instead of the site's [`SiteConfig::install`].
    pub install: Option<InstallPolicy>,
    /// For the cluster; `Any` where nothing was said.
    pub role: HostRole,
    /// One of the site's clusters that it is for; absent: as its rule says, or the site's own.
    pub cluster: Option<HostName>,
    /// Absent: the box chooses.
    pub root_disk: Option<GivenRootDisk>,
    /// What is erased when it is given back.
    pub clean: Option<Clean>,
    /// Which of its NICs carries what; absent: as its rule says, or nothing but the provisioning network.
    pub layout: Option<Layout>,
    /// On networks of the site, by their names.
    pub addresses: BTreeMap<String, HostAddresses>,
}

impl Default for SiteConfig {
    fn default() -> Self {
        let address =
            Subnet::new(Ipv4Addr::new(172, 22, 0, 1), 24).expect("172.22.0.1/24 is a host address");
        let provisioning = ProvisioningConfig {
            interface: InterfaceChoice::Auto,
            range: AddressRange::derived_from(address),
            address,
            gateway: None,
            dhcp: DhcpRole::Serve,
            bandwidth: None,
            relayed: Vec::new(),
        };
        let cluster = ClusterConfig::usual(&provisioning);
        Self {
            name: HostName::parse("firstlight").expect("`firstlight` is a host name"),
            provisioning,
            networks: BTreeMap::new(),
            uplink: None,
            proxy: None,
            alarms: None,
            install: InstallPolicy::Blank,
            join: JoinPolicy::Open,
            measured_boot: MeasuredBoot::Compare,
            ssh_keys: Vec::new(),
            hosts: Vec::new(),
            rules: Vec::new(),
            cluster: cluster.map_or(ClusterChoice::None, ClusterChoice::Generated),
            clusters: BTreeMap::new(),
            addons: Addons::Usual,
            packages: Vec::new(),
            operators: Vec::new(),
            log_host: None,
            backup: None,
            box_workloads: false,
            box_seal: RootOfTrust::Tpm,
            standing: Standing::Current,
        }
    }
}

impl SiteConfig {
    /// What the box runs with while its `site.yaml` is refused and no earlier one is known: the defaults, but nothing is
    /// installed.
    #[must_use]
    pub fn for_a_refused_file() -> Self {
        Self {
            install: InstallPolicy::Never,
            cluster: ClusterChoice::None,
            standing: Standing::Unknown,
            ..Self::default()
        }
    }

    /// What it runs with if this is the file of an earlier start.
    #[must_use]
    pub fn as_last_good(self) -> Self {
        Self {
            standing: Standing::LastGood,
            ..self
        }
    }

    /// The entry in the file, if there is one.
    pub fn host(&self, mac: MacAddr) -> Option<&HostConfig> {
        self.hosts.iter().find(|host| host.mac == mac)
    }

    /// The host's own, otherwise that of its `rule`, otherwise the site's; always `Never` while the file is not
    /// [`Standing::Current`].
    pub fn install_policy(&self, mac: MacAddr, rule: Option<&Rule>) -> InstallPolicy {
        if self.standing != Standing::Current {
            return InstallPolicy::Never;
        }
        self.host(mac)
            .and_then(|host| host.install)
            .or_else(|| rule?.gives.install)
            .unwrap_or(self.install)
    }

    /// What a host gets: as its `rule` says, but for what `hosts` says of it.
    pub fn gives(&self, mac: MacAddr, rule: Option<&Rule>) -> Gives {
        let mut gives = rule.map(|rule| rule.gives.clone()).unwrap_or_default();
        if let Some(host) = self.host(mac) {
            gives.root_disk = host.root_disk.clone().or(gives.root_disk);
            gives.clean = host.clean.or(gives.clean);
            gives.layout = host.layout.clone().or(gives.layout);
            gives.cluster = host.cluster.clone().or(gives.cluster);
        }
        gives
    }

    /// What `hosts` says that a host may become; `Any` where nothing was said.
    pub fn role(&self, mac: MacAddr) -> HostRole {
        self.host(mac).map(|host| host.role).unwrap_or_default()
    }

    /// The clusters that the box makes, by name: the site's own first.
    pub fn generated_clusters(&self) -> impl Iterator<Item = (&str, &ClusterConfig)> {
        let own = match &self.cluster {
            ClusterChoice::Generated(config) => Some((self.name.as_str(), config)),
            ClusterChoice::None | ClusterChoice::Manual => None,
        };
        let further = self.clusters.iter();
        own.into_iter()
            .chain(further.map(|(name, config)| (name.as_str(), config)))
    }

    /// The first rule that fits, with its place in the list.
    pub fn rule_of(&self, mac: MacAddr, hardware: &HardwareSummary) -> Option<(usize, &Rule)> {
        let mut rules = self.rules.iter().enumerate();
        rules.find(|(_, rule)| rule.fits(mac, hardware).is_ok())
    }

    /// The name of a host: as the file says, otherwise `host-` and its MAC without colons.
    pub fn host_name(&self, mac: MacAddr) -> HostName {
        self.host(mac)
            .and_then(|host| host.name.clone())
            .unwrap_or_else(|| HostName::from_mac(mac))
    }
}

/// Everything that is wrong with a file, in the order of its lines.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
pub struct SiteProblems(pub Vec<SiteProblem>);

/// One thing that is wrong. Lines and columns count from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteProblem {
    /// From 1.
    pub line: usize,
    /// From 1.
    pub column: usize,
    /// What is wrong, and what would be right.
    pub message: String,
}

impl std::fmt::Display for SiteProblem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "line {}, column {}: {}",
            self.line, self.column, self.message
        )
    }
}
