//! Who may start a transfer: limits, and requests that come twice.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use tokio::sync::mpsc;
use tokio::task::{AbortHandle, Id, JoinError};

use super::Limits;
use super::session::Ended;

/// What to do with a request.
pub(super) enum Admission {
    Granted,
    /// The transfer for this request runs and has not heard from the client: let it send its first packet again.
    Repeated(mpsc::Sender<()>),
    /// No room, and what to tell the client.
    Full(&'static str),
}

struct Entry {
    task: AbortHandle,
    request: Vec<u8>,
    again: mpsc::Sender<()>,
}

/// The running transfers by the client's address and port, its transfer identifier (RFC 1350 section 4).
pub(super) struct Gate {
    limits: Limits,
    running: HashMap<SocketAddr, Entry>,
    per_client: HashMap<IpAddr, usize>,
}

impl Gate {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            running: HashMap::new(),
            per_client: HashMap::new(),
        }
    }

    pub(super) fn admit(&mut self, client: SocketAddr, request: &[u8]) -> Admission {
        if let Some(entry) = self.running.get(&client) {
            // The receiver closes once the client has answered: then it is a new request from the same port.
            if entry.request == request && !entry.again.is_closed() {
                return Admission::Repeated(entry.again.clone());
            }
            entry.task.abort();
            self.forget(client);
        }
        if self.running.len() >= self.limits.transfers {
            return Admission::Full("too many transfers at once, try again later");
        }
        if self
            .per_client
            .get(&client.ip())
            .is_some_and(|n| *n >= self.limits.transfers_per_client)
        {
            return Admission::Full("too many transfers of this client at once, try again later");
        }
        Admission::Granted
    }

    pub(super) fn enter(
        &mut self,
        client: SocketAddr,
        request: &[u8],
        task: AbortHandle,
        again: mpsc::Sender<()>,
    ) {
        *self.per_client.entry(client.ip()).or_default() += 1;
        let request = request.to_vec();
        self.running.insert(
            client,
            Entry {
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
        let client = self
            .running
            .iter()
            .find(|(_, entry)| entry.task.id() == id)
            .map(|(client, _)| *client);
        if let Some(client) = client {
            self.forget(client);
        }
        if let Err(error) = ended
            && error.is_panic()
        {
            tracing::error!(%error, "a TFTP transfer panicked");
        }
    }

    fn forget(&mut self, client: SocketAddr) {
        if self.running.remove(&client).is_none() {
            return;
        }
        if let Some(count) = self.per_client.get_mut(&client.ip()) {
            *count -= 1;
            if *count == 0 {
                self.per_client.remove(&client.ip());
            }
        }
    }
}
