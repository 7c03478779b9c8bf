//! Passes the image that this machine is writing on to another server, so that a rack's images leave the box twice and not
//! once a server. Plain HTTP, as at the box: the receiver checks the digest.
//!
//! Must not: give anything but the one file in [`Share`].

use std::convert::Infallible;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context as _, Result};
use firstlight_admission::Shares;
use firstlight_client::http::Url;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, channel::Channel};
use hyper::body::{Bytes, Incoming};
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use nix::libc::linger;
use nix::sys::socket::{setsockopt, sockopt};
use tokio::net::TcpStream;
use tokio::sync::{oneshot, watch};

use super::places::Places;
use crate::deploy::image::share::{Kept, Share, SharedFile};

/// The box sends one server at a time; more than a few are no servers. Who has asked for nothing gives way.
const SHARES: Shares = Shares {
    all: 8,
    kept: 0,
    of_peer: 2,
};
/// For a request's header, and for a server that takes no bytes.
const PATIENCE: Duration = Duration::from_secs(20);
const NO_LINGER: linger = linger {
    l_onoff: 0,
    l_linger: 0,
};
/// Chunks on their way to the wire.
const AHEAD: usize = 4;

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// The running server.
pub struct Relay {
    pub share: Arc<Share>,
    pub port: u16,
    running: Mutex<Option<Running>>,
}

struct Running {
    end: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl Relay {
    pub fn start() -> Result<Self> {
        let listener =
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).context("listening for other servers")?;
        listener
            .set_nonblocking(true)
            .context("preparing the relay's listener")?;
        let port = listener.local_addr().context("the relay's address")?.port();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("starting the relay's runtime")?;
        let share = Arc::<Share>::default();
        let (end, ended) = oneshot::channel::<()>();
        let ours = Arc::clone(&share);
        let thread = thread::Builder::new()
            .name("relay".to_owned())
            .spawn(move || {
                runtime.block_on(async {
                    tokio::select! {
                        () = serve(listener, ours) => {}
                        _ = ended => {}
                    }
                });
            })
            .context("starting the relay's thread")?;
        Ok(Self {
            share,
            port,
            running: Mutex::new(Some(Running { end, thread })),
        })
    }

    /// Ends every connection, in a way that the other end notices although this machine is gone in a moment.
    pub fn close(&self) {
        let running = self.running.lock();
        let Some(Running { end, thread }) = running.unwrap_or_else(PoisonError::into_inner).take()
        else {
            return;
        };
        drop(end);
        if thread.join().is_err() {
            tracing::error!("the relay ended with a panic");
        }
    }
}

async fn serve(listener: TcpListener, share: Arc<Share>) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "the relay cannot listen"),
    };
    let places = Arc::new(Places::new(SHARES, None));
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                // Who finds no place is told so by the end of the connection, and asks the box.
                let Some(mut place) = places.enter(peer.ip()) else {
                    continue;
                };
                let (share, places) = (Arc::clone(&share), Arc::clone(&places));
                tokio::spawn(async move {
                    let ticket = place.ticket();
                    tokio::select! {
                        ended = connection(stream, &share, || places.works(ticket)) => if let Err(error) = ended {
                            tracing::debug!(%peer, error = %format!("{error:#}"), "another server left in the middle");
                        },
                        _ = &mut place.lost => tracing::debug!(%peer, "another server gave way"),
                    }
                });
            }
            Err(error) => {
                tracing::debug!(%error, "another server could not be taken");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// `works` is called when it gets the file.
async fn connection(stream: TcpStream, share: &Share, works: impl Fn()) -> Result<()> {
    // Whoever is cut off is told so by a reset, which needs no room in a full window.
    stream.set_zero_linger()?;
    let service = service_fn(|request: Request<Incoming>| {
        let response = answer(&request, share.watch());
        if response.status().is_success() {
            works();
        }
        async { Ok::<_, Infallible>(response) }
    });
    let parts = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service)
        .without_shutdown()
        .await?;
    // All of it was sent, if perhaps not yet received.
    setsockopt(&parts.io.into_inner(), sockopt::Linger, &NO_LINGER)?;
    Ok(())
}

