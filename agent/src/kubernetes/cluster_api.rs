//! Cluster API on the box: its manifests with the box's CA filled in, and serving certificates for its webhooks.
//!
//! `cluster-api.yaml` is upstream's, rendered by the build without cert-manager (`rootfs/cluster-api`): it has no `caBundle`
//! and refers to Secrets that nobody has made. Both are the agent's part. Must not: change anything else of it.

use std::{collections::BTreeSet, fs};

use anyhow::{Context, Result, ensure};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use firstlight_artifacts::hex;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::{
    Api, Client,
    api::{DynamicObject, Patch, PatchParams},
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::apply::{self, CLUSTER_API as FILE, MANAGER};
use crate::{
    clock,
    paths::Paths,
    pki::{CertSpec, Pki},
};

/// On the first namespace of the file: what was applied, whole. 17 definitions of 2.5 MB take a slow box a while.
const APPLIED: &str = "firstlight.internal/applied";

/// One manager with a webhook: where it runs and which Secret it mounts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Manager {
    pub namespace: String,
    pub deployment: String,
    /// Secret with its serving certificate, and the names by which the API server calls it.
    pub secret: String,
    pub names: Vec<String>,
}

/// Applies everything; doing it again with the same file and CA only makes sure that the Secrets are there.
pub async fn apply(client: &Client, paths: &Paths, pki: &Pki) -> Result<Vec<Manager>> {
    let path = paths.manifests().join(FILE);
    let text = fs::read_to_string(&path).with_context(|| {
        format!(
            "reading {}; the stick brings no Cluster API",
            path.display()
        )
    })?;
    let mut objects =
        apply::parse_manifest(&text).with_context(|| format!("parsing {}", path.display()))?;
    let managers = managers(&objects);
    ensure!(!managers.is_empty(), "{} has no webhook", path.display());
    let ca = &pki.site.certificate;
    let digest = hex(&Sha256::digest([text.as_bytes(), ca.as_bytes()].concat()));
    drop(text);
    fill_ca(&mut objects, ca);
    let (namespaces, rest): (Vec<_>, Vec<_>) = objects
        .into_iter()
        .partition(|object| kind(object) == "Namespace");
    let applied = is_applied(client, &namespaces, &digest).await;
    if !applied {
        apply_each(client, &namespaces).await?;
    }
    for manager in &managers {
        keep_certificate(client, pki, manager).await?;
    }
    if !applied {
        apply_each(client, &rest).await?;
        mark(client, &namespaces, &digest).await?;
    }
    Ok(managers)
}

async fn apply_each(client: &Client, objects: &[DynamicObject]) -> Result<()> {
    for object in objects {
        let name = object.metadata.name.clone().unwrap_or_default();
        apply::apply(client, object)
            .await
            .with_context(|| format!("applying {} {name} of {FILE}", kind(object)))?;
    }
    Ok(())
}

fn kind(object: &DynamicObject) -> &str {
    object
        .types
        .as_ref()
        .map_or("", |types| types.kind.as_str())
}

async fn is_applied(client: &Client, namespaces: &[DynamicObject], digest: &str) -> bool {
    let Some(name) = namespaces
        .first()
        .and_then(|first| first.metadata.name.as_deref())
    else {
        return false;
    };
    let found = Api::<Namespace>::all(client.clone()).get(name).await;
    found.is_ok_and(|namespace| {
        let annotations = namespace.metadata.annotations.unwrap_or_default();
        annotations
            .get(APPLIED)
            .is_some_and(|applied| applied == digest)
    })
}

