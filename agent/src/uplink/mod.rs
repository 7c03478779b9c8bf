//! The box's own way to the rest of the customer's network, as `uplink` of site.yaml says. systemd-networkd makes the devices and speaks DHCP;
//! units of the box load what is written for it (overlays/box: firstlight-uplink).
//!
//! `networkd` is what it is told and tells (pure), `firewall` what may come and go there (pure), `tell` what people are told (pure), [`run`] the loop:
//! look, close, write, look again, tell. Must not: serve anything. Others wait for what is published.

pub mod firewall;
mod networkd;
mod tell;

use std::{
    collections::BTreeMap,
    fs, io,
    net::{Ipv4Addr, SocketAddrV4},
    path::Path,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result};
use firstlight_api::{
    site::{Ipv4Network, RelayedNetwork, SiteConfig, Subnet, Uplink},
    status::{ClusterStatus, Problem, SiteStatus, UplinkStatus},
};
use futures_util::StreamExt;
use rtnetlink::{Handle, MulticastGroup, new_connection, new_multicast_connection};
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{
    capi,
    files::{self, Access},
    network::{
        Segment,
        choose::{Link, is_nic},
        firewall as nft, link,
    },
    options::BoxForm,
    paths::Paths,
    pki::NODE_ADDRESS,
    status::{StatusSender, Update},
};
use firewall::Openings;
use networkd::Told;

/// Clusters come and go, and what a DHCP server tells reaches us by a file.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// A device with a carrier that has no address for so long is a problem: networkd's DHCP client has asked four times then, and spanning
/// tree has opened the port.
const PATIENCE: Duration = Duration::from_mins(1);
/// A link takes some seconds to come up.
const DARK: Duration = Duration::from_secs(10);
/// Whoever reloads a firewall of their own may flush ours.
const GUARD_AGAIN: Duration = Duration::from_mins(5);
const SOURCE: &str = "uplink";

/// What the uplink is made of.
pub struct Facts {
    pub site: watch::Receiver<Option<Arc<SiteConfig>>>,
    pub segment: watch::Receiver<Option<Segment>>,
    /// For where clusters' APIs are.
    pub shown: watch::Receiver<SiteStatus>,
}

/// What others are told.
pub struct Published {
    /// The uplink as it is configured now.
    pub outside: watch::Sender<Option<Segment>>,
    /// That the box, and servers behind it, may ask.
    pub name_servers: watch::Sender<Vec<Ipv4Addr>>,
}

/// Keeps the uplink as site.yaml says until `stop`.
pub async fn run(
    paths: Paths,
    form: BoxForm,
    mut facts: Facts,
    status: StatusSender,
    published: Published,
    stop: CancellationToken,
) -> Result<()> {
    let site = tokio::select! {
        site = facts.site.wait_for(Option::is_some) => site?.clone(),
        () = stop.cancelled() => return Ok(()),
    };
    let Some(site) = site else { return Ok(()) };
    let Some(uplink) = site.uplink.clone() else {
        // Of an agent that ran before this one, with another site.yaml.
        if form == BoxForm::Box {
            write_files(&paths.networkd(), &[])?;
        }
        stop.cancelled().await;
        return Ok(());
    };
    if form == BoxForm::Installed {
        status.problems(SOURCE, vec![tell::installed()]);
        stop.cancelled().await;
        return Ok(());
    }
    // As in the room `network`: who hears must not be who asks.
    let (heard, _hearing, mut events) =
        new_multicast_connection(&[MulticastGroup::Link, MulticastGroup::Ipv4Ifaddr])
            .context("opening a netlink socket")?;
    let (asked, handle, _) = new_connection().context("opening a netlink socket")?;
    let sockets = [tokio::spawn(heard), tokio::spawn(asked)];
    let mut keeper = Keeper {
        paths,
        site,
        uplink,
        status,
        published,
        openings: None,
        guarded: Instant::now(),
        dark: None,
        without: None,
        told: None,
        shown: None,
        problems: None,
    };
    loop {
        let segment = facts.segment.borrow_and_update().clone();
        let clusters = clusters(&keeper.site, &keeper.uplink, &facts.shown.borrow().clusters);
        let (seen, problems) = match keeper.turn(&handle, segment, clusters).await {
            Ok(turned) => turned,
            Err(error) => (None, vec![tell::failed(&error)]),
        };
        keeper.publish(seen, problems);
        tokio::select! {
            () = stop.cancelled() => break,
            () = tokio::time::sleep(LOOK_AGAIN) => {}
            changed = facts.segment.changed() => changed?,
            event = events.next() => anyhow::ensure!(event.is_some(), "the netlink socket was closed"),
        }
        while futures_util::FutureExt::now_or_never(events.next())
            .flatten()
            .is_some()
        {}
    }
    for socket in sockets {
        socket.abort();
    }
    Ok(())
}

