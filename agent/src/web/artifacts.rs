//! `/api/v1/artifacts`: the store ([`crate::store`]) over HTTP.
//!
//! Who may read and write is said by `people/gate.rs`: what is uploaded ends on every server of the site.

use std::{borrow::Cow, collections::HashMap, net::IpAddr, time::Duration};

use bytes::Bytes;
use firstlight_api::artifact::{Artifact, ArtifactSpec, ArtifactState};
use http::{HeaderValue, Method, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use hyper::{Request, Response, body::Incoming};
use serde_json::json;
use tokio::sync::{mpsc, oneshot};

use firstlight_requests::unescape;

use super::{Body, Web, files, refusal, text};
use crate::{
    people::Who,
    store::{Refusal, Store, Writer},
};

/// Where the first byte of a `PATCH` belongs, and in answers where the next one does.
const OFFSET: &str = "upload-offset";
/// A description is a few hundred bytes.
const LARGEST_SPEC: usize = 16 * 1024;
/// Pieces on their way from the network to the disk, a few tens of kilobytes each.
const AHEAD: usize = 64;
/// Without a byte for so long, an upload is over; what is there is kept, and it goes on later.
const PAUSE: Duration = Duration::from_mins(1);
const JSON: &str = "application/json";

pub const PATH: &str = "/api/v1/artifacts";

/// `below` is the path after [`PATH`].
pub async fn answer(
    web: &Web,
    who: &Who,
    peer: IpAddr,
    below: &str,
    request: Request<Incoming>,
) -> Response<Body> {
    let Some(store) = web.facts.store.borrow().clone() else {
        return refusal(
            StatusCode::SERVICE_UNAVAILABLE,
            "the store is not open yet; try again in a few seconds",
        );
    };
    let method = request.method().clone();
    let below = below.trim_start_matches('/');
    let named = below.to_owned();
    let answered = match (method.clone(), below.split_once('/')) {
        (Method::GET, None) if below.is_empty() => {
            list(&store, request.uri().query().unwrap_or_default())
        }
        (Method::POST, None) if below.is_empty() => begin(store, request).await,
        (Method::GET | Method::HEAD, None) => found(store.get(below)),
        (Method::PATCH, None) => receive(store, below, request).await,
        (Method::DELETE, None) => remove(store, below.to_owned()).await,
        (method @ (Method::GET | Method::HEAD), Some((id, "content"))) => match store.content(id) {
            Ok(path) => files::serve(&path, request.headers(), method == Method::HEAD).await,
            Err(refused) => refuse(&refused),
        },
        _ => refusal(
            StatusCode::NOT_FOUND,
            format_args!("nothing is here; {PATH} lists all artifacts"),
        ),
    };
    if matches!(method, Method::POST | Method::DELETE) {
        let why_not = (!answered.status().is_success()).then(|| answered.status().to_string());
        let what = if method == Method::POST {
            "begin upload"
        } else {
            "delete upload"
        };
        web.people
            .note(
                &who.name(),
                peer,
                what,
                &firstlight_api::bounded::text(&named),
                why_not,
            )
            .await;
    }
    answered
}

fn found(artifact: Result<Artifact, Refusal>) -> Response<Body> {
    match artifact {
        Ok(artifact) => say(StatusCode::OK, &artifact),
        Err(refused) => refuse(&refused),
    }
}

fn say(status: StatusCode, artifact: &Artifact) -> Response<Body> {
    let content = serde_json::to_vec(artifact).expect("an artifact is plain JSON");
    let mut response = text(status, JSON, content);
    if let ArtifactState::Uploading { offset } = artifact.state {
        response.headers_mut().insert(OFFSET, offset.into());
    }
    response
}

fn refuse(refused: &Refusal) -> Response<Body> {
    let status = match refused {
        Refusal::NotFound(_) => StatusCode::NOT_FOUND,
        Refusal::Conflict(_) | Refusal::Offset { .. } => StatusCode::CONFLICT,
        Refusal::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
        Refusal::Unfit(_) => StatusCode::UNPROCESSABLE_ENTITY,
        Refusal::Broken(_) => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let mut response = refusal(status, refused);
    if let Refusal::Offset { wanted, .. } = refused {
        response.headers_mut().insert(OFFSET, (*wanted).into());
    }
    response
}

/// All, or those with the words that the query asks for.
fn list(store: &Store, query: &str) -> Response<Body> {
    let filters = match filters(query) {
        Ok(filters) => filters,
        Err(key) => {
            return refusal(
                StatusCode::BAD_REQUEST,
                format_args!(
                    "`{key}` is nothing to ask for; use kind, name, version, arch, state or sha256"
                ),
            );
        }
    };
    let artifacts = store.list().into_iter().map(|artifact| json!(artifact));
    let chosen: Vec<_> = artifacts
        .filter(|artifact| filters.iter().all(|(key, value)| artifact[*key] == **value))
        .collect();
    text(
        StatusCode::OK,
        JSON,
        json!({"artifacts": chosen}).to_string(),
    )
}

/// What is asked for by which word; the error is a word that is none.
fn filters(query: &str) -> Result<HashMap<&str, Cow<'_, str>>, &str> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    pairs
        .map(|(key, value)| match key {
            "kind" | "name" | "version" | "arch" | "state" | "sha256" => Ok((key, unescape(value))),
            _ => Err(key),
        })
        .collect()
}

async fn begin(store: Store, request: Request<Incoming>) -> Response<Body> {
    let is_json = request
        .headers()
        .get(header::CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(JSON.as_bytes()));
    if !is_json {
        return refusal(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "describe the upload as application/json",
        );
    }
    let body = Limited::new(request.into_body(), LARGEST_SPEC).collect();
    let Ok(Ok(body)) = tokio::time::timeout(PAUSE, body).await else {
        return refusal(
            StatusCode::PAYLOAD_TOO_LARGE,
            "a description is smaller, and comes at once; the bytes follow with PATCH",
        );
    };
    let spec = match serde_json::from_slice::<ArtifactSpec>(&body.to_bytes()) {
        Ok(spec) => spec,
        Err(error) => {
            return refusal(
                StatusCode::UNPROCESSABLE_ENTITY,
                format_args!("wanted are kind, name, version, arch, size and sha256: {error}"),
            );
        }
    };
    match blocking(move || store.begin(spec)).await {
        Ok(artifact) => {
            let mut response = say(StatusCode::CREATED, &artifact);
            let place = format!("{PATH}/{}", artifact.id);
            let place = HeaderValue::from_str(&place).expect("hex digits");
            response.headers_mut().insert(header::LOCATION, place);
            response
        }
        Err(refused) => refuse(&refused),
    }
}

async fn remove(store: Store, id: String) -> Response<Body> {
    match blocking(move || store.remove(&id)).await {
        Ok(()) => text(StatusCode::NO_CONTENT, JSON, Bytes::new()),
        Err(refused) => refuse(&refused),
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    let stopping = |_| Refusal::Broken("the box is stopping".to_owned());
    tokio::task::spawn_blocking(work).await.map_err(stopping)?
}

/// Takes bytes as they come. What arrived before a connection broke is kept, and the next `PATCH` goes on there.
async fn receive(store: Store, id: &str, request: Request<Incoming>) -> Response<Body> {
    let offset = request
        .headers()
        .get(OFFSET)
        .and_then(|value| value.to_str().ok()?.parse().ok());
    let Some(offset) = offset else {
        return refusal(
            StatusCode::BAD_REQUEST,
            "say with `Upload-Offset: N` where these bytes belong; GET the artifact to learn it",
        );
    };
    let (pieces, inbox) = mpsc::channel(AHEAD);
    let (tell, told) = oneshot::channel();
    let id = id.to_owned();
    let written = blocking(move || {
        let writer = store.write(&id, offset)?;
        // Nobody to hear it: the connection is gone.
        let _ = tell.send(());
        write(writer, inbox)
    });
    let written = tokio::spawn(written);
    // Before it may be written, nothing is read.
    if told.await.is_ok() {
        forward(request.into_body(), pieces).await;
    }
    match written.await {
        Ok(Ok(artifact)) => say(StatusCode::OK, &artifact),
        Ok(Err(refused)) => refuse(&refused),
        Err(_) => refusal(StatusCode::SERVICE_UNAVAILABLE, "the box is stopping"),
    }
}

/// From the connection to the disk's thread, which may end first.
async fn forward(mut body: Incoming, pieces: mpsc::Sender<Option<Bytes>>) {
    loop {
        let frame = match tokio::time::timeout(PAUSE, body.frame()).await {
            Ok(Some(Ok(frame))) => frame,
            Ok(Some(Err(_))) | Err(_) => return,
            Ok(None) => break,
        };
        if let Ok(bytes) = frame.into_data()
            && pieces.send(Some(bytes)).await.is_err()
        {
            return;
        }
    }
    // The end came in order; without it the writer keeps what it has.
    drop(pieces.send(None).await);
}

fn write(
    mut writer: Writer,
    mut inbox: mpsc::Receiver<Option<Bytes>>,
) -> Result<Artifact, Refusal> {
    while let Some(piece) = inbox.blocking_recv() {
        match piece {
            Some(bytes) => writer.write(&bytes)?,
            None => return writer.finish(),
        }
    }
    Err(Refusal::Conflict(format!(
        "the connection broke; go on at byte {}",
        writer.offset()
    )))
}

#[cfg(test)]
#[path = "artifacts/tests.rs"]
mod tests;
