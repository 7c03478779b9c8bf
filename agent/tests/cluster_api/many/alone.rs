//! What Ironic does without us: the same Ironic, as many nodes of its own fake hardware, and a client that does nothing but
//! ask for the next step.

use std::{path::Path, sync::Arc, time::Instant};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use firstlight_agent::paths::Paths;
use firstlight_client::tls;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client as HttpClient, connect::HttpConnector},
    rt::TokioExecutor,
};
use rustls::pki_types::{CertificateDer, pem::PemObject};
use serde_json::{Value, json};

use super::{
    server::{mac_of, text_of},
    the_box::Ironic,
};

const API: &str = "https://172.22.0.1:6385";
/// Requests under way at a time; more make it no faster.
const CLIENTS: u16 = 8;

/// Seconds from the first request to the last node that is `active`.
pub async fn seconds(dir: &Path, paths: &Paths, count: u16) -> f64 {
    let change = |config: String| {
        let lines = config.lines().map(|line| {
            let Some((name, kinds)) = line.split_once(" = ") else {
                return line.to_owned();
            };
            match name {
                "enabled_hardware_types" => format!("{line},fake-hardware"),
                name if name.starts_with("enabled_") && name.ends_with("_interfaces") => {
                    let mut kinds: Vec<&str> = kinds.split(',').collect();
                    kinds.retain(|kind| *kind != "fake");
                    if !["storage", "network"].contains(&name.split('_').nth(1).unwrap()) {
                        kinds.push("fake");
                    }
                    format!("{name} = {}", kinds.join(","))
                }
                _ => line.to_owned(),
            }
        });
        lines.collect::<Vec<_>>().join("\n")
    };
    let mut ironic =
        Ironic::start(&dir.join("ironic-alone"), paths, &dir.join("logs"), change).await;
    let client = Arc::new(Client::new(paths));
    let began = Instant::now();
    let mut clients = Vec::new();
    for first in 1..=CLIENTS {
        let client = client.clone();
        let theirs = (first..=count).step_by(usize::from(CLIENTS));
        clients.push(tokio::spawn(async move {
            for number in theirs {
                client.enrol(number).await;
            }
        }));
    }
    for one in clients {
        one.await.unwrap();
    }
    let mut moved = 0;
    while moved < usize::from(count) {
        moved = client.push(count).await;
        assert!(
            ironic.daemon.is_running(),
            "Ironic ended:\n{}",
            ironic.daemon.tail()
        );
    }
    began.elapsed().as_secs_f64()
}

struct Client {
    http: HttpClient<HttpsConnector<HttpConnector>, Full<Bytes>>,
    authorization: String,
}

impl Client {
    fn new(paths: &Paths) -> Self {
        let pem = std::fs::read(paths.site_ca()).unwrap();
        let ca = CertificateDer::from_pem_slice(&pem).unwrap();
        let password = std::fs::read_to_string(paths.run_ironic().join("password")).unwrap();
        let pair = STANDARD.encode(format!("firstlight:{password}"));
        let tls = tls::trust_only(ca, Arc::default()).unwrap();
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(Arc::unwrap_or_clone(tls))
            .https_only()
            .enable_http1()
            .build();
        Self {
            http: HttpClient::builder(TokioExecutor::new()).build(connector),
            authorization: format!("Basic {pair}"),
        }
    }

    fn request(&self, method: &str, path: &str, body: Option<Value>) -> Request<Full<Bytes>> {
        let body = body.map_or(String::new(), |body| body.to_string());
        Request::builder()
            .method(method)
            .uri(format!("{API}{path}"))
            .header("content-type", "application/json")
            .header("x-openstack-ironic-api-version", "1.90")
            .header("authorization", &self.authorization)
            .body(Full::new(body.into()))
            .unwrap()
    }

    async fn call(&self, method: &str, path: &str, body: Option<Value>) -> Value {
        let answer = self.http.request(self.request(method, path, body)).await;
        let answer = answer.unwrap_or_else(|error| panic!("{method} {path}: {error:?}"));
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        assert!(
            status < 300 || status == 409,
            "{method} {path}: {status} {}",
            String::from_utf8_lossy(&body)
        );
        serde_json::from_slice(&body).unwrap_or_default()
    }

    /// As the agent does: node, port, `manage`.
    async fn enrol(&self, number: u16) {
        let uuid = uuid_of(number);
        let mut node =
            json!({"uuid": uuid, "name": format!("n{number}"), "driver": "fake-hardware"});
        for kind in [
            "bios",
            "boot",
            "console",
            "deploy",
            "firmware",
            "inspect",
            "management",
            "power",
            "raid",
            "rescue",
            "vendor",
        ] {
            node[format!("{kind}_interface")] = "fake".into();
        }
        self.call("POST", "/v1/nodes", Some(node)).await;
        let port = json!({"node_uuid": uuid, "address": text_of(mac_of(number))});
        self.call("POST", "/v1/ports", Some(port)).await;
        self.go(&uuid, json!({"target": "manage"})).await;
    }

    async fn go(&self, uuid: &str, body: Value) {
        let path = format!("/v1/nodes/{uuid}/states/provision");
        self.call("PUT", &path, Some(body)).await;
    }

    /// The next step of each; how many have none any more.
    async fn push(&self, count: u16) -> usize {
        let path =
            "/v1/nodes?limit=1000&fields=uuid,provision_state,inspection_finished_at,last_error";
        let found = self.call("GET", path, None).await;
        let nodes = found["nodes"].as_array().unwrap();
        assert_eq!(nodes.len(), usize::from(count));
        let mut active = 0;
        for node in nodes {
            let uuid = node["uuid"].as_str().unwrap();
            match node["provision_state"].as_str().unwrap() {
                "manageable" if node["inspection_finished_at"].is_null() => {
                    self.go(uuid, json!({"target": "inspect"})).await;
                }
                "manageable" => {
                    self.go(uuid, json!({"target": "provide"})).await;
                }
                "available" => {
                    let info = json!([{"op": "add", "path": "/instance_info", "value": {
                        "image_source": "http://172.22.0.1/images/node.raw.zst",
                        "image_os_hash_algo": "sha256", "image_os_hash_value": "ab".repeat(32),
                        "image_disk_format": "raw", "image_type": "whole-disk",
                    }}]);
                    let path = format!("/v1/nodes/{uuid}");
                    self.call("PATCH", &path, Some(info)).await;
                    let drive = json!({"meta_data": {"name": uuid}, "user_data": ""});
                    let body = json!({"target": "active", "configdrive": drive});
                    self.go(uuid, body).await;
                }
                "active" => active += 1,
                state => assert!(!state.contains("fail"), "{node}"),
            }
        }
        active
    }
}

fn uuid_of(number: u16) -> String {
    format!("00000000-0000-4000-8000-{number:012x}")
}