struct Keeper {
    paths: Paths,
    site: Arc<SiteConfig>,
    uplink: Uplink,
    status: StatusSender,
    published: Published,
    /// As the firewall has them.
    openings: Option<Openings>,
    guarded: Instant,
    /// Since when the device has no carrier.
    dark: Option<Instant>,
    /// Since when the device has a carrier and no address.
    without: Option<Instant>,
    /// What the box was told last.
    told: Option<Told>,
    /// What people were told last.
    shown: Option<UplinkStatus>,
    problems: Option<Vec<Problem>>,
}

impl Keeper {
    /// One look; the uplink as it is, and what is wrong with it.
    async fn turn(
        &mut self,
        handle: &Handle,
        segment: Option<Segment>,
        clusters: BTreeMap<u16, std::net::SocketAddrV4>,
    ) -> Result<(Option<Segment>, Vec<Problem>)> {
        let links = link::observe_links(handle, &self.paths.net_devices()).await?;
        let mut problems = Vec::new();
        let mut nics: Vec<&Link> = Vec::new();
        for named in self.uplink.carrier.nics() {
            let mut fitting = links.iter().filter(|link| is_nic(named, link));
            // A device that software made may have the address of the NIC below it.
            let found = fitting
                .clone()
                .find(|link| link.hardware.is_some())
                .or_else(|| fitting.next());
            let taken = |link: &&Link| segment.as_ref().is_some_and(|it| it.index == link.index);
            match found {
                Some(link) if taken(&link) => problems.push(tell::taken(&link.name)),
                Some(link) => nics.push(link),
                None => problems.push(tell::missing(named, &links)),
            }
        }
        let names: Vec<String> = nics.iter().map(|link| link.name.clone()).collect();
        let device = networkd::device(&self.uplink, &names).map(str::to_owned);
        if let Some(device) = &device {
            let inside = segment.map(|segment| (segment.interface, provisioning(&self.site)));
            let openings = Openings {
                device: device.clone(),
                routing: self.uplink.routing,
                inside,
                clusters,
            };
            // Nothing gets an address before it is known what may come in by it.
            self.guard(openings).await?;
        }
        let written = networkd::files(&self.uplink, &names);
        write_files(&self.paths.networkd(), &written)?;
        let found = device.and_then(|name| links.iter().find(|link| link.name == name));
        let Some(found) = found else {
            self.without = None;
            return Ok((None, problems));
        };
        let seen = self.look(handle, found, &nics, &mut problems).await?;
        Ok((seen, problems))
    }

    /// The device's address, if it is one that the box can have.
    async fn look(
        &mut self,
        handle: &Handle,
        device: &Link,
        nics: &[&Link],
        problems: &mut Vec<Problem>,
    ) -> Result<Option<Segment>> {
        if !device.carrier {
            self.without = None;
            let since = *self.dark.get_or_insert_with(Instant::now);
            if since.elapsed() >= DARK {
                problems.push(tell::no_cable(nics));
            }
            return Ok(None);
        }
        self.dark = None;
        let addresses = link::addresses(handle, device.index).await?;
        let wanted = self.uplink.address.map(|fixed| fixed.address);
        let address = addresses
            .into_iter()
            .find(|address| wanted.is_none_or(|wanted| wanted == *address));
        let Some(address) = address else {
            let since = *self.without.get_or_insert_with(Instant::now);
            if since.elapsed() >= PATIENCE {
                problems.push(tell::no_address(&device.name, wanted));
            }
            return Ok(None);
        };
        self.without = None;
        if let Some(other) = self.overlapping(address) {
            problems.push(tell::overlap(address, other));
            return Ok(None);
        }
        let mac = device
            .mac
            .with_context(|| format!("{} has no MAC address", device.name))?;
        let state = self.paths.networkd_links().join(device.index.to_string());
        let state = fs::read_to_string(state).unwrap_or_default();
        self.tell_box(networkd::told(&state))?;
        Ok(Some(Segment {
            index: device.index,
            interface: device.name.clone(),
            mac,
            address,
        }))
    }

