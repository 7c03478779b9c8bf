//! Watches of an API server that answers as a test wants.
#![allow(clippy::unwrap_used)]

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use firstlight_api::{
    addon::{self, Addon},
    object::Meta,
};
use futures_util::FutureExt;
use http::{Method, Request, Response};
use http_body_util::{Either, Full, channel};
use kube::{Client, client::Body};
use serde_json::{Value, json};
use tower::service_fn;

use super::*;

const ADDONS: Resource = Resource(addon::GROUP, addon::VERSION, addon::KIND, addon::PLURAL);

type Answer = Either<Full<Bytes>, channel::Channel<Bytes, Infallible>>;

/// What is there, what was asked, and who watches.
#[derive(Clone, Default)]
struct Api(Arc<Mutex<Shelf>>);

#[derive(Default)]
struct Shelf {
    objects: Vec<Value>,
    /// In place of a list.
    error: Option<u16>,
    limits: Vec<usize>,
    patches: Vec<String>,
    watches: Vec<channel::Sender<Bytes, Infallible>>,
}

impl Api {
    fn client(&self) -> Client {
        let api = self.clone();
        let service = service_fn(move |request: Request<Body>| {
            let answer = api.0.lock().unwrap().answer(&request);
            async move { Ok::<_, Infallible>(answer) }
        });
        Client::new(service, "default")
    }

    fn watch(&self) -> (Watches, Objects<Addon>) {
        let mut watches = Watches::new(self.client(), "tests", Duration::ZERO);
        let objects = watches.objects(Selection {
            may_lack: true,
            ..ADDONS.into()
        });
        (watches, objects)
    }

    fn put(&self, objects: Vec<Value>) {
        self.0.lock().unwrap().objects = objects;
    }

    fn fail(&self, error: Option<u16>) {
        self.0.lock().unwrap().error = error;
    }

    /// To the newest watch, once there is one.
    async fn send(&self, event: &Value) {
        let line = Bytes::from(format!("{event}\n"));
        loop {
            let watch = self.0.lock().unwrap().watches.pop();
            if let Some(mut watch) = watch {
                watch.send_data(line).await.unwrap();
                self.0.lock().unwrap().watches.push(watch);
                return;
            }
            tokio::task::yield_now().await;
        }
    }
}

impl Shelf {
    fn answer(&mut self, request: &Request<Body>) -> Response<Answer> {
        let query = request.uri().query().unwrap_or_default();
        let parameter = |name: &str| {
            let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
        };
        let json = |code: u16, value: Value| {
            let body = Either::Left(Full::from(value.to_string()));
            Response::builder().status(code).body(body).unwrap()
        };
        if request.method() == Method::PATCH {
            self.patches.push(request.uri().path().to_owned());
            return json(200, object("a", "9", json!("lab")));
        }
        if parameter("watch") == Some("true") {
            let (sender, body) = channel::Channel::new(8);
            self.watches.push(sender);
            return Response::new(Either::Right(body));
        }
        if let Some(code) = self.error {
            return json(
                code,
                json!({"code": code, "message": "not now", "reason": "NotNow", "status": "Failure"}),
            );
        }
        let from: usize = parameter("continue").map_or(0, |from| from.parse().unwrap());
        let limit: usize = parameter("limit").unwrap().parse().unwrap();
        self.limits.push(limit);
        let page: Vec<_> = self.objects.iter().skip(from).take(limit).collect();
        let mut meta = json!({"resourceVersion": "5"});
        if from + limit < self.objects.len() {
            meta["continue"] = (from + limit).to_string().into();
        }
        json(
            200,
            json!({"kind": "AddonList", "apiVersion": "v1", "metadata": meta, "items": page}),
        )
    }
}

fn object(name: &str, version: &str, cluster: impl Into<Value>) -> Value {
    let cluster: Value = cluster.into();
    json!({
        "apiVersion": "firstlight.internal/v1alpha1", "kind": addon::KIND,
        "metadata": {"name": name, "namespace": "default", "resourceVersion": version},
        "spec": {"cluster": cluster},
    })
}

fn names(listed: &Listed<Arc<Addon>>) -> Vec<&str> {
    let objects = listed.objects.iter();
    objects.map(|it| it.metadata.name.as_str()).collect()
}

#[tokio::test]
async fn a_list_comes_in_pages_and_odd_objects_are_left_out() {
    let api = Api::default();
    let all = (0..120).rev().map(|number| {
        let is_odd = number % 40 == 7;
        let cluster = if is_odd { json!(7) } else { json!("lab") };
        object(&format!("{number:03}"), "5", cluster)
    });
    api.put(all.collect());
    let (_watches, objects) = api.watch();
    let listed = objects.all().await.unwrap();
    assert_eq!(listed.objects.len(), 117);
    assert!(names(&listed).is_sorted());
    assert_eq!(listed.unreadable.len(), 3);
    assert!(listed.unreadable[0].starts_with("the Addon 007 cannot be read: "));
    let limits = api.0.lock().unwrap().limits.clone();
    assert!(
        limits.len() > 4 && limits.iter().all(|limit| *limit <= 25),
        "{limits:?}"
    );
}

