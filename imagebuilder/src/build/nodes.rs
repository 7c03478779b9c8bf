//! What the nodes of a cluster are made of, without the stick: for tests that run them beside each other on one machine.

use std::path::PathBuf;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::cache::Steps;
use super::progress::Progress;
use super::recipe::Recipe;
use super::settings::Settings;
use super::{addons, programs, workload};

/// Files of the cache; another build may take them away.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Nodes {
    /// The file system of a node, as a tar.
    pub root: PathBuf,
    /// The registry's layer: a squashfs with [`Self::storage`] in it.
    pub registry: PathBuf,
    /// Folder of the registry's storage in its layer.
    pub storage: PathBuf,
    /// The packages that servers use, with their key.
    pub repository: PathBuf,
    /// What runs on a server for the box.
    pub bootstrap: PathBuf,
    /// Folder with a chart for each addon.
    pub charts: PathBuf,
    /// Program of the registry.
    pub serve: PathBuf,
    /// Helm and, by its name, `kubectl`.
    pub programs: PathBuf,
}

/// The same steps as those of an image.
pub fn make_nodes(settings: &Settings, progress: Progress) -> Result<Nodes> {
    let recipe = Recipe {
        settings,
        steps: Steps::open(&settings.cache, progress)?,
    };
    let tools = recipe.tools()?;
    let kube = recipe.go_programs("kube-bin", programs::KUBE_PROGRAMS)?;
    let images = recipe.go_programs("image-bin", programs::IMAGE_PROGRAMS)?;
    let node = recipe.go_programs("node-bin", programs::NODE_PROGRAMS)?;
    let debs = recipe.debs(&tools, &[&kube, &node])?;
    let tree = recipe.node_tree()?;
    let root = recipe.node_root(&tree, &debs)?;
    let releases = recipe.releases()?;
    let all_debs = recipe.all_debs(&tools, debs, &releases)?;
    let repository = recipe.repository(&root, &all_debs, &[])?;
    let addons = addons::load(settings)?;
    let registry = recipe.site_registry(&tools, [&kube, &images], &releases, &addons)?;
    let bootstrap = recipe.bootstrap_program()?;
    let charts = recipe.addon_charts(&kube, &addons)?;
    Ok(Nodes {
        root: root.path("node.tar"),
        registry: registry.path("layer.sqfs"),
        storage: workload::STORAGE.into(),
        repository: repository.dir().to_owned(),
        bootstrap: bootstrap.path("firstlight-bootstrap"),
        charts: charts.dir().to_owned(),
        serve: images.path("registry/registry"),
        programs: kube.path("usr/bin"),
    })
}
