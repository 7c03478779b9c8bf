//! What the ramdisk posts. It comes from the network, so it is small, whole, well-formed, of now and signed, or refused.

use std::{
    mem,
    net::IpAddr,
    sync::PoisonError,
    time::{Duration, Instant},
};

use bytes::Bytes;
use firstlight_api::{
    measured::{self, Boot},
    report::{
        Directive, Fresh, LARGEST_PROGRESS, LARGEST_REPORT, PROGRESS_PATH, Progress, REPORT_PATH,
        Reply, Report, ReportError,
    },
    signed::PublicKey,
    tpm::{Claim, Fingerprint, Tpm},
};
use firstlight_measured::Booted;
use http::StatusCode;
use http_body_util::{BodyExt, Limited};
use hyper::{Request, Response, body::Incoming};

use super::{
    Body, Web, refusal,
    signature::{Signature, followed},
    text,
};
use crate::{fleet::Speaker, status::counters::REFUSED};

const SLOWEST: Duration = Duration::from_secs(30);
const UNSIGNED: &str = "this must be signed; a ramdisk of an older version is replaced by starting the server from the network";

/// Why a post is not taken, as a response.
type Refusal = Box<Response<Body>>;

pub async fn report(web: &Web, peer: IpAddr, request: Request<Incoming>) -> Response<Body> {
    match take(web, peer, request, &REPORT).await {
        Ok((from, mut report)) => {
            web.boot_files.loaders.came(peer);
            match shown(web, from.key, &mut report).await {
                Ok((tpm, boot)) => {
                    let follows = followed(&report.follows, &report.boot_mac, from.key);
                    let from = Speaker {
                        follows,
                        tpm,
                        boot: Some(boot),
                        ..from
                    };
                    reply(web, web.fleet.report(from, report).await)
                }
                Err(refused) => *refused,
            }
        }
        Err(refused) => *refused,
    }
}

/// The TPM that a report proves, and how its machine was started; a machine that names a TPM and shows less is asked to.
async fn shown(
    web: &Web,
    key: PublicKey,
    report: &mut Report,
) -> Result<(Option<Fingerprint>, Booted), Refusal> {
    let Tpm::Key { point, proof, boot } = &mut report.tpm else {
        let reason = match report.tpm {
            Tpm::Absent => "it has no TPM, or its firmware hides it",
            Tpm::Unsaid => "its ramdisk does not know of TPMs",
            _ => "its TPM has not answered",
        };
        return Ok((None, unmeasured(reason)));
    };
    let (point, proof) = (*point, *proof);
    // The evidence is large, and needed here alone.
    let boot = mem::take(boot);
    let claim = Claim {
        session: web.fleet.session(),
        boot_mac: &report.boot_mac,
        boot_id: &report.boot_id,
        key,
        tpm: point,
    };
    let held = proof.filter(|proof| web.examiner.holds(&claim, proof));
    if let Some(proof) = held {
        let claimed = claim.bytes(&proof.challenge.point);
        if let Some(booted) = booted(web, key, &report.boot_mac, boot, &claimed).await {
            return Ok((Some(point.fingerprint()), booted));
        }
    } else if proof.is_some() {
        REFUSED.count("report-tpm-proof");
    }
    match web.examiner.ask(&claim) {
        Some(challenge) => Err(Box::new(reply(web, Directive::Prove(challenge)))),
        None => refuse(
            StatusCode::BAD_REQUEST,
            "what this says of its TPM is no point on P-256",
        ),
    }
}

/// `None` if it has to say it once more.
async fn booted(
    web: &Web,
    key: PublicKey,
    boot_mac: &str,
    boot: Boot,
    claimed: &[u8],
) -> Option<Booted> {
    let booted = match boot {
        Boot::Told => return web.starts.remembered(key),
        Boot::Unsaid => unmeasured("its ramdisk does not know of measured boot"),
        Boot::Unmeasured { reason } => Booted::Unmeasured { reason },
        Boot::Quoted(evidence) => {
            let mac = boot_mac.parse().ok()?;
            let qualifying = measured::qualifying(claimed);
            web.starts
                .judge(&web.boot_files, mac, &evidence, &qualifying)
                .await
        }
    };
    web.starts.remember(key, &booted);
    Some(booted)
}

