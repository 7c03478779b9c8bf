//! The loop that owns the DHCP server: datagrams, probes and time in; files first, then answers out.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result, anyhow};
use firstlight_netboot::{
    BootOffer, BootSite, Decision, DhcpConfig, Event, LeaseChange, Listener, MacAddr, Mode,
    ModeStep, Now, Origin, ProbeResult, Reason, Reply, Request, Server,
};
use tokio::{
    sync::{mpsc, watch},
    time::MissedTickBehavior,
};

use super::{
    AbortOnDrop, Dhcp,
    addresses::{self, WAITING},
    clock::Clock,
    conditions::{Conditions, SOURCES},
    config, ipv6,
    lease_file::{self, Job, LeaseFile},
    ports::{Answer, Ports, Received},
    prober::{ProbeEvent, Prober, sleep_until},
    sockets::{self, Arrival},
    tell,
};
use crate::{
    fleet::Input,
    liveness,
    network::{Heard, Segment},
    status::{StepName, Update},
};

/// How often addresses are probed before anybody wants them, and leases are counted.
const TICK: Duration = Duration::from_secs(10);
/// How soon others know who has a lease; a rack that is switched on changes that many times a second.
const TELL: Duration = Duration::from_millis(50);
/// Datagrams that are looked at before anything else gets its turn.
const AT_ONCE: usize = 64;

/// Serves until something breaks.
pub async fn serve(
    dhcp: &Dhcp,
    segment: &Segment,
    boot: &mut watch::Receiver<Option<BootSite>>,
) -> Result<Infallible> {
    let prober = Prober::spawn(segment)?;
    dhcp.status
        .send(Update::Dhcp(firstlight_api::status::DhcpMode::Probing));
    // Asking takes seconds, so it comes first. Answers need the lease file, and boot scripts that can be made.
    prober.ask();
    boot.wait_for(Option::is_some)
        .await
        .context("the agent is stopping")?;
    let clock = Clock::start();
    let (leases, table, problems) = LeaseFile::open(&dhcp.paths.leases(), clock.now())?;
    dhcp.status.problems("leases", problems);
    for of_an_earlier_one in SOURCES.into_iter().chain(["own-address"]) {
        dhcp.status.problems(of_an_earlier_one, vec![]);
    }
    let mut name_servers = dhcp.name_servers.clone();
    let config = config_for(dhcp, segment, &name_servers.borrow_and_update())?;
    let ranges = config.spec().subnets.iter();
    let addresses = ranges.map(|subnet| u64::from(subnet.range.size())).sum();
    dhcp.status.send(Update::Addresses(addresses));
    let mut server = Server::new(config, table);
    // This question is out already, perhaps before the switch let it through.
    server.linked(clock.now());
    server.ask(clock.now());
    let (connection, netlink, _) =
        rtnetlink::new_connection().context("opening a netlink socket")?;
    let (ask, found, address_task) =
        addresses::spawn_prober(addresses::open_arp(segment)?, segment);
    let (others, watch_task) =
        addresses::spawn_watch(addresses::open_arp(segment)?, segment.address.address());
    let (by_ipv6, ipv6_task) = ipv6::spawn(segment)?;
    let (jobs, durable) = lease_file::spawn(leases);
    let edge = Edge {
        dhcp: dhcp.clone(),
        segment: segment.clone(),
        clock,
        server,
        ports: Ports::open(segment, netlink)?,
        ask,
        waiting: BTreeMap::new(),
        jobs,
        unwritten: 0,
        conditions: Conditions::default(),
        served: false,
        untold: None,
        _tasks: [
            AbortOnDrop(address_task),
            AbortOnDrop(watch_task),
            AbortOnDrop(ipv6_task),
            AbortOnDrop(tokio::spawn(connection)),
        ],
    };
    let mut link_ups = dhcp.link_ups.clone();
    link_ups.mark_unchanged();
    let sources = Sources {
        prober,
        link_ups,
        name_servers,
        found,
        durable,
        others,
        by_ipv6,
    };
    edge.run(sources).await
}

