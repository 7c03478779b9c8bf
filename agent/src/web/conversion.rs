//! `https://127.0.0.1:8444/convert`: the box's API server asks here for an object of CAPM3 in its other version (decision 0028).
//!
//! The door of a pure function ([`v1beta1`]): it keeps nothing and knows no secret, so whoever is on the box may ask. What the same server
//! tells of people comes to the same door (`people/kubectl.rs`). Must not: look
//! anything up; an answer that waits for the API server waits for itself.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use anyhow::Result;
use firstlight_api::{capm3::v1beta1, names::CONVERSION_PORT};
use http::{Method, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::{Request, Response, body::Incoming};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, watch};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::{
    Body,
    people::kubectl,
    refusal,
    server::{Answers, serve_address},
    text,
    tls::acceptor,
};
use crate::{
    doors::Known,
    people::People,
    pki::{CertSpec, Pki},
    status::StatusSender,
};

/// Some thousand machines with all that is said of them; etcd takes no object above 1.5 MiB.
const LARGEST: usize = 16 << 20;
/// Reviews that are in memory at a time.
const AT_ONCE: usize = 2;
/// The API server itself waits for 30 s.
const TIME: Duration = Duration::from_secs(20);

/// Serves the door until `stop`.
pub async fn serve(
    known: Known,
    people: People,
    mut pki: watch::Receiver<Option<Arc<Pki>>>,
    status: StatusSender,
    stop: CancellationToken,
) -> Result<()> {
    let pki = tokio::select! {
        pki = pki.wait_for(Option::is_some) => pki?.clone(),
        () = stop.cancelled() => return Ok(()),
    };
    let Some(pki) = pki else { return Ok(()) };
    let conversions = Conversions {
        acceptor: acceptor(&pki, &CertSpec::for_conversion())?,
        places: Arc::new(Semaphore::new(AT_ONCE)),
        people,
    };
    let address = (Ipv4Addr::LOCALHOST, CONVERSION_PORT).into();
    serve_address(conversions, known, address, status, stop).await
}

#[derive(Clone)]
struct Conversions {
    acceptor: TlsAcceptor,
    places: Arc<Semaphore>,
    people: People,
}

impl super::direct::Files for Conversions {}

impl Answers for Conversions {
    const WHAT: &'static str = "the conversion of v1beta1 objects";

    fn source(&self, _: SocketAddr) -> &'static str {
        "conversion"
    }

    fn tls(&self) -> Option<&TlsAcceptor> {
        Some(&self.acceptor)
    }

    async fn answer(&self, _: IpAddr, request: Request<Incoming>) -> Response<Body> {
        if (request.method(), request.uri().path()) == (&Method::POST, kubectl::PATH) {
            return kubectl::take(&self.people, request).await;
        }
        if request.uri().path() != v1beta1::PATH {
            return refusal(StatusCode::NOT_FOUND, "nothing is here");
        }
        if request.method() != Method::POST {
            return refusal(StatusCode::METHOD_NOT_ALLOWED, "POST");
        }
        // Never closed.
        let _place = self.places.acquire().await;
        let body = Limited::new(request.into_body(), LARGEST).collect();
        let Ok(Ok(body)) = tokio::time::timeout(TIME, body).await else {
            return refusal(
                StatusCode::PAYLOAD_TOO_LARGE,
                "these objects are more than 16 MiB, or came too slowly; ask for fewer at a time (kubectl get --chunk-size=100), or for v1beta2",
            );
        };
        let body = body.to_bytes();
        let answer = tokio::task::spawn_blocking(move || review(&body)).await;
        match answer {
            Ok(Some(answer)) => text(StatusCode::OK, "application/json", answer.to_string()),
            Ok(None) => refusal(
                StatusCode::BAD_REQUEST,
                "this is no ConversionReview of apiextensions.k8s.io/v1",
            ),
            Err(error) => {
                tracing::error!(%error, "a conversion ended in the middle");
                refusal(StatusCode::INTERNAL_SERVER_ERROR, "it cannot be converted")
            }
        }
    }
}

const API_VERSION: &str = "apiextensions.k8s.io/v1";
const KIND: &str = "ConversionReview";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Review {
    api_version: String,
    kind: String,
    request: ReviewRequest,
}

#[derive(Deserialize)]
struct ReviewRequest {
    uid: String,
    #[serde(rename = "desiredAPIVersion")]
    desired_api_version: String,
    objects: Vec<Value>,
}

/// All objects in the version that is wanted, or one sentence. `None`: nobody can tell what was asked for.
fn review(body: &[u8]) -> Option<Value> {
    let review: Review = serde_json::from_slice(body).ok()?;
    if (review.api_version.as_str(), review.kind.as_str()) != (API_VERSION, KIND) {
        return None;
    }
    let ReviewRequest {
        uid,
        desired_api_version: wanted,
        objects,
    } = review.request;
    let converted: Result<Vec<Value>, String> = objects
        .into_iter()
        .map(|object| {
            let meta = |name: &str| object["metadata"][name].as_str().unwrap_or("-").to_owned();
            let (namespace, name) = (meta("namespace"), meta("name"));
            let converted = v1beta1::convert(object, &wanted);
            converted.map_err(|refusal| format!("{namespace}/{name}: {refusal}"))
        })
        .collect();
    let (objects, result) = match converted {
        Ok(objects) => (objects, json!({"status": "Success"})),
        Err(message) => (Vec::new(), json!({"status": "Failure", "message": message})),
    };
    let response = json!({"uid": uid, "convertedObjects": objects, "result": result});
    Some(json!({"apiVersion": API_VERSION, "kind": KIND, "response": response}))
}

#[cfg(test)]
mod tests;
