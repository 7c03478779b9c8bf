//! `BareMetalHost` objects of a real API server, as the hosts controller writes, follows and deletes them.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use firstlight_agent::{
    hosts::{
        kube_store::KubeStore,
        made,
        store::{HostEvent, HostStore as _},
    },
    kubernetes::refused,
    objects::Key,
};
use firstlight_api::{
    bmh::{BareMetalHost, BootMode, HardwareData, examples},
    site::parse_site,
};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams},
};
use serde_json::json;
use tokio::sync::mpsc;

use crate::{
    objects::Objects,
    on_box::{
        a_host_is_changed_in_the_name_of_who_asks, alarms_are_events, etcd_has_no_secret_in_clear,
        people_run_pods_on_the_box_within_its_share, roles_may_what_they_are_for,
    },
    site::kubernetes_alone,
};

const NAME: &str = "host-525400c0ffee";
const SECOND: Duration = Duration::from_secs(1);

pub async fn every_field_is_kept_an_edit_is_told_and_nothing_that_changed_is_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let (paths, _daemons, objects) = kubernetes_alone(dir.path()).await;
    let store = KubeStore::new(objects.client.clone());
    let host = host();
    store.create(&host).await.unwrap();
    store.create(&host).await.unwrap();
    store.apply_status(&host).await.unwrap();
    let hardware = host.status.as_ref().unwrap().hardware.clone().unwrap();
    let data = HardwareData::new(NAME, "default", (*hardware).clone());
    store.apply_hardware(&data).await.unwrap();
    let found = only(&store).await;
    assert_eq!((&found.spec, &found.status), (&host.spec, &host.status));

    edits_are_told(&store, &objects, &host).await;
    new_credentials_are_told(&store, &objects).await;
    what_happens_is_an_event(&store, &objects).await;

    // Of an object that somebody has changed since it was read, nothing is taken away.
    let refused = store.delete(&found).await.unwrap_err();
    assert!(
        format!("{refused:#}").contains("precondition"),
        "{refused:#}"
    );
    let found = only(&store).await;
    store.delete(&found).await.unwrap();
    store.delete(&found).await.unwrap();
    store.forget_hardware(&found).await.unwrap();
    assert!(store.list().await.unwrap().objects.is_empty());
    assert!(objects.list("HardwareData").await.is_empty());
    what_the_box_has_made_is_known_as_untouched(&store).await;
    kinds_that_are_not_served_are_refused_with_a_sentence(&objects).await;
    people_run_pods_on_the_box_within_its_share(&objects.within("workloads")).await;
    alarms_are_events(&objects).await;
    roles_may_what_they_are_for(&objects).await;
    store.create(&host).await.unwrap();
    a_host_is_changed_in_the_name_of_who_asks(&objects, NAME).await;
    // From here on this API server, which has no key, reads no Secret any more.
    etcd_has_no_secret_in_clear(&paths, dir.path(), &objects).await;
}

/// Also with what the API server adds by itself.
async fn what_the_box_has_made_is_known_as_untouched(store: &KubeStore) {
    let site = parse_site(
        "rules:\n- {match: any, labels: {rack: r1}, failureDomain: west, rootDisk: {minSizeGigabytes: 4}, image: debian}\n",
    );
    let spec = made::spec("52:54:00:c0:ff:ee".to_owned(), Some(BootMode::Uefi));
    let mut host = BareMetalHost::new(NAME, "default", spec);
    store.create(&host).await.unwrap();
    let plain = only(store).await;
    assert!(made::is_as_made(&plain), "{plain:?}");
    store.delete(&plain).await.unwrap();
    made::by_site(&mut host, &site.unwrap().rules[0].gives);
    store.create(&host).await.unwrap();
    let found = only(store).await;
    assert_eq!(found.spec, host.spec);
    assert_eq!(found.metadata.labels, host.metadata.labels);
    assert_eq!(found.metadata.labels.len(), 2);
    assert!(made::is_as_made(&found));
    store.delete(&found).await.unwrap();
}

async fn kinds_that_are_not_served_are_refused_with_a_sentence(objects: &Objects) {
    refused::apply_all(&objects.client).await.unwrap();
    for definition in refused::definitions() {
        let spec = &definition["spec"];
        let text = |pointer: &str| spec.pointer(pointer).unwrap().as_str().unwrap();
        let kind = text("/names/kind");
        for version in spec["versions"].as_array().unwrap() {
            let version = version["name"].as_str().unwrap();
            let kind_of = GroupVersionKind::gvk(text("/group"), version, kind);
            let resource = ApiResource::from_gvk_with_plural(&kind_of, text("/names/plural"));
            let api: Api<DynamicObject> =
                Api::namespaced_with(objects.client.clone(), "default", &resource);
            let object = DynamicObject::new("one", &resource).data(json!({"spec": {"a": 1}}));
            let sentence = format!("Firstlight does not take {kind}: ");
            let is_served = format!("{kind} of {version}, which may not be served yet");
            objects
                .wait_until(&is_served, async || {
                    let refused = api.create(&PostParams::default(), &object).await;
                    let error = refused.unwrap_err().to_string();
                    let is_missing = error.contains("404") || error.contains("could not find");
                    assert!(is_missing || error.contains(&sentence), "{error}");
                    !is_missing
                })
                .await;
        }
    }
}

