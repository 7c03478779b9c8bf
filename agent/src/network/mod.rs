//! The box's own addresses: `box0` for its Kubernetes, and the provisioning NIC.
//!
//! `choose` decides (pure), `link`, `arp`, `routers` and `echo` talk to the kernel, the segment and what is beyond it, [`run`] is the loop: observe, choose, apply, tell.
//! Must not: serve anything. Others wait on the [`Segment`] that is published here.

pub mod arp;
pub mod choose;
pub mod echo;
pub mod firewall;
pub mod link;
pub mod packets;
mod routers;
mod servers;

use std::{collections::BTreeSet, fs, net::Ipv4Addr, path::Path, sync::Arc, time::Duration};

use anyhow::{Context, Result};
use firstlight_api::{
    site::{InterfaceChoice, MacAddr, RelayedNetwork, SiteConfig, Subnet},
    status::Problem,
};
use futures_util::StreamExt;
use rtnetlink::{Handle, MulticastGroup, new_connection, new_multicast_connection};
use tokio::{sync::watch, task::JoinHandle, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{
    files::{self, Access},
    options::BoxForm,
    paths::Paths,
    pki::NODE_ADDRESS,
    status::{StatusSender, StepName, Update},
};
use arp::{Arp, Claim};
use choose::{Choice, Learned, Link, Stranger};
pub use servers::Servers;

pub const BOX_INTERFACE: &str = "box0";
/// Looked at again after this time even if the kernel said nothing.
const LOOK_AGAIN: Duration = Duration::from_secs(30);
const RETRY: Duration = Duration::from_secs(2);
const SOON: Duration = Duration::from_millis(200);
/// A box without its state partition says so, and serves its page.
const STATE_PATIENCE: Duration = Duration::from_mins(1);
/// Whoever reloads a firewall of their own may flush ours.
const GUARD_AGAIN: Duration = Duration::from_mins(5);
/// How soon an address that another machine had is asked for again; boxes that were switched on together differ by up to as
/// much again.
const IN_USE: Duration = Duration::from_secs(8);

/// The provisioning network as it is configured now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    pub index: u32,
    pub interface: String,
    pub mac: MacAddr,
    pub address: Subnet,
}

/// What others have found out.
pub struct Known {
    /// That hosts name.
    pub bmcs: watch::Receiver<BTreeSet<firewall::Endpoint>>,
    pub heard: watch::Receiver<Option<Heard>>,
    pub servers: Servers,
}

/// What others are told.
#[derive(Debug)]
pub struct Published {
    pub segment: watch::Sender<Option<Segment>>,
    /// How often the provisioning NIC got a carrier: each time it may be another network's.
    pub link_ups: watch::Sender<u32>,
}

/// What the DHCP server has learned of its segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heard {
    /// Of the interface.
    pub index: u32,
    /// Another server leases addresses there.
    pub other_server: bool,
    /// Somebody there has an address from this one, since it was there.
    pub served: bool,
}

/// Waits until the box's address is another than `address`; false when nobody will tell any more. Another interface with
/// the same address is no move: it needs no new socket.
pub async fn moved_from(
    address: Option<Ipv4Addr>,
    segment: &mut watch::Receiver<Option<Segment>>,
) -> bool {
    segment
        .wait_for(|segment| segment.as_ref().map(|segment| segment.address.address()) != address)
        .await
        .is_ok()
}

/// Makes `box0`, trying again until it is there.
pub async fn make_box_interface(
    paths: &Paths,
    status: &StatusSender,
    stop: &CancellationToken,
) -> Result<()> {
    let (connection, handle, _) = new_connection().context("opening a netlink socket")?;
    let connection = tokio::spawn(connection);
    loop {
        match link::ensure_dummy(&handle, BOX_INTERFACE, NODE_ADDRESS).await {
            Ok(()) => break,
            Err(error) => status.failed(
                StepName::Network,
                format!("the internal interface {BOX_INTERFACE} cannot be made: {error:#}"),
                "the box tries again; if it stays, the kernel lacks the module `dummy`: rebuild the stick",
            ),
        }
        tokio::select! {
            () = tokio::time::sleep(RETRY) => {}
            () = stop.cancelled() => break,
        }
    }
    connection.abort();
    forward_for_pods(paths);
    Ok(())
}

/// Pods reach each other's services through the box. Kubernetes' own plugins want the same, so a refusal is no failure.
fn forward_for_pods(paths: &Paths) {
    if let Err(error) = fs::write(paths.ipv4_sysctls().join("ip_forward"), "1") {
        tracing::warn!(%error, "IPv4 forwarding stays off");
    }
}

