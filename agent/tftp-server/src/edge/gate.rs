//! Who may start a transfer (`firstlight-admission` decides), and requests that come twice.
//!
//! The source of a request can be forged; an answer to ours cannot be by who does not see it. So a transfer waits until its
//! client has answered, and until then gives way to a newcomer.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use firstlight_admission::{Admission as Places, Full, Standing, Ticket, Verdict};
use tokio::task::{Id, JoinError};

use super::Limits;
use super::line::Line;
use crate::transfer::Client;

/// What to do with a request.
pub(super) enum Admission {
    Granted(Ticket),
    /// The transfer for this request runs, and knows now that it came again.
    Repeated,
    /// No room, and what to tell the client.
    Full(&'static str),
}

struct Entry {
    client: SocketAddr,
    task: Id,
    request: Vec<u8>,
    line: Arc<Line>,
}

impl Entry {
    fn has_answered(&self) -> bool {
        self.line.client() != Client::Asked
    }

    /// A copy of the request that began the transfer, which came late or because the answer did; a client that begins
    /// anew is not at work on the old transfer. Who mistakes the one for the other leaves the client, which knows one
    /// port of ours, without an answer.
    fn is_begun_by(&self, request: &[u8]) -> bool {
        let at_work = matches!(self.line.client(), Client::Asked | Client::Answers);
        self.request == request && at_work
    }
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
            if entry.is_begun_by(request) {
                if !entry.has_answered() {
                    entry.line.answer_again();
                }
                return Admission::Repeated;
            }
            self.end(ticket);
        }
        for (ticket, entry) in &self.running {
            if entry.has_answered() {
                self.places.works(*ticket);
            }
        }
        match self.places.arrive(client.ip(), standing) {
            Verdict::Enter(ticket) => Admission::Granted(ticket),
            Verdict::Instead { ticket, leaves } => {
                self.end(leaves);
                Admission::Granted(ticket)
            }
            Verdict::Refused(Full::Places) => Admission::Full(super::BUSY),
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
        line: Arc<Line>,
        task: Id,
    ) {
        self.clients.insert(client, ticket);
        let entry = Entry {
            client,
            task,
            request: request.to_vec(),
            line,
        };
        self.running.insert(ticket, entry);
    }

    /// A task came to its end. One that was replaced has left already.
    pub(super) fn leave(&mut self, ended: Result<(Id, ()), JoinError>) {
        let id = match &ended {
            Ok((id, ())) => *id,
            Err(error) => error.id(),
        };
        let mut all = self.running.iter();
        let ticket = all.find(|(_, entry)| entry.task == id);
        if let Some(ticket) = ticket.map(|(ticket, _)| *ticket) {
            self.end(ticket);
        }
        if let Err(error) = ended
            && error.is_panic()
        {
            tracing::error!(%error, "a TFTP transfer panicked");
        }
    }

    /// Whether or not its transfer has begun.
    pub(super) fn end(&mut self, ticket: Ticket) {
        self.places.leave(ticket);
        if let Some(entry) = self.running.remove(&ticket) {
            entry.line.cut();
            self.clients.remove(&entry.client);
        }
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.running.values().for_each(|entry| entry.line.cut());
    }
}
