//! The contract for pools with Cluster API's managers beside it: their webhook judges every claim and every address, and their conversion
//! is what older versions are read by.

use serde_json::{Value, json};

use super::{CONTRACT, METAL3, address_of, object, start};
use crate::{site::Site, text};

const OLD: &str = "ipam.cluster.x-k8s.io/v1beta1";

pub async fn claims_of_the_contract_live_and_go_beside_cluster_apis_managers() {
    let site = Site::start("name: lab\ncluster: manual\n", 0).await;
    let objects = &site.objects;
    let _agent = start(objects);
    let pool = json!({
        "namePrefix": "racks", "prefix": 24, "gateway": "10.1.0.1",
        "pools": [{"start": "10.1.0.10", "end": "10.1.0.11"}],
    });
    let pool = objects.create(object(METAL3, "IPPool", "racks", pool));
    pool.await.unwrap();

    let spec =
        json!({"poolRef": {"apiGroup": "ipam.metal3.io", "kind": "IPPool", "name": "racks"}});
    let claim = object(CONTRACT, "IPAddressClaim", "newer", spec.clone());
    objects.create(claim).await.unwrap();
    assert_eq!(address_of(objects, CONTRACT, "newer").await, "10.1.0.10");
    // As a provider of an older version writes and reads it.
    let older = object(OLD, "IPAddressClaim", "older", spec);
    objects.create(older).await.unwrap();
    assert_eq!(address_of(objects, CONTRACT, "older").await, "10.1.0.11");
    let claim = objects.find(OLD, "IPAddressClaim", "older").await;
    let name = text(&claim["status"]["addressRef"]["name"]).to_owned();
    let address = objects.find(OLD, "IPAddress", &name).await;
    let said = ["address", "prefix", "gateway"].map(|field| address["spec"][field].clone());
    assert_eq!(said, [json!("10.1.0.11"), json!(24), json!("10.1.0.1")]);
    site.say("both have addresses");

    // Nobody changes what a claim got, not even by hand.
    let change = json!({"spec": {"poolRef": {"name": "other"}}});
    let refused = objects.try_patch("IPAddressClaim", "newer", change).await;
    let sentence = refused.unwrap_err().to_string();
    assert!(sentence.contains("immutable"), "{sentence}");

    objects.delete("IPAddressClaim", "newer").await;
    objects
        .wait_for("IPAddressClaim", "newer", "gone", Value::is_null)
        .await;
    let free = async || {
        let pool = objects.find(METAL3, "IPPool", "racks").await;
        let given = pool["status"]["indexes"].as_object();
        given.is_some_and(|given| given.len() == 1)
    };
    objects.wait_until("its address free again", free).await;
    let next = json!({"pool": {"name": "racks"}});
    let next = objects.create(object(METAL3, "IPClaim", "next", next));
    next.await.unwrap();
    assert_eq!(address_of(objects, METAL3, "next").await, "10.1.0.10");
    site.say("one is gone, and its address is the next one's");
}