fn config_for(dhcp: &Dhcp, segment: &Segment, name_servers: &[Ipv4Addr]) -> Result<DhcpConfig> {
    config::dhcp_config(&dhcp.site, segment.mac, name_servers, dhcp.guard).map_err(|errors| {
        let texts: Vec<_> = errors.iter().map(ToString::to_string).collect();
        anyhow!("{}", texts.join("; "))
    })
}

/// What comes to the loop from its tasks.
struct Sources {
    prober: Prober,
    link_ups: watch::Receiver<u32>,
    name_servers: watch::Receiver<Vec<Ipv4Addr>>,
    found: mpsc::Receiver<(Ipv4Addr, ProbeResult)>,
    durable: mpsc::UnboundedReceiver<Result<Vec<Option<Answer>>>>,
    others: watch::Receiver<Option<MacAddr>>,
    by_ipv6: mpsc::Receiver<MacAddr>,
}

struct Edge {
    dhcp: Dhcp,
    segment: Segment,
    clock: Clock,
    server: Server,
    ports: Ports,
    ask: mpsc::Sender<Ipv4Addr>,
    /// Datagrams by the address that is being probed for them.
    waiting: BTreeMap<Ipv4Addr, Vec<Received>>,
    jobs: mpsc::Sender<Job<Option<Answer>>>,
    /// Jobs that are not on the disk yet.
    unwritten: usize,
    conditions: Conditions,
    /// Somebody on the segment has an address from here.
    served: bool,
    /// When others are told who has a lease, if that changed.
    untold: Option<tokio::time::Instant>,
    _tasks: [AbortOnDrop<()>; 4],
}

impl Edge {
    async fn run(mut self, mut sources: Sources) -> Result<Infallible> {
        let [mut main, mut pxe] = [(); 2].map(|()| vec![0; sockets::LARGEST]);
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let pulse = liveness::pulse("dhcp");
        loop {
            pulse.beat();
            let untold = self.untold;
            let step = tokio::select! {
                arrived = sockets::receive(&self.ports.main, &mut main) => {
                    let arrived = arrived.context("receiving on UDP port 67")?;
                    self.datagrams(&mut main, Listener::Dhcp, arrived).await?;
                    self.server.ask(self.clock.now())
                }
                arrived = sockets::receive(&self.ports.pxe, &mut pxe) => {
                    let arrived = arrived.context("receiving on UDP port 4011")?;
                    self.datagrams(&mut pxe, Listener::Pxe, arrived).await?;
                    self.server.ask(self.clock.now())
                }
                answers = sources.durable.recv() => {
                    let written = answers.context("writing the lease file ended")??;
                    self.unwritten -= written.len();
                    for answer in written.into_iter().flatten() {
                        self.ports.send(&answer).await;
                    }
                    None
                }
                result = sources.found.recv() => {
                    let (address, result) = result.context("probing addresses ended")?;
                    let now = self.clock.now();
                    self.server.probed(address, result, now);
                    if result == ProbeResult::InUse {
                        self.conditions.duplicate(address, None, now);
                    }
                    for received in self.waiting.remove(&address).unwrap_or_default() {
                        self.handle(received).await?;
                    }
                    None
                }
                heard = sources.prober.heard() => self.heard(heard?),
                changed = sources.others.changed() => {
                    changed.context("watching the own address ended")?;
                    let other = *sources.others.borrow_and_update();
                    self.contested(other)
                }
                mac = sources.by_ipv6.recv() => {
                    self.conditions.by_ipv6(mac.context("listening for IPv6 ended")?, self.clock.now());
                    self.tell_conditions();
                    None
                }
                changed = sources.link_ups.changed() => {
                    changed.context("watching the link ended")?;
                    self.server.linked(self.clock.now());
                    self.tell_mode();
                    self.server.ask(self.clock.now())
                }
                changed = sources.name_servers.changed() => {
                    changed.context("watching the uplink ended")?;
                    let servers = sources.name_servers.borrow_and_update().clone();
                    self.server.set_config(config_for(&self.dhcp, &self.segment, &servers)?);
                    None
                }
                () = sleep_until(untold) => {
                    self.tell_leases();
                    None
                }
                _ = tick.tick() => {
                    self.tick();
                    self.server.ask(self.clock.now())
                }
            };
            match step {
                None => {}
                Some(ModeStep::Ask) => sources.prober.ask(),
                Some(ModeStep::Switch(_)) => {
                    self.tick();
                    self.tell_mode();
                }
            }
        }
    }

