//! What the box serves on the provisioning network is for that network only: Linux answers for an address on every interface,
//! and the registry listens on all. Ironic goes nowhere else either, but to the BMCs that hosts name ([`Endpoint`]). Ironic and the registry
//! are upstream's programs, which take whatever comes: here is how much of it one address may send them, and how much all that no server
//! is known at.

use std::{collections::BTreeSet, fmt, io::Write, net::Ipv4Addr, process::Stdio};

use anyhow::{Context, Result, ensure};

use crate::pki::NODE_ADDRESS;

/// Ironic's user (overlays/box/usr/lib/sysusers.d, overlays/box/etc/firstlight/firewall.nft).
pub const IRONIC: u32 = 902;
/// Connections of one address to the registry, and as many to Ironic: a node pulls three layers at a time.
pub const MOST_CONNECTIONS: u32 = 32;
/// Connections of all addresses at which no server is known, to the registry and as many to Ironic.
pub const MOST_OF_STRANGERS: u32 = 128;
/// BMCs that Ironic may reach beside those on the provisioning network.
const MOST_BMCS: usize = 1024;
const NFT: &str = "/usr/sbin/nft";
/// What holds wherever the box is; loaded before the agent starts.
const STANDING: &str = "/etc/firstlight/firewall.nft";
const STANDING_TABLE: &str = "table inet firstlight";
pub const TABLE: &str = "table inet firstlight_site";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Transport {
    Tcp,
    Udp,
}

/// Where a BMC listens that a host names: Ironic may go there over any wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Endpoint {
    address: Ipv4Addr,
    transport: Transport,
    port: u16,
}

impl Endpoint {
    /// `None` for what is no IPv4 address of one other machine: a name, the box's Kubernetes, loopback, link-local, many at once.
    pub fn new(host: &str, transport: Transport, port: u16) -> Option<Self> {
        let address: Ipv4Addr = host.parse().ok()?;
        let kubernetes = |of: Ipv4Addr| of.to_bits() >> 10;
        let is_other = !address.is_loopback()
            && !address.is_link_local()
            && (1..224).contains(&address.octets()[0])
            && kubernetes(address) != kubernetes(NODE_ADDRESS);
        is_other.then_some(Self {
            address,
            transport,
            port,
        })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let transport = match self.transport {
            Transport::Tcp => "tcp",
            Transport::Udp => "udp",
        };
        write!(f, "{} . {transport} . {}", self.address, self.port)
    }
}

/// A table of its own beside `/etc/firstlight/firewall.nft`, replaced as a whole. That file keeps Ironic from the box's own addresses,
/// whatever is said here.
pub fn rules(
    address: Ipv4Addr,
    interface: &str,
    bmcs: &BTreeSet<Endpoint>,
    servers: &BTreeSet<Ipv4Addr>,
) -> String {
    // Kernel names have no quotes or spaces (`dev_valid_name`); ours are checked once more before they meet a parser.
    let interface: String = interface
        .chars()
        .filter(|c| c.is_ascii_graphic() && !matches!(c, '"' | '\\'))
        .collect();
    let elements = |all: String| match all.as_str() {
        "" => String::new(),
        all => format!("elements = {{ {all} }};"),
    };
    let named = elements(list(bmcs.iter().take(MOST_BMCS)));
    let servers = elements(list(servers));
    format!(
        "table inet firstlight_site\n\
         delete table inet firstlight_site\n\
         table inet firstlight_site {{\n    \
         set callers {{\n        \
         type ipv4_addr . inet_service; size 65535; flags dynamic;\n    \
         }}\n    \
         set strangers {{\n        \
         type inet_service; size 16; flags dynamic;\n    \
         }}\n    \
         set servers {{\n        \
         type ipv4_addr; {servers}\n    \
         }}\n    \
         set bmcs {{\n        \
         type ipv4_addr . inet_proto . inet_service; {named}\n    \
         }}\n    \
         chain input {{\n        \
         type filter hook input priority filter; policy accept;\n        \
         iifname != \"{interface}\" accept\n        \
         meta nfproto ipv6 tcp dport {{ 5000, 6385 }} drop\n        \
         tcp dport {{ 5000, 6385 }} ct state new add @callers {{ ip saddr . tcp dport ct count over {MOST_CONNECTIONS} }} reject\n        \
         tcp dport {{ 5000, 6385 }} ct state new ip saddr != @servers add @strangers {{ tcp dport ct count over {MOST_OF_STRANGERS} }} reject\n    \
         }}\n    \
         chain prerouting {{\n        \
         type filter hook prerouting priority raw; policy accept;\n        \
         iifname {{ \"lo\", \"box0\", \"cni0\", \"{interface}\" }} accept\n        \
         ip daddr {address} drop\n        \
         fib daddr type local tcp dport 5000 drop\n    \
         }}\n    \
         chain output {{\n        \
         type filter hook output priority filter; policy accept;\n        \
         meta skuid {IRONIC} ip daddr . meta l4proto . th dport @bmcs accept\n        \
         meta skuid {IRONIC} ct state new oifname != {{ \"lo\", \"{interface}\" }} reject\n    \
         }}\n}}\n"
    )
}

