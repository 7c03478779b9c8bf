//! What the box orders of a node whose cluster gets other certificate authorities: a step of [`crate::packages::Order`].

use std::fmt;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// On a node's manifests of static pods and on its `Node` object: `STEP-ROTATION`, what was done here last.
pub const LABEL: &str = "firstlight.internal/authorities";
/// Of all that one authority has.
const LONGEST_PEM: usize = 32 << 10;
/// One that goes, one that comes, and those that a rotation before them left.
const MOST_CERTIFICATES: usize = 4;
const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END CERTIFICATE-----";

/// A step of a rotation; done already, it changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AuthoritiesOrder {
    /// Which one.
    pub step: AuthoritiesStep,
    /// Which rotation: 16 hexadecimal digits.
    pub rotation: String,
    /// The node's name in its cluster.
    pub node: String,
    /// Another control plane can answer for the cluster's address while this one changes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hands_over: bool,
    /// Kubernetes' own.
    pub cluster: Authority,
    /// Control planes only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etcd: Option<Authority>,
    /// Control planes only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub front_proxy: Option<Authority>,
}

/// In the order in which they come; each is done on all nodes before the next one begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum AuthoritiesStep {
    /// Both authorities are believed.
    Trust,
    /// A control plane's certificates are the new one's, and so is what it signs.
    Issue,
    /// The kubelet asks for a certificate of the new one's.
    Kubelet,
    /// The new one alone is believed.
    Forget,
}

impl AuthoritiesStep {
    /// In their order.
    pub const ALL: [Self; 4] = [Self::Trust, Self::Issue, Self::Kubelet, Self::Forget];

    /// As it is written in orders and labels.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Trust => "trust",
            Self::Issue => "issue",
            Self::Kubelet => "kubelet",
            Self::Forget => "forget",
        }
    }

    /// Of a rotation, as [`LABEL`] has it.
    pub fn mark(self, rotation: &str) -> String {
        format!("{}-{rotation}", self.as_str())
    }

    /// What a mark says of this rotation.
    pub fn marked(mark: &str, rotation: &str) -> Option<Self> {
        let (step, of) = mark.trim().split_once('-')?;
        let mut all = Self::ALL.into_iter();
        all.find(|one| of == rotation && one.as_str() == step)
    }
}

/// PEM; the first certificate signs, the others are believed beside it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Authority {
    /// At most four.
    pub certificates: String,
    /// Of the first, where it is not there yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<PrivateKey>,
}

/// PEM; told to nobody who prints it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PrivateKey(String);

impl PrivateKey {
    /// Checked when the order is.
    pub const fn new(pem: String) -> Self {
        Self(pem)
    }

    /// For who has to write it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PrivateKey")
    }
}

/// Why an order is not carried out.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum AuthoritiesError {
    #[error("`{0}` names no rotation: 16 hexadecimal digits")]
    Rotation(String),
    #[error("`{0}` is no name of a node")]
    Node(String),
    #[error("these are not one to {MOST_CERTIFICATES} certificates in PEM")]
    Certificates,
    #[error("this is no private key in PEM")]
    Key,
}

impl AuthoritiesOrder {
    /// Each word of it gets into a file or onto a command line.
    ///
    /// # Errors
    /// What is not as it should be.
    pub fn check(&self) -> Result<(), AuthoritiesError> {
        let hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if self.rotation.len() != 16 || !self.rotation.bytes().all(hex) {
            return Err(AuthoritiesError::Rotation(self.rotation.clone()));
        }
        let named = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let inner = |byte: u8| named(byte) || b"-.".contains(&byte);
        let node = self.node.as_bytes();
        let fits = (1..=253).contains(&node.len()) && node.iter().all(|byte| inner(*byte));
        if !fits || !named(node[0]) || !named(node[node.len() - 1]) {
            return Err(AuthoritiesError::Node(self.node.clone()));
        }
        let others = [&self.etcd, &self.front_proxy];
        let all = others.into_iter().flatten().chain([&self.cluster]);
        for authority in all {
            let certificates = certificates(&authority.certificates);
            if !certificates.is_some_and(|all| (1..=MOST_CERTIFICATES).contains(&all.len())) {
                return Err(AuthoritiesError::Certificates);
            }
            if let Some(key) = &authority.key
                && !is_key(key.reveal())
            {
                return Err(AuthoritiesError::Key);
            }
        }
        Ok(())
    }
}

/// Each of them, with a line's end; `None`: something else is between them.
pub fn certificates(pem: &str) -> Option<Vec<String>> {
    if pem.len() > LONGEST_PEM {
        return None;
    }
    let mut found = Vec::new();
    let mut rest = pem.trim();
    while !rest.is_empty() {
        let (body, after) = rest.strip_prefix(BEGIN)?.split_once(END)?;
        if !is_base64(body) {
            return None;
        }
        found.push(format!("{BEGIN}{body}{END}\n"));
        rest = after.trim_start();
    }
    Some(found)
}