/// Keeps the provisioning NIC chosen and configured until `stop`.
pub async fn run(
    paths: Paths,
    form: BoxForm,
    mut site: watch::Receiver<Option<Arc<SiteConfig>>>,
    known: Known,
    status: StatusSender,
    published: Published,
    stop: CancellationToken,
) -> Result<()> {
    // Events carry the sequence number of whoever caused them: beside our own requests they would be taken for answers, and a
    // NIC whose address is somebody's would look empty. So one socket hears, and another one asks.
    let (heard, _hearing, mut events) =
        new_multicast_connection(&[MulticastGroup::Link, MulticastGroup::Ipv4Ifaddr])
            .context("opening a netlink socket")?;
    let (asked, handle, _) = new_connection().context("opening a netlink socket")?;
    let sockets = [tokio::spawn(heard), tokio::spawn(asked)];
    let Ok(Some(site)) = site
        .wait_for(Option::is_some)
        .await
        .map(|site| site.clone())
    else {
        return Ok(());
    };
    status.running(StepName::Network);
    let mut keeper = Keeper {
        paths,
        form,
        site,
        status,
        segment: published.segment,
        link_ups: published.link_ups,
        bmcs: known.bmcs,
        servers: known.servers,
        heard: known.heard,
        has_news: false,
        learned: None,
        listening: None,
        began: Instant::now(),
        settling: None,
        guarded: Instant::now(),
    };
    loop {
        let pause = match keeper.turn(&handle).await {
            Ok(pause) => pause,
            Err(error) => {
                keeper.status.failed(
                    StepName::Network,
                    format!("the provisioning network cannot be set up: {error:#}"),
                    "the box tries again; check `provisioning` in site.yaml",
                );
                RETRY
            }
        };
        tokio::select! {
            () = stop.cancelled() => break,
            () = tokio::time::sleep(pause) => {}
            Ok(()) = keeper.bmcs.changed() => keeper.open_for_bmcs().await,
            () = keeper.servers.changed() => keeper.admit().await,
            Ok(()) = keeper.heard.changed() => keeper.has_news = true,
            link = router(&mut keeper.listening) => keeper.learn_router(&link),
            event = events.next() => anyhow::ensure!(event.is_some(), "the netlink socket was closed"),
        }
        // One change of a cable comes as several events; one look answers them all.
        while futures_util::FutureExt::now_or_never(events.next())
            .flatten()
            .is_some()
        {}
    }
    keeper.deafen();
    for socket in sockets {
        socket.abort();
    }
    Ok(())
}

struct Keeper {
    paths: Paths,
    form: BoxForm,
    site: Arc<SiteConfig>,
    status: StatusSender,
    segment: watch::Sender<Option<Segment>>,
    link_ups: watch::Sender<u32>,
    /// That hosts name.
    bmcs: watch::Receiver<BTreeSet<firewall::Endpoint>>,
    servers: Servers,
    heard: watch::Receiver<Option<Heard>>,
    has_news: bool,
    began: Instant,
    /// Read when the state partition is there.
    learned: Option<Learned>,
    /// For routers, on the NIC that was taken without a person's word.
    listening: Option<(Link, JoinHandle<Result<()>>)>,
    settling: Option<Instant>,
    /// When the firewall was seen to by us.
    guarded: Instant,
}

impl Keeper {
    /// One look at the devices and what follows from it; returns how long nothing need be done.
    async fn turn(&mut self, handle: &Handle) -> Result<Duration> {
        let links = link::observe_links(handle, &self.paths.net_devices()).await?;
        let uplink = self.site.uplink.as_ref();
        let is_free =
            |link: &&Link| uplink.is_none_or(|uplink| !choose::has_nic(&uplink.carrier, link));
        let free: Vec<Link> = links.iter().filter(is_free).cloned().collect();
        if !self.can_learn() {
            return Ok(SOON);
        }
        self.learn(&free);
        if let Some(link) = self.current(&links) {
            if !self.leaves(&link, &free) {
                return self.configure(handle, &link).await;
            }
            tracing::warn!(
                interface = link.name,
                "this network is somebody's, and another NIC has a link"
            );
            self.segment.send_replace(None);
            link::take_addresses(handle, link.index).await?;
        }
        let waited = self
            .settling
            .map_or(Duration::ZERO, |since| since.elapsed());
        let interface = &self.site.provisioning.interface;
        let learned = self.learned.get_or_insert_default();
        match choose::choose(self.form, interface, &free, learned, waited) {
            Choice::Use(link) => {
                self.settling = None;
                tracing::debug!(interface = link.name, "provisioning NIC chosen");
                self.listen(&link);
                self.configure(handle, &link).await
            }
            Choice::RaiseFirst(indexes) => {
                for index in indexes {
                    link::raise(handle, index).await?;
                }
                Ok(RETRY)
            }
            Choice::Settle(rest, why) => {
                self.settling.get_or_insert_with(Instant::now);
                if let Some(why) = why {
                    self.status.waiting_for(StepName::Network, why);
                }
                Ok(rest.clamp(Duration::from_millis(50), LOOK_AGAIN))
            }
            Choice::Wait(reason) => {
                self.settling = None;
                self.status.waiting_for(StepName::Network, reason);
                Ok(LOOK_AGAIN)
            }
        }
    }

