//! The certificates that must exist, as values.

use std::net::{IpAddr, Ipv4Addr};

use firstlight_api::names;
use serde::{Deserialize, Serialize};

/// Node address, API service address, and the name of the node: docs/reference.md, "Addresses of the box".
pub const NODE_ADDRESS: Ipv4Addr = Ipv4Addr::new(100, 64, 0, 1);
const API_SERVICE: Ipv4Addr = Ipv4Addr::new(100, 64, 1, 1);
pub const NODE_NAME: &str = "box";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum AuthorityName {
    Site,
    Kube,
    FrontProxy,
    Etcd,
}

impl AuthorityName {
    pub const ALL: [Self; 4] = [Self::Site, Self::Kube, Self::FrontProxy, Self::Etcd];

    pub fn common_name(self) -> &'static str {
        match self {
            Self::Site => "Firstlight site CA",
            Self::Kube => "kubernetes",
            Self::FrontProxy => "front-proxy-ca",
            Self::Etcd => "etcd-ca",
        }
    }
}

/// Where a certificate and its key go.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Output {
    /// `kube/pki/NAME.crt` and `.key`
    Pair(String),
    /// Embedded in `kube/NAME.conf`
    Kubeconfig(String),
    // Ironic's pair lives for one boot in /run and is not listed here, see `ironic_files`.
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Usage {
    Server,
    Client,
    /// etcd dials itself with its server certificate.
    Both,
}

/// One certificate of a leaf.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CertSpec {
    pub output: Output,
    pub authority: AuthorityName,
    pub common_name: String,
    /// The groups that Kubernetes reads from a client certificate.
    pub organization: Option<String>,
    pub dns: Vec<String>,
    pub ips: Vec<IpAddr>,
    pub usage: Usage,
}

fn cert(output: Output, authority: AuthorityName, common_name: &str, usage: Usage) -> CertSpec {
    CertSpec {
        output,
        authority,
        common_name: common_name.to_owned(),
        organization: None,
        dns: vec![],
        ips: vec![],
        usage,
    }
}

impl CertSpec {
    /// Ironic's server certificate for one address of the box.
    pub fn for_ironic(address: Ipv4Addr) -> Self {
        cert(
            Output::Pair("ironic".into()),
            AuthorityName::Site,
            "ironic",
            Usage::Server,
        )
        .reached_at(&["ironic"], &[address])
    }

    /// The bootstrap endpoint's, for one address of the box.
    pub fn for_bootstrap(address: Ipv4Addr) -> Self {
        cert(
            Output::Pair("bootstrap".into()),
            AuthorityName::Site,
            "bootstrap",
            Usage::Server,
        )
        .reached_at(&["bootstrap"], &[address])
    }

    /// The page's, for one address of the box.
    pub fn for_page(address: Ipv4Addr) -> Self {
        cert(
            Output::Pair("page".into()),
            AuthorityName::Site,
            "page",
            Usage::Server,
        )
        .reached_at(&["firstlight.internal"], &[address])
    }

    /// For the door at which the API server has objects converted.
    pub fn for_conversion() -> Self {
        cert(
            Output::Pair("conversion".into()),
            AuthorityName::Site,
            "conversion",
            Usage::Server,
        )
        .reached_at(&[], &[Ipv4Addr::LOCALHOST])
    }

    /// The registry's server certificate for one address of the box.
    pub fn for_registry(address: Ipv4Addr) -> Self {
        cert(
            Output::Pair("registry".into()),
            AuthorityName::Site,
            "registry",
            Usage::Server,
        )
        .reached_at(&["registry", names::REGISTRY], &[address])
    }

    /// For a webhook of the box's API server, called by these names of its Service.
    pub fn for_webhook(names: &[String]) -> Self {
        Self::for_names("webhook", names)
    }

    /// For who may do everything in a workload cluster.
    pub fn for_administrator() -> Self {
        Self {
            organization: Some("system:masters".to_owned()),
            ..cert(
                Output::Kubeconfig("workload".into()),
                AuthorityName::Kube,
                "kubernetes-admin",
                Usage::Client,
            )
        }
    }

    /// For people's own services on a cluster.
    pub fn for_services(names: &[String]) -> Self {
        Self::for_names("services", names)
    }

    fn for_names(title: &str, names: &[String]) -> Self {
        let dns: Vec<&str> = names.iter().map(String::as_str).collect();
        cert(
            Output::Pair(title.into()),
            AuthorityName::Site,
            title,
            Usage::Server,
        )
        .reached_at(&dns, &[])
    }

    fn reached_at(mut self, dns: &[&str], ips: &[Ipv4Addr]) -> Self {
        self.dns = dns.iter().map(ToString::to_string).collect();
        self.ips = ips.iter().copied().map(IpAddr::V4).collect();
        self
    }

    fn in_group(mut self, organization: &str) -> Self {
        self.organization = Some(organization.to_owned());
        self
    }
}

/// Every certificate of the box's Kubernetes.
pub fn wanted() -> Vec<CertSpec> {
    use AuthorityName::{Etcd, FrontProxy, Kube};
    let pair = |name: &str| Output::Pair(name.to_owned());
    let local = [Ipv4Addr::LOCALHOST];
    let mut certs = vec![
        cert(pair("apiserver"), Kube, "kube-apiserver", Usage::Server).reached_at(
            &[
                "kubernetes",
                "kubernetes.default",
                "kubernetes.default.svc",
                "kubernetes.default.svc.cluster.local",
                NODE_NAME,
                "localhost",
            ],
            &[NODE_ADDRESS, API_SERVICE, Ipv4Addr::LOCALHOST],
        ),
        cert(
            pair("apiserver-kubelet-client"),
            Kube,
            "kube-apiserver-kubelet-client",
            Usage::Client,
        )
        .in_group("system:masters"),
        // Kubernetes' own group for that, and manifests/monitoring.yaml.
        cert(
            pair("monitoring"),
            Kube,
            "firstlight-monitoring",
            Usage::Client,
        )
        .in_group("system:monitoring"),
        cert(pair("kubelet"), Kube, "system:node:box", Usage::Server)
            .in_group("system:nodes")
            .reached_at(&[NODE_NAME], &[NODE_ADDRESS]),
        cert(
            pair("front-proxy-client"),
            FrontProxy,
            "front-proxy-client",
            Usage::Client,
        ),
        cert(pair("etcd-server"), Etcd, "etcd-server", Usage::Both)
            .reached_at(&[NODE_NAME, "localhost"], &local),
        cert(
            pair("apiserver-etcd-client"),
            Etcd,
            "kube-apiserver-etcd-client",
            Usage::Client,
        ),
    ];
    // The agent applies RBAC rules, so it holds every right anyway: a group of its own would be for show.
    for (name, user, group) in [
        ("admin", "kubernetes-admin", Some("system:masters")),
        ("agent", "firstlight-agent", Some("system:masters")),
        ("controller-manager", "system:kube-controller-manager", None),
        ("scheduler", "system:kube-scheduler", None),
        ("kubelet", "system:node:box", Some("system:nodes")),
        ("kube-proxy", "system:kube-proxy", None),
    ] {
        let client = cert(
            Output::Kubeconfig(name.to_owned()),
            Kube,
            user,
            Usage::Client,
        );
        certs.push(match group {
            Some(group) => client.in_group(group),
            None => client,
        });
    }
    certs
}
