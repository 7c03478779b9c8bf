//! The Cluster API objects of one cluster. Pure: golden files in `golden/` show them whole.
//!
//! Timeouts are those of slow machines: an emulated or old server takes minutes where kubeadm expects seconds.

use firstlight_api::{
    capi, capm3, names,
    site::{ClusterConfig, ControlPlanes, SiteConfig},
};
use serde_json::{Value, json};

use super::{
    flannel, node,
    object::{control_plane_name, object, workers_name},
    replicas::{Counts, WRITTEN},
    stick::Stick,
};

const API_PORT: u16 = 6443;

/// Waiting for pods to leave a server; until then the removal stops, and says why.
const DRAIN_SECONDS: u32 = 1800;
const VOLUME_SECONDS: u32 = 600;
const NODE_DELETION_SECONDS: u32 = 60;

/// All objects, in the order in which they are made: what is referred to comes first.
pub fn render(
    site: &SiteConfig,
    cluster: &str,
    config: &ClusterConfig,
    stick: &Stick,
    counts: Counts,
) -> Vec<Value> {
    let (control_plane, workers) = (control_plane_name(cluster), workers_name(cluster));
    let mut objects = vec![
        metal3_cluster(cluster, config),
        machine_template(cluster, &control_plane, stick),
        machine_template(cluster, &workers, stick),
        kubeadm_control_plane(site, cluster, config, stick, counts),
        kubeadm_config_template(site, cluster, config),
        self::cluster(cluster, config),
        machine_deployment(cluster, &workers, stick, counts),
    ];
    objects.extend(flannel::render(cluster, config, stick));
    objects
}

fn core(kind: &str, cluster: &str, name: &str, spec: &Value) -> Value {
    object("cluster.x-k8s.io/v1beta2", kind, cluster, name, spec)
}

fn reference(group: &str, kind: &str, name: &str) -> Value {
    json!({"apiGroup": group, "kind": kind, "name": name})
}

fn cluster(name: &str, config: &ClusterConfig) -> Value {
    let mut cluster = core(
        "Cluster",
        name,
        name,
        &json!({
            "clusterNetwork": {
                "pods": {"cidrBlocks": config.pod_networks()},
                "services": {"cidrBlocks": config.service_networks()},
                "serviceDomain": "cluster.local",
            },
            "controlPlaneRef": reference(
                capi::CONTROL_PLANE_GROUP,
                "KubeadmControlPlane",
                &control_plane_name(name),
            ),
            "infrastructureRef": reference(capm3::GROUP, "Metal3Cluster", name),
        }),
    );
    cluster["metadata"]["labels"][flannel::LABEL] = json!(flannel::LABEL_VALUE);
    cluster
}

fn metal3_cluster(name: &str, config: &ClusterConfig) -> Value {
    object(
        capm3::API_VERSION,
        "Metal3Cluster",
        name,
        name,
        &json!({
            "controlPlaneEndpoint": {"host": config.endpoint.to_string(), "port": API_PORT},
            // Each kubelet is given its provider ID.
            "cloudProviderEnabled": true,
        }),
    )
}

fn machine_template(cluster: &str, name: &str, stick: &Stick) -> Value {
    object(
        capm3::API_VERSION,
        "Metal3MachineTemplate",
        cluster,
        name,
        &json!({
            "nodeReuse": true,
            "template": {"spec": {
                "image": {
                    "url": format!("http://{}/images/{}.raw.zst", stick.address, stick.image),
                    "checksum": stick.image_sha256,
                    "checksumType": "sha256",
                    "diskFormat": "raw",
                },
                "automatedCleaningMode": "metadata",
            }},
        }),
    )
}

fn deletion() -> Value {
    json!({
        "nodeDrainTimeoutSeconds": DRAIN_SECONDS,
        "nodeVolumeDetachTimeoutSeconds": VOLUME_SECONDS,
        "nodeDeletionTimeoutSeconds": NODE_DELETION_SECONDS,
    })
}

fn timeouts() -> Value {
    json!({
        "controlPlaneComponentHealthCheckSeconds": 900,
        "kubeletHealthCheckSeconds": 600,
        "kubernetesAPICallSeconds": 600,
        "etcdAPICallSeconds": 600,
        "tlsBootstrapSeconds": 900,
        "discoverySeconds": 900,
    })
}

