//! What the box does by itself about a lost server, where `site.yaml` asks for it: a `MachineHealthCheck` of Cluster API, by which the box
//! restarts the server (`remediation`), and its owner replaces the machine if it may.

use firstlight_api::{
    capi::{self, CLUSTER_LABEL},
    capm3,
    site::{ClusterConfig, Heal},
    status::Problem,
};
use serde_json::{Value, json};

use super::{marker::Created, object::object};
use crate::capi::{Action, Steps};

/// A node that is silent counts as lost after two minutes (`render::NODE_GRACE`); this long it may stay so.
const LOST_SECONDS: u32 = 180;
/// For a server to start, and its node to be Ready.
const RESTART_SECONDS: u32 = 900;
/// More of them at once have a common reason, which no restart takes away.
const MOST_AT_ONCE: u32 = 1;

fn name(cluster: &str) -> String {
    format!("{cluster}-heal")
}

pub fn objects(cluster: &str, heal: Heal) -> Vec<Value> {
    let retries = match heal {
        Heal::None => return Vec::new(),
        Heal::Restart => i32::MAX,
        Heal::Replace => 1,
    };
    let name = name(cluster);
    let strategy =
        json!({"type": "Reboot", "retryLimit": retries, "timeoutSeconds": RESTART_SECONDS});
    let template = object(
        capm3::API_VERSION,
        "Metal3RemediationTemplate",
        cluster,
        &name,
        &json!({"template": {"spec": {"strategy": strategy}}}),
    );
    let lost =
        |status: &str| json!({"type": "Ready", "status": status, "timeoutSeconds": LOST_SECONDS});
    let check = object(
        &format!("{}/{}", capi::GROUP, capi::VERSION),
        "MachineHealthCheck",
        cluster,
        &name,
        &json!({
            "clusterName": cluster,
            "selector": {"matchLabels": {CLUSTER_LABEL: cluster}},
            "checks": {
                // A machine may wait for a server.
                "nodeStartupTimeoutSeconds": 0,
                "unhealthyNodeConditions": [lost("Unknown"), lost("False")],
            },
            "remediation": {
                "triggerIf": {"unhealthyLessThanOrEqualTo": MOST_AT_ONCE},
                "templateRef": {
                    "apiVersion": capm3::API_VERSION, "kind": "Metal3RemediationTemplate", "name": name,
                },
            },
        }),
    );
    vec![template, check]
}

/// Written when `site.yaml` says something else than before, which is noted in `created`; in between they are whoever's who runs the cluster.
pub fn plan(config: &ClusterConfig, created: &mut Created) -> Steps {
    if config.heal == Heal::None || config.heal == created.heal {
        return Vec::new();
    }
    created.heal = config.heal;
    let objects = objects(&created.cluster, config.heal).into_iter();
    objects.map(Action::Put).collect()
}

/// It is not taken away by itself: somebody may have made it their own.
pub fn difference(config: &ClusterConfig, created: &Created) -> Option<Problem> {
    let goes_on = config.heal == Heal::None && created.heal != Heal::None;
    goes_on.then(|| {
        let (cluster, name) = (&created.cluster, name(&created.cluster));
        Problem {
            what: format!(
                "site.yaml does not say `heal: {}` any more; lost servers of the cluster {cluster} are healed as before",
                created.heal.word()
            ),
            next: format!(
                "`kubectl delete machinehealthcheck {name}` on the box ends it, or say `heal: {}` again",
                created.heal.word()
            ),
        }
    })
}
