//! Carries out what [`Agent`] decides: threads for calls and jobs, the command API's server, the box.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use firstlight_api::report::{Fresh, LookupState, MOST_SUCCESSIONS, Phase, Report};
use firstlight_api::tpm::Tpm;
use firstlight_client::key::Key;
use firstlight_client::tls::BoxClock;
use uuid::Uuid;

use super::agent::{Agent, Config};
use super::boxlink::{BoxLink, ProgressLine};
use super::event::{Action, Departure, Event, Failure, HeartbeatReply, Registration};
use super::facts::Facts;
use super::identity::Identity;
use super::ironic::Ironic;
use super::job::Job;
use super::log::LogLine;
use super::machine::Machine;
use super::prover::{self, Prover};
use super::relay::Relay;
use super::server::Server;
use super::work::{Rule, Worker, sentence};
use crate::deploy::cancel::Cancel;
use crate::deploy::image::{Offer, Patience};
use crate::inventory::Link;

/// How long Ironic may say nothing; an answer can take long while it is busy with many machines. The answer to a lookup
/// brings a token that is given once: not to wait for it costs a reset of the node.
const SILENCE: Duration = Duration::from_mins(2);
/// How long an image server may say nothing before the download is resumed elsewhere or later.
const IMAGE_SILENCE: Duration = Duration::from_secs(15);
/// How long the last word to the box may take.
const LAST_WORD: Duration = Duration::from_secs(15);

#[derive(Clone, Debug)]
pub struct Settings {
    pub box_url: Option<String>,
    pub ironic_url: Option<String>,
    pub inspection_url: Option<String>,
    pub insecure: bool,
    pub ca_sha256: Option<[u8; 32]>,
    pub boot_mac: String,
    pub address: IpAddr,
    /// Of the command API; 0 takes a free one.
    pub port: u16,
    pub patience: Patience,
    /// Where the kernel's log is read.
    pub kernel_log: Option<PathBuf>,
}

/// Runs until the machine is to restart. An error was logged.
pub fn run(settings: Settings, machine: Arc<dyn Machine>) -> Result<Departure> {
    let (events, inbox) = channel();
    let (end, log) = match Edge::start(settings, machine, events) {
        Ok(mut edge) => (edge.run(&inbox), edge.log),
        Err(error) => (Err(error), None),
    };
    if let Err(error) = &end {
        tracing::error!("{error:#}; the machine starts again");
    }
    if let Some(log) = log {
        log.drain(LAST_WORD);
    }
    end
}

/// Everything that the threads share.
struct Shared {
    settings: Settings,
    facts: Arc<Facts>,
    worker: Worker,
    link: Option<BoxLink>,
    prover: Prover,
    clock: Arc<BoxClock>,
    /// Once the CA is there.
    ironic: Mutex<Option<Ironic>>,
    boot_id: String,
    callback: String,
    certificate: String,
}

struct Edge {
    shared: Arc<Shared>,
    events: Sender<Event>,
    server: Server,
    progress: Option<Arc<ProgressLine>>,
    log: Option<LogLine>,
    cancel: Cancel,
    started: Instant,
}

