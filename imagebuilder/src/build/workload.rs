//! Container images of the workload cluster, in the storage of the registry that serves them to the nodes.
//!
//! Kubernetes and etcd are one program with many names, so the images of the control plane share one layer: a node fetches
//! it once. To add an image: a line in [`plan_images`], its layer in [`fill`].

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use firstlight_api::names::{KUBERNETES_REPOSITORY as REPOSITORY, REGISTRY};
use serde_json::{Value, json};

use super::addons::{self, Addon, AddonProgram};
use super::cache::Output;
use super::releases::Release;
use super::settings::SOURCE_DATE_EPOCH;
use super::versions::{KubernetesVersions, WorkloadVersions};
use crate::registry::layer::Entry;
use crate::registry::store::{Image, RegistryTree};

/// Where the registry's storage is in its layer (docs/reference.md).
pub const STORAGE: &str = "usr/share/firstlight/registry";

const KUBE_NAMES: [&str; 5] = [
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-proxy",
    "kube-scheduler",
];

/// Layers of Kubernetes and etcd, and of `CoreDNS`.
const KUBE: &str = "kube";
const COREDNS: &str = "coredns";
/// The layer with the packages of `rootfs/nettools`, and where their programs are.
pub const NETTOOLS: &str = "nettools";
pub const NETTOOLS_PATH: &str = "PATH=/usr/sbin:/usr/bin";
/// What of the unpacked packages goes into an image; the rest is of the machine that unpacked them.
const UNPACKED: [&str; 7] = [
    "bin",
    "etc/protocols",
    "etc/services",
    "lib",
    "lib64",
    "sbin",
    "usr",
];

/// What the layers are made of.
#[derive(Clone, Copy, Debug)]
pub struct Parts<'a> {
    /// Step `kube-bin`.
    pub kube: &'a Output,
    /// Step `image-bin`.
    pub programs: &'a Output,
    /// Step `nettools`.
    pub nettools: &'a Output,
    /// Step `addon-bin`.
    pub addons: &'a Output,
    /// Step `addon-wheels`.
    pub wheels: &'a Output,
    /// Packages of addons, by the addon.
    pub trees: &'a [(String, Output)],
    /// Programs of ours in addons, by the crate.
    pub ours: &'a [(String, Output)],
    /// Further versions of Kubernetes.
    pub releases: &'a [Release],
}

/// Full references of the images.
pub fn references(versions: &WorkloadVersions) -> Vec<String> {
    plan_images(versions).iter().map(reference).collect()
}

/// Writes the storage below `root`.
pub fn fill(
    root: &Path,
    parts: Parts<'_>,
    versions: &WorkloadVersions,
    addons: &[Addon],
) -> Result<()> {
    fs::create_dir_all(root).with_context(|| format!("making {}", root.display()))?;
    let mut store = RegistryTree::create(root, SOURCE_DATE_EPOCH)?;
    store.add_layer(KUBE, &kube_layer(parts.kube))?;
    let tree = |tar| Entry::Tree {
        tar,
        parts: &UNPACKED,
    };
    add_nettools(&mut store, parts.nettools)?;
    for (addon, output) in parts.trees {
        let packages = tree(output.path("packages.tar"));
        store.add_layer(&addons::debian_layer(addon), &[packages])?;
    }
    for name in [COREDNS, "flannel", "pause"] {
        let program = parts.programs.path(name).join(name);
        store.add_layer(name, &[program_entry(program, name)])?;
    }
    for image in plan_images(versions) {
        store.add_image(&image)?;
    }
    for release in parts.releases {
        add_release(&mut store, release)?;
    }
    for image in addons.iter().flat_map(|addon| &addon.images) {
        let programs: Vec<_> = image
            .programs
            .iter()
            .map(|program| {
                let from = match program {
                    AddonProgram::Go { path, .. } => parts.addons.path(path),
                    AddonProgram::Wheel { path } => parts.wheels.path(path),
                    AddonProgram::Ours { package } => {
                        let made = parts.ours.iter().find(|(name, _)| name == package);
                        let (_, output) = made.context("a program of ours was not made")?;
                        output.path(package)
                    }
                };
                Ok(program_entry(from, program.file_name()))
            })
            .collect::<Result<_>>()?;
        store.add_layer(&image.layer(), &programs)?;
        store.add_image(&image.image())?;
    }
    Ok(())
}

/// Writes an archive with the images of one further version of Kubernetes; `scratch` is used on the way.
pub fn archive_release(
    archive: &Path,
    scratch: &Path,
    release: &Release,
    nettools: &Output,
) -> Result<()> {
    let mut store = RegistryTree::create(scratch, SOURCE_DATE_EPOCH)?;
    add_nettools(&mut store, nettools)?;
    let images = add_release(&mut store, release)?;
    store.write_archive(&images, archive)
}

/// References and digests of what kubeadm of that version asks for.
fn add_release(store: &mut RegistryTree, release: &Release) -> Result<Vec<(String, String)>> {
    let layers = release.layers();
    store.add_layer(&layers[0], &kube_layer(&release.programs))?;
    let coredns = program_entry(release.programs.path("coredns/coredns"), COREDNS);
    store.add_layer(&layers[1], &[coredns])?;
    let images = kubernetes_images(&release.versions, layers.each_ref().map(String::as_str));
    let add = |image: &Image| Ok((reference(image), store.add_image(image)?));
    images.iter().map(add).collect()
}

