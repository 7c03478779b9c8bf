//! The command API's HTTPS server: hyper on a tokio runtime of one thread, since a listener that must survive any client
//! is no place for a parser of our own. Everything else in this program blocks.
//!
//! It can be closed so that an answer is the last thing ever heard: Ironic keeps a connection open, looks again right
//! after `lockdown`, and takes any further answer for a ramdisk that did not lock down.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context as _, Result};
use firstlight_admission::Shares;
use firstlight_admission::Ticket;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Method, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::{Value, json};
use tokio::sync::{oneshot, watch};
use tokio_rustls::TlsAcceptor;

use super::event::{Event, Request};
use super::places::{Place, Places};

/// Ironic comes from the box, and most places are kept for it.
const SHARES: Shares = Shares {
    all: 6,
    kept: 4,
    of_peer: 4,
};
/// A command carries a dump of its node, config drive included. Only who says the token may send so much, or anything.
const BODY_LIMIT: usize = 128 << 20;
/// To finish a handshake or a request's header.
const PATIENCE: Duration = Duration::from_secs(20);
/// Between two requests of Ironic, which keeps its connections.
const IDLE: Duration = Duration::from_mins(10);
/// To send a whole body.
const BODY_PATIENCE: Duration = Duration::from_mins(2);

/// What Ironic has to say, once this machine is registered.
type Token = Arc<Mutex<Option<String>>>;
type Answers = Arc<Mutex<HashMap<u64, oneshot::Sender<(u16, Value)>>>>;

/// The running server. Dropping it ends every connection.
pub struct Server {
    answers: Answers,
    token: Token,
    closing: watch::Sender<bool>,
    /// Says that the listener is closed.
    closed: Receiver<()>,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Serves on `listener`; each request becomes an [`Event::Asked`]. `home` is where Ironic is; `None`: anywhere.
    pub fn start(
        listener: TcpListener,
        tls: Arc<rustls::ServerConfig>,
        home: Option<IpAddr>,
        events: Sender<Event>,
    ) -> Result<Self> {
        listener
            .set_nonblocking(true)
            .context("preparing the command API's listener")?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("starting the command API's runtime")?;
        let (answers, token) = (Answers::default(), Token::default());
        let (closing, is_closing) = watch::channel(false);
        let (has_closed, closed) = std::sync::mpsc::channel();
        let (end, ended) = oneshot::channel::<()>();
        let desk = Arc::new(Desk {
            answers: Arc::clone(&answers),
            token: Arc::clone(&token),
            places: Arc::new(Places::new(SHARES, home)),
            events,
            next: AtomicU64::new(1),
            closing: is_closing,
        });
        let thread = thread::Builder::new()
            .name("command-api".to_owned())
            .spawn(move || {
                runtime.block_on(async {
                    let closing = desk.closing.clone();
                    tokio::select! {
                        () = serve(listener, TlsAcceptor::from(tls), desk) => {}
                        () = until_closing(closing) => {}
                    }
                    // The listener went with the future that held it.
                    let _ = has_closed.send(());
                    let _ = ended.await;
                });
            })
            .context("starting the command API's thread")?;
        Ok(Self {
            answers,
            token,
            closing,
            closed,
            end: Some(end),
            thread: Some(thread),
        })
    }

    /// Whoever does not say this token is refused before anything else is read of his request.
    pub fn expect(&self, token: Option<&str>) {
        let mut expected = self.token.lock().unwrap_or_else(PoisonError::into_inner);
        if expected.as_deref() != token {
            *expected = token.map(str::to_owned);
        }
    }

    /// Answers a request; one whose client has gone is forgotten.
    pub fn answer(&self, ask: u64, status: u16, body: Value) {
        let waiting = self
            .answers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&ask);
        if let Some(waiting) = waiting {
            let _ = waiting.send((status, body));
        }
    }

    /// Closes the listener and every idle connection. Requests that came before are still answered, each as the last
    /// of its connection: whoever has the answer to `lockdown` finds nobody any more.
    pub fn close(&self) {
        self.closing.send_replace(true);
        if self.closed.recv_timeout(PATIENCE).is_err() {
            tracing::warn!("the command API's listener does not close");
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.closing.send_replace(true);
        self.end = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the command API ended with a panic");
        }
    }
}

/// Where requests wait for their answers.
struct Desk {
    answers: Answers,
    token: Token,
    places: Arc<Places>,
    events: Sender<Event>,
    next: AtomicU64,
    closing: watch::Receiver<bool>,
}

async fn until_closing(mut closing: watch::Receiver<bool>) {
    // A server that has gone has closed as well.
    let _ = closing.wait_for(|closing| *closing).await;
}

