//! The fake's HTTP side: paths to calls of the state machine.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
};

use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::machine::{Machine, Refusal};

pub(super) async fn serve(listener: TcpListener, machine: Arc<Mutex<Machine>>) {
    // Dropped with this task, so that a stopped fake does not go on answering on connections it had.
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let machine = Arc::clone(&machine);
        let service =
            hyper::service::service_fn(move |request| answer(request, Arc::clone(&machine)));
        connections.spawn(async move {
            // A client that went away is no error of the server.
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

async fn answer(
    request: Request<Incoming>,
    machine: Arc<Mutex<Machine>>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let bytes = body
        .collect()
        .await
        .map(http_body_util::Collected::to_bytes)
        .unwrap_or_default();
    let body: Value = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
    let mut machine = machine
        .lock()
        .expect("the fake does not panic while it holds its state");
    let (status, value) = match route(
        &mut machine,
        &head.method,
        head.uri.path(),
        head.uri.query().unwrap_or_default(),
        &body,
    ) {
        Ok((status, value)) => (status, value),
        Err(Refusal(status, text)) => {
            let fault = json!({"faultcode": "Client", "faultstring": text, "debuginfo": null});
            (status, json!({"error_message": fault.to_string()}))
        }
    };
    let status = StatusCode::from_u16(status).expect("the fake uses registered status codes");
    let body = if value.is_null() {
        String::new()
    } else {
        value.to_string()
    };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    Ok(response)
}

fn route(
    machine: &mut Machine,
    method: &Method,
    path: &str,
    query: &str,
    body: &Value,
) -> Result<(u16, Value), Refusal> {
    if method != Method::GET {
        let left = machine.loses.take();
        if left == Some(0) {
            return Err(Refusal(503, "the connection was lost".to_owned()));
        }
        machine.loses = left.map(|left| left - 1);
    }
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let parameter = |name: &str| {
        query
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .find(|(key, _)| *key == name)
            .map_or("", |(_, value)| value)
    };
    let with = |status: u16| move |value: Value| (status, value);
    match (method.as_str(), parts.as_slice()) {
        ("GET", ["v1"]) => Ok((
            200,
            json!({"version": {"id": "v1", "min_version": "1.1", "version": "1.115"}}),
        )),
        ("GET", ["v1", "nodes"]) => Ok((200, machine.list())),
        ("POST", ["v1", "nodes"]) => machine.create(body).map(with(201)),
        ("GET", ["v1", "nodes", id]) => machine.get(id).map(with(200)),
        ("PATCH", ["v1", "nodes", id]) => machine.patch(id, body).map(with(200)),
        ("DELETE", ["v1", "nodes", id]) => machine.delete(id).map(with(204)),
        ("PUT", ["v1", "nodes", id, "maintenance"]) => {
            let reason = body["reason"].as_str().unwrap_or_default();
            machine.set_maintenance(id, Some(reason)).map(with(202))
        }
        ("DELETE", ["v1", "nodes", id, "maintenance"]) => {
            machine.set_maintenance(id, None).map(with(202))
        }
        ("POST", ["v1", "ports"]) => machine.create_port(body).map(with(201)),
        ("GET", ["v1", "nodes", id, "ports"]) => machine.ports(id).map(with(200)),
        ("GET", ["v1", "nodes", id, "inventory"]) => machine.inventory(id).map(with(200)),
        ("PUT", ["v1", "nodes", id, "states", "provision"]) => {
            machine.provision(id, body).map(with(202))
        }
        ("PUT", ["v1", "nodes", id, "states", "power"]) => machine
            .power(id, body["target"].as_str().unwrap_or_default())
            .map(with(202)),
        ("GET", ["v1", "nodes", id, "management", "boot_device"]) => {
            machine.ask_bmc(id).map(with(200))
        }
        ("PUT", ["v1", "nodes", id, "management", "boot_device"]) => {
            machine.boot_device(id, body).map(with(204))
        }
        ("POST", ["v1", "nodes", id, "vmedia"]) => machine.attach_cd(id, body).map(with(204)),
        ("DELETE", ["v1", "nodes", id, "vmedia"]) => machine
            .detach_cd(id, parameter("device_types"))
            .map(with(204)),
        ("GET", ["v1", "lookup"]) => machine.lookup(parameter("addresses")).map(with(200)),
        ("POST", ["v1", "heartbeat", id]) => machine.heartbeat(id, body).map(with(202)),
        ("POST", ["v1", "continue_inspection"]) => machine.continue_inspection(body).map(with(202)),
        _ => Err(Refusal(404, format!("{method} {path}: no such resource"))),
    }
}
