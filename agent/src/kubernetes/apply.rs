//! Server-side apply of the manifests on the stick.

use std::{fs, path::PathBuf};

use anyhow::{Context, Result};
use kube::{
    Api, Client,
    api::{DynamicObject, Patch, PatchParams},
    discovery::{Scope, pinned_kind},
};

use super::conversion;
use crate::{paths::Paths, pki::Pki};

/// Applied once a site needs it.
pub const CLUSTER_API: &str = "cluster-api.yaml";
pub const MANAGER: &str = "firstlight";

/// Applies every document of every `*.yaml` but Cluster API's, in the order of the file names. Doing it again changes nothing.
pub async fn apply_all(client: &Client, paths: &Paths, pki: &Pki) -> Result<()> {
    for path in manifests(paths)? {
        let name = path.display();
        let text = fs::read_to_string(&path).with_context(|| format!("reading {name}"))?;
        for mut object in parse_manifest(&text).with_context(|| format!("parsing {name}"))? {
            conversion::complete(&mut object.data, &pki.site.certificate);
            let what = object.metadata.name.clone().unwrap_or_default();
            apply(client, &object)
                .await
                .with_context(|| format!("applying {what} of {name}"))?;
        }
    }
    Ok(())
}

fn manifests(paths: &Paths) -> Result<Vec<PathBuf>> {
    let dir = paths.manifests();
    let entries = fs::read_dir(&dir).with_context(|| format!("listing {}", dir.display()))?;
    let mut files: Vec<_> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    files.retain(|path| {
        path.extension()
            .is_some_and(|extension| extension == "yaml")
            && path.file_name().is_some_and(|name| name != CLUSTER_API)
    });
    files.sort();
    Ok(files)
}

pub fn parse_manifest(text: &str) -> Result<Vec<DynamicObject>> {
    let documents: Vec<serde_json::Value> = serde_saphyr::from_multiple(text)?;
    let objects = documents
        .into_iter()
        .filter(|document| !document.is_null())
        .map(serde_json::from_value);
    Ok(objects.collect::<Result<_, _>>()?)
}

pub async fn apply(client: &Client, object: &DynamicObject) -> Result<()> {
    let types = object
        .types
        .as_ref()
        .context("apiVersion and kind are missing")?;
    let kind = kube::core::GroupVersionKind::try_from(types)?;
    let (resource, capabilities) = pinned_kind(client, &kind).await?;
    let namespace = object.metadata.namespace.as_deref().unwrap_or("default");
    let api: Api<DynamicObject> = match capabilities.scope {
        Scope::Namespaced => Api::namespaced_with(client.clone(), namespace, &resource),
        Scope::Cluster => Api::all_with(client.clone(), &resource),
    };
    let name = object
        .metadata
        .name
        .as_deref()
        .context("metadata.name is missing")?;
    api.patch(
        name,
        &PatchParams::apply(MANAGER).force(),
        &Patch::Apply(object),
    )
    .await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_file_may_hold_several_documents_and_comments() {
        let text = "# first\napiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n---\n# nothing\n---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: b, namespace: kube-system}\nspec: {replicas: 1}\n";
        let objects = parse_manifest(text).unwrap();
        let names: Vec<_> = objects
            .iter()
            .map(|object| object.metadata.name.clone().unwrap())
            .collect();
        assert_eq!(names, ["a", "b"]);
        assert_eq!(objects[1].data["spec"]["replicas"], 1);
        assert!(parse_manifest("kind: [").is_err());
    }
}
