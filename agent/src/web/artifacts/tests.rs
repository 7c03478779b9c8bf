#![allow(clippy::unwrap_used)]

use std::{net::SocketAddr, sync::Arc};

use http_body_util::{Full, StreamBody};
use hyper::{body::Frame, client::conn::http1};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::{
    boot_files::{BootFiles, Loaders},
    doors::{Door, Known},
    fleet,
    paths::Paths,
    status,
    web::server,
};

struct Fixture {
    address: SocketAddr,
    store: Store,
    _stop: tokio_util::sync::DropGuard,
    _dir: tempfile::TempDir,
}

struct Answer {
    status: StatusCode,
    offset: Option<u64>,
    text: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("{} {}", self.status, self.text))
    }
}

proptest::proptest! {
    #[test]
    fn a_query_is_words_with_what_was_escaped_or_refused(
        any in "[a-z0-9&=%]{0,60}",
        key in proptest::sample::select(vec!["kind", "name", "version", "arch", "state", "sha256"]),
        value: String,
    ) {
        let _ = filters(&any);
        let escaped = percent_encoding::utf8_percent_encode(&value, percent_encoding::NON_ALPHANUMERIC);
        let query = format!("&{key}={escaped}&");
        let found = filters(&query);
        proptest::prop_assert_eq!(found.map(|mut found| found.remove(key)), Ok(Some(value.into())));
        proptest::prop_assert_eq!(filters("kind=image&size=1"), Err("size"));
    }
}

async fn serve() -> Fixture {
    let dir = tempfile::tempdir().unwrap();
    let paths = Paths::new(dir.path());
    let (_, reader, _) = status::channel("0.1.0");
    let (fleet, _) = fleet::channel();
    let (_, boot) = watch::channel(None);
    let store = Store::load(&paths.store()).unwrap();
    let (_, stores) = watch::channel(Some(store.clone()));
    let boot_files = BootFiles {
        site: boot,
        fleet,
        paths,
        loaders: Loaders::default(),
    };
    let known = Known::new(watch::channel(Arc::default()).1);
    let web = Web::new(
        reader,
        boot_files,
        known,
        crate::people::People::new(dir.path().join("people")),
        crate::web::Facts {
            store: stores,
            ..crate::web::Facts::default()
        },
    );
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    let door = Door::new(server::SEGMENT, web.known.clone());
    tokio::spawn(server::accept(web, door, listener, stop.clone()));
    Fixture {
        address,
        store,
        _stop: stop.drop_guard(),
        _dir: dir,
    }
}

impl Fixture {
    async fn ask(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Answer {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{PATH}{path}"))
            .header("host", self.address.to_string());
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let stream = TcpStream::connect(self.address).await.unwrap();
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let request = request.body(Full::new(body.into())).unwrap();
        let response = sender.send_request(request).await.unwrap();
        let status = response.status();
        let offset = response
            .headers()
            .get(OFFSET)
            .map(|at| at.to_str().unwrap().parse().unwrap());
        let text = response.into_body().collect().await.unwrap().to_bytes();
        Answer {
            status,
            offset,
            text: String::from_utf8(text.to_vec()).unwrap(),
        }
    }

    async fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &[], "").await
    }

    async fn begin(&self, spec: &Value) -> Answer {
        self.ask(
            "POST",
            "",
            &[("content-type", "application/json")],
            spec.to_string(),
        )
        .await
    }

    async fn patch(&self, id: &str, offset: usize, bytes: &[u8]) -> Answer {
        let at = offset.to_string();
        self.ask("PATCH", &format!("/{id}"), &[(OFFSET, &at)], bytes.to_vec())
            .await
    }
}

fn spec(name: &str, content: &[u8]) -> Value {
    json!({
        "kind": "package", "name": name, "version": "1.0-1", "arch": "amd64",
        "size": content.len(), "sha256": firstlight_artifacts::hex(&Sha256::digest(content)),
    })
}