fn answer(request: &Request<Incoming>, kept: watch::Receiver<Kept>) -> Response<Body> {
    let file = kept.borrow().file.clone();
    let is_asked = |file: &SharedFile| {
        Url::parse(&file.url).is_ok_and(|url| url.target == request.uri().path())
    };
    let Some(file) = file.filter(is_asked) else {
        return refuse(StatusCode::NOT_FOUND);
    };
    let Some(from) = first_byte(request.headers(), &file.validator) else {
        return refuse(StatusCode::PRECONDITION_FAILED);
    };
    if from >= file.total {
        return refuse(StatusCode::RANGE_NOT_SATISFIABLE);
    }
    let mut headers = vec![
        (header::ETAG, file.validator.clone()),
        (header::CONTENT_LENGTH, (file.total - from).to_string()),
    ];
    let mut status = StatusCode::OK;
    if from > 0 {
        let (last, total) = (file.total - 1, file.total);
        status = StatusCode::PARTIAL_CONTENT;
        headers.push((
            header::CONTENT_RANGE,
            format!("bytes {from}-{last}/{total}"),
        ));
    }
    let (mut sender, body) = Channel::new(AHEAD);
    tokio::spawn(async move {
        let mut kept = kept;
        let mut at = from;
        while let Some(chunk) = next(&mut kept, &file, at).await {
            at += chunk.len() as u64;
            // Without the rest the length does not fit, and the receiver asks the box for it.
            match tokio::time::timeout(PATIENCE, sender.send_data(chunk)).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) | Err(_) => return,
            }
        }
    });
    let mut response = Response::new(body.boxed_unsync());
    *response.status_mut() = status;
    for (name, value) in headers {
        if let Ok(value) = HeaderValue::from_str(&value) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

/// Waits for the byte at `at`; `None` at the end, and when the file is kept no more.
async fn next(kept: &mut watch::Receiver<Kept>, file: &SharedFile, at: u64) -> Option<Bytes> {
    if at == file.total {
        return None;
    }
    let there = |kept: &Kept| kept.file.as_ref() != Some(file) || kept.received > at;
    let kept = kept.wait_for(there).await.ok()?;
    (kept.file.as_ref() == Some(file)).then(|| kept.at(at))?
}

/// Of the range; `None` if it is one of another file, or of a form that a ramdisk does not ask for.
fn first_byte(headers: &HeaderMap, validator: &str) -> Option<u64> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let Some(range) = text(header::RANGE) else {
        return Some(0);
    };
    if text(header::IF_RANGE).is_some_and(|wanted| wanted != validator) {
        return None;
    }
    range
        .strip_prefix("bytes=")?
        .strip_suffix('-')?
        .parse()
        .ok()
}

