//! The controller at work: brings events to [`Hosts`] and carries out what it orders. It never waits for anybody: what takes time is a
//! task that comes back as an event, and the disk has a thread of its own.

mod calls;
mod shown;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use firstlight_api::{
    account::Order,
    bmh::BareMetalHost,
    report::Directive,
    status::Problem,
    verb::{DEPARTURE_WINDOW_S, MOST_DEPARTURES},
};
use firstlight_netboot::MacAddr;
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::JoinSet,
};

use super::{
    account::Change,
    account_writer::{self, Writing},
    apply::{self, ActionError, Hands},
    bootstrap,
    delivery::Collector,
    event::{AccountBy, Effect, End, Event, Look, Now, Question, Reply},
    fold::{self, Hosts},
    ledger::{Ledger, Ledgers},
    memory::Ticket,
    objects,
    poll::{self, IronicEnd},
    ramdisk_files::RamdiskFiles,
    rmcp,
    store::{HostStore, Versions},
    token::Token,
};
use crate::{
    clock,
    fleet::{self, Answer, Input},
    liveness,
    network::firewall::Endpoint,
    sources::Sources,
    ssh::{Keys, Node},
    status::{Failing, StatusSender, counters::REFUSED},
    store::{ServedImage, Store as Artifacts, User},
};
pub use shown::Window;

/// Hosts that a person removed and that are remembered.
const MOST_REMOVED: usize = 1024;

/// What the controller is told once.
#[derive(Clone, Debug)]
pub struct Settings {
    pub judged_by: fold::Settings,
    pub ledgers: Ledgers,
    pub keys: Keys,
    pub packages: Sources,
    pub ramdisk: RamdiskFiles,
}

/// The controller's connections to the rest.
pub struct Inputs<S> {
    pub fleet: fleet::Controller,
    pub ironic: watch::Receiver<Option<IronicEnd>>,
    pub store: watch::Receiver<Option<S>>,
    /// The artifacts of the box.
    pub artifacts: watch::Receiver<Option<Artifacts>>,
    /// Where Ironic may go.
    pub bmcs: watch::Sender<BTreeSet<Endpoint>>,
    pub status: StatusSender,
}

/// Runs until its inputs end.
pub async fn run<S: HostStore>(settings: Settings, inputs: Inputs<S>) -> anyhow::Result<()> {
    let pace = settings.judged_by.pace;
    let fleet::Controller {
        inputs: mut from_fleet,
        view,
    } = inputs.fleet;
    let (looks, mut looked) = mpsc::channel(1);
    let (seen, mut objects_seen) = mpsc::channel(1);
    let look = watch::Sender::new(Look {
        pause: pace.busy,
        few: None,
    });
    let wanted = watch::Sender::new(Arc::default());
    let (secrets, readings) = mpsc::channel(16);
    let mut background = JoinSet::new();
    background.spawn(bootstrap::read_secrets(
        settings.judged_by.site.clone(),
        inputs.store.clone(),
        readings,
    ));
    let (accounts, writings) = mpsc::channel(16);
    background.spawn(account_writer::run(inputs.store.clone(), writings));
    let (versions, mut versions_seen) = mpsc::channel(1);
    background.spawn(follow_secrets(inputs.store.clone(), versions));
    background.spawn(objects::run(
        inputs.store,
        wanted.subscribe(),
        seen,
        pace.idle,
        Failing::new(
            inputs.status.clone(),
            "host-objects",
            "servers are not written to Kubernetes",
        ),
    ));
    background.spawn(poll::run(
        inputs.ironic.clone(),
        look.subscribe(),
        pace.idle,
        looks,
    ));
    let mut tick = tokio::time::interval(pace.busy);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let (remembered, to_disk, mut from_disk) = open(&settings.ledgers, &mut background)?;
    let mut runner = Runner {
        hosts: Hosts::new(settings.judged_by.clone(), Token::random, remembered),
        hands: Hands {
            ssh_keys: settings.judged_by.site.ssh_keys.clone(),
            keys: settings.keys,
            packages: settings.packages,
            proxy: settings.judged_by.site.proxied_server(),
            secrets,
            hail: rmcp::hail,
            ramdisk: settings.ramdisk,
        },
        ironic: None,
        artifacts: inputs.artifacts,
        bmcs: inputs.bmcs,
        window: Window::new(view, inputs.status.clone(), wanted),
        status: inputs.status,
        uploads: Vec::new(),
        accounts,
        tasks: JoinSet::new(),
        to_disk,
        look,
        questions: BTreeMap::new(),
        ticket: 0,
    };
    let mut ironic = inputs.ironic;
    let pulse = liveness::pulse("hosts");
    loop {
        pulse.beat();
        let event = tokio::select! {
            input = from_fleet.recv() => match input {
                Some(input) => runner.event_of(input),
                None => return Ok(()),
            },
            Some(event) = looked.recv() => event,
            Some(objects) = objects_seen.recv() => Event::Objects(objects),
            Some(versions) = versions_seen.recv() => Event::Secrets(versions),
            Some(event) = from_disk.recv() => event,
            Some(event) = runner.tasks.join_next() => event?,
            Some(ended) = background.join_next() => return ended?,
            _ = tick.tick() => Event::Tick,
        };
        runner.look_around(&mut ironic);
        runner.take(event);
    }
}

