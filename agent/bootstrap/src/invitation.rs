//! The key `firstlight` of a config drive's `meta_data.json`.

use std::fmt;

use firstlight_client::http::Url;
use serde_json::{Map, Value};

/// Where to ask for bootstrap data, and whom to trust.
#[derive(Clone, PartialEq, Eq)]
pub struct Invitation {
    pub url: String,
    /// Host of `url`: the box.
    pub host: String,
    pub token: String,
    /// PEM of the box's CA.
    pub ca: String,
    /// Private: the ramdisk that wrote this system signs with it, and so does the system. An older box gives none.
    pub key: Option<String>,
}

/// The token stays out of the journal.
impl fmt::Debug for Invitation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Invitation")
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvitationError {
    #[error("the config drive's invitation has no {0}")]
    Missing(&'static str),
    #[error("the config drive's invitation is not to an https address, but to {0}")]
    Url(String),
}

/// `None` when the metadata invites to nothing.
pub fn parse_invitation(
    meta_data: &Map<String, Value>,
) -> Result<Option<Invitation>, InvitationError> {
    let Some(block) = meta_data.get("firstlight") else {
        return Ok(None);
    };
    let text = |key: &'static str| {
        let value = block.get(key).and_then(Value::as_str);
        value
            .filter(|text| !text.is_empty())
            .map(str::to_owned)
            .ok_or(InvitationError::Missing(key))
    };
    let url = text("url")?;
    let parsed = Url::parse(&url).map_err(|_| InvitationError::Url(url.clone()))?;
    if !parsed.tls {
        return Err(InvitationError::Url(url));
    }
    Ok(Some(Invitation {
        host: parsed.host,
        token: text("token")?,
        ca: text("ca")?,
        key: block.get("key").and_then(Value::as_str).map(str::to_owned),
        url,
    }))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn an_invitation_is_whole_or_an_error() {
        let url = "https://172.22.0.1:8443/bootstrap/v1/abc";
        let whole = json!({"url": url, "token": "t", "ca": "PEM"});
        let without = |key: &str| {
            let mut block = whole.clone();
            block.as_object_mut().unwrap().remove(key);
            block
        };
        let signing = json!({"url": url, "token": "t", "ca": "PEM", "key": "seed"});
        let plain = json!({"url": "http://172.22.0.1/", "token": "t", "ca": "PEM"});
        let cases = [
            (json!({"name": "n1"}), Ok(None)),
            (
                json!({"firstlight": whole}),
                Ok(Some(Invitation {
                    url: url.to_owned(),
                    host: "172.22.0.1".to_owned(),
                    token: "t".to_owned(),
                    ca: "PEM".to_owned(),
                    key: None,
                })),
            ),
            (
                json!({"firstlight": signing}),
                Ok(Some(Invitation {
                    url: url.to_owned(),
                    host: "172.22.0.1".to_owned(),
                    token: "t".to_owned(),
                    ca: "PEM".to_owned(),
                    key: Some("seed".to_owned()),
                })),
            ),
            (
                json!({"firstlight": without("url")}),
                Err(InvitationError::Missing("url")),
            ),
            (
                json!({"firstlight": without("token")}),
                Err(InvitationError::Missing("token")),
            ),
            (
                json!({"firstlight": without("ca")}),
                Err(InvitationError::Missing("ca")),
            ),
            (
                json!({"firstlight": plain}),
                Err(InvitationError::Url("http://172.22.0.1/".to_owned())),
            ),
        ];
        for (meta_data, expected) in cases {
            assert_eq!(parse_invitation(meta_data.as_object().unwrap()), expected);
        }
    }

    #[test]
    fn no_log_line_can_hold_the_token() {
        let meta_data =
            json!({"firstlight": {"url": "https://b/", "token": "s3cret", "ca": "PEM"}});
        let invitation = parse_invitation(meta_data.as_object().unwrap()).unwrap();
        assert!(!format!("{invitation:?}").contains("s3cret"));
    }

    proptest! {
        #[test]
        fn any_metadata_invites_by_tls_or_not_at_all(url in "(https?://)?.{0,30}", token in ".{0,9}", ca in ".{0,9}") {
            let meta_data = json!({"firstlight": {"url": url, "token": token, "ca": ca}});
            if let Ok(Some(invitation)) = parse_invitation(meta_data.as_object().unwrap()) {
                prop_assert!(invitation.url.starts_with("https://") && !invitation.host.is_empty());
                prop_assert!(!invitation.token.is_empty() && !invitation.ca.is_empty());
                let told = format!("{invitation:?}");
                prop_assert!(!told.contains("token:"));
            }
            parse_invitation(json!({"firstlight": url}).as_object().unwrap()).unwrap_err();
        }
    }
}
