//! The page and the API over TLS, with a certificate of the site's CA for the address at which they are asked.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
};

use anyhow::Result;
use hyper::{Request, Response, body::Incoming};
use rustls::{
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::{
    Body,
    direct::Files,
    server::{Answers, serve_segment},
    tls::{issue, resolving},
};
use crate::{
    doors::Known,
    network::Segment,
    page_certificate::OwnCertificate,
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
    at: (u16, &'static str, Own),
    status: StatusSender,
    stop: CancellationToken,
) -> Result<()> {
    let (port, source, own) = at;
    let pki = tokio::select! {
        pki = pki.wait_for(Option::is_some) => pki?.clone(),
        () = stop.cancelled() => return Ok(()),
    };
    let Some(pki) = pki else { return Ok(()) };
    let secure = |address| {
        Ok(Secure {
            inner: inner.clone(),
            acceptor: certified(&pki, address, own.clone())?,
            source,
        })
    };
    serve_segment(secure, known, segment, port, status, stop).await
}

pub fn certified(pki: &Pki, address: Ipv4Addr, own: Own) -> Result<TlsAcceptor> {
    let site = Arc::new(issue(pki, &CertSpec::for_page(address))?);
    resolving(Arc::new(Certificates { site, own }))
}

pub type Own = watch::Receiver<Option<Arc<OwnCertificate>>>;

/// By the name that is asked for.
#[derive(Debug)]
struct Certificates {
    site: Arc<CertifiedKey>,
    own: Own,
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let own = self.own.borrow();
        let named = own.as_ref().zip(hello.server_name());
        let own = named.and_then(|(own, name)| own.for_name(name));
        Some(own.unwrap_or_else(|| self.site.clone()))
    }
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use rcgen::{CertificateParams, KeyPair};
    use rustls::{
        ClientConfig, RootCertStore,
        pki_types::{CertificateDer, ServerName, pem::PemObject},
    };
    use tokio_rustls::TlsConnector;

    use super::*;
    use crate::{clock, page_certificate::PageCertificate, paths::Paths, pki};

    /// The certificate that is shown to who asks for `name` and trusts both authorities.
    async fn shown(acceptor: &TlsAcceptor, roots: &RootCertStore, name: &str) -> Vec<u8> {
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots.clone())
            .with_no_client_auth();
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let connector = TlsConnector::from(Arc::new(config));
        let (client, server) = tokio::join!(connector.connect(name, ours), acceptor.accept(theirs));
        server.unwrap();
        let client = client.unwrap();
        client.get_ref().1.peer_certificates().unwrap()[0].to_vec()
    }

    #[tokio::test]
    async fn who_asks_for_a_name_of_it_is_shown_the_own_certificate() {
        let dir = tempfile::tempdir().unwrap();
        let paths = Paths::new(dir.path());
        let pki = pki::load_or_make(&paths, clock::wall_seconds()).unwrap();
        let page = PageCertificate::new(&paths);
        let acceptor = certified(&pki, Ipv4Addr::new(172, 22, 0, 1), page.current()).unwrap();
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![
            "box.example".to_owned(),
            "firstlight.internal".to_owned(),
        ])
        .unwrap();
        let own = params.self_signed(&key).unwrap();
        let mut roots = RootCertStore::empty();
        let site = CertificateDer::from_pem_slice(pki.site.certificate.as_bytes()).unwrap();
        roots.add(site).unwrap();
        roots.add(own.der().clone()).unwrap();

        let before = shown(&acceptor, &roots, "firstlight.internal").await;
        assert_ne!(before, own.der().to_vec());
        page.put(format!("{}{}", own.pem(), key.serialize_pem()).as_bytes())
            .unwrap();
        for name in ["box.example", "firstlight.internal"] {
            assert_eq!(
                shown(&acceptor, &roots, name).await,
                own.der().to_vec(),
                "{name}"
            );
        }
        assert_eq!(shown(&acceptor, &roots, "172.22.0.1").await, before);
        page.remove().unwrap();
        assert_eq!(
            shown(&acceptor, &roots, "firstlight.internal").await,
            before
        );
    }
}
