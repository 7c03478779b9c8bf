//! What people are told about DHCP: the mode, and what is wrong with a next action.

use std::net::Ipv4Addr;

use firstlight_api::{
    site::{DhcpRole, Subnet},
    status::{DhcpMode, Problem},
};
use firstlight_netboot::{ClientArch, ForeignServer, MacAddr, Mode, Reason};

/// What the server does, for the page, with the problem that it is, if it is one.
pub fn mode(role: DhcpRole, mode: Mode, own: Subnet) -> (DhcpMode, Option<Problem>) {
    let found = match (role, mode) {
        (DhcpRole::Relay, Mode::Asking | Mode::Alone) => return (DhcpMode::Relay, None),
        (_, Mode::Asking) => return (DhcpMode::Probing, None),
        (DhcpRole::Serve, Mode::Alone) => return (DhcpMode::Serving, None),
        (DhcpRole::Proxy, Mode::Alone) => {
            return (DhcpMode::Proxy { server: None }, Some(nobody()));
        }
        (_, Mode::Beside(found)) => found,
    };
    let server = found.server.to_string();
    let twin = (found.server == own.address()).then(|| twin(found));
    match role {
        DhcpRole::Serve => (
            DhcpMode::Silent { server },
            twin.or_else(|| Some(foreign(found))),
        ),
        DhcpRole::Relay => (DhcpMode::Relay, twin),
        DhcpRole::Proxy => (
            DhcpMode::Proxy {
                server: Some(server),
            },
            twin.or_else(|| elsewhere(found, own)),
        ),
    }
}

fn twin(ForeignServer { server, offered }: ForeignServer) -> Problem {
    Problem {
        what: format!(
            "another box leases addresses on the provisioning network by this box's address {server} (it offered {offered}), so this box leases nothing new"
        ),
        next: "switch one of the two off, or set another `provisioning.address` in the site.yaml of one".to_owned(),
    }
}

fn foreign(ForeignServer { server, offered }: ForeignServer) -> Problem {
    Problem {
        what: format!(
            "{server} leases addresses on the provisioning network (it offered {offered}), so this box answers no server there; leases that it gave before go on"
        ),
        next: "if the cable is in the wrong port, put it into the right one. Otherwise switch the other server off, which the box notices within 6 \
               minutes, or, if that one is to lease the addresses, write `dhcp: proxy` under `provisioning` in site.yaml and start the box again"
            .to_owned(),
    }
}

fn nobody() -> Problem {
    Problem {
        what: "nobody leases addresses on the provisioning network, and by `dhcp: proxy` in site.yaml this box does not either: no server boots"
            .to_owned(),
        next: "switch the site's own DHCP server on, which the box notices within 6 minutes; or take `dhcp` out of site.yaml and start the box again".to_owned(),
    }
}

/// Beside a server whose clients do not reach the box.
fn elsewhere(ForeignServer { server, offered }: ForeignServer, own: Subnet) -> Option<Problem> {
    (!own.has_host(offered)).then(|| Problem {
        what: format!(
            "{server} leases addresses that are not in the box's network {own} (it offered {offered}): servers that boot may not reach the box"
        ),
        next: "set `provisioning.address` in site.yaml to a free address of that server's network, or let it lease addresses of the box's"
            .to_owned(),
    })
}

/// Two machines with one address.
pub fn contested(own: Ipv4Addr, by: MacAddr) -> Problem {
    Problem {
        what: format!(
            "another machine ({by}) has this box's address {own}, perhaps another box: servers reach either of the two"
        ),
        next: "switch one of the two off, or set another `provisioning.address` in the site.yaml of one"
            .to_owned(),
    }
}

/// A machine cannot boot from the stick.
pub fn unsupported(mac: MacAddr, arch: ClientArch) -> Problem {
    Problem {
        what: format!("{mac} cannot boot: {}", Reason::Unsupported(arch)),
        next: "if it is an x86-64 machine, let its firmware boot from the network by 64-bit UEFI, or by BIOS; otherwise \
               switch its network boot off"
            .to_owned(),
    }
}

