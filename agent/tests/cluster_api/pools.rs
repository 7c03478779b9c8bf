//! Pools of IP addresses at a real API server, with manifests as upstream has them: claims in both APIs, what is refused, an agent that
//! dies between writes.

mod machine;
pub mod managers;
mod site;

use std::{sync::Arc, time::Duration};

use firstlight_agent::{pools, status};
use firstlight_api::site::parse_site;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::{
    objects::Objects,
    programs::program,
    site::{documents, kubernetes_alone},
    text,
};

const METAL3: &str = "ipam.metal3.io/v1alpha1";
const CONTRACT: &str = "ipam.cluster.x-k8s.io/v1beta2";

pub async fn claims_get_addresses_and_give_them_back() {
    let dir = tempfile::tempdir().unwrap();
    let (_paths, _daemons, objects) = kubernetes_alone(dir.path()).await;
    serve_the_contract(&objects).await;
    let agent = start(&objects);
    // Upstream's own example.
    let pool = json!({
        "namePrefix": "pool1-prov",
        "pools": [{"start": "192.168.0.10", "end": "192.168.0.50", "prefix": 24, "gateway": "192.168.0.1"}],
    });
    objects
        .create(object(METAL3, "IPPool", "pool1", pool))
        .await
        .unwrap();
    let claim = json!({"pool": {"name": "pool1", "namespace": "default"}});
    objects
        .create(object(METAL3, "IPClaim", "provisioning-pool", claim))
        .await
        .unwrap();
    let contract =
        json!({"poolRef": {"apiGroup": "ipam.metal3.io", "kind": "IPPool", "name": "pool1"}});
    objects
        .create(object(
            CONTRACT,
            "IPAddressClaim",
            "provisioning-pool",
            contract,
        ))
        .await
        .unwrap();
    let mut given = vec![
        address_of(&objects, METAL3, "provisioning-pool").await,
        address_of(&objects, CONTRACT, "provisioning-pool").await,
    ];
    given.sort();
    assert_eq!(given, ["192.168.0.10", "192.168.0.11"]);
    let claim = objects.find(METAL3, "IPClaim", "provisioning-pool").await;
    let name = text(&claim["status"]["address"]["name"]).to_owned();
    let address = objects.find(METAL3, "IPAddress", &name).await;
    assert_eq!(
        (&address["spec"]["prefix"], &address["spec"]["gateway"]),
        (&json!(24), &json!("192.168.0.1"))
    );
    what_upstream_refuses_is_refused(&objects, &name).await;
    a_pool_in_use_stays(&objects).await;
    machine::gets_its_addresses_and_gives_them_back(&objects).await;
    site::gives_hosts_of_all_namespaces_addresses_of_one_pool(&objects).await;
    agent.abort();
    many_claims_survive_kills(&objects).await;
}

/// Cluster API's definitions, without its managers.
async fn serve_the_contract(objects: &Objects) {
    for mut definition in documents(&program("cluster-api.yaml")) {
        if definition["kind"] == "CustomResourceDefinition" {
            definition["spec"]["conversion"] = json!({"strategy": "None"});
            objects.apply(&definition).await;
        }
    }
}

fn start(objects: &Objects) -> JoinHandle<()> {
    let site = Arc::new(parse_site("name: lab\ncluster: none\n").unwrap());
    let (sender, _reader, owner) = status::channel("test");
    tokio::spawn(status::own(owner, CancellationToken::new()));
    let client = objects.client.clone();
    tokio::spawn(async move { pools::reconcile(client, site, sender).await.unwrap() })
}

#[allow(clippy::needless_pass_by_value, reason = "stories read better")]
fn object(version: &str, kind: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": "default"}, "spec": spec})
}

