//! When the certificates of clusters end, as Cluster API has read it from their control planes: told two months before.
//! Must not: renew anything. Cluster API replaces three control planes by itself, a lone one has ten years.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context, Result};
use firstlight_api::status::{CertificateEnd, Problem};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams},
};
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
/// Told from then on.
const SOON: i64 = 60 * 86_400;

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
            let found = tokio::time::timeout(ANSWER, observe(&client)).await;
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

async fn observe(client: &Client) -> Result<Vec<CertificateEnd>> {
    let kind = GroupVersionKind::gvk("cluster.x-k8s.io", "v1beta2", "Machine");
    let api = Api::<DynamicObject>::all_with(client.clone(), &ApiResource::from_gvk(&kind));
    let machines = api.list(&ListParams::default()).await;
    Ok(ends(&machines.context("listing machines")?.items))
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
        let end = machine.data["status"]["certificatesExpiryDate"].as_str();
        let end = end.and_then(|end| OffsetDateTime::parse(end, &Rfc3339).ok());
        if let (Some(cluster), Some(end)) = (cluster, end) {
            let end = end.unix_timestamp();
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
        what: match (end - now) / 86_400 {
            days @ 1.. => format!("certificates of the cluster {cluster} end in {days} days"),
            _ => format!("certificates of the cluster {cluster} have ended, or do so today"),
        },
        next: "on each control plane, one after the other: log in, run `sudo kubeadm certs renew all`, restart the server, and wait until its node is ready again".to_owned(),
    }
    };
    soon.map(problem).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    fn machine(cluster: &str, end: Option<&str>) -> DynamicObject {
        let machine = json!({
            "metadata": {"name": "m", "labels": {CLUSTER_LABEL: cluster}},
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
            let problems = problems(&ends, may - days * 86_400);
            problems.into_iter().map(|problem| problem.what).collect()
        };
        assert_eq!(told(61), [""; 0]);
        assert_eq!(told(59), ["certificates of the cluster lab end in 59 days"]);
        assert!(told(-1)[0].contains("have ended"));
    }
}
