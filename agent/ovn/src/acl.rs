//! A rule of a network as OVN's matching language has it.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::kinds::{Acl, Direction, Ports, Protocol, Verdict};

/// Of the first rule; the next ones have less.
const HIGHEST: usize = 2000;

/// What `ovn-nbctl acl-add` wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub direction: &'static str,
    pub priority: usize,
    pub text: String,
    pub verdict: &'static str,
}

/// `ports` are the names of those that the rule is about. None: nobody is there whom it could be about.
pub fn row(acl: &Acl, index: usize, ports: &[&str]) -> Option<Row> {
    if ports.is_empty() {
        return None;
    }
    let (direction, of, other) = match acl.direction {
        Direction::In => ("to-lport", "outport", "src"),
        Direction::Out => ("from-lport", "inport", "dst"),
    };
    let names: Vec<String> = ports.iter().map(|port| format!("\"{port}\"")).collect();
    // Not about ARP: who is closed may ask others still, and has to find them.
    let mut terms = vec![format!("{of} == {{{}}}", names.join(", ")), "ip".to_owned()];
    terms.extend(one_of(&peers(&acl.peers, other)));
    match acl.protocol {
        Some(Protocol::Icmp) => terms.push("(icmp4 || icmp6)".to_owned()),
        Some(protocol) if acl.ports.is_empty() => terms.push(name(protocol).to_owned()),
        Some(protocol) => {
            let name = name(protocol);
            let of_range = |range: std::ops::RangeInclusive<u16>| {
                let (first, last) = range.into_inner();
                if first == last {
                    format!("{name}.dst == {first}")
                } else {
                    format!("({name}.dst >= {first} && {name}.dst <= {last})")
                }
            };
            let ranges = acl.ports.iter().filter_map(Ports::range);
            terms.extend(one_of(&ranges.map(of_range).collect::<Vec<_>>()));
        }
        None => {}
    }
    Some(Row {
        direction,
        priority: HIGHEST - index,
        text: terms.join(" && "),
        verdict: match acl.action {
            Verdict::Allow => "allow-related",
            Verdict::Drop => "drop",
            Verdict::Reject => "reject",
        },
    })
}

fn one_of(terms: &[String]) -> Option<String> {
    match terms {
        [] => None,
        [one] => Some(one.clone()),
        _ => Some(format!("({})", terms.join(" || "))),
    }
}

fn peers(peers: &[IpNet], side: &str) -> Vec<String> {
    let term = |peer: &IpNet| {
        let family = match peer.addr() {
            IpAddr::V4(_) => "ip4",
            IpAddr::V6(_) => "ip6",
        };
        format!("{family}.{side} == {peer}")
    };
    peers.iter().map(|peer| term(&peer.trunc())).collect()
}

fn name(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Tcp => "tcp",
        Protocol::Udp => "udp",
        Protocol::Sctp => "sctp",
        Protocol::Icmp => "icmp",
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    #[test]
    fn a_rule_is_a_match_of_ports_peers_and_protocol() {
        for (acl, direction, text) in [
            (
                json!({"action": "drop", "direction": "in"}),
                "to-lport",
                r#"outport == {"a/p", "a/q"} && ip"#,
            ),
            (
                json!({"action": "allow", "direction": "out", "peers": ["10.0.0.7/24"], "protocol": "icmp"}),
                "from-lport",
                r#"inport == {"a/p", "a/q"} && ip && ip4.dst == 10.0.0.0/24 && (icmp4 || icmp6)"#,
            ),
            (
                json!({"action": "reject", "direction": "in", "peers": ["10.0.0.1/32", "fd00::/64"], "protocol": "tcp", "ports": [80, "8000-8080"]}),
                "to-lport",
                r#"outport == {"a/p", "a/q"} && ip && (ip4.src == 10.0.0.1/32 || ip6.src == fd00::/64) && (tcp.dst == 80 || (tcp.dst >= 8000 && tcp.dst <= 8080))"#,
            ),
        ] {
            let acl: Acl = serde_json::from_value(acl).unwrap();
            let row = row(&acl, 3, &["a/p", "a/q"]).unwrap();
            assert_eq!(
                (row.direction, row.priority, &*row.text),
                (direction, 1997, text)
            );
        }
        let all = serde_json::from_value(json!({"action": "drop", "direction": "in"})).unwrap();
        assert_eq!(row(&all, 0, &[]), None);
    }
}
