//! `alarms`: whom the box tells what somebody should know, besides its page and its console. Pure.

use std::{fmt, str::FromStr};

use super::{Domain, ValueError};

/// Characters of an address on the Web, and of one of mail.
const LONGEST: usize = 1000;

/// Where alarms go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Alarms {
    /// Gets Alertmanager's JSON by POST.
    pub webhook: Option<Webhook>,
    /// Gets a mail.
    pub email: Option<Email>,
}

/// An address on the Web, `http` or `https`. It may hold a secret, so that it is repeated nowhere.
#[derive(Clone, PartialEq, Eq)]
pub struct Webhook(String);

impl Webhook {
    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Webhook")
    }
}

impl FromStr for Webhook {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let rest = text
            .strip_prefix("https://")
            .or_else(|| text.strip_prefix("http://"));
        let host = rest.and_then(|rest| rest.split(['/', '?']).next());
        let name = host.map(|host| host.rsplit_once(':').map_or(host, |(name, _)| name));
        let is_plain = text.bytes().all(|byte| byte.is_ascii_graphic());
        let is_host = name.is_some_and(|name| Domain::from_str(name).is_ok());
        if !is_plain || !is_host || text.len() > LONGEST {
            // Not repeated: it may hold a secret.
            return Err(ValueError(
                "this is no address that alarms can be posted to; write it like https://hooks.example/firstlight".to_owned(),
            ));
        }
        Ok(Self(text.to_owned()))
    }
}

/// A mail for each alarm, without a login at the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Email {
    /// Takes it, by SMTP.
    pub server: MailServer,
    /// Whom it is from.
    pub from: MailAddress,
    /// Whom it is for.
    pub to: Vec<MailAddress>,
}

/// A machine by name or address, and its port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MailServer(String);

impl FromStr for MailServer {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let (host, port) = text.rsplit_once(':').unwrap_or((text, "25"));
        let is_port = port.parse::<u16>().is_ok_and(|port| port > 0);
        if !is_port || Domain::from_str(host).is_err() {
            return Err(ValueError(format!(
                "`{text}` is no mail server; write it like mail.example, or mail.example:587"
            )));
        }
        Ok(Self(format!("{host}:{port}")))
    }
}

impl fmt::Display for MailServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// `somebody@site.example`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MailAddress(String);

impl FromStr for MailAddress {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b".+-_".contains(&byte);
        let is_good = text.split_once('@').is_some_and(|(who, at)| {
            !who.is_empty() && who.bytes().all(is_letter) && Domain::from_str(at).is_ok()
        });
        if !is_good || text.len() > LONGEST {
            return Err(ValueError(format!(
                "`{text}` is no address of mail; write it like somebody@site.example"
            )));
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for MailAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
