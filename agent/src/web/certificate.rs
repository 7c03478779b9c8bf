//! `/api/v1/certificate`: the page's own certificate ([`crate::page_certificate`]). Who may is said by `people/gate.rs`: an admin.

use std::{net::IpAddr, time::Duration};

use http::{Method, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::{Request, Response, body::Incoming};

use super::{Body, Web, refusal, text};
use crate::{page_certificate::LARGEST, people::Who};

pub const PATH: &str = "/api/v1/certificate";
const TIME: Duration = Duration::from_secs(20);
const JSON: &str = "application/json";

pub async fn answer(
    web: &Web,
    who: &Who,
    peer: IpAddr,
    request: Request<Incoming>,
) -> Response<Body> {
    let what = match *request.method() {
        Method::GET | Method::HEAD => return show(web),
        Method::PUT => "set the page's certificate",
        Method::DELETE => "remove the page's certificate",
        _ => {
            return refusal(
                StatusCode::METHOD_NOT_ALLOWED,
                "a certificate is read, set with PUT, and removed with DELETE",
            );
        }
    };
    let answered = if request.method() == Method::PUT {
        put(web, request).await
    } else {
        match web.certificate.remove() {
            Ok(()) => text(StatusCode::NO_CONTENT, JSON, ""),
            Err(error) => refusal(StatusCode::INTERNAL_SERVER_ERROR, format_args!("{error:#}")),
        }
    };
    let why_not = (!answered.status().is_success()).then(|| answered.status().to_string());
    web.people
        .note(&who.name(), peer, what, "page", why_not)
        .await;
    answered
}

fn show(web: &Web) -> Response<Body> {
    match web.certificate.view() {
        Some(view) => text(
            StatusCode::OK,
            JSON,
            serde_json::to_vec(&view).expect("plain JSON"),
        ),
        None => refusal(
            StatusCode::NOT_FOUND,
            "the page has the site's own certificate and no other",
        ),
    }
}

async fn put(web: &Web, request: Request<Incoming>) -> Response<Body> {
    let body = Limited::new(request.into_body(), LARGEST).collect();
    let Ok(Ok(body)) = tokio::time::timeout(TIME, body).await else {
        return refusal(
            StatusCode::PAYLOAD_TOO_LARGE,
            format_args!(
                "this is more than {} KiB, or came too slowly",
                LARGEST / 1024
            ),
        );
    };
    match web.certificate.put(&body.to_bytes()) {
        Ok(view) => text(
            StatusCode::OK,
            JSON,
            serde_json::to_vec(&view).expect("plain JSON"),
        ),
        Err(error) => refusal(StatusCode::UNPROCESSABLE_ENTITY, format_args!("{error:#}")),
    }
}
