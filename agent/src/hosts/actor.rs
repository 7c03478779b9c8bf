//! The owner of all hosts: events in, decisions out. It never waits for anybody; what takes time is a task that sends an
//! event back.

use std::{collections::BTreeMap, net::Ipv4Addr, ops::RangeInclusive, sync::Arc, time::Duration};

use firstlight_api::{
    bmh::{APPROVE_ANNOTATION, BareMetalHost, INSTALL_ANNOTATION},
    report::{Directive, Progress, Report},
    site::{InstallPolicy, SiteConfig},
    status::{HostState, HostStatus, Problem},
};
use firstlight_ironic::Node;
use firstlight_netboot::{ClientArch, MacAddr};
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
};

use super::{
    apply::{self, ActionError, Endpoint, Task, node_uuid},
    bootstrap::{self, Reading},
    delivery::{self, Confirmed},
    image::NodeImage,
    known::{self, Heard, Newcomers},
    ledger::{Ledger, Ledgers},
    object,
    objects::{self, Desired},
    plan::{Action, EXTRA_MAC},
    policy,
    poll::{self, IronicEnd, Look},
    record::{Record, Records, Site},
    store::HostStore,
    who::{Claim, Patience, Refused},
    wish::Destiny,
};
use crate::{
    clock,
    fleet::{self, Input, Speaker, View},
    liveness,
    sources::Sources,
    ssh::{self, Keys, Towards},
    status::{Failing, StatusSender, counters::REFUSED},
    store::{Reference, ServedImage, Store as Artifacts, Target, User},
};

/// Hosts that a person removed and that are remembered.
const MOST_REMOVED: usize = 1024;

/// What the controller is told once.
#[derive(Clone, Debug)]
pub struct Settings {
    pub site: Arc<SiteConfig>,
    /// Where ramdisks are.
    pub network: RangeInclusive<Ipv4Addr>,
    pub image: Result<NodeImage, Problem>,
    /// What hosts are there for that nobody claimed.
    pub destiny: Destiny,
    pub ledgers: Ledgers,
    pub keys: Keys,
    pub packages: Sources,
    pub pace: Pace,
}

/// How often it looks.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// While something is going on, and after a failed call.
    pub busy: Duration,
    pub idle: Duration,
    /// After Ironic refused an action.
    pub refused: Duration,
    pub patience: Patience,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            busy: Duration::from_secs(1),
            idle: Duration::from_secs(10),
            refused: Duration::from_secs(15),
            patience: Patience::default(),
        }
    }
}

/// The controller's connections to the rest.
pub struct Inputs<S> {
    pub fleet: fleet::Controller,
    pub ironic: watch::Receiver<Option<IronicEnd>>,
    pub store: watch::Receiver<Option<S>>,
    /// The artifacts of the box.
    pub artifacts: watch::Receiver<Option<Artifacts>>,
    pub hosts: watch::Sender<Vec<HostStatus>>,
    pub status: StatusSender,
}

enum Event {
    Done {
        mac: MacAddr,
        action: Action,
        result: Result<(), ActionError>,
    },
    Knocked {
        mac: MacAddr,
        into: Towards,
        result: Result<(), String>,
    },
    Confirmed(Confirmed),
    /// A delivery that needed nothing of the controller afterwards, except for what went wrong.
    Delivered {
        mac: MacAddr,
        problem: Option<Problem>,
    },
    Ssh {
        mac: MacAddr,
        answers: bool,
    },
}

struct Actor {
    settings: Settings,
    records: Records,
    newcomers: Newcomers,
    /// Of hosts that have not shown up since the start.
    remembered: BTreeMap<MacAddr, Ledger>,
    secrets: mpsc::Sender<Reading>,
    /// Ironic has answered since the start.
    ironic_known: bool,
    /// It answered the last time.
    ironic_up: bool,
    ironic: Option<IronicEnd>,
    artifacts: watch::Receiver<Option<Artifacts>>,
    uploads: Vec<ServedImage>,
    tasks: JoinSet<Event>,
    /// Asks for the nodes at once; the value is the pause after that.
    look: watch::Sender<Duration>,
    view: watch::Sender<Arc<View>>,
    hosts: watch::Sender<Vec<HostStatus>>,
    wanted: watch::Sender<Arc<Vec<Desired>>>,
}

