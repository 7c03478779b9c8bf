//! Manifests that the agent applies on the box, beside those of `overlays/box`: Cluster API's own, rendered with the
//! `kubectl kustomize` of this build from the folders of its Go module and the patches in `rootfs/cluster-api`.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::cache::{Work, remove_tree};
use super::command::Program;
use super::programs::module_folder;
use super::settings::Settings;

/// What the rendered file is called, here and on the box.
pub const CLUSTER_API: &str = "cluster-api.yaml";
/// Files that `rootfs/cluster-api/kustomization.yaml` builds on, and the folders of the module they are rendered from.
const PROVIDERS: [(&str, &str); 3] = [
    ("provider-core.yaml", "core/config/default"),
    (
        "provider-kubeadm-bootstrap.yaml",
        "bootstrap/kubeadm/config/default",
    ),
    (
        "provider-kubeadm-control-plane.yaml",
        "controlplane/kubeadm/config/default",
    ),
];

/// Renders [`CLUSTER_API`].
pub fn render_cluster_api(work: &Work, settings: &Settings, kubectl: &Path) -> Result<()> {
    let source = settings.rootfs("go").join("cluster-api");
    let module = module_folder(&work.log, &source, "sigs.k8s.io/cluster-api")?;
    let folder = work.path("kustomize");
    let recipe = settings.rootfs("cluster-api");
    fs::create_dir(&folder)?;
    for entry in fs::read_dir(&recipe).with_context(|| format!("listing {}", recipe.display()))? {
        let from = entry?.path();
        let name = from.file_name().context("a recipe's file has a name")?;
        fs::copy(&from, folder.join(name))
            .with_context(|| format!("copying {}", from.display()))?;
    }
    for (file, source) in PROVIDERS {
        kustomize(work, kubectl, &module.join(source), &folder.join(file))?;
    }
    kustomize(work, kubectl, &folder, &work.path(CLUSTER_API))?;
    remove_tree(&folder)
}

fn kustomize(work: &Work, kubectl: &Path, folder: &Path, to: &Path) -> Result<()> {
    let text = Program::new(kubectl, &work.log)
        .arg("kustomize")
        .arg(folder)
        .read()?;
    fs::write(to, text).with_context(|| format!("writing {}", to.display()))
}

/// Refuses manifests whose pods would wait for an image for ever: nothing is pulled on the box.
pub fn check_images<'a>(folder: &Path, known: impl IntoIterator<Item = &'a String>) -> Result<()> {
    let known: Vec<String> = known.into_iter().cloned().collect();
    for entry in fs::read_dir(folder).with_context(|| format!("listing {}", folder.display()))? {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        let text =
            fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        check_images_in(&text, &path, &known)?;
    }
    Ok(())
}

/// The same for one text, which came from `path`.
pub fn check_images_in(text: &str, path: &Path, known: &[String]) -> Result<()> {
    for image in images_of(text) {
        ensure!(
            known.iter().any(|known| known == image),
            "{} names the image {image}, which is not on the stick (it has {known:?}): change the tag there, or add the image",
            path.display()
        );
    }
    Ok(())
}

/// Values of `image:` keys, wherever they are.
fn images_of(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| {
        let line = line.trim_start();
        let value = line.strip_prefix("- ").unwrap_or(line);
        let value = value.strip_prefix("image: ")?.trim().trim_matches('"');
        // A schema describes a field of this name; only a pod's has a tag.
        value.contains(':').then_some(value)
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_manifest_may_only_name_images_of_the_stick() {
        let dir = tempfile::tempdir().unwrap();
        let known = [
            "firstlight.internal/a:v1".to_owned(),
            "firstlight.internal/b:v2".to_owned(),
        ];
        let text = "containers:\n- image: firstlight.internal/a:v1\n  name: a\n- name: b\n  image: \"firstlight.internal/b:v2\"\n# image: none:at-all\nproperties:\n  image:\n    type: object\n";
        fs::write(dir.path().join("good.yaml"), text).unwrap();
        fs::write(dir.path().join("notes.txt"), "image: x:y").unwrap();
        check_images(dir.path(), &known).unwrap();
        fs::write(
            dir.path().join("old.yaml"),
            text.replace("internal/a:v1", "internal/a:v0"),
        )
        .unwrap();
        let problem = check_images(dir.path(), &known).unwrap_err().to_string();
        assert!(
            problem.contains("old.yaml") && problem.contains("internal/a:v0"),
            "{problem}"
        );
    }
}
