//! `network_data.json` of a server, by its layout. cloud-init finds NICs by their addresses, and names bonds and VLANs itself.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use firstlight_api::{
    bmh::HardwareDetails,
    site::{
        Layout, SiteConfig,
        networks::{Addresses, Carrier, Fixed, NicChoice, PROVISIONING, SiteLink},
    },
};
use firstlight_netboot::MacAddr;
use serde_json::{Map, Value, json};

use crate::capi::site_networks::Family;

/// Of Ethernet, where nobody says anything else.
const USUAL_MTU: u16 = 1500;

/// The address of each NIC of each link, or which is not there.
pub fn nics(
    layout: &Layout,
    boot: MacAddr,
    hardware: &HardwareDetails,
) -> Result<Vec<Vec<MacAddr>>, String> {
    let find = |choice: &NicChoice| {
        let mut all = hardware.nics.iter();
        let found = match choice {
            NicChoice::Boot => return Ok(boot),
            NicChoice::Mac(mac) => all.find(|nic| nic.mac.parse() == Ok(*mac)),
            NicChoice::Name(name) => all.find(|nic| nic.name == *name),
        };
        found.and_then(|nic| nic.mac.parse().ok()).ok_or_else(|| {
            let names = hardware.nics.iter();
            let names = names.map(|nic| format!("{} ({})", nic.name, nic.mac));
            let names: Vec<String> = names.collect();
            format!(
                "`links` of site.yaml name the NIC {choice}, and this server has {}",
                names.join(", ")
            )
        })
    };
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for link in &layout.links {
        let mut macs = Vec::new();
        for choice in link.carrier.nics() {
            let mac = find(choice)?;
            if !seen.insert(mac) {
                return Err(format!(
                    "`links` of site.yaml name the NIC {mac} of this server twice, once as {choice}"
                ));
            }
            macs.push(mac);
        }
        found.push(macs);
    }
    Ok(found)
}

/// `addresses`: by network, where the box gives them.
pub fn network_data(
    site: &SiteConfig,
    layout: &Layout,
    boot: MacAddr,
    hardware: &HardwareDetails,
    addresses: &BTreeMap<(String, Family), IpAddr>,
) -> Result<Value, String> {
    let nics = nics(layout, boot, hardware)?;
    let (mut links, mut networks) = (Vec::new(), Vec::new());
    for (number, (link, nics)) in layout.links.iter().zip(&nics).enumerate() {
        let id = format!("link{number}");
        // The box knows the server by the NIC that it boots from.
        let mac = if nics.contains(&boot) { boot } else { nics[0] };
        let mtu = link.networks.iter().filter_map(|name| mtu(site, name));
        let mtu = mtu.max();
        links.extend(carrier(&id, link, nics, mac, mtu));
        for name in &link.networks {
            let network = site.networks.get(name);
            let vlan = network.and_then(|network| network.vlan);
            let on = vlan.map_or_else(|| id.clone(), |vlan| format!("{id}-{vlan}"));
            if let Some(vlan) = vlan {
                let mut value = json!({
                    "id": on, "type": "vlan", "vlan_id": vlan, "vlan_link": id, "vlan_mac_address": mac.to_string(),
                });
                // A VLAN that says nothing would have that of the NIC.
                if mtu.is_some() {
                    value["mtu"] = json!(self::mtu(site, name).unwrap_or(USUAL_MTU));
                }
                links.push(value);
            }
            let is_default = layout.default_route.as_ref() == Some(name);
            match network.map(|network| &network.addresses) {
                None => networks.push(json!({"id": PROVISIONING, "link": on, "type": "ipv4_dhcp"})),
                Some(Addresses::Theirs) => {
                    networks.push(json!({"id": name, "link": on, "type": "ipv4_dhcp"}));
                }
                Some(Addresses::Fixed(fixed)) => {
                    for family in Family::all_of(fixed) {
                        let address = addresses.get(&(name.clone(), family));
                        let address =
                            address.ok_or_else(|| format!("it has no address on {name} yet"))?;
                        networks.push(fixed_network(name, &on, fixed, *address, is_default));
                    }
                }
            }
        }
    }
    Ok(json!({"links": links, "networks": networks, "services": []}))
}

