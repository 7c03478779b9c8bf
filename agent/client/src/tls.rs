//! Whom to trust: the box, at the box's time.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::time_provider::TimeProvider;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use sha2::{Digest, Sha256};

/// The box's time. A server whose battery is dead thinks it is 2003, and would take every certificate for not yet valid.
#[derive(Debug, Default)]
pub struct BoxClock {
    /// Seconds that the box is ahead of this machine.
    ahead: AtomicI64,
}

impl BoxClock {
    /// Takes over the box's time, in seconds since 1970.
    pub fn set(&self, theirs: u64) {
        let ours = system_seconds();
        let ahead = i64::try_from(theirs).unwrap_or(0) - i64::try_from(ours).unwrap_or(0);
        self.ahead.store(ahead, Ordering::Relaxed);
    }

    /// Seconds since 1970 by the box's clock; by this machine's own until the first [`BoxClock::set`].
    pub fn seconds(&self) -> u64 {
        system_seconds().saturating_add_signed(self.ahead.load(Ordering::Relaxed))
    }
}

impl TimeProvider for BoxClock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_secs(
            self.seconds(),
        )))
    }
}

fn system_seconds() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| d.as_secs())
}

/// The CA in `pem`, if it is the one with this fingerprint. The file came over plain HTTP: only the fingerprint counts.
pub fn check_ca(pem: &[u8], fingerprint: &[u8; 32]) -> Result<CertificateDer<'static>> {
    let ca =
        CertificateDer::from_pem_slice(pem).context("the box's ca.pem is not a certificate")?;
    if Sha256::digest(&ca)[..] != fingerprint[..] {
        bail!(
            "the box's CA is not the one that firstlight.ca= names; either another machine answers for the box, or the \
             boot server's files are of an older box: start this machine again"
        );
    }
    Ok(ca)
}

/// Trusts what `ca` signed, at the box's time.
pub fn trust_only(ca: CertificateDer<'static>, clock: Arc<BoxClock>) -> Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    roots
        .add(ca)
        .context("the box's CA certificate cannot be used")?;
    let config = ClientConfig::builder_with_details(provider(), clock)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// Trusts anyone: `ipa-insecure=1`.
pub fn trust_anyone() -> Result<Arc<ClientConfig>> {
    let config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Unchecked(provider())))
        .with_no_client_auth();
    Ok(Arc::new(config))
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// Takes any certificate whose owner holds its key.
#[derive(Debug)]
struct Unchecked(Arc<CryptoProvider>);

impl ServerCertVerifier for Unchecked {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(
            message,
            certificate,
            signature,
            &self.0.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(
            message,
            certificate,
            signature,
            &self.0.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests;
