//! The owner of all hosts: events in, decisions out. It never waits for anybody; what takes time is a task that sends an
//! event back.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use firstlight_api::{
    bmh::{BareMetalHost, INSTALL_ANNOTATION},
    report::{Directive, Progress, Report},
    site::SiteConfig,
    status::{HostState, HostStatus, Problem},
};
use firstlight_ironic::{ClientError, Node};
use firstlight_netboot::{ClientArch, MacAddr};
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
};

use super::{
    apply::{self, Task, node_uuid},
    image::NodeImage,
    object, objects,
    plan::{Action, EXTRA_MAC},
    policy,
    poll::{self, IronicEnd, Look},
    record::{Record, Records, site_mac},
    ssh,
    store::HostStore,
};
use crate::{
    clock,
    fleet::{self, Input, View},
};

/// A flood of invented MACs fills no memory.
const MOST: usize = 1024;

/// What the controller is told once.
#[derive(Clone, Debug)]
pub struct Settings {
    pub site: Arc<SiteConfig>,
    pub image: Result<NodeImage, Problem>,
    /// 22, except in tests.
    pub ssh_port: u16,
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
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            busy: Duration::from_secs(1),
            idle: Duration::from_secs(10),
            refused: Duration::from_secs(15),
        }
    }
}

/// The controller's connections to the rest.
pub struct Inputs<S> {
    pub fleet: fleet::Controller,
    pub ironic: watch::Receiver<Option<IronicEnd>>,
    pub store: watch::Receiver<Option<S>>,
    pub hosts: watch::Sender<Vec<HostStatus>>,
}

enum Event {
    Done {
        mac: MacAddr,
        action: Action,
        result: Result<(), ClientError>,
    },
    Ssh {
        mac: MacAddr,
        answers: bool,
    },
}

struct Actor {
    settings: Settings,
    records: Records,
    /// Ironic has answered since the start.
    ironic_known: bool,
    /// It answered the last time.
    ironic_up: bool,
    ironic: Option<IronicEnd>,
    tasks: JoinSet<Event>,
    /// Asks for the nodes at once; the value is the pause after that.
    look: watch::Sender<Duration>,
    view: watch::Sender<Arc<View>>,
    hosts: watch::Sender<Vec<HostStatus>>,
    wanted: watch::Sender<Arc<Vec<BareMetalHost>>>,
}

/// Runs until its inputs end.
pub async fn run<S: HostStore>(settings: Settings, inputs: Inputs<S>) -> anyhow::Result<()> {
    let Inputs {
        fleet,
        mut ironic,
        store,
        hosts,
    } = inputs;
    let fleet::Controller {
        inputs: mut from_fleet,
        view,
    } = fleet;
    let (looks, mut looked) = mpsc::channel(1);
    let (seen, mut objects_seen) = mpsc::channel(1);
    let look = watch::Sender::new(settings.pace.busy);
    let wanted = watch::Sender::new(Arc::new(Vec::new()));
    let mut background = JoinSet::new();
    background.spawn(objects::run(
        store,
        wanted.subscribe(),
        seen,
        settings.pace.idle,
    ));
    background.spawn(poll::run(ironic.clone(), look.subscribe(), looks));
    let mut tick = tokio::time::interval(settings.pace.busy);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut actor = Actor {
        settings,
        records: BTreeMap::new(),
        ironic_known: false,
        ironic_up: false,
        ironic: None,
        tasks: JoinSet::new(),
        look,
        view,
        hosts,
        wanted,
    };
    loop {
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
        actor.settle();
    }
}

