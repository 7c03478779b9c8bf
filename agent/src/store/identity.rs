//! Which upload is which artifact, and how an artifact is called where it is used. Pure.

use firstlight_api::{
    artifact::{ArtifactSpec, Kind},
    names::REGISTRY,
};
use firstlight_artifacts::hex;
use sha2::{Digest, Sha256};

/// Before the address of a chart, as Helm writes it.
pub const OCI: &str = "oci://";
/// Where servers fetch disks.
pub const SERVED: &str = "/images/";
const CHARTS: &str = "charts";

/// The same for the same artifact, for ever.
pub fn identify(spec: &ArtifactSpec) -> String {
    let (kind, name, version, arch) = spec.identity();
    let text = format!("{kind}\n{name}\n{version}\n{arch}\n{}", spec.sha256);
    hex(&Sha256::digest(text))[..24].to_owned()
}

/// Repository and tag in the registry, for kinds that go there.
pub fn tag(spec: &ArtifactSpec) -> (String, String) {
    match spec.kind {
        // A tag cannot hold what semantic versions may; Helm asks for it spelled like this.
        Kind::Chart => (
            format!("{CHARTS}/{}", spec.name),
            spec.version.replace('+', "_"),
        ),
        _ => (spec.name.clone(), spec.version.clone()),
    }
}

/// The file of a disk as servers get it.
pub fn image_file(spec: &ArtifactSpec) -> String {
    format!(
        "{}-{}.raw.zst",
        spec.name,
        spec.version.replace([':', '~', '+'], "_")
    )
}

/// How it is called where it is used, once it is there.
pub fn reference(spec: &ArtifactSpec) -> String {
    let (repository, tag) = tag(spec);
    match spec.kind {
        Kind::Container => format!("{REGISTRY}/{repository}:{tag}"),
        Kind::Chart => format!("{OCI}{REGISTRY}/{repository}:{tag}"),
        Kind::Package => format!("{}={}", spec.name, spec.version),
        Kind::Image => format!("{SERVED}{}", image_file(spec)),
    }
}

/// A disk of the store as servers get it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedImage {
    pub id: String,
    pub name: String,
    pub version: String,
    /// `/images/…`
    pub path: String,
    /// Of the file there.
    pub sha256: String,
}

impl ServedImage {
    /// Whether `url` names it (`NAME` or `NAME:VERSION`) or is its address.
    pub fn is_meant_by(&self, url: &str) -> bool {
        is_disk(url, &self.name, &self.version, &self.path)
    }
}

pub fn is_disk(url: &str, of_name: &str, of_version: &str, of_path: &str) -> bool {
    match url.split_once("://") {
        Some((_, address)) => address
            .find('/')
            .is_some_and(|at| &address[at..] == of_path),
        None => match url.split_once(':') {
            Some(named) => named == (of_name, of_version),
            None => url == of_name,
        },
    }
}