fn arguments(pairs: &[(&str, &str)]) -> Value {
    pairs
        .iter()
        .map(|(name, value)| json!({"name": name, "value": value}))
        .collect()
}

/// An answer of etcd that takes longer than 2 s is no reason to end the API server.
const SLOW_ETCD: &[(&str, &str)] = &[
    ("etcd-healthcheck-timeout", "10s"),
    ("etcd-readycheck-timeout", "10s"),
];

/// A manager that loses its lease ends itself, and the next one waits until the lease has run out. Alone, it only loses it to
/// a busy processor, and waits as long as its server takes to start again. Among three it is twice Kubernetes' times.
fn lease_times(control_planes: ControlPlanes) -> &'static [(&'static str, &'static str)] {
    match control_planes {
        ControlPlanes::One => &[
            ("leader-elect-lease-duration", "120s"),
            ("leader-elect-renew-deadline", "100s"),
            ("leader-elect-retry-period", "10s"),
        ],
        ControlPlanes::Three => &[
            ("leader-elect-lease-duration", "30s"),
            ("leader-elect-renew-deadline", "20s"),
            ("leader-elect-retry-period", "5s"),
        ],
    }
}

/// How long a kubelet may be silent before its node counts as lost and all its pods as not ready: Kubernetes' 50 s and more,
/// because a busy server is late more often than it is dead.
const NODE_GRACE: (&str, &str) = ("node-monitor-grace-period", "120s");

/// A cluster with one control plane is small: its API server reads etcd directly. The cache in front of it wakes up each
/// second for each of a hundred kinds, half of all that an idle API server does.
const fn cache_arguments(control_planes: ControlPlanes) -> &'static [(&'static str, &'static str)] {
    match control_planes {
        ControlPlanes::One => &[("watch-cache", "false")],
        ControlPlanes::Three => &[],
    }
}

/// Fewer rounds of garbage collection, for some 100 MB on a server that has gigabytes.
fn collect_less() -> Value {
    json!([{"name": "GOGC", "value": "200"}])
}

/// The node is called like its host, and known by the provider ID that its machine was given.
fn node_registration(config: &ClusterConfig) -> Value {
    let addresses = match config.ipv6 {
        None => "{{ ds.meta_data.local_ipv4 }}",
        Some(_) => "{{ ds.meta_data.local_ipv4 }},{{ ds.meta_data.local_ipv6 }}",
    };
    json!({
        "name": "{{ ds.meta_data.local_hostname }}",
        "kubeletExtraArgs": arguments(&[
            ("node-ip", addresses),
            ("node-labels", "metal3.io/uuid={{ ds.meta_data.uuid }}"),
            ("provider-id", "metal3://{{ ds.meta_data.providerid }}"),
        ]),
    })
}

fn advertised() -> Value {
    json!({"advertiseAddress": "{{ ds.meta_data.local_ipv4 }}", "bindPort": API_PORT})
}

/// The most that Cluster API allows.
const CERTIFICATE_DAYS: u32 = 1095;
/// Control planes are replaced when their certificates end within this time.
pub const RENEW_DAYS: i64 = 90;

/// Three are replaced one after the other in their places: no spare server is needed, for new certificates either. A lone one
/// could only be replaced by a spare, so nothing begins that by itself (decision 0015): its certificates last
/// (`node::long_certificates`).
fn rollout(control_planes: ControlPlanes) -> Value {
    let strategy =
        |max_surge: u32| json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": max_surge}});
    match control_planes {
        ControlPlanes::One => json!({"strategy": strategy(1)}),
        ControlPlanes::Three => json!({
            "before": {"certificatesExpiryDays": RENEW_DAYS},
            "strategy": strategy(0),
        }),
    }
}

