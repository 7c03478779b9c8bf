//! What the ramdisk posts. It comes from the network, so it is small, whole and well-formed, or refused.

use std::{
    net::IpAddr,
    sync::PoisonError,
    time::{Duration, Instant},
};

use firstlight_api::report::{Progress, Report};
use firstlight_netboot::MacAddr;
use http::StatusCode;
use http_body_util::{BodyExt, Limited};
use hyper::{Request, Response, body::Incoming};
use serde::de::DeserializeOwned;

use super::{Body, Web, refusal, text};
use crate::fleet::Input;

/// An inventory of a large server is some 100 kB.
const LARGEST: usize = 1024 * 1024;
const SLOWEST: Duration = Duration::from_secs(30);

pub async fn report(web: &Web, peer: IpAddr, request: Request<Incoming>) -> Response<Body> {
    let report: Report = match read(request).await {
        Ok(report) => report,
        Err(refused) => return *refused,
    };
    if report.boot_mac.parse::<MacAddr>().is_err() || report.disks.len() > 1024 {
        return refusal(
            StatusCode::BAD_REQUEST,
            "bootMac is no MAC address, or there are more than 1024 disks",
        );
    }
    let directive = web.fleet.report(peer, report).await;
    let json = serde_json::to_string(&directive).expect("a directive is plain JSON");
    text(StatusCode::OK, "application/json", json)
}

pub async fn progress(web: &Web, peer: IpAddr, request: Request<Incoming>) -> Response<Body> {
    let progress: Progress = match read(request).await {
        Ok(progress) => progress,
        Err(refused) => return *refused,
    };
    if progress.boot_mac.parse::<MacAddr>().is_err() {
        return refusal(StatusCode::BAD_REQUEST, "bootMac is no MAC address");
    }
    web.relays
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .hear(Instant::now(), peer, &progress.phase);
    web.fleet.tell(Input::Progress { peer, progress });
    text(StatusCode::OK, "application/json", "{}")
}

async fn read<T: DeserializeOwned>(request: Request<Incoming>) -> Result<T, Box<Response<Body>>> {
    let refuse = |status, message: String| Err(Box::new(refusal(status, message)));
    match tokio::time::timeout(
        SLOWEST,
        Limited::new(request.into_body(), LARGEST).collect(),
    )
    .await
    {
        Err(_) => refuse(
            StatusCode::REQUEST_TIMEOUT,
            "the body did not arrive within 30 s".to_owned(),
        ),
        Ok(Err(error)) => refuse(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("the body was not accepted: {error}"),
        ),
        Ok(Ok(body)) => serde_json::from_slice(&body.to_bytes()).or_else(|error| {
            refuse(
                StatusCode::BAD_REQUEST,
                format!("not the JSON that is expected here: {error}"),
            )
        }),
    }
}