impl Edge {
    fn start(settings: Settings, machine: Arc<dyn Machine>, events: Sender<Event>) -> Result<Self> {
        let identity = Identity::new(settings.address)?;
        let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, settings.port));
        let listener = TcpListener::bind(any)
            .with_context(|| format!("listening on port {}", settings.port))?;
        let port = listener
            .local_addr()
            .context("the command API's address")?
            .port();
        let home = settings.box_url.as_deref().and_then(address_of);
        let server = Server::start(listener, identity.config, home, events.clone())?;
        let clock = Arc::new(BoxClock::default());
        let boot_id = Uuid::new_v4().to_string();
        let key = Key::new()?;
        if settings.box_url.is_some() {
            let code = key.public().code();
            tracing::info!("This machine's code is {code}; the box shows the same one.");
        }
        let link = settings
            .box_url
            .as_deref()
            .map(|url| BoxLink::new(url, Arc::clone(&clock), key.clone()));
        let progress = link.clone().map(|link| {
            let events = events.clone();
            Arc::new(ProgressLine::start(
                link,
                settings.boot_mac.clone(),
                boot_id.clone(),
                // Nobody listens any more only when the machine restarts.
                move || drop(events.send(Event::ReportWanted)),
            ))
        });
        let address = match settings.address {
            IpAddr::V4(address) => address,
            IpAddr::V6(_) => Ipv4Addr::UNSPECIFIED,
        };
        let facts = Arc::new(Facts::new(
            Arc::clone(&machine),
            Link {
                boot_mac: settings.boot_mac.clone(),
                address,
            },
        ));
        let prover = Prover::start(Arc::clone(&machine), prover::Patience::default());
        let teller = progress.clone();
        let worker = Worker {
            rule: match settings.box_url {
                Some(_) => Rule::Box,
                None => Rule::AnyIronic,
            },
            machine,
            key,
            facts: Arc::clone(&facts),
            patience: settings.patience,
            relay: settings.box_url.as_deref().map(offer).transpose()?,
            tell: Arc::new(move |phase: Phase| {
                if let Some(line) = &teller {
                    line.tell(phase);
                }
            }),
            installed: Mutex::default(),
        };
        let shared = Arc::new(Shared {
            callback: format!("https://{}", SocketAddr::new(settings.address, port)),
            certificate: identity.certificate_pem,
            settings,
            facts,
            worker,
            link,
            prover,
            clock,
            ironic: Mutex::default(),
            boot_id,
        });
        Ok(Self {
            log: log::start(&shared),
            shared,
            events,
            server,
            progress,
            cancel: Cancel::default(),
            started: Instant::now(),
        })
    }

    fn run(&mut self, inbox: &Receiver<Event>) -> Result<Departure> {
        let shared = Arc::clone(&self.shared);
        thread::Builder::new()
            .name("bmc".to_owned())
            .spawn(move || shared.keep_account())
            .context("starting a thread for the BMC")?;
        let (high, low) = Uuid::new_v4().as_u64_pair();
        let (mut agent, mut actions) = Agent::start(Config {
            has_box: self.shared.link.is_some(),
            inspects: true,
            seed: high ^ low,
            started_at: self.shared.clock.seconds(),
        });
        loop {
            for action in actions {
                if let Some(departure) = self.apply(action)? {
                    return Ok(departure);
                }
            }
            let event = self.next_event(inbox, agent.next_wake());
            actions = agent.handle(self.started.elapsed(), event);
            // Before the heartbeat after which Ironic comes.
            self.server.expect(agent.token());
        }
    }

    fn next_event(&self, inbox: &Receiver<Event>, wake: Option<Duration>) -> Event {
        // Without a timer something else is under way that will report; an hour only bounds the wait.
        let wait = wake.map_or(Duration::from_hours(1), |at| {
            at.saturating_sub(self.started.elapsed())
        });
        match inbox.recv_timeout(wait) {
            Ok(event) => event,
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => Event::Woken,
        }
    }

    fn apply(&mut self, action: Action) -> Result<Option<Departure>> {
        match action {
            Action::Report { lookup } => {
                self.call(move |shared| Event::Reported(shared.report(lookup)))
            }
            Action::Inspect { node } => {
                self.call(move |shared| Event::Registration(shared.inspect(node.as_deref())))
            }
            Action::LookUp { node } => {
                self.call(move |shared| Event::Registration(shared.look_up(node.as_deref())))
            }
            Action::Beat { uuid, token } => {
                self.call(move |shared| Event::HeartbeatReply(shared.beat(&uuid, &token)))
            }
            Action::Start { id, job } => self.begin(id, job),
            Action::Answer { ask, status, body } => {
                self.server.answer(ask, status, body);
                Ok(())
            }
            Action::Abort => {
                self.cancel.raise();
                Ok(())
            }
            Action::Tell(phase) => {
                if let Some(line) = &self.progress {
                    line.tell(phase);
                }
                Ok(())
            }
            Action::Say(text) => {
                tracing::info!("{text}");
                Ok(())
            }
            Action::CloseServer => {
                self.server.close();
                Ok(())
            }
            Action::Leave(departure) => {
                if let Some(line) = &self.progress {
                    line.drain(LAST_WORD);
                }
                if let Some((_, relay)) = &self.shared.worker.relay {
                    relay.close();
                }
                return Ok(Some(departure));
            }
        }?;
        Ok(None)
    }

    /// Makes a call in a thread of its own; its result comes back as an event.
    fn call(&self, call: impl FnOnce(&Shared) -> Event + Send + 'static) -> Result<()> {
        let (shared, events) = (Arc::clone(&self.shared), self.events.clone());
        thread::Builder::new()
            .spawn(move || {
                // Nobody listens any more only when the machine restarts.
                let _ = events.send(call(&shared));
            })
            .context("starting a thread")?;
        Ok(())
    }

    fn begin(&mut self, id: Uuid, job: Job) -> Result<()> {
        self.cancel = Cancel::default();
        let cancel = self.cancel.clone();
        self.call(move |shared| Event::Finished {
            id,
            result: shared
                .worker
                .run(&job, &shared.image_client(), &cancel)
                .map_err(|error| Failure {
                    reason: sentence(&error),
                }),
        })
    }
}

