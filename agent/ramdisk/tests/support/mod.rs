//! A site on loopback: the box's HTTP server, an Ironic over TLS, and a machine whose disk is a file.
#![allow(clippy::unwrap_used, dead_code)]

pub mod http;
pub mod ironic;
pub mod machine;
pub mod the_box;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use firstlight_ramdisk::deploy::image::Patience;
use firstlight_ramdisk::ipa::machine::Machine;
use firstlight_ramdisk::ipa::runner::Settings;
use sha2::{Digest, Sha256};

pub const MAC: &str = "52:54:00:12:34:56";
pub const MIB: u64 = 1 << 20;

/// A CA and a certificate for 127.0.0.1 that it signed.
pub struct Pki {
    pub ca_pem: String,
    pub ca_sha256: [u8; 32],
    pub server: Arc<rustls::ServerConfig>,
}

impl Pki {
    pub fn new() -> Self {
        let ca_key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::default();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let ca = params.self_signed(&ca_key).unwrap();
        let issuer = rcgen::Issuer::from_params(&params, &ca_key);
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::default();
        params.subject_alt_names = vec![rcgen::SanType::IpAddress(IpAddr::V4(Ipv4Addr::LOCALHOST))];
        let certificate = params.signed_by(&key, &issuer).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let server = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![certificate.der().clone()],
                key.serialize_der().try_into().unwrap(),
            )
            .unwrap();
        Self {
            ca_pem: ca.pem(),
            ca_sha256: Sha256::digest(ca.der()).into(),
            server: Arc::new(server),
        }
    }
}

pub fn settings(box_port: u16, ironic_port: u16, ca_sha256: [u8; 32]) -> Settings {
    Settings {
        box_url: Some(format!("http://127.0.0.1:{box_port}")),
        ironic_url: Some(format!("https://127.0.0.1:{ironic_port}")),
        inspection_url: None,
        insecure: false,
        ca_sha256: Some(ca_sha256),
        boot_mac: MAC.into(),
        address: IpAddr::V4(Ipv4Addr::LOCALHOST),
        port: 0,
        patience: Patience {
            first_pause: Duration::from_millis(5),
            longest_pause: Duration::from_millis(20),
            in_all: Duration::from_mins(1),
            relayed: Duration::from_mins(1),
        },
        kernel_log: None,
    }
}

pub fn sha256_hex(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    digest
        .iter()
        .fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"))
}

/// Runs the ramdisk in a thread of its own; the receiver gets how it left.
pub fn start(
    settings: Settings,
    machine: Arc<dyn Machine>,
) -> std::sync::mpsc::Receiver<anyhow::Result<firstlight_ramdisk::ipa::event::Departure>> {
    let (send, receive) = std::sync::mpsc::channel();
    std::thread::spawn(move || send.send(firstlight_ramdisk::ipa::runner::run(settings, machine)));
    receive
}