#[tokio::test]
async fn the_next_list_has_what_was_written_and_a_change_is_told() {
    let api = Api::default();
    api.put(vec![object("a", "5", json!("lab"))]);
    let (mut watches, objects) = api.watch();
    let mut meta: Meta = objects.all().await.unwrap().objects[0].metadata.clone();
    watches.changed().await.unwrap();
    objects.writer().hold(&mut meta, "x").await.unwrap();
    assert_eq!(
        (meta.resource_version.as_str(), meta.has_finalizer("x")),
        ("9", true)
    );
    // That it is there already costs no request.
    objects.writer().hold(&mut meta, "x").await.unwrap();
    assert_eq!(api.0.lock().unwrap().patches.len(), 1);
    for (version, there) in [("8", false), ("9", true)] {
        let changed = object("a", version, json!(version));
        api.send(&json!({"type": "MODIFIED", "object": changed}))
            .await;
        watches.changed().await.unwrap();
        let listed = objects.all().now_or_never();
        assert_eq!(listed.is_some(), there, "{version}");
    }
    let listed = objects.all().await.unwrap();
    assert_eq!(listed.objects[0].spec.cluster, "9");
    api.send(&json!({"type": "DELETED", "object": object("a", "10", json!(7))}))
        .await;
    watches.changed().await.unwrap();
    assert!(objects.all().await.unwrap().objects.is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_fails_is_told_and_asked_again_and_a_kind_it_does_not_serve_is_empty() {
    let api = Api::default();
    api.put(vec![object("a", "5", json!("lab"))]);
    api.fail(Some(500));
    let (mut watches, objects) = api.watch();
    let error = objects.all().await.unwrap_err().to_string();
    assert!(
        error.starts_with("listing addons: ") && error.contains("not now"),
        "{error}"
    );
    api.fail(None);
    while objects.all().await.is_err() {
        watches.changed().await.unwrap();
    }
    assert_eq!(names(&objects.all().await.unwrap()), ["a"]);
    // A watch that breaks is begun with a list, which may be shorter.
    api.fail(Some(404));
    api.send(&json!("nonsense")).await;
    while objects
        .all()
        .await
        .is_ok_and(|listed| !listed.objects.is_empty())
    {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    while objects.all().await.is_err() {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(objects.all().await.unwrap().objects.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_watch_from_before_what_the_api_server_remembers_is_begun_anew_and_nothing_is_wrong() {
    let api = Api::default();
    api.put(vec![object("a", "5", json!("lab"))]);
    let (_watches, objects) = api.watch();
    assert_eq!(names(&objects.all().await.unwrap()), ["a"]);
    api.put(vec![object("b", "7", json!("lab"))]);
    let expired = json!({
        "code": 410, "message": "too old resource version", "reason": "Expired", "status": "Failure", "kind": "Status",
    });
    api.send(&json!({"type": "ERROR", "object": expired})).await;
    while names(&objects.all().await.unwrap()) != ["b"] {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn a_watch_that_panics_is_told() {
    #[derive(Clone, Debug, serde::Deserialize)]
    struct Broken {}
    impl Readable for Broken {
        fn remains(_: &Value) -> Option<Self> {
            panic!("as a bug would")
        }
    }
    let api = Api::default();
    api.put(vec![json!({"metadata": {"name": "a"}}), json!("no object")]);
    let mut watches = Watches::new(api.client(), "tests", Duration::ZERO);
    let objects: Objects<Broken> = watches.objects(ADDONS);
    let ended = watches.changed().await.unwrap_err();
    assert!(ended.to_string().contains("panicked"), "{ended}");
    let error = objects.all().await.unwrap_err().to_string();
    assert!(error.contains("ended"), "{error}");
}

#[test]
fn a_writer_waits_for_the_watch_that_has_its_object() {
    let secrets = Resource("", "v1", "Secret", "secrets");
    let selections = [
        Selection::from(ADDONS),
        Selection {
            secret_type: Some("x/y"),
            namespace: Some("default"),
            ..secrets.into()
        },
        Selection {
            name: Some("b"),
            ..secrets.into()
        },
    ];
    let which = |object: Value| {
        let kind = kube::api::ApiResource::from_gvk(&kube::api::GroupVersionKind::gvk(
            object["group"].as_str().unwrap(),
            "v1",
            object["kind"].as_str().unwrap(),
        ));
        selections.iter().position(|one| one.has(&kind, &object))
    };
    let secret = |name: &str, of: &str| json!({"group": "", "kind": "Secret", "type": of, "metadata": {"name": name, "namespace": "default"}});
    assert_eq!(
        which(json!({"group": addon::GROUP, "kind": "Addon"})),
        Some(0)
    );
    assert_eq!(which(json!({"group": "other", "kind": "Addon"})), None);
    assert_eq!(which(secret("a", "x/y")), Some(1));
    assert_eq!(which(secret("b", "Opaque")), Some(2));
    assert_eq!(which(secret("a", "Opaque")), None);
}
