//! `https://BOX:8443/ramdisk/v1/bmc`: what a ramdisk says of its BMC, and of the account that it makes there. A password is in it, so it
//! comes by TLS alone; it is signed like a report, and refused as cheaply.

use std::{net::IpAddr, time::Duration};

use firstlight_api::account::{LARGEST, Order, PATH, Post, Reply};
use http::{Method, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::{Request, Response, body::Incoming};

use super::{Body, refusal, signature::Signature, text};
use crate::{
    doors::Known,
    fleet::{Fleet, Speaker},
    status::counters::REFUSED,
};

const TIME: Duration = Duration::from_secs(20);

pub async fn answer(
    fleet: &Fleet,
    known: &Known,
    peer: IpAddr,
    request: Request<Incoming>,
) -> Response<Body> {
    if request.method() != Method::POST {
        return refusal(StatusCode::METHOD_NOT_ALLOWED, "POST");
    }
    let Some(signature) = Signature::of(request.headers()) else {
        REFUSED.count("post-unsigned");
        return refusal(StatusCode::UNAUTHORIZED, "this must be signed");
    };
    let body = Limited::new(request.into_body(), LARGEST).collect();
    let Ok(Ok(body)) = tokio::time::timeout(TIME, body).await else {
        REFUSED.count("post-too-large");
        let why = "the body is too large or too slow";
        return refusal(StatusCode::PAYLOAD_TOO_LARGE, why);
    };
    let body = body.to_bytes();
    let post = match Post::parse(&body) {
        Ok(post) => post,
        Err(error) => {
            REFUSED.count("post-malformed");
            return refusal(StatusCode::BAD_REQUEST, error.to_string());
        }
    };
    if post.fresh.session != fleet.session() {
        REFUSED.count("post-of-another-session");
        return reply(fleet, Order::Again);
    }
    if !signature.is_of(PATH, &body) {
        REFUSED.count("post-signature");
        return refusal(StatusCode::UNAUTHORIZED, "the signature does not fit");
    }
    let from = Speaker {
        peer,
        key: signature.key,
        follows: Vec::new(),
        tpm: None,
        boot: None,
    };
    match fleet.bmc(from, post).await {
        Some(order) => {
            known.believe(peer);
            reply(fleet, order)
        }
        None => refusal(
            StatusCode::CONFLICT,
            "the box does not believe this: report first",
        ),
    }
}

fn reply(fleet: &Fleet, order: Order) -> Response<Body> {
    let reply = Reply {
        session: fleet.session().to_owned(),
        order,
    };
    let json = serde_json::to_string(&reply).expect("a reply is plain JSON");
    text(StatusCode::OK, "application/json", json)
}
