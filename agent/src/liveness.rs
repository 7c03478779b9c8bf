//! Whether the loops that everything hangs on still turn. Each of them holds a [`Pulse`] while it runs and beats it each time
//! round; systemd's watchdog is fed only while all of them do, and the agent's own page answers.
//!
//! To add a loop: `liveness::pulse("name")` where it begins, `beat()` in it at least every [`LONGEST`] / 3.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_util::sync::CancellationToken;

use crate::{clock, notify};

/// A loop that was not seen for this long hangs. A worn stick can take half of it for one `fsync`.
pub const LONGEST: Duration = Duration::from_mins(1);
/// For the answer of our own page, on a busy machine.
const ANSWER: Duration = Duration::from_secs(20);

type Beats = BTreeMap<&'static str, Arc<AtomicU64>>;

/// The loops that run, with the uptime of their last beat in milliseconds.
static BEATS: Mutex<Beats> = Mutex::new(BTreeMap::new());

/// Held by a loop while it runs: one that has ended is not missed.
#[derive(Debug)]
pub struct Pulse {
    name: &'static str,
    last: Arc<AtomicU64>,
}

pub fn pulse(name: &'static str) -> Pulse {
    let pulse = Pulse {
        name,
        last: Arc::default(),
    };
    pulse.beat();
    let mut beats = BEATS.lock().unwrap_or_else(PoisonError::into_inner);
    beats.insert(name, pulse.last.clone());
    pulse
}

impl Pulse {
    pub fn beat(&self) {
        self.last.store(millis(clock::uptime()), Ordering::Relaxed);
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        let mut beats = BEATS.lock().unwrap_or_else(PoisonError::into_inner);
        // Another round of the same loop may have begun.
        if beats
            .get(self.name)
            .is_some_and(|last| Arc::ptr_eq(last, &self.last))
        {
            beats.remove(self.name);
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// The loops that hang, with how long they have not been seen.
fn hanging<'a>(
    beats: impl IntoIterator<Item = (&'a str, Duration)>,
    now: Duration,
) -> Vec<(&'a str, Duration)> {
    beats
        .into_iter()
        .map(|(name, last)| (name, now.saturating_sub(last)))
        .filter(|(_, silent)| *silent > LONGEST)
        .collect()
}

/// Feeds systemd's watchdog, if there is one, while everything is alive. `page` is the agent's own HTTP server.
pub async fn run(page: SocketAddr, stop: CancellationToken) -> Result<()> {
    let Some(time) = watchdog_time(std::env::var("WATCHDOG_USEC").ok().as_deref()) else {
        stop.cancelled().await;
        return Ok(());
    };
    let mut tick = tokio::time::interval(time / 4);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = tick.tick() => {}
            () = stop.cancelled() => return Ok(()),
        }
        match is_alive(page).await {
            Ok(()) => notify::notify("WATCHDOG=1")?,
            Err(error) => tracing::error!(
                error = format!("{error:#}"),
                "a part of the agent hangs; systemd starts it anew if that stays so"
            ),
        }
    }
}

async fn is_alive(page: SocketAddr) -> Result<()> {
    let beats = BEATS.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let beats = beats
        .iter()
        .map(|(name, last)| (*name, Duration::from_millis(last.load(Ordering::Relaxed))));
    let hanging = hanging(beats, clock::uptime());
    ensure!(hanging.is_empty(), "not seen for long: {hanging:?}");
    tokio::time::timeout(ANSWER, ask(page))
        .await
        .context("the agent's own page does not answer")?
}

/// Any answer is one.
async fn ask(page: SocketAddr) -> Result<()> {
    let mut connection = TcpStream::connect(page)
        .await
        .context("connecting to the agent's own page")?;
    let request = b"HEAD /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    connection.write_all(request).await?;
    let mut start = [0; 5];
    connection
        .read_exact(&mut start)
        .await
        .context("asking the agent's own page")?;
    ensure!(start == *b"HTTP/", "the agent's own page speaks no HTTP");
    Ok(())
}

/// `WATCHDOG_USEC` of `sd_watchdog_enabled(3)`.
fn watchdog_time(microseconds: Option<&str>) -> Option<Duration> {
    let time = Duration::from_micros(microseconds?.parse().ok()?);
    (time >= Duration::from_millis(100)).then_some(time)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use tokio::net::TcpListener;

    use super::*;

    #[test]
    fn only_a_loop_that_is_silent_for_too_long_hangs() {
        let at = Duration::from_secs;
        let beats = [("hosts", at(100)), ("dhcp", at(39)), ("status", at(200))];
        assert_eq!(hanging(beats, at(100)), [("dhcp", at(61))]);
        assert_eq!(hanging(beats, at(99)), []);
    }

    #[test]
    fn a_loop_is_watched_from_its_begin_to_its_end() {
        let watched = |name: &str| BEATS.lock().unwrap().contains_key(name);
        let first = pulse("a loop of this test");
        let second = pulse("a loop of this test");
        drop(first);
        assert!(watched("a loop of this test"), "its next round is watched");
        drop(second);
        assert!(!watched("a loop of this test"));
    }

    #[test]
    fn without_a_watchdog_nobody_is_fed() {
        assert_eq!(watchdog_time(None), None);
        assert_eq!(watchdog_time(Some("0")), None);
        assert_eq!(watchdog_time(Some("x")), None);
        assert_eq!(
            watchdog_time(Some("90000000")),
            Some(Duration::from_secs(90))
        );
    }

    #[tokio::test]
    async fn a_page_that_takes_connections_and_says_nothing_is_not_alive() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let page = listener.local_addr().unwrap();
        let asked = tokio::spawn(ask(page));
        let (mut connection, _) = listener.accept().await.unwrap();
        connection
            .write_all(b"HTTP/1.1 503 starting\r\n")
            .await
            .unwrap();
        asked.await.unwrap().unwrap();
        let asked = tokio::spawn(ask(page));
        drop(listener.accept().await.unwrap());
        asked.await.unwrap().unwrap_err();
        drop(listener);
        ask(page).await.unwrap_err();
    }
}
