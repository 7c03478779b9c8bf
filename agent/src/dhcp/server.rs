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
    BootOffer, BootSite, ClientArch, Decision, Listener, MacAddr, ModeStep, Now, Origin,
    ProbeResult, Reason, Request, Server,
};
use tokio::{
    sync::{mpsc, watch},
    time::MissedTickBehavior,
};

use super::{
    AbortOnDrop, Dhcp,
    addresses::{self, WAITING},
    config,
    lease_file::{self, Job, LeaseFile},
    ports::{Answer, Ports, Received},
    prober::{ProbeEvent, Prober},
    sockets, tell,
};
use crate::{
    clock,
    fleet::Input,
    liveness,
    network::Segment,
    status::{StepName, Update},
};

/// How often addresses are probed before anybody wants them, and leases are counted.
const TICK: Duration = Duration::from_secs(10);

/// Machines that cannot boot, of those that the page names.
const NAMED: usize = 8;

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
    for of_an_earlier_one in ["dhcp-range", "dhcp-firmware", "own-address"] {
        dhcp.status.problems(of_an_earlier_one, vec![]);
    }
    let config = config::dhcp_config(&dhcp.site, segment.mac).map_err(|errors| {
        let texts: Vec<_> = errors.iter().map(ToString::to_string).collect();
        anyhow!("{}", texts.join("; "))
    })?;
    let mut server = Server::new(config, table);
    // This question is out already.
    server.ask(clock.now());
    let (connection, netlink, _) =
        rtnetlink::new_connection().context("opening a netlink socket")?;
    let (ask, found, address_task) = addresses::spawn_prober(addresses::open_arp(segment)?);
    let (others, watch_task) =
        addresses::spawn_watch(addresses::open_arp(segment)?, segment.address.address());
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
        told_exhausted: None,
        unsupported: BTreeMap::new(),
        _tasks: [
            AbortOnDrop(address_task),
            AbortOnDrop(watch_task),
            AbortOnDrop(tokio::spawn(connection)),
        ],
    };
    let sources = Sources {
        prober,
        found,
        durable,
        others,
    };
    edge.run(sources).await
}

/// One clock for leases and questions: it starts as the wall clock, which leases in the file are told by, and is not moved
/// afterwards.
#[derive(Clone, Copy, Debug)]
struct Clock {
    at_boot: u64,
}

impl Clock {
    fn start() -> Self {
        let wall = u64::try_from(clock::wall_seconds()).unwrap_or(0);
        Self {
            at_boot: wall.saturating_sub(clock::uptime().as_secs()),
        }
    }

    fn now(self) -> Now {
        Now::from_unix_seconds(self.at_boot + clock::uptime().as_secs())
    }
}

/// What comes to the loop from its tasks.
struct Sources {
    prober: Prober,
    found: mpsc::Receiver<(Ipv4Addr, ProbeResult)>,
    durable: mpsc::UnboundedReceiver<Result<Option<Answer>>>,
    others: watch::Receiver<Option<MacAddr>>,
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
    /// The client that got no address, while that is on the page.
    told_exhausted: Option<MacAddr>,
    /// Machines that the stick has nothing for, as the page names them.
    unsupported: BTreeMap<MacAddr, ClientArch>,
    _tasks: [AbortOnDrop<()>; 3],
}

