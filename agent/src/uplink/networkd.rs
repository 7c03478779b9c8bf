//! What systemd-networkd is told of the uplink, and what it tells: pure. It keeps to the devices that these files name.

use std::{fmt::Write as _, net::Ipv4Addr};

use firstlight_api::site::{
    networks::{Bond, Carrier},
    uplink::Uplink,
};

/// Of the bond, and of the tagged device, where there is one.
const BOND: &str = "uplink-bond";
const VLAN: &str = "uplink-vlan";
/// Addresses of the uplink that are the same as others of the box lose to them.
const METRIC: u32 = 2048;

/// The device that has the address; `nics`: those of the uplink that are there, by kernel name.
pub fn device<'a>(uplink: &Uplink, nics: &'a [String]) -> Option<&'a str> {
    let first = nics.first()?;
    Some(match (&uplink.carrier, uplink.vlan) {
        (_, Some(_)) => VLAN,
        (Carrier::Bond(_), None) => BOND,
        (Carrier::Nic(_), None) => first,
    })
}

/// Files by name; none without a NIC.
pub fn files(uplink: &Uplink, nics: &[String]) -> Vec<(String, String)> {
    let Some(device) = device(uplink, nics) else {
        return Vec::new();
    };
    let mut files = Vec::new();
    let mut carrier = device;
    if uplink.vlan.is_some() {
        carrier = match &uplink.carrier {
            Carrier::Bond(_) => BOND,
            Carrier::Nic(_) => nics.first().map_or(BOND, String::as_str),
        };
    }
    if let Carrier::Bond(bond) = &uplink.carrier {
        files.push(("10-uplink-bond.netdev".to_owned(), bond_device(bond)));
        for nic in nics {
            let network = format!("[Match]\nName={nic}\n\n[Network]\nBond={BOND}\n{SILENT}");
            files.push((format!("10-uplink-{nic}.network"), network));
        }
    }
    if let Some(tag) = uplink.vlan {
        let netdev = format!("[NetDev]\nName={VLAN}\nKind=vlan\n\n[VLAN]\nId={tag}\n");
        files.push(("20-uplink-vlan.netdev".to_owned(), netdev));
        let link = mtu(uplink);
        let network = format!("[Match]\nName={carrier}\n\n{link}[Network]\nVLAN={VLAN}\n{SILENT}");
        files.push(("20-uplink-carrier.network".to_owned(), network));
    }
    files.push(("30-uplink.network".to_owned(), addressed(uplink, device)));
    files
}

/// The box has no IPv6 of its own, and tells nobody of itself.
const SILENT: &str =
    "LinkLocalAddressing=no\nIPv6AcceptRA=no\nLLDP=no\nConfigureWithoutCarrier=yes\n";

fn mtu(uplink: &Uplink) -> String {
    match uplink.mtu {
        Some(bytes) => format!("[Link]\nMTUBytes={bytes}\n\n"),
        None => String::new(),
    }
}

fn bond_device(bond: &Bond) -> String {
    let mut text = format!(
        "[NetDev]\nName={BOND}\nKind=bond\n\n[Bond]\nMode={}\n",
        bond.mode.word()
    );
    for (parameter, value) in &bond.parameters {
        // Numbers alone are seconds there, and milliseconds in the kernel's documentation.
        let (key, unit) = match parameter.as_str() {
            "ad_select" => ("AdSelect", ""),
            "downdelay" => ("DownDelaySec", "ms"),
            "fail_over_mac" => ("FailOverMACPolicy", ""),
            "lacp_rate" => ("LACPTransmitRate", ""),
            "miimon" => ("MIIMonitorSec", "ms"),
            "min_links" => ("MinLinks", ""),
            "updelay" => ("UpDelaySec", "ms"),
            "xmit_hash_policy" => ("TransmitHashPolicy", ""),
            _ => continue,
        };
        let _ = writeln!(text, "{key}={value}{unit}");
    }
    text
}

fn addressed(uplink: &Uplink, device: &str) -> String {
    let link = mtu(uplink);
    let mut text = format!(
        "[Match]\nName={device}\n\n{link}[Network]\nLinkLocalAddressing=no\nIPv6AcceptRA=no\nLLDP=no\n"
    );
    for server in &uplink.dns {
        let _ = writeln!(text, "DNS={server}");
    }
    for server in &uplink.ntp {
        let _ = writeln!(text, "NTP={server}");
    }
    for domain in &uplink.search {
        let _ = writeln!(text, "Domains={domain}");
    }
    match &uplink.address {
        None => {
            // What a person wrote comes alone. The lease is found again by the NIC, as those of servers are.
            let told = |written: bool| if written { "no" } else { "yes" };
            let _ = write!(
                text,
                "DHCP=ipv4\n\n[DHCPv4]\nClientIdentifier=mac\nSendHostname=no\nUseHostname=no\nUseMTU=no\nUseTimezone=no\nRouteMetric={METRIC}\nUseDNS={}\nUseNTP={}\nUseDomains={}\n",
                told(!uplink.dns.is_empty()),
                told(!uplink.ntp.is_empty()),
                told(!uplink.search.is_empty()),
            );
        }
        Some(fixed) => {
            let _ = write!(
                text,
                "\n[Address]\nAddress={}\nDuplicateAddressDetection=ipv4\nRouteMetric={METRIC}\n",
                fixed.address
            );
            if let Some(gateway) = fixed.gateway {
                let _ = write!(text, "\n[Route]\nGateway={gateway}\nMetric={METRIC}\n");
            }
            for route in &uplink.routes {
                let _ = write!(
                    text,
                    "\n[Route]\nDestination={}\nGateway={}\nMetric={METRIC}\n",
                    route.to, route.via
                );
            }
        }
    }
    text
}