fn add_nettools(store: &mut RegistryTree, nettools: &Output) -> Result<()> {
    let tar = nettools.path("nettools.tar");
    let parts = &UNPACKED;
    store.add_layer(NETTOOLS, &[Entry::Tree { tar, parts }])
}

fn reference(image: &Image) -> String {
    format!("{REGISTRY}/{}:{}", image.repository, image.tag)
}

fn image(name: &str, tag: &str, layers: &[&str], config: Value) -> Image {
    Image {
        repository: format!("{REPOSITORY}/{name}"),
        tag: tag.to_owned(),
        layers: layers.iter().map(|&layer| layer.to_owned()).collect(),
        config,
    }
}

/// What kubeadm of one release asks for by that release; `layers` are those of [`KUBE`] and [`COREDNS`].
fn kubernetes_images(versions: &KubernetesVersions, layers: [&str; 2]) -> Vec<Image> {
    let [kube, coredns] = layers;
    // kubeadm writes commands without a path, and kube-proxy's with this one.
    let path = json!({"Env": ["PATH=/usr/local/bin:/usr/sbin:/usr/bin"]});
    let of_kubernetes =
        |name: &str, layers: &[&str]| image(name, &versions.kubernetes, layers, path.clone());
    vec![
        of_kubernetes("kube-apiserver", &[kube]),
        of_kubernetes("kube-controller-manager", &[kube]),
        of_kubernetes("kube-scheduler", &[kube]),
        // The big layer first, as in the other images: layers are shared only with all that is below them.
        of_kubernetes("kube-proxy", &[kube, NETTOOLS]),
        image("etcd", &versions.etcd, &[kube], path.clone()),
        image(
            COREDNS,
            &versions.coredns,
            &[coredns],
            json!({"Entrypoint": ["/coredns"]}),
        ),
    ]
}

fn plan_images(versions: &WorkloadVersions) -> Vec<Image> {
    let mut images = kubernetes_images(&versions.kubernetes, [KUBE, COREDNS]);
    images.extend([
        image(
            "pause",
            &versions.pause,
            &["pause"],
            json!({"Entrypoint": ["/pause"], "User": "65535:65535"}),
        ),
        image(
            "flannel",
            &versions.flannel,
            &[NETTOOLS, "flannel"],
            json!({
                "Entrypoint": ["/flannel"], "Env": [NETTOOLS_PATH],
            }),
        ),
    ]);
    images
}

fn kube_layer(kube: &Output) -> Vec<Entry> {
    let mut entries = folders(&["usr", "usr/local", "usr/local/bin"]);
    entries.push(Entry::Folder {
        to: "tmp".into(),
        mode: 0o1777,
    });
    entries.push(Entry::File {
        from: kube.path("usr/bin/kube"),
        to: "usr/local/bin/kube".into(),
        mode: 0o755,
    });
    entries.extend(KUBE_NAMES.map(|name| Entry::Link {
        to: Path::new("usr/local/bin").join(name),
        target: "kube".into(),
    }));
    entries
}

fn program_entry(from: PathBuf, name: &str) -> Entry {
    Entry::File {
        from,
        to: name.into(),
        mode: 0o755,
    }
}

fn folders(paths: &[&str]) -> Vec<Entry> {
    let folder = |path: &&str| Entry::Folder {
        to: PathBuf::from(path),
        mode: 0o755,
    };
    paths.iter().map(folder).collect()
}

/// Refuses a node image whose container runtime would look for another pause image than there is.
pub fn check_pause(node: &Path, versions: &WorkloadVersions) -> Result<()> {
    let config = node.join("etc/containerd/config.toml");
    let text =
        fs::read_to_string(&config).with_context(|| format!("reading {}", config.display()))?;
    let wanted = format!("{REGISTRY}/{REPOSITORY}/pause:{}", versions.pause);
    ensure!(
        text.contains(&format!("'{wanted}'")),
        "{} does not name {wanted} as its sandbox image",
        config.display()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kubeadm_finds_every_image_it_asks_for_and_the_control_plane_shares_its_program() {
        let versions = WorkloadVersions {
            kubernetes: KubernetesVersions {
                kubernetes: "v1.36.3".to_owned(),
                etcd: "3.6.8-0".to_owned(),
                coredns: "v1.14.2".to_owned(),
            },
            pause: "3.10.2".to_owned(),
            flannel: "v0.28.4".to_owned(),
        };
        let images = plan_images(&versions);
        let references = references(&versions);
        // `kubeadm config images list` of v1.36.3 with this repository.
        for wanted in [
            "kube-apiserver:v1.36.3",
            "kube-controller-manager:v1.36.3",
            "kube-scheduler:v1.36.3",
            "kube-proxy:v1.36.3",
            "coredns:v1.14.2",
            "pause:3.10.2",
            "etcd:3.6.8-0",
        ] {
            let wanted = format!("registry.firstlight.internal/kubernetes/{wanted}");
            assert!(references.contains(&wanted), "{wanted} is missing");
        }
        let shared = images.iter().filter(|image| image.layers[0] == KUBE);
        assert_eq!(shared.count(), KUBE_NAMES.len());
    }
}
