//! What the stick brings for a cluster: versions, the node image, and the box that serves them.

use std::{fs, net::Ipv4Addr, path::Path};

use anyhow::{Context, Result};
use firstlight_api::node_image::{self, NodeImage};
use serde::Deserialize;

use crate::paths::Paths;

/// Everything that generated objects need and `site.yaml` does not say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stick {
    /// `v1.36.3`
    pub kubernetes: String,
    /// Manifest of the pod network, with `@POD_CIDR@`.
    pub flannel: String,
    /// File name of the node image, without `.raw.zst`, and the digest of that file.
    pub image: String,
    pub image_sha256: String,
    /// On the provisioning network.
    pub address: Ipv4Addr,
}

#[derive(Deserialize)]
struct Versions {
    kubernetes: String,
}

pub fn load_stick(paths: &Paths, address: Ipv4Addr) -> Result<Stick> {
    let versions: Versions = load_json(&paths.versions())?;
    let image: NodeImage = load_json(&paths.images().join(node_image::FILE))?;
    let flannel = paths.manifests().join("workload/flannel.yaml");
    let flannel =
        fs::read_to_string(&flannel).with_context(|| format!("reading {}", flannel.display()))?;
    Ok(Stick {
        kubernetes: versions.kubernetes,
        flannel,
        image: image.name,
        image_sha256: image.sha256,
        address,
    })
}

fn load_json<T: for<'a> Deserialize<'a>>(path: &Path) -> Result<T> {
    let text = fs::read(path).with_context(|| format!("reading {}", path.display()))?;
    serde_json::from_slice(&text).with_context(|| format!("parsing {}", path.display()))
}