    /// Networks of servers that may go out.
    /// A network of the site that a DHCP server's address is in.
    fn overlapping(&self, address: Subnet) -> Option<Ipv4Network> {
        let network = Ipv4Network::around(address.address(), address.prefix());
        let mut all = match self.uplink.address {
            // What a person wrote was compared when it was read.
            Some(_) => Vec::new(),
            None => self.site.all_networks(),
        };
        // The box's Kubernetes.
        all.push(Ipv4Network::around(NODE_ADDRESS, 22));
        all.into_iter().find(|other| other.overlaps(&network))
    }

    async fn guard(&mut self, openings: Openings) -> Result<()> {
        let is_new = self.openings.as_ref() != Some(&openings);
        if !is_new && self.guarded.elapsed() < GUARD_AGAIN {
            return Ok(());
        }
        let rules = firewall::rules(&openings);
        if is_new {
            nft::apply(rules).await?;
        } else {
            nft::restore(rules, firewall::TABLE).await?;
        }
        self.guarded = Instant::now();
        self.openings = Some(openings);
        Ok(())
    }

    /// The box's resolver and its clock.
    fn tell_box(&mut self, told: Told) -> Result<()> {
        if self.told.as_ref() == Some(&told) {
            return Ok(());
        }
        let lines = |word: &str, values: &[String]| {
            let lines = values.iter().map(|value| format!("{word}{value}\n"));
            lines.collect::<String>()
        };
        let servers: Vec<String> = told.dns.iter().map(ToString::to_string).collect();
        let search: Vec<String> = match told.search.as_slice() {
            [] => Vec::new(),
            domains => vec![domains.join(" ")],
        };
        let resolver = lines("nameserver ", &servers) + &lines("search ", &search);
        let sources = told.ntp.iter().map(|server| format!("{server} iburst"));
        let sources: Vec<String> = sources.collect();
        let clock = lines("server ", &sources);
        for (path, text) in [
            (self.paths.resolver(), resolver),
            (self.paths.clock_sources(), clock),
        ] {
            files::write(&path, text.as_bytes(), Access::Everybody)?;
        }
        self.published.name_servers.send_replace(told.dns.clone());
        self.told = Some(told);
        Ok(())
    }

    fn publish(&mut self, seen: Option<Segment>, problems: Vec<Problem>) {
        let clusters = self.openings.iter().flat_map(|it| it.clusters.keys());
        let shown = UplinkStatus {
            interface: seen.as_ref().map(|it| it.interface.clone()),
            address: seen.as_ref().map(|it| it.address.to_string()),
            clusters: self
                .uplink
                .clusters
                .iter()
                .filter(|(_, port)| clusters.clone().any(|open| open == *port))
                .map(|(name, port)| (name.clone(), *port))
                .collect(),
        };
        // Each is news to whoever reads the page.
        if self.shown.as_ref() != Some(&shown) {
            self.status.send(Update::Uplink(shown.clone()));
            self.shown = Some(shown);
        }
        if self.problems.as_ref() != Some(&problems) {
            for problem in &problems {
                tracing::warn!(reason = problem.what, "the uplink");
            }
            self.status.problems(SOURCE, problems.clone());
            self.problems = Some(problems);
        }
        self.published.outside.send_if_modified(|before| {
            let changed = *before != seen;
            *before = seen;
            changed
        });
    }
}

