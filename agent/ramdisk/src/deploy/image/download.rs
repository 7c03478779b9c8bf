//! The download: resumes where it broke, for as long as a box needs to come back after a power cut.

use std::io::Read;
use std::time::{Duration, Instant};

use firstlight_api::report::RELAY_HEADER;
use firstlight_client::chain;
use firstlight_client::http::{Client, Reply, Request};
use hyper::body::Bytes;

use super::{Context, ImageError, ImageRequest, Progress};

const CHUNK: usize = 256 << 10;
/// Before another server's speed is judged.
const RELAY_TRIAL: Duration = Duration::from_secs(10);
/// Bytes a second.
const RELAY_LEAST: u64 = 1 << 20;

/// How long to go on without a byte, and how often to try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    pub first_pause: Duration,
    pub longest_pause: Duration,
    pub in_all: Duration,
    /// For all that another server passes on; the rest comes from the box.
    pub relayed: Duration,
}

impl Default for Patience {
    /// A box that lost power is back in 3 to 4 minutes; half an hour covers a person who must press a button.
    fn default() -> Self {
        Self {
            first_pause: Duration::from_millis(500),
            longest_pause: Duration::from_secs(5),
            in_all: Duration::from_mins(30),
            relayed: Duration::from_mins(10),
        }
    }
}

/// Where bytes come from.
pub trait Fetch: Sync {
    /// Asks for the file from byte `from` on; with `validator` only if it is still the same file.
    fn open(&self, request: &Ask) -> Result<Opened, String>;
    /// What the asked server itself says of the file, whoever passes it on.
    fn describe(&self, request: &Ask) -> Result<Described, String>;
}

/// A file at its server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Described {
    pub total: Option<u64>,
    pub validator: Option<String>,
}

#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    pub url: &'a str,
    pub authorization: Option<&'a str>,
    pub from: u64,
    pub validator: Option<&'a str>,
    /// The box may name another server that has it.
    pub relay: bool,
}

/// The server's answer.
pub struct Opened {
    pub status: u16,
    /// First byte of the body within the file.
    pub from: u64,
    /// Length of the whole file.
    pub total: Option<u64>,
    /// `ETag` or `Last-Modified`.
    pub validator: Option<String>,
    /// Who answered in place of the one that was asked.
    pub relay: Option<String>,
    pub body: Box<dyn Read + Send>,
}

/// Over HTTP, with ranges (RFC 9110 section 14).
#[derive(Debug)]
pub struct HttpFetch {
    pub client: Client,
    pub offer: Option<Offer>,
}

/// What the box is told: that this machine passes images on, and at which port.
#[derive(Clone, Debug)]
pub struct Offer {
    /// `http://BOX`
    pub box_url: String,
    pub port: u16,
}

impl Fetch for HttpFetch {
    fn open(&self, ask: &Ask) -> Result<Opened, String> {
        let mut request = Request::get(ask.url);
        if let Some(value) = ask.authorization {
            request = request.header("authorization", value);
        }
        if ask.from > 0 {
            request = request.header("range", format!("bytes={}-", ask.from));
            if let Some(validator) = ask.validator {
                request = request.header("if-range", validator);
            }
        }
        if let Some(offer) = self.offer.as_ref().filter(|_| ask.relay)
            && ask.url.starts_with(&offer.box_url)
        {
            request = request.header(RELAY_HEADER, offer.port.to_string());
        }
        let reply = self.client.send(&request).map_err(|e| chain(&e))?;
        let range = reply.header("content-range").and_then(parse_content_range);
        let (from, total) = match (reply.status(), range) {
            (206, Some((from, total))) => (from, total),
            _ => (0, reply.body.length()),
        };
        let validator = validator(&reply);
        Ok(Opened {
            status: reply.status(),
            from,
            total,
            validator,
            relay: reply.moved,
            body: Box::new(reply.body),
        })
    }

