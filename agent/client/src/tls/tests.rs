#![allow(clippy::unwrap_used)]

use std::net::{IpAddr, Ipv4Addr};

use proptest::prelude::*;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, SanType};
use rustls::{ClientConnection, ProtocolVersion, ServerConfig, ServerConnection};

use super::*;

const BOX: IpAddr = IpAddr::V4(Ipv4Addr::new(172, 22, 0, 1));
/// 2045-01-01, by `date -u -d 2045-01-01 +%s`.
const YEAR_2045: u64 = 2_366_841_600;

/// A CA, and a server at [`BOX`] whose certificate is valid from 2040 to 2050 only.
fn site() -> (rcgen::Certificate, Arc<ServerConfig>) {
    let ca_key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = params.self_signed(&ca_key).unwrap();
    let issuer = Issuer::from_params(&params, &ca_key);
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.subject_alt_names = vec![SanType::IpAddress(BOX)];
    params.not_before = rcgen::date_time_ymd(2040, 1, 1);
    params.not_after = rcgen::date_time_ymd(2050, 1, 1);
    let certificate = params.signed_by(&key, &issuer).unwrap();
    let config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            key.serialize_der().try_into().unwrap(),
        )
        .unwrap();
    (ca, Arc::new(config))
}

/// Both ends in memory, until they are done or one refuses.
fn handshake(
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
) -> Result<ProtocolVersion, rustls::Error> {
    let mut client = ClientConnection::new(client, ServerName::from(BOX)).unwrap();
    let mut server = ServerConnection::new(server).unwrap();
    while client.is_handshaking() || server.is_handshaking() {
        let mut wire = Vec::new();
        client.write_tls(&mut wire).unwrap();
        server.read_tls(&mut wire.as_slice()).unwrap();
        server.process_new_packets()?;
        let mut wire = Vec::new();
        server.write_tls(&mut wire).unwrap();
        while let Some(taken) =
            Some(client.read_tls(&mut wire.as_slice()).unwrap()).filter(|n| *n > 0)
        {
            wire.drain(..taken);
            client.process_new_packets()?;
        }
    }
    Ok(client.protocol_version().unwrap())
}

fn fingerprint(ca: &rcgen::Certificate) -> [u8; 32] {
    Sha256::digest(ca.der()).into()
}

#[test]
fn certificates_are_judged_by_the_time_of_the_box() {
    let (ca, server) = site();
    let clock = Arc::new(BoxClock::default());
    let der = check_ca(ca.pem().as_bytes(), &fingerprint(&ca)).unwrap();
    let client = trust_only(der, Arc::clone(&clock)).unwrap();
    assert!(
        handshake(Arc::clone(&client), Arc::clone(&server)).is_err(),
        "this machine's clock is not in 2045"
    );
    clock.set(YEAR_2045);
    assert_eq!(handshake(client, server).unwrap(), ProtocolVersion::TLSv1_3);
}

#[test]
fn nothing_but_the_named_ca_is_trusted() {
    let ((ca, _), (other, others_server)) = (site(), site());
    assert!(check_ca(other.pem().as_bytes(), &fingerprint(&ca)).is_err());
    assert!(check_ca(b"<html>", &fingerprint(&ca)).is_err());
    let clock = Arc::new(BoxClock::default());
    clock.set(YEAR_2045);
    let client = trust_only(ca.der().clone(), clock).unwrap();
    assert!(handshake(client, Arc::clone(&others_server)).is_err());
    // Only on request, as with a stock agent.
    assert!(handshake(trust_anyone().unwrap(), others_server).is_ok());
}

proptest! {
    /// The file comes over plain HTTP.
    #[test]
    fn whatever_is_said_to_be_the_ca_only_the_one_of_the_fingerprint_is_taken(
        noise in proptest::collection::vec(any::<u8>(), 0..200),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
    ) {
        static CA: std::sync::LazyLock<rcgen::Certificate> = std::sync::LazyLock::new(|| site().0);
        let fingerprint = Sha256::digest(CA.der()).into();
        prop_assert!(check_ca(&noise, &fingerprint).is_err());
        let mut pem = CA.pem().into_bytes();
        for (at, value) in changes {
            let at = at.index(pem.len());
            pem[at] = value;
        }
        if let Ok(taken) = check_ca(&pem, &fingerprint) {
            prop_assert_eq!(&taken, CA.der());
        }
    }
}
