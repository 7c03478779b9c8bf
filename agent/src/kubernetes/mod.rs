//! The box's Kubernetes, seen from the agent: waits for its parts, applies what belongs on it, watches that it stays well.
//!
//! systemd starts the parts and kubelet the pods; the agent only looks. Must not: restart or repair anything, but for
//! etcd's room (`etcd_space`): a full etcd waits for somebody who says that it may go on.
//! To add a part: a [`StepName`] and a probe in [`run`].

mod apply;
mod client;
mod cluster_api;
pub mod conversion;
mod etcd_space;
mod health;
mod probe;
pub mod refused;
pub mod secrets;
pub mod workloads;

pub use etcd_space::{Etcdctl, Relief, Space};
use health::Health;

pub use apply::parse_manifest;
#[cfg(test)]
mod tests;

use std::{future::Future, sync::Arc, time::Duration};

use anyhow::{Context, Result};
use kube::Client;
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

use firstlight_api::{
    names::WORKLOADS,
    site::{ClusterChoice, SiteConfig, Standing},
    status::Problem,
};

use crate::{
    damage,
    ironic_files::IronicAccess,
    paths::Paths,
    pki::Pki,
    status::{StatusSender, StepName},
};

/// Between two looks at a part that is not well yet, and at one that is.
const LOOK: Duration = Duration::from_secs(1);
const LOOK_AGAIN: Duration = Duration::from_secs(30);
/// The registry's Deployment, beside the other manifests.
const REGISTRY_FILE: &str = "registry.yaml";
const REGISTRY_NAMESPACE: &str = "kube-system";
/// After this a part that did not come up counts as failed; an emulated box needs some minutes.
const PATIENCE: Duration = Duration::from_mins(5);

/// What the rest of the agent knows.
pub struct Known {
    pub site: watch::Receiver<Option<Arc<SiteConfig>>>,
    pub ironic: watch::Receiver<Option<IronicAccess>>,
}

/// What is told once it is so.
pub struct Published {
    /// The API server answers.
    pub client: watch::Sender<Option<Client>>,
    /// Cluster API's kinds are served, and its managers run.
    pub cluster_api: watch::Sender<bool>,
}

/// Follows the bring-up until `stop`.
pub async fn run(
    paths: Paths,
    status: StatusSender,
    pki: Arc<Pki>,
    known: Known,
    published: Published,
    stop: CancellationToken,
) -> Result<()> {
    let part = |step, unit| Part {
        step,
        unit,
        status: status.clone(),
    };
    let etcd_client = probe::etcd_client(&paths)?;
    let follow = async {
        let etcd = part(StepName::Etcd, "etcd");
        let etcd_well = || probe::healthy(&etcd_client, "/health");
        etcd.comes_up(etcd_well).await;

        let apiserver = part(StepName::Apiserver, "kube-apiserver");
        let api = client::load_client(&paths).await?;
        let api_well = || probe::healthy(&api, "/readyz");
        apiserver.comes_up(api_well).await;
        let health = Health::watch(api.clone());

        let [node, coredns, pod, registry, clusters] = [
            StepName::Node,
            StepName::Coredns,
            StepName::Ironic,
            StepName::Registry,
            StepName::ClusterApi,
        ]
        .map(|step| part(step, "kubelet"));
        tokio::join!(
            async {
                wait_until_accepted(&paths, &status).await;
                published.client.send_replace(Some(api.clone()));
            },
            secrets::keep(&api, &paths, &status),
            etcd.stays(etcd_well),
            apiserver.stays(api_well),
            async {
                let well = || health.is_node_ready();
                node.comes_up(well).await;
                tokio::join!(node.stays(well), keep_workloads(&api, &known.site, &status));
            },
            async {
                coredns
                    .answers(|| apply::apply_all(&api, &paths, &pki))
                    .await;
                let well = || health.is_available("kube-system", "coredns");
                tokio::join!(
                    coredns.comes_up_and_stays(well),
                    registry.follow_registry(&health, &known.ironic, &paths),
                );
            },
            async {
                let well = || is_ironic_well(&known.ironic);
                // One after the other: a server can be inspected and written while Cluster API comes up, and a small box that
                // starts both at once has neither for a long time.
                let up = tokio::time::timeout(PATIENCE, pod.comes_up(well)).await;
                tokio::join!(
                    async {
                        if up.is_err() {
                            pod.comes_up(well).await;
                        }
                        pod.stays(well).await;
                    },
                    clusters.follow_cluster_api(
                        &api,
                        &health,
                        &paths,
                        &pki,
                        &known.site,
                        &published.cluster_api
                    ),
                );
            },
            async {
                // Last: each definition makes the API server think over all that it serves.
                let mut clusters = published.cluster_api.subscribe();
                if has_clusters(&known.site).await && clusters.wait_for(|up| *up).await.is_err() {
                    return;
                }
                Box::pin(refuse_kinds(&api, &status)).await;
            },
        );
        Ok(())
    };
    tokio::select! {
        result = follow => result,
        // From the first moment on: an alarm outlives a restart, and etcd is not well while it is raised.
        () = etcd_space::keep(&etcd_client, &paths, &status) => Ok(()),
        () = stop.cancelled() => Ok(()),
    }
}

/// Only a site that has clusters carries the weight of Cluster API.
async fn has_clusters(site: &watch::Receiver<Option<Arc<SiteConfig>>>) -> bool {
    let mut site = site.clone();
    let site = site.wait_for(Option::is_some).await;
    site.is_ok_and(|site| {
        site.as_ref()
            .is_some_and(|site| site.cluster != ClusterChoice::None)
    })
}

