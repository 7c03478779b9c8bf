//! The BMC that an object names: how it is reached, and what Ironic is told of it. Pure.
//!
//! To add a way of speaking to BMCs: its schemes in [`Protocol::of`], its `driver_info` in [`Bmc::driver`], and its hardware type in
//! `ironic/ironic.conf`.

use firstlight_api::{bmh::BmcDetails, status::Problem};
use firstlight_ironic::Driver;
use http::uri::Authority;
use serde_json::json;
use sha2::{Digest, Sha256};

use super::store::Secret;

/// Of an address, and of what a Secret holds.
const LONGEST: usize = 256;
const IPMI_PORT: u16 = 623;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Ipmi,
    /// With the scheme of its HTTP.
    Redfish(&'static str),
}

impl Protocol {
    fn of(scheme: &str) -> Option<Self> {
        match scheme {
            "ipmi" | "libvirt" => Some(Self::Ipmi),
            "redfish" | "redfish+https" | "redfish-virtualmedia" | "redfish-virtualmedia+https" => {
                Some(Self::Redfish("https"))
            }
            "redfish+http" | "redfish-virtualmedia+http" => Some(Self::Redfish("http")),
            _ => None,
        }
    }
}

/// Where it is and what it speaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bmc {
    protocol: Protocol,
    at: Authority,
    /// Of Redfish: the system that is meant; empty if there is only one.
    system: String,
    /// Of IPMI.
    privilege: Option<String>,
    verify: bool,
}

/// Metal3 takes an address without a scheme for IPMI.
pub fn read(details: &BmcDetails) -> Result<Bmc, Problem> {
    let address = details.address.trim();
    let wrong = |why: &str| Problem {
        what: format!(
            "`{}` in `spec.bmc.address` {why}",
            address.chars().take(LONGEST).collect::<String>()
        ),
        next: "write it as redfish://ADDRESS/redfish/v1/Systems/ID or ipmi://ADDRESS".to_owned(),
    };
    if address.len() > LONGEST {
        return Err(wrong("is too long"));
    }
    let (scheme, rest) = address.split_once("://").unwrap_or(("ipmi", address));
    let Some(protocol) = Protocol::of(scheme) else {
        let why = "names a way of speaking to BMCs that the box does not have; most that speak it speak Redfish, too";
        return Err(wrong(why));
    };
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let end = rest.find('/').unwrap_or(rest.len());
    let (at, system) = rest.split_at(end);
    if at.contains('@') {
        return Err(wrong(
            "has a user in it: that belongs into the Secret of `credentialsName`",
        ));
    }
    let at: Authority = at.parse().map_err(|_| wrong("is no address"))?;
    let port = at.as_str().strip_prefix(at.host()).unwrap_or_default();
    if at.host().is_empty() || (!port.is_empty() && at.port_u16().is_none()) {
        return Err(wrong("is no address"));
    }
    if details.credentials_name.is_empty() {
        return Err(Problem {
            what: "`spec.bmc` names no `credentialsName`".to_owned(),
            next: "make a Secret with `username` and `password` beside the host, and name it there"
                .to_owned(),
        });
    }
    let privilege = query.split('&').find_map(|pair| {
        let (key, value) = pair.split_once('=')?;
        (key == "privilegelevel").then(|| value.to_owned())
    });
    Ok(Bmc {
        protocol,
        at,
        system: system.trim_end_matches('/').to_owned(),
        privilege,
        verify: !details.disable_certificate_verification,
    })
}

impl Bmc {
    /// Host and port, where a connection shows that somebody is there.
    pub fn door(&self) -> Option<(&str, u16)> {
        let Protocol::Redfish(http) = self.protocol else {
            return None;
        };
        let port = if http == "http" { 80 } else { 443 };
        let host = self.at.host().trim_matches(['[', ']']);
        Some((host, self.at.port_u16().unwrap_or(port)))
    }

    /// As Ironic is told. `named`: the Secret, for people.
    pub fn driver(&self, named: &str, secret: &Secret) -> Result<Driver, Problem> {
        let (user, password) = (
            word(named, secret, "username")?,
            word(named, secret, "password")?,
        );
        Ok(match self.protocol {
            Protocol::Ipmi => {
                let mut info = json!({
                    "ipmi_address": self.at.host().trim_matches(['[', ']']),
                    "ipmi_port": self.at.port_u16().unwrap_or(IPMI_PORT),
                    "ipmi_username": user,
                    "ipmi_password": password,
                });
                if let Some(privilege) = &self.privilege {
                    info["ipmi_priv_level"] = json!(privilege);
                }
                Driver::Bmc { name: "ipmi", info }
            }
            Protocol::Redfish(http) => {
                let mut info = json!({
                    "redfish_address": format!("{http}://{}", self.at),
                    "redfish_username": user,
                    "redfish_password": password,
                    "redfish_verify_ca": self.verify,
                });
                if !self.system.is_empty() {
                    info["redfish_system_id"] = json!(self.system);
                }
                Driver::Bmc {
                    name: "redfish",
                    info,
                }
            }
        })
    }
}

