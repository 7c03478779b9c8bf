//! What people are told about DHCP: the mode, and what is wrong with a next action.

use std::net::Ipv4Addr;

use firstlight_api::status::{DhcpMode, Problem};
use firstlight_netboot::{ClientArch, ForeignServer, MacAddr, Mode, Reason};

/// The mode on the page, with the problem that it is, if it is one.
pub fn mode(mode: Mode, own: Ipv4Addr) -> (DhcpMode, Option<Problem>) {
    let ForeignServer { server, offered } = match mode {
        Mode::Asking => return (DhcpMode::Probing, None),
        Mode::Serve => return (DhcpMode::Serving, None),
        Mode::Proxy(foreign) => foreign,
    };
    let problem = if server == own {
        Problem {
            what: format!(
                "another box leases addresses on the provisioning network by this box's address {own} (it offered {offered}), so this box leases nothing new"
            ),
            next: "switch one of the two off, or set another `provisioning.address` in the site.yaml of one".to_owned(),
        }
    } else {
        Problem {
            what: format!(
                "{server} leases addresses on the provisioning network (it offered {offered}), so this box gives boot information only; leases that it gave before go on"
            ),
            next: "to let the box lease addresses, switch the other server off; the box notices within 6 minutes. \
                   Otherwise make sure that its addresses are in the box's network"
                .to_owned(),
        }
    };
    let server = server.to_string();
    (DhcpMode::Proxy { server }, Some(problem))
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
