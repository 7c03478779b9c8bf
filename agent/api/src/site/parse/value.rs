//! The single values of `site.yaml`: text to type, with a sentence that says what to write instead.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddrV4};

use super::super::{
    DhcpRole, InterfaceChoice, Ipv4Network, JoinPolicy, MeasuredBoot, RootOfTrust, Subnet,
    ValueError,
};

pub fn boolean(text: &str) -> Result<bool, ValueError> {
    text.parse()
        .map_err(|_| ValueError(format!("`{text}` is neither true nor false")))
}

/// With the port of syslog, if none is said.
pub fn parse_log_host(text: &str) -> Result<SocketAddrV4, ValueError> {
    let whole = if text.contains(':') {
        text.to_owned()
    } else {
        format!("{text}:514")
    };
    let host = whole.parse::<SocketAddrV4>().ok();
    let is_host = |host: &SocketAddrV4| {
        let address = host.ip();
        host.port() > 0
            && !address.is_unspecified()
            && !address.is_loopback()
            && !address.is_multicast()
            && !address.is_broadcast()
    };
    host.filter(is_host).ok_or_else(|| {
        ValueError(format!(
            "`{text}` is no log host; write the IPv4 address of a syslog server that listens over TCP, like 10.20.0.9 or 10.20.0.9:6514"
        ))
    })
}

pub fn parse_join(text: &str) -> Result<JoinPolicy, ValueError> {
    match text {
        "open" => Ok(JoinPolicy::Open),
        "approve" => Ok(JoinPolicy::Approve),
        "named" => Ok(JoinPolicy::Named),
        _ => Err(ValueError(format!(
            "`{text}` is no rule for newcomers; use open (every server that boots from the network), approve (those whose \
             code a person has compared) or named (those in `hosts`)"
        ))),
    }
}

pub fn parse_measured_boot(text: &str) -> Result<MeasuredBoot, ValueError> {
    match text {
        "compare" => Ok(MeasuredBoot::Compare),
        "required" => Ok(MeasuredBoot::Required),
        "ignore" => Ok(MeasuredBoot::Ignore),
        _ => Err(ValueError(format!(
            "`{text}` says nothing of measured boot; use compare (a server that was started by something else is not believed), \
             required (nobody is believed who does not show how it was started) or ignore"
        ))),
    }
}

pub fn parse_seal(text: &str) -> Result<RootOfTrust, ValueError> {
    match text {
        "tpm" => Ok(RootOfTrust::Tpm),
        "none" => Ok(RootOfTrust::None),
        _ => Err(ValueError(format!(
            "`{text}` keeps no key of the state partition; use tpm (the machine's TPM 2, where it has one) or none (whoever has the stick can read it)"
        ))),
    }
}

pub fn parse_dhcp(text: &str) -> Result<DhcpRole, ValueError> {
    match text {
        "serve" => Ok(DhcpRole::Serve),
        "proxy" => Ok(DhcpRole::Proxy),
        "relay" => Ok(DhcpRole::Relay),
        _ => Err(ValueError(format!(
            "`{text}` is nothing that the box's DHCP does; use serve (it leases addresses, unless another server does), proxy (it \
             gives boot information beside the site's own server) or relay (it answers what relay agents of `relayed` forward)"
        ))),
    }
}

pub fn parse_interface(text: &str) -> Result<InterfaceChoice, ValueError> {
    if text == "auto" {
        return Ok(InterfaceChoice::Auto);
    }
    if is_like_mac(text) {
        return text.parse().map(InterfaceChoice::Mac);
    }
    if matches!(text, "lo" | "box0" | "cni0") {
        return Err(ValueError(format!(
            "`{text}` is internal to the box; use auto, or the NIC that the servers are connected to"
        )));
    }
    parse_interface_name(text).map(InterfaceChoice::Name)
}

/// And no name of an interface, which somebody may have meant as little.
pub fn is_like_mac(text: &str) -> bool {
    text.contains(':') || text.matches('-').count() == 5
}

pub fn parse_interface_name(text: &str) -> Result<String, ValueError> {
    // What the kernel allows (dev_valid_name in net/core/dev.c), and none that the box makes for itself.
    let wrong = text.is_empty() || text.len() > 15 || matches!(text, "." | "..");
    if wrong
        || text.contains(|letter: char| {
            letter == '/' || letter.is_whitespace() || !letter.is_ascii_graphic()
        })
    {
        return Err(ValueError(format!(
            "`{text}` cannot be an interface; use auto, a kernel name such as enp1s0, or a MAC address"
        )));
    }
    Ok(text.to_owned())
}

pub fn parse_addon(text: &str) -> Result<String, ValueError> {
    let good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if text.is_empty() || text.len() > 53 || !text.bytes().all(good) || text.starts_with('-') {
        return Err(ValueError(format!(
            "`{text}` is no addon; it is the name of a folder in /usr/share/firstlight/addons on the box, e.g. metrics-server"
        )));
    }
    Ok(text.to_owned())
}

/// Debian's rule for names of packages (Debian Policy 5.6.7).
pub fn parse_package(text: &str) -> Result<String, ValueError> {
    let good =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"+-.".contains(&byte);
    let begins =
        text.starts_with(|first: char| first.is_ascii_lowercase() || first.is_ascii_digit());
    // The signs at the end are orders to apt: to remove, to install.
    if text.len() < 2 || !begins || !text.bytes().all(good) || text.ends_with('-') {
        return Err(ValueError(format!(
            "`{text}` is no name of a Debian package; it is written like htop, without a version"
        )));
    }
    Ok(text.to_owned())
}

/// The box's Kubernetes has this for itself, see docs/reference.md.
fn inner() -> Ipv4Network {
    Ipv4Network::around(Ipv4Addr::new(100, 64, 0, 0), 22)
}

/// A network of the site, by its first address.
pub fn parse_network(text: &str) -> Result<Ipv4Network, ValueError> {
    let network: Ipv4Network = text.parse()?;
    if !(8..=30).contains(&network.prefix()) {
        return Err(ValueError(format!(
            "a prefix length of {} is not possible here; use 8 to 30, for example {}/24",
            network.prefix(),
            network.first()
        )));
    }
    if network.overlaps(&inner()) {
        return Err(ValueError(format!(
            "{network} overlaps {}, which the box uses inside; use another network",
            inner()
        )));
    }
    Ok(network)
}

/// Of either family.
pub fn parse_any_address(text: &str) -> Result<IpAddr, ValueError> {
    text.parse().map_err(|_| {
        ValueError(format!(
            "`{text}` is not an IP address; write it like 172.22.0.254 or fd00:20::1"
        ))
    })
}

pub fn parse_ipv6_address(text: &str) -> Result<Ipv6Addr, ValueError> {
    text.parse().map_err(|_| {
        ValueError(format!(
            "`{text}` is not an IPv6 address; write it like fd00:20::1"
        ))
    })
}

pub fn parse_address(text: &str) -> Result<Ipv4Addr, ValueError> {
    text.parse().map_err(|_| {
        ValueError(format!(
            "`{text}` is not an IPv4 address; write it like 172.22.0.254"
        ))
    })
}

pub fn parse_box_address(text: &str) -> Result<Subnet, ValueError> {
    let net: Subnet = text.parse()?;
    if Ipv4Network::around(net.address(), net.prefix()).overlaps(&inner()) {
        return Err(ValueError(format!(
            "{net} overlaps 100.64.0.0/22, which the box uses inside; use a private network such as 172.22.0.1/24"
        )));
    }
    Ok(net)
}
