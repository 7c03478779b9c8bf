//! Sockets and limits of the HTTP server.

use std::{
    convert::Infallible,
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use anyhow::Result;
use bytes::Bytes;
use firstlight_admission::Shares;
use firstlight_api::status::Problem;
use http::HeaderMap;
use http_body_util::BodyExt;
use hyper::{
    Request, Response,
    body::{Frame, Incoming, SizeHint},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use nix::sys::socket::{setsockopt, sockopt};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::{
    Body, Web,
    direct::{self, Direct, Files, UNSENT},
    route,
};
use crate::{
    doors::{Door, Known, Paced, Place, Work},
    network::{self, Segment},
    status::StatusSender,
};

/// Connections at a time; a server needs a few, a browser six.
pub(super) const SEGMENT: Shares = Shares {
    all: 256,
    kept: 128,
    of_peer: 16,
};
/// The box itself, and who comes by SSH: all of them have one address.
const LOOPBACK: Shares = Shares {
    all: 256,
    kept: 0,
    of_peer: 256,
};
/// For a request's head, and for an idle connection.
const HEAD_TIME: Duration = Duration::from_secs(30);
/// For keys and certificates, on both ends.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// A client that takes no bytes for so long is gone.
const STALLED: Duration = Duration::from_mins(1);
/// Of a request's head, and of an answer before it is on its way.
const BUFFER: usize = 16 * 1024;
const RETRY: Duration = Duration::from_secs(2);

/// Who answers at an address.
pub trait Answers: Files + Clone + Send + Sync + 'static {
    /// For a problem's sentence.
    const WHAT: &'static str;

    /// Under which name a problem of `address` is told.
    fn source(&self, address: SocketAddr) -> &'static str;
    /// `None`: what is said here is said in clear.
    fn tls(&self) -> Option<&TlsAcceptor> {
        None
    }
    fn answer(
        &self,
        peer: IpAddr,
        request: Request<Incoming>,
    ) -> impl Future<Output = Response<Body>> + Send;
}

impl Files for Web {
    async fn file(&self, peer: IpAddr, path: &str, headers: &HeaderMap) -> Option<Direct> {
        route::file(self, peer, path, headers).await
    }
}

impl Answers for Web {
    const WHAT: &'static str = "the page";

    fn source(&self, address: SocketAddr) -> &'static str {
        if address.ip().is_loopback() {
            "http-loopback"
        } else {
            "http"
        }
    }

    async fn answer(&self, peer: IpAddr, request: Request<Incoming>) -> Response<Body> {
        let answer = route::answer(self, peer, request).await;
        self.bandwidth.limit(peer, answer)
    }
}

/// Serves one fixed address until `stop`; `known` has its places there.
pub async fn serve_address<S: Answers>(
    site: S,
    known: Known,
    address: SocketAddr,
    status: StatusSender,
    stop: CancellationToken,
) -> Result<()> {
    let source = site.source(address);
    let listener = loop {
        match TcpListener::bind(address).await {
            Ok(listener) => break listener,
            Err(error) => status.problems(
                source,
                vec![Problem {
                    what: format!("{} cannot be served at {address}: {error}", S::WHAT),
                    next: "another program may use this port; the box tries again every 2 s"
                        .to_owned(),
                }],
            ),
        }
        tokio::select! {
            () = tokio::time::sleep(RETRY) => {}
            () = stop.cancelled() => return Ok(()),
        }
    };
    status.problems(source, vec![]);
    tracing::info!(%address, "serving HTTP");
    let shares = if address.ip().is_loopback() {
        LOOPBACK
    } else {
        SEGMENT
    };
    accept(site, Door::new(shares, known), listener, stop).await
}

/// Serves the box's address on a network, whichever it is, until `stop`; `at` makes who answers there, `known` has its places.
pub async fn serve_segment<S: Answers>(
    at: impl Fn(Ipv4Addr) -> Result<S> + Send,
    known: Known,
    mut segment: watch::Receiver<Option<Segment>>,
    port: u16,
    status: StatusSender,
    stop: CancellationToken,
) -> Result<()> {
    loop {
        let address = segment
            .borrow_and_update()
            .as_ref()
            .map(|segment| segment.address.address());
        let this = stop.child_token();
        let serving = async {
            match address {
                Some(address) => {
                    serve_address(
                        at(address)?,
                        known.clone(),
                        (address, port).into(),
                        status.clone(),
                        this.clone(),
                    )
                    .await
                }
                None => std::future::pending().await,
            }
        };
        let moved = network::moved_from(address, &mut segment);
        tokio::select! {
            result = serving => return result,
            () = stop.cancelled() => return Ok(()),
            alive = moved => if !alive { return Ok(()) },
        }
        this.cancel();
    }
}

pub(super) async fn accept(
    site: impl Answers,
    door: Door,
    listener: TcpListener,
    stop: CancellationToken,
) -> Result<()> {
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => break,
        };
        match accepted {
            // Without a place the connection is closed: a client that opens so many waits for none of them.
            Ok((stream, peer)) => {
                if let Some(place) = door.enter(peer.ip()) {
                    connections.spawn(serve_connection(site.clone(), stream, peer.ip(), place));
                }
            }
            // Out of file descriptors, or the client was gone again: neither may end the server.
            Err(error) => {
                tracing::warn!(%error, "a connection was not accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
        while connections.try_join_next().is_some() {}
    }
    connections.shutdown().await;
    Ok(())
}

async fn serve_connection(site: impl Answers, stream: TcpStream, peer: IpAddr, place: Place) {
    if let Err(error) = set_options(&stream) {
        tracing::debug!(%peer, %error, "a socket option was refused");
    }
    let talk = async {
        match site.tls() {
            None => match direct::serve(&site, stream, peer, &place, HEAD_TIME).await? {
                Some(stream) => talk(&site, Paced::new(stream), peer, &place).await,
                None => Ok(()),
            },
            Some(acceptor) => {
                let secure = acceptor.accept(Paced::new(stream));
                let secure = tokio::time::timeout(HANDSHAKE, secure);
                talk(&site, secure.await??, peer, &place).await
            }
        }
    };
    tokio::select! {
        talked = talk => if let Err(error) = talked {
            tracing::debug!(%peer, error = format!("{error:#}"), "an HTTP connection broke");
        },
        () = place.lost() => tracing::debug!(%peer, "an HTTP connection gave way to another"),
    }
}

async fn talk(
    site: &impl Answers,
    stream: impl AsyncRead + AsyncWrite + Unpin,
    peer: IpAddr,
    place: &Place,
) -> Result<()> {
    let service = service_fn(|request| async {
        let work = place.work();
        let response = site.answer(peer, request).await;
        Ok::<_, Infallible>(
            response.map(|body| BodyExt::boxed_unsync(Worked { body, _work: work })),
        )
    });
    http1::Builder::new()
        .timer(TokioTimer::new())
        // GRUB knows the length of a file by `Content-Length` in these letters only, and verifies none whose length it does not know.
        .title_case_headers(true)
        .header_read_timeout(HEAD_TIME)
        .max_buf_size(BUFFER)
        .serve_connection(TokioIo::new(stream), service)
        .await?;
    Ok(())
}

fn set_options(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let stalled = u32::try_from(STALLED.as_millis()).expect("a minute");
    setsockopt(stream, sockopt::TcpUserTimeout, &stalled)?;
    setsockopt(stream, sockopt::SndBuf, &UNSENT)?;
    Ok(())
}

/// The answer's body; its connection is at work until the last of it is on its way.
struct Worked {
    body: Body,
    _work: Work,
}

impl hyper::body::Body for Worked {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