fn unmeasured(reason: &str) -> Booted {
    Booted::Unmeasured {
        reason: reason.to_owned(),
    }
}

pub async fn progress(web: &Web, peer: IpAddr, request: Request<Incoming>) -> Response<Body> {
    let (from, progress) = match take(web, peer, request, &PROGRESS).await {
        Ok(taken) => taken,
        Err(refused) => return *refused,
    };
    let phase = progress.phase.clone();
    if !web.fleet.progress(from, progress).await {
        return refusal(
            StatusCode::CONFLICT,
            "the box does not believe this: report first",
        );
    }
    web.known.believe(peer);
    web.relays
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .hear(Instant::now(), peer, &phase);
    text(StatusCode::OK, "application/json", "{}")
}

/// One kind of post.
struct Kind<T> {
    path: &'static str,
    largest: usize,
    parse: fn(&[u8]) -> Result<T, ReportError>,
    fresh: fn(&T) -> &Fresh,
}

const REPORT: Kind<Report> = Kind {
    path: REPORT_PATH,
    largest: LARGEST_REPORT,
    parse: Report::parse,
    fresh: |report| &report.fresh,
};
const PROGRESS: Kind<Progress> = Kind {
    path: PROGRESS_PATH,
    largest: LARGEST_PROGRESS,
    parse: Progress::parse,
    fresh: |progress| &progress.fresh,
};

/// The cheap questions come first: a signature is checked only of what could be believed.
async fn take<T>(
    web: &Web,
    peer: IpAddr,
    request: Request<Incoming>,
    kind: &Kind<T>,
) -> Result<(Speaker, T), Refusal> {
    let Some(signature) = Signature::of(request.headers()) else {
        REFUSED.count("post-unsigned");
        return refuse(StatusCode::UNAUTHORIZED, UNSIGNED);
    };
    let body = read(request, kind.largest).await?;
    let post = (kind.parse)(&body).or_else(|error| {
        REFUSED.count("post-malformed");
        refuse(StatusCode::BAD_REQUEST, &error.to_string())
    })?;
    if (kind.fresh)(&post).session != web.fleet.session() {
        REFUSED.count("post-of-another-session");
        return Err(Box::new(reply(web, Directive::Again)));
    }
    if !signature.is_of(kind.path, &body) {
        REFUSED.count("post-signature");
        return refuse(StatusCode::UNAUTHORIZED, "the signature does not fit");
    }
    let key = signature.key;
    let from = Speaker {
        peer,
        key,
        follows: Vec::new(),
        tpm: None,
        boot: None,
    };
    Ok((from, post))
}

fn reply(web: &Web, directive: Directive) -> Response<Body> {
    let reply = Reply {
        session: web.fleet.session().to_owned(),
        directive,
    };
    let json = serde_json::to_string(&reply).expect("a reply is plain JSON");
    text(StatusCode::OK, "application/json", json)
}

fn refuse<T>(status: StatusCode, message: &str) -> Result<T, Refusal> {
    Err(Box::new(refusal(status, message)))
}

async fn read(request: Request<Incoming>, largest: usize) -> Result<Bytes, Refusal> {
    let body = Limited::new(request.into_body(), largest).collect();
    match tokio::time::timeout(SLOWEST, body).await {
        Err(_) => refuse(
            StatusCode::REQUEST_TIMEOUT,
            "the body did not arrive within 30 s",
        ),
        Ok(Err(error)) => {
            REFUSED.count("post-too-large");
            refuse(
                StatusCode::PAYLOAD_TOO_LARGE,
                &format!("the body was not accepted: {error}"),
            )
        }
        Ok(Ok(body)) => Ok(body.to_bytes()),
    }
}
