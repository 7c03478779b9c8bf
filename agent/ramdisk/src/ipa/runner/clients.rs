//! How the ramdisk speaks to Ironic, to the box by TLS, and to who serves images.

use std::sync::{Arc, PoisonError};

use anyhow::{Context as _, Result};
use firstlight_client::http::Client;
use firstlight_client::tls;

use super::{IMAGE_SILENCE, SILENCE, Shared};
use crate::ipa::ironic::Ironic;

impl Shared {
    /// Ironic's client; fetches the box's CA the first time.
    pub(super) fn ironic(&self) -> Result<Ironic> {
        let mut known = self.ironic.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(ironic) = &*known {
            return Ok(ironic.clone());
        }
        let settings = &self.settings;
        let base = settings
            .ironic_url
            .as_deref()
            .context("the kernel command line names no Ironic; add ipa-api-url=")?;
        let client = Client::new(self.trust()?, SILENCE);
        let ironic = Ironic::new(client, base, settings.inspection_url.as_deref());
        *known = Some(ironic.clone());
        Ok(ironic)
    }

    pub(super) fn trust(&self) -> Result<Option<Arc<rustls::ClientConfig>>> {
        match (&self.link, &self.settings.ca_sha256) {
            (Some(link), Some(fingerprint)) => {
                let pem = link.ca().map_err(anyhow::Error::msg)?;
                let ca = tls::check_ca(&pem, fingerprint)?;
                Ok(Some(tls::trust_only(ca, Arc::clone(&self.clock))?))
            }
            _ if self.settings.insecure => Ok(Some(tls::trust_anyone()?)),
            _ => Ok(None),
        }
    }

    /// Images come from the same trust as Ironic; where that cannot be had yet, plain HTTP still works.
    pub(super) fn image_client(&self) -> Client {
        let client = self.ironic().map_or_else(
            |_| Client::new(None, SILENCE),
            |ironic| ironic.client().clone(),
        );
        client.with_silence(IMAGE_SILENCE)
    }
}
