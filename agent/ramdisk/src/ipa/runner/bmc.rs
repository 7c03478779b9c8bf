//! Who the box's account in this machine's BMC is told to, and how.

use firstlight_api::names::BOOTSTRAP_PORT;
use firstlight_client::http::Client;

use super::{SILENCE, Shared, address_of};
use crate::ipa::account::{self, BoxClient};

impl Shared {
    /// As long as there is something to do about it.
    pub(super) fn keep_account(&self) {
        let patience = account::Patience::default();
        let (machine, facts) = (self.worker.machine.as_ref(), self.facts.as_ref());
        // A password is for the box alone.
        let box_at = self.settings.box_url.as_deref().and_then(address_of);
        let Some(address) = box_at.filter(|_| self.settings.ca_sha256.is_some()) else {
            return account::keep(machine, facts, None, patience);
        };
        let mut door = None;
        let mut ask = |bmc, said| {
            if door.is_none() {
                let trust = self.trust().map_err(|error| format!("{error:#}"))?;
                door = Some(BoxClient {
                    client: Client::new(trust, SILENCE),
                    base: format!("https://{address}:{BOOTSTRAP_PORT}"),
                    key: self.worker.key.clone(),
                    boot_mac: self.settings.boot_mac.clone(),
                    boot_id: self.boot_id.clone(),
                    session: String::new(),
                    sequence: 0,
                });
            }
            let door = door.as_mut().ok_or("there is no box")?;
            door.ask(bmc, &said)
        };
        account::keep(machine, facts, Some(&mut ask), patience);
    }
}