    fn describe(&self, ask: &Ask) -> Result<Described, String> {
        let mut request = Request::get(ask.url);
        request.method = "HEAD";
        if let Some(value) = ask.authorization {
            request = request.header("authorization", value);
        }
        let reply = self.client.send(&request).map_err(|e| chain(&e))?;
        if reply.status() != 200 {
            return Err(format!(
                "{} answered with status {}",
                ask.url,
                reply.status()
            ));
        }
        Ok(Described {
            total: reply
                .header("content-length")
                .and_then(|length| length.trim().parse().ok()),
            validator: validator(&reply),
        })
    }
}

/// A weak one does not promise the same bytes.
fn validator(reply: &Reply) -> Option<String> {
    reply
        .header("etag")
        .filter(|tag| !tag.starts_with("W/"))
        .or_else(|| reply.header("last-modified"))
        .map(str::to_owned)
}

/// `bytes 100-199/200` as (100, 200); `*` is an unknown length.
fn parse_content_range(value: &str) -> Option<(u64, Option<u64>)> {
    let (range, total) = value.trim().strip_prefix("bytes ")?.split_once('/')?;
    let (from, _) = range.split_once('-')?;
    Some((from.trim().parse().ok()?, total.trim().parse().ok()))
}

/// Why the download ended early.
pub enum Stop {
    /// Another stage has ended.
    Closed,
    /// The server has another file now.
    Changed,
    Failed(ImageError),
}

/// What is known of the file after the first answer.
#[derive(Default)]
struct File {
    received: u64,
    total: Option<u64>,
    validator: Option<String>,
    /// Index of the URL in use.
    url: usize,
}

/// Whether other servers may pass bytes on, and whether one has.
#[derive(Debug)]
pub struct Relays {
    pub allowed: bool,
    pub used: bool,
}

/// Downloads everything into `sink`, which is false when nobody wants more.
pub fn run(
    context: &Context,
    request: &ImageRequest,
    relays: &mut Relays,
    sink: &mut dyn FnMut(Bytes) -> bool,
) -> Result<(), Stop> {
    let mut file = File::default();
    let mut pause = context.patience.first_pause;
    let mut last_byte = Instant::now();
    loop {
        let before = file.received;
        let Some(reason) = attempt(context, request, &mut file, relays, sink)? else {
            return Ok(());
        };
        if file.received > before {
            pause = context.patience.first_pause;
            last_byte = Instant::now();
        }
        let url = &request.urls[file.url];
        if last_byte.elapsed() > context.patience.in_all {
            return Err(Stop::Failed(ImageError::GaveUp {
                url: url.clone(),
                waited: last_byte.elapsed(),
                reason,
            }));
        }
        (context.progress)(Progress::Retry { reason });
        if context.cancel.wait(pause) {
            return Err(Stop::Failed(ImageError::Cancelled));
        }
        pause = (pause * 2).min(context.patience.longest_pause);
        if file.received == 0 {
            file.url = (file.url + 1) % request.urls.len();
        }
    }
}

/// One connection. `Some`: it broke for this reason and may be tried again.
fn attempt(
    context: &Context,
    request: &ImageRequest,
    file: &mut File,
    relays: &mut Relays,
    sink: &mut dyn FnMut(Bytes) -> bool,
) -> Result<Option<String>, Stop> {
    let url = &request.urls[file.url];
    let validator = file.validator.clone();
    let ask = Ask {
        url,
        authorization: request.authorization.as_deref(),
        from: file.received,
        validator: validator.as_deref(),
        relay: relays.allowed,
    };
    let mut opened = match context.fetch.open(&ask) {
        Ok(opened) => opened,
        Err(reason) => {
            // It may be the other server that did not answer; the box has every byte.
            relays.allowed = false;
            return Ok(Some(reason));
        }
    };
    let relay = opened.relay.take();
    // Who was left in the middle once is not asked again.
    relays.allowed &= relay.is_none();
    match opened.status {
        200 | 206 => {}
        status if let Some(relay) = &relay => {
            return Ok(Some(format!(
                "the server {relay} answered with status {status}"
            )));
        }
        416 => return Err(Stop::Changed),
        // The first answer tells whether the URL is right; later, a server that starts up may answer anything.
        400..=499 if file.received == 0 && request.urls.len() == 1 && opened.status != 429 => {
            return Err(Stop::Failed(ImageError::Refused {
                url: url.clone(),
                status: opened.status,
            }));
        }
        status => return Ok(Some(format!("{url} answered with status {status}"))),
    }
    if let Some(relay) = &relay {
        tracing::info!(%relay, "another server passes the image on");
        relays.used = true;
        if let Some(reason) = is_another(context, &ask, &opened, relay) {
            return Ok(Some(reason));
        }
    }
    if file.received == 0 {
        (file.total, file.validator) = (opened.total, opened.validator.take());
        if let Some(share) = context.share {
            share.begin(url, file.validator.as_deref(), file.total);
        }
    } else if opened.from != file.received || opened.total != file.total || changed(file, &opened) {
        return Err(Stop::Changed);
    }
    receive(context, file, relay.is_some(), &mut opened.body, sink)
}