impl Actor {
    fn input(&mut self, input: Input) {
        match input {
            Input::Dhcp { mac, arch, address } => {
                let heard = arch.is_some() || self.settings.site.host(site_mac(mac)).is_some();
                self.dhcp(mac, arch, address, heard);
            }
            Input::Report { report, answer, .. } => {
                let directive = self.report(report);
                // The ramdisk may have gone away meanwhile.
                drop(answer.send(directive));
            }
            Input::Progress { progress, .. } => self.progress(progress),
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
        let Some(record) = self.record(mac) else {
            return;
        };
        if address.is_some() {
            record.address = address;
        }
        if arch.is_some() {
            record.ssh_answered = None;
        }
    }

    fn report(&mut self, report: Report) -> Directive {
        let busy = |reason: &str| Directive::Wait {
            seconds: 10,
            reason: reason.to_owned(),
        };
        let Ok(mac) = report.boot_mac.parse::<MacAddr>() else {
            return busy("the report has no MAC address");
        };
        let Some(record) = self.record(mac) else {
            return busy("the box knows too many servers");
        };
        record.reported(report, clock::uptime());
        self.replan(mac);
        let plan = self
            .records
            .get(&mac)
            .and_then(|record| record.plan.as_ref());
        plan.map_or_else(
            || busy("the box is thinking"),
            |plan| plan.directive.clone(),
        )
    }

    fn progress(&mut self, progress: Progress) {
        let Ok(mac) = progress.boot_mac.parse::<MacAddr>() else {
            return;
        };
        if let Some(record) = self.records.get_mut(&mac) {
            record.progressed(progress, clock::uptime());
            self.replan(mac);
        }
    }

    /// A host's record, made if it is new.
    fn record(&mut self, mac: MacAddr) -> Option<&mut Record> {
        if !self.records.contains_key(&mac) && self.records.len() >= MOST {
            return None;
        }
        let site = &self.settings.site;
        Some(self.records.entry(mac).or_insert_with(|| {
            let mut record = Record::new(
                mac,
                site.host_name(site_mac(mac)).to_string(),
                clock::uptime(),
            );
            record.policy = site.install_policy(site_mac(mac));
            record.address = site.host(site_mac(mac)).and_then(|host| host.address);
            record
        }))
    }

    fn replan(&mut self, mac: MacAddr) {
        let known = self.ironic_known;
        if let Some(record) = self.records.get_mut(&mac) {
            record.replan(self.settings.image.as_ref(), known, clock::uptime());
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
            }
        }
    }

    fn done(&mut self, mac: MacAddr, action: &Action, result: Result<(), ClientError>) {
        let now = clock::uptime();
        let pace = self.settings.pace;
        let Some(record) = self.records.get_mut(&mac) else {
            return;
        };
        (record.acted, record.outdated) = (now, true);
        match result {
            Ok(()) => record.accepted(action, now),
            Err(error) => {
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
            let site_policy = self.settings.site.install_policy(site_mac(mac));
            let Some(record) = self.record(mac) else {
                continue;
            };
            let word = object.metadata.annotations.get(INSTALL_ANNOTATION);
            record.policy = word
                .and_then(|word| policy::parse(word))
                .unwrap_or(site_policy);
            // A person may have made the object, and chosen the name.
            record.name.clone_from(&object.metadata.name);
            record.address = record.address.or_else(|| object::known_address(&object));
            record.object = Some(object);
        }
    }

    /// After every event: decide anew, begin what is due, publish.
    fn settle(&mut self) {
        let now = clock::uptime();
        for record in self.records.values_mut() {
            record.replan(self.settings.image.as_ref(), self.ironic_known, now);
        }
        self.begin_actions(now);
        self.begin_probes(now);
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
        let calm = |host: &HostStatus| {
            matches!(
                host.state,
                HostState::Discovered | HostState::Running | HostState::Failed
            )
        };
        let pause = if shown.iter().all(calm) {
            self.settings.pace.idle
        } else {
            self.settings.pace.busy
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
            record.begun(&action);
            tracing::info!(host = record.name, %mac, action = ?action, "action");
            let task = Task {
                action: action.clone(),
                mac: *mac,
                name: record.name.clone(),
                report: record.report.as_ref().map(|(report, _)| report.clone()),
                image: self.settings.image.clone().ok(),
                box_http: end.box_http.clone(),
                ssh_keys: self.settings.site.ssh_keys.clone(),
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

    fn begin_probes(&mut self, now: Duration) {
        let port = self.settings.ssh_port;
        let pace = self.settings.pace;
        for (mac, record) in &mut self.records {
            let state = record.plan.as_ref().map(|plan| plan.state);
            let pause = match state {
                Some(HostState::Provisioned) => pace.busy * 3,
                Some(HostState::Running) => pace.idle * 3,
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
        let image = self.settings.image.as_ref().ok();
        let image = image.zip(self.ironic.as_ref().map(|end| end.box_http.as_str()));
        let wanted: Vec<BareMetalHost> = self
            .records
            .values()
            .map(|record| object::desired(record, image, &now))
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

fn refusal(error: &ClientError) -> Problem {
    Problem {
        what: error.to_string(),
        next: "the box tries again; if it stays, look at Ironic's log: `kubectl -n kube-system logs ironic-box`".to_owned(),
    }
}

fn rfc3339(seconds: i64) -> String {
    let time = time::OffsetDateTime::from_unix_timestamp(seconds)
        .unwrap_or(time::OffsetDateTime::UNIX_EPOCH);
    time.format(&time::format_description::well_known::Rfc3339)
        .unwrap_or_default()
}
