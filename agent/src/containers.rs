//! Images of the pods of workload clusters, and of people on the box: which of the store's they run, so that nobody deletes one that is
//! needed when a pod starts again; and which their machines could not fetch, with the way to bring them, on the page and as an event of the pod.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anyhow::{Context, Result};
use firstlight_api::{
    artifact::Kind,
    bounded,
    names::{REGISTRY, WORKLOADS},
    site::SiteConfig,
    status::Problem,
};
use k8s_openapi::api::core::v1::{Event, Pod, Secret};
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, PostParams},
};
use serde_json::json;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    clock,
    status::{Failing, StatusSender},
    store::{Reference, Store, Target, User},
    workload,
};

const LOOK: Duration = Duration::from_secs(30);
const CLUSTER_LABEL: &str = "cluster.x-k8s.io/cluster-name";
/// Images that are named on the page; the rest are counted.
const MOST_NAMED: usize = 5;
/// Bytes of a reference, more than any registry takes.
const LONGEST_NAME: usize = 400;

/// Runs until `stop`. While a cluster does not answer, what was known last holds.
pub async fn run(
    mut kubernetes: watch::Receiver<Option<Client>>,
    mut store: watch::Receiver<Option<Store>>,
    site: watch::Receiver<Option<Arc<SiteConfig>>>,
    cluster_api: watch::Receiver<bool>,
    status: StatusSender,
    stop: CancellationToken,
) -> Result<()> {
    let mut failing = Failing::new(
        status.clone(),
        "pod-images",
        "which images the pods of clusters run is not known, so none is deleted that one of them ran last",
    );
    let work = async {
        let Some(client) = kubernetes.wait_for(Option::is_some).await?.clone() else {
            return Ok(());
        };
        let Some(store) = store.wait_for(Option::is_some).await?.clone() else {
            return Ok(());
        };
        loop {
            let mut artifacts = store.list().into_iter();
            if artifacts.any(|artifact| artifact.spec.kind == Kind::Container) {
                let images = images(&client).await;
                failing.went(&images, clock::uptime());
                if let Ok(images) = images {
                    let references = images.into_iter().filter_map(reference);
                    store.note(User::Pods, references.collect());
                }
            }
            let on_box = || {
                site.borrow()
                    .as_ref()
                    .is_some_and(|site| site.box_workloads)
            };
            // A site without any pods of people is asked for nothing.
            if *cluster_api.borrow() || on_box() {
                match missing(&client).await {
                    Ok(missing) => status.problems("missing-images", problems(&missing)),
                    // Other controllers tell of a box that does not answer.
                    Err(error) => tracing::debug!(
                        error = format!("{error:#}"),
                        "nobody looked for missing images"
                    ),
                }
            }
            tokio::time::sleep(LOOK).await;
        }
    };
    tokio::select! {
        result = work => result,
        () = stop.cancelled() => Ok(()),
    }
}

/// What a pod's image is in the box's store, by whatever name of the registry. By a digest any version may be meant.
fn reference((by, image): (String, String)) -> Option<Reference> {
    let (image, digest) = match image.split_once('@') {
        Some((image, _)) => (image, true),
        None => (&image[..], false),
    };
    let (_, path) = image.split_once('/')?;
    let to = match path.split_once(':') {
        Some((name, tag)) => Target::Version {
            name: name.to_owned(),
            version: tag.to_owned(),
        },
        None if digest => Target::Any {
            name: path.to_owned(),
        },
        None => Target::Version {
            name: path.to_owned(),
            version: "latest".to_owned(),
        },
    };
    Some(Reference { by, to })
}

/// Of each container of each pod of each cluster: the pod's name for people, and the image.
pub async fn images(client: &Client) -> Result<Vec<(String, String)>> {
    let mut images = Vec::new();
    let on_box = Api::namespaced(client.clone(), WORKLOADS);
    images_of("the box", &on_box, &mut images)
        .await
        .context("asking the box for its pods")?;
    for (cluster, kubeconfig) in clusters(client).await? {
        let cluster = format!("the cluster {cluster}");
        let asked = async {
            let pods = Api::all(workload::client(&kubeconfig).await?);
            images_of(&cluster, &pods, &mut images).await
        };
        asked
            .await
            .with_context(|| format!("asking {cluster} for its pods"))?;
    }
    Ok(images)
}

/// Name and kubeconfig of each that has one.
async fn clusters(client: &Client) -> Result<Vec<(String, String)>> {
    let secrets: Api<Secret> = Api::all(client.clone());
    let labelled = ListParams::default().labels(CLUSTER_LABEL);
    let listed = secrets.list_metadata(&labelled).await;
    let mut clusters = Vec::new();
    for secret in listed.context("listing clusters")? {
        let cluster = &secret.labels()[CLUSTER_LABEL];
        let namespace = secret.namespace().unwrap_or_default();
        if secret.name_any() != format!("{cluster}-kubeconfig") {
            continue;
        }
        let kubeconfig = workload::kubeconfig(client, &namespace, cluster).await?;
        clusters.extend(kubeconfig.map(|kubeconfig| (cluster.clone(), kubeconfig)));
    }
    Ok(clusters)
}

