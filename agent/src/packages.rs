//! Whether servers can get the packages that `site.yaml` names: from their image, from the stick's repository, or from uploads.
//! Only the build can put them on the stick; this says so to whoever has named one since.

use std::{collections::BTreeSet, fs, path::PathBuf, sync::Arc};

use anyhow::{Context, Result};
use firstlight_api::{
    artifact::{Artifact, ArtifactState, Kind},
    node_image::{self, NodeImage},
    site::SiteConfig,
    status::Problem,
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{paths::Paths, status::StatusSender, store::Store};

/// What is told under this name.
const SOURCE: &str = "packages";

/// Tells as long as something is missing.
pub async fn run(
    paths: Paths,
    mut site: watch::Receiver<Option<Arc<SiteConfig>>>,
    mut store: watch::Receiver<Option<Store>>,
    status: StatusSender,
    stop: CancellationToken,
) -> Result<()> {
    let work = async {
        let Some(site) = site.wait_for(Option::is_some).await?.clone() else {
            return Ok(());
        };
        let Some(store) = store.wait_for(Option::is_some).await?.clone() else {
            return Ok(());
        };
        if site.packages.is_empty() {
            return std::future::pending().await;
        }
        let known = tokio::task::spawn_blocking(move || load_names(&paths)).await?;
        let mut news = store.news();
        let mut told = None;
        loop {
            let problem = match &known {
                Ok(names) => problem(&missing(&site.packages, names, &store.list())),
                Err(error) => Some(Problem {
                    what: format!("which packages are on the stick cannot be read: {error:#}"),
                    next: "write the stick again".to_owned(),
                }),
            };
            // An upload is news with every piece.
            if told.as_ref() != Some(&problem) {
                status.problems(SOURCE, problem.clone().into_iter().collect());
                told = Some(problem);
            }
            news.changed().await?;
        }
    };
    tokio::select! {
        result = work => result,
        () = stop.cancelled() => Ok(()),
    }
}

/// Names of all packages in the image of servers and in the stick's repository.
fn load_names(paths: &Paths) -> Result<BTreeSet<String>> {
    let read = |path: PathBuf| {
        fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))
    };
    let image: NodeImage = serde_json::from_str(&read(paths.images().join(node_image::FILE))?)
        .context("parsing node.json")?;
    let list = read(paths.apt_base().join("packages"))?;
    let in_repository = list
        .lines()
        .filter_map(|file| file.split_once('_'))
        .map(|(name, _)| name.to_owned());
    Ok(image.packages.into_keys().chain(in_repository).collect())
}

fn missing<'a>(
    wanted: &'a [String],
    on_stick: &BTreeSet<String>,
    uploads: &[Artifact],
) -> Vec<&'a str> {
    let uploaded = |name: &str| {
        uploads.iter().any(|artifact| {
            artifact.spec.kind == Kind::Package
                && artifact.spec.name == name
                && artifact.state == ArtifactState::Ready
        })
    };
    let wanted = wanted.iter().map(String::as_str);
    wanted
        .filter(|name| !on_stick.contains(*name) && !uploaded(name))
        .collect()
}

fn problem(missing: &[&str]) -> Option<Problem> {
    let names = missing.join(", ");
    (!missing.is_empty()).then(|| Problem {
        what: format!("site.yaml names packages that are not on this stick: {names}"),
        next: "build a stick with them (`firstlight build --site site.yaml`), upload them with what they depend on \
               (`firstlight push`), or take them out of site.yaml"
            .to_owned(),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn upload(name: &str, state: &str) -> Artifact {
        serde_json::from_value(serde_json::json!({
            "id": name, "kind": "package", "name": name, "version": "1", "arch": "amd64", "size": 1,
            "sha256": "ab".repeat(32), "state": state, "offset": 0,
        }))
        .unwrap()
    }

    #[test]
    fn a_package_is_in_the_image_or_in_the_repository_or_uploaded_or_missing() {
        let dir = tempfile::tempdir().unwrap();
        let paths = Paths::new(dir.path());
        for (folder, name, text) in [
            (
                paths.images(),
                node_image::FILE,
                r#"{"name": "node", "sha256": "ab", "bytes": 1, "packages": {"curl": "8"}}"#,
            ),
            (paths.apt_base(), "packages", "htop_3.4.1-5_amd64.deb\n"),
        ] {
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join(name), text).unwrap();
        }
        let names = load_names(&paths).unwrap();
        let wanted = ["curl", "htop", "ours", "half", "gone"].map(str::to_owned);
        let uploads = [upload("ours", "ready"), upload("half", "uploading")];
        assert_eq!(missing(&wanted, &names, &uploads), ["half", "gone"]);
        assert_eq!(problem(&[]), None);
        let problem = problem(&["half", "gone"]).unwrap();
        assert!(problem.what.ends_with("stick: half, gone"), "{problem:?}");
    }
}
