//! `https://BOX:8443/bootstrap/v1/HOST`: bootstrap data for installed systems, behind one-time tokens (docs/reference.md). What ramdisks
//! say of their BMCs comes to the same door (`account`), and so do logs and metrics of servers (`monitoring::servers`).
//!
//! TLS by the site's CA. Must not: know what is in the data, or keep any of it. Who guesses tokens is made to wait.

use std::{
    collections::HashMap,
    convert::Infallible,
    net::{IpAddr, Ipv4Addr},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::Result;
use bytes::Bytes;
use firstlight_admission::Shares;
use firstlight_api::{account, names::BOOTSTRAP_PORT, status::Problem};
use http::{HeaderMap, Method, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use hyper::{Request, Response, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
    time::Instant,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::{
    Body,
    monitoring::{Engines, Servers},
    refusal,
    signature::Signature,
    text,
    tls::acceptor,
};
use crate::{
    doors::{Door, Known, Place},
    fleet::{Answer, Ask, Fleet},
    network::{self, Segment},
    pki::{CertSpec, Pki},
    status::StatusSender,
};

/// A confirmation is a hundred bytes.
const LARGEST: usize = 4096;
const TIME: Duration = Duration::from_secs(20);
/// For keys and certificates, on both ends.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// A server asks one question at a time.
pub(super) const PLACES: Shares = Shares {
    all: 256,
    kept: 192,
    of_peer: 8,
};
const RETRY: Duration = Duration::from_secs(2);
/// Wrong tokens of one address within [`WINDOW`], after which it is not listened to.
const MOST_WRONG: u32 = 10;
const WINDOW: Duration = Duration::from_mins(1);
/// Addresses that are counted; a token has far too many letters for guesses of more.
const MOST_GUESSERS: usize = 4096;

/// Serves the box's address on the provisioning network, whichever it is, until `stop`.
pub async fn serve(
    fleet: Fleet,
    known: Known,
    engines: Engines,
    mut pki: watch::Receiver<Option<Arc<Pki>>>,
    mut segment: watch::Receiver<Option<Segment>>,
    status: StatusSender,
    stop: CancellationToken,
) -> Result<()> {
    let door = Endpoint {
        servers: Servers::new(fleet.clone(), engines),
        fleet,
        door: Door::new(PLACES, known),
    };
    let work = async {
        let Some(pki) = pki.wait_for(Option::is_some).await?.clone() else {
            return Ok(());
        };
        loop {
            let Some(address) = network::wait_for_address(&mut segment).await else {
                return Ok(());
            };
            let acceptor = acceptor(&pki, &CertSpec::for_bootstrap(address))?;
            let moved = network::moved_from(Some(address), &mut segment);
            tokio::select! {
                result = listen(&door, acceptor, address, &status) => return result,
                alive = moved => if !alive { return Ok(()) },
            }
        }
    };
    tokio::select! {
        result = work => result,
        () = stop.cancelled() => Ok(()),
    }
}

/// What all connections have in common.
pub(super) struct Endpoint {
    pub fleet: Fleet,
    pub servers: Servers,
    pub door: Door,
}

async fn listen(
    endpoint: &Endpoint,
    acceptor: TlsAcceptor,
    address: Ipv4Addr,
    status: &StatusSender,
) -> Result<()> {
    let listener = loop {
        match TcpListener::bind((address, BOOTSTRAP_PORT)).await {
            Ok(listener) => break listener,
            Err(error) => status.problems(
                "bootstrap",
                vec![Problem {
                    what: format!(
                        "the bootstrap endpoint cannot listen at {address}:{BOOTSTRAP_PORT}: {error}"
                    ),
                    next: "another program may use this port; the box tries again every 2 s"
                        .to_owned(),
                }],
            ),
        }
        tokio::time::sleep(RETRY).await;
    };
    status.problems("bootstrap", vec![]);
    accept(endpoint, acceptor, listener).await
}

pub(super) async fn accept(
    endpoint: &Endpoint,
    acceptor: TlsAcceptor,
    listener: TcpListener,
) -> Result<()> {
    let guesses = Guesses::default();
    let mut connections = JoinSet::new();
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection was not accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        while connections.try_join_next().is_some() {}
        let Some(place) = endpoint.door.enter(peer.ip()) else {
            continue;
        };
        let one = One {
            fleet: endpoint.fleet.clone(),
            servers: endpoint.servers.clone(),
            known: endpoint.door.known().clone(),
            guesses: guesses.clone(),
            peer: peer.ip(),
            place,
        };
        let acceptor = acceptor.clone();
        connections.spawn(async move {
            // Nobody needs longer for one question.
            let served = tokio::time::timeout(TIME * 3, serve_one(&one, acceptor, stream));
            let served = tokio::select! {
                served = served => matches!(served, Ok(Ok(()))),
                () = one.place.lost() => false,
            };
            if !served {
                tracing::debug!(peer = %peer, "a bootstrap connection broke");
            }
        });
    }
}

async fn serve_one(one: &One, acceptor: TlsAcceptor, stream: TcpStream) -> Result<()> {
    let stream = tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await??;
    let service = service_fn(|request| async {
        let _work = one.place.work();
        Ok::<_, Infallible>(one.answer(request).await)
    });
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(TIME)
        .max_buf_size(16 * 1024)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service)
        .await?;
    Ok(())
}

/// Wrong tokens by address.
#[derive(Clone, Default)]
struct Guesses(Arc<Mutex<HashMap<IpAddr, (Instant, u32)>>>);

impl Guesses {
    fn too_many(&self, peer: IpAddr) -> bool {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, (since, _)| since.elapsed() < WINDOW);
        all.get(&peer)
            .is_some_and(|(_, wrong)| *wrong >= MOST_WRONG)
    }

    fn wrong(&self, peer: IpAddr) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() < MOST_GUESSERS || all.contains_key(&peer) {
            all.entry(peer).or_insert_with(|| (Instant::now(), 0)).1 += 1;
        }
    }
}

