//! Sockets and limits of the HTTP server.

use std::{
    collections::HashMap,
    convert::Infallible,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::Result;
use firstlight_api::status::Problem;
use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use nix::sys::socket::{setsockopt, sockopt};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use super::{Web, route};
use crate::{
    network::{self, Segment},
    status::StatusSender,
};

/// Connections at a time and address served; a rack of hosts needs a few each.
const CONNECTIONS: usize = 512;
const CONNECTIONS_PER_CLIENT: usize = 64;
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
        let moved = network::moved_from(address, &mut segment);
        tokio::select! {
            result = serving => return result,
            () = stop.cancelled() => return Ok(()),
            alive = moved => if !alive { return Ok(()) },
        }
        this.cancel();
    }
}

pub(super) async fn accept(web: Web, listener: TcpListener, stop: CancellationToken) -> Result<()> {
    let places = Places::default();
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => break,
        };
        match accepted {
            // Without a place the connection is closed: a client that opens so many waits for none of them.
            Ok((stream, peer)) => {
                if let Some(place) = places.take(peer.ip()) {
                    let web = web.clone();
                    connections.spawn(async move {
                        serve_connection(web, stream, peer.ip()).await;
                        drop(place);
                    });
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

/// Open connections by client.
#[derive(Clone, Default)]
struct Places(Arc<Mutex<HashMap<IpAddr, usize>>>);

/// Held while a connection is open.
struct Place {
    places: Places,
    peer: IpAddr,
}

impl Places {
    fn take(&self, peer: IpAddr) -> Option<Place> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let all: usize = open.values().sum();
        let own = open.entry(peer).or_default();
        if all >= CONNECTIONS || *own >= CONNECTIONS_PER_CLIENT {
            tracing::warn!(%peer, all, own, "too many HTTP connections, one was closed");
            if *own == 0 {
                open.remove(&peer);
            }
            return None;
        }
        *own += 1;
        Some(Place {
            places: self.clone(),
            peer,
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.places.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = open.get_mut(&self.peer) {
            *own -= 1;
            if *own == 0 {
                open.remove(&self.peer);
            }
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_client_cannot_take_all_places_and_gives_its_own_back() {
        let (places, greedy, other) = (
            Places::default(),
            IpAddr::from([172, 22, 0, 100]),
            IpAddr::from([172, 22, 0, 101]),
        );
        let mut held: Vec<_> = (0..CONNECTIONS_PER_CLIENT)
            .map(|_| places.take(greedy))
            .collect();
        assert!(held.iter().all(Option::is_some));
        assert!(places.take(greedy).is_none());
        assert!(places.take(other).is_some());
        held.pop();
        assert!(places.take(greedy).is_some());
        drop(held);
        assert!(
            places.0.lock().is_ok_and(|open| open.is_empty()),
            "nothing is kept of clients that are gone"
        );
    }
}
