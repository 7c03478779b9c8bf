//! A worker that hangs, found by Cluster API's own `MachineHealthCheck`, on a server whose BMC is played by writes to its status.

use firstlight_agent::{remediation, status};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{
    SITE, find_condition, host_of, nothing_typed_two_servers_become_ready, objects::Objects,
    site::Site, text, worker, workers_are_ready,
};

const INFRA: &str = "infrastructure.cluster.x-k8s.io";

pub async fn a_worker_that_hangs_is_switched_off_and_on_and_keeps_its_machine() {
    let site = Site::start(SITE, 0).await;
    let (sender, _reader, owner) = status::channel("test");
    tokio::spawn(status::own(owner, CancellationToken::new()));
    let client = site.objects.client.clone();
    tokio::spawn(async move { remediation::reconcile(client, sender).await.unwrap() });
    nothing_typed_two_servers_become_ready(&site).await;
    let objects = &site.objects;
    a_person_asks_for_it(objects).await;
    let before = worker(objects).await;
    let node = text(&before["status"]["nodeRef"]["name"]);
    let host = host_of(objects, &before).await;
    let (machine, host) = (
        text(&before["metadata"]["name"]),
        text(&host["metadata"]["name"]),
    );
    let power = async |is_on: bool| {
        let said = json!({"status": {"poweredOn": is_on}});
        objects.patch_status("BareMetalHost", host, said).await;
    };
    // As docs/clusters.md says: the object that the box made says that nobody may switch it off.
    let bmc = json!({"spec": {
        "bmc": {"address": "redfish://172.22.0.9/redfish/v1/Systems/1", "credentialsName": "bmc"}, "disablePowerOff": false,
    }});
    objects.patch("BareMetalHost", host, bmc).await;
    objects
        .wait_for("MachineHealthCheck", "workers", "at work", |check| {
            check["status"]["currentHealthy"] == 1
        })
        .await;

    let workload = site.workload();
    workload.node_says(node, false).await;
    objects
        .wait_for("BareMetalHost", host, "to be switched off", |host| {
            power_off(host) == Some("{\"mode\":\"hard\"}")
        })
        .await;
    let found = objects.get("Metal3Remediation", machine).await;
    assert_eq!(found["status"]["phase"], "Running", "{found:#}");
    let strategy = json!({"type": "Reboot", "retryLimit": 2, "timeoutSeconds": 300});
    assert_eq!(found["spec"]["strategy"], strategy);
    assert_eq!(
        found["metadata"]["ownerReferences"][0]["uid"],
        before["metadata"]["uid"]
    );
    assert!(!workload.is_out_of_service(node).await, "it may be on");
    site.say("being switched off");

    power(false).await;
    let waits = async || {
        let found = objects.get("Metal3Remediation", machine).await;
        let host = objects.get("BareMetalHost", host).await;
        found["status"]["phase"] == "Waiting" && power_off(&host).is_none()
    };
    objects.wait_until("the server let go", waits).await;
    assert!(workload.is_out_of_service(node).await);
    site.say("off, and its node out of service");

    power(true).await;
    workload.node_says(node, true).await;
    let in_service = async || !workload.is_out_of_service(node).await;
    objects.wait_until("the node in service", in_service).await;
    objects
        .wait_for("Metal3Remediation", machine, "gone", Value::is_null)
        .await;
    workers_are_ready(&site, 1).await;
    let after = worker(objects).await;
    assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);
    assert!(
        find_condition(&after, "OwnerRemediated").is_null(),
        "{after:#}"
    );
    let host = objects.get("BareMetalHost", host).await;
    assert!(host["metadata"]["annotations"]["capm3.metal3.io/unhealthy"].is_null());
    site.say("healthy");
}

/// With a template in the older version, as newcomers have it.
async fn a_person_asks_for_it(objects: &Objects) {
    let template = |version: &str, name: &str, strategy: Value| {
        json!({
            "apiVersion": format!("{INFRA}/{version}"), "kind": "Metal3RemediationTemplate",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"template": {"spec": {"strategy": strategy}}},
        })
    };
    for (version, strategy, why) in [
        ("v1beta1", json!({"timeout": "99s"}), "it is 100s at least"),
        ("v1beta1", json!({"timeout": "long"}), "should match"),
        (
            "v1beta2",
            json!({"timeoutSeconds": 99}),
            "greater than or equal to 100",
        ),
        (
            "v1beta2",
            json!({"retryLimit": 0}),
            "greater than or equal to 1",
        ),
        ("v1beta2", json!({"type": "Replace"}), "Unsupported value"),
    ] {
        let refused = objects.create(template(version, "odd", strategy)).await;
        let sentence = refused.unwrap_err().to_string();
        assert!(sentence.contains(why), "{sentence}");
    }
    let strategy = json!({"type": "Reboot", "retryLimit": 2, "timeout": "5m"});
    let asked = objects.create(template("v1beta1", "restart", strategy));
    asked.await.unwrap();
    let old = format!("{INFRA}/v1beta1");
    let shown = objects
        .find(&old, "Metal3RemediationTemplate", "restart")
        .await;
    assert_eq!(
        shown["spec"]["template"]["spec"]["strategy"]["timeout"],
        "5m0s"
    );
    let check = json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineHealthCheck",
        "metadata": {"name": "workers", "namespace": "default"},
        "spec": {
            "clusterName": "lab",
            "selector": {"matchLabels": {"cluster.x-k8s.io/deployment-name": "lab-workers"}},
            "checks": {"unhealthyNodeConditions": [{"type": "Ready", "status": "Unknown", "timeoutSeconds": 1}]},
            "remediation": {"templateRef": {
                "apiVersion": format!("{INFRA}/v1beta2"), "kind": "Metal3RemediationTemplate", "name": "restart",
            }},
        },
    });
    objects.create(check).await.unwrap();
}

/// What keeps the host off.
fn power_off(host: &Value) -> Option<&str> {
    let annotations = host["metadata"]["annotations"].as_object()?;
    let mut ours = annotations.iter();
    let ours = ours.find(|(name, _)| name.starts_with("reboot.metal3.io/metal3-remediation-"));
    ours?.1.as_str()
}
