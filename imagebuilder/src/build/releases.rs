//! Further versions of Kubernetes on a stick, which clusters are upgraded to: packages for nodes, and the images that kubeadm of that
//! version asks for. To add one: a module `rootfs/go/kubernetes-MINOR` with Kubernetes, etcd and `CoreDNS`.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use tempfile::TempDir;

use super::cache::{Output, Steps};
use super::programs::GoProgram;
use super::progress::Progress;
use super::recipe::Recipe;
use super::settings::Settings;
use super::versions::KubernetesVersions;
use super::{debs, preflight};
use crate::UsageError;

const FOLDER: &str = "kubernetes-";
/// The archive of the images of one.
pub const IMAGES: &str = "images.tar";

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

/// Makes `folder`, by which a box that runs gets the versions that the settings name: packages, and an archive of images for each.
pub fn build_for_push(settings: &Settings, folder: &Path, progress: Progress) -> Result<String> {
    check(settings)?;
    let partial = partial(folder)?;
    preflight::check(settings)?;
    let steps = Steps::open(&settings.cache, progress)?;
    let recipe = Recipe { settings, steps };
    let tools = recipe.tools()?;
    let mut lines = String::new();
    for release in recipe.releases()? {
        let debs = recipe.release_debs(&tools, &release)?;
        let images = recipe.release_images(&release)?.path(IMAGES);
        let mut files = debs::list_debs(debs.dir())?;
        files.push(images.clone());
        for file in files {
            let name = if file == images {
                format!("{FOLDER}{}.tar", release.versions.kubernetes)
            } else {
                file_name(&file)?
            };
            fs::copy(&file, partial.path().join(&name))
                .with_context(|| format!("writing {name} beside {}", folder.display()))?;
            let _ = writeln!(lines, "{}", folder.join(name).display());
        }
    }
    fs::rename(partial.keep(), folder).with_context(|| format!("making {}", folder.display()))?;
    let _ = writeln!(
        lines,
        "`firstlight push {}` brings them to a box",
        folder.display()
    );
    Ok(lines)
}

/// It appears when it is complete.
fn partial(folder: &Path) -> Result<TempDir> {
    if folder.exists() {
        let why = format!("{} is there already; name a new folder", folder.display());
        return Err(UsageError(why).into());
    }
    let beside = folder.parent().context("a folder has one that it is in")?;
    tempfile::Builder::new()
        .prefix(".firstlight-")
        .permissions(fs::Permissions::from_mode(0o755))
        .tempdir_in(beside)
        .with_context(|| format!("making a folder in {}", beside.display()))
}

fn file_name(file: &Path) -> Result<String> {
    let name = file.file_name().and_then(|name| name.to_str());
    Ok(name.context("a package has a name")?.to_owned())
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