impl Edge {
    async fn run(mut self, mut sources: Sources) -> Result<Infallible> {
        let [mut main, mut pxe] = [(); 2].map(|()| vec![0; sockets::LARGEST]);
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let pulse = liveness::pulse("dhcp");
        loop {
            pulse.beat();
            let step = tokio::select! {
                received = self.ports.main.recv_from(&mut main) => {
                    let (length, from) = received.context("receiving on UDP port 67")?;
                    self.datagram(&main[..length], Listener::Dhcp, from).await?;
                    None
                }
                received = self.ports.pxe.recv_from(&mut pxe) => {
                    let (length, from) = received.context("receiving on UDP port 4011")?;
                    self.datagram(&pxe[..length], Listener::Pxe, from).await?;
                    None
                }
                answer = sources.durable.recv() => {
                    let answer = answer.context("writing the lease file ended")??;
                    self.unwritten -= 1;
                    if let Some(answer) = answer {
                        self.ports.send(&answer).await;
                    }
                    None
                }
                result = sources.found.recv() => {
                    let (address, result) = result.context("probing addresses ended")?;
                    self.server.probed(address, result, self.clock.now());
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
        if self.told_exhausted.is_some() && self.server.has_room(now) {
            self.told_exhausted = None;
            self.dhcp.status.problems("dhcp-range", vec![]);
        }
        for address in self.server.probe_ahead(now) {
            if self.ask.try_send(address).is_err() {
                break;
            }
        }
    }

    fn tell_leases(&self) {
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

    async fn datagram(
        &mut self,
        datagram: &[u8],
        listener: Listener,
        from: SocketAddr,
    ) -> Result<()> {
        match Request::parse(datagram) {
            Ok(request) => {
                self.handle(Received {
                    request,
                    listener,
                    from,
                })
                .await
            }
            Err(error) => {
                tracing::debug!(%from, %error, "a datagram was ignored");
                Ok(())
            }
        }
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
        };
        let now = self.clock.now();
        match self.server.handle_request(&received.request, origin, now) {
            Decision::Reply(mut reply) => {
                tracing::debug!(%mac, destination = ?reply.destination, boot = ?reply.boot, "DHCP reply");
                match reply.boot {
                    BootOffer::NotAsked => {}
                    BootOffer::Unsupported(arch) => self.tell_unsupported(mac, Some(arch)),
                    _ => self.tell_unsupported(mac, None),
                }
                let changes = std::mem::take(&mut reply.persist);
                let answer = Answer { reply, received };
                if changes.is_empty() && self.unwritten == 0 {
                    self.ports.send(&answer).await;
                } else {
                    self.write(changes, Some(answer)).await?;
                }
            }
            Decision::Record { persist, event } => {
                tracing::info!(%mac, reason = %event, "DHCP");
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
                match &reason {
                    Reason::Limited(_) | Reason::OwnQuestion => return Ok(()),
                    Reason::Exhausted { .. } => self.tell_exhausted(mac, &reason),
                    Reason::Unsupported(arch) => self.tell_unsupported(mac, Some(*arch)),
                    _ => {}
                }
            }
        }
        let address = self.server.leases().of_mac(mac).map(|lease| lease.address);
        self.dhcp.fleet.tell(Input::Dhcp { mac, arch, address });
        Ok(())
    }

    fn tell_exhausted(&mut self, mac: MacAddr, reason: &Reason) {
        if self.told_exhausted.is_none() {
            self.told_exhausted = Some(mac);
            self.dhcp
                .status
                .problems("dhcp-range", vec![tell::exhausted(mac, reason)]);
        }
    }

    /// `None`: it boots, for example with other settings of its firmware.
    fn tell_unsupported(&mut self, mac: MacAddr, arch: Option<ClientArch>) {
        let before = match arch {
            Some(_) if self.unsupported.len() >= NAMED => return,
            Some(arch) => self.unsupported.insert(mac, arch),
            None => self.unsupported.remove(&mac),
        };
        if before != arch {
            let problems = self.unsupported.iter();
            let problems = problems.map(|(mac, arch)| tell::unsupported(*mac, *arch));
            self.dhcp
                .status
                .problems("dhcp-firmware", problems.collect());
        }
    }

    /// On the disk before the answer leaves, and in the order of the decisions. A disk that takes nothing ends this server:
    /// no promise without it.
    async fn write(
        &mut self,
        changes: Vec<firstlight_netboot::LeaseChange>,
        then: Option<Answer>,
    ) -> Result<()> {
        if !changes.is_empty() {
            self.tell_leases();
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

    fn tell_mode(&self) {
        let (status, mode) = (&self.dhcp.status, self.server.mode());
        let (shown, problem) = tell::mode(mode, self.segment.address.address());
        match &problem {
            None => tracing::info!(interface = self.segment.interface, "serving DHCP"),
            Some(problem) => tracing::warn!(reason = problem.what, "another DHCP server is here"),
        }
        status.done(StepName::Dhcp);
        status.problems("dhcp", problem.into_iter().collect());
        status.send(Update::Dhcp(shown));
    }
}