    /// No person has named the NIC.
    fn chooses(&self) -> bool {
        self.site.provisioning.interface == InterfaceChoice::Auto && self.form == BoxForm::Box
    }

    /// Whether a better NIC has a link than the one that the box took by itself. Where somebody has an address from the box it stays.
    fn leaves(&self, current: &Link, free: &[Link]) -> bool {
        let heard = *self.heard.borrow();
        let serves = heard.is_some_and(|heard| heard.index == current.index && heard.served);
        let learned = self.learned.as_ref();
        self.chooses() && !serves && learned.is_some_and(|it| choose::leaves(current, free, it))
    }

    /// What the box knows of its NICs is on the state partition, which comes a little later than the agent.
    fn can_learn(&self) -> bool {
        let late = self.began.elapsed() >= STATE_PATIENCE;
        let is_there = || self.learned.is_some() || self.paths.agent_state().exists();
        late || !self.chooses() || is_there()
    }

    /// What the DHCP server has heard meanwhile; the NIC that the box serves on is remembered.
    fn learn(&mut self, links: &[Link]) {
        let learned = self
            .learned
            .get_or_insert_with(|| Learned::new(read_mac(&self.paths.provisioning_nic())));
        if !std::mem::take(&mut self.has_news) {
            return;
        }
        let Some(heard) = *self.heard.borrow() else {
            return;
        };
        let Some(link) = links.iter().find(|link| link.index == heard.index) else {
            return;
        };
        learned.hears(link, Stranger::DhcpServer, heard.other_server);
        if heard.served && learned.served != link.mac {
            learned.served = link.mac;
            let mac = link.mac.map(|mac| mac.to_string()).unwrap_or_default();
            let path = self.paths.provisioning_nic();
            if let Err(error) = files::write(&path, mac.as_bytes(), Access::Owner) {
                tracing::warn!(%error, "the provisioning NIC is not remembered");
            }
        }
    }

    fn listen(&mut self, link: &Link) {
        self.deafen();
        if let (Some(mac), true) = (link.mac, self.chooses()) {
            let listening = tokio::spawn(routers::heard(link.index, mac));
            self.listening = Some((link.clone(), listening));
        }
    }

    fn deafen(&mut self) {
        if let Some((_, listening)) = self.listening.take() {
            listening.abort();
        }
    }

    fn learn_router(&mut self, link: &Link) {
        if let Some(learned) = &mut self.learned {
            learned.hears(link, Stranger::Router, true);
        }
    }

    /// The NIC in use, while it exists. It is not changed for another one because of a pulled cable.
    fn current(&mut self, links: &[Link]) -> Option<Link> {
        let index = self
            .segment
            .borrow()
            .as_ref()
            .map(|segment| segment.index)?;
        let found = links.iter().find(|link| link.index == index);
        if found.is_none() {
            tracing::warn!(index, "the provisioning NIC is gone");
            self.segment.send_replace(None);
            self.publish("", "", "");
        }
        found.cloned()
    }

