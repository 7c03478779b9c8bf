//! What the box orders of an installed server, and what that answers: JSON on standard input and output of
//! `firstlight-bootstrap packages`. The server's side runs as root and checks every word of an order itself
//! ([`Order::parse`]).

use std::{collections::BTreeSet, net::IpAddr};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{
    authorities::{AuthoritiesError, AuthoritiesOrder},
    repository::Repository,
    software::{PackageSpec, PackageState, Presence},
};

/// More than anybody names by hand; keeps a command line within the kernel's limit.
pub const MOST_PACKAGES: usize = 200;
const LONGEST: usize = 256;

/// On the wire an object with one key, `packages`, `restart`, `kubernetes` or `authorities`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum Order {
    /// To look at packages, to install them, or to remove them.
    Packages(PackageOrder),
    /// Only while the server still runs since that start: said twice, it restarts once.
    #[serde(rename_all = "camelCase")]
    Restart {
        /// [`Report::boot_id`] of the start that is to end.
        boot_id: String,
    },
    /// One step of this node's way to another version of Kubernetes.
    Kubernetes(KubernetesOrder),
    /// One step of this node's way to other certificate authorities.
    Authorities(AuthoritiesOrder),
}

/// A step to another version of Kubernetes; done already, it changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KubernetesOrder {
    /// Which one.
    pub step: KubernetesStep,
    /// Of the Debian packages, `1.37.2-1.1+firstlight1`; what is before the hyphen is the version of Kubernetes.
    pub version: String,
    /// Another control plane can answer for the cluster's address while this one changes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hands_over: bool,
    /// As in [`PackageOrder`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repository: Option<Repository>,
}

/// In the order in which they come. Pods run on through the first two, and leave before the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum KubernetesStep {
    /// On the first control plane: its own programs, and what the cluster keeps for all nodes (`kubeadm upgrade apply`).
    Cluster,
    /// On every other node: its control plane, if it is one, and kubelet's configuration (`kubeadm upgrade node`).
    Node,
    /// The kubelet, which starts again.
    Kubelet,
}

impl KubernetesOrder {
    /// As Kubernetes writes it: `v1.37.2`.
    pub fn release(&self) -> String {
        let upstream = self.version.split('-').next().unwrap_or_default();
        format!("v{upstream}")
    }

    /// Everything of it gets onto a command line or into a file.
    fn check(&self) -> Result<(), OrderError> {
        if !is_version(&self.version) || !is_release(&self.release()) {
            let package = "kubeadm".to_owned();
            return Err(OrderError::Version(package, self.version.clone()));
        }
        check_repository(self.repository.as_ref())
    }
}

/// What shall be true of packages of one server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PackageOrder {
    /// Whether they shall be there, in these versions, or not at all.
    pub state: Presence,
    /// 1 to [`MOST_PACKAGES`], each named once.
    pub packages: Vec<PackageSpec>,
    /// Look, and change nothing.
    #[serde(default)]
    pub dry_run: bool,
    /// Where packages come from, and who signs them: another stick brings another key than that of the server's config drive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repository: Option<Repository>,
}

/// What a server says to an order for packages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// As they are at the end, in the order's order.
    pub packages: Vec<PackageReport>,
    /// Something was written.
    pub changed: bool,
    /// Packages asked for a restart (`/run/reboot-required`), these or earlier ones.
    pub reboot_needed: bool,
    /// Of the kernel that runs: another one after each start.
    pub boot_id: String,
}

/// One package of the order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PackageReport {
    /// As in the order.
    pub name: String,
    /// The version that is wanted, or [`crate::software::NONE`].
    pub wanted: String,
    /// The version that is there, or [`crate::software::NONE`].
    pub have: String,
    /// `Ready` if `have` is `wanted`; `Failed` if it was tried in vain; otherwise `Pending`.
    pub state: PackageState,
    /// The line of apt or dpkg that says why not; empty if all is well.
    pub reason: String,
}