/// Pods of people on the box, as `site.yaml` says at the start.
async fn keep_workloads(
    api: &Client,
    site: &watch::Receiver<Option<Arc<SiteConfig>>>,
    status: &StatusSender,
) {
    let mut site = site.clone();
    let Ok(site) = site
        .wait_for(Option::is_some)
        .await
        .map(|site| site.clone())
    else {
        return;
    };
    // A file that cannot be read says nothing of them.
    let Some(site) = site.filter(|site| site.standing != Standing::Unknown) else {
        return;
    };
    let wanted = site.box_workloads;
    loop {
        match workloads::keep(api, wanted).await {
            Ok(problems) => return status.problems(WORKLOADS, problems),
            Err(error) => {
                let problem = Problem {
                    what: format!("people cannot run pods on the box yet: {error:#}"),
                    next: "nothing: the box tries again".to_owned(),
                };
                status.problems(WORKLOADS, vec![problem]);
            }
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

async fn refuse_kinds(api: &Client, status: &StatusSender) {
    while let Err(error) = refused::apply_all(api).await {
        let problem = Problem {
            what: format!(
                "kinds that the box does not serve are unknown instead of refused: {error:#}"
            ),
            next: "nothing: the box tries again".to_owned(),
        };
        status.problems("refused-kinds", vec![problem]);
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    status.problems("refused-kinds", Vec::new());
}

/// Objects of a restored etcd are shown to people first: whoever acts on them is not told of the API before.
async fn wait_until_accepted(paths: &Paths, status: &StatusSender) {
    while let Some(problem) = damage::restored_etcd(paths) {
        status.problems("etcd", vec![problem]);
        tokio::time::sleep(LOOK).await;
    }
    status.problems("etcd", Vec::new());
}

/// One part of the bring-up.
struct Part {
    step: StepName,
    /// Whose journal explains a failure.
    unit: &'static str,
    status: StatusSender,
}

impl Part {
    /// Returns when the probe succeeds. The step stays open.
    async fn answers<F: Future<Output = Result<()>>>(&self, probe: impl Fn() -> F) {
        self.status.running(self.step);
        let since = Instant::now();
        let mut told = false;
        while let Err(error) = probe().await {
            tracing::debug!(
                step = self.step.name(),
                error = format!("{error:#}"),
                "not well yet"
            );
            if !told && since.elapsed() > PATIENCE {
                self.failed(&error);
                told = true;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn comes_up<F: Future<Output = Result<()>>>(&self, probe: impl Fn() -> F) {
        self.answers(probe).await;
        self.status.done(self.step);
    }

    /// Watches for ever a part that came up: failed when it stops answering, done when it does again.
    async fn stays<F: Future<Output = Result<()>>>(&self, probe: impl Fn() -> F) {
        loop {
            tokio::time::sleep(LOOK_AGAIN).await;
            // One lost answer of a busy box is no news.
            if probe().await.is_err()
                && let Err(error) = probe().await
            {
                self.failed(&error);
                while probe().await.is_err() {
                    tokio::time::sleep(LOOK).await;
                }
                self.status.done(self.step);
            }
        }
    }

    async fn comes_up_and_stays<F: Future<Output = Result<()>>>(&self, probe: impl Fn() -> F) {
        self.comes_up(&probe).await;
        self.stays(&probe).await;
    }

    /// Applied with the other manifests, if the stick brings it.
    async fn follow_registry(
        &self,
        health: &Health,
        access: &watch::Receiver<Option<IronicAccess>>,
        paths: &Paths,
    ) {
        if !paths.manifests().join(REGISTRY_FILE).exists() {
            self.status.done(self.step);
            return;
        }
        let well = || async {
            health.is_available(REGISTRY_NAMESPACE, "registry").await?;
            let access = access.borrow().clone();
            let access = access.context("waiting for the provisioning address")?;
            probe::healthy(&probe::registry_client(&access)?, "/v2/").await
        };
        self.comes_up_and_stays(well).await;
    }

    async fn follow_cluster_api(
        &self,
        api: &Client,
        health: &Health,
        paths: &Paths,
        pki: &Pki,
        site: &watch::Receiver<Option<Arc<SiteConfig>>>,
        there: &watch::Sender<bool>,
    ) {
        if !has_clusters(site).await {
            self.status.done(self.step);
            return;
        }
        let managers = std::sync::Mutex::new(Vec::new());
        self.answers(|| async {
            let found = cluster_api::apply(api, paths, pki).await?;
            *managers
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner) = found;
            Ok(())
        })
        .await;
        let managers = managers.into_inner().unwrap_or_default();
        let well = || async {
            for manager in &managers {
                let (namespace, deployment) = (&manager.namespace, &manager.deployment);
                health.is_available(namespace, deployment).await?;
            }
            Ok(())
        };
        self.comes_up(well).await;
        there.send_replace(true);
        self.stays(well).await;
    }

    fn failed(&self, error: &anyhow::Error) {
        let next = format!(
            "the box keeps trying; log in as admin and read `journalctl -u {}`",
            self.unit
        );
        self.status.failed(
            self.step,
            format!("{} is not well: {error:#}", self.step.title()),
            next,
        );
    }
}

async fn is_ironic_well(access: &watch::Receiver<Option<IronicAccess>>) -> Result<()> {
    let access = access
        .borrow()
        .clone()
        .context("waiting for the provisioning address")?;
    probe::healthy(&probe::ironic_client(&access)?, "/v1").await
}