fn word<'a>(named: &str, secret: &'a Secret, key: &str) -> Result<&'a str, Problem> {
    let wrong = |why: &str| Problem {
        what: format!("the Secret {named}, which `spec.bmc.credentialsName` names, {why}"),
        next: format!(
            "make it with `kubectl create secret generic {named} --from-literal=username=… --from-literal=password=…`, in the host's namespace"
        ),
    };
    let Some(bytes) = secret.get(key).filter(|bytes| !bytes.is_empty()) else {
        return Err(wrong(&format!("has no `{key}`")));
    };
    let text = std::str::from_utf8(bytes).ok();
    let text = text.filter(|text| text.len() <= LONGEST && !text.contains(char::is_control));
    text.ok_or_else(|| {
        wrong(&format!(
            "has a `{key}` that is no word of one line; a line break at its end counts"
        ))
    })
}

/// What Ironic says of a BMC that it cannot use, for people.
pub fn explained(error: &str) -> Problem {
    let problem = |what: &str, next: &str| Problem {
        what: what.to_owned(),
        next: format!("{next}; the box tries again by itself"),
    };
    let says = |words: &[&str]| words.iter().any(|word| error.contains(word));
    if says(&["code 401", "code 403", "username or password"]) {
        return problem(
            "its BMC refuses the user and the password of the Secret that `spec.bmc.credentialsName` names",
            "put the right ones into the Secret",
        );
    }
    if says(&["CERTIFICATE_VERIFY_FAILED"]) {
        return problem(
            "its BMC has a certificate that nobody has signed whom the box knows",
            "set `spec.bmc.disableCertificateVerification: true`, or give the BMC another certificate",
        );
    }
    if says(&["IPMI call failed"]) {
        return problem(
            "its BMC does not answer by IPMI, or refuses the user and the password of its Secret",
            "look whether IPMI over LAN is switched on there, and whether address, user and password are right",
        );
    }
    let mut what = format!("Ironic cannot use its BMC: {error}");
    if let Some((end, _)) = what.char_indices().nth(2 * LONGEST) {
        what.truncate(end);
    }
    problem(
        &what,
        "look whether the BMC answers, and whether `spec.bmc` is right",
    )
}

