//! The few connections that a server of this program takes. A stranger on the segment can open connections, but neither end
//! this program by their number nor shut out those whom the places are kept for.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use firstlight_admission::{Admission, Shares, Standing, Ticket, Verdict};
use tokio::sync::oneshot;

pub struct Places {
    /// Whoever is not from there is a stranger; `None`: nobody is.
    home: Option<IpAddr>,
    inside: Mutex<Inside>,
}

struct Inside {
    admission: Admission,
    /// Dropped when its holder has lost its place.
    ends: BTreeMap<Ticket, oneshot::Sender<()>>,
}

/// Held while a connection is open.
pub struct Place {
    places: Arc<Places>,
    ticket: Ticket,
    /// Ends when the place is somebody else's.
    pub lost: oneshot::Receiver<()>,
}

impl Places {
    pub fn new(shares: Shares, home: Option<IpAddr>) -> Self {
        let inside = Inside {
            admission: Admission::new(shares),
            ends: BTreeMap::new(),
        };
        Self {
            home,
            inside: Mutex::new(inside),
        }
    }

    pub fn is_home(&self, peer: IpAddr) -> bool {
        self.home.is_none_or(|home| home == peer)
    }

    /// `None`: the connection is to be closed.
    pub fn enter(self: &Arc<Self>, peer: IpAddr) -> Option<Place> {
        let standing = if self.is_home(peer) {
            Standing::Known
        } else {
            Standing::Stranger
        };
        let mut inside = self.inside();
        let ticket = match inside.admission.arrive(peer, standing) {
            Verdict::Enter(ticket) => ticket,
            Verdict::Instead { ticket, leaves } => {
                inside.ends.remove(&leaves);
                ticket
            }
            Verdict::Refused(_) => return None,
        };
        let (end, lost) = oneshot::channel();
        inside.ends.insert(ticket, end);
        Some(Place {
            places: Arc::clone(self),
            ticket,
            lost,
        })
    }

    /// From now on the connection has said a token that fits: it does not give way any more.
    pub fn works(&self, ticket: Ticket) {
        self.inside().admission.works(ticket);
    }

    /// Its request was answered: it may give way to the next connection of its peer. Ironic opens one for each of its clients, and
    /// leaves the old ones open until Python collects them.
    pub fn waits(&self, ticket: Ticket) {
        self.inside().admission.waits(ticket);
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    pub fn ticket(&self) -> Ticket {
        self.ticket
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut inside = self.places.inside();
        inside.admission.leave(self.ticket);
        inside.ends.remove(&self.ticket);
    }
}
