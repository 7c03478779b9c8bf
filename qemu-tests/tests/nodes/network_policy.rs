//! A policy that lets one pod in keeps the other out, for its name and its address, until it is gone.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use qemu_tests::nodes::{Cluster, wait};
use serde_json::json;

use qemu_tests::pods::{Pod, SERVES, STAYS};

use crate::pods::{delete, run};

const LIMIT: Duration = Duration::from_mins(1);

pub fn try_out(cluster: &mut Cluster) -> Result<()> {
    for (name, script) in [("shop", SERVES), ("friend", STAYS), ("stranger", STAYS)] {
        run(
            cluster,
            &Pod {
                name,
                script,
                claim: None,
            },
        )?;
    }
    cluster.exec("shop", "echo open >/data/index.html")?;
    cluster.kubectl("expose pod shop --port=80 --target-port=8080")?;
    let pod = cluster.kubectl("get pod shop -o jsonpath={.status.podIP}")?;
    let service = cluster.kubectl("get service shop -o jsonpath={.spec.clusterIP}")?;
    let pages = [format!("http://{pod}:8080/"), format!("http://{service}/")];
    let visit = |who: &str| {
        pages.iter().try_for_each(|page| {
            let said = cluster.exec(who, &format!("curl -sS --max-time 2 {page}"))?;
            ensure!(said == "open", "{page}: {said}");
            Ok(())
        })
    };
    for who in ["friend", "stranger"] {
        wait("everybody is let in", LIMIT, || visit(who))?;
    }
    let policy = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "shop"},
        "spec": {
            "podSelector": {"matchLabels": {"app": "shop"}},
            "policyTypes": ["Ingress"],
            "ingress": [{"from": [{"podSelector": {"matchLabels": {"app": "friend"}}}]}],
        },
    });
    cluster.apply(&policy.to_string())?;
    wait("a stranger is kept out", LIMIT, || {
        let refused = pages.iter().all(|page| {
            cluster
                .exec("stranger", &format!("curl -sS --max-time 2 {page}"))
                .is_err()
        });
        refused.then_some(()).context("it is let in")
    })?;
    visit("friend").context("who is let in")?;
    delete(cluster, "networkpolicy/shop")?;
    wait("everybody is let in again", LIMIT, || visit("stranger"))?;
    delete(cluster, "service/shop pod/shop pod/friend pod/stranger")
}