/// By cluster (or the box) and image: a pod that waits for it, for people. A cluster that does not answer has none.
pub async fn missing(client: &Client) -> Result<BTreeMap<(String, String), String>> {
    let mut missing = BTreeMap::new();
    let on_box = Api::namespaced(client.clone(), WORKLOADS);
    missing_of("the box", client, &on_box, &mut missing).await?;
    for (cluster, kubeconfig) in clusters(client).await? {
        let cluster = format!("the cluster {cluster}");
        let asked = async {
            let client = workload::client(&kubeconfig).await?;
            missing_of(&cluster, &client, &Api::all(client.clone()), &mut missing).await
        };
        if let Err(error) = asked.await {
            tracing::debug!(
                cluster,
                error = format!("{error:#}"),
                "nobody looked for missing images"
            );
        }
    }
    Ok(missing)
}

async fn missing_of(
    of: &str,
    client: &Client,
    pods: &Api<Pod>,
    missing: &mut BTreeMap<(String, String), String>,
) -> Result<()> {
    // Of very many that wait at once the first are enough: what they miss is mended first.
    let pending = ListParams::default()
        .fields("status.phase=Pending")
        .limit(workload::AT_ONCE);
    for pod in pods.list(&pending).await?.items {
        let namespace = pod.namespace().unwrap_or_default();
        for image in not_fetched(&pod) {
            let events: Api<Event> = Api::namespaced(client.clone(), &namespace);
            // One that is there already says the same.
            let told = events
                .create(&PostParams::default(), &event(&pod, &image))
                .await;
            if let Err(error) = told {
                tracing::trace!(%error, "the pod is not told");
            }
            let name = format!("{namespace}/{}", pod.name_any());
            missing.insert((of.to_owned(), image), name);
        }
    }
    Ok(())
}

/// Images of the pod that its node could not fetch.
fn not_fetched(pod: &Pod) -> Vec<String> {
    let status = pod.status.iter();
    let containers = status.flat_map(|status| {
        let init = status.init_container_statuses.iter();
        init.chain(&status.container_statuses).flatten()
    });
    let waits = containers.filter(|container| {
        let waiting = container
            .state
            .as_ref()
            .and_then(|state| state.waiting.as_ref());
        let reason = waiting.and_then(|waiting| waiting.reason.as_deref());
        matches!(reason, Some("ErrImagePull" | "ImagePullBackOff"))
    });
    // People copy it into a shell.
    let is_plain = |image: &&String| {
        let known = |byte: u8| byte.is_ascii_alphanumeric() || b"._-/:@".contains(&byte);
        image.len() <= LONGEST_NAME && image.bytes().all(known)
    };
    let images = waits.map(|container| &container.image);
    images.filter(is_plain).cloned().collect()
}

/// What is to be done, and what the pod's manifest says then.
fn way(image: &str) -> String {
    let (host, path) = match image.split_once('/') {
        Some((host, path)) if host.contains(['.', ':']) || host == "localhost" => (host, path),
        _ => ("", image),
    };
    let push = format!(
        "where the image is, `docker save {image} -o image.tar` and `firstlight push image.tar`"
    );
    if host == REGISTRY {
        format!("the box does not have it: {push}")
    } else {
        format!("servers could not fetch it: {push}, and name it {REGISTRY}/{path} in the pod")
    }
}

fn event(pod: &Pod, image: &str) -> Event {
    let (name, namespace) = (pod.name_any(), pod.namespace().unwrap_or_default());
    let now = clock::rfc3339();
    let event = json!({
        // One for each pod, and so no more of them however long it waits.
        "metadata": {"name": format!("{name}.image-not-fetched"), "namespace": namespace},
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", "name": name, "namespace": namespace, "uid": pod.uid()},
        "reason": "ImageNotFetched",
        "message": format!("{image}: {}", way(image)),
        "type": "Warning",
        "source": {"component": "firstlight"},
        "firstTimestamp": now, "lastTimestamp": now, "count": 1,
    });
    serde_json::from_value(event).unwrap_or_default()
}

fn problems(missing: &BTreeMap<(String, String), String>) -> Vec<Problem> {
    let mut problems: Vec<Problem> = missing
        .iter()
        .take(MOST_NAMED)
        .map(|((of, image), pod)| Problem {
            what: bounded::sentence(&format!(
                "the pod {pod} of {of} waits for the image {image}"
            )),
            next: way(image),
        })
        .collect();
    if let Some(others) = missing.len().checked_sub(MOST_NAMED + 1) {
        problems.push(Problem {
            what: format!("pods wait for {} more images", others + 1),
            next: "`kubectl get pods -A` shows them".to_owned(),
        });
    }
    problems
}

