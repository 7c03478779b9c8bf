#![allow(clippy::unwrap_used)]

use std::{
    collections::BTreeSet,
    convert::Infallible,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use hyper::{server::conn, service::service_fn};
use tokio::{net::TcpListener, sync::watch};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::*;
use crate::{
    doors::{Door, Known},
    web::{full, server},
};

/// What a registry would see, and how much of it was written.
#[derive(Default)]
struct Registry {
    heads: Mutex<Vec<http::request::Parts>>,
    written: AtomicUsize,
}

async fn registry() -> (SocketAddr, Arc<Registry>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let registry = Arc::new(Registry::default());
    let seen = registry.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let seen = seen.clone();
            let service = service_fn(move |request: Request<Incoming>| {
                let seen = seen.clone();
                async move {
                    let (head, mut body) = request.into_parts();
                    while let Some(Ok(frame)) = body.frame().await {
                        let length = frame.data_ref().map_or(0, Bytes::len);
                        seen.written.fetch_add(length, Ordering::Relaxed);
                    }
                    seen.heads.lock().unwrap().push(head);
                    let answer = Response::builder()
                        .status(202)
                        .header("docker-upload", "u1");
                    Ok::<_, Infallible>(answer.body(full("taken")).unwrap())
                }
            });
            let serving =
                conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            tokio::spawn(serving);
        }
    });
    (address, registry)
}

struct Site {
    address: SocketAddr,
    registry: Arc<Registry>,
    _stop: DropGuard,
}

/// `disk`: bytes that are free before anything is written; of these `reserve` stay.
async fn site(disk: usize, reserve: u64) -> Site {
    let (behind, registry) = registry().await;
    let written = registry.clone();
    let free = move || Ok((disk - written.written.load(Ordering::Relaxed).min(disk)) as u64);
    let pushes = Pushes {
        registry: behind,
        room: Room::new(reserve, free),
    };
    let stop = CancellationToken::new();
    let address = open(pushes, stop.clone()).await;
    Site {
        address,
        registry,
        _stop: stop.drop_guard(),
    }
}

async fn open(pushes: Pushes, stop: CancellationToken) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let known = Known::new(watch::channel(Arc::<BTreeSet<_>>::default()).1);
    let door = Door::new(server::SEGMENT, known);
    tokio::spawn(server::accept(pushes, door, listener, stop));
    address
}

/// Status, headers and text; `None`: the connection was closed in the middle of the request.
async fn ask(
    address: SocketAddr,
    method: Method,
    path: &str,
    body: Vec<u8>,
) -> Option<(StatusCode, HeaderMap, String)> {
    let stream = TcpStream::connect(address).await.unwrap();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::HOST, "localhost:5001")
        .header("authorization", "of the client")
        .body(full(body))
        .unwrap();
    let (head, body) = sender.send_request(request).await.ok()?.into_parts();
    let text = body.collect().await.ok()?.to_bytes();
    let text = String::from_utf8(text.into()).unwrap();
    Some((head.status, head.headers, text))
}

#[tokio::test]
async fn a_request_and_its_answer_pass_as_they_are() {
    let site = site(100 << 20, 1 << 20).await;
    let path = "/v2/a/blobs/uploads/u1?_state=s&digest=sha256%3Aab";
    let body = vec![7; 5 << 20];
    let answered = ask(site.address, Method::PATCH, path, body).await;
    let (status, headers, text) = answered.unwrap();
    assert_eq!((status.as_u16(), text.as_str()), (202, "taken"));
    assert_eq!(headers["docker-upload"], "u1");
    let heads = site.registry.heads.lock().unwrap();
    assert_eq!(heads[0].uri.path_and_query().unwrap().as_str(), path);
    assert_eq!(heads[0].headers[header::HOST], "localhost:5001");
    assert_eq!(heads[0].headers["authorization"], "of the client");
    assert_eq!(heads[0].headers[header::CONTENT_LENGTH], "5242880");
    assert_eq!(site.registry.written.load(Ordering::Relaxed), 5 << 20);
}

#[tokio::test]
async fn what_is_pushed_never_takes_the_reserve() {
    const MIB: usize = 1 << 20;
    let site = site(20 * MIB, 10 << 20).await;
    let path = "/v2/a/blobs/uploads/u1";
    // Whoever still sends may not come to read the answer.
    let answered = ask(site.address, Method::PATCH, path, vec![7; 200 * MIB]).await;
    assert!(answered.is_none_or(|(status, ..)| status == StatusCode::INSUFFICIENT_STORAGE));
    let written = site.registry.written.load(Ordering::Relaxed);
    assert!((9 * MIB..13 * MIB).contains(&written), "{written}");

    for method in [Method::POST, Method::PUT, Method::PATCH] {
        site.registry.written.store(10 * MIB, Ordering::Relaxed);
        let (status, _, text) = ask(site.address, method, path, vec![]).await.unwrap();
        assert_eq!(status, StatusCode::INSUFFICIENT_STORAGE);
        let told: serde_json::Value = serde_json::from_str(&text).unwrap();
        let message = told["errors"][0]["message"].as_str().unwrap();
        assert!(
            message.contains("no room for this; delete images"),
            "{text}"
        );
    }
    // What frees room, and what takes none.
    for method in [Method::DELETE, Method::GET] {
        let (status, ..) = ask(site.address, method, path, vec![]).await.unwrap();
        assert_eq!(status.as_u16(), 202);
    }
}

#[tokio::test]
async fn a_registry_that_is_not_there_yet_is_told() {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let nobody = free.local_addr().unwrap();
    drop(free);
    let pushes = Pushes {
        registry: nobody,
        room: Room::new(0, || Ok(1)),
    };
    let stop = CancellationToken::new();
    let address = open(pushes, stop.clone()).await;
    let (status, _, text) = ask(address, Method::GET, "/v2/", vec![]).await.unwrap();
    assert_eq!(status, StatusCode::BAD_GATEWAY);
    assert!(
        text.contains("comes up with the box's Kubernetes"),
        "{text}"
    );
    stop.cancel();
}
