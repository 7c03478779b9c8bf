//! `site.yaml` as a person writes it, for the published JSON Schema (`docs/site.schema.json`).
//!
//! These types are never filled: an editor's YAML plug-in reads their schema, the box reads the file itself, because
//! only a walk over the marked tree can report every problem with its place. A test holds both to the same keys.

use std::collections::BTreeMap;

use schemars::JsonSchema;

pub(super) const SITE_KEYS: &[&str] = &[
    "name",
    "provisioning",
    "networks",
    "uplink",
    "proxy",
    "install",
    "join",
    "measuredBoot",
    "sshKeys",
    "hosts",
    "rules",
    "cluster",
    "clusters",
    "addons",
    "packages",
    "operators",
    "logHost",
    "backup",
    "alarms",
    "box",
];
pub(super) const OPERATOR_KEYS: &[&str] = &["name", "role", "password"];
pub(super) const BOX_KEYS: &[&str] = &["workloads", "seal"];
pub(super) const BACKUP_KEYS: &[&str] = &["recipients", "count", "outside"];
pub(super) const ALARMS_KEYS: &[&str] = &["webhook", "email"];
pub(super) const EMAIL_KEYS: &[&str] = &["server", "from", "to"];
pub(super) const OUTSIDE_KEYS: &[&str] = &["place", "hostKey"];
pub(super) const PROVISIONING_KEYS: &[&str] = &[
    "interface",
    "address",
    "range",
    "gateway",
    "dhcp",
    "bandwidth",
    "relayed",
];
pub(super) const UPLINK_KEYS: &[&str] = &[
    "nic",
    "bond",
    "nics",
    "parameters",
    "vlan",
    "mtu",
    "address",
    "gateway",
    "dns",
    "search",
    "ntp",
    "routes",
    "routing",
    "clusters",
];
pub(super) const PROXY_KEYS: &[&str] = &["http", "https", "noProxy"];
pub(super) const RELAYED_KEYS: &[&str] = &["subnet", "range", "gateway"];
pub(super) const HOST_KEYS: &[&str] = &[
    "mac",
    "name",
    "address",
    "addresses",
    "install",
    "role",
    "cluster",
    "rootDisk",
    "clean",
    "links",
    "defaultRoute",
];
pub(super) const NETWORK_KEYS: &[&str] = &[
    "subnet", "vlan", "gateway", "dns", "ntp", "search", "mtu", "pool", "routes", "dhcp",
];
pub(super) const ROUTE_KEYS: &[&str] = &["to", "via"];
pub(super) const LINK_KEYS: &[&str] = &["nic", "bond", "nics", "parameters", "networks"];
pub(super) const RULE_KEYS: &[&str] = &[
    "match",
    "name",
    "role",
    "cluster",
    "install",
    "labels",
    "failureDomain",
    "rootDisk",
    "clean",
    "image",
    "start",
    "kernelArguments",
    "links",
    "defaultRoute",
    "bmc",
    "keepsBackups",
];
pub(super) const RULE_BMC_KEYS: &[&str] = &["account"];
pub(super) const MATCH_KEYS: &[&str] = &[
    "mac", "serial", "vendor", "product", "cpus", "memory", "nics", "nicSpeed", "disks", "diskSize",
];
pub(super) const ROOT_DISK_KEYS: &[&str] = &[
    "deviceName",
    "hctl",
    "model",
    "vendor",
    "serialNumber",
    "minSizeGigabytes",
    "wwn",
    "wwnWithExtension",
    "wwnVendorExtension",
    "rotational",
    "mirror",
];
pub(super) const CLUSTER_KEYS: &[&str] = &[
    "controlPlanes",
    "workers",
    "endpoint",
    "podCidr",
    "serviceCidr",
    "loadBalancer",
    "network",
    "heal",
];

