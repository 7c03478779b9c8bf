//! Everything that a plan is made from: one look at all objects.

use std::{collections::BTreeMap, sync::Arc};

use firstlight_api::{
    bmh::{self, ProvisioningState},
    capi::{self, Cluster, Machine, Replicated},
    capm3::{
        self, Metal3Cluster, Metal3DataTemplate, Metal3Machine, Metal3MachineTemplate, ObjectRef,
    },
    ipam::IpPool,
    object::{Meta, Object},
    site::{Gives, HostRole, SiteConfig},
    status::HardwareSummary,
    verb::SPARE_ANNOTATION,
};
use serde::{Deserialize, Deserializer, Serialize};

use super::addresses::Addresses;
pub use crate::objects::Key;
use crate::objects::Listed;

/// By name; what could not be read is added to `unreadable`.
pub fn keyed<S: Clone, T: Clone>(
    listed: Listed<Arc<Object<S, T>>>,
    unreadable: &mut Vec<String>,
) -> BTreeMap<Key, Object<S, T>> {
    let keyed = |object: Object<S, T>| (Key::of(&object.metadata), object);
    let listed = listed.owned();
    unreadable.extend(listed.unreadable);
    listed.objects.into_iter().map(keyed).collect()
}

/// Where generated objects and the hosts are.
pub const NAMESPACE: &str = "default";