/// A machine whose firmware uses the other IP.
pub fn by_ipv6(mac: MacAddr) -> Problem {
    Problem {
        what: format!(
            "the firmware of {mac} asks for its network boot by IPv6, by which this box serves nobody"
        ),
        next: "in the setup of its firmware, switch network boot by IPv4 on (PXE or HTTP), and put it in front of IPv6"
            .to_owned(),
    }
}

/// Two machines, and neither is the box.
pub fn duplicate(address: Ipv4Addr, mac: Option<MacAddr>) -> Problem {
    let what = match mac {
        Some(mac) => format!(
            "two machines have the address {address}: {mac} was leased it and found it in use"
        ),
        None => format!("a machine uses {address}, which the box has not leased to it"),
    };
    Problem {
        what,
        next: "give the machine that was configured by hand another address, outside of the ranges of site.yaml; the box leases this one to nobody for an hour"
            .to_owned(),
    }
}

/// A machine starts, and starts again.
pub fn loops(mac: MacAddr, boots: usize) -> Problem {
    Problem {
        what: format!("{mac} booted from the network {boots} times within 30 minutes"),
        next: "look at its screen: if its ramdisk stops, that says why; if its system does not start, its disk may be \
               broken, or missing in the firmware's boot order"
            .to_owned(),
    }
}

/// A network that nobody wrote down.
pub fn unknown_relay(reason: &Reason) -> Problem {
    Problem {
        what: format!("servers behind a router get no address: {reason}"),
        next: "docs/netboot.md says what a relayed network needs; the box reads site.yaml when it starts"
            .to_owned(),
    }
}

/// A client got no address.
pub fn exhausted(mac: MacAddr, reason: &Reason) -> Problem {
    Problem {
        what: format!("{mac} got no address: {reason}"),
        next: "set a larger `range` for that network under `provisioning` in site.yaml and start the box again, or switch off what nobody needs: \
               addresses are free again a few hours later"
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_page_says_what_the_server_does_and_what_is_wrong() {
        let own: Subnet = "172.22.0.1/24".parse().unwrap();
        let beside = |server: [u8; 4], offered: [u8; 4]| {
            Mode::Beside(ForeignServer {
                server: server.into(),
                offered: offered.into(),
            })
        };
        let (near, far) = ([172, 22, 0, 254], [10, 0, 0, 1]);
        let server = || Some("172.22.0.254".to_owned());
        for (role, mode_now, shown, problem) in [
            (DhcpRole::Serve, Mode::Alone, DhcpMode::Serving, ""),
            (
                DhcpRole::Serve,
                beside(near, near),
                DhcpMode::Silent {
                    server: server().unwrap(),
                },
                "answers no server there",
            ),
            (
                DhcpRole::Proxy,
                Mode::Alone,
                DhcpMode::Proxy { server: None },
                "nobody leases addresses",
            ),
            (
                DhcpRole::Proxy,
                beside(near, near),
                DhcpMode::Proxy { server: server() },
                "",
            ),
            (
                DhcpRole::Proxy,
                beside(near, far),
                DhcpMode::Proxy { server: server() },
                "not in the box's network",
            ),
            (DhcpRole::Relay, beside(near, near), DhcpMode::Relay, ""),
            // Another box takes nothing from what a person has said.
            (
                DhcpRole::Relay,
                beside([172, 22, 0, 1], near),
                DhcpMode::Relay,
                "another box",
            ),
            (
                DhcpRole::Proxy,
                beside([172, 22, 0, 1], near),
                DhcpMode::Proxy {
                    server: Some("172.22.0.1".to_owned()),
                },
                "another box",
            ),
        ] {
            let (told, why) = mode(role, mode_now, own);
            assert_eq!(told, shown);
            let why = why.map(|why| why.what).unwrap_or_default();
            assert!(
                why.contains(problem) && why.is_empty() == problem.is_empty(),
                "{why}"
            );
        }
    }
}