/// The site. Every key may be left out.
#[derive(JsonSchema)]
#[schemars(
    rename_all = "camelCase",
    deny_unknown_fields,
    title = "Firstlight site.yaml"
)]
#[allow(dead_code, reason = "read by schemars only")]
struct SiteSpec {
    /// Name of the site, shown on the page. Default: firstlight.
    #[schemars(pattern(r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"))]
    name: Option<String>,
    provisioning: Option<ProvisioningSpec>,
    /// Networks that installed servers have beside the one that they boot from, by name; `links` says which NIC carries them.
    networks: Option<BTreeMap<String, NetworkSpec>>,
    uplink: Option<UplinkSpec>,
    proxy: Option<ProxySpec>,
    install: Option<InstallSpec>,
    join: Option<JoinSpec>,
    measured_boot: Option<MeasuredBootSpec>,
    /// SSH public keys for `admin` on the box and on every installed server.
    ssh_keys: Option<Vec<String>>,
    /// Servers that need a name, an address or a rule of their own. Others need no entry.
    hosts: Option<Vec<HostSpec>>,
    /// For servers that are new: the first rule that fits counts, and a server that none fits is listed and left alone.
    rules: Option<Vec<RuleSpec>>,
    cluster: Option<ClusterKey>,
    /// Further clusters, by name; `cluster` of a host or of a rule says which servers are theirs.
    clusters: Option<BTreeMap<String, ClusterSpec>>,
    /// Addons of the stick that each cluster gets, and no others, e.g. metrics-server. Default: dns, gateway, loadbalancer, metrics-server,
    /// network-policy and storage.
    addons: Option<Vec<String>>,
    /// Debian packages that `firstlight build --site` puts on the stick for the servers, with what they depend on, e.g. htop.
    packages: Option<Vec<String>>,
    /// People who may log in at the page, besides those that are added there.
    operators: Option<Vec<OperatorSpec>>,
    /// A syslog server (RFC 5424 over TCP) that gets a copy of the audit log: an IPv4 address, with a port if it is not 514.
    log_host: Option<String>,
    backup: Option<BackupSpec>,
    alarms: Option<AlarmsSpec>,
    r#box: Option<BoxSpec>,
}

