#![allow(clippy::unwrap_used)]

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use proptest::prelude::*;
use rustls::pki_types::ServerName;
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::{
    doors::Door,
    paths::Paths,
    pki,
    web::{server, tls::connector},
};

const OLD: &str = "infrastructure.cluster.x-k8s.io/v1beta1";
const NEW: &str = "infrastructure.cluster.x-k8s.io/v1beta2";

fn asked(wanted: &str, objects: &[Value]) -> Value {
    json!({
        "apiVersion": API_VERSION, "kind": KIND,
        "request": {"uid": "u-1", "desiredAPIVersion": wanted, "objects": objects},
    })
}

fn template(name: &str, format: &str) -> Value {
    json!({
        "apiVersion": OLD, "kind": "Metal3MachineTemplate",
        "metadata": {"name": name, "namespace": "rack", "uid": name, "generation": 4},
        "spec": {"template": {"spec": {"image": {"url": "http://a", "format": format}}}},
    })
}

#[test]
fn any_number_of_objects_is_converted_in_their_order_with_their_metadata() {
    let objects: Vec<Value> = (0..500)
        .map(|n| template(&format!("t{n}"), "raw"))
        .collect();
    let answer = review(asked(NEW, &objects).to_string().as_bytes()).unwrap();
    let response = &answer["response"];
    assert_eq!(response["uid"], "u-1");
    assert_eq!(response["result"], json!({"status": "Success"}));
    let converted = response["convertedObjects"].as_array().unwrap();
    assert_eq!(converted.len(), objects.len());
    for (made, given) in converted.iter().zip(&objects) {
        assert_eq!(
            (&made["metadata"], &made["apiVersion"]),
            (&given["metadata"], &json!(NEW))
        );
        assert_eq!(
            made["spec"]["template"]["spec"]["image"]["diskFormat"],
            "raw"
        );
    }
    let none = review(asked(NEW, &[]).to_string().as_bytes()).unwrap();
    assert_eq!(none["response"]["convertedObjects"], json!([]));
}

#[test]
fn one_object_that_cannot_be_converted_is_named_in_a_sentence() {
    let mut foreign = template("odd", "raw");
    foreign["kind"] = "Metal3Data".into();
    let answer = review(
        asked(NEW, &[template("t", "raw"), foreign])
            .to_string()
            .as_bytes(),
    );
    let response = &answer.unwrap()["response"];
    assert_eq!(response["convertedObjects"], json!([]));
    let message =
        "rack/odd: Metal3Data is not converted here; write infrastructure.cluster.x-k8s.io/v1beta2";
    assert_eq!(
        response["result"],
        json!({"status": "Failure", "message": message})
    );
}

#[tokio::test]
async fn reviews_are_taken_up_to_their_bound_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let pki = pki::load_or_make(&Paths::new(dir.path()), 1_795_219_200).unwrap();
    let conversions = Conversions {
        acceptor: acceptor(&pki, &CertSpec::for_conversion()).unwrap(),
        places: Arc::new(Semaphore::new(AT_ONCE)),
        people: crate::people::People::new(dir.path().join("people")),
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let known = Known::new(watch::channel(Arc::default()).1);
    let door = Door::new(server::SEGMENT, known);
    tokio::spawn(server::accept(
        conversions,
        door,
        listener,
        CancellationToken::new(),
    ));
    let ask = async |method: Method, path: &str, body: Vec<u8>| {
        let stream = TcpStream::connect(address).await.unwrap();
        let name = ServerName::from(IpAddr::from(Ipv4Addr::LOCALHOST));
        let stream = connector(&pki).connect(name, stream).await.unwrap();
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let request = Request::builder().method(method).uri(path);
        let request = request.header("host", "box");
        let request = request.body(Full::new(Bytes::from(body))).unwrap();
        let response = sender.send_request(request).await.unwrap();
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    };
    let path = v1beta1::PATH;
    let body = asked(NEW, &[template("t", "raw")]).to_string();
    let (status, said) = ask(Method::POST, path, body.into_bytes()).await;
    assert!(status == 200 && said.contains("\"Success\""), "{said}");
    let (status, said) = ask(Method::POST, path, b"no review".to_vec()).await;
    assert_eq!(status, 400, "{said}");
    assert_eq!(ask(Method::GET, path, Vec::new()).await.0, 405);
    assert_eq!(ask(Method::POST, "/", Vec::new()).await.0, 404);
    // The most that is taken, and one byte more.
    assert_eq!(ask(Method::POST, path, vec![b' '; LARGEST]).await.0, 400);
    let (status, said) = ask(Method::POST, path, vec![b' '; LARGEST + 1]).await;
    assert!(status == 413 && said.contains("--chunk-size=100"), "{said}");
}

#[test]
fn what_is_no_review_is_no_answer() {
    let mut beta = asked(NEW, &[]);
    beta["apiVersion"] = "apiextensions.k8s.io/v1beta1".into();
    assert_eq!(review(beta.to_string().as_bytes()), None);
    let mut answer = asked(NEW, &[]);
    answer.as_object_mut().unwrap().remove("request");
    assert_eq!(review(answer.to_string().as_bytes()), None);
}

/// JSON of some depth whose names are those that a conversion knows.
fn anything() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "[a-z/]{0,4}".prop_map(Value::from),
    ];
    let names = prop::sample::select(vec![
        "spec",
        "status",
        "template",
        "metadata",
        "annotations",
        "image",
        "format",
        "failureDomains",
        "conditions",
        "v1beta2",
        "deprecated",
        "ready",
        "indexes",
        "networkData",
        "links",
        "bonds",
        "parameters",
        "name",
        "firstlight.internal/only-in-v1beta1",
        "cluster.x-k8s.io/conversion-data",
    ]);
    leaf.prop_recursive(6, 64, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(names.clone(), inner, 0..6).prop_map(|fields| {
                fields
                    .into_iter()
                    .map(|(name, value)| (name.to_owned(), value))
                    .collect()
            }),
        ]
    })
}

proptest! {
    #[test]
    fn no_bytes_bring_it_down(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        review(&bytes);
    }

    #[test]
    fn no_object_brings_it_down_and_none_of_a_kind_that_it_knows_is_refused(
        object in anything(),
        kind in prop::sample::select(vec!["Metal3Cluster", "Metal3MachineTemplate", "Metal3Machine", "Metal3DataTemplate", "Metal3Remediation", "Metal3RemediationTemplate"]),
        is_old in any::<bool>(),
    ) {
        let mut object = if object.is_object() { object } else { json!({"spec": object}) };
        let (has, wanted) = if is_old { (OLD, NEW) } else { (NEW, OLD) };
        object["apiVersion"] = has.into();
        object["kind"] = kind.into();
        let answer = review(asked(wanted, &[object]).to_string().as_bytes()).unwrap();
        prop_assert_eq!(&answer["response"]["result"]["status"], "Success");
    }
}
