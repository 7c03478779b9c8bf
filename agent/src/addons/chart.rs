//! What Helm is to install: a chart of the store, an addon of the stick, or manifests in a chart of their own.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use firstlight_api::addon::Addon;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::Places;
use crate::files;

/// Of wrapped manifests, beside the kubeconfig.
pub const FOLDER: &str = "chart";
/// Manifests are not templates: whatever is in them is installed as it is.
const TEMPLATE: &str = r#"{{ .Files.Get "manifests.yaml" }}"#;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    Store { url: String, version: String },
    Builtin { name: String, path: PathBuf },
    Manifests,
}

impl Source {
    /// What the spec names, or what is wrong with it.
    pub fn of(addon: &Addon, places: &Places) -> Result<Self, String> {
        let spec = &addon.spec;
        if let Some(chart) = &spec.chart {
            return Ok(Self::Store {
                url: format!("oci://{}/charts/{}", places.registry, chart.name),
                version: chart.version.clone(),
            });
        }
        let Some(name) = &spec.builtin else {
            return Ok(Self::Manifests);
        };
        let path = places.builtin.join(name);
        if path.join("Chart.yaml").exists() {
            return Ok(Self::Builtin {
                name: name.clone(),
                path,
            });
        }
        let known = names(&places.builtin).join(", ");
        Err(format!(
            "the stick brings no addon `{name}`; it brings: {}",
            if known.is_empty() { "none" } else { &known }
        ))
    }

    /// For people.
    pub fn title(&self) -> String {
        match self {
            Self::Store { url, version } => {
                let name = url.rsplit('/').next().unwrap_or(url);
                format!("the chart {name} {version}")
            }
            Self::Builtin { name, .. } => format!("{name} from the stick"),
            Self::Manifests => "the manifests".to_owned(),
        }
    }

    /// Another one means that Helm is asked again.
    /// `kubernetes` is the version of kubeadm's cluster: charts of the stick go by what it has made.
    pub fn digest(&self, addon: &Addon, kubernetes: Option<&str>) -> String {
        let spec = &addon.spec;
        // A new stick may bring a new chart under the same name.
        let builtin = match self {
            Self::Builtin { path, .. } => {
                let chart = fs::read_to_string(path.join("Chart.yaml")).unwrap_or_default();
                json!([chart, kubernetes])
            }
            Self::Store { .. } | Self::Manifests => Value::Null,
        };
        let wish = json!([
            addon.metadata.uid,
            spec.namespace,
            spec.values,
            spec.chart,
            spec.builtin,
            spec.manifests,
            builtin
        ]);
        firstlight_artifacts::hex(&Sha256::digest(wish.to_string()))
    }
}

fn names(builtin: &Path) -> Vec<String> {
    let folders = fs::read_dir(builtin).into_iter().flatten().flatten();
    let mut names: Vec<String> = folders
        .filter(|folder| folder.path().join("Chart.yaml").exists())
        .map(|folder| folder.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// A chart around manifests.
pub fn wrap(manifests: &str, name: &str, folder: &Path) -> Result<()> {
    let chart = json!({"apiVersion": "v2", "name": name, "version": "0.0.0", "description": "manifests of an Addon"});
    let templates = folder.join("templates");
    files::make_dir(&templates, 0o700)?;
    let write = |path: PathBuf, text: &str| -> io::Result<()> { fs::write(path, text) };
    write(folder.join("Chart.yaml"), &chart.to_string())
        .and_then(|()| write(folder.join("manifests.yaml"), manifests))
        .and_then(|()| write(templates.join("all.yaml"), TEMPLATE))
        .with_context(|| format!("making a chart in {}", folder.display()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_addon_of_the_stick_goes_by_the_version_of_kubernetes_and_others_do_not() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("Chart.yaml"), "name: dns\n").unwrap();
        let builtin = Source::Builtin {
            name: "dns".to_owned(),
            path: folder.path().to_owned(),
        };
        let addon = Addon::default();
        for (source, changes) in [(builtin, true), (Source::Manifests, false)] {
            let [old, same, new] = ["v1.36.3", "v1.36.3", "v1.37.2"]
                .map(|version| source.digest(&addon, Some(version)));
            assert_eq!((old == same, old != new), (true, changes));
        }
    }
}
