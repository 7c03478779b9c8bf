//! The key `uplink`.

use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
};

use super::{
    Fields, Walk,
    networks::{machine_in, mtu, overlapping, said, vlan},
    value::{parse_address, parse_box_address, parse_interface},
};
use crate::site::{
    HostName, InterfaceChoice, SiteConfig, ValueError,
    networks::{Carrier, NicChoice},
    schema,
    uplink::{API_PORT, FixedUplink, Uplink},
    yaml::{Node, Value},
};

/// Of clusters whose API is shown outside.
const MOST_CLUSTERS: usize = 32;

impl Walk {
    /// After the networks that it may not overlap.
    pub(super) fn uplink(&mut self, fields: &Fields<'_>, site: &SiteConfig) -> Option<Uplink> {
        let node = fields.get("uplink")?;
        let fields = said(self.fields(node, schema::UPLINK_KEYS, "`uplink`"));
        if !matches!(node.value, Value::Map(_)) {
            return None;
        }
        let carrier = self.carrier(node, &fields, "`uplink`", "enp2s0");
        if let Some(carrier) = &carrier {
            self.own_nics(node, carrier, site);
        }
        let address = self.fixed_uplink(&fields, site);
        if address.is_none() && !fields.contains_key("address") {
            for key in ["gateway", "routes"] {
                if let Some(node) = fields.get(key) {
                    let message = format!(
                        "`{key}` is told by the DHCP server of the uplink; give it an `address`, or take `{key}` out"
                    );
                    self.report(node.place, message);
                }
            }
        }
        let network = address.map(|fixed| fixed.network());
        let router = |text: &str| {
            let address = parse_address(text)?;
            let inside = network.map_or(Ok(address), |network| {
                machine_in(network, "the uplink", address)
            });
            inside.map(IpAddr::V4)
        };
        let time_server = |text: &str| {
            if text.contains(':') {
                return Err(ValueError(
                    "the uplink has IPv4 only; name a time server that it reaches so".to_owned(),
                ));
            }
            text.parse()
        };
        let uplink = Uplink {
            carrier: carrier?,
            vlan: self.value(&fields, "vlan", vlan),
            mtu: self.value(&fields, "mtu", mtu),
            address,
            dns: self.all(&fields, "dns", parse_address),
            search: self.all(&fields, "search", str::parse),
            ntp: self.all(&fields, "ntp", time_server),
            routes: self.routes(
                &fields,
                "the route to everywhere is that of `gateway`",
                router,
            ),
            routing: self
                .value(&fields, "routing", str::parse)
                .unwrap_or_default(),
            clusters: self.clusters(&fields, site),
        };
        Some(uplink)
    }

    fn fixed_uplink(&mut self, fields: &Fields<'_>, site: &SiteConfig) -> Option<FixedUplink> {
        let address = self.value(fields, "address", parse_box_address)?;
        let mut fixed = FixedUplink {
            address,
            gateway: None,
        };
        let network = fixed.network();
        if let Some(other) = overlapping(network, site) {
            let message = format!(
                "{network} of the uplink overlaps {other}; the box could not tell them apart, so change one of them"
            );
            self.report(fields["address"].place, message);
        }
        fixed.gateway = self.value(fields, "gateway", |text| {
            let gateway = machine_in(network, "the uplink", parse_address(text)?)?;
            if gateway == address.address() {
                return Err(ValueError(
                    "this is the box's own address; name the router, or leave `gateway` out"
                        .to_owned(),
                ));
            }
            Ok(gateway)
        });
        Some(fixed)
    }

    /// The uplink is no NIC that servers boot from, and none that only a server has.
    fn own_nics(&mut self, node: &Node, carrier: &Carrier, site: &SiteConfig) {
        for nic in carrier.nics() {
            let taken = match (nic, &site.provisioning.interface) {
                (NicChoice::Boot, _) => {
                    let message = "`boot` is a NIC of a server; name the box's own by its kernel name or MAC address";
                    self.report(node.place, message);
                    continue;
                }
                (NicChoice::Name(name), _) if parse_interface(name).is_err() => {
                    let message =
                        format!("{name} is internal to the box; name the NIC that the cable is in");
                    self.report(node.place, message);
                    continue;
                }
                (NicChoice::Mac(mac), InterfaceChoice::Mac(other)) => mac == other,
                (NicChoice::Name(name), InterfaceChoice::Name(other)) => name == other,
                _ => false,
            };
            if taken {
                let message = format!(
                    "{nic} is the NIC of `provisioning`; the uplink needs another one, so that nothing that boots servers gets out"
                );
                self.report(node.place, message);
            }
        }
    }

    fn clusters(&mut self, fields: &Fields<'_>, site: &SiteConfig) -> BTreeMap<String, u16> {
        let Some(node) = fields.get("clusters") else {
            return BTreeMap::from([(site.name.to_string(), API_PORT)]);
        };
        let Value::Map(entries) = &node.value else {
            let message = "`clusters` has the names of clusters as keys and ports as values, such as `edge: 6444`";
            self.report(node.place, message);
            return BTreeMap::new();
        };
        if entries.len() > MOST_CLUSTERS {
            let message = format!("the uplink shows at most {MOST_CLUSTERS} clusters");
            self.report(node.place, message);
        }
        let mut ports: HashMap<u16, &str> = HashMap::new();
        let mut clusters = BTreeMap::new();
        for (key, node) in entries {
            let name = key.name.as_str();
            if HostName::parse(name).is_err() {
                let message = format!("`{name}` cannot be the name of a cluster");
                self.report(key.place, message);
            }
            let Some(port) = self.scalar(node, port) else {
                continue;
            };
            if let Some(other) = ports.insert(port, name) {
                let message =
                    format!("the port {port} is that of the cluster {other}; choose another one");
                self.report(node.place, message);
            }
            if clusters.insert(name.to_owned(), port).is_some() {
                self.report(key.place, format!("the cluster {name} is given twice"));
            }
        }
        clusters
    }
}

/// Lower ones are the box's own: SSH and the page.
fn port(text: &str) -> Result<u16, ValueError> {
    let port = text.parse().ok().filter(|port| *port >= 1024);
    port.ok_or_else(|| {
        ValueError(format!(
            "`{text}` is no port for a cluster's API; it is a number from 1024 to 65535, such as {API_PORT}"
        ))
    })
}