fn id(answer: &Answer) -> String {
    answer.json()["id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn an_upload_in_two_parts_is_an_artifact_that_can_be_read_back() {
    let box_ = serve().await;
    let content: Vec<u8> = (0..300_000_u32).map(|at| (at % 251) as u8).collect();
    let begun = box_.begin(&spec("hello", &content)).await;
    assert_eq!((begun.status, begun.offset), (StatusCode::CREATED, Some(0)));
    let id = id(&begun);
    let first = box_.patch(&id, 0, &content[..123_456]).await;
    assert_eq!(
        (first.status, first.offset),
        (StatusCode::OK, Some(123_456))
    );
    assert_eq!(
        box_.get(&format!("/{id}/content")).await.status,
        StatusCode::CONFLICT
    );
    let second = box_.patch(&id, 123_456, &content[123_456..]).await;
    assert_eq!(
        (second.status, second.offset),
        (StatusCode::OK, None),
        "{}",
        second.text
    );

    let read = box_
        .ask(
            "GET",
            &format!("/{id}/content"),
            &[("range", "bytes=0-3")],
            "",
        )
        .await;
    assert_eq!(
        (read.status, read.text.as_bytes()),
        (StatusCode::PARTIAL_CONTENT, &content[..4])
    );
    assert_eq!(box_.get(&format!("/{id}")).await.json()["name"], "hello");
    assert_eq!(
        box_.get("?kind=package&version=1.0-1").await.json()["artifacts"][0]["id"],
        id.as_str()
    );
    assert_eq!(box_.get("?kind=image").await.json()["artifacts"], json!([]));
}

#[tokio::test]
async fn what_came_before_a_connection_broke_is_kept() {
    let box_ = serve().await;
    let content = vec![7; 200_000];
    let id = id(&box_.begin(&spec("hello", &content)).await);
    let stream = TcpStream::connect(box_.address).await.unwrap();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    let connection = tokio::spawn(connection);
    let (pieces, receiver) = mpsc::channel::<Result<Frame<Bytes>, std::io::Error>>(1);
    let stream = futures_util::stream::unfold(receiver, |mut pieces| async {
        pieces.recv().await.map(|piece| (piece, pieces))
    });
    let request = Request::patch(format!("{PATH}/{id}"))
        .header("host", "localhost")
        .header(OFFSET, "0")
        .body(StreamBody::new(Box::pin(stream)))
        .unwrap();
    let answer = tokio::spawn(async move { sender.send_request(request).await });
    pieces
        .send(Ok(Frame::data(vec![7; 50_000].into())))
        .await
        .unwrap();
    let arrived = async |wanted| while box_.get(&format!("/{id}")).await.offset != Some(wanted) {};
    arrived(50_000).await;
    let second = box_.patch(&id, 50_000, &content[50_000..]).await;
    assert_eq!(second.status, StatusCode::CONFLICT, "one writer at a time");

    connection.abort();
    drop((pieces, answer));
    let mut rest = box_.patch(&id, 50_000, &content[50_000..]).await;
    // Until the server has seen that the first connection is gone.
    while rest.status == StatusCode::CONFLICT {
        rest = box_.patch(&id, 50_000, &content[50_000..]).await;
    }
    assert_eq!(
        (rest.status, rest.json()["state"].as_str()),
        (StatusCode::OK, Some("publishing"))
    );
}

#[tokio::test]
async fn each_refusal_is_a_sentence_with_its_code() {
    let box_ = serve().await;
    let good = spec("hello", b"hello");
    let id = id(&box_.begin(&good).await);
    let with = |key: &str, value: Value| {
        let mut spec = good.clone();
        spec[key] = value;
        spec
    };
    let mut huge = with("size", json!(1_u64 << 39));
    huge["name"] = json!("huge");
    let mut unknown = good.clone();
    unknown["colour"] = json!("red");
    for (what, answer, status, says) in [
        ("unknown", box_.get("/ffff").await, 404, "no artifact ffff"),
        (
            "below nothing",
            box_.get("/a/b/c").await,
            404,
            "nothing is here",
        ),
        (
            "an unknown filter",
            box_.get("?colour=red").await,
            400,
            "use kind, name",
        ),
        (
            "no JSON",
            box_.ask("POST", "", &[], "{}").await,
            415,
            "application/json",
        ),
        (
            "nothing said",
            box_.begin(&json!({})).await,
            422,
            "missing field",
        ),
        ("an unknown word", box_.begin(&unknown).await, 422, "colour"),
        (
            "a bad name",
            box_.begin(&with("name", json!("../x"))).await,
            422,
            "name",
        ),
        (
            "no such kind",
            box_.begin(&with("kind", json!("disk"))).await,
            422,
            "disk",
        ),
        (
            "other content",
            box_.begin(&with("sha256", json!("ab".repeat(32)))).await,
            409,
            "other content",
        ),
        ("too large", box_.begin(&huge).await, 413, "do not fit"),
        (
            "no offset",
            box_.ask("PATCH", &format!("/{id}"), &[], "x").await,
            400,
            "Upload-Offset",
        ),
        (
            "a wrong offset",
            box_.patch(&id, 3, b"lo").await,
            409,
            "goes on at byte 0",
        ),
        (
            "more than announced",
            box_.patch(&id, 0, b"hello!").await,
            422,
            "announced",
        ),
        (
            "not what was announced",
            box_.patch(&id, 0, b"hellO").await,
            422,
            "SHA-256",
        ),
        (
            "gone after that",
            box_.patch(&id, 0, b"hello").await,
            404,
            "no artifact",
        ),
        (
            "nothing to delete",
            box_.ask("DELETE", "/ffff", &[], "").await,
            404,
            "no artifact",
        ),
    ] {
        assert_eq!(answer.status.as_u16(), status, "{what}: {}", answer.text);
        assert!(answer.text.contains(says), "{what}: {}", answer.text);
    }
    assert_eq!(box_.patch(&id, 3, b"lo").await.offset, None);
}

#[tokio::test]
async fn what_is_deleted_is_gone() {
    let box_ = serve().await;
    let id = id(&box_.begin(&spec("hello", b"hello")).await);
    assert_eq!(box_.patch(&id, 0, b"hello").await.status, StatusCode::OK);
    let unknown = box_.ask("DELETE", &format!("/{id}"), &[], "").await;
    assert_eq!(unknown.status, StatusCode::CONFLICT, "{}", unknown.text);

    box_.store.note(crate::store::User::Software, Vec::new());
    let deleted = box_.ask("DELETE", &format!("/{id}"), &[], "").await;
    assert_eq!(deleted.status, StatusCode::NO_CONTENT, "{}", deleted.text);
    assert_eq!(
        box_.get(&format!("/{id}")).await.status,
        StatusCode::NOT_FOUND
    );
}