/// A `BareMetalHost`, as far as the provider reads it.
pub type Host = Object<HostSpec, HostStatus>;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HostSpec {
    #[serde(rename = "bootMACAddress")]
    pub boot_mac_address: String,
    pub image: Option<bmh::Image>,
    pub custom_deploy: Option<capm3::CustomDeploy>,
    pub user_data: Option<ObjectRef>,
    pub meta_data: Option<ObjectRef>,
    pub network_data: Option<ObjectRef>,
    pub consumer_ref: Option<ConsumerRef>,
    pub bmc: Option<bmh::BmcDetails>,
    pub disable_power_off: bool,
    pub online: bool,
    pub externally_provisioned: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConsumerRef {
    pub api_version: String,
    pub kind: String,
    pub name: String,
    pub namespace: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HostStatus {
    pub error_message: String,
    /// Absent until its controller has looked at it.
    pub powered_on: Option<bool>,
    pub provisioning: HostProvisioning,
    pub conditions: Vec<bmh::Condition>,
    #[serde(deserialize_with = "without_flags")]
    pub hardware: Option<bmh::HardwareDetails>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostProvisioning {
    pub state: ProvisioningState,
    pub image: Option<bmh::Image>,
}

/// Nobody here asks what its processors can do, and those are most of the words.
fn without_flags<'de, D: Deserializer<'de>>(
    hardware: D,
) -> Result<Option<bmh::HardwareDetails>, D::Error> {
    let mut hardware = Option::<bmh::HardwareDetails>::deserialize(hardware)?;
    if let Some(hardware) = &mut hardware {
        hardware.cpu.flags = Vec::new();
    }
    Ok(hardware)
}

/// All objects, by namespace and name.
#[derive(Clone, Debug, Default)]
pub struct World {
    pub site: Arc<SiteConfig>,
    pub hosts: BTreeMap<Key, Host>,
    pub clusters: BTreeMap<Key, Cluster>,
    pub machines: BTreeMap<Key, Machine>,
    pub metal3_clusters: BTreeMap<Key, Metal3Cluster>,
    pub metal3_machines: BTreeMap<Key, Metal3Machine>,
    pub templates: BTreeMap<Key, Metal3MachineTemplate>,
    pub data_templates: BTreeMap<Key, Metal3DataTemplate>,
    /// Claims of IP addresses, and what they got.
    pub addresses: Addresses,
    /// Of Metal3; whoever made them.
    pub pools: BTreeMap<Key, IpPool>,
    /// `KubeadmControlPlane` and `MachineDeployment` objects: what machines belong to.
    pub control_planes: BTreeMap<Key, Replicated>,
    pub deployments: BTreeMap<Key, Replicated>,
    /// Secrets with the metadata and network data of machines.
    pub data: BTreeMap<Key, BTreeMap<String, String>>,
    /// Contents of the `ConfigMap` objects of `clusters::marker`, by their names.
    pub markers: BTreeMap<String, BTreeMap<String, String>>,
    /// What the admission policy was told last.
    pub spare: Option<BTreeMap<String, String>>,
    /// A sentence for each object that is left out, because it cannot be read.
    pub unreadable: Vec<String>,
}

impl World {
    /// A free host that somebody set aside is a spare; else the label of the object is stronger than `site.yaml`, and there `hosts` is
    /// stronger than `rules`.
    pub fn role(&self, host: &Host) -> HostRole {
        // Who has it already keeps it.
        let is_free = host.spec.consumer_ref.is_none();
        if is_free && host.metadata.annotation(SPARE_ANNOTATION).is_some() {
            return HostRole::Spare;
        }
        let said = self.said_role(host);
        said.or_else(|| self.ruled_role(host)).unwrap_or_default()
    }

    /// A person said it of this host.
    fn said_role(&self, host: &Host) -> Option<HostRole> {
        let label = host.metadata.label(capm3::ROLE_LABEL);
        let by_label = label.and_then(|word| word.parse().ok());
        by_label.or_else(|| {
            let role = self.site.role(host.spec.boot_mac_address.parse().ok()?);
            Some(role).filter(|role| *role != HostRole::Any)
        })
    }

    /// By what it is made of, as it says itself.
    fn ruled_role(&self, host: &Host) -> Option<HostRole> {
        self.ruled(host)?.role
    }

    fn ruled(&self, host: &Host) -> Option<&Gives> {
        if self.site.rules.is_empty() {
            return None;
        }
        let mac = host.spec.boot_mac_address.parse().ok()?;
        let hardware = HardwareSummary::from(host.status.hardware.as_ref()?);
        Some(&self.site.rule_of(mac, &hardware)?.1.gives)
    }

    /// The cluster that it is kept for: as the label of the object says, or else `site.yaml`.
    pub fn kept_for<'a>(&'a self, host: &'a Host) -> Option<&'a str> {
        let given = || {
            let mac = host.spec.boot_mac_address.parse().ok()?;
            let said = self.site.host(mac).and_then(|host| host.cluster.as_ref());
            Some(
                said.or_else(|| self.ruled(host)?.cluster.as_ref())?
                    .as_str(),
            )
        };
        host.metadata.label(capm3::FOR_CLUSTER_LABEL).or_else(given)
    }

    /// Whether machines of this cluster may have it. Further clusters get what is kept for them alone.
    pub fn is_for(&self, host: &Host, cluster: &str) -> bool {
        match self.kept_for(host) {
            Some(name) => name == cluster,
            None => !self
                .site
                .clusters
                .keys()
                .any(|name| name.as_str() == cluster),
        }
    }

    /// May it get the private keys of a cluster? The hosts controller says so, or a person who gave it this role.
    pub fn is_trusted(&self, host: &Host) -> bool {
        let conditions = &host.status.conditions;
        let said = conditions.iter().find(|it| it.kind == bmh::TRUSTED);
        said.is_some_and(|it| it.status == bmh::ConditionStatus::True)
            || self.said_role(host) == Some(HostRole::ControlPlane)
    }

    /// Where the host is on the provisioning network: as `site.yaml` says, or as its ramdisk reported.
    pub fn address(&self, host: &Host) -> Option<String> {
        let given = host.spec.boot_mac_address.parse().ok();
        let given = given.and_then(|mac| self.site.host(mac)?.address);
        if let Some(address) = given {
            return Some(address.to_string());
        }
        let nics = &host.status.hardware.as_ref()?.nics;
        let network = self.site.provisioning.network();
        let inside = |ip: &str| {
            ip.parse::<std::net::Ipv4Addr>()
                .is_ok_and(|ip| network.contains(ip))
        };
        let mut found: Vec<_> = nics.iter().filter(|nic| inside(&nic.ip)).collect();
        found.sort_by_key(|nic| !nic.pxe);
        found.first().map(|nic| nic.ip.clone())
    }

    /// The network that the nodes of this cluster have their addresses on, where that is not the provisioning network.
    pub fn node_network(&self, namespace: &str, cluster: &str) -> Option<&str> {
        let mut generated = self.site.generated_clusters();
        let (_, config) = generated.find(|(name, _)| namespace == NAMESPACE && cluster == *name)?;
        config.network.as_deref()
    }

    /// The host that this machine has claimed.
    pub fn host_of(&self, machine: &Metal3Machine) -> Option<&Host> {
        self.hosts.values().find(|host| {
            host.metadata.namespace == machine.metadata.namespace
                && host.consumer() == Some(&machine.metadata.name)
        })
    }

    pub fn owner_machine(&self, machine: &Metal3Machine) -> Option<&Machine> {
        let owner = machine.metadata.owner(capi::GROUP, "Machine")?;
        self.machines
            .get(&Key::new(&machine.metadata.namespace, &owner.name))
    }

    pub fn cluster_of(&self, meta: &Meta) -> Option<&Cluster> {
        let name = meta.label(capi::CLUSTER_LABEL)?;
        self.clusters.get(&Key::new(&meta.namespace, name))
    }

    /// The template that a machine was cloned from.
    pub fn template_of(&self, machine: &Metal3Machine) -> Option<&Metal3MachineTemplate> {
        let name = machine
            .metadata
            .annotation(capi::TEMPLATE_NAME_ANNOTATION)?;
        self.templates
            .get(&Key::new(&machine.metadata.namespace, name))
    }

    /// Does this control plane or deployment have fewer hosts than it wants?
    pub fn lacks_hosts(&self, namespace: &str, owner: &str) -> bool {
        let key = Key::new(namespace, owner);
        let owners = self
            .control_planes
            .get(&key)
            .into_iter()
            .chain(self.deployments.get(&key));
        let wanted: u32 = owners
            .filter(|owner| !owner.metadata.is_deleting())
            .filter_map(|owner| owner.spec.replicas)
            .sum();
        let claimed = self
            .metal3_machines
            .values()
            .filter(|machine| {
                machine.metadata.namespace == namespace
                    && owner_name(&machine.metadata) == Some(owner)
                    && !machine.metadata.is_deleting()
                    && self.host_of(machine).is_some()
            })
            .count();
        usize::try_from(wanted).unwrap_or(usize::MAX) > claimed
    }
}

/// The control plane or deployment that a machine belongs to.
pub fn owner_name(meta: &Meta) -> Option<&str> {
    meta.label(capi::CONTROL_PLANE_NAME_LABEL)
        .or_else(|| meta.label(capi::DEPLOYMENT_LABEL))
}

pub fn is_control_plane(meta: &Meta) -> bool {
    meta.labels.contains_key(capi::CONTROL_PLANE_LABEL)
}

pub fn is_paused(cluster: Option<&Cluster>, meta: &Meta) -> bool {
    cluster.is_some_and(|cluster| cluster.spec.paused == Some(true))
        || meta.annotations.contains_key(capi::PAUSED_ANNOTATION)
}

/// Somebody else looks after it.
pub fn is_managed(meta: &Meta) -> bool {
    meta.annotations.contains_key(capi::MANAGED_BY) || meta.labels.contains_key(capi::MANAGED_BY)
}

/// Somebody said with an annotation that it is not to be used.
pub fn is_left_alone(host: &Host) -> bool {
    let says = |annotation: &str| host.metadata.annotations.contains_key(annotation);
    says(capm3::HOST_PAUSED_ANNOTATION)
        || says(capm3::HOST_DETACHED_ANNOTATION)
        || capm3::UNHEALTHY_ANNOTATIONS.into_iter().any(says)
}

impl HostSpec {
    /// Told to carry a system.
    pub fn wants_system(&self) -> bool {
        self.image.is_some() || self.custom_deploy.is_some()
    }

    pub fn stays_on(&self) -> bool {
        self.disable_power_off || self.bmc.is_none()
    }
}

/// Object methods that only hosts have.
pub trait HostExt {
    /// The `Metal3Machine` in its namespace that has claimed it.
    fn consumer(&self) -> Option<&String>;
    fn state(&self) -> ProvisioningState;
}

impl HostExt for Host {
    fn consumer(&self) -> Option<&String> {
        let consumer = self.spec.consumer_ref.as_ref()?;
        let own = consumer.kind == "Metal3Machine"
            && firstlight_api::object::group_of(&consumer.api_version) == capm3::GROUP
            && (consumer.namespace.is_empty() || consumer.namespace == self.metadata.namespace);
        own.then_some(&consumer.name)
    }

    fn state(&self) -> ProvisioningState {
        self.status.provisioning.state
    }
}
