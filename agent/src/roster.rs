//! Servers that were heard of, as the page lists them while nothing more is known: seen by DHCP, reported by a ramdisk.
//!
//! Used by the hosts controller for hosts that are not its own yet. Pure; times are uptime.

use std::{collections::BTreeMap, net::Ipv4Addr, time::Duration};

use firstlight_api::{
    report::Report,
    site::{self, SiteConfig},
    status::{HostState, HostStatus},
};
use firstlight_netboot::{ClientArch, MacAddr};

/// As many as a person can look at; a flood of invented MACs fills no memory.
const MOST: usize = 1024;

/// All servers heard of, by the NIC that they boot from.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Roster {
    hosts: BTreeMap<MacAddr, HostStatus>,
}

impl Roster {
    /// A DHCP request. Only firmware and boot loaders make a server known: a laptop on the segment is none.
    pub fn dhcp(
        &mut self,
        site: &SiteConfig,
        mac: MacAddr,
        arch: Option<ClientArch>,
        address: Option<Ipv4Addr>,
        now: Duration,
    ) {
        let known =
            self.hosts.contains_key(&mac) || site.host(site::MacAddr(mac.octets())).is_some();
        if arch.is_none() && !known {
            return;
        }
        let Some(host) = self.entry(site, mac, now) else {
            return;
        };
        if let Some(address) = address {
            host.address = address.to_string();
        }
        if let Some(arch) = arch {
            host.step = format!("booting from the network ({arch})");
        }
    }

    pub fn report(&mut self, site: &SiteConfig, mac: MacAddr, report: &Report, now: Duration) {
        let Some(host) = self.entry(site, mac, now) else {
            return;
        };
        if report.address.parse::<Ipv4Addr>().is_ok() {
            host.address.clone_from(&report.address);
        }
        "in the ramdisk".clone_into(&mut host.step);
    }

    fn entry(&mut self, site: &SiteConfig, mac: MacAddr, now: Duration) -> Option<&mut HostStatus> {
        if !self.hosts.contains_key(&mac) && self.hosts.len() >= MOST {
            return None;
        }
        Some(self.hosts.entry(mac).or_insert_with(|| HostStatus {
            name: site.host_name(site::MacAddr(mac.octets())).to_string(),
            mac: mac.to_string(),
            state: HostState::Discovered,
            since: now.as_secs_f64(),
            ..HostStatus::default()
        }))
    }

    pub fn hosts(&self) -> Vec<HostStatus> {
        self.hosts.values().cloned().collect()
    }
}
