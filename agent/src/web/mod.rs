//! The HTTP server: page, API, network boot, images, the ramdisk's reports. The paths are listed in docs/reference.md.
//!
//! `route` maps a request to an answer; `artifacts` is the store; `update` the box's own systems; `receipt` what it can prove of its site; `monitoring` its metrics and logs; `page` renders (pure), `changes` tells what changed in it; `files` serves what lies on the stick, and `direct` has the kernel send it; `media` virtual CDs made of that; `relays` sends servers
//! to each other for images; `server` owns
//! sockets and limits; `outside` is what is left of all that on the uplink; `pushes` is the registry's door for who pushes; `bootstrap` and `conversion` have TLS, on ports of their own; `people` is login and what it takes to ask for something, `secure` the same over TLS. Must not: decide about hosts (that is the [`Fleet`]'s) or change anything but through it.
//! To add a path: an arm in `route::answer`, and what it takes in `people/gate.rs`.

mod account;
mod artifacts;
mod bandwidth;
mod bootstrap;
mod certificate;
mod changes;
mod conversion;
mod direct;
mod events;
mod files;
mod latest;
mod media;
mod monitoring;
mod openapi;
mod outside;
pub mod page;
mod people;
mod proof;
mod pushes;
mod ramdisk;
mod receipt;
mod relays;
mod route;
mod secure;
mod server;
mod signature;
mod starts;
#[cfg(test)]
mod tests;
mod tls;
mod update;

use std::{
    convert::Infallible,
    io,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use firstlight_api::{site::SiteConfig, status::SiteStatus};
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use hyper::Response;
use tokio::sync::watch;

pub use bootstrap::serve as serve_bootstrap;
pub use conversion::serve as serve_conversion;
pub use monitoring::Engines;
pub use outside::Outside;
pub use people::gate::Way;
pub use pushes::serve as serve_pushes;
pub use secure::serve as serve_secure;
pub use server::{serve_address, serve_segment};

use self::{
    bandwidth::Bandwidth, changes::Pages, events::Streams, latest::Latest, media::Media,
    proof::Examiner, relays::Relays, starts::Starts,
};
use crate::{
    boot_files::BootFiles, doors::Known, edge::Reports, fleet::Fleet,
    page_certificate::PageCertificate, paths::Paths, people::People, pki::Pki, status::metrics,
    store::Store, update::Updater,
};

type Body = UnsyncBoxBody<Bytes, io::Error>;

/// What the rest of the agent publishes, each once it is there.
#[derive(Clone)]
pub struct Facts {
    /// With the state partition.
    pub store: watch::Receiver<Option<Store>>,
    /// With the box's Kubernetes.
    pub kubernetes: watch::Receiver<Option<kube::Client>>,
    pub site: watch::Receiver<Option<Arc<SiteConfig>>>,
    pub pki: watch::Receiver<Option<Arc<Pki>>>,
}

/// A box where nothing is there yet.
#[cfg(test)]
impl Default for Facts {
    fn default() -> Self {
        Self {
            store: watch::channel(None).1,
            kubernetes: watch::channel(None).1,
            site: watch::channel(None).1,
            pki: watch::channel(None).1,
        }
    }
}

/// What the answers are made of.
#[derive(Clone)]
pub struct Web {
    pub status: watch::Receiver<SiteStatus>,
    pub boot_files: BootFiles,
    pub fleet: Fleet,
    pub facts: Facts,
    pub paths: Paths,
    pub known: Known,
    pub people: People,
    pub update: Updater,
    pub certificate: PageCertificate,
    /// Of metrics and logs.
    engines: Engines,
    /// How what is asked came.
    pub way: Way,
    bandwidth: Bandwidth,
    streams: Streams,
    relays: Arc<Mutex<Relays>>,
    media: Media,
    examiner: Examiner,
    starts: Starts,
    edge: Reports,
    told: Arc<Told>,
}

/// The status value, as it is told.
struct Told {
    pages: Pages,
    events: Latest,
    metrics: Latest,
}

impl Web {
    pub fn new(
        status: watch::Receiver<SiteStatus>,
        boot_files: BootFiles,
        known: Known,
        people: People,
        facts: Facts,
    ) -> Self {
        let site = || facts.site.clone();
        Self {
            status,
            fleet: boot_files.fleet.clone(),
            paths: boot_files.paths.clone(),
            certificate: PageCertificate::new(&boot_files.paths),
            update: Updater::new(boot_files.paths.clone(), site()),
            boot_files,
            streams: Streams::new(&known),
            known,
            people,
            engines: Engines::default(),
            way: Way::Clear,
            bandwidth: Bandwidth::new(site()),
            relays: Arc::default(),
            media: Media::default(),
            examiner: Examiner::new(),
            starts: Starts::default(),
            edge: Reports::default(),
            told: Arc::new(Told {
                pages: Pages::default(),
                events: Latest::new(events::render),
                metrics: Latest::new(metrics::render),
            }),
            facts,
        }
    }

    /// The same, for who comes over TLS.
    #[must_use]
    pub fn over_tls(self) -> Self {
        Self {
            way: Way::Tls,
            ..self
        }
    }
}

fn full(content: impl Into<Bytes>) -> Body {
    Full::new(content.into())
        .map_err(|never: Infallible| match never {})
        .boxed_unsync()
}

fn text(
    status: http::StatusCode,
    content_type: &'static str,
    content: impl Into<Bytes>,
) -> Response<Body> {
    let content: Bytes = content.into();
    let mut response = Response::new(full(content.clone()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(
        http::header::CONTENT_TYPE,
        http::HeaderValue::from_static(content_type),
    );
    // Set here, because the body of a HEAD answer is dropped and its length must still be told.
    headers.insert(http::header::CONTENT_LENGTH, content.len().into());
    headers.insert(
        http::header::CACHE_CONTROL,
        http::HeaderValue::from_static("no-store"),
    );
    headers.insert(
        http::header::X_CONTENT_TYPE_OPTIONS,
        http::HeaderValue::from_static("nosniff"),
    );
    response
}

/// A page.
fn html(content: Bytes) -> Response<Body> {
    let mut response = text(http::StatusCode::OK, "text/html; charset=utf-8", content);
    // Nothing but what the box serves may run or be loaded, and nothing that is written into a page runs.
    let policy = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; img-src data:; frame-ancestors 'none'";
    response.headers_mut().insert(
        http::header::CONTENT_SECURITY_POLICY,
        http::HeaderValue::from_static(policy),
    );
    response
}

/// A refusal: what is wrong and what would be right, for people with curl.
fn refusal(status: http::StatusCode, message: impl std::fmt::Display) -> Response<Body> {
    text(status, "text/plain; charset=utf-8", format!("{message}\n"))
}