/// Runs until its inputs end.
pub async fn run<S: HostStore>(settings: Settings, inputs: Inputs<S>) -> anyhow::Result<()> {
    let Inputs {
        fleet,
        mut ironic,
        store,
        artifacts,
        hosts,
        status,
    } = inputs;
    let fleet::Controller {
        inputs: mut from_fleet,
        view,
    } = fleet;
    let (looks, mut looked) = mpsc::channel(1);
    let (seen, mut objects_seen) = mpsc::channel(1);
    let look = watch::Sender::new(settings.pace.busy);
    let wanted = watch::Sender::new(Arc::new(Vec::new()));
    let (secrets, readings) = mpsc::channel(16);
    let mut background = JoinSet::new();
    background.spawn(bootstrap::read_secrets(store.clone(), readings));
    background.spawn(objects::run(
        store,
        wanted.subscribe(),
        seen,
        settings.pace.idle,
        Failing::new(
            status,
            "host-objects",
            "servers are not written to Kubernetes",
        ),
    ));
    background.spawn(poll::run(ironic.clone(), look.subscribe(), looks));
    let mut tick = tokio::time::interval(settings.pace.busy);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut remembered = settings.ledgers.load()?;
    if let Err(error) = settings
        .ledgers
        .forget_long_removed(&mut remembered, MOST_REMOVED)
    {
        let error = format!("{error:#}");
        tracing::warn!(error, "removed hosts are not forgotten");
    }
    let mut actor = Actor {
        settings,
        records: BTreeMap::new(),
        newcomers: Newcomers::default(),
        remembered,
        secrets,
        ironic_known: false,
        ironic_up: false,
        ironic: None,
        artifacts,
        uploads: Vec::new(),
        tasks: JoinSet::new(),
        look,
        view,
        hosts,
        wanted,
    };
    let pulse = liveness::pulse("hosts");
    loop {
        pulse.beat();
        tokio::select! {
            input = from_fleet.recv() => match input {
                Some(input) => actor.input(input),
                None => return Ok(()),
            },
            Some(look) = looked.recv() => actor.looked(look),
            Some(objects) = objects_seen.recv() => actor.objects(objects),
            Some(done) = actor.tasks.join_next() => actor.event(done?),
            Some(ended) = background.join_next() => return ended?,
            _ = tick.tick() => {}
        }
        actor.ironic.clone_from(&ironic.borrow_and_update());
        actor.uploads = actor
            .artifacts
            .borrow()
            .as_ref()
            .map_or_else(Vec::new, Artifacts::images);
        actor.settle();
    }
}

impl Actor {
    fn input(&mut self, input: Input) {
        match input {
            Input::Dhcp { mac, arch, address } => {
                let heard = arch.is_some() || self.settings.site.host(mac).is_some();
                self.dhcp(mac, arch, address, heard);
            }
            Input::Report {
                from,
                report,
                answer,
            } => {
                let directive = self.report(from, *report);
                // The ramdisk may have gone away meanwhile.
                drop(answer.send(directive));
            }
            Input::Progress {
                from,
                progress,
                answer,
            } => {
                let believed = self.progress(from, progress);
                // The ramdisk may have gone away meanwhile.
                let _ = answer.send(believed);
            }
            Input::Bootstrap(question) => self.bootstrap(question),
        }
    }

    /// Only firmware and boot loaders make a server known: a laptop on the segment is none.
    fn dhcp(
        &mut self,
        mac: MacAddr,
        arch: Option<ClientArch>,
        address: Option<std::net::Ipv4Addr>,
        heard: bool,
    ) {
        if !heard && !self.records.contains_key(&mac) {
            return;
        }
        let ledgers = self.settings.ledgers.clone();
        let now = clock::uptime();
        let Some(record) = self.stranger(mac, Heard::Dhcp, now) else {
            return;
        };
        record.seen = now;
        if address.is_some() {
            record.address = address;
        }
        if arch.is_some() {
            record.who.firmware_asked(now);
            record.ssh_answered = None;
            // Firmware asks: it was restarted, by whomever.
            record.restarted(&ledgers);
        }
    }

    fn report(&mut self, from: Speaker, report: Report) -> Directive {
        match self.believe(from, report) {
            Err((why, reason)) => {
                REFUSED.count(why);
                Directive::Wait {
                    seconds: 5,
                    reason: reason.to_owned(),
                }
            }
            Ok(mac) => self.answer(mac),
        }
    }