async fn follow_secrets<S: HostStore>(
    mut store: watch::Receiver<Option<S>>,
    seen: mpsc::Sender<Versions>,
) -> anyhow::Result<()> {
    let store = store.wait_for(Option::is_some).await?.clone();
    if let Some(store) = store {
        store.follow_secrets(seen).await;
    }
    Ok(())
}

type Opened = (
    BTreeMap<MacAddr, Ledger>,
    mpsc::UnboundedSender<Save>,
    mpsc::UnboundedReceiver<Event>,
);

/// A ledger on its way to the disk. There is one of each host at most.
struct Save {
    mac: MacAddr,
    /// `None`: its file goes.
    ledger: Option<Box<Ledger>>,
}

/// What the ledgers say, and the thread that writes them from now on, one after the other.
fn open(ledgers: &Ledgers, background: &mut JoinSet<anyhow::Result<()>>) -> anyhow::Result<Opened> {
    let mut remembered = ledgers.load()?;
    if let Err(error) = ledgers.forget_long_removed(&mut remembered, MOST_REMOVED) {
        let error = format!("{error:#}");
        tracing::warn!(error, "removed hosts are not forgotten");
    }
    let (to_disk, mut orders) = mpsc::unbounded_channel::<Save>();
    let (told, from_disk) = mpsc::unbounded_channel();
    let ledgers = ledgers.clone();
    background.spawn_blocking(move || {
        while let Some(Save { mac, ledger }) = orders.blocking_recv() {
            let Some(ledger) = ledger else {
                if let Err(error) = ledgers.forget(mac) {
                    tracing::warn!(%mac, %error, "the ledger of a host that is gone stays");
                }
                continue;
            };
            let result = ledgers.save(mac, &ledger);
            let result = result.map_err(|error| format!("{error:#}"));
            // The controller may have ended.
            let _ = told.send(Event::Saved { mac, result });
        }
        Ok(())
    });
    Ok((remembered, to_disk, from_disk))
}

/// Who waits for an answer.
enum Waiting {
    Report(oneshot::Sender<Directive>),
    Progress(oneshot::Sender<bool>),
    Bmc(oneshot::Sender<Option<Order>>),
    Bootstrap(oneshot::Sender<Answer>),
}

struct Runner {
    hosts: Hosts,
    hands: Hands,
    ironic: Option<IronicEnd>,
    artifacts: watch::Receiver<Option<Artifacts>>,
    bmcs: watch::Sender<BTreeSet<Endpoint>>,
    status: StatusSender,
    uploads: Vec<ServedImage>,
    accounts: mpsc::Sender<Writing>,
    tasks: JoinSet<Event>,
    to_disk: mpsc::UnboundedSender<Save>,
    look: watch::Sender<Look>,
    window: Window,
    questions: BTreeMap<Ticket, Waiting>,
    ticket: Ticket,
}

impl Runner {
    fn take(&mut self, event: Event) {
        let now = Now {
            up: clock::uptime(),
            wall: clock::wall_seconds(),
        };
        for effect in self.hosts.fold(event, now) {
            self.carry_out(effect);
        }
    }

    /// What is read where it stands, because it changes seldom.
    fn look_around(&mut self, ironic: &mut watch::Receiver<Option<IronicEnd>>) {
        if ironic.has_changed().unwrap_or_default() || self.ironic.is_none() {
            self.ironic.clone_from(&ironic.borrow_and_update());
            if let Some(end) = &self.ironic {
                let box_http = end.box_http.clone();
                self.take(Event::Ironic { box_http });
            }
        }
        let artifacts = self.artifacts.borrow().clone();
        let uploads = artifacts.map_or_else(Vec::new, |artifacts| artifacts.images());
        if uploads != self.uploads {
            self.uploads.clone_from(&uploads);
            self.take(Event::Uploads(uploads));
        }
    }

    fn event_of(&mut self, input: Input) -> Event {
        match input {
            Input::Dhcp { mac, arch, address } => Event::Dhcp { mac, arch, address },
            Input::Report {
                from,
                report,
                answer,
            } => Event::Report {
                ticket: self.ask(Waiting::Report(answer)),
                from,
                report,
            },
            Input::Progress {
                from,
                progress,
                answer,
            } => Event::Progress {
                ticket: self.ask(Waiting::Progress(answer)),
                from,
                progress,
            },
            Input::Bmc { from, post, answer } => Event::Bmc {
                ticket: self.ask(Waiting::Bmc(answer)),
                from,
                post,
            },
            Input::Bootstrap(question) => Event::Asked(Question {
                ticket: self.ask(Waiting::Bootstrap(question.answer)),
                host: question.host,
                token: Token::of(question.token),
                key: question.key,
                ask: question.ask,
            }),
        }
    }

    fn ask(&mut self, waiting: Waiting) -> Ticket {
        self.ticket += 1;
        self.questions.insert(self.ticket, waiting);
        self.ticket
    }

