//! The same ramdisk against a real Ironic on this machine: inspection, deploy with a JSON config drive, and cleaning.
//!
//! ```sh
//! FIRSTLIGHT_IRONIC_URL=https://127.0.0.1:6385 FIRSTLIGHT_IRONIC_CA=ca.crt FIRSTLIGHT_IRONIC_USER=u \
//! FIRSTLIGHT_IRONIC_PASSWORD=p cargo test -p firstlight-ramdisk --test live_ironic -- --ignored --nocapture
//! ```
//!
//! It makes the node `firstlight-ramdisk-test` and removes it again.
#![allow(clippy::unwrap_used)]

mod support;

use std::net::{IpAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use firstlight_api::disk::Disk;
use firstlight_api::order::{DeploymentId, DiskOrder, DiskPolicy, DiskScope, EXTRA};
use firstlight_client::http::{Client, Request};
use firstlight_client::tls;
use firstlight_ramdisk::deploy::gpt::Gpt;
use firstlight_ramdisk::ipa::event::Departure;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use support::ironic::NODE;
use support::machine::TestMachine;
use support::the_box::Box;
use support::{MAC, sha256_hex};

const NAME: &str = "firstlight-ramdisk-test";

struct Api {
    base: String,
    authorization: String,
    client: Client,
    ca_pem: String,
}

impl Api {
    fn from_environment() -> Self {
        let get = |name: &str| std::env::var(format!("FIRSTLIGHT_IRONIC_{name}")).unwrap();
        let base = get("URL");
        let ca_pem = std::fs::read_to_string(get("CA")).unwrap();
        let pair = format!("{}:{}", get("USER"), get("PASSWORD"));
        let trust = tls::trust_only(
            CertificateDer::from_pem_slice(ca_pem.as_bytes()).unwrap(),
            Arc::default(),
        );
        Self {
            base,
            authorization: format!(
                "Basic {}",
                base64::engine::general_purpose::STANDARD.encode(pair)
            ),
            client: Client::new(Some(trust.unwrap()), Duration::from_mins(1)),
            ca_pem,
        }
    }

    fn call(&self, method: &'static str, path: &str, body: Option<&Value>) -> (u16, Value) {
        let url = format!("{}/v1/{path}", self.base);
        let bytes = body.map(|b| b.to_string().into_bytes()).unwrap_or_default();
        let mut request = Request::post_json(&url, &bytes)
            .header("authorization", &self.authorization)
            .header("x-openstack-ironic-api-version", "1.109");
        request.method = method;
        let mut reply = self.client.send(&request).unwrap();
        let body = reply.read_body(1 << 24).unwrap();
        (
            reply.status(),
            serde_json::from_slice(&body).unwrap_or(Value::Null),
        )
    }

    fn ask(&self, method: &'static str, path: &str, body: &Value) {
        let (status, answer) = self.call(method, path, Some(body));
        assert!(
            (200..300).contains(&status),
            "{method} {path}: {status} {answer}"
        );
    }

    fn target(&self, target: &str) {
        self.ask(
            "PUT",
            &format!("nodes/{NAME}/states/provision"),
            &json!({"target": target}),
        );
    }

    fn node(&self) -> Value {
        self.call("GET", &format!("nodes/{NAME}"), None).1
    }

    fn wait_for(&self, state: &str) {
        let start = Instant::now();
        let mut seen = String::new();
        loop {
            let node = self.node();
            let now = node["provision_state"]
                .as_str()
                .unwrap_or_default()
                .to_owned();
            if now != seen {
                eprintln!("{:6.1} {now}", start.elapsed().as_secs_f32());
                seen.clone_from(&now);
            }
            if now == state {
                return;
            }
            let failed = now.contains("fail") || start.elapsed() > Duration::from_mins(4);
            assert!(!failed, "{now} instead of {state}: {}", node["last_error"]);
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    fn make_node(&self) {
        self.remove_node();
        let node = json!({
            "uuid": NODE, "driver": "manual-management", "name": NAME, "power_interface": "fake", "disable_power_off": true,
            "properties": {"cpu_arch": "x86_64", "capabilities": "boot_mode:uefi"},
        });
        self.ask("POST", "nodes", &node);
        self.ask("POST", "ports", &json!({"node_uuid": NODE, "address": MAC}));
        self.target("manage");
        self.wait_for("manageable");
        self.ask(
            "PUT",
            &format!("nodes/{NAME}/states/power"),
            &json!({"target": "power on"}),
        );
    }

    fn remove_node(&self) {
        let path = format!("nodes/{NAME}");
        if self.call("GET", &path, None).0 == 200 {
            self.call(
                "PUT",
                &format!("{path}/maintenance"),
                Some(&json!({"reason": "the test is over"})),
            );
            let (status, answer) = self.call("DELETE", &path, None);
            assert_eq!(status, 204, "{answer}");
        }
    }
}

/// Data and a table as in the test with the fake.
fn image() -> Vec<u8> {
    let packed: &[u8] = include_bytes!("../fixtures/disks/gpt.zst");
    let mut image = zstd::decode_all(packed).unwrap();
    let end = image.len() - 34 * 512;
    for (index, byte) in image[1 << 20..end].iter_mut().enumerate() {
        *byte = u8::try_from(index % 251).unwrap();
    }
    image
}

/// Ironic takes no inventory whose only address is a loopback one. Connecting a UDP socket sends nothing.
fn own_address() -> IpAddr {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    socket
        .connect("192.0.2.1:9")
        .expect("this machine needs a default route");
    socket.local_addr().unwrap().ip()
}

#[test]
#[ignore = "needs FIRSTLIGHT_IRONIC_URL: a live Ironic on this machine"]
fn a_real_ironic_inspects_cleans_and_deploys() {
    let api = Api::from_environment();
    let der = CertificateDer::from_pem_slice(api.ca_pem.as_bytes()).unwrap();
    let the_box = Arc::new(Box {
        ca_pem: api.ca_pem.clone(),
        ..Box::default()
    });
    let image = image();
    let served = zstd::encode_all(image.as_slice(), 1).unwrap();
    *the_box.image.lock().unwrap() = served.clone();
    *the_box.cuts.lock().unwrap() = vec![30_000, 0, 0].into();
    let box_port = the_box.start();
    let port = api.base.rsplit(':').next().unwrap().parse().unwrap();
    let machine = Arc::new(TestMachine::new(MAC));
    api.make_node();
    let mut settings = support::settings(box_port, port, Sha256::digest(&der).into());
    settings.address = own_address();
    let ended = support::start(settings, machine.clone());

    api.target("inspect");
    api.wait_for("manageable");
    assert_eq!(
        api.node()["properties"]["memory_mb"]
            .to_string()
            .trim_matches('"'),
        "512"
    );
    let reports = the_box.reports.lock().unwrap();
    let disk = Disk::from_inventory(&reports[0].inventory["disks"][0]);
    drop(reports);
    let order = |policy| {
        let order = DiskOrder {
            deployment: Some(DeploymentId::new([7; 16])),
            policy,
            scope: DiskScope::Server,
            disks: vec![disk.id()],
            root: Some(disk.named()),
            mirror: None,
        };
        json!({"op": "add", "path": format!("/extra/{EXTRA}"), "value": order})
    };
    let clean =
        json!([{"op": "add", "path": "/automated_clean", "value": true}, order(DiskPolicy::Wipe)]);
    api.ask("PATCH", &format!("nodes/{NAME}"), &clean);
    api.target("provide");
    api.wait_for("available");
    let info = json!([{"op": "add", "path": "/instance_info", "value": {
        "image_source": format!("http://127.0.0.1:{box_port}/images/node.raw.zst"), "image_disk_format": "raw",
        "image_os_hash_algo": "sha256", "image_os_hash_value": sha256_hex(&served), "image_type": "whole-disk",
        "root_device": {"serial": "s== file-1"},
    }}, order(DiskPolicy::Blank)]);
    api.ask("PATCH", &format!("nodes/{NAME}"), &info);
    let drive =
        json!({"meta_data": {"name": "n"}, "user_data": "#cloud-config\n", "network_data": {}});
    api.ask(
        "PUT",
        &format!("nodes/{NAME}/states/provision"),
        &json!({"target": "active", "configdrive": drive}),
    );
    api.wait_for("active");
    let departure = ended.recv_timeout(Duration::from_mins(1)).unwrap().unwrap();
    assert_eq!(departure, Departure::BootDisk);
    api.remove_node();

    let gpt = Gpt::parse(&machine.read(0, 1 << 20), 512).unwrap().unwrap();
    let partitions = gpt.partitions();
    assert_eq!(partitions[1].name, "config-2");
    let end = usize::try_from((partitions[0].last_lba + 1) * 512).unwrap();
    assert!(machine.read(1 << 20, end - (1 << 20)) == image[1 << 20..end]);
    let volume = machine.read(partitions[1].first_lba * 512 + 32768, 2048);
    assert_eq!(
        (&volume[1..6], &volume[40..48]),
        (&b"CD001"[..], &b"config-2"[..])
    );
}
