//! When the certificates of clusters end, as Cluster API has read it from their control planes: told two months before. Cluster API
//! reads it once; before it would replace a server for it, it is made to read again, for the node renews them by itself
//! (`overlays/node/usr/lib/firstlight/renew-certificates`).
//! Must not: renew anything.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context, Result};
use firstlight_api::status::{CertificateEnd, Problem};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams},
};
use serde_json::json;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    clock,
    status::{Failing, StatusSender, Update},
};
use firstlight_api::capi::CLUSTER_LABEL;

const LOOK: Duration = Duration::from_hours(1);
/// After an error.
const AGAIN: Duration = Duration::from_secs(20);
const ANSWER: Duration = Duration::from_secs(20);
const DAY: i64 = 86_400;
/// Told from then on.
const SOON: i64 = 60 * DAY;
/// Read again from then on: nodes have renewed what lasts a year, and Cluster API has not yet begun to replace them.
const DOUBTED: i64 = (super::render::RENEW_DAYS + 25) * DAY;
/// Where Cluster API keeps what it has read.
const EXPIRY: &str = "machine.cluster.x-k8s.io/certificates-expiry";

pub async fn run(
    mut kubernetes: watch::Receiver<Option<Client>>,
    mut cluster_api: watch::Receiver<bool>,
    status: StatusSender,
    stop: CancellationToken,
) -> Result<()> {
    let what = "nobody knows when the clusters' certificates end";
    let mut failing = Failing::new(status.clone(), "certificates-loop", what);
    let work = async {
        let client = kubernetes.wait_for(Option::is_some).await?.clone();
        cluster_api.wait_for(|there| *there).await?;
        let Some(client) = client else { return Ok(()) };
        loop {
            let look = observe(&client, clock::wall_seconds());
            let found = tokio::time::timeout(ANSWER, look).await;
            let found = found.context("no answer").and_then(|found| found);
            failing.went(&found, clock::uptime());
            let pause = if found.is_ok() { LOOK } else { AGAIN };
            if let Ok(ends) = found {
                status.problems("certificates", problems(&ends, clock::wall_seconds()));
                status.send(Update::Certificates(ends));
            }
            tokio::time::sleep(pause).await;
        }
    };
    tokio::select! {
        result = work => result,
        () = stop.cancelled() => Ok(()),
    }
}

async fn observe(client: &Client, now: i64) -> Result<Vec<CertificateEnd>> {
    let kind = GroupVersionKind::gvk("cluster.x-k8s.io", "v1beta2", "Machine");
    let api = Api::<DynamicObject>::all_with(client.clone(), &ApiResource::from_gvk(&kind));
    let machines = api.list(&ListParams::default()).await;
    let machines = machines.context("listing machines")?.items;
    let kind = GroupVersionKind::gvk("bootstrap.cluster.x-k8s.io", "v1beta2", "KubeadmConfig");
    let resource = ApiResource::from_gvk(&kind);
    for (namespace, name) in doubted(&machines, now) {
        let api = Api::<DynamicObject>::namespaced_with(client.clone(), namespace, &resource);
        let forget = json!({"metadata": {"annotations": {EXPIRY: null}}});
        let told = api
            .patch(name, &PatchParams::default(), &Patch::Merge(forget))
            .await;
        // One that cannot be written keeps nobody from knowing when all of them end.
        if let Err(error) = told {
            tracing::warn!(name, %error, "its certificates are not read again");
        }
    }
    Ok(ends(&machines))
}

fn end(machine: &DynamicObject) -> Option<i64> {
    let end = machine.data["status"]["certificatesExpiryDate"].as_str()?;
    let end = OffsetDateTime::parse(end, &Rfc3339).ok()?;
    Some(end.unix_timestamp())
}

/// Namespaces and names of the bootstrap configurations of machines whose certificates are said to end soon.
fn doubted<'a>(machines: &'a [DynamicObject], now: i64) -> Vec<(&'a str, &'a str)> {
    let place = |machine: &'a DynamicObject| {
        let name = machine.data["spec"]["bootstrap"]["configRef"]["name"].as_str()?;
        Some((machine.metadata.namespace.as_deref()?, name))
    };
    let soon = machines
        .iter()
        .filter(|machine| end(machine).is_some_and(|end| end - now < DOUBTED));
    soon.filter_map(place).collect()
}

/// The first end of each cluster, by its name.
fn ends(machines: &[DynamicObject]) -> Vec<CertificateEnd> {
    let mut first = BTreeMap::new();
    for machine in machines {
        let cluster = machine
            .metadata
            .labels
            .as_ref()
            .and_then(|labels| labels.get(CLUSTER_LABEL));
        if let (Some(cluster), Some(end)) = (cluster, end(machine)) {
            let known = first.entry(cluster.clone()).or_insert(end);
            *known = end.min(*known);
        }
    }
    first
        .into_iter()
        .map(|(cluster, end)| CertificateEnd { cluster, end })
        .collect()
}

fn problems(ends: &[CertificateEnd], now: i64) -> Vec<Problem> {
    let soon = ends.iter().filter(|end| end.end - now < SOON);
    let problem = |CertificateEnd { cluster, end }: &CertificateEnd| {
        Problem {
        what: match (end - now) / DAY {
            days @ 1.. => format!("certificates of the cluster {cluster} end in {days} days"),
            _ => format!("certificates of the cluster {cluster} have ended, or do so today"),
        },
        next: "its control planes renew them by themselves: see on each why not, `sudo systemctl start firstlight-certificates` and `journalctl -u firstlight-certificates`. Servers that an older stick installed have no such unit: one after the other, run `sudo kubeadm certs renew all`, restart the server, and wait until its node is ready again".to_owned(),
    }
    };
    soon.map(problem).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn machine(cluster: &str, end: Option<&str>) -> DynamicObject {
        let machine = json!({
            "metadata": {"name": "m", "namespace": "site", "labels": {CLUSTER_LABEL: cluster}},
            "spec": {"bootstrap": {"configRef": {"kind": "KubeadmConfig", "name": format!("of-{cluster}")}}},
            "status": {"certificatesExpiryDate": end},
        });
        serde_json::from_value(machine).unwrap()
    }

    #[test]
    fn the_first_end_of_a_cluster_is_told_two_months_before() {
        let machines = [
            machine("lab", Some("2030-06-01T00:00:00Z")),
            machine("lab", Some("2030-05-01T00:00:00Z")),
            machine("lab", None),
            machine("lab-2", Some("2036-01-01T00:00:00Z")),
            machine("lab-3", Some("soon")),
        ];
        let ends = ends(&machines);
        let names: Vec<_> = ends.iter().map(|end| end.cluster.as_str()).collect();
        assert_eq!(names, ["lab", "lab-2"]);
        let may = ends[0].end;
        let told = |days: i64| -> Vec<String> {
            let problems = problems(&ends, may - days * DAY);
            problems.into_iter().map(|problem| problem.what).collect()
        };
        assert_eq!(told(61), [""; 0]);
        assert_eq!(told(59), ["certificates of the cluster lab end in 59 days"]);
        assert!(told(-1)[0].contains("have ended"));

        let doubted = |days: i64| doubted(&machines, may - days * DAY);
        assert!(doubted(130).is_empty());
        assert_eq!(
            doubted(100),
            [("site", "of-lab")],
            "before a server is replaced for it"
        );
        assert_eq!(doubted(60), [("site", "of-lab"); 2]);
    }
}