async fn address_of(objects: &Objects, version: &str, claim: &str) -> String {
    let (kind, field) = match version {
        METAL3 => ("IPClaim", "address"),
        _ => ("IPAddressClaim", "addressRef"),
    };
    let named = async || {
        let found = objects.find(version, kind, claim).await;
        text(&found["status"][field]["name"]).to_owned()
    };
    objects
        .wait_until(&format!("{kind} {claim} told of its address"), async || {
            !named().await.is_empty()
        })
        .await;
    let address = objects.find(version, "IPAddress", &named().await).await;
    assert_eq!(
        address["metadata"]["ownerReferences"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
    text(&address["spec"]["address"]).to_owned()
}

async fn what_upstream_refuses_is_refused(objects: &Objects, address: &str) {
    let pools = |range: Value| json!({"namePrefix": "x", "pools": [range]});
    for (kind, spec, why) in [
        ("IPPool", json!({"pools": []}), "namePrefix"),
        ("IPPool", json!({"namePrefix": ""}), "namePrefix"),
        (
            "IPPool",
            pools(json!({"prefix": 24})),
            "a range needs start and end, or subnet",
        ),
        (
            "IPPool",
            pools(json!({"start": "10.0.0.256"})),
            "should match",
        ),
        (
            "IPPool",
            pools(json!({"subnet": "10.0.0.0/33"})),
            "should match",
        ),
        (
            "IPPool",
            pools(json!({"start": "10.0.0.1", "prefix": 129})),
            "128",
        ),
        (
            "IPClaim",
            json!({"pool": {"namespace": "default"}}),
            "spec.pool.name cannot be empty",
        ),
        (
            "IPAddress",
            json!({"address": "10.0.0.1", "pool": {"name": "p"}, "claim": {}}),
            "spec.claim.name cannot be empty",
        ),
        (
            "IPAddress",
            json!({"address": "10.0.0", "pool": {"name": "p"}, "claim": {"name": "c"}}),
            "should match",
        ),
    ] {
        let refused = objects.create(object(METAL3, kind, "refused", spec)).await;
        let error = refused.unwrap_err().to_string();
        assert!(error.contains(why), "{kind}: {error}");
    }
    for (kind, name, change, why) in [
        (
            "IPPool",
            "pool1",
            json!({"spec": {"namePrefix": "other"}}),
            "spec.namePrefix cannot be modified",
        ),
        (
            "IPPool",
            "pool1",
            json!({"spec": {"allocationStrategy": "random"}}),
            "spec.allocationStrategy cannot be modified",
        ),
        (
            "IPClaim",
            "provisioning-pool",
            json!({"spec": {"pool": {"name": "other", "namespace": "default"}}}),
            "spec.pool cannot be modified",
        ),
        (
            "IPAddress",
            address,
            json!({"spec": {"address": "10.0.0.1"}}),
            "spec.address cannot be modified",
        ),
        (
            "IPAddress",
            address,
            json!({"spec": {"claim": {"name": "x", "namespace": "default"}}}),
            "spec.claim cannot be modified",
        ),
    ] {
        let refused = objects.try_patch(kind, name, change).await;
        let error = refused.unwrap_err().to_string();
        assert!(error.contains(why), "{kind}: {error}");
    }
}

async fn a_pool_in_use_stays(objects: &Objects) {
    objects.delete("IPPool", "pool1").await;
    objects
        .wait_for("IPPool", "pool1", "says that it goes", |pool| {
            let said = &pool["status"]["conditions"][0]["message"];
            text(said).contains("is being deleted")
        })
        .await;
    objects.delete("IPClaim", "provisioning-pool").await;
    objects.delete("IPAddressClaim", "provisioning-pool").await;
    objects
        .wait_for("IPPool", "pool1", "gone", Value::is_null)
        .await;
    let left = objects.list("IPAddress").await;
    assert!(left.is_empty(), "{left:#?}");
}

/// As many claims as addresses, and some more; the agent dies again and again while they come and go.
async fn many_claims_survive_kills(objects: &Objects) {
    let pool = json!({"namePrefix": "many", "pools": [{"start": "fd00::1", "end": "fd00::14"}], "prefix": 64});
    objects
        .create(object(METAL3, "IPPool", "many", pool))
        .await
        .unwrap();
    let claim = |number: usize| {
        let spec = json!({"pool": {"name": "many"}});
        object(METAL3, "IPClaim", &format!("c{number}"), spec)
    };
    for number in 0..40 {
        let agent = start(objects);
        objects.create(claim(number)).await.unwrap();
        if number >= 16 && number % 2 == 0 {
            objects
                .delete("IPClaim", &format!("c{}", number - 16))
                .await;
        }
        // The schedule's own time: when it dies is what this is about.
        tokio::time::sleep(Duration::from_millis(
            u64::try_from(number).unwrap() * 37 % 700,
        ))
        .await;
        agent.abort();
    }
    let _agent = start(objects);
    let given = async || {
        let claims = objects.list("IPClaim").await;
        // One that goes still names the address that it has given back.
        let stays = |claim: &&Value| claim["metadata"]["deletionTimestamp"].is_null();
        let mut given: Vec<String> = claims
            .iter()
            .filter(stays)
            .filter_map(|claim| Some(claim["status"]["address"]["name"].as_str()?.to_owned()))
            .collect();
        given.sort();
        given
    };
    objects
        .wait_until("every address given", async || given().await.len() == 20)
        .await;
    let mut told = given().await;
    told.dedup();
    assert_eq!(told.len(), 20);
    let mut names: Vec<String> = objects
        .list("IPAddress")
        .await
        .iter()
        .map(|address| text(&address["metadata"]["name"]).to_owned())
        .collect();
    names.sort();
    assert_eq!(told, names);
    let waits =
        |claim: &Value| text(&claim["status"]["errorMessage"]).starts_with("Exhausted IP Pools");
    let waiting = async || {
        let claims = objects.list("IPClaim").await;
        claims.len() == 28 && claims.iter().filter(|claim| waits(claim)).count() == 8
    };
    objects
        .wait_until("the others told that it is exhausted", waiting)
        .await;
}
