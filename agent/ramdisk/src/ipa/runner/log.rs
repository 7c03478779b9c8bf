//! Who the ramdisk's log goes to, and how.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use firstlight_api::logs::{PATH, System};
use firstlight_api::names::BOOTSTRAP_PORT;
use firstlight_client::logs::Batch;
use firstlight_client::signed_client::{SignedClient, Untaken};

use super::{Shared, address_of};
use crate::ipa::log::LogLine;

/// After a box that has not shown who it is.
const AGAIN: Duration = Duration::from_secs(5);

/// `None` where there is no box that shows who it is, or no log of the kernel.
pub(super) fn start(shared: &Arc<Shared>) -> Option<LogLine> {
    let settings = &shared.settings;
    let host = settings.box_url.as_deref().and_then(address_of)?;
    let kernel = settings.kernel_log.as_ref()?;
    settings.ca_sha256?;
    let shared = Arc::clone(shared);
    let mut known = None;
    let send = move |batch: &Batch| {
        let client = match &known {
            Some(client) => client,
            None => known.insert(client(&shared, host)?),
        };
        client.post(PATH, &batch.body(System::Ramdisk))
    };
    match LogLine::start(kernel, Box::new(send)) {
        Ok(log) => Some(log),
        Err(error) => {
            tracing::warn!(%error, "the box does not get this machine's log");
            None
        }
    }
}

fn client(shared: &Shared, host: IpAddr) -> Result<SignedClient, Untaken> {
    let untaken = |reason: String| Untaken {
        reason,
        again: Some(AGAIN),
    };
    let trust = shared
        .trust()
        .map_err(|error| untaken(format!("{error:#}")))?;
    let trust = trust.ok_or_else(|| untaken("nobody says who the box is".to_owned()))?;
    let key = shared.worker.key.clone();
    let base = format!("https://{}", SocketAddr::new(host, BOOTSTRAP_PORT));
    Ok(SignedClient::new(&base, trust, key))
}
