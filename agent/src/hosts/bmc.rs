//! The BMC that an object names: how it is reached, and what Ironic is told of it. Pure.
//!
//! To add a way of speaking to BMCs: its schemes in [`Protocol::of`], its `driver_info` in [`Bmc::driver`], and its hardware type in
//! `ironic/ironic.conf`.

use std::net::Ipv4Addr;

use firstlight_api::{
    bmh::{BareMetalHostSpec, BmcDetails, BootMode},
    status::Problem,
};
use firstlight_ironic::{Driver, PowerOff};
use http::uri::Authority;
use serde_json::json;
use sha2::{Digest, Sha256};

use super::{rmcp, store::Secret};
use crate::network::firewall::{Endpoint, Transport};

/// Of an address, and of what a Secret holds.
const LONGEST: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Ipmi,
    /// With the scheme of its HTTP.
    Redfish(&'static str, Start),
}

/// How a BMC brings its server into the ramdisk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    Network,
    /// In its virtual drive.
    Cd,
}

impl Start {
    /// As in "it starts from …".
    pub fn named(self) -> &'static str {
        match self {
            Self::Network => "the network",
            Self::Cd => "a virtual CD",
        }
    }
}

impl Protocol {
    fn of(scheme: &str) -> Option<Self> {
        let is_bare = !scheme.contains('+');
        let (scheme, http) = scheme.split_once('+').unwrap_or((scheme, "https"));
        let http = match http {
            "https" => "https",
            "http" => "http",
            _ => return None,
        };
        match scheme {
            "ipmi" | "libvirt" if is_bare => Some(Self::Ipmi),
            "redfish" => Some(Self::Redfish(http, Start::Network)),
            // Metal3 speaks to an iLO 5 as to any other.
            "redfish-virtualmedia" | "ilo5-virtualmedia" => Some(Self::Redfish(http, Start::Cd)),
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
        return Err(wrong(if scheme.starts_with("idrac-virtualmedia") {
            "asks a Dell BMC for virtual media, which is started there by orders of Dell's own that the box does not give; by Redfish it \
             starts the server from the network"
        } else {
            "names a way of speaking to BMCs that the box does not have; most that speak it speak Redfish, too"
        }));
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

/// The BMC that a host names, if it can be used for that host; `None`: it names none.
pub fn of(spec: &BareMetalHostSpec) -> Option<Result<Bmc, Problem>> {
    let details = spec.bmc.as_ref();
    let bmc = read(details.filter(|details| !details.address.is_empty())?);
    Some(bmc.and_then(|bmc| {
        if bmc.start() == Start::Cd && spec.boot_mode == Some(BootMode::Legacy) {
            return Err(Problem {
                what: "`spec.bootMode` is `legacy`, and the box's virtual CD starts UEFI firmware only".to_owned(),
                next: "set the firmware and `bootMode` to UEFI, or leave `-virtualmedia` out of `spec.bmc.address`: it is started from the network then"
                    .to_owned(),
            });
        }
        Ok(bmc)
    }))
}

impl Bmc {
    /// Host and port, where it can be asked whether it is there.
    pub fn door(&self) -> (Transport, &str, u16) {
        (self.transport(), self.host(), self.port())
    }

    /// Where Ironic goes to speak to it, if that is named by an address of which there is no doubt.
    pub fn endpoint(&self) -> Option<Endpoint> {
        Endpoint::new(self.host(), self.transport(), self.port())
    }

    pub fn start(&self) -> Start {
        match self.protocol {
            Protocol::Ipmi => Start::Network,
            Protocol::Redfish(_, start) => start,
        }
    }

    /// If it is named by one.
    pub fn address(&self) -> Option<Ipv4Addr> {
        self.host().parse().ok()
    }

    fn host(&self) -> &str {
        self.at.host().trim_matches(['[', ']'])
    }

    fn port(&self) -> u16 {
        self.at.port_u16().unwrap_or(match self.protocol {
            Protocol::Ipmi => rmcp::PORT,
            Protocol::Redfish("http", _) => 80,
            Protocol::Redfish(..) => 443,
        })
    }

    fn transport(&self) -> Transport {
        match self.protocol {
            Protocol::Ipmi => Transport::Udp,
            Protocol::Redfish(..) => Transport::Tcp,
        }
    }

    /// As Ironic is told. `named`: the Secret, for people.
    pub fn driver(
        &self,
        named: &str,
        secret: &Secret,
        power_off: PowerOff,
    ) -> Result<Driver, Problem> {
        let (user, password) = (
            word(named, secret, "username")?,
            word(named, secret, "password")?,
        );
        Ok(match self.protocol {
            Protocol::Ipmi => {
                let mut info = json!({
                    "ipmi_address": self.host(),
                    "ipmi_port": self.port(),
                    "ipmi_username": user,
                    "ipmi_password": password,
                });
                if let Some(privilege) = &self.privilege {
                    info["ipmi_priv_level"] = json!(privilege);
                }
                Driver::Bmc {
                    name: "ipmi",
                    info,
                    power_off,
                }
            }
            Protocol::Redfish(http, _) => {
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
                    power_off,
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
    if let Some(problem) = of_cd(error).filter(|_| !says(&["code 401"])) {
        return problem;
    }
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
    problem(
        &cut(format!("Ironic cannot use its BMC: {error}")),
        "look whether the BMC answers, and whether `spec.bmc` is right",
    )
}

/// The same of a BMC that has just answered the box.
pub fn explained_of_heard(error: &str) -> Problem {
    if !error.contains("IPMI call failed") {
        return explained(error);
    }
    Problem {
        what: "its BMC answers by IPMI, but does not let the user of its Secret in".to_owned(),
        next: "put the right user and password into the Secret that `spec.bmc.credentialsName` names, and look on the BMC's own page whether that user \
               may use IPMI over LAN, as an administrator or with the `privilegelevel` of the address; the box tries again by itself"
            .to_owned(),
    }
}

/// What went wrong with the virtual CD, if that is what Ironic speaks of.
fn of_cd(error: &str) -> Option<Problem> {
    let is_put_in = error.contains("Could not attach device");
    if !is_put_in && !error.contains("Could not detach device") {
        return None;
    }
    // The sentence that Ironic's own library has for what is missing, and Ironic's.
    let missing = [
        "attribute VirtualMedia",
        "attribute Links/ManagedBy",
        "No suitable virtual media device",
    ];
    let is_missing = missing.iter().any(|words| error.contains(words));
    let again = "the box tries again by itself";
    Some(if is_missing {
        Problem {
            what: "its BMC has no virtual CD drive that takes an image by HTTP".to_owned(),
            next: format!(
                "look whether it needs a licence for virtual media, or leave `-virtualmedia` out of `spec.bmc.address`: the server is started from \
                 the network then; {again}"
            ),
        }
    } else if is_put_in {
        Problem {
            what: cut(format!(
                "its BMC does not take the box's virtual CD: {error}"
            )),
            next: format!(
                "look whether the BMC has a way to the box's address on the provisioning network, port 80, and a licence for virtual media; {again}"
            ),
        }
    } else {
        Problem {
            what: cut(format!(
                "its BMC does not give the virtual CD back: {error}"
            )),
            next: format!(
                "take it out on the BMC's own page: the server may start from it again; {again}"
            ),
        }
    })
}

fn cut(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(2 * LONGEST) {
        text.truncate(end);
    }
    text
}

/// As the object says.
pub fn power_off(spec: &BareMetalHostSpec) -> PowerOff {
    if spec.disable_power_off {
        PowerOff::Disabled
    } else {
        PowerOff::Allowed
    }
}

/// Changes with all that Ironic is told; `version` of the Secret, as far as it is known.
pub fn mark(details: &BmcDetails, power_off: PowerOff, version: Option<&str>) -> String {
    let said = json!([
        details.address,
        details.credentials_name,
        details.disable_certificate_verification,
        power_off == PowerOff::Disabled,
        version,
    ]);
    let digest = Sha256::digest(said.to_string());
    firstlight_artifacts::hex(&digest[..8])
}

#[cfg(test)]
mod tests;
