//! What comes in by the uplink, and what goes through the box: a table of its own, replaced as a whole. Pure.

use std::{collections::BTreeMap, fmt::Write as _, net::SocketAddrV4};

use firstlight_api::site::{Ipv4Network, uplink::Routing};

pub const TABLE: &str = "table inet firstlight_uplink";
/// On connections that the box lets through: to a cluster's API, and of servers that go out. `/etc/firstlight/firewall.nft`, which is
/// nobody's router otherwise, knows both.
const TO_CLUSTER: u32 = 0x0f17;
const OUT: u32 = 0x0f18;

/// What is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Openings {
    /// The uplink's device. Kernel names have no quotes or spaces, and site.yaml lets no others through.
    pub device: String,
    pub routing: Routing,
    /// The provisioning NIC and the networks behind it, once there is one.
    pub inside: Option<(String, Vec<Ipv4Network>)>,
    /// Ports here, and APIs of clusters there.
    pub clusters: BTreeMap<u16, SocketAddrV4>,
}

/// All of the table.
pub fn rules(openings: &Openings) -> String {
    let Openings {
        device,
        routing,
        inside,
        clusters,
    } = openings;
    let mut to_clusters = String::new();
    for (port, api) in clusters {
        let _ = writeln!(
            to_clusters,
            "        iifname \"{device}\" fib daddr type local tcp dport {port} ct mark set {TO_CLUSTER} dnat ip to {}:{}",
            api.ip(),
            api.port()
        );
    }
    let mut out = String::new();
    if let (Routing::Nat, Some((interface, networks))) = (routing, inside) {
        let networks: Vec<String> = networks.iter().map(ToString::to_string).collect();
        let _ = writeln!(
            out,
            "        iifname \"{interface}\" ip saddr {{ {} }} ct state new ct mark set {OUT}",
            networks.join(", ")
        );
    }
    format!(
        "{TABLE}\n\
         delete {TABLE}\n\
         {TABLE} {{\n    \
         chain input {{\n        \
         type filter hook input priority filter; policy accept;\n        \
         iifname != \"{device}\" accept\n        \
         ct state established,related accept\n        \
         ip protocol icmp accept\n        \
         udp sport 67 udp dport 68 accept\n        \
         tcp dport {{ 22, 80 }} accept\n        \
         drop\n    \
         }}\n    \
         chain out {{\n        \
         type filter hook prerouting priority mangle; policy accept;\n{out}    \
         }}\n    \
         chain prerouting {{\n        \
         type nat hook prerouting priority dstnat; policy accept;\n{to_clusters}    \
         }}\n    \
         chain forward {{\n        \
         type filter hook forward priority filter; policy accept;\n        \
         ct mark {OUT} ct direction original oifname != \"{device}\" drop\n    \
         }}\n    \
         chain postrouting {{\n        \
         type nat hook postrouting priority srcnat; policy accept;\n        \
         ct mark {{ {TO_CLUSTER}, {OUT} }} masquerade\n    \
         }}\n}}\n"
    )
}
