//! As much of Ironic as a ramdisk meets: it hands out tokens once, and deploys when a heartbeat comes.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use firstlight_client::http::{Client, Request as Call};
use firstlight_client::tls;
use serde_json::{Value, json};

use super::http::{Request, Response, serve};

pub const NODE: &str = "0b9f0c3e-0000-4000-8000-00000000000a";

#[derive(Clone, Debug, Default)]
pub struct Node {
    /// Lookup finds it.
    pub wanted: bool,
    /// `inspect wait`: an inventory is taken.
    pub inspecting: bool,
    pub token: Option<String>,
    pub handed_out: bool,
    pub inventory: Option<Value>,
    /// The last heartbeat's callback and certificate.
    pub agent: Option<(String, String)>,
    pub tokens: u32,
    pub requests: u32,
}

#[derive(Default)]
pub struct Ironic {
    pub node: Mutex<Node>,
}

impl Ironic {
    pub fn start(self: &Arc<Self>, tls: Arc<rustls::ServerConfig>) -> u16 {
        let shared = Arc::clone(self);
        serve(Some(tls), move |request| Some(shared.handle(&request)))
    }

    /// Forgets the token, as at power changes and failures.
    pub fn wipe_token(&self) {
        let mut node = self.node.lock().unwrap();
        (node.token, node.handed_out, node.agent) = (None, false, None);
    }

    fn handle(&self, request: &Request) -> Response {
        let mut node = self.node.lock().unwrap();
        node.requests += 1;
        let (path, query) = request
            .target
            .split_once('?')
            .unwrap_or((&request.target, ""));
        match (request.method.as_str(), path) {
            ("POST", "/v1/continue_inspection") if node.inspecting && is_ours(query) => {
                node.inventory = Some(request.json());
                node.inspecting = false;
                registration(&mut node, 202)
            }
            ("GET", "/v1/lookup") if node.wanted && is_ours(query) => registration(&mut node, 200),
            ("POST", path) if path == format!("/v1/heartbeat/{NODE}") => {
                heartbeat(&mut node, &request.json())
            }
            _ => Response::json(404, &fault("not found")),
        }
    }

    /// Sends a command to the ramdisk and gives back status and answer.
    pub fn command(&self, name: &str, params: &Value, wait: bool) -> (u16, Value) {
        let (url, token, client) = self.agent();
        let url = format!("{url}/v1/commands/?wait={wait}&agent_token={token}");
        let body = json!({"name": name, "params": params})
            .to_string()
            .into_bytes();
        send(&client, &Call::post_json(&url, &body))
    }

    /// The ramdisk's commands.
    pub fn commands(&self) -> Vec<Value> {
        let (url, token, client) = self.agent();
        let (status, answer) = send(
            &client,
            &Call::get(&format!("{url}/v1/commands/?agent_token={token}")),
        );
        assert_eq!(status, 200, "{answer}");
        answer["commands"].as_array().unwrap().clone()
    }

    pub fn agent(&self) -> (String, String, Client) {
        let node = self.node.lock().unwrap();
        let (url, certificate) = node.agent.clone().expect("a heartbeat");
        let ca = rustls::pki_types::pem::PemObject::from_pem_slice(certificate.as_bytes()).unwrap();
        let trust = tls::trust_only(ca, Arc::default()).unwrap();
        (
            url,
            node.token.clone().unwrap(),
            Client::new(Some(trust), Duration::from_secs(10)),
        )
    }
}

fn send(client: &Client, call: &Call) -> (u16, Value) {
    let mut reply = client.send(call).unwrap();
    let body = reply.read_body(1 << 26).unwrap();
    (
        reply.status(),
        serde_json::from_slice(&body).unwrap_or(Value::Null),
    )
}

fn is_ours(query: &str) -> bool {
    query == format!("node_uuid={NODE}")
}

fn registration(node: &mut Node, status: u16) -> Response {
    let shown = if node.handed_out {
        "******".to_owned()
    } else {
        node.tokens += 1;
        node.handed_out = true;
        node.token
            .insert(format!("token_{}-x", node.tokens))
            .clone()
    };
    let config =
        json!({"agent_token": shown, "heartbeat_timeout": 5, "agent_md5_checksum_enable": false});
    Response::json(status, &json!({"node": {"uuid": NODE}, "config": config}))
}

fn heartbeat(node: &mut Node, body: &Value) -> Response {
    if node.token.is_none() || body["agent_token"].as_str() != node.token.as_deref() {
        return Response::json(
            400,
            &json!({"error_message": fault("Invalid or missing agent token received.")}),
        );
    }
    let text = |key: &str| body[key].as_str().unwrap().to_owned();
    assert!(!text("agent_version").is_empty());
    node.agent = Some((text("callback_url"), text("agent_verify_ca")));
    Response::new(202, "")
}

fn fault(text: &str) -> Value {
    json!({"faultcode": "Client", "faultstring": text})
}