/// A person.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase", deny_unknown_fields)]
#[allow(dead_code, reason = "read by schemars only")]
struct OperatorSpec {
    /// Small letters, digits, `-`, `.` and `_`.
    #[schemars(pattern(r"^[a-z0-9][a-z0-9._-]{0,31}$"))]
    name: String,
    /// viewer (reads), operator (changes what servers and clusters do) or admin (says who may do what).
    role: PersonRoleSpec,
    /// A hash of the password, as `firstlight operators hash` makes it.
    #[schemars(pattern(r"^\$argon2id\$v=19\$"))]
    password: String,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
#[allow(dead_code, reason = "read by schemars only")]
enum PersonRoleSpec {
    Viewer,
    Operator,
    Admin,
}

/// Encrypted backups that the box makes by itself, every night and before an update: onto its stick, onto servers whose rule says
/// `keepsBackups`, and to a place outside. Default: none.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase", deny_unknown_fields)]
#[allow(dead_code, reason = "read by schemars only")]
struct BackupSpec {
    /// Public keys of age's (`age-keygen`): whoever has the other half of one can read a backup, and be this site's box.
    recipients: Vec<String>,
    /// How many are kept in each place, 1 to 60. Default: 7.
    #[schemars(range(min = 1, max = 60))]
    count: Option<u8>,
    outside: Option<OutsideSpec>,
}

/// Whom the box tells what somebody should know, besides its page and its console: docs/monitoring.md. Default: nobody.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase", deny_unknown_fields)]
#[allow(dead_code, reason = "read by schemars only")]
struct AlarmsSpec {
    /// Gets Alertmanager's JSON by POST, for example `https://hooks.example/firstlight`.
    webhook: Option<String>,
    email: Option<EmailSpec>,
}

/// A mail for alarms, by SMTP without a login.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase", deny_unknown_fields)]
#[allow(dead_code, reason = "read by schemars only")]
struct EmailSpec {
    /// The mail server, for example `mail.example`, or `mail.example:587`.
    server: String,
    /// Whom it is from, for example `firstlight@site.example`.
    from: String,
    /// Whom it is for.
    to: Vec<String>,
}

/// A machine outside of the site that takes files by SFTP. The page shows the key of the box that it has to admit.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase", deny_unknown_fields)]
#[allow(dead_code, reason = "read by schemars only")]
struct OutsideSpec {
    /// For example `sftp://backup@192.0.2.9/srv/backups`.
    place: String,
    /// The public host key of its SSH server, as `ssh-keyscan` prints it behind the name.
    host_key: String,
}

/// The box itself.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase", deny_unknown_fields)]
#[allow(dead_code, reason = "read by schemars only")]
struct BoxSpec {
    /// Whether people may run pods on the box, in the namespace `workloads` of its own Kubernetes. Default: false.
    workloads: Option<bool>,
    /// What keeps the key of the state partition, asked at the first start of a stick. tpm (default): the machine's TPM 2, where it has one;
    /// none: nothing, so that the stick goes on in another machine, and whoever has it can read it.
    seal: Option<SealSpec>,
}

/// What keeps the key of the box's state.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
#[allow(dead_code, reason = "read by schemars only")]
enum SealSpec {
    Tpm,
    None,
}

/// The Kubernetes cluster made of the installed servers. Default: one control plane, all others are workers.
#[derive(JsonSchema)]
#[schemars(untagged)]
#[allow(dead_code, reason = "read by schemars only")]
enum ClusterKey {
    Word(ClusterWord),
    Keys(ClusterSpec),
}

/// none: servers get a plain operating system. manual: servers wait for Cluster API objects that you apply yourself.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
#[allow(dead_code, reason = "read by schemars only")]
enum ClusterWord {
    None,
    Manual,
}

/// The cluster. Every key may be left out; its Kubernetes version is the one on the stick.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase", deny_unknown_fields)]
#[allow(dead_code, reason = "read by schemars only")]
struct ClusterSpec {
    /// 1, or 3 to survive the loss of one. Default: 1.
    #[schemars(extend("enum" = [1, 3]))]
    control_planes: Option<u32>,
    workers: Option<WorkersSpec>,
    /// Virtual address of the cluster's API, in the provisioning network and outside the range. Default: the last one.
    endpoint: Option<String>,
    /// Addresses for services of type `LoadBalancer`, in the network of the cluster's servers and outside what is given to them, or none.
    /// Default: sixteen free ones of the provisioning network; none with `network`, or where the box does not lease the addresses.
    load_balancer: Option<String>,
    /// Default: 10.244.0.0/16, or another private network if that overlaps the provisioning network; and `fd00:10:244::/56` where the cluster's
    /// network has IPv6.
    pod_cidr: Option<FamiliesSpec>,
    /// Default: 10.96.0.0/12, or another private network if that overlaps the provisioning network; and `fd00:10:96::/112` where the cluster's
    /// network has IPv6.
    service_cidr: Option<FamiliesSpec>,
    /// Which of `networks` its servers speak with each other on. Default: the provisioning network.
    network: Option<String>,
    heal: Option<HealSpec>,
}

/// What the box does by itself about a lost server. none: nothing. restart: it is switched off and on. replace: if that was in vain a free
/// server takes its place, and its disk is erased when it comes back. Default: none.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
#[allow(dead_code, reason = "read by schemars only")]
enum HealSpec {
    None,
    Restart,
    Replace,
}

/// A value of IPv4, or a list of one of IPv4 and one of IPv6.
#[derive(JsonSchema)]
#[schemars(untagged)]
#[allow(dead_code, reason = "read by schemars only")]
enum FamiliesSpec {
    One(#[schemars(pattern(r"^[0-9a-fA-F.:/ -]+$"))] String),
    Both(#[schemars(length(min = 1, max = 2))] Vec<String>),
}

/// all (every other server that the rules allow), or a number. Default: all.
#[derive(JsonSchema)]
#[schemars(untagged)]
#[allow(dead_code, reason = "read by schemars only")]
enum WorkersSpec {
    Word(AllSpec),
    Count(#[schemars(range(min = 0, max = 1000))] u32),
}

#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
#[allow(dead_code, reason = "read by schemars only")]
enum AllSpec {
    All,
}

/// any, control-plane, worker, or spare (stays out of the cluster). Default: any.
#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case")]
#[allow(dead_code, reason = "read by schemars only")]
enum RoleSpec {
    Any,
    ControlPlane,
    Worker,
    Spare,
}

/// The network that servers boot from.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase", deny_unknown_fields)]
#[allow(dead_code, reason = "read by schemars only")]
struct ProvisioningSpec {
    /// auto (the first NIC with a link that no router and no DHCP server is heard on), a kernel name such as enp1s0, or a MAC address. Default: auto.
    interface: Option<String>,
    /// The box's address on this network with prefix length. Default: 172.22.0.1/24.
    #[schemars(pattern(r"^[0-9.]+/[0-9]+$"))]
    address: Option<String>,
    /// Addresses to lease, FIRST-LAST. Default: a part of the network, 172.22.0.100-172.22.0.250.
    #[schemars(pattern(r"^[0-9.]+ *- *[0-9.]+$"))]
    range: Option<String>,
    /// Router of this network: servers are told of it, and the box reaches the relayed networks through it. Default: none.
    #[schemars(pattern(r"^[0-9.]+$"))]
    gateway: Option<String>,
    dhcp: Option<DhcpRoleSpec>,
    /// What kernels, images and packages that the box sends may take of the link in all, such as 400 Mbit/s; each server gets the same share.
    /// Default: all of it.
    #[schemars(pattern(r"^[0-9]+ *[MG]bit/s$"))]
    bandwidth: Option<String>,
    /// Networks behind that router whose servers boot from this box, too: a relay agent there forwards DHCP to the box's address.
    #[schemars(length(max = 32))]
    relayed: Option<Vec<RelayedSpec>>,
}

/// serve: the box leases addresses, unless another server does, beside which it is silent. proxy: it gives boot information beside the
/// site's own server, which leases the addresses. relay: it answers what relay agents of `relayed` forward, and nobody else. Default: serve.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
#[allow(dead_code, reason = "read by schemars only")]
enum DhcpRoleSpec {
    Serve,
    Proxy,
    Relay,
}

/// One network whose servers reach the box through a relay agent.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase", deny_unknown_fields)]
#[allow(dead_code, reason = "read by schemars only")]
struct RelayedSpec {
    /// Its first address with prefix length, such as 10.9.0.0/24. It overlaps no other network of the site.
    #[schemars(pattern(r"^[0-9.]+/[0-9]+$"))]
    subnet: String,
    /// Addresses to lease there, FIRST-LAST. Default: a part of the network.
    #[schemars(pattern(r"^[0-9.]+ *- *[0-9.]+$"))]
    range: Option<String>,
    /// Its router, which its servers are told.
    #[schemars(pattern(r"^[0-9.]+$"))]
    gateway: String,
}

/// blank: install servers whose disks are all blank. wipe: install whatever is on the disks. never: leave alone.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
#[allow(dead_code, reason = "read by schemars only")]
enum InstallSpec {
    Blank,
    Wipe,
    Never,
}

/// open: every server that boots from the network is taken. approve: those whose code a person has compared. named: those
/// in `hosts`. Default: open.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
#[allow(dead_code, reason = "read by schemars only")]
enum JoinSpec {
    Open,
    Approve,
    Named,
}

/// What a server's TPM has to say of how it was started. compare (default): a server that was started by something else than this box
/// serves is not believed, nor one that has shown it before and does not any more; required: nobody is believed who does not show it;
/// ignore: what is found is shown.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
#[allow(dead_code, reason = "read by schemars only")]
enum MeasuredBootSpec {
    Compare,
    Required,
    Ignore,
}

/// One server.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase", deny_unknown_fields)]
#[allow(dead_code, reason = "read by schemars only")]
struct HostSpec {
    /// The NIC that it boots from.
    #[schemars(pattern(r"^[0-9A-Fa-f]{2}([:-][0-9A-Fa-f]{2}){5}$"))]
    mac: String,
    /// Host name. Default: host- and the MAC without colons.
    name: Option<String>,
    /// Its address on the provisioning network or a relayed one, inside or outside the range. Default: from the range.
    address: Option<String>,
    install: Option<InstallSpec>,
    role: Option<RoleSpec>,
    /// Which of `clusters` it is for. Default: as its rule says, or the site's own.
    cluster: Option<String>,
    /// Which disk is written, as `rootDeviceHints` of a `BareMetalHost`; instead of that of a rule.
    root_disk: Option<RootDiskSpec>,
    clean: Option<CleanSpec>,
    /// Its addresses on `networks`, by their names. Default: from their pools.
    addresses: Option<BTreeMap<String, FamiliesSpec>>,
    /// Which of its NICs carries which network; instead of that of a rule. Default: the provisioning network on the NIC that it boots from.
    links: Option<Vec<LinkSpec>>,
    /// The network whose router is for everything else. Needed where more than one of its networks has a router.
    default_route: Option<String>,
}

/// The box's way to the rest of the network, on a NIC of its own: people reach the page, SSH and the clusters' API there, and the box takes
/// its time from there. Default: none.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase", deny_unknown_fields)]
#[allow(dead_code, reason = "read by schemars only")]
struct UplinkSpec {
    /// The box's NIC, by kernel name or MAC address; or else `bond`.
    nic: Option<String>,
    bond: Option<BondModeSpec>,
    /// Of the bond, by kernel name or MAC address.
    #[schemars(length(min = 1, max = 8))]
    nics: Option<Vec<String>>,
    /// Of the bond, as in `links`.
    parameters: Option<BTreeMap<String, BondParameter>>,
    /// Its tag. Default: none.
    #[schemars(range(min = 1, max = 4094))]
    vlan: Option<u16>,
    /// Bytes. Default: 1500.
    #[schemars(range(min = 1280, max = 9216))]
    mtu: Option<u16>,
    /// The box's address there with prefix length, such as 192.0.2.10/24. Default: told by the DHCP server there.
    #[schemars(pattern(r"^[0-9.]+/[0-9]+$"))]
    address: Option<String>,
    /// The router for everything else, with `address`.
    #[schemars(pattern(r"^[0-9.]+$"))]
    gateway: Option<String>,
    /// Name servers for the box. Default: those that the DHCP server there tells.
    dns: Option<Vec<String>>,
    /// Domains in which the box looks for short names.
    search: Option<Vec<String>>,
    /// Where the box takes its time from, by name or address. Default: those that the DHCP server there tells.
    ntp: Option<Vec<String>>,
    routes: Option<Vec<RouteSpec>>,
    routing: Option<RoutingSpec>,
    /// Clusters whose API is reached at the box's address there, by name, with the port for each. Default: that of the site, at 6443.
    clusters: Option<BTreeMap<String, u16>>,
}

/// Through whom servers (logins, containerd and apt) and whoever builds the stick reach the Web. The site's own networks are excepted.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase", deny_unknown_fields)]
#[allow(dead_code, reason = "read by schemars only")]
struct ProxySpec {
    /// For what is asked for by `http://`, such as `http://proxy.example:3128`.
    http: Option<String>,
    /// For what is asked for by `https://`, the same.
    https: Option<String>,
    /// What is reached without it: names, addresses, networks.
    no_proxy: Option<Vec<String>>,
}

/// none: the box is nobody's router. nat: servers go out through the uplink under the box's address. Default: none.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
#[allow(dead_code, reason = "read by schemars only")]
enum RoutingSpec {
    None,
    Nat,
}

/// A network. It has `subnet`, or `dhcp: theirs`.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase", deny_unknown_fields)]
#[allow(dead_code, reason = "read by schemars only")]
struct NetworkSpec {
    /// Its first address with prefix length, such as 10.20.0.0/24, or `[10.20.0.0/24, fd00:20::/64]`. It overlaps no other network of the site.
    subnet: Option<FamiliesSpec>,
    /// Its tag. Default: none.
    #[schemars(range(min = 1, max = 4094))]
    vlan: Option<u16>,
    /// Its router.
    gateway: Option<FamiliesSpec>,
    /// Name servers.
    dns: Option<Vec<String>>,
    /// Time servers, by name or address; the box's clock is asked, too.
    ntp: Option<Vec<String>>,
    /// Domains in which short names are looked for.
    search: Option<Vec<String>>,
    /// Bytes. Default: 1500.
    #[schemars(range(min = 1280, max = 9216))]
    mtu: Option<u16>,
    /// Addresses to give, FIRST-LAST; each server keeps its own. Default: a part of the network.
    pool: Option<FamiliesSpec>,
    routes: Option<Vec<RouteSpec>>,
    dhcp: Option<DhcpSpec>,
}

/// What is reached through another router than that for everything else.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase", deny_unknown_fields)]
#[allow(dead_code, reason = "read by schemars only")]
struct RouteSpec {
    /// A network, such as 10.0.0.0/8 or `fd00::/8`.
    to: String,
    /// A router in this network, of the same family of IP.
    via: String,
}

/// theirs: the site has a DHCP server for this network.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
#[allow(dead_code, reason = "read by schemars only")]
enum DhcpSpec {
    Theirs,
}

/// A NIC, or a bond of some, and what it carries.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase", deny_unknown_fields)]
#[allow(dead_code, reason = "read by schemars only")]
struct LinkSpec {
    /// boot (the NIC that the server boots from), a MAC address, or a name such as eno2, as the `BareMetalHost` lists it.
    nic: Option<String>,
    bond: Option<BondModeSpec>,
    /// Of the bond, each as with `nic`.
    #[schemars(length(min = 1, max = 8))]
    nics: Option<Vec<String>>,
    /// Of the bond, as the kernel calls them: `miimon`, `lacp_rate`, `xmit_hash_policy` and others.
    parameters: Option<BTreeMap<String, BondParameter>>,
    /// Names of `networks`, and provisioning. One of them may have no tag.
    #[schemars(length(min = 1))]
    networks: Vec<String>,
}

/// The NICs of `nics` as one. active-backup: needs nothing of the switch. balance-xor and 802.3ad (LACP): the switch takes them for one link.
#[derive(JsonSchema)]
#[allow(dead_code, reason = "read by schemars only")]
enum BondModeSpec {
    #[schemars(rename = "active-backup")]
    ActiveBackup,
    #[schemars(rename = "balance-xor")]
    BalanceXor,
    #[schemars(rename = "802.3ad")]
    Lacp,
}

#[derive(JsonSchema)]
#[schemars(untagged)]
#[allow(dead_code, reason = "read by schemars only")]
enum BondParameter {
    Number(u32),
    Word(String),
}

/// What new servers of a kind are given.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase", deny_unknown_fields)]
#[allow(dead_code, reason = "read by schemars only")]
struct RuleSpec {
    r#match: MatchKey,
    /// Host name, with {serial}, {product}, {mac} or {n} (the lowest number that is free) in it. Default: host- and the MAC without colons.
    name: Option<String>,
    role: Option<RoleSpec>,
    /// Which of `clusters` it is for. Default: the site's own.
    cluster: Option<String>,
    install: Option<InstallSpec>,
    /// Labels of its `BareMetalHost`, for selectors.
    labels: Option<BTreeMap<String, String>>,
    /// Where it stands: Cluster API spreads control planes over such places.
    failure_domain: Option<String>,
    /// Which disk is written, as `rootDeviceHints` of a `BareMetalHost`.
    root_disk: Option<RootDiskSpec>,
    clean: Option<CleanSpec>,
    /// Image that it gets without being asked for it: the name of one on the box, such as debian:13.2.
    image: Option<String>,
    start: Option<StartSpec>,
    /// Words for the command line of the installed kernel, such as hugepages=64 iommu=pt.
    #[schemars(pattern(r"^[ A-Za-z0-9_.,:=/+@%*-]+$"), length(max = 1024))]
    kernel_arguments: Option<String>,
    /// Which of its NICs carries which network. Default: the provisioning network on the NIC that it boots from.
    links: Option<Vec<LinkSpec>>,
    /// The network whose router is for everything else. Needed where more than one of its networks has a router.
    default_route: Option<String>,
    bmc: Option<RuleBmcSpec>,
    /// Whether its installed system holds the backups that the box makes (`backup`). Default: false.
    keeps_backups: Option<bool>,
}

/// Its remote power, where nobody has named its BMC.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase", deny_unknown_fields)]
#[allow(dead_code, reason = "read by schemars only")]
struct RuleBmcSpec {
    account: Option<AccountSpec>,
}

/// create: the server makes the box an account in its BMC.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
#[allow(dead_code, reason = "read by schemars only")]
enum AccountSpec {
    Create,
}

/// any, or conditions that all have to hold.
#[derive(JsonSchema)]
#[schemars(untagged)]
#[allow(dead_code, reason = "read by schemars only")]
enum MatchKey {
    Word(AnySpec),
    Keys(Box<MatchSpec>),
}

#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
#[allow(dead_code, reason = "read by schemars only")]
enum AnySpec {
    Any,
}

/// Texts may hold `*` for anything, and be lists. Numbers are 16 (exactly), 16+ (at least) or 16-64.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase", deny_unknown_fields)]
#[allow(dead_code, reason = "read by schemars only")]
struct MatchSpec {
    /// The NIC that it boots from.
    mac: Option<Texts>,
    /// Serial number, as the firmware says.
    serial: Option<Texts>,
    /// Manufacturer, as the firmware says.
    vendor: Option<Texts>,
    /// Product, as the firmware says.
    product: Option<Texts>,
    /// Logical processors.
    cpus: Option<Number>,
    /// GiB of memory.
    memory: Option<Number>,
    /// Ethernet NICs.
    nics: Option<Number>,
    /// Gbit/s of the fastest NIC with a link.
    nic_speed: Option<Number>,
    /// Disks.
    disks: Option<Number>,
    /// GB (10^9 bytes) of the largest disk.
    disk_size: Option<Number>,
}

#[derive(JsonSchema)]
#[schemars(untagged)]
#[allow(dead_code, reason = "read by schemars only")]
enum Texts {
    One(String),
    Any(Vec<String>),
}

#[derive(JsonSchema)]
#[schemars(untagged)]
#[allow(dead_code, reason = "read by schemars only")]
enum Number {
    Exactly(u64),
    Span(#[schemars(pattern(r"^[0-9]+ *([+]|- *[0-9]+)$"))] String),
}

/// What is erased when a server is given back. root: the disk that got the image. all: those that were blank when it did, too; with
/// `install: wipe` every disk. Default: root with hints for the disk, all without.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
#[allow(dead_code, reason = "read by schemars only")]
enum CleanSpec {
    Root,
    All,
}

/// How the installed system is started the first time. auto: its kernel directly, without the firmware, unless that failed on a server of
/// the same model; the first server of a model tries it alone. kexec: the same, also where it failed. restart: by the firmware. Default: auto.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
#[allow(dead_code, reason = "read by schemars only")]
enum StartSpec {
    Auto,
    Kexec,
    Restart,
}

/// A disk for which all of this is so.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase", deny_unknown_fields)]
#[allow(dead_code, reason = "read by schemars only")]
struct RootDiskSpec {
    /// /dev/sda, or better /dev/disk/by-path/pci-0000:00:1f.2-ata-3.
    device_name: Option<String>,
    /// SCSI address, 0:0:0:0.
    hctl: Option<String>,
    /// A part of the model.
    model: Option<String>,
    /// A part of the vendor.
    vendor: Option<String>,
    /// All of it.
    serial_number: Option<String>,
    /// GiB, at least so many.
    min_size_gigabytes: Option<u32>,
    /// World Wide Name.
    wwn: Option<String>,
    wwn_with_extension: Option<String>,
    wwn_vendor_extension: Option<String>,
    /// It spins.
    rotational: Option<bool>,
    /// true: two disks hold the same (RAID 1), and the server survives the loss of either. The hints hold for both.
    mirror: Option<bool>,
}

/// The schema as pretty JSON with a final newline.
pub fn site_schema() -> String {
    let schema = schemars::schema_for!(SiteSpec);
    let mut text = serde_json::to_string_pretty(&schema).expect("a schema is plain JSON");
    text.push('\n');
    text
}