    /// Takes a report if it can be true; otherwise a counter's name and a sentence.
    fn believe(
        &mut self,
        from: Speaker,
        report: Report,
    ) -> Result<MacAddr, (&'static str, &'static str)> {
        let (now, patience) = (clock::uptime(), self.settings.pace.patience);
        let mac = report.boot_mac.parse::<MacAddr>();
        let mac = mac.map_err(|_| ("report-mac", "the report has no MAC address"))?;
        let address = report.address.parse::<Ipv4Addr>().ok();
        let address = address
            .filter(|address| from.peer == *address && self.settings.network.contains(address))
            .ok_or((
                "report-address",
                "the box believes a report only from the address that it names, in the box's network",
            ))?;
        let taken = self.records.iter().any(|(other, record)| {
            *other != mac
                && record.who.address() == Some(address)
                && record.who.speaks(now, patience)
        });
        if taken {
            return Err((
                "report-address-taken",
                "another server reports from this address",
            ));
        }
        let claim = Claim {
            key: from.key,
            boot_id: &report.boot_id,
            address,
            sequence: report.fresh.sequence,
            tpm: from.tpm,
        };
        let join = self.settings.site.join;
        let (raised, ledgers) = (self.is_raised(), self.settings.ledgers.clone());
        let record = self.stranger(mac, Heard::Report, now).ok_or((
            "report-too-many",
            "the box knows too many servers, or met too many within a minute",
        ))?;
        record
            .recognise(&claim, &report.tpm, now, &ledgers)
            .and_then(|()| record.who.report(&claim, now, patience))
            .map_err(refusal_of)?;
        record.met(raised, &ledgers);
        record.saw_tpm(join, &ledgers);
        record.reported(report, now);
        Ok(mac)
    }

    /// A host has had its bootstrap data, as the first control plane of a cluster does before all others.
    fn is_raised(&self) -> bool {
        let known = self.records.values().map(|record| &record.ledger);
        let mut ledgers = known.chain(self.remembered.values());
        ledgers.any(|ledger| ledger.deployment.as_ref().is_some_and(|it| it.delivered))
    }

    fn answer(&mut self, mac: MacAddr) -> Directive {
        self.replan(mac);
        let Some(record) = self.records.get_mut(&mac) else {
            return Directive::Again;
        };
        let plan = record.plan.as_ref();
        let directive = plan.map_or_else(
            || Directive::Wait {
                seconds: 10,
                reason: "the box is thinking".to_owned(),
            },
            |plan| plan.directive.clone(),
        );
        if directive == Directive::BootDisk {
            record.who.leaves();
        }
        directive
    }

    /// True if it was believed.
    fn progress(&mut self, from: Speaker, progress: Progress) -> bool {
        let mac = progress.boot_mac.parse::<MacAddr>().ok();
        let Some((mac, record)) = mac.and_then(|mac| Some((mac, self.records.get_mut(&mac)?)))
        else {
            return false;
        };
        if let Err(why) = record.progressed(from.key, progress, clock::uptime()) {
            REFUSED.count(refusal_of(why).0);
            return false;
        }
        record.learn(&self.settings.ledgers);
        self.replan(mac);
        true
    }

    /// The record of somebody who says that he is there, within the limits for such.
    fn stranger(&mut self, mac: MacAddr, heard: Heard, now: Duration) -> Option<&mut Record> {
        let known = self.records.contains_key(&mac)
            || self.remembered.contains_key(&mac)
            || self.settings.site.host(mac).is_some();
        if !known && !self.newcomers.admit(&mut self.records, heard, now) {
            return None;
        }
        Some(self.record(mac))
    }

    /// A host's record, made if it is new.
    fn record(&mut self, mac: MacAddr) -> &mut Record {
        let site = &self.settings.site;
        let remembered = &mut self.remembered;
        self.records.entry(mac).or_insert_with(|| {
            let mut record = Record::new(mac, site.host_name(mac).to_string(), clock::uptime());
            record.policy = site.install_policy(mac);
            record.named = site.host(mac).is_some();
            record.ledger = remembered.remove(&mac).unwrap_or_default();
            record.address = site.host(mac).and_then(|host| host.address);
            record
        })
    }

    fn replan(&mut self, mac: MacAddr) {
        let site = Site {
            destiny: self.settings.destiny,
            join: self.settings.site.join,
            image: self.settings.image.as_ref(),
            uploads: &self.uploads,
            box_http: self.ironic.as_ref().map_or("", |end| end.box_http.as_str()),
            ironic_known: self.ironic_known,
            standing: self.settings.site.standing,
        };
        if let Some(record) = self.records.get_mut(&mac) {
            record.replan(&site, clock::uptime());
        }
    }