fn refuse(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Empty::new().boxed_unsync());
    *response.status_mut() = status;
    response
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::Read as _;

    use firstlight_client::http::{Client, Reply, Request};
    use proptest::prelude::*;

    use super::*;

    const URL: &str = "http://172.22.0.1/images/node.raw.zst";

    fn ask(relay: &Relay, path: &str, headers: &[(&'static str, &str)]) -> Reply {
        let url = format!("http://127.0.0.1:{}{path}", relay.port);
        let mut request = Request::get(&url);
        for (name, value) in headers {
            request = request.header(name, *value);
        }
        Client::new(None, Duration::from_secs(5))
            .send(&request)
            .unwrap()
    }

    #[test]
    fn an_image_is_passed_on_while_it_comes_in() {
        let relay = Relay::start().unwrap();
        assert_eq!(ask(&relay, "/images/node.raw.zst", &[]).status(), 404);
        relay.share.begin(URL, Some("\"1\""), Some(6));
        relay.share.add(&Bytes::from_static(b"abc"));
        assert_eq!(ask(&relay, "/images/other", &[]).status(), 404);
        let mut reply = ask(&relay, "/images/node.raw.zst", &[]);
        assert_eq!((reply.status(), reply.header("etag")), (200, Some("\"1\"")));
        let mut start = [0; 3];
        reply.body.read_exact(&mut start).unwrap();
        relay.share.add(&Bytes::from_static(b"def"));
        assert_eq!(reply.read_body(10).unwrap(), b"def");

        let range = ("range", "bytes=4-");
        let mut rest = ask(
            &relay,
            "/images/node.raw.zst",
            &[range, ("if-range", "\"1\"")],
        );
        assert_eq!(
            (rest.status(), rest.header("content-range")),
            (206, Some("bytes 4-5/6"))
        );
        assert_eq!(rest.read_body(10).unwrap(), b"ef");
        for (range, version, status) in [
            ("bytes=4-", "\"2\"", 412),
            ("bytes=-2", "\"1\"", 412),
            ("bytes=6-", "\"1\"", 416),
        ] {
            let headers = [("range", range), ("if-range", version)];
            assert_eq!(
                ask(&relay, "/images/node.raw.zst", &headers).status(),
                status
            );
        }
    }

    /// A connection from an address of loopback, which says nothing.
    fn silent(relay: &Relay, from: u8) -> std::net::TcpStream {
        use nix::sys::socket::{
            AddressFamily, SockFlag, SockType, SockaddrIn, bind, connect, socket,
        };
        let (kind, flags) = (SockType::Stream, SockFlag::SOCK_CLOEXEC);
        let socket = socket(AddressFamily::Inet, kind, flags, None).unwrap();
        let fd = std::os::fd::AsRawFd::as_raw_fd(&socket);
        bind(fd, &SockaddrIn::new(127, 0, 0, from, 0)).unwrap();
        connect(fd, &SockaddrIn::new(127, 0, 0, 1, relay.port)).unwrap();
        socket.into()
    }

    #[test]
    fn connections_that_ask_for_nothing_give_way_and_one_peer_does_not_take_all() {
        let relay = Relay::start().unwrap();
        relay.share.begin(URL, Some("\"1\""), Some(6));
        relay.share.add(&Bytes::from_static(b"abc"));
        let begun: Vec<Reply> = (0..2)
            .map(|_| ask(&relay, "/images/node.raw.zst", &[]))
            .collect();
        let url = format!("http://127.0.0.1:{}/images/node.raw.zst", relay.port);
        let third = Client::new(None, Duration::from_secs(5)).send(&Request::get(&url));
        assert!(third.is_err(), "two of one peer are enough");
        let idle: Vec<_> = (2..20).map(|from| silent(&relay, from)).collect();
        relay.share.add(&Bytes::from_static(b"def"));
        for mut reply in begun {
            assert_eq!(reply.read_body(10).unwrap(), b"abcdef");
        }
        let mut next = ask(&relay, "/images/node.raw.zst", &[]);
        assert_eq!(next.read_body(10).unwrap(), b"abcdef", "beside {idle:?}");
    }

    proptest! {
        #[test]
        fn any_range_is_a_first_byte_or_refused(range in "(bytes=)?[0-9]{0,22}.{0,4}", wanted in "\"[12]\"", first: u64) {
            let headers = |range: &str| {
                let mut headers = HeaderMap::new();
                let range = HeaderValue::from_bytes(range.as_bytes());
                headers.extend(range.ok().map(|range| (header::RANGE, range)));
                headers.insert(header::IF_RANGE, wanted.parse().unwrap());
                headers
            };
            first_byte(&headers(&range), "\"1\"");
            let found = first_byte(&headers(&format!("bytes={first}-")), "\"1\"");
            prop_assert_eq!(found, (wanted == "\"1\"").then_some(first));
        }
    }

    #[test]
    fn a_download_that_starts_over_is_cut_and_never_mixed() {
        let relay = Relay::start().unwrap();
        relay.share.begin(URL, Some("\"1\""), Some(6));
        relay.share.add(&Bytes::from_static(b"abc"));
        let mut reply = ask(&relay, "/images/node.raw.zst", &[]);
        relay.share.begin(URL, Some("\"1\""), Some(6));
        relay.share.add(&Bytes::from_static(b"xyzxyz"));
        assert!(reply.read_body(10).is_err());
    }

    #[test]
    fn who_is_left_in_the_middle_notices_at_once() {
        let relay = Relay::start().unwrap();
        relay.share.begin(URL, Some("\"1\""), Some(6));
        relay.share.add(&Bytes::from_static(b"abc"));
        let mut reply = ask(&relay, "/images/node.raw.zst", &[]);
        relay.close();
        let error = reply.read_body(10).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}");
    }
}
