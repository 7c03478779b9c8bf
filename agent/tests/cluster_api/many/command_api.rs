//! Where Ironic calls a simulated ramdisk: TLS with a certificate of its own, requests as events.

use std::{
    collections::HashMap,
    convert::Infallible,
    net::Ipv4Addr,
    pin::pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use firstlight_ramdisk::ipa::{
    event::{Event, Request},
    server::read_request,
};
use http_body_util::{BodyExt, Full};
use hyper::{Response, body::Bytes, body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{mpsc::UnboundedSender, oneshot},
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

const PORT: u16 = 9999;

/// Dropping it ends what is open.
pub struct CommandApi {
    desk: Arc<Desk>,
}

struct Desk {
    tls: TlsAcceptor,
    events: UnboundedSender<Event>,
    answers: Mutex<HashMap<u64, oneshot::Sender<(u16, Value)>>>,
    next: AtomicU64,
    closing: CancellationToken,
}

pub fn callback(address: Ipv4Addr) -> String {
    format!("https://{address}:{PORT}")
}

impl CommandApi {
    pub async fn open(
        address: Ipv4Addr,
        tls: Arc<rustls::ServerConfig>,
        events: UnboundedSender<Event>,
    ) -> Self {
        let listener = TcpListener::bind((address, PORT)).await.unwrap();
        let desk = Arc::new(Desk {
            tls: tls.into(),
            events,
            answers: Mutex::default(),
            next: AtomicU64::new(1),
            closing: CancellationToken::new(),
        });
        tokio::spawn(serve(listener, desk.clone()));
        Self { desk }
    }

    pub fn answer(&self, ask: u64, status: u16, body: Value) {
        let waiting = self.desk.answers.lock().unwrap().remove(&ask);
        if let Some(waiting) = waiting {
            drop(waiting.send((status, body)));
        }
    }

    /// Whoever has the answer to `lockdown` finds nobody any more.
    pub fn close(&self) {
        self.desk.closing.cancel();
    }
}

impl Drop for CommandApi {
    fn drop(&mut self) {
        self.close();
    }
}

async fn serve(listener: TcpListener, desk: Arc<Desk>) {
    let accepting = async {
        loop {
            if let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(converse(stream, desk.clone()));
            }
        }
    };
    desk.closing.run_until_cancelled(accepting).await;
}

async fn converse(stream: TcpStream, desk: Arc<Desk>) {
    let Ok(stream) = desk.tls.accept(stream).await else {
        return;
    };
    let service = service_fn(|request| handle(request, desk.clone()));
    let serving =
        hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    let mut serving = pin!(serving);
    tokio::select! {
        _ = serving.as_mut() => {}
        () = desk.closing.cancelled() => {
            serving.as_mut().graceful_shutdown();
            drop(serving.await);
        }
    }
}

async fn handle(
    request: hyper::Request<Incoming>,
    desk: Arc<Desk>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, unread) = request.into_parts();
    let query = head.uri.query().unwrap_or_default();
    let mut request = read_request(&head.method, head.uri.path(), query);
    if let Request::Run { body, .. } = &mut request {
        let whole = unread.collect().await;
        *body = whole.map_or(Vec::new(), |whole| whole.to_bytes().to_vec());
    }
    let ask = desk.next.fetch_add(1, Ordering::Relaxed);
    let (send, receive) = oneshot::channel();
    desk.answers.lock().unwrap().insert(ask, send);
    drop(desk.events.send(Event::Asked { ask, request }));
    let (status, body) = receive.await.unwrap_or((503, Value::Null));
    let answer = Response::builder()
        .status(status)
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(body.to_string())));
    Ok(answer.unwrap())
}