/// Why an answer is no report.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum ReportError {
    #[error("this is no report")]
    Form(#[from] serde_json::Error),
    #[error("{0} packages in one report; {MOST_PACKAGES} can be in an order")]
    Count(usize),
    #[error(
        "a name, a version or an ID in it is longer than {LONGEST_WORD} letters or has others than they can have"
    )]
    Word,
}

/// Of a name, a version, an ID.
const LONGEST_WORD: usize = 256;
/// Of a line of apt or dpkg.
const LONGEST_REASON: usize = 500;

impl Report {
    /// What a server says goes into an object and on the page: no more than an order can be about, and reasons are cut.
    pub fn parse(text: &[u8]) -> Result<Self, ReportError> {
        let mut report: Self = serde_json::from_slice(text)?;
        if report.packages.len() > MOST_PACKAGES {
            return Err(ReportError::Count(report.packages.len()));
        }
        let good = |word: &str| word.len() <= LONGEST_WORD && !word.contains(char::is_control);
        let mut all_good = good(&report.boot_id);
        for package in &mut report.packages {
            all_good &= [&package.name, &package.wanted, &package.have]
                .into_iter()
                .all(|word| good(word));
            let printed = package.reason.chars().take(LONGEST_REASON);
            package.reason = printed
                .map(|letter| if letter.is_control() { ' ' } else { letter })
                .collect();
        }
        all_good.then_some(report).ok_or(ReportError::Word)
    }
}