    fn bootstrap(&mut self, question: fleet::Question) {
        let host = self
            .records
            .iter()
            .find(|(mac, _)| node_uuid(**mac) == question.host)
            .map(|(mac, _)| *mac);
        let Some(mac) = host else {
            return question.refuse(fleet::Answer::Unknown);
        };
        let ledgers = &self.settings.ledgers;
        if let Some(record) = self.records.get_mut(&mac) {
            delivery::heard(record, &question, ledgers, clock::uptime());
        }
        self.replan(mac);
        let Some(record) = self.records.get(&mac) else {
            return;
        };
        let delivery = delivery::Delivery {
            mac,
            name: record.name.clone(),
            object: record.object.clone(),
            ssh_keys: self.settings.site.ssh_keys.clone(),
            keys: self.settings.keys.clone(),
            secrets: self.secrets.clone(),
        };
        if let Some(work) = delivery::begin(record, question, delivery) {
            self.tasks.spawn(async move {
                match work.run().await {
                    delivery::Outcome::Confirmed(confirmed) => Event::Confirmed(confirmed),
                    delivery::Outcome::Answered { mac, problem } => {
                        Event::Delivered { mac, problem }
                    }
                }
            });
        }
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Done {
                mac,
                action,
                result,
            } => self.done(mac, &action, result),
            Event::Ssh { mac, answers } => {
                if let Some(record) = self.records.get_mut(&mac).filter(|_| answers) {
                    record.ssh_answered = Some(clock::uptime());
                }
            }
            Event::Knocked { mac, into, result } => {
                if let Some(record) = self.records.get_mut(&mac) {
                    tracing::info!(host = record.name, %mac, into = ?into, result = ?result, "told it to restart");
                    record.knocked(into, result, &self.settings.ledgers, clock::uptime());
                }
            }
            Event::Confirmed(confirmed) => {
                if let Some(record) = self.records.get_mut(&confirmed.mac) {
                    confirmed.finish(record, &self.settings.ledgers);
                }
            }
            Event::Delivered { mac, problem } => {
                if let Some(record) = self.records.get_mut(&mac) {
                    record.hand_out_problem = problem;
                }
            }
        }
    }

    fn looked(&mut self, look: Look) {
        match look.nodes {
            Ok(nodes) => self.nodes(nodes, look.asked),
            Err(error) => {
                if self.ironic_up {
                    tracing::warn!(error = %error, "Ironic does not answer any more; hosts wait for it");
                }
                self.ironic_up = false;
            }
        }
    }

    fn nodes(&mut self, nodes: Vec<Node>, asked: Duration) {
        (self.ironic_known, self.ironic_up) = (true, true);
        let now = clock::uptime();
        let mut by_mac: BTreeMap<MacAddr, Node> = BTreeMap::new();
        for node in nodes {
            let mac = node.extra[EXTRA_MAC]
                .as_str()
                .and_then(|mac| mac.parse::<MacAddr>().ok());
            if let Some(mac) = mac.filter(|mac| node.uuid == node_uuid(*mac)) {
                self.record(mac);
                by_mac.insert(mac, node);
            }
        }
        for (mac, record) in &mut self.records {
            // A list from before the last action would show the state before it.
            if record.acted <= asked {
                record.observe_node(by_mac.remove(mac), now);
                record.outdated = false;
                record.learn(&self.settings.ledgers);
            }
        }
    }

    fn done(&mut self, mac: MacAddr, action: &Action, result: Result<(), ActionError>) {
        let now = clock::uptime();
        let pace = self.settings.pace;
        let Some(record) = self.records.get_mut(&mac) else {
            return;
        };
        (record.acted, record.outdated) = (now, true);
        match result {
            Ok(()) => record.accepted(action, now),
            Err(ActionError::Other(problem)) => {
                tracing::warn!(host = record.name, %mac, action = ?action, error = problem.what, "an action was not begun");
                record.rejected(now + pace.refused, Some(problem));
            }
            Err(ActionError::Ironic(error)) => {
                tracing::warn!(host = record.name, %mac, action = ?action, error = %error, "Ironic did not do it");
                let pause = if error.is_transient() {
                    pace.busy * 3
                } else {
                    pace.refused
                };
                record.rejected(
                    now + pause,
                    (!error.is_transient()).then(|| refusal(&error)),
                );
            }
        }
        self.look.send_replace(pace.busy);
    }

    fn objects(&mut self, objects: Vec<BareMetalHost>) {
        let ledgers = self.settings.ledgers.clone();
        if let Some(artifacts) = &*self.artifacts.borrow() {
            artifacts.note(User::Hosts, wanted_images(&objects));
        }
        for record in self.records.values_mut() {
            record.object = None;
        }
        for object in objects {
            let Ok(mac) = object
                .spec
                .boot_mac_address
                .to_lowercase()
                .parse::<MacAddr>()
            else {
                continue;
            };
            let site_policy = self.settings.site.install_policy(mac);
            let record = self.record(mac);
            let word = object.metadata.annotations.get(INSTALL_ANNOTATION);
            let word = word.and_then(|word| policy::parse(word));
            record.policy = word.unwrap_or(site_policy);
            let code = object.metadata.annotations.get(APPROVE_ANNOTATION);
            record.approve(code.map(String::as_str), &ledgers);
            let taken_back = word.is_some_and(|word| word != InstallPolicy::Never)
                || object.spec.image.is_some()
                || object.spec.externally_provisioned;
            // A person may have made the object, and chosen the name.
            record.name.clone_from(&object.metadata.name);
            record.address = record.address.or_else(|| object::known_address(&object));
            record.object = Some(object);
            record.remember(&ledgers, |ledger| ledger.removed &= !taken_back);
            record.learn(&ledgers);
        }
        self.let_go();
    }

    /// Hosts whose deleted objects are gone. They are new if they show up again, and left alone.
    fn let_go(&mut self) {
        let gone: Vec<MacAddr> = self
            .records
            .iter()
            .filter(|(_, record)| record.object.is_none() && record.is_released())
            .map(|(mac, _)| *mac)
            .collect();
        for mac in gone {
            if let Some(record) = self.records.remove(&mac) {
                tracing::info!(host = record.name, %mac, "a deleted host is gone");
                let keys = self.settings.keys.clone();
                tokio::spawn(async move { keys.forget(mac).await });
                self.remembered.insert(mac, record.ledger);
            }
        }
    }

    /// After every event: decide anew, begin what is due, publish.
    fn settle(&mut self) {
        let now = clock::uptime();
        let site = Arc::clone(&self.settings.site);
        let named = |mac| site.host(mac).is_some();
        known::forget_silent(&mut self.records, named, now);
        let macs: Vec<MacAddr> = self.records.keys().copied().collect();
        for mac in macs {
            self.replan(mac);
        }
        for record in self.records.values_mut() {
            record.release(&self.settings.ledgers);
        }
        self.begin_actions(now);
        self.begin_probes(now);
        self.begin_knocks(now);
        let view = View {
            targets: self
                .records
                .iter()
                .map(|(mac, record)| (*mac, record.boot_target()))
                .collect(),
        };
        publish(&self.view, Arc::new(view));
        let mut shown: Vec<HostStatus> = self.records.values().map(Record::status).collect();
        shown.sort_by(|a, b| a.name.cmp(&b.name));
        // Only there does Ironic change a node by itself; everything else begins with an action, which makes it look at once.
        let moves = |host: &HostStatus| {
            matches!(
                host.state,
                HostState::Registering
                    | HostState::Inspecting
                    | HostState::Provisioning
                    | HostState::Deprovisioning
                    | HostState::Deleting
            )
        };
        let pause = if shown.iter().any(moves) {
            self.settings.pace.busy
        } else {
            self.settings.pace.idle
        };
        publish(&self.look, pause);
        publish(&self.hosts, shown);
        self.publish_objects();
    }

    fn begin_actions(&mut self, now: Duration) {
        let Some(end) = self.ironic.clone().filter(|_| self.ironic_up) else {
            return;
        };
        for (mac, record) in &mut self.records {
            let Some(action) = record.due(now) else {
                continue;
            };
            let token = match bootstrap::new_token() {
                Ok(token) => token,
                Err(error) => {
                    tracing::error!(%error, "the kernel gives no random bytes");
                    return;
                }
            };
            let hash = bootstrap::token_hash(&token);
            if !record.prepare(&action, &self.settings.ledgers, &hash) {
                continue;
            }
            record.begun(&action);
            tracing::info!(host = record.name, %mac, action = ?action, "action");
            let task = Task {
                action: action.clone(),
                mac: *mac,
                name: record.name.clone(),
                report: record.report.as_ref().map(|(report, _)| report.clone()),
                ramdisk: record.ramdisk_listens(),
                object: record.object.clone(),
                deployment: record.ledger.deployment.clone(),
                ssh_keys: self.settings.site.ssh_keys.clone(),
                keys: self.settings.keys.clone(),
                endpoint: Some(Endpoint {
                    url: end.bootstrap.clone(),
                    ca: end.ca.clone(),
                    token,
                    key: record.who.key(),
                }),
                packages: self.settings.packages.clone(),
                secrets: self.secrets.clone(),
            };
            let (client, mac) = (end.client.clone(), *mac);
            self.tasks.spawn(async move {
                let result = apply::apply(&client, &task).await;
                Event::Done {
                    mac,
                    action,
                    result,
                }
            });
        }
    }

    fn begin_knocks(&mut self, now: Duration) {
        let pause = self.settings.pace.refused;
        for (mac, record) in &mut self.records {
            let Some(into) = record.knock_due(now, pause) else {
                continue;
            };
            let (mac, keys, address) = (*mac, self.settings.keys.clone(), record.address);
            self.tasks.spawn(async move {
                let result = match address {
                    Some(address) => keys.restart(mac, address, into).await,
                    None => Err(anyhow::anyhow!("its address is not known")),
                };
                Event::Knocked {
                    mac,
                    into,
                    result: result.map_err(|error| format!("{error:#}")),
                }
            });
        }
    }

    fn begin_probes(&mut self, now: Duration) {
        let port = self.settings.keys.port();
        let pace = self.settings.pace;
        for (mac, record) in &mut self.records {
            let state = record.plan.as_ref().map(|plan| plan.state);
            let pause = match state {
                Some(HostState::Provisioned) => pace.busy * 3,
                Some(HostState::Running | HostState::External) => pace.idle * 3,
                _ => continue,
            };
            let due = record
                .ssh_tried
                .is_none_or(|at| now.saturating_sub(at) >= pause);
            let (Some(address), true) = (record.address, due) else {
                continue;
            };
            record.ssh_tried = Some(now);
            let mac = *mac;
            self.tasks.spawn(async move {
                Event::Ssh {
                    mac,
                    answers: ssh::answers(address, port).await,
                }
            });
        }
    }

    fn publish_objects(&self) {
        let now = rfc3339(clock::wall_seconds());
        let wanted: Vec<Desired> = self
            .records
            .values()
            // Who has only asked for an address is nobody yet.
            .filter(|record| !record.is_silent())
            .map(|record| object::desired(record, &now))
            .collect();
        self.wanted.send_if_modified(|old| {
            let changed = !object::same_but_for_times(old, &wanted);
            if changed {
                *old = Arc::new(wanted);
            }
            changed
        });
    }
}

