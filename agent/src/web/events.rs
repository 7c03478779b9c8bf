//! Server-sent events (WHATWG HTML, section 9.2), one an update: `/api/v1/events` has the status value in each, `changes` what is new on a page.

use std::{
    convert::Infallible,
    io,
    net::IpAddr,
    time::{Duration, Instant},
};

use bytes::Bytes;
use firstlight_admission::Shares;
use firstlight_api::status::SiteStatus;
use futures_util::stream;
use http::{HeaderValue, StatusCode, header};
use http_body_util::{BodyExt, StreamBody};
use hyper::{Response, body::Frame};
use tokio::sync::watch;

use super::{Body, Web, refusal};
use crate::{
    doors::{Door, Known, Place, Work},
    people::{LONGEST_SESSION, Who},
};

/// Updates come in bursts; a person sees no more than this.
const AT_MOST_EVERY: Duration = Duration::from_millis(500);
/// Something is sent in every such span, so that both ends notice when the other is gone.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

const BEFORE: &str = "data: ";
const AFTER: &str = "\n\n";
/// Says that the box is still there.
const NOTHING: Bytes = Bytes::from_static(b":\n\n");

/// Streams stay open, so they have places of their own: on the segment, and for who comes by the box itself or by SSH, whom
/// the segment cannot shut out.
#[derive(Clone, Debug)]
pub struct Streams {
    segment: Door,
    loopback: Door,
}

impl Streams {
    pub fn new(known: &Known) -> Self {
        let door = |all, of_peer| {
            let shares = Shares {
                all,
                kept: 0,
                of_peer,
            };
            Door::new(shares, known.clone())
        };
        Self {
            segment: door(64, 8),
            loopback: door(32, 32),
        }
    }

    fn enter(&self, peer: IpAddr) -> Option<Place> {
        let door = if peer.is_loopback() {
            &self.loopback
        } else {
            &self.segment
        };
        door.enter(peer)
    }
}

/// What a stream tells of the status value.
pub trait Tells: Send + 'static {
    /// An event, or `None`: nothing that its reader does not know.
    fn tell(&mut self, web: &Web, status: &mut watch::Receiver<SiteStatus>) -> Option<Bytes>;
}

/// The whole value.
pub struct All;

impl Tells for All {
    fn tell(&mut self, web: &Web, status: &mut watch::Receiver<SiteStatus>) -> Option<Bytes> {
        Some(web.told.events.follow(status))
    }
}

/// What a stream holds as long as it is open.
struct Open<T> {
    tells: T,
    web: Web,
    status: watch::Receiver<SiteStatus>,
    /// Who works does not give way to whoever comes.
    _work: Work,
    place: Place,
    has_begun: bool,
    who: Who,
    until: Instant,
}

pub fn answer(web: &Web, who: &Who, peer: IpAddr, tells: impl Tells) -> Response<Body> {
    let Some(place) = web.streams.enter(peer) else {
        return refusal(
            StatusCode::SERVICE_UNAVAILABLE,
            "too many open pages; close some, or read /api/v1/status",
        );
    };
    let open = Open {
        tells,
        web: web.clone(),
        status: web.status.clone(),
        _work: place.work(),
        place,
        has_begun: false,
        who: who.clone(),
        until: Instant::now() + LONGEST_SESSION,
    };
    let events = stream::unfold(open, |mut open| async move {
        let text = open.next().await?;
        Some((frame(text), open))
    });
    let mut response = Response::new(
        StreamBody::new(events)
            .map_err(|never: Infallible| -> io::Error { match never {} })
            .boxed_unsync(),
    );
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/event-stream"),
    );
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// An event, in which the value is JSON.
pub fn render(status: &SiteStatus) -> String {
    let json = serde_json::to_string(status).expect("a status is plain JSON");
    event(&json)
}

/// `json` has no line breaks.
pub fn event(json: &str) -> String {
    [BEFORE, json, AFTER].concat()
}

/// Of an event.
pub fn json(event: &Bytes) -> Bytes {
    event.slice(BEFORE.len()..event.len() - AFTER.len())
}

impl<T: Tells> Open<T> {
    /// `None`: its place is somebody else's, who reads has to come again, or the agent ends.
    async fn next(&mut self) -> Option<Bytes> {
        // Whoever was let in once may not be any more.
        if Instant::now() > self.until || !self.web.people.may_read(&self.who) {
            return None;
        }
        if std::mem::replace(&mut self.has_begun, true) {
            let change = async {
                tokio::time::sleep(AT_MOST_EVERY).await;
                tokio::time::timeout(KEEP_ALIVE, self.status.changed()).await
            };
            let change = tokio::select! {
                change = change => change,
                () = self.place.lost() => return None,
            };
            match change {
                Ok(changed) => changed.ok()?,
                Err(_) => return Some(NOTHING),
            }
        }
        let told = self.tells.tell(&self.web, &mut self.status);
        Some(told.unwrap_or(NOTHING))
    }
}

#[allow(clippy::unnecessary_wraps, reason = "the stream's items are results")]
fn frame(text: Bytes) -> Result<Frame<Bytes>, Infallible> {
    Ok(Frame::data(text))
}