/// `wanted` and nothing else is in `dir`; what is so already is not touched, because a change is loaded.
fn write_files(dir: &Path, wanted: &[(String, String)]) -> Result<()> {
    let there = match fs::read_dir(dir) {
        Ok(there) => there,
        Err(error) if error.kind() == io::ErrorKind::NotFound && wanted.is_empty() => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            files::make_dir(dir, 0o755)?;
            fs::read_dir(dir).with_context(|| format!("reading {}", dir.display()))?
        }
        Err(error) => return Err(error).with_context(|| format!("reading {}", dir.display())),
    };
    for entry in there {
        let entry = entry.with_context(|| format!("reading {}", dir.display()))?;
        let name = entry.file_name();
        if !wanted.iter().any(|(wanted, _)| **wanted == *name) {
            fs::remove_file(entry.path()).context("removing a file of an earlier uplink")?;
        }
    }
    for (name, text) in wanted {
        let path = dir.join(name);
        if fs::read(&path).is_ok_and(|there| there == text.as_bytes()) {
            continue;
        }
        files::write(&path, text.as_bytes(), Access::Everybody)?;
    }
    Ok(())
}

/// Where the APIs of the site's clusters are, by the port that shows them. An endpoint is what somebody wrote into an object: what is not another
/// machine of the provisioning networks, the box's own API among it, is not shown outside.
fn clusters(
    site: &SiteConfig,
    wanted: &Uplink,
    there: &[ClusterStatus],
) -> BTreeMap<u16, SocketAddrV4> {
    let inside = provisioning(site);
    let found = wanted.clusters.iter().filter_map(|(name, port)| {
        let is_it = |it: &&ClusterStatus| it.name == *name && it.namespace == capi::NAMESPACE;
        let api: SocketAddrV4 = there.iter().find(is_it)?.endpoint.parse().ok()?;
        let is_inside = inside.iter().any(|it| it.contains(*api.ip()));
        let is_own = *api.ip() == site.provisioning.address.address();
        (is_inside && !is_own).then_some((*port, api))
    });
    found.collect()
}

/// The networks that servers boot in, which may go out.
fn provisioning(site: &SiteConfig) -> Vec<Ipv4Network> {
    let relayed = site.provisioning.relayed.iter();
    let relayed = relayed.map(RelayedNetwork::network);
    std::iter::once(site.provisioning.network())
        .chain(relayed)
        .collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use firstlight_api::site::parse_site;

    use super::*;

    #[test]
    fn only_the_sites_own_clusters_on_its_servers_are_shown_outside() {
        let site = parse_site(
            "provisioning: {address: 172.22.0.1/24, gateway: 172.22.0.254, relayed: [{subnet: 10.9.0.0/24, gateway: 10.9.0.1}]}\n\
             uplink: {nic: eth1, clusters: {lab: 6443, far: 6444}}\n",
        )
        .unwrap();
        let uplink = site.uplink.clone().unwrap();
        let shown = |name: &str, namespace: &str, endpoint: &str| {
            let cluster = ClusterStatus {
                name: name.to_owned(),
                namespace: namespace.to_owned(),
                endpoint: endpoint.to_owned(),
                ..ClusterStatus::default()
            };
            clusters(&site, &uplink, &[cluster])
        };
        for (name, endpoint, port) in [
            ("lab", "172.22.0.250:6443", 6443),
            ("far", "10.9.0.20:6443", 6444),
        ] {
            let expected = BTreeMap::from([(port, endpoint.parse().unwrap())]);
            assert_eq!(shown(name, "default", endpoint), expected);
            assert_eq!(shown(name, "tenant", endpoint), BTreeMap::new());
        }
        // The box, its loopback, its uplink's network, a name, and a cluster that site.yaml does not show.
        for endpoint in [
            "172.22.0.1:6443",
            "127.0.0.1:6443",
            "192.0.2.7:22",
            "api.example:6443",
            "",
        ] {
            assert_eq!(
                shown("lab", "default", endpoint),
                BTreeMap::new(),
                "{endpoint}"
            );
        }
        assert_eq!(
            shown("other", "default", "172.22.0.250:6443"),
            BTreeMap::new()
        );
    }
}
