//! The page and the API over TLS, with a certificate of the site's CA for the address at which they are asked.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
};

use anyhow::Result;
use hyper::{Request, Response, body::Incoming};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::{
    Body,
    direct::Files,
    server::{Answers, serve_segment},
    tls::acceptor,
};
use crate::{
    doors::Known,
    network::Segment,
    pki::{CertSpec, Pki},
    status::StatusSender,
};

/// Somebody who answers, behind TLS.
#[derive(Clone)]
pub struct Secure<S> {
    inner: S,
    acceptor: TlsAcceptor,
    source: &'static str,
}

impl<S: Sync> Files for Secure<S> {}

impl<S: Answers> Answers for Secure<S> {
    const WHAT: &'static str = "the page over TLS";

    fn source(&self, _: SocketAddr) -> &'static str {
        self.source
    }

    fn tls(&self) -> Option<&TlsAcceptor> {
        Some(&self.acceptor)
    }

    async fn answer(&self, peer: IpAddr, request: Request<Incoming>) -> Response<Body> {
        self.inner.answer(peer, request).await
    }
}

/// Serves the box's address on a network, whichever it is, until `stop`.
pub async fn serve<S: Answers>(
    inner: S,
    known: Known,
    mut pki: watch::Receiver<Option<Arc<Pki>>>,
    segment: watch::Receiver<Option<Segment>>,
    at: (u16, &'static str),
    status: StatusSender,
    stop: CancellationToken,
) -> Result<()> {
    let (port, source) = at;
    let pki = tokio::select! {
        pki = pki.wait_for(Option::is_some) => pki?.clone(),
        () = stop.cancelled() => return Ok(()),
    };
    let Some(pki) = pki else { return Ok(()) };
    let secure = |address| {
        Ok(Secure {
            inner: inner.clone(),
            acceptor: certified(&pki, address)?,
            source,
        })
    };
    serve_segment(secure, known, segment, port, status, stop).await
}

pub fn certified(pki: &Pki, address: Ipv4Addr) -> Result<TlsAcceptor> {
    acceptor(pki, &CertSpec::for_page(address))
}

#[cfg(test)]
impl<S> Secure<S> {
    pub fn new(inner: S, acceptor: TlsAcceptor) -> Self {
        Self {
            inner,
            acceptor,
            source: "test",
        }
    }
}
