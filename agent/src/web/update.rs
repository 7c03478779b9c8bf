//! `/api/v1/update`: the systems of the stick ([`crate::update`]) over HTTP. Who may is said by `people/gate.rs`: an admin.

mod image;
mod source;

use std::{net::IpAddr, time::Duration};

use firstlight_api::{
    bounded,
    seal::RecoveryKey,
    slot::SystemContent,
    update::{LONGEST_LINE, UpdateHeader},
};
use http::{Method, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use hyper::{Request, Response, body::Incoming};
use serde_json::json;
use tokio::sync::mpsc;

use self::source::Source;
use super::{Body, Web, people, refusal, text};
use crate::people::Who;

pub const PATH: &str = "/api/v1/update";
const LARGEST_IMAGE: u64 = 4 << 30;
/// Pieces on their way to the stick.
const AHEAD: usize = 64;
const PAUSE: Duration = Duration::from_secs(20);
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
        (&Method::POST, "/layers" | "/image") => "write another system",
        (&Method::POST, "/start") => "start another system",
        (&Method::POST, "/seal") => "make another recovery key",
        (&Method::POST, "/backup") => "make a backup",
        _ => {
            return refusal(
                StatusCode::NOT_FOUND,
                "nothing is here; docs/updates.md has the way of an update",
            );
        }
    };
    let of_page = is_form(&request);
    let answered = match below {
        "/layers" => layers(web, request).await,
        "/image" => told(image(web, request).await, "written", of_page),
        "/seal" => recovery_key(web, of_page).await,
        "/backup" => say(web.update.backup().await),
        _ => {
            let site = web.status.borrow().clone();
            told(web.update.start(&site).await, "restarts", of_page)
        }
    };
    let done = answered.status().is_success() || answered.status().is_redirection();
    let why_not = (!done).then(|| answered.status().to_string());
    web.people
        .note(&who.name(), peer, what, "stick", why_not)
        .await;
    answered
}

/// Shown once.
async fn recovery_key(web: &Web, of_page: bool) -> Response<Body> {
    match web.update.seal().await {
        Ok(RecoveryKey(key)) if of_page => people::shown_once(
            "A recovery key",
            "It opens what the box remembers where the TPM does not; an older one does not any more. Keep it away from the box.",
            &key,
            "/update",
        ),
        Err(error) => told(Err(error), "", of_page),
        Ok(RecoveryKey(key)) => say(Ok(json!({ "recoveryKey": key }))),
    }
}

/// A form's answer is another page.
fn told(answer: anyhow::Result<()>, what: &str, of_page: bool) -> Response<Body> {
    match answer {
        Ok(()) if of_page => people::to("/update"),
        Err(error) if of_page => {
            let why = bounded::sentence(&format!("{error:#}"));
            people::failed(StatusCode::CONFLICT, &why, "/update")
        }
        answer => say(answer.map(|()| json!({ what: true }))),
    }
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
    match serde_json::from_slice::<SystemContent>(&body.to_bytes()) {
        Ok(system) => say(web
            .update
            .plan(system)
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
    let mut source = Source::new(request.into_body());
    let line = match source.until(b"\n", LONGEST_LINE).await {
        Ok(line) => line,
        Err(error) => {
            return refusal(
                StatusCode::BAD_REQUEST,
                format_args!("its first line is a list of layers: {error}"),
            );
        }
    };
    let header = match serde_json::from_slice::<UpdateHeader>(&line) {
        Ok(header) => header,
        Err(error) => return unfit(&error),
    };
    let (pieces, inbox) = mpsc::channel(AHEAD);
    let forward = async move {
        // Where the stick's end refuses, the rest is not waited for.
        while let Some(piece) = source.piece().await {
            if pieces.send(piece).await.is_err() {
                break;
            }
        }
    };
    let write = web.update.write(header, inbox);
    let (written, ()) = tokio::join!(write, forward);
    say(written.map(|()| json!({"written": true})))
}

/// Of a form of the page, or as it is.
async fn image(web: &Web, request: Request<Incoming>) -> anyhow::Result<()> {
    let is_form = is_form(&request);
    let mut source = Source::new(request.into_body());
    let written = write_image(web, &mut source, is_form).await;
    // A browser that is not listened to up to its end hears no answer, and so no reason.
    if is_form {
        source.drain(LARGEST_IMAGE).await;
    }
    written
}

async fn write_image(
    web: &Web,
    source: &mut Source<Incoming>,
    is_form: bool,
) -> anyhow::Result<()> {
    let table = image::begin(source, is_form).await?;
    let (pieces, inbox) = mpsc::channel(AHEAD);
    let header = UpdateHeader {
        sent: table
            .layers
            .iter()
            .map(|layer| layer.name.clone())
            .collect(),
        system: table.content(),
    };
    let write = web.update.write(header, inbox);
    let (written, passed) = tokio::join!(write, image::pass_on(source, &table.layers, pieces));
    // What was cut is the reason of what could not be written.
    passed.and(written)
}

fn is_form(request: &Request<Incoming>) -> bool {
    let kind = request.headers().get(header::CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    ["multipart/form-data", "application/x-www-form-urlencoded"]
        .iter()
        .any(|form| kind.starts_with(form))
}