async fn serve(listener: TcpListener, tls: TlsAcceptor, desk: Arc<Desk>) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::error!(%error, "the command API cannot listen");
            return;
        }
    };
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                // Who finds no place is told so by the end of the connection.
                if let Some(place) = desk.places.enter(peer.ip()) {
                    let desk = Arc::clone(&desk);
                    tokio::spawn(connection(stream, peer, tls.clone(), desk, place));
                }
            }
            Err(error) => {
                tracing::debug!(%error, "a connection to the command API could not be taken");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn connection(
    stream: tokio::net::TcpStream,
    peer: SocketAddr,
    tls: TlsAcceptor,
    desk: Arc<Desk>,
    mut place: Place,
) {
    let ticket = place.ticket();
    tokio::select! {
        () = converse(stream, peer, tls, desk, ticket) => {}
        _ = &mut place.lost => tracing::debug!(%peer, "a client of the command API gave way"),
    }
}

async fn converse(
    stream: tokio::net::TcpStream,
    peer: SocketAddr,
    tls: TlsAcceptor,
    desk: Arc<Desk>,
    ticket: Ticket,
) {
    let stream = match tokio::time::timeout(PATIENCE, tls.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            return tracing::debug!(%peer, %error, "no TLS with a client of the command API");
        }
        Err(_) => return tracing::debug!(%peer, "a client of the command API was silent"),
    };
    let closing = desk.closing.clone();
    let idle = if desk.places.is_home(peer.ip()) {
        IDLE
    } else {
        PATIENCE
    };
    let service = service_fn(|request| handle(request, Arc::clone(&desk), ticket));
    let mut serving = pin!(
        hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(idle)
            .serve_connection(TokioIo::new(stream), service)
    );
    let result = tokio::select! {
        result = serving.as_mut() => result,
        () = until_closing(closing) => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = result {
        tracing::debug!(%peer, %error, "a connection to the command API ended early");
    }
}

async fn handle(
    request: hyper::Request<Incoming>,
    desk: Arc<Desk>,
    ticket: Ticket,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, unread) = request.into_parts();
    let query = head.uri.query().unwrap_or_default();
    let mut request = read_request(&head.method, head.uri.path(), query);
    if let Request::Run { token, .. } | Request::List { token } | Request::One { token, .. } =
        &request
    {
        let expected = desk.token.lock().unwrap_or_else(PoisonError::into_inner);
        if expected.is_none() || *expected != *token {
            return Ok(last(reply(401, &fault("Invalid agent token."))));
        }
        desk.places.works(ticket);
    }
    if let Request::Run { body, .. } = &mut request {
        match read_body(unread).await {
            Ok(whole) => *body = whole,
            Err(why) => return Ok(last(reply(400, &fault(&why)))),
        }
    }
    let ask = desk.next.fetch_add(1, Ordering::Relaxed);
    let (send, receive) = oneshot::channel();
    desk.answers
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .insert(ask, send);
    let gone = desk.events.send(Event::Asked { ask, request }).is_err();
    let (status, value) = match receive.await {
        Ok(answer) if !gone => answer,
        _ => (503, fault("This ramdisk is ending.")),
    };
    desk.places.waits(ticket);
    Ok(reply(status, &value))
}

/// In one piece of memory, whatever the size.
async fn read_body(body: Incoming) -> Result<Vec<u8>, String> {
    let mut frames = Limited::new(body, BODY_LIMIT);
    let reading = async {
        let mut body = Vec::new();
        while let Some(frame) = frames.frame().await {
            let frame = frame.map_err(|error| format!("The body cannot be read: {error}"))?;
            if let Some(data) = frame.data_ref() {
                body.extend_from_slice(data);
            }
        }
        Ok(body)
    };
    let in_time = tokio::time::timeout(BODY_PATIENCE, reading).await;
    in_time.unwrap_or_else(|_| Err("The body did not arrive in time.".to_owned()))
}

/// Whose head and path say what is asked; a body is read later, if at all.
pub fn read_request(method: &Method, path: &str, query: &str) -> Request {
    let find = |wanted: &str| {
        query
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .find(|(key, _)| *key == wanted)
            .map(|(_, value)| unescape(value))
    };
    let token = find("agent_token");
    let parts: Vec<&str> = path.split('/').filter(|p| !p.is_empty()).collect();
    match (method, parts.as_slice()) {
        (&Method::POST, ["v1", "commands"]) => Request::Run {
            token,
            wait: find("wait").is_some_and(|v| v.eq_ignore_ascii_case("true")),
            body: Vec::new(),
        },
        (&Method::GET, ["v1", "commands"]) => Request::List { token },
        (&Method::GET, ["v1", "commands", id]) => Request::One {
            token,
            id: (*id).to_owned(),
        },
        (&Method::GET, ["v1", "status"]) => Request::Status,
        (&Method::GET, [] | ["v1"]) => Request::Root,
        _ => Request::Unknown(format!("{method} {path}")),
    }
}

/// Percent-decoding of a query value.
fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let escaped = (first == b'%')
            .then(|| std::str::from_utf8(after.get(..2)?).ok())
            .flatten()
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        if let Some(byte) = escaped {
            bytes.push(byte);
            rest = &after[2..];
        } else {
            bytes.push(if first == b'+' { b' ' } else { first });
            rest = after;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn reply(status: u16, value: &Value) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(value.to_string())));
    *response.status_mut() =
        hyper::StatusCode::from_u16(status).unwrap_or(hyper::StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(
        hyper::header::CONTENT_TYPE,
        hyper::header::HeaderValue::from_static("application/json"),
    );
    response
}

/// The rest of the connection is not read.
fn last(mut response: Response<Full<Bytes>>) -> Response<Full<Bytes>> {
    let close = hyper::header::HeaderValue::from_static("close");
    response
        .headers_mut()
        .insert(hyper::header::CONNECTION, close);
    response
}

fn fault(text: &str) -> Value {
    json!({"faultcode": "Client", "faultstring": text})
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