/// Changes with all that Ironic is told; `version` of the Secret, as far as it is known.
pub fn mark(details: &BmcDetails, version: Option<&str>) -> String {
    let said = json!([
        details.address,
        details.credentials_name,
        details.disable_certificate_verification,
        version,
    ]);
    let digest = Sha256::digest(said.to_string());
    firstlight_artifacts::hex(&digest[..8])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    fn details(address: &str) -> BmcDetails {
        BmcDetails {
            address: address.to_owned(),
            credentials_name: "n1-bmc".to_owned(),
            disable_certificate_verification: false,
        }
    }

    fn secret(pairs: &[(&str, &str)]) -> Secret {
        let pairs = pairs.iter();
        pairs
            .map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec()))
            .collect()
    }

    fn told(address: &str) -> (&'static str, Value) {
        let secret = secret(&[("username", "admin"), ("password", "hunter2")]);
        match read(&details(address)).unwrap().driver("n1-bmc", &secret) {
            Ok(Driver::Bmc { name, info }) => (name, info),
            other => panic!("{address}: {other:?}"),
        }
    }

    #[test]
    fn each_form_of_an_address_is_told_to_ironic_as_metal3_tells_it() {
        let redfish = |address: &str, system: Option<&str>| {
            let mut info = json!({
                "redfish_address": address, "redfish_username": "admin", "redfish_password": "hunter2",
                "redfish_verify_ca": true,
            });
            if let Some(system) = system {
                info["redfish_system_id"] = json!(system);
            }
            ("redfish", info)
        };
        let ipmi = |address: &str, port: u16| {
            let info = json!({
                "ipmi_address": address, "ipmi_port": port, "ipmi_username": "admin", "ipmi_password": "hunter2",
            });
            ("ipmi", info)
        };
        let system = Some("/redfish/v1/Systems/1");
        for (address, expected) in [
            (
                "redfish://10.0.0.1/redfish/v1/Systems/1",
                redfish("https://10.0.0.1", system),
            ),
            ("redfish://10.0.0.1", redfish("https://10.0.0.1", None)),
            (
                "redfish+http://bmc:8000/redfish/v1/Systems/1/",
                redfish("http://bmc:8000", system),
            ),
            (
                "redfish+https://[fd00::1]:8443/redfish/v1/Systems/1",
                redfish("https://[fd00::1]:8443", system),
            ),
            (
                "redfish-virtualmedia+http://bmc/redfish/v1/Systems/1",
                redfish("http://bmc", system),
            ),
            ("ipmi://10.0.0.1", ipmi("10.0.0.1", 623)),
            ("ipmi://10.0.0.1:6230", ipmi("10.0.0.1", 6230)),
            ("10.0.0.1:6230", ipmi("10.0.0.1", 6230)),
            ("bmc.example.org", ipmi("bmc.example.org", 623)),
            ("ipmi://[fd00::1]:6230", ipmi("fd00::1", 6230)),
            ("libvirt://10.0.0.1:6230/", ipmi("10.0.0.1", 6230)),
        ] {
            assert_eq!(told(address), expected, "{address}");
        }
        let (_, info) = told("ipmi://10.0.0.1?privilegelevel=OPERATOR");
        assert_eq!(info["ipmi_priv_level"], "OPERATOR");
        let mut unchecked = details("redfish://10.0.0.1");
        unchecked.disable_certificate_verification = true;
        assert!(!read(&unchecked).unwrap().verify);
    }

    #[test]
    fn what_cannot_be_used_is_refused_with_a_sentence() {
        for (address, why) in [
            ("idrac-virtualmedia://10.0.0.1/x", "speak Redfish, too"),
            ("ilo4://10.0.0.1", "does not have"),
            (
                "redfish://admin:hunter2@10.0.0.1/x",
                "belongs into the Secret",
            ),
            ("redfish:///redfish/v1", "is no address"),
            ("ipmi://10.0.0.1:99999", "is no address"),
            ("ipmi://", "is no address"),
        ] {
            let said = read(&details(address)).unwrap_err().what;
            assert!(said.contains(why), "{address}: {said}");
        }
        let mut nameless = details("ipmi://10.0.0.1");
        nameless.credentials_name.clear();
        assert!(
            read(&nameless)
                .unwrap_err()
                .what
                .contains("credentialsName")
        );
        let bmc = read(&details("ipmi://10.0.0.1")).unwrap();
        for (held, why) in [
            (&[("username", "admin")][..], "has no `password`"),
            (&[("username", ""), ("password", "x")], "has no `username`"),
            (
                &[("username", "admin"), ("password", "hunter2\n")],
                "line break",
            ),
        ] {
            let said = bmc.driver("n1-bmc", &secret(held)).unwrap_err();
            assert!(
                said.what.contains(why) && !said.what.contains("hunter2"),
                "{said:?}"
            );
        }
    }

    #[test]
    fn what_ironic_says_is_explained_as_far_as_it_is_known() {
        for (error, what) in [
            (
                "HTTP GET https://x returned code 401. Base.1.0.GeneralError",
                "refuses the user",
            ),
            (
                "(Caused by SSLError(1, '[SSL: CERTIFICATE_VERIFY_FAILED]",
                "certificate",
            ),
            (
                "Failed to get power state. Error: IPMI call failed: power status.",
                "by IPMI",
            ),
            ("something else", "something else"),
        ] {
            assert!(explained(error).what.contains(what), "{error}");
        }
        assert!(explained(&"x".repeat(2000)).what.len() < 600);
    }

    #[test]
    fn another_password_is_another_mark() {
        let one = details("ipmi://10.0.0.1");
        let marks = [
            mark(&one, None),
            mark(&one, Some("7")),
            mark(&one, Some("8")),
            mark(&details("ipmi://10.0.0.2"), Some("8")),
        ];
        let different: std::collections::BTreeSet<_> = marks.iter().collect();
        assert_eq!(different.len(), marks.len());
        assert_eq!(mark(&one, Some("7")), marks[1]);
    }

    proptest! {
        #[test]
        fn any_address_is_understood_or_refused(address in ".{0,40}|(redfish|ipmi)(\\+http)?://.{0,40}") {
            match read(&details(&address)) {
                Ok(bmc) => prop_assert!(!bmc.at.host().is_empty()),
                Err(problem) => prop_assert!(problem.what.chars().count() < 700),
            }
        }
    }
}
