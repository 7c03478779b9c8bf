//! Sockets and limits of the HTTP server.

use std::{
    convert::Infallible,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use anyhow::Result;
use firstlight_api::status::Problem;
use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use nix::sys::socket::{setsockopt, sockopt};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Semaphore, watch},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use super::{Web, route};
use crate::{network::Segment, status::StatusSender};

/// Connections at a time and address served; a rack of hosts needs a few each.
const CONNECTIONS: usize = 512;
/// For a request's head, and for an idle connection.
const HEAD_TIME: Duration = Duration::from_secs(30);
/// A client that takes no bytes for so long is gone.
const STALLED: Duration = Duration::from_mins(1);
const RETRY: Duration = Duration::from_secs(2);

/// Serves one fixed address until `stop`.
pub async fn serve_address(
    web: Web,
    address: SocketAddr,
    status: StatusSender,
    stop: CancellationToken,
) -> Result<()> {
    let source = if address.ip().is_loopback() {
        "http-loopback"
    } else {
        "http"
    };
    let listener = loop {
        match TcpListener::bind(address).await {
            Ok(listener) => break listener,
            Err(error) => status.problems(
                source,
                vec![Problem {
                    what: format!("the page cannot be served at {address}: {error}"),
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
    accept(web, listener, stop).await
}

/// Serves the box's address on the provisioning network, whichever it is, until `stop`.
pub async fn serve_segment(
    web: Web,
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
                        web.clone(),
                        (address, port).into(),
                        status.clone(),
                        this.clone(),
                    )
                    .await
                }
                None => std::future::pending().await,
            }
        };
        let moved = async {
            // Another interface with the same address needs no new socket.
            segment
                .wait_for(|segment| {
                    segment.as_ref().map(|segment| segment.address.address()) != address
                })
                .await
                .is_ok()
        };
        tokio::select! {
            result = serving => return result,
            () = stop.cancelled() => return Ok(()),
            alive = moved => if !alive { return Ok(()) },
        }
        this.cancel();
    }
}

pub(super) async fn accept(web: Web, listener: TcpListener, stop: CancellationToken) -> Result<()> {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        let place = places.clone().acquire_owned().await?;
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => break,
        };
        match accepted {
            Ok((stream, peer)) => {
                let web = web.clone();
                connections.spawn(async move {
                    serve_connection(web, stream, peer.ip()).await;
                    drop(place);
                });
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

async fn serve_connection(web: Web, stream: TcpStream, peer: IpAddr) {
    let stalled = u32::try_from(STALLED.as_millis()).expect("a minute");
    let options = stream
        .set_nodelay(true)
        .map_err(nix::Error::try_from)
        .is_ok()
        && setsockopt(&stream, sockopt::TcpUserTimeout, &stalled).is_ok();
    if !options {
        tracing::debug!(%peer, "a socket option was refused");
    }
    let service = service_fn(|request| async {
        let response = route::answer(&web, peer, request).await;
        Ok::<_, Infallible>(response)
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .max_buf_size(64 * 1024)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        tracing::debug!(%peer, %error, "an HTTP connection broke");
    }
}
