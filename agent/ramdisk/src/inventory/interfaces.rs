//! Network interfaces with hardware behind them, from `/sys/class/net`.

use serde::Serialize;

use super::Link;
use super::disks::is_pci_address;
use super::sys::SysTree;

/// One NIC in ironic-python-agent's field names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Interface {
    pub name: String,
    pub mac_address: String,
    pub ipv4_address: Option<String>,
    pub ipv6_address: Option<String>,
    pub has_carrier: bool,
    /// Never collected: it takes up to 30 s of listening.
    pub lldp: Option<()>,
    /// PCI ids, e.g. `0x8086`.
    pub vendor: Option<String>,
    pub product: Option<String>,
    pub client_id: Option<String>,
    pub biosdevname: Option<String>,
    pub speed_mbps: Option<u64>,
    pub pci_address: Option<String>,
    pub driver: Option<String>,
}

/// All of them, sorted by name.
pub fn read_interfaces(sys: &SysTree, link: &Link) -> Vec<Interface> {
    sys.names("/sys/class/net")
        .iter()
        .filter_map(|name| read_interface(sys, name, link))
        .collect()
}

fn read_interface(sys: &SysTree, name: &str, link: &Link) -> Option<Interface> {
    let dir = format!("/sys/class/net/{name}");
    // `lo`, bridges and tunnels have no device.
    if !sys.exists(&format!("{dir}/device")) {
        return None;
    }
    let text = |file: &str| sys.text(&format!("{dir}/{file}"));
    let mac_address = text("address")?.to_ascii_lowercase();
    if mac_address.split(':').count() != 6 {
        return None;
    }
    let place = sys.canonical(&format!("{dir}/device"));
    let is_boot = mac_address == link.boot_mac;
    Some(Interface {
        name: name.to_owned(),
        ipv4_address: is_boot.then(|| link.address.to_string()),
        mac_address,
        ipv6_address: None,
        has_carrier: text("carrier").as_deref() == Some("1"),
        lldp: None,
        vendor: text("device/vendor"),
        product: text("device/device"),
        client_id: None,
        biosdevname: None,
        // A NIC without a link says -1 or refuses.
        speed_mbps: text("speed")
            .and_then(|s| s.parse().ok())
            .filter(|s| *s > 0),
        pci_address: place.into_iter().rev().find(|part| is_pci_address(part)),
        driver: sys.link_name(&format!("{dir}/device/driver")),
    })
}