/// Of `http://ADDRESS`; the box is named by its address.
fn address_of(url: &str) -> Option<IpAddr> {
    let (_, host) = url.split_once("://")?;
    host.split(['/', ':']).next()?.parse().ok()
}

fn offer(box_url: &str) -> Result<(Offer, Relay)> {
    let relay = Relay::start()?;
    let offer = Offer {
        box_url: format!("{}/", box_url.trim_end_matches('/')),
        port: relay.port,
    };
    Ok((offer, relay))
}

mod bmc;
mod clients;
mod log;

impl Shared {
    fn report(&self, lookup: LookupState) -> Result<firstlight_api::report::Directive, String> {
        let link = self.link.as_ref().ok_or("there is no box")?;
        let inventory = self.facts.inventory();
        let disks = self.facts.signatures(&inventory.disks);
        let (mac, key) = (&self.settings.boot_mac, self.worker.key.public());
        let earlier = self.facts.earlier_keys().into_iter();
        let report = Report {
            boot_mac: mac.clone(),
            boot_id: self.boot_id.clone(),
            address: self.settings.address.to_string(),
            inventory: serde_json::to_value(&inventory).map_err(|e| e.to_string())?,
            disks,
            lookup,
            // The prover's to say.
            tpm: Tpm::default(),
            follows: earlier
                .map(|before| before.hands_over(mac, &key))
                .take(MOST_SUCCESSIONS)
                .collect(),
            fresh: Fresh::default(),
        };
        link.report(report, &self.prover)
    }

    fn inspect(&self, node: Option<&str>) -> Registration {
        match self.ironic() {
            Ok(ironic) => ironic.inspect(node, &self.facts.inspection(node)),
            Err(error) => Registration::Failed(format!("{error:#}")),
        }
    }

    fn look_up(&self, node: Option<&str>) -> Registration {
        let by = if let Some(node) = node {
            format!("node_uuid={node}")
        } else {
            let interfaces = self.facts.inventory().interfaces;
            let macs: Vec<String> = interfaces.into_iter().map(|i| i.mac_address).collect();
            format!("addresses={}", macs.join(","))
        };
        match self.ironic() {
            Ok(ironic) => ironic.look_up(&by),
            Err(error) => Registration::Failed(format!("{error:#}")),
        }
    }

    fn beat(&self, uuid: &str, token: &str) -> HeartbeatReply {
        match self.ironic() {
            Ok(ironic) => ironic.heartbeat(uuid, token, &self.callback, &self.certificate),
            Err(error) => HeartbeatReply::Failed(format!("{error:#}")),
        }
    }
}