fn publish<T: PartialEq>(to: &watch::Sender<T>, value: T) {
    to.send_if_modified(|old| {
        let changed = *old != value;
        if changed {
            *old = value;
        }
        changed
    });
}

/// A counter's name and a sentence.
fn refusal_of(why: Refused) -> (&'static str, &'static str) {
    match why {
        Refused::Old => ("report-old", "the box has heard this before"),
        Refused::Taken => (
            "report-taken",
            "another machine speaks for this MAC address; it is believed until it has been silent for a while",
        ),
        Refused::Unbound => (
            "report-unbound",
            "the box has had no report of this machine",
        ),
        Refused::Unproven => (
            "report-unproven",
            "the box waits for this machine's TPM to say that it is the one it knows",
        ),
        Refused::Stranger => (
            "report-stranger",
            "the box knows another TPM by this MAC address; if it was replaced, approve this machine's code: firstlight hosts approve",
        ),
    }
}

fn refusal(error: &firstlight_ironic::ClientError) -> Problem {
    Problem {
        what: error.to_string(),
        next: "the box tries again; if it stays, look at Ironic's log: `kubectl -n kube-system logs ironic-box`".to_owned(),
    }
}

/// Which disks hosts refer to.
fn wanted_images(objects: &[BareMetalHost]) -> Vec<Reference> {
    let wanted = objects.iter().filter_map(|object| {
        let image = object.spec.image.as_ref()?;
        Some(Reference {
            by: format!("BareMetalHost {}", object.metadata.name),
            to: Target::Disk(image.url.clone()),
        })
    });
    wanted.collect()
}

fn rfc3339(seconds: i64) -> String {
    let time = time::OffsetDateTime::from_unix_timestamp(seconds)
        .unwrap_or(time::OffsetDateTime::UNIX_EPOCH);
    time.format(&time::format_description::well_known::Rfc3339)
        .unwrap_or_default()
}
