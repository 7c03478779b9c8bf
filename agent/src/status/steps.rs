//! The steps of the box's bring-up, in the order in which the page lists them.

/// One step; [`StepName::ALL`] is the whole list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StepName {
    Site,
    State,
    Network,
    Pki,
    Dhcp,
    Etcd,
    Apiserver,
    Node,
    Coredns,
    Ironic,
    Registry,
    ClusterApi,
}

impl StepName {
    pub const ALL: [Self; 12] = [
        Self::Site,
        Self::State,
        Self::Network,
        Self::Pki,
        Self::Dhcp,
        Self::Etcd,
        Self::Apiserver,
        Self::Node,
        Self::Coredns,
        Self::Ironic,
        Self::Registry,
        Self::ClusterApi,
    ];

    /// The fixed name in the API and in logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Site => "site",
            Self::State => "state",
            Self::Network => "network",
            Self::Pki => "pki",
            Self::Dhcp => "dhcp",
            Self::Etcd => "etcd",
            Self::Apiserver => "apiserver",
            Self::Node => "node",
            Self::Coredns => "coredns",
            Self::Ironic => "ironic",
            Self::Registry => "registry",
            Self::ClusterApi => "cluster-api",
        }
    }

    pub fn title(self) -> &'static str {
        match self {
            Self::Site => "Read site.yaml",
            Self::State => "State partition",
            Self::Network => "Provisioning network",
            Self::Pki => "Certificates and passwords",
            Self::Dhcp => "DHCP and network boot",
            Self::Etcd => "etcd",
            Self::Apiserver => "Kubernetes API",
            Self::Node => "Kubernetes node",
            Self::Coredns => "Cluster DNS",
            Self::Ironic => "Ironic",
            Self::Registry => "Container registry",
            Self::ClusterApi => "Cluster API",
        }
    }
}
