//! Where this server's journal and metrics go, and the key that says whose they are: for the two units that bring them, which run as users of
//! their own and get it as a credential.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use firstlight_client::http::Url;
use firstlight_client::key::Key;
use firstlight_client::signed_client::SignedClient;
use firstlight_client::tls::{BoxClock, trust_only};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde::{Deserialize, Serialize};

use crate::files::NewFile;
use crate::invitation::Invitation;

/// As the units have it.
const FILE: &str = "run/firstlight/destination.json";
const CREDENTIAL: &str = "destination";

#[derive(Serialize, Deserialize)]
struct Destination {
    /// `https://BOX:PORT`
    base: String,
    ca: String,
    key: String,
}

/// `None`: an older box has given this server no key.
pub fn plan_destination(invitation: &Invitation) -> Option<NewFile> {
    let path = Url::parse(&invitation.url).ok()?.target;
    let destination = Destination {
        base: invitation.url.strip_suffix(&path)?.to_owned(),
        ca: invitation.ca.clone(),
        key: invitation.key.clone()?,
    };
    let content = serde_json::to_string(&destination).ok()?;
    Some(NewFile::new(FILE, 0o600, content))
}

/// The box, as the credentials of this unit say.
pub fn open(credentials: &Path) -> Result<SignedClient> {
    const WHAT: &str = "reading where the box is";
    let text = fs::read(credentials.join(CREDENTIAL)).context(WHAT)?;
    let destination: Destination = serde_json::from_slice(&text).context(WHAT)?;
    let ca = CertificateDer::from_pem_slice(destination.ca.as_bytes())
        .context("the box's CA is not a certificate")?;
    // The kernel's clock: it was set to the box's before.
    let tls = trust_only(ca, Arc::new(BoxClock::default()))?;
    let key = Key::parse(&destination.key)?;
    Ok(SignedClient::new(&destination.base, tls, key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_server_with_a_key_says_whose_it_is() {
        let mut invitation = Invitation {
            url: "https://172.22.0.1:8443/bootstrap/v1/a".to_owned(),
            host: "172.22.0.1".to_owned(),
            token: "t".to_owned(),
            ca: "PEM".to_owned(),
            key: None,
        };
        assert_eq!(plan_destination(&invitation), None);
        invitation.key = Some("seed".to_owned());
        let expected = NewFile::new(
            FILE,
            0o600,
            r#"{"base":"https://172.22.0.1:8443","ca":"PEM","key":"seed"}"#,
        );
        assert_eq!(plan_destination(&invitation), Some(expected));
    }
}
