//! The loop that owns the DHCP server: datagrams, probes and time in; files first, then answers out.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4},
    time::Duration,
};

use anyhow::{Context, Result, anyhow};
use firstlight_api::status::{DhcpMode, Problem};
use firstlight_netboot::{
    Decision, Destination, ForeignServer, LeaseChange, Listener, Mode, Now, ProbeResult, Reason,
    Reply, Request, Server, observe_foreign,
};
use rtnetlink::{Handle, packet_route::neighbour::NeighbourState};
use tokio::{
    net::UdpSocket,
    sync::mpsc,
    task::JoinHandle,
    time::{Instant, MissedTickBehavior},
};

use super::{Dhcp, arp::Arp, config, lease_file::LeaseFile, probe_foreign, sockets};
use crate::{
    clock,
    fleet::Input,
    liveness,
    network::Segment,
    status::{StepName, Update},
};

/// How often addresses are probed before anybody wants them, and leases are counted.
const TICK: Duration = Duration::from_secs(10);
/// How often a box that gives boot information only asks whether the other server is gone.
const ASK_AGAIN: Duration = Duration::from_mins(5);
/// Datagrams that wait for a probe; their clients repeat themselves anyway.
const WAITING: usize = 64;

/// Serves until something breaks.
pub async fn serve(
    dhcp: &Dhcp,
    segment: &Segment,
    client: UdpSocket,
    foreign: Option<ForeignServer>,
) -> Result<Infallible> {
    let (leases, table, problems) = LeaseFile::open(&dhcp.paths.leases(), now())?;
    dhcp.status.problems("leases", problems);
    let config = dhcp_config(dhcp, foreign)?;
    let (connection, netlink, _) =
        rtnetlink::new_connection().context("opening a netlink socket")?;
    let (ask, found, prober) = spawn_prober(Arp::open(segment)?);
    let edge = Edge {
        dhcp: dhcp.clone(),
        segment: segment.clone(),
        server: Server::new(config, table),
        leases,
        main: sockets::bind(&segment.interface, 67).context("opening UDP port 67")?,
        pxe: sockets::bind(&segment.interface, 4011).context("opening UDP port 4011")?,
        client,
        netlink,
        ask,
        waiting: BTreeMap::new(),
        _tasks: [AbortOnDrop(prober), AbortOnDrop(tokio::spawn(connection))],
    };
    edge.tell_mode(foreign);
    edge.run(found).await
}

fn dhcp_config(
    dhcp: &Dhcp,
    foreign: Option<ForeignServer>,
) -> Result<firstlight_netboot::DhcpConfig> {
    let mode = if foreign.is_some() {
        Mode::Proxy
    } else {
        Mode::Serve
    };
    config::dhcp_config(&dhcp.site, mode).map_err(|errors| {
        let texts: Vec<_> = errors.iter().map(ToString::to_string).collect();
        anyhow!("{}", texts.join("; "))
    })
}

fn now() -> Now {
    Now::from_unix_seconds(u64::try_from(clock::wall_seconds()).unwrap_or(0))
}

/// Probing takes half a second, so it has a task of its own: addresses go in, results come out.
type Prober = (
    mpsc::Sender<Ipv4Addr>,
    mpsc::Receiver<(Ipv4Addr, ProbeResult)>,
    JoinHandle<()>,
);

fn spawn_prober(arp: Arp) -> Prober {
    let (ask, mut asked) = mpsc::channel(WAITING);
    let (answer, found) = mpsc::channel(WAITING);
    let task = tokio::spawn(async move {
        while let Some(address) = asked.recv().await {
            let result = match arp.is_used(address).await {
                Ok(true) => ProbeResult::InUse,
                Ok(false) => ProbeResult::Free,
                Err(error) => {
                    tracing::warn!(error = format!("{error:#}"), "probing addresses failed");
                    return;
                }
            };
            if answer.send((address, result)).await.is_err() {
                return;
            }
        }
    });
    (ask, found, task)
}

