//! What files may take of the link in all (`provisioning.bandwidth` of site.yaml), with the same share for every server that wants more than it
//! gets, however many connections it has.
//!
//! Who has a piece to send waits for its turn. Turns go by start-time fair queueing (Goyal, Vin and Cheng, 1996): a turn is tagged with the bytes
//! that its server has had, the lowest tag is next, and a server that comes late begins at the tag that is served then. Must not: count what is
//! said on loopback, or what is small: a page has to come while images go.

use std::{
    collections::{BTreeMap, HashMap},
    future::Future,
    io,
    net::IpAddr,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use firstlight_api::site::SiteConfig;
use http::{Response, header};
use http_body_util::BodyExt;
use hyper::body::{Frame, SizeHint};
use tokio::{
    sync::{oneshot, watch},
    time::Instant,
};

use super::Body;

/// Answers of up to so many bytes wait for nobody.
const SMALL: u64 = 64 * 1024;
/// Of the link, for one turn.
const TURN: Duration = Duration::from_millis(20);
const LEAST_PIECE: u64 = 16 * 1024;
const MOST_PIECE: u64 = 1024 * 1024;

/// The site's limit, if it has one.
#[derive(Clone, Debug)]
pub struct Bandwidth {
    site: watch::Receiver<Option<Arc<SiteConfig>>>,
    link: Arc<Mutex<Link>>,
}

/// Of one server.
#[derive(Clone, Debug)]
pub struct Share {
    peer: IpAddr,
    /// Bytes a second, of all.
    rate: u64,
    link: Arc<Mutex<Link>>,
}

#[derive(Debug, Default)]
struct Link {
    /// Somebody's turn is not over.
    busy_until: Option<Instant>,
    /// Tag of the turn that goes on.
    now: u64,
    /// Where the next turn of each server begins, as long as anybody waits.
    next: HashMap<IpAddr, u64>,
    /// By tag and order of arrival.
    waiting: BTreeMap<(u64, u64), Waiting>,
    arrived: u64,
}

#[derive(Debug)]
struct Waiting {
    turn: oneshot::Sender<()>,
    length: Duration,
}

impl Bandwidth {
    pub fn new(site: watch::Receiver<Option<Arc<SiteConfig>>>) -> Self {
        Self {
            site,
            link: Arc::default(),
        }
    }

    /// `None`: as fast as it goes.
    pub fn share(&self, peer: IpAddr) -> Option<Share> {
        let site = self.site.borrow();
        let rate = site.as_ref()?.provisioning.bandwidth?.bytes_per_second();
        (!peer.is_loopback()).then(|| Share {
            peer,
            rate,
            link: Arc::clone(&self.link),
        })
    }

    /// The same answer, whose content comes in turns.
    pub fn limit(&self, peer: IpAddr, answer: Response<Body>) -> Response<Body> {
        let length = answer.headers().get(header::CONTENT_LENGTH);
        let length = length.and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
        // Events go on for ever, a few bytes at a time, and have no length.
        let is_large = length.is_some_and(|length| length > SMALL);
        match self.share(peer).filter(|_| is_large) {
            None => answer,
            Some(share) => answer.map(|body| {
                let turn = None;
                BodyExt::boxed_unsync(Limited { body, share, turn })
            }),
        }
    }
}

impl Share {
    /// How many bytes to send in one turn.
    pub fn piece(&self) -> u64 {
        let bytes = u128::from(self.rate) * TURN.as_millis() / 1000;
        u64::try_from(bytes).map_or(MOST_PIECE, |it| it.clamp(LEAST_PIECE, MOST_PIECE))
    }

    /// Returns when it may send so many.
    pub async fn turn(&self, bytes: u64) {
        #[expect(clippy::cast_precision_loss, reason = "a time")]
        let length = Duration::from_secs_f64(bytes as f64 / self.rate as f64);
        let waits = {
            let mut link = locked(&self.link);
            let tag = link.next.get(&self.peer).copied().unwrap_or_default();
            let tag = tag.max(link.now);
            link.next.insert(self.peer, tag + bytes);
            link.arrived += 1;
            let at = (tag, link.arrived);
            let (turn, waits) = oneshot::channel();
            link.waiting.insert(at, Waiting { turn, length });
            waits
        };
        give(&self.link);
        // Nobody but the link drops the other end, and it does not end.
        let _ = waits.await;
    }
}

fn locked(link: &Mutex<Link>) -> MutexGuard<'_, Link> {
    link.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The next turn to whoever is first, if nobody has one; a timer gives the one after it.
fn give(shared: &Arc<Mutex<Link>>) {
    let mut link = locked(shared);
    let now = Instant::now();
    if link.busy_until.is_some_and(|end| end > now) {
        return;
    }
    while let Some(((tag, _), first)) = link.waiting.pop_first() {
        // A client may be gone.
        if first.turn.send(()).is_err() {
            continue;
        }
        link.now = tag;
        // A timer that was late takes nothing off the rate.
        let began = link.busy_until.map_or(now, |end| end.max(now - TURN));
        let end = began + first.length;
        link.busy_until = Some(end);
        let shared = Arc::clone(shared);
        tokio::spawn(async move {
            tokio::time::sleep_until(end).await;
            give(&shared);
        });
        return;
    }
    *link = Link::default();
}

/// A body whose frames wait for their turn.
struct Limited {
    body: Body,
    share: Share,
    turn: Option<Turn>,
}

struct Turn {
    waits: Pin<Box<dyn Future<Output = ()> + Send>>,
    frame: Option<Frame<Bytes>>,
}

impl hyper::body::Body for Limited {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if self.turn.is_none() {
            let frame = match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(Ok(frame)) => frame,
                other => return Poll::Ready(other),
            };
            let bytes = frame.data_ref().map_or(0, Bytes::len) as u64;
            let share = self.share.clone();
            self.turn = Some(Turn {
                waits: Box::pin(async move { share.turn(bytes).await }),
                frame: Some(frame),
            });
        }
        if let Some(turn) = &mut self.turn {
            ready!(turn.waits.as_mut().poll(context));
        }
        let frame = self.turn.take().and_then(|turn| turn.frame);
        Poll::Ready(frame.map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.turn.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests;