    /// Gives the NIC the box's address, unless another machine has it; returns how long nothing need be done.
    async fn configure(&mut self, handle: &Handle, link: &Link) -> Result<Duration> {
        let address = self.site.provisioning.address;
        let mac = link
            .mac
            .with_context(|| format!("{} has no MAC address", link.name))?;
        if !link.up {
            link::raise(handle, link.index).await?;
        }
        if !link::make_room(handle, link.index, address, self.form).await? {
            let arp = Arp::open(link.index, mac)?;
            if let Some(claim) = arp.claim(address.address()).await? {
                self.in_use(address.address(), claim);
                let spread = Duration::from_millis(u64::from(mac.octets()[5]) * 30);
                return Ok(IN_USE + spread);
            }
            link::add_address(handle, link.index, address.address(), address.prefix()).await?;
        }
        if let Some(gateway) = self.site.provisioning.gateway {
            let relayed = self.site.provisioning.relayed.iter();
            let networks = relayed.map(RelayedNetwork::network);
            link::add_routes(handle, link.index, gateway, networks).await?;
        }
        let now = Segment {
            index: link.index,
            interface: link.name.clone(),
            mac,
            address,
        };
        let is_new = self.segment.borrow().as_ref() != Some(&now);
        if is_new || self.guarded.elapsed() >= GUARD_AGAIN {
            self.guard(&now, is_new).await;
        }
        // Before the segment: who serves a new one asks it anyway, and would ask twice.
        self.link_ups.send_if_modified(|before| {
            let changed = *before != link.link_ups;
            *before = link.link_ups;
            changed
        });
        if is_new {
            self.publish(&link.name, &mac.to_string(), &address.to_string());
            self.segment.send_replace(Some(now));
        }
        if link.carrier {
            self.status.done(StepName::Network);
        } else {
            self.status
                .waiting_for(StepName::Network, format!("no cable at {}", link.name));
        }
        Ok(LOOK_AGAIN)
    }

    /// Before there is a segment there is no Ironic that could go anywhere.
    async fn open_for_bmcs(&mut self) {
        let segment = self.segment.borrow().clone();
        if let Some(segment) = segment {
            self.guard(&segment, true).await;
        }
    }

    /// Where the rules do not stand, [`Self::guard`] tells of it.
    async fn admit(&mut self) {
        let servers = self.servers.now();
        if self.segment.borrow().is_some()
            && let Err(error) = firewall::apply(firewall::admission(&servers)).await
        {
            tracing::debug!(error = format!("{error:#}"), "no places for known servers");
        }
    }

    /// The firewall's rules for this segment, and all of them again where somebody took them away.
    async fn guard(&mut self, segment: &Segment, is_new: bool) {
        self.guarded = Instant::now();
        let address = segment.address.address();
        let bmcs = self.bmcs.borrow_and_update().clone();
        let servers = self.servers.now();
        let rules = firewall::rules(address, &segment.interface, &bmcs, &servers);
        let closed = if is_new {
            firewall::apply(rules).await
        } else {
            let restored = firewall::restore(rules, firewall::TABLE).await;
            match restored {
                Ok(true) => {
                    tracing::warn!("the box's rules of nftables were gone, and are back");
                    Ok(())
                }
                Ok(false) => firewall::apply(firewall::admission(&servers)).await,
                Err(error) => Err(error),
            }
        };
        let open = closed.err().map(|error| Problem {
            what: format!(
                "what the box serves can be reached over its other NICs too, and Ironic reaches what is there: {error:#}"
            ),
            next: "the package nftables may be missing; the box tries again every 5 minutes".to_owned(),
        });
        self.status.problems("firewall", open.into_iter().collect());
    }

    fn in_use(&self, address: Ipv4Addr, claim: Claim) {
        self.segment.send_replace(None);
        let what = match claim {
            Claim::Has(mac) => format!(
                "another machine ({mac}) has this box's address {address}, perhaps another box: this one serves nothing"
            ),
            Claim::Wants(mac) => format!(
                "another machine ({mac}) is about to take this box's address {address}, perhaps another box: this one waits"
            ),
        };
        self.status.failed(
            StepName::Network,
            what,
            "switch one of the two off, or set another `provisioning.address` in the site.yaml of one; this box tries again every few seconds",
        );
    }

    fn publish(&self, name: &str, mac: &str, address: &str) {
        self.status.send(Update::Interface {
            name: name.into(),
            mac: mac.into(),
            address: address.into(),
        });
    }
}

/// Ends when a router is heard on the NIC.
async fn router(listening: &mut Option<(Link, JoinHandle<Result<()>>)>) -> Link {
    loop {
        let Some((link, heard)) = listening else {
            return std::future::pending().await;
        };
        let (link, heard) = (link.clone(), heard.await);
        *listening = None;
        match heard {
            Ok(Ok(())) => return link,
            Ok(Err(error)) => tracing::warn!(error = format!("{error:#}"), "routers are not heard"),
            Err(error) => tracing::warn!(%error, "routers are not heard"),
        }
    }
}

fn read_mac(path: &Path) -> Option<MacAddr> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The address that others bind to, once there is one.
pub async fn wait_for_address(segment: &mut watch::Receiver<Option<Segment>>) -> Option<Ipv4Addr> {
    let segment = segment.wait_for(Option::is_some).await.ok()?;
    segment.as_ref().map(|segment| segment.address.address())
}
