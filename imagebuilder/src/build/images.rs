//! Container images of the pods on the box, laid out as containerd keeps them by `rootfs/go/containers/cmd/seed`.
//!
//! To add an image: its tree and configuration in [`plan_images`], its tag in `versions.rs`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::cache::{Output, Work, remove_tree};
use super::command::Program;
use super::settings::SOURCE_DATE_EPOCH;

/// One image for the seed tool.
#[derive(Clone, Debug, PartialEq)]
pub struct Image {
    name: &'static str,
    reference: String,
    /// A folder or a tar.
    rootfs: PathBuf,
    /// `config` of an OCI image configuration.
    config: Value,
}

/// All images, with references from `references`.
pub fn plan_images(
    references: &BTreeMap<&'static str, String>,
    programs: &Output,
    ironic: &Output,
) -> Result<Vec<Image>> {
    let images = [
        (
            "pause",
            programs.path("pause"),
            json!({"Entrypoint": ["/pause"], "User": "65535:65535"}),
        ),
        (
            "coredns",
            programs.path("coredns"),
            json!({"Entrypoint": ["/coredns"]}),
        ),
        (
            "registry",
            programs.path("registry"),
            json!({"Entrypoint": ["/registry"]}),
        ),
        // One image for three pods; each names its program.
        ("cluster-api", programs.path("cluster-api"), json!({})),
        (
            "ironic",
            ironic.path("ironic.tar"),
            json!({"Entrypoint": ["/usr/bin/python3", "/usr/share/ironic/launch.py"]}),
        ),
    ];
    let image = |(name, rootfs, config): (&'static str, PathBuf, Value)| {
        let reference = references
            .get(name)
            .with_context(|| format!("image {name} has no version"))?
            .clone();
        Ok(Image {
            name,
            reference,
            rootfs,
            config,
        })
    };
    images.into_iter().map(image).collect()
}

/// Writes containerd's store to `store`.
pub fn lay_out(work: &Work, seed: &Path, images: &[Image], store: &Path) -> Result<()> {
    let specs = work.path("specs");
    fs::create_dir(&specs)?;
    let mut files = Vec::new();
    for image in images {
        let file = specs.join(format!("{}.json", image.name));
        let spec =
            json!({"reference": image.reference, "rootfs": image.rootfs, "config": image.config});
        fs::write(&file, spec.to_string())
            .with_context(|| format!("writing {}", file.display()))?;
        files.push(file);
    }
    fs::create_dir_all(store.parent().context("the store has a folder")?)?;
    Program::new(seed, &work.log)
        .env("SOURCE_DATE_EPOCH", SOURCE_DATE_EPOCH.to_string())
        .arg("-o")
        .arg(store)
        .args(&files)
        .run()?;
    remove_tree(&specs)
}
