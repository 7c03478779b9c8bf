//! What people see who come by the uplink: the page, what it is made of, and what they may ask for. Servers do not come from there, so that nothing is there for them:
//! no boot files, no images, no reports.

use std::net::{IpAddr, SocketAddr};

use firstlight_api::edge;
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;

use firstlight_requests::normalize;

use super::{
    Body, Web, artifacts,
    direct::Files,
    people::{
        self,
        gate::{KUBERNETES, Way},
    },
    refusal, route,
    server::Answers,
};
use super::{
    certificate, changes, monitoring, openapi,
    page::{ASSETS, Page},
    receipt, update,
};
use crate::people::Claim;

const SHOWN: [&str; 10] = [
    monitoring::LOGS,
    monitoring::STARTS,
    monitoring::LOGS_PAGE,
    changes::PATH,
    "/api/v1/status",
    "/api/v1/events",
    edge::PATH,
    openapi::PATH,
    "/readyz",
    "/metrics",
];

fn is_shown(web: &Web, path: &str) -> bool {
    // What is behind a login is there once people can log in.
    let of_people = || {
        [
            artifacts::PATH,
            update::PATH,
            certificate::PATH,
            receipt::PATH,
            KUBERNETES,
        ]
        .iter()
        .any(|theirs| path.starts_with(theirs))
    };
    let is_claimed = || web.way == Way::Tls && web.people.claim() == Claim::Somebody;
    SHOWN.contains(&path)
        || Page::of(path, "").is_some()
        || path.starts_with(ASSETS)
        || path.starts_with(monitoring::PATH)
        || people::is_theirs(path)
        || of_people() && is_claimed()
}

/// [`Web`], as it is seen from outside.
#[derive(Clone)]
pub struct Outside(pub Web);

impl Files for Outside {}

impl Answers for Outside {
    const WHAT: &'static str = "the page";

    fn source(&self, _address: SocketAddr) -> &'static str {
        "http-uplink"
    }

    async fn answer(&self, peer: IpAddr, request: Request<Incoming>) -> Response<Body> {
        let path = normalize(request.uri().path());
        if is_shown(&self.0, &path) {
            return route::answer(&self.0, peer, request).await;
        }
        refusal(
            StatusCode::NOT_FOUND,
            "only the page is here; what servers boot from is on the provisioning network",
        )
    }
}