fn list(all: impl IntoIterator<Item = impl fmt::Display>) -> String {
    let all: Vec<String> = all.into_iter().map(|one| one.to_string()).collect();
    all.join(", ")
}

/// Servers for which places are kept, instead of those in [`rules`] that stand.
pub fn admission(servers: &BTreeSet<Ipv4Addr>) -> String {
    let nobody = "flush set inet firstlight_site servers\n".to_owned();
    match list(servers).as_str() {
        "" => nobody,
        all => format!("{nobody}add element inet firstlight_site servers {{ {all} }}\n"),
    }
}

/// `rules`, instead of what was there.
pub async fn apply(rules: String) -> Result<()> {
    tokio::task::spawn_blocking(move || load(&rules)).await?
}

/// Puts back what somebody has flushed, as a reload of another firewall does; true if that had to be done. `table`: that of `rules`.
pub async fn restore(rules: String, table: &'static str) -> Result<bool> {
    tokio::task::spawn_blocking(move || restored(STANDING, &rules, table)).await?
}

/// [`restore`] with the file of what holds wherever the box is.
pub fn restored(standing: &str, rules: &str, table: &str) -> Result<bool> {
    let told = std::process::Command::new(NFT)
        .args(["list", "tables"])
        .output()
        .context("starting nft")?;
    let told = String::from_utf8_lossy(&told.stdout);
    let stands = |table: &&str| told.lines().any(|line| line == *table);
    if [STANDING_TABLE, table].iter().all(stands) {
        return Ok(false);
    }
    load(&format!("include \"{standing}\"\n{rules}"))?;
    Ok(true)
}

fn load(rules: &str) -> Result<()> {
    let mut nft = std::process::Command::new(NFT)
        .args(["-f", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context("starting nft")?;
    let mut input = nft.stdin.take().context("nft's input")?;
    input.write_all(rules.as_bytes()).context("telling nft")?;
    drop(input);
    let ended = nft.wait_with_output().context("waiting for nft")?;
    let said = String::from_utf8_lossy(&ended.stderr);
    ensure!(ended.status.success(), "nft: {}", said.trim());
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn nobody_names_the_box_itself_or_many_machines_as_a_bmc() {
        for host in [
            "127.0.0.1",
            "127.8.8.8",
            "0.0.0.0",
            "0.1.2.3",
            "169.254.169.254",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "100.64.0.1",
            "100.64.1.1",
            "100.64.3.255",
            "bmc.example.org",
            "fd00::1",
            "10.0.0.1 . tcp . 22, 10.0.0.2",
            "10.0.0.1/8",
            "10.0.0.1-10.0.0.9",
            "",
        ] {
            assert_eq!(Endpoint::new(host, Transport::Tcp, 443), None, "{host}");
        }
        let endpoint = Endpoint::new("100.64.4.1", Transport::Udp, 623).unwrap();
        assert_eq!(endpoint.to_string(), "100.64.4.1 . udp . 623");
    }

    #[test]
    fn the_rules_name_so_many_bmcs_and_no_more() {
        let all = (0..2000_u32).map(|number| {
            let address = Ipv4Addr::from_bits(0x0a00_0000 + number).to_string();
            Endpoint::new(&address, Transport::Tcp, 443).unwrap()
        });
        let address = Ipv4Addr::new(172, 22, 0, 1);
        let rules = rules(address, "lan0", &all.collect(), &BTreeSet::new());
        assert_eq!(rules.matches(" . tcp . 443").count(), MOST_BMCS);
    }

    proptest! {
        #[test]
        fn whatever_is_named_is_one_address_in_the_rules(host in ".{0,20}|[0-9.]{0,16}|([0-9]{1,3}\\.){3}[0-9]{1,3}") {
            if let Some(endpoint) = Endpoint::new(&host, Transport::Tcp, 443) {
                let address: Ipv4Addr = host.parse().unwrap();
                prop_assert_eq!(endpoint.to_string(), format!("{address} . tcp . 443"));
                prop_assert!(!address.is_loopback() && !address.is_multicast() && !address.is_link_local());
            }
        }
    }
}
