//! Which server gets an image from which other one: pure.
//!
//! The box sends an image to [`FIRST`] servers itself. Each further one is sent to a server that is receiving it, and passes on to
//! one other at most: a rack is served by chains, each link at the speed of a cable, and the box's own cable carries an image
//! a few times and not once a server.

use std::{
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

use firstlight_api::report::Phase;

/// Downloads that the box serves itself before it sends servers to each other.
const FIRST: usize = 2;
/// A server that says nothing of its download for so long may be switched off.
const SILENT: Duration = Duration::from_secs(10);
/// More than a segment has addresses for are no servers.
const MOST: usize = 4096;

#[derive(Debug, Default)]
pub struct Relays {
    /// In the order in which they asked.
    downloads: Vec<Download>,
}

#[derive(Debug)]
struct Download {
    image: String,
    server: SocketAddr,
    /// `None`: the box.
    from: Option<SocketAddr>,
    heard: Instant,
}

impl Relays {
    /// Who is to give `image` to `server`, which passes it on at its port. `None`: the box.
    pub fn choose(&mut self, now: Instant, image: &str, server: SocketAddr) -> Option<SocketAddr> {
        self.downloads.retain(|download| {
            now.saturating_duration_since(download.heard) < SILENT
                && download.server.ip() != server.ip()
        });
        if self.downloads.len() >= MOST {
            return None;
        }
        let of_image = || self.downloads.iter().filter(|one| one.image == image);
        let served_here = of_image().filter(|one| one.from.is_none()).count();
        let gives = |one: &&Download| of_image().any(|other| other.from == Some(one.server));
        // The one that began last stays longest.
        let free = of_image().rfind(|one| !gives(one) && !self.is_behind(one, server.ip()));
        let from = free.filter(|_| served_here >= FIRST).map(|one| one.server);
        self.downloads.push(Download {
            image: image.to_owned(),
            server,
            from,
            heard: now,
        });
        from
    }

    /// Whether the bytes of `download` come through the server at `address`.
    fn is_behind(&self, download: &Download, address: IpAddr) -> bool {
        let mut from = download.from;
        // Each link was made to one that asked before, so there are no more of them than downloads.
        for _ in 0..self.downloads.len() {
            let Some(giver) = from else { return false };
            if giver.ip() == address {
                return true;
            }
            let known = |one: &&Download| one.server == giver && one.image == download.image;
            from = self.downloads.iter().find(known).and_then(|one| one.from);
        }
        false
    }

    /// A server at `address` said how far it is.
    pub fn hear(&mut self, now: Instant, address: IpAddr, phase: &Phase) {
        let theirs = |one: &Download| one.server.ip() == address;
        if matches!(phase, Phase::Writing { .. } | Phase::Retrying { .. }) {
            for download in self.downloads.iter_mut().filter(|one| theirs(one)) {
                download.heard = now;
            }
        } else {
            // It restarts in a moment.
            self.downloads.retain(|one| !theirs(one));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const WRITING: Phase = Phase::Writing { bytes: 1, total: 2 };

    fn server(number: u8) -> SocketAddr {
        ([172, 22, 0, number], 40_000).into()
    }

    fn ask(relays: &mut Relays, now: Instant, number: u8) -> Option<SocketAddr> {
        relays.choose(now, "node.raw.zst", server(number))
    }

    #[test]
    fn the_box_serves_two_and_the_rest_are_chains() {
        let (mut relays, now) = (Relays::default(), Instant::now());
        let from: Vec<_> = (1..=6).map(|one| ask(&mut relays, now, one)).collect();
        let expected = [None, None, Some(2), Some(3), Some(4), Some(5)];
        assert_eq!(from, expected.map(|one: Option<u8>| one.map(server)));
        assert_eq!(
            relays.choose(now, "other.raw", server(7)),
            None,
            "nobody has another image"
        );
    }

    #[test]
    fn a_server_that_is_done_or_silent_is_not_named() {
        let (mut relays, start) = (Relays::default(), Instant::now());
        for number in 1..=3 {
            ask(&mut relays, start, number);
        }
        relays.hear(start, server(3).ip(), &Phase::ConfigDrive);
        assert_eq!(ask(&mut relays, start, 4), Some(server(2)));
        let later = start + SILENT;
        relays.hear(later, server(1).ip(), &WRITING);
        assert_eq!(ask(&mut relays, later, 5), None, "the box serves one only");
        assert_eq!(ask(&mut relays, later, 6), Some(server(5)));
    }

    #[test]
    fn a_server_is_never_sent_to_itself_nor_into_a_circle() {
        let (mut relays, now) = (Relays::default(), Instant::now());
        for number in 1..=4 {
            ask(&mut relays, now, number);
        }
        // 4 gets its bytes through it.
        assert_eq!(ask(&mut relays, now, 3), Some(server(2)));
    }
}