async fn mark(client: &Client, namespaces: &[DynamicObject], digest: &str) -> Result<()> {
    let Some(name) = namespaces
        .first()
        .and_then(|first| first.metadata.name.as_deref())
    else {
        return Ok(());
    };
    let patch = json!({"metadata": {"annotations": {APPLIED: digest}}});
    Api::<Namespace>::all(client.clone())
        .patch(name, &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .with_context(|| format!("marking the namespace {name}"))?;
    Ok(())
}

/// `caBundle` of every webhook, and of every definition that is converted by one.
pub fn fill_ca(objects: &mut [DynamicObject], ca: &str) {
    let bundle = Value::String(STANDARD.encode(ca));
    for object in objects {
        let webhooks = matches!(
            kind(object),
            "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration"
        );
        let is_definition = kind(object) == "CustomResourceDefinition";
        if webhooks {
            for webhook in object.data["webhooks"].as_array_mut().into_iter().flatten() {
                webhook["clientConfig"]["caBundle"] = bundle.clone();
            }
        } else if is_definition
            && let Some(client) = object
                .data
                .pointer_mut("/spec/conversion/webhook/clientConfig")
        {
            client["caBundle"] = bundle.clone();
        }
    }
}

/// The managers whose pods mount a Secret that the file itself does not bring.
pub fn managers(objects: &[DynamicObject]) -> Vec<Manager> {
    let place = |object: &DynamicObject| {
        let meta = &object.metadata;
        (
            meta.namespace.clone().unwrap_or_default(),
            meta.name.clone().unwrap_or_default(),
        )
    };
    let brought: BTreeSet<_> = objects
        .iter()
        .filter(|object| kind(object) == "Secret")
        .map(place)
        .collect();
    let mut managers = Vec::new();
    for object in objects.iter().filter(|object| kind(object) == "Deployment") {
        let (namespace, deployment) = place(object);
        let volumes = object.data.pointer("/spec/template/spec/volumes");
        let secrets = volumes
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(|volume| volume["secret"]["secretName"].as_str());
        for secret in secrets {
            if brought.contains(&(namespace.clone(), secret.to_owned())) {
                continue;
            }
            let services = objects
                .iter()
                .filter(|object| kind(object) == "Service")
                .map(place);
            let names = services
                .filter(|(of, _)| *of == namespace)
                .flat_map(|(of, service)| {
                    [
                        format!("{service}.{of}.svc"),
                        format!("{service}.{of}.svc.cluster.local"),
                    ]
                })
                .collect();
            managers.push(Manager {
                namespace: namespace.clone(),
                deployment: deployment.clone(),
                secret: secret.to_owned(),
                names,
            });
        }
    }
    managers
}

/// A Secret of this CA stays; another is replaced, and the manager reads the new one by itself.
async fn keep_certificate(client: &Client, pki: &Pki, manager: &Manager) -> Result<()> {
    let api: Api<Secret> = Api::namespaced(client.clone(), &manager.namespace);
    let ca = &pki.site.certificate;
    let found = api
        .get_opt(&manager.secret)
        .await
        .with_context(|| format!("asking for the Secret {}", manager.secret))?;
    let has_ca = found.is_some_and(|secret| {
        let data = secret.data.unwrap_or_default();
        data.get("ca.crt")
            .is_some_and(|found| found.0 == ca.as_bytes())
    });
    if has_ca {
        return Ok(());
    }
    let pair = pki.site.issue(
        &CertSpec::for_webhook(&manager.names),
        clock::wall_seconds(),
    )?;
    let secret = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": {"name": manager.secret, "namespace": manager.namespace},
        "stringData": {"tls.crt": pair.certificate, "tls.key": pair.key, "ca.crt": ca},
    });
    api.patch(
        &manager.secret,
        &PatchParams::apply(MANAGER).force(),
        &Patch::Apply(&secret),
    )
    .await
    .with_context(|| format!("writing the Secret {}", manager.secret))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const TEXT: &str = "
apiVersion: v1
kind: Namespace
metadata: {name: capi-system}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: clusters.cluster.x-k8s.io}
spec:
  conversion: {strategy: Webhook, webhook: {clientConfig: {service: {name: capi-webhook-service, namespace: capi-system}}}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: plain.cluster.x-k8s.io}
spec: {group: cluster.x-k8s.io}
---
apiVersion: v1
kind: Service
metadata: {name: capi-webhook-service, namespace: capi-system}
---
apiVersion: v1
kind: Service
metadata: {name: other, namespace: elsewhere}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: capi-controller-manager, namespace: capi-system}
spec:
  template:
    spec:
      volumes: [{name: cert, secret: {secretName: capi-webhook-service-cert}}, {name: tmp, emptyDir: {}}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: capi}
webhooks: [{name: a, clientConfig: {}}, {name: b, clientConfig: {}}]
";

    #[test]
    fn every_place_for_a_ca_is_filled_and_nothing_else_is_touched() {
        let before = apply::parse_manifest(TEXT).unwrap();
        let mut objects = before.clone();
        fill_ca(&mut objects, "PEM");
        let bundle = STANDARD.encode("PEM");
        assert_eq!(
            objects[1].data["spec"]["conversion"]["webhook"]["clientConfig"]["caBundle"],
            bundle
        );
        assert_eq!(
            objects[6].data["webhooks"][1]["clientConfig"]["caBundle"],
            bundle
        );
        for untouched in [0, 2, 3, 4, 5] {
            assert_eq!(
                serde_json::to_value(&objects[untouched]).unwrap(),
                serde_json::to_value(&before[untouched]).unwrap()
            );
        }
    }

    #[test]
    fn a_manager_is_called_by_the_services_of_its_namespace() {
        let objects = apply::parse_manifest(TEXT).unwrap();
        assert_eq!(
            managers(&objects),
            [Manager {
                namespace: "capi-system".into(),
                deployment: "capi-controller-manager".into(),
                secret: "capi-webhook-service-cert".into(),
                names: vec![
                    "capi-webhook-service.capi-system.svc".into(),
                    "capi-webhook-service.capi-system.svc.cluster.local".into(),
                ],
            }]
        );
    }
}
