//! Who gets a place at a door when there are fewer than are wanted: connections of HTTP, transfers of TFTP.
//!
//! A peer has a share, so that one of them never takes all. Some places are for known servers only, because strangers can
//! have as many addresses as they like. Who waits (for a request, for a first answer) gives way to a newcomer; who works
//! keeps its place, unless its peer has more than half a share and somebody else has less.
//!
//! Must not: know sockets or the time; what counts is the order in which things happened.

#![warn(missing_docs)]

use std::{collections::BTreeMap, net::IpAddr};

/// How many places there are, and for whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shares {
    /// Places of the door.
    pub all: usize,
    /// Of all: only for known servers.
    pub kept: usize,
    /// For one peer at most.
    pub of_peer: usize,
}

/// How much the caller thinks of who comes. No stranger gets the place of another peer that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// Nothing speaks for it. All strangers together get `all` less `kept` places.
    Stranger,
    /// The caller has a reason to think that this is a server of the site.
    Known,
}

/// Names a place as long as it is held, and none afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(u64);

/// What becomes of somebody who wants a place. Whoever has a ticket gives it back with [`Admission::leave`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// There is room; the place is held from now on.
    Enter(Ticket),
    /// The holder of `leaves` has lost its place.
    Instead {
        /// The newcomer's place.
        ticket: Ticket,
        /// The ticket that no longer holds one: the caller ends what it stood for.
        leaves: Ticket,
    },
    /// No place, and nothing has changed.
    Refused(Full),
}

/// Why nobody gave way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// The peer's own share is in use.
    Share,
    /// All places are in use by others who work.
    Places,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Doing {
    Waiting,
    Working,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    peer: IpAddr,
    standing: Standing,
    doing: Doing,
    /// When that began, as a number in order.
    since: u64,
}

/// The places of one door.
#[derive(Clone, Debug)]
pub struct Admission {
    shares: Shares,
    steps: u64,
    held: BTreeMap<Ticket, Held>,
}

impl Admission {
    /// A door with nobody in it.
    pub fn new(shares: Shares) -> Self {
        Self {
            shares,
            steps: 0,
            held: BTreeMap::new(),
        }
    }

    /// Somebody wants a place; it waits at first.
    pub fn arrive(&mut self, peer: IpAddr, standing: Standing) -> Verdict {
        let leaves = match self.who_leaves(peer, standing) {
            Ok(leaves) => leaves,
            Err(full) => return Verdict::Refused(full),
        };
        if let Some(leaves) = leaves {
            self.held.remove(&leaves);
        }
        let since = self.step();
        let ticket = Ticket(since);
        let held = Held {
            peer,
            standing,
            doing: Doing::Waiting,
            since,
        };
        self.held.insert(ticket, held);
        match leaves {
            Some(leaves) => Verdict::Instead { ticket, leaves },
            None => Verdict::Enter(ticket),
        }
    }

    /// It is at work from now on.
    pub fn works(&mut self, ticket: Ticket) {
        self.does(ticket, Doing::Working);
    }

    /// It waits from now on.
    pub fn waits(&mut self, ticket: Ticket) {
        self.does(ticket, Doing::Waiting);
    }

    /// Frees a place. A ticket that lost its place before is no mistake.
    pub fn leave(&mut self, ticket: Ticket) {
        self.held.remove(&ticket);
    }

    /// Places that are held.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    fn does(&mut self, ticket: Ticket, doing: Doing) {
        let since = self.step();
        if let Some(held) = self.held.get_mut(&ticket) {
            (held.doing, held.since) = (doing, since);
        }
    }

    fn step(&mut self) -> u64 {
        self.steps += 1;
        self.steps
    }

    /// Nobody, if there is room.
    fn who_leaves(&self, peer: IpAddr, standing: Standing) -> Result<Option<Ticket>, Full> {
        let all = || self.held.iter();
        let of = |peer: IpAddr| all().filter(|(_, held)| held.peer == peer).count();
        let own = of(peer);
        if own >= self.shares.of_peer {
            let own = all().filter(|(_, held)| held.peer == peer && held.doing == Doing::Waiting);
            let longest = own.min_by_key(|(_, held)| held.since);
            return longest.map(|(ticket, _)| Some(*ticket)).ok_or(Full::Share);
        }
        let strangers = all().filter(|(_, held)| held.standing == Standing::Stranger);
        let room = self.held.len() < self.shares.all
            && (standing == Standing::Known
                || strangers.count() < self.shares.all.saturating_sub(self.shares.kept));
        if room {
            return Ok(None);
        }
        let greedy = |held: &Held| {
            let theirs = of(held.peer);
            theirs > self.shares.of_peer / 2 && theirs > own + 1
        };
        let candidates = all().filter(|(_, held)| held.standing <= standing);
        let candidates = candidates.map(|(ticket, held)| (ticket, held, greedy(held)));
        let may = candidates.filter(|(_, held, greedy)| {
            held.doing == Doing::Waiting || held.standing < standing || *greedy
        });
        let first =
            may.min_by_key(|(_, held, greedy)| (held.doing, held.standing, !greedy, held.since));
        first.map(|(ticket, ..)| Some(*ticket)).ok_or(Full::Places)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