/// Why an order is not carried out.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum OrderError {
    #[error("this is no order")]
    Form(#[from] serde_json::Error),
    #[error("{0} packages in one order; 1 to {MOST_PACKAGES} can be")]
    Count(usize),
    #[error("`{0}` is no name of a Debian package")]
    Name(String),
    #[error("`{1}` is no version of a Debian package ({0})")]
    Version(String, String),
    #[error("{0} is named twice")]
    Twice(String),
    #[error("`{0}` is no address of a box")]
    Host(String),
    #[error(transparent)]
    Authorities(#[from] AuthoritiesError),
}

impl Order {
    /// Nothing gets through that a command line or apt could take for something else than a package and its version.
    pub fn parse(text: &[u8]) -> Result<Self, OrderError> {
        let order: Self = serde_json::from_slice(text)?;
        match &order {
            Self::Packages(order) => order.check()?,
            Self::Kubernetes(order) => order.check()?,
            Self::Authorities(order) => order.check()?,
            Self::Restart { .. } => {}
        }
        Ok(order)
    }
}

impl PackageOrder {
    fn check(&self) -> Result<(), OrderError> {
        let count = self.packages.len();
        if count == 0 || count > MOST_PACKAGES {
            return Err(OrderError::Count(count));
        }
        let mut seen = BTreeSet::new();
        for package in &self.packages {
            let (name, version) = (&package.name, &package.version);
            if !is_name(name) {
                return Err(OrderError::Name(name.clone()));
            }
            let no_matter = self.state == Presence::Absent && version.is_empty();
            if !no_matter && !is_version(version) {
                return Err(OrderError::Version(name.clone(), version.clone()));
            }
            if !seen.insert(name) {
                return Err(OrderError::Twice(name.clone()));
            }
        }
        check_repository(self.repository.as_ref())
    }
}

/// It becomes a line of apt's sources.
fn check_repository(repository: Option<&Repository>) -> Result<(), OrderError> {
    match repository {
        Some(Repository { host, .. }) if host.parse::<IpAddr>().is_err() => {
            Err(OrderError::Host(host.clone()))
        }
        _ => Ok(()),
    }
}

/// Debian Policy 5.6.1. A name that ends in `-` or `+` would be an order of its own for apt, to remove or to install.
pub fn is_name(text: &str) -> bool {
    let bytes = text.as_bytes();
    let plain = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    (2..=LONGEST).contains(&bytes.len())
        && bytes.first().is_some_and(plain)
        && bytes
            .last()
            .is_some_and(|byte| plain(byte) || (*byte == b'+' && text.ends_with("++")))
        && bytes
            .iter()
            .all(|byte| plain(byte) || b"+-.".contains(byte))
}

/// In the metadata of a machine of a cluster: the version of Kubernetes that it joins as, `v1.37.2`.
pub const KUBERNETES_METADATA_KEY: &str = "kubernetes_version";

/// Of Kubernetes: `v1.37.2`.
pub fn is_release(text: &str) -> bool {
    let numbers = text.strip_prefix('v').unwrap_or_default().split('.');
    let is_number = |text: &str| {
        !text.is_empty() && text.len() <= 4 && text.bytes().all(|byte| byte.is_ascii_digit())
    };
    numbers.clone().count() == 3 && numbers.into_iter().all(is_number)
}

/// Debian Policy 5.6.12: `[EPOCH:]UPSTREAM[-REVISION]`.
pub fn is_version(text: &str) -> bool {
    let (epoch, rest) = text.split_once(':').unwrap_or(("0", text));
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b".+-~".contains(&byte);
    text.len() <= LONGEST
        && !epoch.is_empty()
        && epoch.bytes().all(|byte| byte.is_ascii_digit())
        && rest
            .bytes()
            .next()
            .is_some_and(|byte| byte.is_ascii_digit())
        && rest.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_report_is_bounded() {
        let package = |name: &str, reason: &str| PackageReport {
            name: name.to_owned(),
            reason: reason.to_owned(),
            ..PackageReport::default()
        };
        let parse = |packages: Vec<PackageReport>| {
            let report = Report {
                packages,
                ..Report::default()
            };
            Report::parse(&serde_json::to_vec(&report).unwrap())
        };
        let long = "x".repeat(100_000);
        let read = parse(vec![package("htop", &format!("a\u{1b}[2J{long}"))]).unwrap();
        assert!(read.packages[0].reason.starts_with("a [2Jx"));
        assert_eq!(read.packages[0].reason.len(), LONGEST_REASON);
        for name in [&long, "a\nb", "\u{9b}31m"] {
            let refused = parse(vec![package(name, "")]);
            assert!(matches!(refused, Err(ReportError::Word)), "{refused:?}");
        }
        let many = parse(vec![package("htop", ""); MOST_PACKAGES + 1]);
        assert!(matches!(many, Err(ReportError::Count(_))));
    }

    proptest::proptest! {
        #[test]
        fn whatever_a_server_says_is_no_report_or_a_small_one(bytes: Vec<u8>, text: String) {
            proptest::prop_assert!(Report::parse(&bytes).is_err());
            let report = serde_json::json!({
                "packages": [{"name": text, "wanted": "", "have": "", "state": "Ready", "reason": text}],
                "changed": true, "rebootNeeded": false, "bootId": "",
            });
            if let Ok(report) = Report::parse(report.to_string().as_bytes()) {
                proptest::prop_assert!(serde_json::to_vec(&report).unwrap().len() < 4096);
            }
        }

        /// It comes over SSH and is carried out as root.
        #[test]
        fn what_is_ordered_is_names_and_versions_and_nothing_else(
            names in proptest::collection::vec("-{0,2}[a-zA-Z0-9+.:=/$* -]{0,5}|[a-z][a-z0-9]{1,8}", 0..4),
            version in "[0-9a-z.:~+$*/ -]{0,8}|[0-9]{1,3}",
            state in "present|absent|purged",
            host in "172\\.22\\.0\\.1|.{0,10}",
            noise: Vec<u8>,
        ) {
            proptest::prop_assert!(Order::parse(&noise).is_err());
            let packages: Vec<_> = names.iter().map(|name| serde_json::json!({"name": name, "version": version})).collect();
            let repository = serde_json::json!({"host": host, "base": "", "uploads": ""});
            let order = serde_json::json!({"packages": {"state": state, "packages": packages, "repository": repository}});
            let Ok(order) = Order::parse(order.to_string().as_bytes()) else {
                return Ok(());
            };
            let again = Order::parse(&serde_json::to_vec(&order).unwrap()).unwrap();
            proptest::prop_assert_eq!(&again, &order);
            let Order::Packages(order) = order else {
                panic!("no restart was ordered");
            };
            proptest::prop_assert!((1..=MOST_PACKAGES).contains(&order.packages.len()));
            proptest::prop_assert!(host.parse::<std::net::IpAddr>().is_ok());
            for package in order.packages {
                let name = package.name.as_bytes();
                proptest::prop_assert!(name.len() > 1 && name[0].is_ascii_alphanumeric() && !name.ends_with(b"-"));
                let odd = |letter: char| !letter.is_ascii_alphanumeric() && !"+.~:-".contains(letter);
                proptest::prop_assert!(!package.name.contains(odd) && !package.version.contains(odd));
            }
        }
    }

    #[test]
    fn names_and_versions_are_those_of_the_policy() {
        for (name, good) in [
            ("htop", true),
            ("g++", true),
            ("libstdc++6", true),
            ("0ad", true),
            ("x", false),
            ("htop-", false),
            ("htop+", false),
            ("-y", false),
            ("--purge", false),
            ("Htop", false),
            ("htop:amd64", false),
            ("htop=1", false),
            ("a b", false),
            ("a;b", false),
            ("a/stable", false),
        ] {
            assert_eq!(is_name(name), good, "{name}");
        }
        for (version, good) in [
            ("1", true),
            ("1:2.3~rc1+b1-4", true),
            ("2.0+dfsg-1~deb13u1", true),
            ("", false),
            ("a1", false),
            (":1", false),
            ("x:1", false),
            ("1:2:3", false),
            ("1 2", false),
            ("1$(id)", false),
            ("1/2", false),
            ("*", false),
        ] {
            assert_eq!(is_version(version), good, "{version}");
        }
    }

    #[test]
    fn an_order_is_taken_whole_or_not_at_all() {
        let good =
            r#"{"packages":{"state":"present","packages":[{"name":"htop","version":"3.4"}]}}"#;
        let Order::Packages(order) = Order::parse(good.as_bytes()).unwrap() else {
            panic!("{good}");
        };
        assert_eq!(
            (order.dry_run, order.packages[0].name.as_str()),
            (false, "htop")
        );
        for (bad, why) in [
            ("{", "no order"),
            (r#"{"shell":"id"}"#, "no order"),
            (
                r#"{"packages":{"state":"present","packages":[]}}"#,
                "0 packages",
            ),
            (
                r#"{"packages":{"state":"present","packages":[{"name":"htop","version":"1"}],"options":"-y"}}"#,
                "no order",
            ),
            (
                r#"{"packages":{"state":"present","packages":[{"name":"htop","version":"1","file":"/a"}]}}"#,
                "no order",
            ),
            (
                r#"{"packages":{"state":"purged","packages":[{"name":"htop","version":"1"}]}}"#,
                "no order",
            ),
            (
                r#"{"packages":{"state":"present","packages":[{"name":"--help","version":"1"}]}}"#,
                "no name",
            ),
            (
                r#"{"packages":{"state":"present","packages":[{"name":"htop"}]}}"#,
                "no version",
            ),
            (
                r#"{"packages":{"state":"absent","packages":[{"name":"htop"},{"name":"htop"}]}}"#,
                "twice",
            ),
            (
                r#"{"packages":{"state":"present","packages":[{"name":"htop","version":"1"}],"repository":{"host":"a\nTrusted: yes","base":"","uploads":""}}}"#,
                "no address",
            ),
        ] {
            let error = Order::parse(bad.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(why), "{bad}: {error}");
        }
        let absent = r#"{"packages":{"state":"absent","packages":[{"name":"htop"}]}}"#;
        assert!(Order::parse(absent.as_bytes()).is_ok());
        let restart = Order::Restart {
            boot_id: "a".to_owned(),
        };
        let text = serde_json::to_vec(&restart).unwrap();
        assert_eq!(Order::parse(&text).unwrap(), restart);
    }
}