/// One connection.
struct One {
    fleet: Fleet,
    servers: Servers,
    known: Known,
    guesses: Guesses,
    peer: IpAddr,
    place: Place,
}

#[derive(Deserialize)]
struct Receipt {
    received: String,
}

impl One {
    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        if self.guesses.too_many(self.peer) {
            let mut response = refusal(
                StatusCode::TOO_MANY_REQUESTS,
                "too many wrong tokens from this address; try again in a minute",
            );
            let seconds = WINDOW.as_secs().into();
            response.headers_mut().insert(header::RETRY_AFTER, seconds);
            return response;
        }
        if request.uri().path() == account::PATH {
            return super::account::answer(&self.fleet, &self.known, self.peer, request).await;
        }
        if Servers::are_meant(request.uri().path()) {
            return self.servers.answer(&self.known, self.peer, request).await;
        }
        let Some(host) = host_of(request.uri().path()).map(str::to_owned) else {
            return refusal(StatusCode::NOT_FOUND, "nothing is here");
        };
        let Some(token) = bearer(request.headers()) else {
            self.guesses.wrong(self.peer);
            return unauthorized();
        };
        let signature = Signature::of(request.headers());
        let path = request.uri().path().to_owned();
        let (ask, body) = match *request.method() {
            Method::GET => (Ask::Fetch, Bytes::new()),
            Method::POST => match receipt(request).await {
                Ok((received, body)) => (Ask::Confirm { received }, body),
                Err(refused) => return *refused,
            },
            _ => return refusal(StatusCode::METHOD_NOT_ALLOWED, "GET or POST"),
        };
        if signature.as_ref().is_some_and(|it| !it.is_of(&path, &body)) {
            self.guesses.wrong(self.peer);
            return unauthorized();
        }
        let key = signature.map(|signature| signature.key);
        let answer = self.fleet.bootstrap(host, token, key, ask).await;
        if matches!(answer, Answer::Unknown | Answer::WrongToken) {
            self.guesses.wrong(self.peer);
        } else {
            self.known.believe(self.peer);
        }
        render(answer)
    }
}

/// The UUID of an Ironic node, as far as its letters go.
fn host_of(path: &str) -> Option<&str> {
    let host = path.strip_prefix("/bootstrap/v1/")?;
    let known = |byte: u8| byte.is_ascii_hexdigit() || byte == b'-';
    ((1..=64).contains(&host.len()) && host.bytes().all(known)).then_some(host)
}

fn bearer(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let token = value.strip_prefix("Bearer ")?;
    let plausible = (16..=256).contains(&token.len());
    plausible.then(|| token.to_owned())
}

/// What is confirmed, and the bytes that say so.
async fn receipt(request: Request<Incoming>) -> Result<(String, Bytes), Box<Response<Body>>> {
    let refuse = |status, message| Err(Box::new(refusal(status, message)));
    let body = Limited::new(request.into_body(), LARGEST).collect();
    let Ok(Ok(body)) = tokio::time::timeout(TIME, body).await else {
        return refuse(
            StatusCode::PAYLOAD_TOO_LARGE,
            "the body is too large or too slow",
        );
    };
    let body = body.to_bytes();
    match parse_receipt(&body) {
        Some(received) => Ok((received, body)),
        None => refuse(
            StatusCode::BAD_REQUEST,
            "not the JSON that is expected here",
        ),
    }
}

fn parse_receipt(body: &[u8]) -> Option<String> {
    let receipt = serde_json::from_slice::<Receipt>(body).ok()?;
    // A SHA-256 in hex.
    (receipt.received.len() <= 64).then_some(receipt.received)
}

fn unauthorized() -> Response<Body> {
    let mut response = refusal(StatusCode::UNAUTHORIZED, "this needs the host's token");
    let challenge = http::HeaderValue::from_static("Bearer");
    response
        .headers_mut()
        .insert(header::WWW_AUTHENTICATE, challenge);
    response
}

fn render(answer: Answer) -> Response<Body> {
    let say = |status, value: Value| text(status, "application/json", value.to_string());
    match answer {
        Answer::Wait { seconds } => say(
            StatusCode::ACCEPTED,
            json!({"action": "wait", "seconds": seconds}),
        ),
        Answer::Reboot => say(StatusCode::OK, json!({"action": "reboot"})),
        Answer::Bootstrap(data) => say(
            StatusCode::OK,
            json!({
                "action": "bootstrap",
                "userData": data.user_data,
                "metaData": data.meta_data,
                "networkData": data.network_data,
                "hostKey": data.host_key.map(|key| json!({
                    "private": key.private,
                    "public": key.public,
                })),
            }),
        ),
        Answer::Confirmed => say(StatusCode::OK, json!({"action": "done"})),
        Answer::Used => refusal(
            StatusCode::GONE,
            "this token was used: the host has its data",
        ),
        Answer::WrongToken => unauthorized(),
        Answer::Unknown => refusal(StatusCode::NOT_FOUND, "no such host"),
        Answer::Differs => refusal(
            StatusCode::CONFLICT,
            "that is not what was to be received; ask again",
        ),
    }
}

#[cfg(test)]
mod tests;
