//! The whole program but for the machine: a box on loopback with a real certificate, and a disk in a folder.
#![allow(clippy::unwrap_used)]

use std::io::{BufReader, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use anyhow::Result;
use firstlight_bootstrap::drive::Drive;
use firstlight_bootstrap::follow::follow;
use firstlight_bootstrap::invitation::{Invitation, parse_invitation};
use firstlight_bootstrap::link::Link;
use firstlight_bootstrap::machine::Machine;
use firstlight_bootstrap::plan::Held;
use firstlight_bootstrap::seed::Seed;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, SanType};
use rustls::crypto::ring;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Map, Value, json};

/// What the box is asked: method, `Authorization`, body.
type Request = (String, String, String);

/// A box that gives these answers one after the other, and closes instead of answering for an empty one.
struct TheBox {
    invitation: Invitation,
    asked: Arc<Mutex<Vec<Request>>>,
}

fn the_box(answers: Vec<(u16, String)>) -> TheBox {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.subject_alt_names = vec![SanType::IpAddress("127.0.0.1".parse().unwrap())];
    let certificate = params.signed_by(&key, &*ca).unwrap();
    let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], private)
        .unwrap();
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!(
        "https://{}/bootstrap/v1/uid",
        listener.local_addr().unwrap()
    );
    let asked = Arc::new(Mutex::new(Vec::new()));
    let questions = Arc::clone(&asked);
    thread::spawn(move || {
        for (status, body) in answers {
            let (tcp, _) = listener.accept().unwrap();
            let session = ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut wire = BufReader::new(StreamOwned::new(session, tcp));
            let Some(request) = read_request(&mut wire) else {
                continue;
            };
            questions.lock().unwrap().push(request);
            let head = format!(
                "HTTP/1.1 {status} X\r\ndate: Sun, 01 Nov 2026 00:00:00 GMT\r\ncontent-length: {}\r\n\r\n",
                body.len()
            );
            if status != 0 {
                wire.get_mut().write_all(head.as_bytes()).unwrap();
                wire.get_mut().write_all(body.as_bytes()).unwrap();
            }
            wire.get_mut().conn.send_close_notify();
            let _ = wire.get_mut().flush();
        }
    });
    let meta_data =
        serde_json::json!({"firstlight": {"url": url, "token": "t0ken", "ca": ca.pem()}});
    TheBox {
        invitation: parse_invitation(meta_data.as_object().unwrap())
            .unwrap()
            .unwrap(),
        asked,
    }
}

fn read_request(wire: &mut impl std::io::BufRead) -> Option<Request> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        wire.read_line(&mut line).ok().filter(|count| *count > 0)?;
        if line == "\r\n" {
            break;
        }
        lines.push(line.trim().to_owned());
    }
    let header = |name: &str| lines.iter().find_map(|line| line.strip_prefix(name));
    let length = header("content-length: ").map_or(0, |text| text.parse().unwrap());
    let mut body = vec![0; length];
    wire.read_exact(&mut body).ok()?;
    Some((
        lines[0].split(' ').next().unwrap().to_owned(),
        header("authorization: ").unwrap_or_default().to_owned(),
        String::from_utf8(body).unwrap(),
    ))
}

/// What the program does to its machine.
#[derive(Debug, Default, PartialEq, Eq)]
struct Deeds {
    pauses: Vec<Duration>,
    time: u64,
    restarts: usize,
    prepared: Vec<Map<String, Value>>,
}

impl Machine for Deeds {
    fn prepare(&mut self, meta_data: &Map<String, Value>) -> Result<()> {
        self.prepared.push(meta_data.clone());
        Ok(())
    }

    fn pause(&mut self, length: Duration) {
        self.pauses.push(length);
    }

    fn time(&self) -> u64 {
        self.time
    }

    fn set_time(&mut self, seconds: u64) {
        self.time = seconds;
    }

    fn restart(&mut self) {
        self.restarts += 1;
    }
}

fn drive() -> Drive {
    let meta_data = serde_json::json!({"name": "host-1", "firstlight": {}});
    Drive {
        meta_data: meta_data.as_object().unwrap().clone(),
        network_data: None,
        user_data: None,
    }
}

fn run(the_box: &TheBox, disk: &Path) -> Deeds {
    let mut deeds = Deeds::default();
    let mut link = Link::new(&the_box.invitation).unwrap();
    follow(&mut link, &mut deeds, &Seed::new(disk), &drive()).unwrap();
    deeds
}

const SENT: &str = r##"{"action":"bootstrap","userData":"#cloud-config\n","metaData":{"uuid":"u","providerid":"ns/bmh/m"},"networkData":null,"hostKey":{"private":"PRIVATE\n","public":"ssh-ed25519 A\n"}}"##;
const RECEIVED: &str =
    r#"{"received":"88c95955b024402aa9572b663f7eeb134f01343bb92af27b50e97e72b22c565f"}"#;
const WAIT: &str = r#"{"action":"wait","seconds":3}"#;

fn answer(status: u16, body: &str) -> (u16, String) {
    (status, body.to_owned())
}