/// A kubeconfig that is somebody else's by then: `field` is `certificate-authority-data`, `client-certificate-data` or `client-key-data`. `None`: it does
/// not have that once.
pub fn with_data(kubeconfig: &str, field: &str, content: &str) -> Option<String> {
    replace_behind(kubeconfig, &format!("{field}: "), &STANDARD.encode(content))
}

/// On the only line that has `before`, everything behind that is `value`; `None`: no line has it, or several do.
pub fn replace_behind(text: &str, before: &str, value: &str) -> Option<String> {
    let mut found = 0;
    let mut changed = String::new();
    for line in text.lines() {
        if let Some((start, _)) = line.split_once(before) {
            found += 1;
            changed.extend([start, before, value]);
        } else {
            changed.push_str(line);
        }
        changed.push('\n');
    }
    (found == 1).then_some(changed)
}

fn is_key(pem: &str) -> bool {
    const KINDS: [&str; 3] = ["PRIVATE KEY", "EC PRIVATE KEY", "RSA PRIVATE KEY"];
    let pem = pem.trim();
    let body = KINDS.iter().find_map(|kind| {
        pem.strip_prefix(&format!("-----BEGIN {kind}-----"))?
            .strip_suffix(&format!("-----END {kind}-----"))
    });
    pem.len() <= LONGEST_PEM && body.is_some_and(is_base64)
}

fn is_base64(body: &str) -> bool {
    let letter = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=\r\n".contains(&byte);
    body.starts_with(['\r', '\n']) && body.ends_with('\n') && body.bytes().all(letter)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const ONE: &str = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n";
    const KEY: &str = "-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n";

    fn order(change: impl FnOnce(&mut AuthoritiesOrder)) -> Result<(), String> {
        let mut order = AuthoritiesOrder {
            step: AuthoritiesStep::Issue,
            rotation: "0123456789abcdef".to_owned(),
            node: "node-1.lab".to_owned(),
            hands_over: false,
            cluster: Authority {
                certificates: format!("{ONE}\n{ONE}"),
                key: Some(PrivateKey::new(KEY.to_owned())),
            },
            etcd: None,
            front_proxy: None,
        };
        change(&mut order);
        assert!(!format!("{order:?}").contains("c2VjcmV0"));
        order.check().map_err(|error| error.to_string())
    }

    #[test]
    fn an_order_is_pem_and_names_and_nothing_else() {
        assert_eq!(order(|_| ()), Ok(()));
        for odd in [
            "",
            "0123456789ABCDEF",
            "0123456789abcde",
            "../0123456789abc",
        ] {
            assert!(order(|order| odd.clone_into(&mut order.rotation)).is_err());
        }
        for odd in ["", "-o", "a b", "A", "a.", "a/b"] {
            assert!(order(|order| odd.clone_into(&mut order.node)).is_err());
        }
        let many = ONE.repeat(5);
        for odd in ["", "x", &format!("x{ONE}"), &format!("{ONE}x"), &many] {
            let told = order(|order| odd.clone_into(&mut order.cluster.certificates));
            assert!(told.is_err(), "{odd}");
        }
        for odd in [
            "",
            ONE,
            "-----BEGIN PRIVATE KEY-----\n$(id)\n-----END PRIVATE KEY-----",
        ] {
            let key = Some(PrivateKey::new(odd.to_owned()));
            assert!(order(|order| order.cluster.key = key).is_err(), "{odd}");
        }
    }

    #[test]
    fn a_mark_is_of_one_rotation() {
        let mark = AuthoritiesStep::Kubelet.mark("0123456789abcdef");
        assert_eq!(mark, "kubelet-0123456789abcdef");
        let marked = |of: &str| AuthoritiesStep::marked(&mark, of);
        assert_eq!(marked("0123456789abcdef"), Some(AuthoritiesStep::Kubelet));
        assert_eq!(marked("0123456789abcdee"), None);
        assert!(AuthoritiesStep::Trust < AuthoritiesStep::Forget);
    }

    #[test]
    fn one_line_is_replaced_and_no_other() {
        let text = "a:\n  - client-key-data: eA==\nb\n";
        let changed = with_data(text, "client-key-data", "y");
        assert_eq!(changed.unwrap(), "a:\n  - client-key-data: eQ==\nb\n");
        assert_eq!(with_data(&text.repeat(2), "client-key-data", "y"), None);
        assert_eq!(with_data(text, "client-certificate-data", "y"), None);
    }

    proptest::proptest! {
        #[test]
        fn whatever_a_secret_has_is_certificates_or_nothing(text in "(-----BEGIN CERTIFICATE-----|\n|A|=|-----END CERTIFICATE-----){0,12}") {
            for one in certificates(&text).unwrap_or_default() {
                proptest::prop_assert!(one.starts_with(BEGIN) && one.trim_end().ends_with(END));
                proptest::prop_assert_eq!(one.matches(BEGIN).count(), 1);
            }
        }
    }
}
