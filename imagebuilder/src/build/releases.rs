//! Further versions of Kubernetes on a stick, which clusters are upgraded to: packages for nodes, and the images that kubeadm of that
//! version asks for. To add one: a module `rootfs/go/kubernetes-MINOR` with Kubernetes, etcd and `CoreDNS`.

use anyhow::Result;

use super::cache::Output;
use super::programs::GoProgram;
use super::recipe::Recipe;
use super::settings::Settings;
use super::versions::KubernetesVersions;
use crate::UsageError;

const FOLDER: &str = "kubernetes-";

/// One of them, compiled.
#[derive(Clone, Debug)]
pub struct Release {
    pub versions: KubernetesVersions,
    /// Kubernetes and etcd in one program, where packages look for it, and `CoreDNS`.
    pub programs: Output,
}

impl Release {
    /// Names of its layers of images: of Kubernetes, and of `CoreDNS`.
    pub fn layers(&self) -> [String; 2] {
        ["kube", "coredns"].map(|name| format!("{name}-{}", self.versions.kubernetes))
    }

    /// As packages have it.
    pub fn version(&self) -> &str {
        self.versions.kubernetes.trim_start_matches('v')
    }
}

/// Name of the module of a minor version, below `rootfs/go`.
pub fn module(minor: &str) -> String {
    format!("{FOLDER}{minor}")
}

/// Minor versions that there is a module for.
fn known(settings: &Settings) -> Vec<String> {
    let folders = settings.rootfs("go").read_dir().into_iter().flatten();
    let mut names: Vec<String> = folders
        .flatten()
        .filter_map(|entry| Some(entry.file_name().to_str()?.strip_prefix(FOLDER)?.to_owned()))
        .collect();
    names.sort();
    names
}

/// Refuses what cannot be built.
pub fn check(settings: &Settings) -> Result<()> {
    let known = known(settings);
    let unknown = settings
        .kubernetes
        .iter()
        .find(|name| !known.contains(name));
    let Some(name) = unknown else { return Ok(()) };
    Err(UsageError(format!(
        "--kubernetes {name}: this source has {}",
        known.join(", ")
    ))
    .into())
}

impl Recipe<'_> {
    /// Those that the settings name.
    pub fn releases(&self) -> Result<Vec<Release>> {
        self.settings
            .kubernetes
            .iter()
            .map(|name| self.release(name))
            .collect()
    }

    fn release(&self, name: &str) -> Result<Release> {
        let module = module(name);
        let program = |package: &'static str, at: &'static str| GoProgram {
            module: &module,
            package,
            name: at,
            links: &[],
        };
        let list = [
            program("./cmd/kube", "usr/bin/kube"),
            program("./cmd/coredns", "coredns/coredns"),
        ];
        Ok(Release {
            versions: KubernetesVersions::of(self.settings, [&module, &module])?,
            programs: self.go_programs(&format!("{module}-bin"), &list)?,
        })
    }
}