/// As `kubectl describe` shows it.
async fn what_happens_is_an_event(store: &KubeStore, objects: &Objects) {
    let host = only(store).await;
    let told = HostEvent {
        is_warning: true,
        reason: "PreparationError",
        note: "its disk is full of wine".repeat(50),
    };
    store.tell(&host, vec![told]).await;
    let events = objects.list("Event").await;
    let found = events.iter().find(|it| it["regarding"]["name"] == NAME);
    let event = found.unwrap_or_else(|| panic!("{events:?}"));
    assert_eq!(
        (&event["type"], &event["regarding"]["uid"]),
        (&json!("Warning"), &json!(host.metadata.uid))
    );
    assert!(
        event["note"]
            .as_str()
            .unwrap()
            .starts_with("its disk is full of wine")
    );
}

/// In a second, and a status of ours is no news.
async fn edits_are_told(store: &KubeStore, objects: &Objects, host: &BareMetalHost) {
    let (changed, mut edits) = mpsc::channel(1);
    let follower = store.clone();
    let following = tokio::spawn(async move { follower.follow(changed).await });
    edits.recv().await.unwrap();
    quiet(&mut edits).await;
    store.apply_status(host).await.unwrap();
    assert!(tokio::time::timeout(SECOND, edits.recv()).await.is_err());
    for patch in [
        json!({"spec": {"online": !host.spec.online}}),
        json!({"metadata": {"annotations": {"reboot.metal3.io": ""}}}),
    ] {
        objects.patch("BareMetalHost", NAME, patch).await;
        let since = Instant::now();
        let told = tokio::time::timeout(SECOND, edits.recv()).await;
        assert!(told.is_ok());
        eprintln!("told after {:?}", since.elapsed());
        quiet(&mut edits).await;
    }
    following.abort();
}

/// What was said until now has been told.
/// By the versions of their Secrets; what belongs to others is not looked at.
async fn new_credentials_are_told(store: &KubeStore, objects: &Objects) {
    let (changed, mut told) = mpsc::channel(1);
    let follower = store.clone();
    let following = tokio::spawn(async move { follower.follow_secrets(changed).await });
    let api: Api<Secret> = Api::namespaced(objects.client.clone(), "default");
    let secret = |name: &str, kind: &str, password: &str| -> Secret {
        let secret =
            json!({"metadata": {"name": name}, "type": kind, "stringData": {"password": password}});
        serde_json::from_value(secret).unwrap()
    };
    let post = PostParams::default();
    let foreign = secret("other", "helm.sh/release.v1", "x");
    api.create(&post, &foreign).await.unwrap();
    let made = api.create(&post, &secret("n1-bmc", "Opaque", "old")).await;
    let made = made.unwrap().metadata.resource_version.unwrap();
    let password = json!({"stringData": {"password": "new"}});
    let changed = Patch::Merge(&password);
    let edited = api.patch("n1-bmc", &PatchParams::default(), &changed).await;
    let edited = edited.unwrap().metadata.resource_version.unwrap();
    assert_ne!(made, edited);
    let key = |name: &str| Key::new("default", name);
    let comes = async {
        loop {
            let versions = told.recv().await.unwrap();
            assert!(!versions.contains_key(&key("other")));
            if versions.get(&key("n1-bmc")) == Some(&edited) {
                return;
            }
        }
    };
    let come = tokio::time::timeout(SECOND * 30, comes).await;
    come.expect("the new version is told");
    following.abort();
}

async fn quiet(edits: &mut mpsc::Receiver<()>) {
    while tokio::time::timeout(SECOND, edits.recv()).await.is_ok() {}
}

async fn only(store: &KubeStore) -> BareMetalHost {
    let mut objects = store.list().await.unwrap().objects;
    assert_eq!(objects.len(), 1);
    Arc::unwrap_or_clone(objects.remove(0))
}

fn host() -> BareMetalHost {
    let mut host = examples::host();
    NAME.clone_into(&mut host.metadata.name);
    host.metadata.annotations.clear();
    host.metadata.finalizers.clear();
    host
}
