//! Who may start a transfer (`firstlight-admission` decides), and requests that come twice.
//!
//! The source of a request can be forged; an answer to ours cannot be by who does not see it. So a transfer waits until its
//! client has answered, and until then gives way to a newcomer.

use std::collections::HashMap;
use std::net::SocketAddr;

use firstlight_admission::{Admission as Places, Full, Standing, Ticket, Verdict};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, Id, JoinError};

use super::Limits;
use super::session::Ended;

/// What to do with a request.
pub(super) enum Admission {
    Granted(Ticket),
    /// The transfer for this request runs and has not heard from the client: let it send its first packet again.
    Repeated(mpsc::Sender<()>),
    /// No room, and what to tell the client.
    Full(&'static str),
}

struct Entry {
    client: SocketAddr,
    task: AbortHandle,
    request: Vec<u8>,
    /// Closed once the client has answered.
    again: mpsc::Sender<()>,
}

/// The running transfers; a client is known by its address and port, its transfer identifier (RFC 1350 section 4).
pub(super) struct Gate {
    places: Places,
    running: HashMap<Ticket, Entry>,
    clients: HashMap<SocketAddr, Ticket>,
}

impl Gate {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            places: Places::new(limits.shares),
            running: HashMap::new(),
            clients: HashMap::new(),
        }
    }

    pub(super) fn admit(
        &mut self,
        client: SocketAddr,
        standing: Standing,
        request: &[u8],
    ) -> Admission {
        if let Some(ticket) = self.clients.get(&client).copied() {
            let entry = &self.running[&ticket];
            // Once the client has answered, it is a new request from the same port.
            if entry.request == request && !entry.again.is_closed() {
                return Admission::Repeated(entry.again.clone());
            }
            self.end(ticket);
        }
        for (ticket, entry) in &self.running {
            if entry.again.is_closed() {
                self.places.works(*ticket);
            }
        }
        match self.places.arrive(client.ip(), standing) {
            Verdict::Enter(ticket) => Admission::Granted(ticket),
            Verdict::Instead { ticket, leaves } => {
                self.end(leaves);
                Admission::Granted(ticket)
            }
            Verdict::Refused(Full::Places) => {
                Admission::Full("too many transfers at once, try again later")
            }
            Verdict::Refused(Full::Share) => {
                Admission::Full("too many transfers of this client at once, try again later")
            }
        }
    }

    pub(super) fn enter(
        &mut self,
        ticket: Ticket,
        client: SocketAddr,
        request: &[u8],
        task: AbortHandle,
        again: mpsc::Sender<()>,
    ) {
        let request = request.to_vec();
        self.clients.insert(client, ticket);
        self.running.insert(
            ticket,
            Entry {
                client,
                task,
                request,
                again,
            },
        );
    }

    /// A task came to its end. One that was replaced has left already.
    pub(super) fn leave(&mut self, ended: Result<(Id, Ended), JoinError>) {
        let id = match &ended {
            Ok((id, _)) => *id,
            Err(error) => error.id(),
        };
        let mut all = self.running.iter();
        let ticket = all.find(|(_, entry)| entry.task.id() == id);
        if let Some(ticket) = ticket.map(|(ticket, _)| *ticket) {
            self.end(ticket);
        }
        if let Err(error) = ended
            && error.is_panic()
        {
            tracing::error!(%error, "a TFTP transfer panicked");
        }
    }

    fn end(&mut self, ticket: Ticket) {
        self.places.leave(ticket);
        if let Some(entry) = self.running.remove(&ticket) {
            entry.task.abort();
            self.clients.remove(&entry.client);
        }
    }
}