#[test]
fn a_server_waits_takes_its_data_and_confirms_it() {
    let disk = tempfile::tempdir().unwrap();
    let the_box = the_box(vec![answer(202, WAIT), answer(200, SENT), answer(204, "")]);
    let deeds = run(&the_box, disk.path());
    let sent = json!({"uuid": "u", "providerid": "ns/bmh/m"});
    assert_eq!(
        deeds,
        Deeds {
            pauses: vec![Duration::from_secs(3)],
            time: 1_793_491_200,
            restarts: 0,
            prepared: vec![sent.as_object().unwrap().clone()],
        }
    );
    let asked = the_box.asked.lock().unwrap();
    let methods: Vec<&str> = asked.iter().map(|asked| asked.0.as_str()).collect();
    assert_eq!(methods, ["GET", "GET", "POST"]);
    assert!(asked.iter().all(|asked| asked.1 == "Bearer t0ken"));
    // sha256sum of the user data
    assert_eq!(asked[2].2, RECEIVED);
    let latest = disk
        .path()
        .join("var/lib/cloud/seed/config_drive/openstack/latest");
    assert_eq!(
        std::fs::read_to_string(latest.join("user_data")).unwrap(),
        "#cloud-config\n"
    );
    let meta_data = std::fs::read_to_string(latest.join("meta_data.json")).unwrap();
    assert!(meta_data.contains("ns/bmh/m") && !meta_data.contains("firstlight"));
    let key = disk.path().join("etc/ssh/ssh_host_ed25519_key");
    assert_eq!(std::fs::read_to_string(&key).unwrap(), "PRIVATE\n");
    let mode = std::fs::metadata(&key).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let public = std::fs::read_to_string(key.with_extension("pub")).unwrap();
    assert_eq!(public, "ssh-ed25519 A\n");
    for file in std::fs::read_dir(latest).unwrap() {
        let content = std::fs::read_to_string(file.unwrap().path()).unwrap();
        assert!(
            !content.contains("PRIVATE"),
            "cloud-init does not get to know it"
        );
    }
}

#[test]
fn a_power_cut_before_the_confirmation_loses_nothing() {
    let disk = tempfile::tempdir().unwrap();
    // The box closes the connection instead of answering the confirmation: nobody knows whether it took it.
    let first = the_box(vec![answer(200, SENT), answer(0, ""), answer(503, "busy")]);
    let mut link = Link::new(&first.invitation).unwrap();
    let seed = Seed::new(disk.path());
    let mut cut = CutAfter(2);
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        follow(&mut link, &mut cut, &seed, &drive())
    }));
    assert!(result.is_err(), "the machine was to be cut off");
    assert!(matches!(seed.held().unwrap(), Held::Unconfirmed(_)));
    // The next start does not ask again, it confirms.
    let second = the_box(vec![answer(410, "")]);
    run(&second, disk.path());
    let asked = second.asked.lock().unwrap();
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0].0, "POST");
    assert_eq!(seed.held().unwrap(), Held::Confirmed);
}

/// Loses power in the pause with this number.
struct CutAfter(usize);

impl Machine for CutAfter {
    fn prepare(&mut self, _: &Map<String, Value>) -> Result<()> {
        Ok(())
    }

    fn pause(&mut self, _: Duration) {
        self.0 -= 1;
        assert!(self.0 > 0, "power cut");
    }

    fn time(&self) -> u64 {
        1_793_491_200
    }

    fn set_time(&mut self, _: u64) {
        panic!("the clock is right");
    }

    fn restart(&mut self) {
        panic!("nobody asked for a restart");
    }
}

#[test]
fn a_server_with_confirmed_data_asks_nobody() {
    let disk = tempfile::tempdir().unwrap();
    run(
        &the_box(vec![answer(200, SENT), answer(204, "")]),
        disk.path(),
    );
    let silent = the_box(vec![]);
    assert_eq!(run(&silent, disk.path()), Deeds::default());
}

#[test]
fn a_server_that_is_to_be_cleaned_restarts() {
    let disk = tempfile::tempdir().unwrap();
    let deeds = run(
        &the_box(vec![
            answer(202, WAIT),
            answer(200, r#"{"action":"reboot"}"#),
        ]),
        disk.path(),
    );
    assert_eq!(deeds.restarts, 1);
    assert_eq!(
        Seed::new(disk.path()).held().unwrap(),
        Held::Nothing,
        "nothing was handed out"
    );
}

#[test]
fn a_stranger_with_the_boxs_address_gets_no_token() {
    let disk = tempfile::tempdir().unwrap();
    let honest = the_box(vec![]);
    let stranger = the_box(vec![answer(200, SENT)]);
    let invitation = Invitation {
        ca: honest.invitation.ca.clone(),
        ..stranger.invitation.clone()
    };
    let mut link = Link::new(&invitation).unwrap();
    let mut cut = CutAfter(1);
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        follow(&mut link, &mut cut, &Seed::new(disk.path()), &drive())
    }));
    assert!(result.is_err());
    assert!(stranger.asked.lock().unwrap().is_empty());
    assert_eq!(Seed::new(disk.path()).held().unwrap(), Held::Nothing);
}