/// Why not a byte is taken from another server: it must have what the box says that it has.
fn is_another(context: &Context, ask: &Ask, opened: &Opened, relay: &str) -> Option<String> {
    let offered = Described {
        total: opened.total,
        validator: opened.validator.clone(),
    };
    match context.fetch.describe(ask) {
        Ok(known) if known == offered && known.total.is_some() && known.validator.is_some() => None,
        Ok(_) => Some(format!("the server {relay} passes on another file")),
        Err(reason) => Some(reason),
    }
}

/// Slower than a tenth of the slowest link that servers have: it may have a dying disk.
fn is_slow(elapsed: Duration, bytes: u64) -> bool {
    elapsed > RELAY_TRIAL && bytes < RELAY_LEAST * elapsed.as_secs()
}

fn changed(file: &File, opened: &Opened) -> bool {
    matches!((&file.validator, &opened.validator), (Some(was), Some(is)) if was != is)
}

fn receive(
    context: &Context,
    file: &mut File,
    relayed: bool,
    body: &mut dyn Read,
    sink: &mut dyn FnMut(Bytes) -> bool,
) -> Result<Option<String>, Stop> {
    let mut buffer = vec![0; CHUNK];
    let (started, first) = (Instant::now(), file.received);
    loop {
        if context.cancel.is_raised() {
            return Err(Stop::Failed(ImageError::Cancelled));
        }
        match body.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => {
                file.received += read as u64;
                let chunk = Bytes::copy_from_slice(&buffer[..read]);
                if let Some(share) = context.share {
                    share.add(&chunk);
                }
                if !sink(chunk) {
                    return Err(Stop::Closed);
                }
                if relayed && started.elapsed() > context.patience.relayed {
                    return Ok(Some(
                        "the server that passes the image on takes too long".to_owned(),
                    ));
                }
                if relayed && is_slow(started.elapsed(), file.received - first) {
                    return Ok(Some(
                        "the server that passes the image on is slow".to_owned(),
                    ));
                }
                (context.progress)(Progress::Bytes {
                    done: file.received,
                    total: file.total.unwrap_or(0),
                });
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => {
                return Ok(Some(format!(
                    "the download broke at byte {}: {error}",
                    file.received
                )));
            }
        }
    }
    match file.total {
        Some(total) if file.received < total => Ok(Some(format!(
            "the download ended at byte {} of {total}",
            file.received
        ))),
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_content_range_says_where_it_begins_and_how_much_there_is() {
        for (text, read) in [
            ("bytes 100-199/200", Some((100, Some(200)))),
            (" bytes 100-199/*", Some((100, None))),
            ("bytes */200", None),
            ("bytes -1-2/3", None),
            ("pages 1-2/3", None),
            ("bytes 99999999999999999999-1/3", None),
        ] {
            assert_eq!(parse_content_range(text), read, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_content_range_is_read_or_refused(text in "(bytes )?.{0,30}", from: u64, total: u64) {
            parse_content_range(&text);
            let said = parse_content_range(&format!("bytes {from}-{total}/{total}"));
            prop_assert_eq!(said, Some((from, Some(total))));
        }
    }
}
