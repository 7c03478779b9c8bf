//! The box's account in a host's BMC, as those speak of it who can reach that BMC from inside. The ramdisk posts ([`Post`]) by TLS that
//! only the box can answer; an installed system is asked by the box over SSH ([`Ask`], [`Told`]). Whoever makes the password says it to
//! nobody else.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

use crate::bounded;
use crate::report::{Fresh, ReportError};

/// At the bootstrap endpoint. Takes a [`Post`], signed, answers with a [`Reply`].
pub const PATH: &str = "/ramdisk/v1/bmc";
/// Bytes of a post, and of its reply.
pub const LARGEST: usize = 4 * 1024;
/// Bytes of a password. Every BMC takes so many.
pub const LONGEST_PASSWORD: usize = 16;
/// The user of the account.
pub const USER: &str = "firstlight";

/// What the ramdisk of a server that has a BMC says of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Post {
    /// As in [`crate::report::Report::boot_mac`].
    pub boot_mac: String,
    /// As in [`crate::report::Report::boot_id`].
    pub boot_id: String,
    /// What was found in the BMC.
    pub bmc: Bmc,
    /// What came of the last order.
    pub outcome: Outcome,
    /// On the wire its keys are among those of the post. Its sequence is not that of reports.
    #[serde(flatten)]
    pub fresh: Fresh,
}

/// What a BMC says of itself to its own server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Bmc {
    /// Of its channel to the network; absent if it has none there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<Ipv4Addr>,
    /// It has a user that is called [`USER`].
    pub account: bool,
}

/// What came of the last order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "camelCase")]
pub enum Outcome {
    /// There was none.
    Ready,
    /// The account is there, with this password.
    Made {
        /// Known to the ramdisk until it ends, and to the box.
        password: Password,
    },
    /// It is gone.
    Removed,
    /// The BMC did not do it.
    Failed {
        /// In the ramdisk's words, at most 256 characters.
        reason: String,
    },
}

/// Of the account: 1 to [`LONGEST_PASSWORD`] printable characters without space. `Debug` shows nothing of it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Password(String);

impl Password {
    /// For who has to say it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Password {
    type Error = &'static str;
    fn try_from(text: String) -> Result<Self, Self::Error> {
        let fits = (1..=LONGEST_PASSWORD).contains(&text.len());
        if fits && text.bytes().all(|byte| byte.is_ascii_graphic()) {
            Ok(Self(text))
        } else {
            Err("this is no password of 1 to 16 printable characters")
        }
    }
}

impl From<Password> for String {
    fn from(password: Password) -> Self {
        password.0
    }
}

impl std::fmt::Debug for Password {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Password")
    }
}

/// The answer to a [`Post`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    /// As in [`crate::report::Reply::session`].
    pub session: String,
    /// On the wire a key `order`, with the fields of its variant.
    #[serde(flatten)]
    pub order: Order,
}

/// What the ramdisk does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "camelCase")]
pub enum Order {
    /// The post was of another session and means nothing: send it again at once.
    Again,
    /// Nothing; look again after so many seconds. What was made is known, if it was said: forget the password.
    Rest {
        /// At most 300.
        seconds: u32,
    },
    /// What was said could not be kept: say it again after so many seconds.
    Repeat {
        /// At most 300.
        seconds: u32,
    },
    /// Make the account, with a new password.
    Make,
    /// Take it away.
    Remove,
}

/// What the box asks of an installed system over SSH: the last word of `firstlight-bootstrap bmc WORD`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ask {
    /// Say what is there.
    #[default]
    Look,
    /// Make the account, with a new password.
    Make,
    /// Take it away.
    Remove,
}

impl Ask {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Look, Self::Make, Self::Remove];

    /// As it is written.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Look => "look",
            Self::Make => "make",
            Self::Remove => "remove",
        }
    }

    /// As it was written.
    pub fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|ask| ask.word() == word)
    }
}

/// What an installed system answers on its standard output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    /// Absent if its kernel knows none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bmc: Option<Bmc>,
    /// What came of what was asked.
    pub outcome: Outcome,
}

impl Told {
    /// Lengths beyond their limits are refused, texts are cut and cleaned.
    pub fn parse(body: &[u8]) -> Result<Self, ReportError> {
        bounded::length("bytes in an answer about a BMC", body.len(), LARGEST)?;
        // What is wrong is not quoted: it may be a password.
        let told: Self = serde_json::from_slice(body)
            .map_err(|_| ReportError::Json("it is no answer about a BMC".to_owned()))?;
        Ok(Self {
            outcome: told.outcome.bounded(),
            ..told
        })
    }
}

impl Outcome {
    fn bounded(self) -> Self {
        match self {
            Self::Failed { reason } => Self::Failed {
                reason: bounded::text(&reason),
            },
            other => other,
        }
    }
}

