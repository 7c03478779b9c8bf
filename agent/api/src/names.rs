//! How machines of a site call the services of the box.

/// The box's registry in references of images. No name server has to know it: each node's containerd is told where it is.
pub const REGISTRY: &str = "registry.firstlight.internal";
/// Where nodes pull from it, on the provisioning network, with TLS by the site's CA.
pub const REGISTRY_PORT: u16 = 5000;
/// Where images are pushed to it, on the box's loopback, as long as there is room.
pub const REGISTRY_PUSH_PORT: u16 = 5001;
/// Where it takes them itself (`manifests/registry.yaml`).
pub const REGISTRY_WRITE_PORT: u16 = 5002;
/// Where clusters find the images of Kubernetes, with exactly the tags that kubeadm asks for: below [`REGISTRY`].
pub const KUBERNETES_REPOSITORY: &str = "kubernetes";

/// Namespace of the box's own Kubernetes in which people run pods, where site.yaml says so.
pub const WORKLOADS: &str = "workloads";

/// The page, the API and network boot.
pub const HTTP_PORT: u16 = 80;
/// The same for people, over TLS by the site's CA.
pub const HTTPS_PORT: u16 = 443;
/// Where installed systems ask for their bootstrap data, with TLS by the site's CA.
pub const BOOTSTRAP_PORT: u16 = 8443;
/// Where the box's API server has objects converted to another version, on loopback, with TLS by the site's CA.
pub const CONVERSION_PORT: u16 = 8444;

/// GUID of the node image's disk. It says that nothing in the image names a partition by its GUID: each disk that it is written
/// to gets its own, so that two of them in one server are never taken for each other.
pub const NODE_DISK: u128 = 0xcb7d_5c33_04db_88cd_b625_8f51_cb0e_b16c;

/// The `imageRepository` of clusters.
pub fn kubernetes_images() -> String {
    format!("{REGISTRY}/{KUBERNETES_REPOSITORY}")
}
