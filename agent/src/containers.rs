//! Which of the store's images the pods of workload clusters run, so that nobody deletes one that is needed when a pod starts
//! again.

use std::time::Duration;

use anyhow::{Context, Result};
use firstlight_api::artifact::Kind;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::{Api, Client, ResourceExt, api::ListParams};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    clock,
    status::{Failing, StatusSender},
    store::{Reference, Store, Target, User},
    workload,
};

const LOOK: Duration = Duration::from_secs(30);
/// Pods in one answer: a large cluster fills no memory.
const AT_ONCE: u32 = 50;
const CLUSTER_LABEL: &str = "cluster.x-k8s.io/cluster-name";

/// Runs until `stop`. While a cluster does not answer, what was known last holds.
pub async fn run(
    mut kubernetes: watch::Receiver<Option<Client>>,
    mut store: watch::Receiver<Option<Store>>,
    status: StatusSender,
    stop: CancellationToken,
) -> Result<()> {
    let mut failing = Failing::new(
        status,
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
    let secrets: Api<Secret> = Api::all(client.clone());
    let labelled = ListParams::default().labels(CLUSTER_LABEL);
    let listed = secrets.list_metadata(&labelled).await;
    let mut images = Vec::new();
    for secret in listed.context("listing clusters")? {
        let cluster = &secret.labels()[CLUSTER_LABEL];
        let namespace = secret.namespace().unwrap_or_default();
        if secret.name_any() != format!("{cluster}-kubeconfig") {
            continue;
        }
        if let Some(kubeconfig) = workload::kubeconfig(client, &namespace, cluster).await? {
            images_of(cluster, &kubeconfig, &mut images)
                .await
                .with_context(|| format!("asking the cluster {cluster} for its pods"))?;
        }
    }
    Ok(images)
}

async fn images_of(
    cluster: &str,
    kubeconfig: &str,
    images: &mut Vec<(String, String)>,
) -> Result<()> {
    let pods: Api<Pod> = Api::all(workload::client(kubeconfig).await?);
    let mut page = ListParams::default().limit(AT_ONCE);
    loop {
        let listed = pods.list(&page).await?;
        for pod in listed.items {
            let name = format!(
                "pod {}/{} of the cluster {cluster}",
                pod.namespace().unwrap_or_default(),
                pod.name_any()
            );
            let spec = pod.spec.unwrap_or_default();
            let containers = spec.init_containers.into_iter().flatten();
            for container in containers.chain(spec.containers) {
                images.extend(container.image.map(|image| (name.clone(), image)));
            }
        }
        match listed.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page.continue_token = Some(token),
            None => return Ok(()),
        }
    }
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

    proptest::proptest! {
        #[test]
        fn no_name_of_an_image_breaks_it(image in ".{0,60}|[a-z/:@.]{0,60}") {
            let _ = reference(("pod".to_owned(), image));
        }
    }
}