impl Post {
    /// Lengths beyond their limits are refused, texts are cut and cleaned.
    pub fn parse(body: &[u8]) -> Result<Self, ReportError> {
        bounded::length("bytes in a post", body.len(), LARGEST)?;
        // What is wrong is not quoted: it may be a password.
        let post: Self = serde_json::from_slice(body)
            .map_err(|_| ReportError::Json("it is no post about a BMC".to_owned()))?;
        Ok(Self {
            boot_mac: crate::report::mac(&post.boot_mac)?,
            boot_id: crate::report::boot_id(post.boot_id)?,
            outcome: post.outcome.bounded(),
            bmc: post.bmc,
            fresh: post.fresh.bounded()?,
        })
    }
}

impl Reply {
    /// As a ramdisk keeps it.
    pub fn parse(body: &[u8]) -> Result<Self, ReportError> {
        bounded::length("bytes in a reply", body.len(), LARGEST)?;
        let reply: Self = serde_json::from_slice(body)
            .map_err(|error| ReportError::Json(bounded::sentence(&error.to_string())))?;
        crate::report::session(&reply.session)?;
        Ok(reply)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn post(said: Outcome) -> Post {
        Post {
            boot_mac: "52:54:00:00:00:01".into(),
            boot_id: "b-1".into(),
            bmc: Bmc {
                address: Some(Ipv4Addr::new(10, 0, 0, 9)),
                account: false,
            },
            outcome: said,
            fresh: Fresh::default(),
        }
    }

    #[test]
    fn it_travels_as_documented_and_is_shown_to_nobody() {
        let password = Password::try_from("s3cret-Password1".to_owned()).unwrap();
        let made = post(Outcome::Made { password });
        let sent = serde_json::to_vec(&made).unwrap();
        assert_eq!(
            serde_json::from_slice::<serde_json::Value>(&sent).unwrap()["outcome"],
            json!({"state": "made", "password": "s3cret-Password1"})
        );
        assert_eq!(Post::parse(&sent).unwrap(), made);
        assert!(!format!("{made:?}").contains("s3cret"));
        let broken = String::from_utf8(sent)
            .unwrap()
            .replace("Password1", "Password12");
        let refused = Post::parse(broken.as_bytes()).unwrap_err();
        assert!(!format!("{refused} {refused:?}").contains("s3cret"));
        let rest = Reply {
            session: "ab".into(),
            order: Order::Rest { seconds: 5 },
        };
        let sent = serde_json::to_value(&rest).unwrap();
        assert_eq!(
            sent,
            json!({"session": "ab", "order": "rest", "seconds": 5})
        );
        assert_eq!(Reply::parse(sent.to_string().as_bytes()).unwrap(), rest);
    }

    #[test]
    fn what_an_installed_system_says_travels_as_documented_and_is_shown_to_nobody() {
        let password = Password::try_from("s3cret-Password1".to_owned()).unwrap();
        let made = Told {
            bmc: Some(Bmc {
                address: None,
                account: true,
            }),
            outcome: Outcome::Made { password },
        };
        let sent = serde_json::to_string(&made).unwrap();
        let expected =
            r#"{"bmc":{"account":true},"outcome":{"state":"made","password":"s3cret-Password1"}}"#;
        assert_eq!(sent, expected);
        assert_eq!(Told::parse(sent.as_bytes()).unwrap(), made);
        assert!(!format!("{made:?}").contains("s3cret"));
        for broken in [
            sent.replace("Password1", "Password12"),
            sent.clone() + &" ".repeat(LARGEST),
        ] {
            let refused = Told::parse(broken.as_bytes()).unwrap_err();
            assert!(!format!("{refused} {refused:?}").contains("s3cret"));
        }
        for ask in Ask::ALL {
            assert_eq!(Ask::of(ask.word()), Some(ask));
        }
        assert_eq!(Ask::of("look "), None);
    }

    proptest! {
        #[test]
        fn whatever_comes_is_a_post_or_refused(body: Vec<u8>, text in ".{0,40}", reason in ".{0,400}", address: u32) {
            let _ = Post::parse(&body);
            let _ = Reply::parse(&body);
            let _ = Told::parse(&body);
            let is_one = (1..=16).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
            prop_assert_eq!(Password::try_from(text).is_ok(), is_one);
            let mut said = post(Outcome::Failed { reason });
            said.bmc.address = Some(address.into());
            let parsed = Post::parse(&serde_json::to_vec(&said).unwrap()).unwrap();
            let Outcome::Failed { reason } = &parsed.outcome else { panic!("{parsed:?}") };
            prop_assert!(reason.chars().count() <= 256);
            let told = Told { bmc: None, outcome: said.outcome.clone() };
            let told = Told::parse(&serde_json::to_vec(&told).unwrap()).unwrap();
            prop_assert_eq!(&told.outcome, &parsed.outcome);
            prop_assert_eq!(parsed.bmc, said.bmc);
        }
    }
}