    fn heard(&mut self, heard: ProbeEvent) -> Option<ModeStep> {
        let now = self.clock.now();
        match heard {
            ProbeEvent::Overheard(heard) => self.server.overheard(&heard, now),
            ProbeEvent::Answer(Some(found)) => self.server.foreign_seen(found, now),
            ProbeEvent::Answer(None) => self.server.silence(now),
        }
    }

    /// Somebody else has the box's address, or nobody has any more.
    fn contested(&mut self, other: Option<MacAddr>) -> Option<ModeStep> {
        let own = self.segment.address.address();
        let problem = other.map(|mac| tell::contested(own, mac));
        self.dhcp
            .status
            .problems("own-address", problem.into_iter().collect());
        let mac = other?;
        tracing::warn!(%mac, address = %own, "another machine has the box's address");
        self.server.contested(self.clock.now())
    }

    fn tick(&mut self) {
        let now = self.clock.now();
        self.tell_leases();
        self.dhcp.status.send(Update::Refused {
            what: "dhcp",
            count: self.server.counters().limited,
        });
        self.conditions
            .tick(|range| self.server.has_room(range, now), now);
        self.tell_conditions();
        for address in self.server.probe_ahead(now) {
            if self.ask.try_send(address).is_err() {
                break;
            }
        }
    }

    fn tell_leases(&mut self) {
        self.untold = None;
        let now = self.clock.now();
        let leases = self.server.leases();
        let held = leases.iter().filter(|lease| now < lease.expires);
        let held: std::collections::BTreeSet<_> = held.map(|lease| lease.address).collect();
        self.dhcp.status.send(Update::Leases(held.len()));
        self.dhcp.leased.send_if_modified(|leased| {
            let changed = **leased != held;
            if changed {
                *leased = Arc::new(held);
            }
            changed
        });
    }

    /// Those that came together with the first.
    async fn datagrams(
        &mut self,
        buffer: &mut [u8],
        listener: Listener,
        mut arrived: Arrival,
    ) -> Result<()> {
        for _ in 0..AT_ONCE {
            let Arrival { length, from, to } = arrived;
            match Request::parse(&buffer[..length]) {
                Ok(request) => {
                    let received = Received {
                        request,
                        listener,
                        from,
                        to,
                    };
                    self.handle(received).await?;
                }
                Err(error) => tracing::debug!(%from, %error, "a datagram was ignored"),
            }
            let socket = self.ports.of(listener);
            match sockets::try_receive(socket, buffer) {
                Some(next) => arrived = next,
                None => break,
            }
        }
        self.tell_conditions();
        Ok(())
    }

    async fn handle(&mut self, received: Received) -> Result<()> {
        let (mac, arch) = (received.request.mac, received.request.arch);
        let source = match received.from {
            SocketAddr::V4(from) => *from.ip(),
            SocketAddr::V6(_) => Ipv4Addr::UNSPECIFIED,
        };
        let origin = Origin {
            listener: received.listener,
            source,
            destination: received.to,
        };
        let now = self.clock.now();
        match self.server.handle_request(&received.request, origin, now) {
            Decision::Reply(reply) => {
                tracing::debug!(%mac, destination = ?reply.destination, boot = ?reply.boot, "DHCP reply");
                self.booting(&received, &reply, now);
                if !self.served && reply.is_acknowledgement() && !received.request.is_relayed() {
                    self.served = true;
                    self.tell_heard();
                }
                self.answer(Answer { reply, received }).await?;
            }
            Decision::Record { persist, event } => {
                tracing::info!(%mac, reason = %event, "DHCP");
                if let Event::Declined { mac, address } = event {
                    self.conditions.duplicate(address, Some(mac), now);
                }
                self.write(persist, None).await?;
            }
            Decision::Probe { address } => {
                let waiting = self.waiting.entry(address).or_default();
                if waiting.len() < WAITING {
                    waiting.push(received);
                }
                // A full queue answers the client's next attempt.
                let _ = self.ask.try_send(address);
                return Ok(());
            }
            Decision::Ignore(reason) => {
                tracing::debug!(%mac, %reason, "a DHCP request was ignored");
                let is_of_no_interest = matches!(
                    reason,
                    Reason::Limited(_)
                        | Reason::OwnQuestion
                        | Reason::OtherServer { .. }
                        | Reason::RelayedOnly
                );
                if is_of_no_interest {
                    return Ok(());
                }
                self.conditions.ignored(mac, &reason, now);
            }
        }
        let address = self.server.leases().of_mac(mac).map(|lease| lease.address);
        self.dhcp.fleet.tell(Input::Dhcp { mac, arch, address });
        Ok(())
    }