async fn images_of(of: &str, pods: &Api<Pod>, images: &mut Vec<(String, String)>) -> Result<()> {
    workload::each(pods, ListParams::default(), |pod| {
        let name = format!(
            "pod {}/{} of {of}",
            pod.namespace().unwrap_or_default(),
            pod.name_any()
        );
        let spec = pod.spec.unwrap_or_default();
        let containers = spec.init_containers.into_iter().flatten();
        for container in containers.chain(spec.containers) {
            images.extend(container.image.map(|image| (name.clone(), image)));
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_known_by_whatever_name_of_the_registry() {
        let version = |name: &str, version: &str| {
            let (name, version) = (name.to_owned(), version.to_owned());
            Some(Target::Version { name, version })
        };
        let any = |name: &str| {
            Some(Target::Any {
                name: name.to_owned(),
            })
        };
        for (image, target) in [
            (
                "registry.firstlight.internal/team/web:1",
                version("team/web", "1"),
            ),
            ("172.22.0.1:5000/team/web:1", version("team/web", "1")),
            ("172.22.0.1:5000/team/web@sha256:ab", any("team/web")),
            (
                "172.22.0.1:5000/team/web:1@sha256:ab",
                version("team/web", "1"),
            ),
            (
                "registry.firstlight.internal/team/web",
                version("team/web", "latest"),
            ),
            ("web:1", None),
            ("", None),
        ] {
            let found = reference(("pod".to_owned(), image.to_owned()));
            assert_eq!(found.map(|found| found.to), target, "{image}");
        }
    }

    fn waiting(reason: &str, image: &str) -> serde_json::Value {
        json!({
            "name": "a", "image": image, "imageID": "", "ready": false, "restartCount": 0,
            "state": {"waiting": {"reason": reason}},
        })
    }

    #[test]
    fn an_image_that_is_missing_is_named_with_the_way_to_bring_it() -> Result<()> {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "web-1", "namespace": "shop", "uid": "u"},
            "status": {
                "initContainerStatuses": [waiting("ErrImagePull", "registry.firstlight.internal/team/init:1")],
                "containerStatuses": [
                    waiting("PodInitializing", "a:1"),
                    waiting("ImagePullBackOff", "docker.io/library/nginx:1.27"),
                    waiting("ImagePullBackOff", "team/web:1"),
                ],
            },
        }))?;
        let images = not_fetched(&pod);
        assert_eq!(
            images,
            [
                "registry.firstlight.internal/team/init:1",
                "docker.io/library/nginx:1.27",
                "team/web:1"
            ]
        );
        let push = "where the image is, `docker save";
        assert!(way(&images[0]).starts_with(&format!("the box does not have it: {push}")));
        let elsewhere = way(&images[1]);
        assert!(
            elsewhere.starts_with("servers could not fetch it")
                && elsewhere.ends_with(
                    "name it registry.firstlight.internal/library/nginx:1.27 in the pod"
                ),
            "{elsewhere}"
        );
        assert!(way(&images[2]).ends_with("registry.firstlight.internal/team/web:1 in the pod"));
        let event = event(&pod, &images[2]);
        assert_eq!(event.involved_object.uid.as_deref(), Some("u"));

        let missing = |count: u8| {
            let all = (0..count).map(|at| {
                (
                    ("the cluster lab".to_owned(), format!("web:{at}")),
                    "shop/web".to_owned(),
                )
            });
            problems(&all.collect())
        };
        assert_eq!(
            missing(1)[0].what,
            "the pod shop/web of the cluster lab waits for the image web:0"
        );
        assert_eq!(missing(5).len(), 5);
        assert_eq!(missing(7)[5].what, "pods wait for 2 more images");
        Ok(())
    }

    proptest::proptest! {
        #[test]
        fn whatever_a_cluster_calls_an_image_is_told_as_a_plain_word_or_not(image in ".{0,60}|[a-z/:@.]{1,600}") {
            let status = json!({"containerStatuses": [waiting("ErrImagePull", &image)]});
            let Ok(pod) = serde_json::from_value::<Pod>(json!({"status": status})) else {
                return Ok(());
            };
            for told in not_fetched(&pod) {
                let message = event(&pod, &told).message.unwrap_or_default();
                proptest::prop_assert!(message.len() < 2000 && message.is_ascii() && !message.contains(['$', ';', '|', '\n']), "{message}");
            }
        }

        #[test]
        fn no_name_of_an_image_breaks_it(image in ".{0,60}|[a-z/:@.]{0,60}") {
            let _ = reference(("pod".to_owned(), image));
        }
    }
}
