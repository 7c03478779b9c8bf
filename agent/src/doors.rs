//! The doors of the box: who is let in over TCP when there are fewer places than are wanted (`firstlight-admission` decides), who
//! counts as a known server, and what becomes of those that do not read.
//!
//! Must not: know what is said at a door. A new listener makes a [`Door`] and holds a [`Place`] for each connection.

mod paced;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    net::{IpAddr, Ipv4Addr},
    sync::{Arc, Mutex, PoisonError},
};

use firstlight_admission::{Admission, Full, Shares, Standing, Ticket, Verdict};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub use self::paced::Paced;
use crate::status::counters::REFUSED;

/// Servers that are remembered because they were believed; a segment has no more at a time.
const BELIEVED: usize = 256;

/// Servers for which places are kept: who has a lease, and who was believed lately, because another DHCP server may lease the
/// addresses.
#[derive(Clone, Debug)]
pub struct Known {
    leased: watch::Receiver<Arc<BTreeSet<Ipv4Addr>>>,
    believed: watch::Sender<VecDeque<IpAddr>>,
}

impl Known {
    pub fn new(leased: watch::Receiver<Arc<BTreeSet<Ipv4Addr>>>) -> Self {
        Self {
            leased,
            believed: watch::Sender::default(),
        }
    }

    pub fn has(&self, peer: IpAddr) -> bool {
        let leased = |address| self.leased.borrow().contains(&address);
        matches!(peer, IpAddr::V4(address) if leased(address))
            || self.believed.borrow().contains(&peer)
    }

    /// What `peer` said was signed, or had a token, and was believed.
    pub fn believe(&self, peer: IpAddr) {
        self.believed.send_if_modified(|believed| {
            let before = believed.len();
            believed.retain(|known| *known != peer);
            let is_new = believed.len() == before;
            if believed.len() >= BELIEVED {
                believed.pop_front();
            }
            believed.push_back(peer);
            is_new
        });
    }

    /// Who was believed lately.
    pub fn believed(&self) -> watch::Receiver<VecDeque<IpAddr>> {
        self.believed.subscribe()
    }

    fn standing(&self, peer: IpAddr) -> Standing {
        if self.has(peer) {
            Standing::Known
        } else {
            Standing::Stranger
        }
    }
}

/// One listener's places.
#[derive(Clone, Debug)]
pub struct Door {
    known: Known,
    inside: Arc<Mutex<Inside>>,
}

#[derive(Debug)]
struct Inside {
    admission: Admission,
    /// How each holder is told to go.
    ends: BTreeMap<Ticket, CancellationToken>,
}

impl Door {
    pub fn new(shares: Shares, known: Known) -> Self {
        let inside = Inside {
            admission: Admission::new(shares),
            ends: BTreeMap::new(),
        };
        Self {
            known,
            inside: Arc::new(Mutex::new(inside)),
        }
    }

    /// A place for `peer`; somebody else may lose one. `None`: its connection is to be closed.
    pub fn enter(&self, peer: IpAddr) -> Option<Place> {
        let standing = self.known.standing(peer);
        let mut inside = self.inside();
        let ticket = match inside.admission.arrive(peer, standing) {
            Verdict::Enter(ticket) => ticket,
            Verdict::Instead { ticket, leaves } => {
                REFUSED.count("connection-gave-way");
                if let Some(end) = inside.ends.remove(&leaves) {
                    end.cancel();
                }
                ticket
            }
            Verdict::Refused(full) => {
                REFUSED.count(match full {
                    Full::Share => "connections-of-one-peer",
                    Full::Places => "connections-in-all",
                });
                return None;
            }
        };
        let end = CancellationToken::new();
        inside.ends.insert(ticket, end.clone());
        Some(Place {
            door: self.clone(),
            ticket,
            end,
        })
    }

    pub fn known(&self) -> &Known {
        &self.known
    }

    /// Connections that are open.
    #[cfg(test)]
    pub fn open(&self) -> usize {
        self.inside().admission.held()
    }

    fn inside(&self) -> std::sync::MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Held while a connection is open.
#[derive(Debug)]
pub struct Place {
    door: Door,
    ticket: Ticket,
    end: CancellationToken,
}

impl Place {
    /// Comes when the place is somebody else's.
    pub async fn lost(&self) {
        self.end.cancelled().await;
    }

    /// Until the value is dropped, the connection is at work; at other times it waits, and may have to give way.
    pub fn work(&self) -> Work {
        self.door.inside().admission.works(self.ticket);
        Work {
            door: self.door.clone(),
            ticket: self.ticket,
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut inside = self.door.inside();
        inside.admission.leave(self.ticket);
        inside.ends.remove(&self.ticket);
    }
}

/// One request and its answer.
#[derive(Debug)]
pub struct Work {
    door: Door,
    ticket: Ticket,
}

impl Drop for Work {
    fn drop(&mut self) {
        self.door.inside().admission.waits(self.ticket);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn who_has_a_lease_or_was_believed_is_known_and_few_are_remembered() {
        let leased = Ipv4Addr::new(172, 22, 0, 100);
        let (_sender, held) = watch::channel(Arc::new(BTreeSet::from([leased])));
        let known = Known::new(held);
        assert!(known.has(leased.into()) && !known.has([172, 22, 0, 101].into()));
        for number in 0..=u16::try_from(BELIEVED).unwrap() {
            let [high, low] = number.to_be_bytes();
            known.believe([10, 0, high, low].into());
        }
        assert!(!known.has([10, 0, 0, 0].into()), "the first is forgotten");
        assert!(known.has([10, 0, 1, 0].into()));
        assert_eq!(known.believed().borrow().len(), BELIEVED);
    }

    #[tokio::test]
    async fn who_loses_a_place_is_told_and_nothing_is_left_of_those_that_went() {
        let (_sender, held) = watch::channel(Arc::default());
        let shares = Shares {
            all: 2,
            kept: 0,
            of_peer: 2,
        };
        let door = Door::new(shares, Known::new(held));
        let [first, second] = [1, 2].map(|last| door.enter([127, 0, 0, last].into()).unwrap());
        let work = first.work();
        let third = door.enter([127, 0, 0, 3].into()).unwrap();
        second.lost().await;
        drop(second);
        assert_eq!(door.open(), 2, "its place is the newcomer's");
        drop((work, first, third));
        assert_eq!(door.open(), 0);
        assert!(door.inside().ends.is_empty());
    }
}