    /// What a reply says of a machine that boots.
    fn booting(&mut self, received: &Received, reply: &Reply, now: Now) {
        let (request, mac) = (&received.request, received.request.mac);
        match reply.boot {
            BootOffer::NotAsked => return,
            BootOffer::Unsupported(arch) => return self.conditions.firmware(mac, Some(arch)),
            _ => self.conditions.firmware(mac, None),
        }
        let is_firmware = (request.is_pxe() || request.is_http_boot()) && !request.is_ipxe();
        if is_firmware && reply.is_acknowledgement() {
            self.conditions.boots(mac, now);
        }
    }

    /// An offer promises nothing, so it waits for no disk; everything else leaves in the order of the decisions.
    async fn answer(&mut self, mut answer: Answer) -> Result<()> {
        let changes = std::mem::take(&mut answer.reply.persist);
        if changes.is_empty() && (self.unwritten == 0 || answer.reply.is_offer()) {
            self.ports.send(&answer).await;
            return Ok(());
        }
        self.write(changes, Some(answer)).await
    }

    fn tell_conditions(&mut self) {
        for (source, problems) in self.conditions.news() {
            self.dhcp.status.problems(source, problems);
        }
    }

    /// On the disk before the answer leaves, and in the order of the decisions. A disk that takes nothing ends this server:
    /// no promise without it.
    async fn write(&mut self, changes: Vec<LeaseChange>, then: Option<Answer>) -> Result<()> {
        if !changes.is_empty() {
            // All of them are gone through.
            let thousands = self.server.leases().known() / 1000;
            let pause = TELL * u32::try_from(1 + thousands).unwrap_or(u32::MAX);
            let soon = tokio::time::Instant::now() + pause;
            self.untold.get_or_insert(soon);
        }
        self.unwritten += 1;
        let now = self.clock.now();
        let job = Job { changes, now, then };
        // Waits only for room, with everybody, when the disk is far behind.
        self.jobs
            .send(job)
            .await
            .ok()
            .context("writing the lease file ended")
    }

    /// Another server by the box's own address is another box, and no sign of a wrong network.
    fn tell_heard(&self) {
        let own = self.segment.address.address();
        let heard = Heard {
            index: self.segment.index,
            other_server: matches!(self.server.mode(), Mode::Beside(found) if found.server != own),
            served: self.served,
        };
        self.dhcp.heard.send_if_modified(|before| {
            let changed = *before != Some(heard);
            *before = Some(heard);
            changed
        });
    }

    fn tell_mode(&self) {
        self.tell_heard();
        let (status, mode) = (&self.dhcp.status, self.server.mode());
        let (shown, problem) =
            tell::mode(self.dhcp.site.provisioning.dhcp, mode, self.segment.address);
        match &problem {
            None => tracing::info!(interface = self.segment.interface, "serving DHCP"),
            Some(problem) => tracing::warn!(reason = problem.what, "DHCP on the segment"),
        }
        status.done(StepName::Dhcp);
        status.problems("dhcp", problem.into_iter().collect());
        status.send(Update::Dhcp(shown));
    }
}