/// Is `made` what site.yaml says now, whatever the addresses are?
pub fn is_current(
    site: &SiteConfig,
    layout: &Layout,
    boot: MacAddr,
    hardware: &HardwareDetails,
    made: &Value,
) -> bool {
    let networks = made["networks"].as_array().into_iter().flatten();
    let addresses = networks.filter_map(|network| {
        let address: IpAddr = network["ip_address"].as_str()?.parse().ok()?;
        let id = network["id"].as_str()?;
        Some(match id.strip_suffix(Family::Ipv6.suffix()) {
            Some(name) => ((name.to_owned(), Family::Ipv6), address),
            None => ((id.to_owned(), Family::Ipv4), address),
        })
    });
    network_data(site, layout, boot, hardware, &addresses.collect()).as_ref() == Ok(made)
}

fn mtu(site: &SiteConfig, network: &str) -> Option<u16> {
    site.networks.get(network)?.mtu
}

/// The NIC, or the bond with its NICs.
fn carrier(
    id: &str,
    link: &SiteLink,
    nics: &[MacAddr],
    mac: MacAddr,
    mtu: Option<u16>,
) -> Vec<Value> {
    let physical = |id: &str, mac: MacAddr| {
        let mut value = Map::new();
        value.insert("id".to_owned(), json!(id));
        value.insert("type".to_owned(), json!("phy"));
        value.insert("ethernet_mac_address".to_owned(), json!(mac.to_string()));
        value.extend(mtu.map(|mtu| ("mtu".to_owned(), json!(mtu))));
        Value::Object(value)
    };
    let Carrier::Bond(bond) = &link.carrier else {
        return vec![physical(id, mac)];
    };
    let ids: Vec<String> = (0..nics.len())
        .map(|nic| format!("{id}-nic{nic}"))
        .collect();
    let mut all: Vec<Value> = ids
        .iter()
        .zip(nics)
        .map(|(id, mac)| physical(id, *mac))
        .collect();
    let mut value = physical(id, mac);
    value["type"] = json!("bond");
    value["bond_mode"] = json!(bond.mode.word());
    value["bond_links"] = json!(ids);
    for (name, setting) in &bond.parameters {
        value[format!("bond_{name}")] = json!(setting);
    }
    all.push(value);
    all
}

/// A network is named once for each family.
fn fixed_network(
    name: &str,
    link: &str,
    fixed: &Fixed,
    address: IpAddr,
    is_default: bool,
) -> Value {
    let is_same_family = |other: &IpAddr| other.is_ipv4() == address.is_ipv4();
    let (id, kind, netmask, gateway) = match (address, fixed.ipv6) {
        (IpAddr::V6(_), Some(ipv6)) => (
            format!("{name}{}", Family::Ipv6.suffix()),
            "ipv6",
            IpAddr::V6(ipv6.subnet.netmask()),
            ipv6.gateway.map(IpAddr::V6),
        ),
        _ => (
            name.to_owned(),
            "ipv4",
            IpAddr::V4(fixed.subnet.netmask()),
            fixed.gateway.map(IpAddr::V4),
        ),
    };
    let routes = fixed.routes.iter().filter(|it| is_same_family(&it.via));
    let routes = routes.map(|it| route(it.to.network(), it.to.netmask(), it.via));
    let mut routes: Vec<Value> = routes.collect();
    let everywhere = match address {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let gateway = gateway.filter(|_| is_default);
    routes.extend(gateway.map(|gateway| route(everywhere, everywhere, gateway)));
    let service = |kind: &str, address: String| json!({"type": kind, "address": address});
    let dns = fixed.dns.iter().filter(|it| is_same_family(it));
    let dns = dns.map(|it| service("dns", it.to_string()));
    // By name, they are of no family.
    let ntp = fixed.ntp.iter().filter(|_| address.is_ipv4());
    let ntp = ntp.map(|it| service("ntp", it.to_string()));
    let services: Vec<Value> = dns.chain(ntp).collect();
    let search: Vec<String> = fixed.search.iter().map(ToString::to_string).collect();
    json!({
        "id": id, "link": link, "type": kind, "ip_address": address, "netmask": netmask,
        "routes": routes, "services": services, "dns_search": search,
    })
}

fn route(to: IpAddr, netmask: IpAddr, via: IpAddr) -> Value {
    json!({"network": to, "netmask": netmask, "gateway": via})
}