/// What counts on the uplink, of a person's or of the DHCP server's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    pub dns: Vec<Ipv4Addr>,
    pub ntp: Vec<String>,
    pub search: Vec<String>,
}

/// From its file of the device, which it writes for its own library (sd-network), and the stick's version of it does.
/// What a DHCP server told is only let through where it can be nothing else.
pub fn told(state: &str) -> Told {
    let words = |key: &str| {
        let line = state
            .lines()
            .find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        line.unwrap_or_default().split_ascii_whitespace()
    };
    let plain = |word: &&str| {
        word.len() <= 253
            && word
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte))
    };
    Told {
        dns: words("DNS")
            .filter_map(|word| word.parse().ok())
            .take(3)
            .collect(),
        ntp: words("NTP")
            .filter(plain)
            .take(8)
            .map(str::to_owned)
            .collect(),
        search: words("DOMAINS")
            .filter(plain)
            .take(6)
            .map(str::to_owned)
            .collect(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use firstlight_api::site::parse_site;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn nothing_that_is_told_is_more_than_a_word(state in "((DNS|NTP|DOMAINS)=[ -~é\\t]{0,40}\n|[ -~\n]{0,20}){0,6}") {
            let Told { dns, ntp, search } = told(&state);
            prop_assert!(dns.len() <= 3 && ntp.len() <= 8 && search.len() <= 6);
            for word in ntp.iter().chain(&search) {
                prop_assert!(!word.is_empty() && !word.contains(|it: char| !it.is_ascii_alphanumeric() && !".-_".contains(it)));
            }
        }
    }

    fn uplink(text: &str) -> Uplink {
        let site = parse_site(format!("uplink: {{{text}}}")).unwrap();
        site.uplink.unwrap()
    }

    fn shown(text: &str, nics: &[&str]) -> String {
        let nics: Vec<String> = nics.iter().map(|nic| (*nic).to_owned()).collect();
        let files = files(&uplink(text), &nics);
        let files = files.iter().map(|(name, text)| format!("# {name}\n{text}"));
        files.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn a_nic_by_dhcp() {
        let text = shown("nic: enp2s0, ntp: [10.0.0.1]", &["enp2s0"]);
        assert!(text.contains("Name=enp2s0\n"), "{text}");
        assert!(text.contains("DHCP=ipv4\n"), "{text}");
        assert!(text.contains("UseDNS=yes\nUseNTP=no\n"), "{text}");
    }

    #[test]
    fn a_vlan_over_a_bond_with_an_address() {
        let text = shown(
            "bond: 802.3ad, nics: [a0, b0], parameters: {lacp_rate: fast, miimon: 50}, vlan: 20, mtu: 9000, address: 192.0.2.10/24, gateway: 192.0.2.1, \
             routes: [{to: 10.0.0.0/8, via: 192.0.2.2}], dns: [192.0.2.53], search: [site.example]",
            &["a0", "b0"],
        );
        for part in [
            "[NetDev]\nName=uplink-bond\nKind=bond\n\n[Bond]\nMode=802.3ad\nLACPTransmitRate=fast\nMIIMonitorSec=50ms\n",
            "# 10-uplink-b0.network\n[Match]\nName=b0\n\n[Network]\nBond=uplink-bond\n",
            "[VLAN]\nId=20\n",
            "[Match]\nName=uplink-bond\n\n[Link]\nMTUBytes=9000\n\n[Network]\nVLAN=uplink-vlan\n",
            "[Match]\nName=uplink-vlan\n\n[Link]\nMTUBytes=9000\n",
            "[Address]\nAddress=192.0.2.10/24\n",
            "[Route]\nGateway=192.0.2.1\n",
            "[Route]\nDestination=10.0.0.0/8\nGateway=192.0.2.2\n",
            "DNS=192.0.2.53\n",
            "Domains=site.example\n",
        ] {
            assert!(text.contains(part), "{part}\nin\n{text}");
        }
    }

    #[test]
    fn nothing_is_said_of_a_nic_that_is_not_there() {
        assert_eq!(files(&uplink("nic: enp2s0"), &[]), []);
    }

    #[test]
    fn what_a_dhcp_server_tells_is_read_as_names_and_addresses_only() {
        let state = "ADMIN_STATE=configured\nDNS=192.0.2.53 fe80::1 $(reboot)\nNTP=ntp.example 192.0.2.123 a;b\nDOMAINS=site.example \"x\nROUTES=1\n";
        assert_eq!(
            told(state),
            Told {
                dns: vec![Ipv4Addr::new(192, 0, 2, 53)],
                ntp: vec!["ntp.example".to_owned(), "192.0.2.123".to_owned()],
                search: vec!["site.example".to_owned()],
            }
        );
        assert_eq!(told(""), Told::default());
    }
}
