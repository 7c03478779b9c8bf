//! `/api/v1/update`: the systems of the stick ([`crate::update`]) over HTTP. Who may is said by `people/gate.rs`: an admin.

use std::{net::IpAddr, time::Duration};

use bytes::{Bytes, BytesMut};
use firstlight_api::{
    bounded,
    update::{LONGEST_LINE, UpdateHeader, UpdatePlan},
};
use http::{Method, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::{Request, Response, body::Incoming};
use serde_json::json;
use tokio::sync::mpsc;

use super::{Body, Web, refusal, text};
use crate::people::Who;

pub const PATH: &str = "/api/v1/update";
/// Pieces on their way to the stick.
const AHEAD: usize = 64;
/// Without a byte for so long, who sends is gone; a stick may hold it up for long.
const PAUSE: Duration = Duration::from_mins(2);
const JSON: &str = "application/json";

/// `below` is the path after [`PATH`].
pub async fn answer(
    web: &Web,
    who: &Who,
    peer: IpAddr,
    below: &str,
    request: Request<Incoming>,
) -> Response<Body> {
    let what = match (request.method(), below) {
        (&Method::GET, "") => return say(web.update.view().await),
        (&Method::POST, "/plan") => return plan(web, request).await,
        (&Method::POST, "/layers") => "write another system",
        (&Method::POST, "/start") => "start another system",
        _ => {
            return refusal(
                StatusCode::NOT_FOUND,
                "nothing is here; docs/updates.md has the way of an update",
            );
        }
    };
    let answered = if below == "/layers" {
        layers(web, request).await
    } else {
        let site = web.status.borrow().clone();
        say(web
            .update
            .start(&site)
            .await
            .map(|()| json!({"restarts": true})))
    };
    let why_not = (!answered.status().is_success()).then(|| answered.status().to_string());
    web.people
        .note(&who.name(), peer, what, "stick", why_not)
        .await;
    answered
}

fn say(answer: anyhow::Result<impl serde::Serialize>) -> Response<Body> {
    match answer {
        Ok(value) => {
            let content = serde_json::to_vec(&value).expect("plain JSON");
            text(StatusCode::OK, JSON, content)
        }
        Err(error) => {
            tracing::warn!(error = format!("{error:#}"), "an update was refused");
            let sentence = bounded::sentence(&format!("{error:#}"));
            refusal(StatusCode::CONFLICT, sentence)
        }
    }
}

async fn plan(web: &Web, request: Request<Incoming>) -> Response<Body> {
    let body = Limited::new(request.into_body(), LONGEST_LINE).collect();
    let Ok(Ok(body)) = tokio::time::timeout(PAUSE, body).await else {
        return refusal(
            StatusCode::PAYLOAD_TOO_LARGE,
            "a list of layers is smaller, and comes at once",
        );
    };
    match serde_json::from_slice::<UpdatePlan>(&body.to_bytes()) {
        Ok(plan) => say(web
            .update
            .plan(plan.layers)
            .await
            .map(|send| json!({"send": send}))),
        Err(error) => unfit(&error),
    }
}

fn unfit(error: &serde_json::Error) -> Response<Body> {
    refusal(
        StatusCode::UNPROCESSABLE_ENTITY,
        format_args!("wanted are the layers of a system with name, length and sha256: {error}"),
    )
}

/// A line of JSON, and the bytes of layers.
async fn layers(web: &Web, request: Request<Incoming>) -> Response<Body> {
    let mut body = request.into_body();
    let mut begun = BytesMut::new();
    let line = loop {
        if let Some(end) = begun.iter().position(|byte| *byte == b'\n') {
            break begun.split_to(end + 1);
        }
        if begun.len() > LONGEST_LINE {
            return refusal(
                StatusCode::PAYLOAD_TOO_LARGE,
                "the first line is a list of layers",
            );
        }
        match next(&mut body).await {
            Some(piece) => begun.extend_from_slice(&piece),
            None => return refusal(StatusCode::BAD_REQUEST, "it ended in its first line"),
        }
    };
    let header = match serde_json::from_slice::<UpdateHeader>(&line) {
        Ok(header) => header,
        Err(error) => return unfit(&error),
    };
    let (pieces, inbox) = mpsc::channel(AHEAD);
    let forward = async move {
        let mut piece = begun.freeze();
        // Where the stick's end refuses, the rest is not waited for.
        while pieces.send(piece).await.is_ok() {
            let Some(following) = next(&mut body).await else {
                break;
            };
            piece = following;
        }
    };
    let write = web.update.write(header, inbox);
    let (written, ()) = tokio::join!(write, forward);
    say(written.map(|()| json!({"written": true})))
}

async fn next(body: &mut Incoming) -> Option<Bytes> {
    loop {
        match tokio::time::timeout(PAUSE, body.frame()).await {
            Ok(Some(Ok(frame))) => {
                if let Ok(bytes) = frame.into_data() {
                    return Some(bytes);
                }
            }
            Ok(Some(Err(_)) | None) | Err(_) => return None,
        }
    }
}