struct AbortOnDrop<T>(JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A datagram with what is needed to answer it.
#[derive(Clone)]
struct Received {
    request: Request,
    listener: Listener,
    from: SocketAddr,
}

struct Edge {
    dhcp: Dhcp,
    segment: Segment,
    server: Server,
    leases: LeaseFile,
    main: UdpSocket,
    pxe: UdpSocket,
    /// Port 68, to hear other servers.
    client: UdpSocket,
    netlink: Handle,
    ask: mpsc::Sender<Ipv4Addr>,
    /// Datagrams by the address that is being probed for them.
    waiting: BTreeMap<Ipv4Addr, Vec<Received>>,
    _tasks: [AbortOnDrop<()>; 2],
}

impl Edge {
    async fn run(
        mut self,
        mut found: mpsc::Receiver<(Ipv4Addr, ProbeResult)>,
    ) -> Result<Infallible> {
        let [mut main, mut pxe, mut client] = [(); 3].map(|()| vec![0; sockets::LARGEST]);
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut asked_again = Instant::now();
        let pulse = liveness::pulse("dhcp");
        loop {
            pulse.beat();
            tokio::select! {
                received = self.main.recv_from(&mut main) => {
                    let (length, from) = received.context("receiving on UDP port 67")?;
                    self.datagram(&main[..length], Listener::Dhcp, from).await?;
                }
                received = self.pxe.recv_from(&mut pxe) => {
                    let (length, from) = received.context("receiving on UDP port 4011")?;
                    self.datagram(&pxe[..length], Listener::Pxe, from).await?;
                }
                received = self.client.recv_from(&mut client) => {
                    let (length, _) = received.context("receiving on UDP port 68")?;
                    self.overheard(&client[..length])?;
                }
                result = found.recv() => {
                    let (address, result) = result.context("probing addresses ended")?;
                    self.server.probed(address, result, now());
                    for received in self.waiting.remove(&address).unwrap_or_default() {
                        self.handle(received).await?;
                    }
                }
                _ = tick.tick() => {
                    self.tick();
                    if self.is_proxy() && asked_again.elapsed() > ASK_AGAIN {
                        asked_again = Instant::now();
                        let foreign = probe_foreign(&self.client, &self.segment).await?;
                        self.set_mode(foreign)?;
                    }
                }
            }
        }
    }

    fn tick(&mut self) {
        let now = now();
        self.dhcp
            .status
            .send(Update::Leases(self.server.leases().active(now)));
        for address in self.server.probe_ahead(now) {
            if self.ask.try_send(address).is_err() {
                break;
            }
        }
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
        match self
            .server
            .handle_request(&received.request, received.listener, now())
        {
            Decision::Reply(reply) => {
                tracing::debug!(%mac, destination = ?reply.destination, boot = ?reply.boot, "DHCP reply");
                self.persist(&reply.persist)?;
                if !reply.persist.is_empty() {
                    self.tick();
                }
                self.send(&reply, &received).await;
            }
            Decision::Record { persist, event } => {
                tracing::info!(%mac, reason = %event, "DHCP");
                self.persist(&persist)?;
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
            Decision::Ignore(reason) => self.ignored(mac, &reason),
        }
        let address = self.server.leases().of_mac(mac).map(|lease| lease.address);
        self.dhcp.fleet.tell(Input::Dhcp { mac, arch, address });
        Ok(())
    }

    fn ignored(&self, mac: firstlight_netboot::MacAddr, reason: &Reason) {
        tracing::debug!(%mac, %reason, "a DHCP request was ignored");
        if let Reason::Exhausted { .. } = reason {
            let next =
                "set a larger `provisioning.range` in site.yaml and start the box again".to_owned();
            self.dhcp.status.problems(
                "dhcp-range",
                vec![Problem {
                    what: format!("{mac} got no address: {reason}"),
                    next,
                }],
            );
        }
    }

    /// On the disk before the answer leaves. A disk that takes nothing ends this server: no promise without it.
    fn persist(&mut self, changes: &[LeaseChange]) -> Result<()> {
        tokio::task::block_in_place(|| self.leases.append(changes, self.server.leases(), now()))
    }

    /// An answer that does not get out is asked for again.
    async fn send(&self, reply: &Reply, received: &Received) {
        let socket = if received.listener == Listener::Pxe {
            &self.pxe
        } else {
            &self.main
        };
        let to = match reply.destination {
            Destination::Broadcast { port } => SocketAddrV4::new(Ipv4Addr::BROADCAST, port).into(),
            Destination::Unicast { address, port } | Destination::Relay { address, port } => {
                SocketAddrV4::new(address, port).into()
            }
            Destination::Sender => received.from,
            Destination::Hardware { address, mac, port } => {
                match self.introduce(address, mac.octets()).await {
                    Ok(()) => SocketAddrV4::new(address, port).into(),
                    Err(error) => {
                        tracing::debug!(%mac, error = format!("{error:#}"), "answering by broadcast");
                        SocketAddrV4::new(Ipv4Addr::BROADCAST, port).into()
                    }
                }
            }
        };
        if let Err(error) = socket.send_to(&reply.encode(), to).await {
            tracing::warn!(%to, %error, "a DHCP reply was not sent");
        }
    }

    /// The client cannot answer ARP before it has its address, so the kernel is told where it is.
    async fn introduce(&self, address: Ipv4Addr, mac: [u8; 6]) -> Result<()> {
        let entry = self
            .netlink
            .neighbours()
            .add(self.segment.index, IpAddr::V4(address));
        let entry = entry
            .link_layer_address(&mac)
            .state(NeighbourState::Reachable)
            .replace();
        entry
            .execute()
            .await
            .with_context(|| format!("entering {address} as a neighbour"))
    }

    fn is_proxy(&self) -> bool {
        self.server.config().spec().mode == Mode::Proxy
    }

    /// Other servers' answers, as far as they are broadcast.
    fn overheard(&mut self, datagram: &[u8]) -> Result<()> {
        match observe_foreign(datagram, self.segment.address.address()) {
            Some(foreign) if !self.is_proxy() => self.set_mode(Some(foreign)),
            _ => Ok(()),
        }
    }

    fn set_mode(&mut self, foreign: Option<ForeignServer>) -> Result<()> {
        if foreign.is_some() != self.is_proxy() {
            self.server.set_config(dhcp_config(&self.dhcp, foreign)?);
            self.tell_mode(foreign);
        }
        Ok(())
    }

    fn tell_mode(&self, foreign: Option<ForeignServer>) {
        let status = &self.dhcp.status;
        status.done(StepName::Dhcp);
        let Some(ForeignServer { server, offered }) = foreign else {
            tracing::info!(interface = self.segment.interface, "serving DHCP");
            status.problems("dhcp", vec![]);
            status.send(Update::Dhcp(DhcpMode::Serving));
            return;
        };
        tracing::warn!(%server, %offered, "another DHCP server is here");
        status.send(Update::Dhcp(DhcpMode::Proxy {
            server: server.to_string(),
        }));
        let problem = Problem {
            what: format!("{server} leases addresses on the provisioning network (it offered {offered}), so this box gives boot information only"),
            next: "to let the box lease addresses, switch the other server off; the box notices within 5 minutes. \
                   Otherwise make sure that its addresses are in the box's network"
                .to_owned(),
        };
        status.problems("dhcp", vec![problem]);
    }
}
