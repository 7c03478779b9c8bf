//! What people are told of the uplink: pure.

use firstlight_api::{
    site::{Ipv4Network, Subnet, networks::NicChoice},
    status::Problem,
};

use crate::network::choose::{Link, list_nics};

pub fn installed() -> Problem {
    Problem {
        what: "`uplink` in site.yaml does nothing on a machine that Firstlight was installed on: its network is its operator's".to_owned(),
        next: "take `uplink` out of site.yaml, and configure the machine as its system does".to_owned(),
    }
}

pub fn failed(error: &anyhow::Error) -> Problem {
    Problem {
        what: format!("the uplink cannot be set up: {error:#}"),
        next: "the box tries again every few seconds; check `uplink` in site.yaml".to_owned(),
    }
}

pub fn missing(named: &NicChoice, links: &[Link]) -> Problem {
    Problem {
        what: format!(
            "the NIC {named} of `uplink` in site.yaml is not there; found {}",
            list_nics(links)
        ),
        next: "name one of these in site.yaml and start the box again, or put the card back"
            .to_owned(),
    }
}

pub fn taken(name: &str) -> Problem {
    Problem {
        what: format!("{name} is the provisioning NIC, and the uplink needs another one"),
        next: "name two NICs in site.yaml, one as `interface` of `provisioning` and one as `nic` of `uplink`, and start the box again".to_owned(),
    }
}

pub fn no_cable(nics: &[&Link]) -> Problem {
    let names: Vec<_> = nics.iter().map(|link| link.name.as_str()).collect();
    Problem {
        what: format!("the uplink has no link at {}", names.join(", ")),
        next: "put in its cable, and look at the switch's port; the box goes on by itself"
            .to_owned(),
    }
}

pub fn no_address(device: &str, wanted: Option<Subnet>) -> Problem {
    match wanted {
        None => Problem {
            what: format!("no DHCP server gives the uplink an address at {device}"),
            next: "look at the cable and the VLAN of the switch's port, or give `uplink` an `address` in site.yaml; the box asks again by itself"
                .to_owned(),
        },
        Some(wanted) => Problem {
            what: format!("the uplink has not got its address {wanted} at {device}: another machine may have it"),
            next: "switch that machine off, or choose another `address` for `uplink` in site.yaml; then start the box again".to_owned(),
        },
    }
}

pub fn overlap(address: Subnet, other: Ipv4Network) -> Problem {
    Problem {
        what: format!(
            "the DHCP server of the uplink gives the address {address}, which is in the site's own network {other}: the box does not use it"
        ),
        next: "the cable may be in the provisioning network; otherwise choose another network for the site in site.yaml".to_owned(),
    }
}
