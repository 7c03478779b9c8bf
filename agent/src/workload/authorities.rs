//! Whom the programs of a workload cluster believe: what its own objects say of that, and which pods have read only what was there before.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context, Result};
use firstlight_api::authorities::{LABEL, certificates, with_data};
use k8s_openapi::{
    api::{
        apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet},
        core::v1::{ConfigMap, Pod, Volume},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
    jiff::{SignedDuration, Timestamp},
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{ListParams, Patch, PatchParams},
};
use serde::de::DeserializeOwned;
use serde_json::json;

use super::each;

/// Kubernetes' own, in each namespace: what pods believe.
const ROOT: &str = "kube-root-ca.crt";
/// What those believe who join.
const CLUSTER_INFO: &str = "cluster-info";
/// A kubelet may be behind what it gives to a new pod by so much.
const BEHIND: SignedDuration = SignedDuration::from_secs(30);
/// Of a kubelet's own pods, which ask nobody for anything.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// When each namespace had them.
pub type Published = BTreeMap<String, Timestamp>;

/// Whoever joins from now on believes these.
pub async fn tell_newcomers(client: &Client, wanted: &str) -> Result<()> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "kube-public");
    let map = maps.get(CLUSTER_INFO).await;
    let map = map.with_context(|| format!("reading the ConfigMap {CLUSTER_INFO}"))?;
    let kubeconfig = map.data.and_then(|mut data| data.remove("kubeconfig"));
    let text = kubeconfig.with_context(|| format!("{CLUSTER_INFO} has no kubeconfig"))?;
    let changed = with_data(&text, "certificate-authority-data", wanted)
        .with_context(|| format!("{CLUSTER_INFO} does not say whom to believe"))?;
    if changed == text {
        return Ok(());
    }
    let patch = json!({"data": {"kubeconfig": changed}});
    let patched = maps
        .patch(CLUSTER_INFO, &PatchParams::default(), &Patch::Merge(patch))
        .await;
    patched
        .map(drop)
        .with_context(|| format!("writing the ConfigMap {CLUSTER_INFO}"))
}

/// `Err` with a namespace that does not have them all yet.
pub async fn published(client: &Client, wanted: &str) -> Result<Result<Published, String>> {
    let maps: Api<ConfigMap> = Api::all(client.clone());
    let named = ListParams::default().fields(&format!("metadata.name={ROOT}"));
    let mut found = Vec::new();
    each(&maps, named, |map| found.push(map)).await?;
    let mut published = Published::new();
    for map in found {
        let namespace = map.namespace().unwrap_or_default();
        let text = map.data.as_ref().and_then(|data| data.get("ca.crt"));
        match since(&map) {
            Some(since) if text.is_some_and(|text| has_all(text, wanted)) => {
                published.insert(namespace, since);
            }
            _ => return Ok(Err(namespace)),
        }
    }
    Ok(Ok(published))
}

fn has_all(text: &str, wanted: &str) -> bool {
    let (Some(has), Some(wanted)) = (certificates(text), certificates(wanted)) else {
        return false;
    };
    !wanted.is_empty() && wanted.iter().all(|one| has.contains(one))
}

/// By the clock of its API server.
fn since(map: &ConfigMap) -> Option<Timestamp> {
    let fields = map.metadata.managed_fields.iter().flatten();
    let written = fields
        .filter_map(|field| field.time.as_ref())
        .map(|time| time.0);
    written
        .max()
        .or(Some(map.metadata.creation_timestamp.as_ref()?.0))
}

/// What still runs with less, for people; whoever has made such pods is made to make them anew, as `kubectl rollout restart` does.
pub async fn renew_pods(
    client: &Client,
    published: &Published,
    rotation: &str,
) -> Result<Vec<String>> {
    let mut behind = Vec::new();
    let pods: Api<Pod> = Api::all(client.clone());
    each(&pods, ListParams::default(), |pod| {
        behind.extend(is_behind(&pod, published).then_some(pod));
    })
    .await?;
    let mut left = Vec::new();
    for pod in &behind {
        let namespace = pod.namespace().unwrap_or_default();
        left.push(format!("{namespace}/{}", pod.name_any()));
        let Some((kind, name)) = owner(&pod.metadata) else {
            continue;
        };
        let client = client.clone();
        match kind {
            "ReplicaSet" => {
                let sets: Api<ReplicaSet> = Api::namespaced(client.clone(), &namespace);
                let set = sets.get_opt(name).await.context("reading a ReplicaSet")?;
                if let Some(("Deployment", name)) =
                    set.as_ref().and_then(|set| owner(&set.metadata))
                {
                    restart::<Deployment>(Api::namespaced(client, &namespace), name, rotation)
                        .await?;
                }
            }
            "DaemonSet" => {
                restart::<DaemonSet>(Api::namespaced(client, &namespace), name, rotation).await?;
            }
            "StatefulSet" => {
                restart::<StatefulSet>(Api::namespaced(client, &namespace), name, rotation).await?;
            }
            _ => {}
        }
    }
    Ok(left)
}

/// It began before it could have read them all, and reads them.
fn is_behind(pod: &Pod, published: &Published) -> bool {
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    let volumes = pod
        .spec
        .iter()
        .flat_map(|spec| spec.volumes.iter().flatten());
    if matches!(phase, Some("Succeeded" | "Failed"))
        || pod.annotations().contains_key(MIRROR)
        || !volumes.into_iter().any(reads_root)
    {
        return false;
    }
    let since = published.get(&pod.namespace().unwrap_or_default());
    let created = pod.metadata.creation_timestamp.as_ref();
    match (since, created) {
        (Some(since), Some(created)) => created.0 < *since + BEHIND,
        // Of a namespace that has come since.
        _ => false,
    }
}

