//! TLS of the listeners that have it: by the site's CA, with a certificate that lives as long as the agent.

use std::sync::Arc;

use anyhow::{Context, Result};
use rustls::{
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::ResolvesServerCert,
    sign::{CertifiedKey, SingleCertAndKey},
};
use tokio_rustls::TlsAcceptor;

use crate::{
    clock,
    pki::{CertSpec, Pki},
};

/// Shows a certificate that is issued now.
pub fn acceptor(pki: &Pki, spec: &CertSpec) -> Result<TlsAcceptor> {
    let shown = SingleCertAndKey::from(issue(pki, spec)?);
    resolving(Arc::new(shown))
}

/// Shows what `certificates` says.
pub fn resolving(certificates: Arc<dyn ResolvesServerCert>) -> Result<TlsAcceptor> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_cert_resolver(certificates);
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// A certificate of the site's CA, issued now.
pub fn issue(pki: &Pki, spec: &CertSpec) -> Result<CertifiedKey> {
    let pair = pki.site.issue(spec, clock::wall_seconds())?;
    let certificate = CertificateDer::from_pem_slice(pair.certificate.as_bytes())
        .context("reading the certificate that was just issued")?;
    let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes())
        .context("reading the key that was just made")?;
    let provider = rustls::crypto::ring::default_provider();
    CertifiedKey::from_der(vec![certificate], key, &provider).context("what was just issued")
}

/// A client that trusts the site's CA.
#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub fn connector(pki: &Pki) -> tokio_rustls::TlsConnector {
    let mut roots = rustls::RootCertStore::empty();
    let ca = CertificateDer::from_pem_slice(pki.site.certificate.as_bytes()).unwrap();
    roots.add(ca).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    tokio_rustls::TlsConnector::from(Arc::new(config))
}
