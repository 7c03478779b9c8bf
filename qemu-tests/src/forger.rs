//! A machine on the segment that lies: it signs with a key of its own, and speaks in the name of another server.

use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, anyhow, ensure};
use firstlight_api::report::{
    Directive, DiskSignatures, Fresh, LookupState, PROGRESS_PATH, Phase, Progress, REPORT_PATH,
    Reply, Report,
};
use firstlight_api::signed::{self, PublicKey};
use firstlight_api::tpm::Tpm;
use lab::wire::{Mac, format_mac};
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use serde::Serialize;
use serde_json::{Value, json};

use crate::scene::Scene;

/// One boot of a ramdisk that was never there.
const BOOT: &str = "5f1a57e0-0000-4000-8000-000000000000";

pub struct Forger {
    page: SocketAddr,
    address: Ipv4Addr,
    key: Ed25519KeyPair,
    session: String,
    sequence: u64,
}

impl Forger {
    pub fn new(scene: &Scene<'_>) -> Result<Self> {
        let random = ring::rand::SystemRandom::new();
        let no_key = |_| anyhow!("no key was made");
        let key = Ed25519KeyPair::generate_pkcs8(&random).map_err(no_key)?;
        Ok(Self {
            page: scene.lab.forward_page(0)?,
            address: scene.lab.desk_address(),
            key: Ed25519KeyPair::from_pkcs8(key.as_ref()).map_err(|_| anyhow!("it is no key"))?,
            session: String::new(),
            sequence: 0,
        })
    }

    /// What the box answers to "the disk of this server is blank".
    pub fn says_blank(
        &mut self,
        mac: Mac,
        size_bytes: u64,
        lookup: LookupState,
    ) -> Result<Directive> {
        let disk = DiskSignatures {
            name: "/dev/vda".to_owned(),
            size_bytes,
            serial: Some("firstlight-0".to_owned()),
            ..DiskSignatures::default()
        };
        let inventory: Value = json!({
            "interfaces": [{"name": "ens2", "mac_address": format_mac(mac), "has_carrier": true}],
            "disks": [{"name": disk.name, "size": size_bytes, "serial": disk.serial}],
            "cpu": {"count": 2, "architecture": "x86_64"},
            "memory": {"physical_mb": 1024},
            "boot": {"current_boot_mode": "uefi"},
        });
        let address = self.address.to_string();
        let (_, body) = self.post(REPORT_PATH, |fresh| Report {
            boot_mac: format_mac(mac),
            boot_id: BOOT.to_owned(),
            address: address.clone(),
            inventory: inventory.clone(),
            disks: vec![disk.clone()],
            lookup,
            tpm: Tpm::Absent,
            follows: Vec::new(),
            fresh,
        })?;
        let reply: Reply =
            serde_json::from_slice(&body).context("the answer to a forged report")?;
        Ok(reply.directive)
    }

    /// The HTTP status of the box's answer to "its image is on the disk".
    pub fn says_written(&mut self, mac: Mac) -> Result<u16> {
        let (status, _) = self.post(PROGRESS_PATH, |fresh| Progress {
            boot_mac: format_mac(mac),
            boot_id: BOOT.to_owned(),
            phase: Phase::REBOOTING,
            fresh,
        })?;
        Ok(status)
    }

    /// In the box's session: the first post only learns it.
    fn post<T: Serialize>(
        &mut self,
        path: &str,
        make: impl Fn(Fresh) -> T,
    ) -> Result<(u16, Vec<u8>)> {
        loop {
            self.sequence += 1;
            let post = make(Fresh {
                session: self.session.clone(),
                sequence: self.sequence,
            });
            let answer = self.send(path, &serde_json::to_vec(&post)?)?;
            match serde_json::from_slice::<Reply>(&answer.1) {
                Ok(reply) if reply.directive == Directive::Again => {
                    ensure!(
                        reply.session != self.session,
                        "the box's session does not hold"
                    );
                    self.session = reply.session;
                }
                _ => return Ok(answer),
            }
        }
    }

    fn send(&self, path: &str, body: &[u8]) -> Result<(u16, Vec<u8>)> {
        let public = self.key.public_key().as_ref().try_into();
        let public = PublicKey::new(public.context("an Ed25519 key has 32 bytes")?);
        let signature = self.key.sign(&signed::message(path, body));
        let signature = signed::encode_signature(signature.as_ref());
        let mut curl = Command::new("curl")
            .args(["-s", "-m", "60", "-w", "%{stderr}%{http_code}"])
            .args(["-H", &format!("{}: {public}", signed::KEY_HEADER)])
            .args(["-H", &format!("{}: {signature}", signed::SIGNATURE_HEADER)])
            .args([
                "-H",
                "Content-Type: application/json",
                "--data-binary",
                "@-",
            ])
            .arg(format!("http://{}{path}", self.page))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("starting curl")?;
        curl.stdin
            .take()
            .context("the input of curl")?
            .write_all(body)?;
        let output = curl.wait_with_output()?;
        let status = String::from_utf8_lossy(&output.stderr);
        let status = status
            .parse()
            .with_context(|| format!("curl said {status}"))?;
        Ok((status, output.stdout))
    }
}