fn reads_root(volume: &Volume) -> bool {
    let projected = volume
        .projected
        .iter()
        .flat_map(|projected| projected.sources.iter().flatten());
    let mut maps = projected
        .filter_map(|source| source.config_map.as_ref())
        .map(|map| map.name.as_str());
    let own = volume.config_map.as_ref().map(|map| map.name.as_str());
    own == Some(ROOT) || maps.any(|name| name == ROOT)
}

fn owner(meta: &ObjectMeta) -> Option<(&str, &str)> {
    let owners = meta.owner_references.iter().flatten();
    let mut owners = owners.filter(|owner| owner.controller == Some(true));
    owners
        .next()
        .map(|owner| (owner.kind.as_str(), owner.name.as_str()))
}

async fn restart<R>(api: Api<R>, name: &str, rotation: &str) -> Result<()>
where
    R: Clone + DeserializeOwned + std::fmt::Debug,
{
    let annotations = json!({"annotations": {LABEL: rotation}});
    let patch = json!({"spec": {"template": {"metadata": annotations}}});
    let patched = api
        .patch(name, &PatchParams::default(), &Patch::Merge(patch))
        .await;
    patched
        .map(drop)
        .with_context(|| format!("restarting {name}"))
}

/// How long to wait for [`renew_pods`] after the last namespace had them.
pub fn settles_in(published: &Published) -> Duration {
    let last = published.values().max();
    let wait = last.map(|last| Timestamp::now().duration_until(*last + BEHIND));
    // Clocks that are apart make nobody wait for longer than that.
    let wait = wait.unwrap_or_default().min(BEHIND);
    wait.try_into().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::Value;

    use super::*;

    fn pod(change: impl FnOnce(&mut Value)) -> Pod {
        let mut pod = json!({
            "metadata": {"name": "web", "namespace": "team", "creationTimestamp": "2026-11-29T06:00:00Z"},
            "spec": {"containers": [], "volumes": [
                {"name": "data"},
                {"name": "api", "projected": {"sources": [{"configMap": {"name": ROOT}}]}},
            ]},
            "status": {"phase": "Running"},
        });
        change(&mut pod);
        serde_json::from_value(pod).unwrap()
    }

    fn published(at: &str) -> Published {
        [("team".to_owned(), at.parse().unwrap())].into()
    }

    #[test]
    fn a_pod_is_behind_that_may_have_read_less() {
        let before = published("2026-11-29T05:59:00Z");
        let just_now = published("2026-11-29T05:59:45Z");
        let after = published("2026-11-29T06:10:00Z");
        let whole = || pod(|_| ());
        assert!(!is_behind(&whole(), &before));
        assert!(is_behind(&whole(), &just_now) && is_behind(&whole(), &after));
        let by_itself = json!([{"name": "api", "configMap": {"name": ROOT}}]);
        assert!(is_behind(
            &pod(|pod| pod["spec"]["volumes"] = by_itself),
            &after
        ));
        for change in [
            (|pod| pod["spec"]["volumes"] = json!([{"name": "data"}])) as fn(&mut Value),
            |pod| pod["status"]["phase"] = json!("Succeeded"),
            |pod| pod["metadata"]["annotations"] = json!({MIRROR: "x"}),
            |pod| pod["metadata"]["namespace"] = json!("new"),
        ] {
            assert!(!is_behind(&pod(change), &after));
        }
    }

    #[test]
    fn a_namespace_has_them_when_all_are_there() {
        let one = |name: &str| {
            format!("-----BEGIN CERTIFICATE-----\n{name}\n-----END CERTIFICATE-----\n")
        };
        let both = one("A") + &one("B");
        assert!(has_all(&(one("B") + &one("A")), &both));
        assert!(has_all(both.trim_end(), &both));
        for (text, wanted) in [
            (one("A"), both.clone()),
            (String::new(), both),
            (one("A"), String::new()),
        ] {
            assert!(!has_all(&text, &wanted), "{text}");
        }
    }

    #[test]
    fn nobody_waits_longer_than_a_kubelet_is_behind() {
        assert_eq!(settles_in(&Published::new()), Duration::ZERO);
        assert_eq!(
            settles_in(&published("2026-01-01T00:00:00Z")),
            Duration::ZERO
        );
        assert!(settles_in(&published("2126-01-01T00:00:00Z")) <= Duration::from_secs(30));
    }

    proptest::proptest! {
        #[test]
        fn whatever_a_cluster_says_of_a_pod_it_is_behind_or_not(
            name in ".{0,20}", phase in ".{0,9}", kind in ".{0,12}", controls: bool,
        ) {
            let pod = pod(|pod| {
                pod["spec"]["volumes"][1]["projected"]["sources"][0]["configMap"]["name"] = json!(name);
                pod["status"]["phase"] = json!(phase);
                pod["metadata"]["ownerReferences"] =
                    json!([{"apiVersion": "v1", "kind": kind, "name": name, "uid": "", "controller": controls}]);
            });
            let is_owned = owner(&pod.metadata) == Some((kind.as_str(), name.as_str()));
            proptest::prop_assert_eq!(is_owned, controls);
            let after = published("2026-11-29T06:10:00Z");
            proptest::prop_assert_eq!(is_behind(&pod, &after), name == ROOT && phase != "Succeeded" && phase != "Failed");
        }
    }
}