    fn answer(&mut self, ticket: Ticket, answer: Reply) {
        // Whoever asked may be gone.
        match (self.questions.remove(&ticket), answer) {
            (Some(Waiting::Report(to)), Reply::Directive(directive)) => drop(to.send(directive)),
            (Some(Waiting::Progress(to)), Reply::Believed(believed)) => {
                let _ = to.send(believed);
            }
            (Some(Waiting::Bmc(to)), Reply::Account(order)) => drop(to.send(order)),
            (Some(Waiting::Bootstrap(to)), Reply::Bootstrap(answer)) => drop(to.send(answer)),
            (_, answer) => tracing::error!(?answer, "an answer to nobody's question"),
        }
    }

    fn write_account(
        &mut self,
        mac: MacAddr,
        by: AccountBy,
        object: Arc<BareMetalHost>,
        change: Change,
    ) {
        let accounts = self.accounts.clone();
        self.tasks.spawn(async move {
            let result = account_writer::ask(&accounts, object, change).await;
            Event::AccountWritten { mac, by, result }
        });
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            // The thread ends with the controller.
            Effect::Save { mac, ledger } => {
                let ledger = Some(ledger);
                drop(self.to_disk.send(Save { mac, ledger }));
            }
            Effect::ForgetLedger(mac) => drop(self.to_disk.send(Save { mac, ledger: None })),
            Effect::Act(act) => {
                let (Some(end), hands) = (self.ironic.clone(), self.hands.clone()) else {
                    return;
                };
                self.tasks.spawn(async move {
                    let (mac, action) = (act.mac, act.action.clone());
                    let result = apply::apply(&end, &hands, &act).await;
                    if let Err(error) = &result {
                        tracing::warn!(host = act.name, %mac, action = ?action, error = %error, "an action was not begun");
                    }
                    let end = end_of(result);
                    Event::Acted { mac, action, end }
                });
            }
            Effect::Restart { mac, address, into } => self.restart(mac, address, into),
            Effect::StartRamdisk { mac, address } => self.start_ramdisk(Node { mac, address }),
            Effect::Probe { mac, address } => self.probe(mac, address),
            Effect::Collect(of) => {
                let hands = self.hands.clone();
                self.tasks.spawn(async move {
                    let collector = Collector {
                        ssh_keys: &hands.ssh_keys,
                        keys: &hands.keys,
                        secrets: &hands.secrets,
                    };
                    let (mac, data) = (of.mac, collector.collect(&of).await);
                    let question = of.question;
                    Event::Collected {
                        mac,
                        question,
                        data,
                    }
                });
            }
            Effect::Account {
                mac,
                by,
                object,
                change,
            } => self.write_account(mac, by, object, change),
            Effect::AskSystem {
                mac,
                address,
                ask,
                call,
            } => self.ask_system(Node { mac, address }, ask, call),
            Effect::LookAtMirror { mac, address, call } => {
                self.look_at_mirror(Node { mac, address }, call);
            }
            Effect::Answer { ticket, answer } => self.answer(ticket, answer),
            Effect::Show { mac, shown } => self.window.show(mac, shown),
            Effect::Look(look) => drop(self.look.send_replace(look)),
            Effect::ForgetKeys(mac) => {
                let keys = self.hands.keys.clone();
                tokio::spawn(async move { keys.forget(mac).await });
            }
            Effect::Use(references) => {
                if let Some(artifacts) = &*self.artifacts.borrow() {
                    artifacts.note(User::Hosts, references);
                }
            }
            Effect::Bmcs(endpoints) => {
                self.bmcs.send_if_modified(|known| {
                    let news = *known != endpoints;
                    *known = endpoints;
                    news
                });
            }
            Effect::Strays(strays) => {
                self.window.stray(strays.targets);
                self.status.problems("host-strays", strays.problems);
            }
            Effect::Held(names) => {
                let problem = (!names.is_empty()).then(|| held(&names));
                self.status
                    .problems("hosts-held", problem.into_iter().collect());
            }
            Effect::Refused(why) => REFUSED.count(why),
        }
    }
}

/// More hosts shall be given back than one mistake may take.
fn held(names: &[String]) -> Problem {
    Problem {
        what: format!(
            "{} servers shall be given back and keep their systems until a person says their names, because more than {MOST_DEPARTURES} within {} \
             minutes may be a mistake: {}",
            names.len(),
            DEPARTURE_WINDOW_S / 60,
            names.join(", ")
        ),
        next: format!(
            "if all of them are meant, run `firstlight hosts give-back {} --yes-all-of {}`; otherwise give them their images back (docs/hosts.md)",
            names.join(" "),
            names.join(",")
        ),
    }
}

pub fn end_of(result: Result<(), ActionError>) -> End {
    match result {
        Ok(()) => End::Begun,
        Err(ActionError::Ironic(error)) if error.is_transient() => End::Later,
        Err(ActionError::Ironic(error)) => End::Refused(Problem {
            what: error.to_string(),
            next: "the box tries again; if it stays, look at Ironic's log: `kubectl -n kube-system logs ironic-box`".to_owned(),
        }),
        Err(ActionError::Other(problem)) => End::Refused(problem),
    }
}
