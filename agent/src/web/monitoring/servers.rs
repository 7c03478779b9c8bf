//! `https://BOX:8443/servers/v1/…`: what servers say of themselves. Lines of the ramdisk of a server, and of the system that it has, go into the
//! box's logs, and what `node_exporter` measures there into its metrics.
//!
//! Whose it is is what the signature says, never what is said. A server has its share of the stick, whatever it wants to tell; what is
//! too much for now waits with it.

use std::{
    collections::HashMap,
    fmt::Write as _,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use firstlight_api::{
    logs::{self, LARGEST, Post},
    metrics,
};
use firstlight_netboot::MacAddr;
use http::{Method, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::{Request, Response, body::Incoming};
use serde_json::json;
use tokio::{sync::Semaphore, time::Instant};

use super::{Body, Engines, clean::clean, exposition};
use crate::{
    clock,
    doors::Known,
    fleet::{Fleet, Named},
    monitoring::ask,
    status::counters::REFUSED,
    web::{refusal, signature::Signature, text},
};

/// For a post to come, and for it to be kept.
const TIME: Duration = Duration::from_secs(10);
/// Posts in memory at once.
const AT_ONCE: usize = 48;
/// Servers whose shares are remembered.
const MOST: usize = 4096;
/// Older lines would not be kept.
const OLDEST: Duration = Duration::from_hours(29 * 24);

/// What a server may send of something.
#[derive(Clone, Copy, Debug)]
struct Limit {
    /// Bytes in one go.
    burst: u64,
    /// Bytes a second from then on.
    rate: u64,
}

/// In one go what a server says from its first start until its node is ready; then 177 MB a day, a hundredth of that on the stick.
const OF_LOGS: Limit = Limit {
    burst: 12 << 20,
    rate: 2 << 10,
};
/// Twice as much as the largest text each half minute.
const OF_METRICS: Limit = Limit {
    burst: 2 * metrics::LARGEST as u64,
    rate: metrics::LARGEST as u64 / 15,
};

#[derive(Clone, Debug)]
pub struct Servers {
    fleet: Fleet,
    engines: Engines,
    shares: Arc<Mutex<HashMap<(MacAddr, Kind), Share>>>,
    places: Arc<Semaphore>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Logs,
    Metrics,
}

impl Kind {
    fn of(path: &str) -> Option<Self> {
        match path {
            logs::PATH => Some(Self::Logs),
            metrics::PATH => Some(Self::Metrics),
            _ => None,
        }
    }

    fn limit(self) -> Limit {
        match self {
            Self::Logs => OF_LOGS,
            Self::Metrics => OF_METRICS,
        }
    }
}

/// What a server may still say.
#[derive(Debug)]
struct Share {
    bytes: u64,
    at: Instant,
    limit: Limit,
}

impl Share {
    fn full(limit: Limit, now: Instant) -> Self {
        Self {
            bytes: limit.burst,
            at: now,
            limit,
        }
    }

    fn grow(&mut self, now: Instant) {
        let grown = (now - self.at).as_secs().saturating_mul(self.limit.rate);
        // A part of a second counts the next time.
        if grown > 0 {
            self.bytes = self.bytes.saturating_add(grown).min(self.limit.burst);
            self.at = now;
        }
    }

    /// Else how long to wait.
    fn take(&mut self, bytes: u64, now: Instant) -> Result<(), Duration> {
        self.grow(now);
        match self.bytes.checked_sub(bytes) {
            Some(left) => {
                self.bytes = left;
                Ok(())
            }
            None => Err(Duration::from_secs(
                (bytes - self.bytes).div_ceil(self.limit.rate),
            )),
        }
    }
}

impl Servers {
    pub fn new(fleet: Fleet, engines: Engines) -> Self {
        Self {
            fleet,
            engines,
            shares: Arc::default(),
            places: Arc::new(Semaphore::new(AT_ONCE)),
        }
    }

    pub fn are_meant(path: &str) -> bool {
        Kind::of(path).is_some()
    }

    pub async fn answer(
        &self,
        known: &Known,
        peer: IpAddr,
        request: Request<Incoming>,
    ) -> Response<Body> {
        let Some(kind) = Kind::of(request.uri().path()) else {
            return refusal(StatusCode::NOT_FOUND, "nothing is here");
        };
        if request.method() != Method::POST {
            return refusal(StatusCode::METHOD_NOT_ALLOWED, "POST");
        }
        let Some(signature) = Signature::of(request.headers()) else {
            REFUSED.count("server-unsigned");
            return refusal(StatusCode::UNAUTHORIZED, "this must be signed");
        };
        // Before a byte of the body is read.
        let Some(named) = self.fleet.speaker(signature.key) else {
            REFUSED.count("server-unknown");
            let why = "the box does not believe this: report first";
            return refusal(StatusCode::CONFLICT, why);
        };
        let Ok(_place) = self.places.try_acquire() else {
            return later(StatusCode::SERVICE_UNAVAILABLE, Duration::from_secs(2));
        };
        let path = request.uri().path().to_owned();
        let body = Limited::new(request.into_body(), LARGEST).collect();
        let body = match tokio::time::timeout(TIME, body).await {
            Ok(Ok(body)) => body.to_bytes(),
            Ok(Err(_)) => {
                REFUSED.count("server-too-large");
                let why = "the body is too large, or has ended too early";
                return refusal(StatusCode::PAYLOAD_TOO_LARGE, why);
            }
            // It is not the server's fault, and has to come again.
            Err(_) => return later(StatusCode::REQUEST_TIMEOUT, TIME),
        };
        if !signature.is_of(&path, &body) {
            REFUSED.count("server-signature");
            return refusal(StatusCode::UNAUTHORIZED, "the signature does not fit");
        }
        let (whose, bytes) = ((named.mac, kind), body.len() as u64);
        if let Err(wait) = self.take(whose, bytes) {
            return later(StatusCode::TOO_MANY_REQUESTS, wait);
        }
        known.believe(peer);
        let (engine, path, kept) = match kind {
            Kind::Logs => match Post::parse(&body) {
                Ok(post) => (
                    self.engines.logs,
                    "logs/insert/jsonline?_stream_fields=server,system",
                    entries(&named, &post, clock::wall_nanoseconds()),
                ),
                Err(error) => {
                    REFUSED.count("server-malformed");
                    return refusal(StatusCode::BAD_REQUEST, error.to_string());
                }
            },
            Kind::Metrics => (
                self.engines.metrics,
                "metrics/api/v1/import/prometheus",
                exposition::of_server(&named.name, &String::from_utf8_lossy(&body)),
            ),
        };
        match keep(engine, path, kept).await {
            Ok(()) => text(StatusCode::OK, "application/json", "{}"),
            Err(error) => {
                // It comes again.
                self.give_back(whose, bytes);
                tracing::debug!(
                    error = format!("{error:#}"),
                    "what a server says is not kept"
                );
                later(StatusCode::SERVICE_UNAVAILABLE, TIME)
            }
        }
    }

    fn take(&self, of: (MacAddr, Kind), bytes: u64) -> Result<(), Duration> {
        let now = Instant::now();
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        if shares.len() >= MOST && !shares.contains_key(&of) {
            for share in shares.values_mut() {
                share.grow(now);
            }
            shares.retain(|_, share| share.bytes < share.limit.burst);
        }
        let share = shares.entry(of);
        let share = share.or_insert_with(|| Share::full(of.1.limit(), now));
        share.take(bytes, now)
    }

    fn give_back(&self, of: (MacAddr, Kind), bytes: u64) {
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(share) = shares.get_mut(&of) {
            share.bytes = share.bytes.saturating_add(bytes).min(share.limit.burst);
        }
    }
}

async fn keep(engine: SocketAddr, path: &str, kept: String) -> anyhow::Result<()> {
    let url = format!("http://{engine}/monitoring/{path}");
    let request = Request::post(url).body(Full::from(kept))?;
    let kept = tokio::time::timeout(TIME, ask(request, LARGEST)).await?;
    kept.map(drop)
}

fn later(status: StatusCode, wait: Duration) -> Response<Body> {
    let mut response = refusal(status, "not now");
    let seconds = wait.as_secs().max(1).into();
    response.headers_mut().insert(header::RETRY_AFTER, seconds);
    response
}

/// A line of JSON each, with the journal's names for what the journal knows. `now` in nanoseconds since 1970.
fn entries(named: &Named, post: &Post, now: i64) -> String {
    let oldest = i64::try_from(OLDEST.as_millis()).unwrap_or(i64::MAX);
    let mut entries = String::new();
    let lines = post.lines.iter().filter(|line| !line.message.is_empty());
    for (order, line) in (0..).zip(lines) {
        let ago = i64::try_from(line.ago).map_or(oldest, |ago| ago.min(oldest));
        // Of one millisecond, in their order.
        let time = now - ago * 1_000_000 + order;
        let mut entry = json!({
            "_time": time.to_string(),
            "_msg": clean(&line.message),
            "_HOSTNAME": named.name,
            "_SYSTEMD_UNIT": line.unit,
            "server": named.name,
            "mac": named.mac.to_string(),
            "system": post.system.as_str(),
            "boot": post.boot,
        });
        if let Some(priority) = line.priority {
            entry["PRIORITY"] = priority.to_string().into();
        }
        let _ = writeln!(entries, "{entry}");
    }
    entries
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use firstlight_api::logs::{Line, System};
    use serde_json::Value;

    use super::*;

    #[test]
    fn a_server_that_tells_too_much_waits_and_others_do_not() {
        let now = Instant::now();
        let Limit { burst, rate } = OF_LOGS;
        let mut share = Share::full(OF_LOGS, now);
        share.take(burst, now).unwrap();
        assert_eq!(share.take(rate * 3, now), Err(Duration::from_secs(3)));
        share.take(rate * 3, now + Duration::from_secs(3)).unwrap();
        share.grow(now + Duration::from_hours(240));
        assert_eq!(share.bytes, burst, "no more than at first");
    }

    #[test]
    fn what_was_not_kept_costs_a_server_nothing() {
        let (fleet, _controller) = crate::fleet::channel();
        let servers = Servers::new(fleet, Engines::default());
        let whose = ("52:54:00:00:00:01".parse().unwrap(), Kind::Logs);
        servers.take(whose, OF_LOGS.burst).unwrap();
        servers.take(whose, OF_LOGS.rate).unwrap_err();
        servers.give_back(whose, OF_LOGS.burst);
        servers.take(whose, OF_LOGS.burst).unwrap();
        servers.take((whose.0, Kind::Metrics), 1).unwrap();
    }

    #[test]
    fn lines_are_of_whom_signed_at_the_time_of_the_box_in_their_order_and_clean() {
        let line = |ago, message: &str| Line {
            ago,
            unit: "cloud-final.service".into(),
            priority: None,
            message: message.into(),
        };
        let post = Post {
            system: System::Installed,
            boot: "b1".into(),
            lines: vec![
                line(
                    1500,
                    "[bootstrap-token] Using token: abcdef.0123456789abcdef",
                ),
                line(0, ""),
                line(1500, r#"{"server":"n2"}"#),
                line(u64::MAX, "old"),
            ],
        };
        let named = Named {
            mac: "52:54:00:00:00:01".parse().unwrap(),
            name: "n1".into(),
        };
        let now = 1_796_000_000_000_000_000;
        let told = entries(&named, &post, now);
        let told: Vec<Value> = told
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(told.len(), 3);
        assert_eq!(
            told[0],
            json!({
                "_time": "1795999998500000000", "_msg": "[bootstrap-token] Using token: (removed)", "_HOSTNAME": "n1",
                "_SYSTEMD_UNIT": "cloud-final.service", "server": "n1", "mac": "52:54:00:00:00:01", "system": "installed", "boot": "b1",
            })
        );
        assert_eq!(
            (&told[1]["_time"], &told[1]["server"]),
            (&json!("1795999998500000001"), &json!("n1"))
        );
        assert_eq!(
            told[2]["_time"],
            json!((now - 29 * 86_400_000_000_000 + 2).to_string())
        );
    }
}