fn kubeadm_control_plane(
    site: &SiteConfig,
    cluster: &str,
    config: &ClusterConfig,
    stick: &Stick,
    counts: Counts,
) -> Value {
    let name = control_plane_name(cluster);
    let mut files = node::files(config);
    files.push(node::endpoint_file(config));
    files.extend(node::control_plane_files());
    files.push(node::encryption_file(cluster));
    let mut commands = [
        node::commands(config),
        node::endpoint_commands(site),
        node::emulated_commands(),
    ]
    .concat();
    if config.control_planes == ControlPlanes::One {
        commands.push(node::long_certificates());
    }
    let leases = lease_times(config.control_planes);
    let controllers = [leases, &[NODE_GRACE]].concat();
    let encryption = node::encryption_config();
    let encryption = [("encryption-provider-config", encryption.as_str())];
    let api_server = [
        SLOW_ETCD,
        cache_arguments(config.control_planes),
        &encryption,
    ]
    .concat();
    let spec = json!({
        "replicas": counts.control_planes,
        "version": stick.kubernetes,
        "machineTemplate": {"spec": {
            "infrastructureRef": reference(capm3::GROUP, "Metal3MachineTemplate", &name),
            "deletion": deletion(),
        }},
        "rollout": rollout(config.control_planes),
        "kubeadmConfigSpec": {
            "format": "cloud-config",
            "clusterConfiguration": {
                "certificateValidityPeriodDays": CERTIFICATE_DAYS,
                "imageRepository": names::kubernetes_images(),
                // A starting API server makes a hundred connections to etcd and gives up when they take long: on a slow
                // processor kubeadm's default, RSA, takes too long.
                "encryptionAlgorithm": "ECDSA-P256",
                "etcd": {"local": {
                    // Somewhat more patient than etcd itself: a slow disk is no reason for a new leader, and yet a dead one is missed in less
                    // than the three seconds and a half after which another node takes the endpoint.
                    "extraArgs": arguments(&[("election-timeout", "1500"), ("heartbeat-interval", "150")]),
                    "extraEnvs": collect_less(),
                }},
                "apiServer": {
                    "extraArgs": arguments(&api_server),
                    "extraEnvs": collect_less(),
                    "extraVolumes": [{
                        "name": "encryption",
                        "hostPath": node::ENCRYPTION,
                        "mountPath": node::ENCRYPTION,
                        "readOnly": true,
                        "pathType": "Directory",
                    }],
                },
                "controllerManager": {"extraArgs": arguments(&controllers), "extraEnvs": collect_less()},
                "scheduler": {"extraArgs": arguments(leases)},
            },
            "initConfiguration": {
                "nodeRegistration": node_registration(config),
                "localAPIEndpoint": advertised(),
                "patches": {"directory": node::PATCHES},
                "timeouts": timeouts(),
            },
            "joinConfiguration": {
                "nodeRegistration": node_registration(config),
                "controlPlane": {"localAPIEndpoint": advertised()},
                "patches": {"directory": node::PATCHES},
                "timeouts": timeouts(),
            },
            "files": files,
            "preKubeadmCommands": commands,
            "users": node::users(site),
        },
    });
    let mut object = object(
        "controlplane.cluster.x-k8s.io/v1beta2",
        "KubeadmControlPlane",
        cluster,
        &name,
        &spec,
    );
    object["metadata"]["annotations"] = json!({
        WRITTEN: counts.control_planes.to_string(),
    });
    object
}

fn kubeadm_config_template(site: &SiteConfig, cluster: &str, config: &ClusterConfig) -> Value {
    let spec = json!({
        "format": "cloud-config",
        "joinConfiguration": {
            "nodeRegistration": node_registration(config),
            "timeouts": timeouts(),
        },
        "files": node::files(config),
        "preKubeadmCommands": node::commands(config),
        "users": node::users(site),
    });
    object(
        "bootstrap.cluster.x-k8s.io/v1beta2",
        "KubeadmConfigTemplate",
        cluster,
        &workers_name(cluster),
        &json!({"template": {"spec": spec}}),
    )
}

fn machine_deployment(cluster: &str, name: &str, stick: &Stick, counts: Counts) -> Value {
    let labels = json!({capi::CLUSTER_LABEL: cluster, capi::DEPLOYMENT_LABEL: name});
    let mut object = core(
        "MachineDeployment",
        cluster,
        name,
        &json!({
            "clusterName": cluster,
            "replicas": counts.workers,
            "selector": {"matchLabels": labels},
            "rollout": {"strategy": {
                "type": "RollingUpdate",
                // In place of the same servers: none needs to be spare.
                "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1},
            }},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "clusterName": cluster,
                    "version": stick.kubernetes,
                    "bootstrap": {"configRef": reference(
                        capi::BOOTSTRAP_GROUP,
                        "KubeadmConfigTemplate",
                        name,
                    )},
                    "infrastructureRef": reference(capm3::GROUP, "Metal3MachineTemplate", name),
                    "deletion": deletion(),
                },
            },
        }),
    );
    object["metadata"]["annotations"] = json!({WRITTEN: counts.workers.to_string()});
    object
}
