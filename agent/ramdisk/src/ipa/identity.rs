//! The certificate that Ironic is to trust.

use std::net::IpAddr;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use rcgen::{
    CertificateParams, DistinguishedName, DnType, KeyPair, PKCS_ECDSA_P256_SHA256, SanType,
};
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::PrivateKeyDer;

/// A new key and a certificate of its own for the command API.
pub struct Identity {
    /// What heartbeats carry as `agent_verify_ca`.
    pub certificate_pem: String,
    pub config: Arc<ServerConfig>,
}

impl Identity {
    /// Valid from 1975 to 2099: neither clock need be right, and the key does not outlive this boot.
    pub fn new(address: IpAddr) -> Result<Self> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).context("making a key")?;
        let mut params = CertificateParams::default();
        params.subject_alt_names = vec![SanType::IpAddress(address)];
        params.distinguished_name = DistinguishedName::new();
        params
            .distinguished_name
            .push(DnType::CommonName, address.to_string());
        params.not_before = rcgen::date_time_ymd(1975, 1, 1);
        params.not_after = rcgen::date_time_ymd(2099, 12, 31);
        let certificate = params
            .self_signed(&key)
            .context("signing the command API's certificate")?;
        let private = PrivateKeyDer::try_from(key.serialize_der()).map_err(anyhow::Error::msg)?;
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], private)?;
        Ok(Self {
            certificate_pem: certificate.pem(),
            config: Arc::new(config),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::net::Ipv4Addr;
    use std::os::unix::net::UnixStream;
    use std::{io, thread};

    use firstlight_client::tls::{BoxClock, trust_only};
    use rustls::pki_types::pem::PemObject as _;
    use rustls::pki_types::{CertificateDer, ServerName};
    use rustls::{ClientConfig, ClientConnection, ProtocolVersion, ServerConnection};

    use super::*;

    const BOX: IpAddr = IpAddr::V4(Ipv4Addr::new(172, 22, 0, 1));
    /// 2045-01-01, by `date -u -d 2045-01-01 +%s`.
    const YEAR_2045: u64 = 2_366_841_600;

    /// Until both ends are done or one refuses.
    fn handshake(
        client: Arc<ClientConfig>,
        server: Arc<ServerConfig>,
    ) -> io::Result<ProtocolVersion> {
        let (mut near, mut far) = UnixStream::pair().unwrap();
        let mut server = ServerConnection::new(server).unwrap();
        let theirs = thread::spawn(move || server.complete_io(&mut far));
        let mut client = ClientConnection::new(client, ServerName::from(BOX)).unwrap();
        client.complete_io(&mut near)?;
        theirs.join().unwrap()?;
        Ok(client.protocol_version().unwrap())
    }

    #[test]
    fn the_command_api_is_known_by_its_own_certificate_at_any_time() {
        let identity = Identity::new(BOX).unwrap();
        let own = CertificateDer::from_pem_slice(identity.certificate_pem.as_bytes()).unwrap();
        for year in [0, YEAR_2045] {
            let clock = Arc::new(BoxClock::default());
            clock.set(year.max(315_532_800)); // 1980
            let client = trust_only(own.clone(), clock).unwrap();
            assert_eq!(
                handshake(client, Arc::clone(&identity.config)).unwrap(),
                ProtocolVersion::TLSv1_3
            );
        }
        let another = Identity::new(BOX).unwrap();
        let client = trust_only(own, Arc::default()).unwrap();
        assert!(
            handshake(client, another.config).is_err(),
            "each boot has a key of its own"
        );
    }
}
