//! Whole installations on a virtual clock: all hosts, the fake Ironic, objects and ledgers in memory, and a server that does what our
//! ramdisk does. Nothing sleeps; [`Site::pass`] is time.
#![allow(clippy::unwrap_used)]

mod account;
mod account_by_system;
mod departures;
mod disks;
mod figures;
mod installation;
mod life;
mod live;
mod live_bmc;
mod live_cd;
mod manifests;
mod measured;
mod mirrors;
mod moves;
mod networks;
mod power;
mod rules;
mod running;
mod schedules;
mod server;
mod starts;
mod tpm;
mod verbs;
mod virtual_media;
mod who;

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr},
    sync::{Arc, Mutex},
    time::Duration,
};

use firstlight_api::{
    bmh::BareMetalHost,
    order::{DiskOrder, Mark},
    report::{Directive, Fresh, Inventory, LookupState, Phase, Progress, Report},
    signed::PublicKey,
    site::{InstallPolicy, SiteConfig},
    status::{HostState, HostStatus},
    tpm::Tpm,
};
use firstlight_ironic::{ProvisionState, fake::FakeIronic};
use firstlight_netboot::{BootTarget, MacAddr};
use tokio::sync::{mpsc, watch};

use super::{
    account::{self as accounts, AccountError},
    account_writer,
    apply::{self, Hands},
    bootstrap::{self, Reading},
    delivery::Collector,
    event::{Effect, Event, Now, Question, Reply, Shown},
    fold::{self, Hosts, Pace},
    host::{Host, PolicyOf, Rules},
    image::NodeImage,
    intent::SitePolicy,
    ledger::Ledger,
    memory::Ticket,
    node_uuid::node_uuid,
    objects,
    poll::IronicEnd,
    ramdisk_files::RamdiskFiles,
    runner,
    store::{Amendment, HostStore, Secret, SpecBmc, Versions},
    stray::Strays,
    token::Token,
};
use crate::{
    fleet::{Answer, Ask, Speaker},
    objects::{Key, Listed},
    sources::Sources,
    ssh::{Keys, SshError},
};
use account_by_system::System;
use server::{Hears, Server, ordered, start_order};

const MAC: &str = "52:54:00:00:00:01";
const NAME: &str = "host-525400000001";
/// An object that somebody makes for the same server; its name comes last.
const TWIN: &str = "rack1-n3";
/// Between two rounds of a server and its site.
const ROUND: Duration = Duration::from_secs(2);
/// Each of so many looks is one at all nodes.
const ALL: usize = 3;
/// No story takes as long.
const ROUNDS: usize = 400;

/// Of a server with nothing in it.
pub fn a_report() -> Report {
    Report {
        boot_mac: MAC.into(),
        boot_id: "boot-1".into(),
        address: "127.0.0.1".into(),
        inventory: Inventory::default(),
        disks: vec![],
        lookup: LookupState::NotAsked,
        tpm: Tpm::default(),
        follows: Vec::new(),
        fresh: Fresh::default(),
    }
}

/// Of site.yaml's default, and of nobody else's.
pub fn a_host(ledger: Ledger) -> Host {
    let rules = Rules {
        twin: false,
        policy: InstallPolicy::Blank,
        policy_of: PolicyOf::AllHosts,
        hints: false,
        clean: None,
        start: None,
        kernel_arguments: None,
        cluster: None,
        named: false,
        wrong_code: false,
    };
    Host::new(mac(), "n1".into(), rules, ledger, Duration::ZERO)
}

fn mac() -> MacAddr {
    MAC.parse().unwrap()
}

fn node() -> String {
    node_uuid(mac())
}

fn settings(unclaimed: SitePolicy) -> fold::Settings {
    fold::Settings {
        site: Arc::new(SiteConfig::default()),
        networks: vec![Ipv4Addr::LOCALHOST..=Ipv4Addr::new(127, 0, 0, 254)],
        image: Ok(NodeImage {
            name: "node".into(),
            sha256: "ab".repeat(32),
            bytes: 1000,
            ..NodeImage::default()
        }),
        unclaimed,
        pace: Pace::default(),
    }
}

/// The API server's part in this: objects by name.
#[derive(Clone, Default)]
struct MemoryStore {
    objects: Arc<Mutex<Vec<Arc<BareMetalHost>>>>,
    secrets: Arc<Mutex<BTreeMap<String, Secret>>>,
    /// The notes of Events.
    told: Arc<Mutex<Vec<String>>>,
    /// It answers nothing.
    is_down: bool,
    /// The controller has heard of its objects since it began.
    is_told: bool,
}

impl MemoryStore {
    fn change(&self, name: &str, change: impl FnOnce(&mut BareMetalHost)) {
        let mut objects = self.objects.lock().unwrap();
        let index = objects
            .iter()
            .position(|object| object.metadata.name == name)
            .unwrap_or_else(|| {
                let spec = firstlight_api::bmh::BareMetalHostSpec::default();
                objects.push(Arc::new(BareMetalHost::new(name, "default", spec)));
                objects.len() - 1
            });
        change(Arc::make_mut(&mut objects[index]));
    }

    fn only(&self) -> Option<BareMetalHost> {
        let mut objects = self.objects.lock().unwrap().clone();
        objects.retain(|object| object.metadata.name != TWIN);
        assert!(objects.len() <= 1, "one server is one object: {objects:?}");
        objects.pop().map(Arc::unwrap_or_clone)
    }

    /// As the API server does: a deleted object without finalizers is gone.
    fn end(&self) {
        let mut objects = self.objects.lock().unwrap();
        objects.retain(|object| !object.is_deleted() || !object.metadata.finalizers.is_empty());
    }

    fn answers(&self) -> anyhow::Result<()> {
        anyhow::ensure!(!self.is_down, "it is down");
        Ok(())
    }
}

impl MemoryStore {
    /// Who writes other data has another version.
    fn versions(&self) -> Versions {
        let secrets = self.secrets.lock().unwrap();
        let version = |(name, data): (&String, &Secret)| {
            let key = Key::new("default", name);
            (
                key,
                firstlight_artifacts::hex(format!("{data:?}").as_bytes()),
            )
        };
        Arc::new(secrets.iter().map(version).collect())
    }
}

impl HostStore for MemoryStore {
    async fn follow_secrets(&self, changed: mpsc::Sender<Versions>) {
        let mut old = None;
        loop {
            let new = self.versions();
            if old.as_ref() != Some(&new) && changed.send(new.clone()).await.is_err() {
                return;
            }
            old = Some(new);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn list(&self) -> anyhow::Result<Listed<Arc<BareMetalHost>>> {
        self.answers()?;
        Ok(Listed {
            objects: self.objects.lock().unwrap().clone(),
            unreadable: Vec::new(),
        })
    }

    async fn create(&self, host: &BareMetalHost) -> anyhow::Result<()> {
        self.answers()?;
        self.change(&host.metadata.name, |object| {
            object.spec = host.spec.clone();
            object.metadata.finalizers = host.metadata.finalizers.clone();
            object.metadata.labels = host.metadata.labels.clone();
            object.metadata.annotations = host.metadata.annotations.clone();
        });
        Ok(())
    }

    async fn amend(&self, host: &BareMetalHost, amendment: &Amendment) -> anyhow::Result<()> {
        self.answers()?;
        self.change(&host.metadata.name, |object| {
            if let Some(new) = &amendment.anew {
                object.spec = new.spec.clone();
                object.metadata.labels.clone_from(&new.metadata.labels);
                object
                    .metadata
                    .annotations
                    .clone_from(&new.metadata.annotations);
            }
            if let Some(image) = &amendment.image {
                object.spec.image = Some(image.clone());
            }
            if let Some(finalizers) = &amendment.finalizers {
                object.metadata.finalizers.clone_from(finalizers);
            }
            for name in &amendment.forget {
                object.metadata.annotations.remove(name);
            }
            let annotations = &mut object.metadata.annotations;
            match amendment.bmc.clone() {
                None => {}
                Some(SpecBmc::Named {
                    details,
                    may_be_off,
                }) => {
                    annotations.insert(accounts::MADE.to_owned(), details.address.clone());
                    object.spec.bmc = Some(details);
                    object.spec.disable_power_off &= !may_be_off;
                }
                Some(SpecBmc::Gone { stays_on }) => {
                    object.spec.bmc = None;
                    object.spec.disable_power_off |= stays_on;
                }
                Some(SpecBmc::Forgotten) => {
                    annotations.remove(accounts::MADE);
                }
            }
        });
        self.end();
        Ok(())
    }

    async fn delete(&self, host: &BareMetalHost) -> anyhow::Result<()> {
        self.answers()?;
        self.change(&host.metadata.name, |object| {
            object.metadata.deletion_timestamp = Some("2026-01-01T00:00:00Z".to_owned());
        });
        self.end();
        Ok(())
    }

    async fn forget_hardware(&self, _: &BareMetalHost) -> anyhow::Result<()> {
        self.answers()
    }

    async fn apply_hardware(&self, _: &firstlight_api::bmh::HardwareData) -> anyhow::Result<()> {
        self.answers()
    }

    async fn secret(&self, _: &str, name: &str) -> anyhow::Result<Option<Secret>> {
        self.answers()?;
        if let Some(secret) = self.secrets.lock().unwrap().get(name) {
            return Ok(Some(secret.clone()));
        }
        let data = format!("#cloud-config of {name}\n").into_bytes();
        Ok(Some(Secret::from([("value".to_owned(), data)])))
    }

    async fn keep_secret(
        &self,
        _: &BareMetalHost,
        name: &str,
        data: &Secret,
    ) -> anyhow::Result<()> {
        self.answers()?;
        self.secrets
            .lock()
            .unwrap()
            .insert(name.to_owned(), data.clone());
        Ok(())
    }

    async fn forget_secret(&self, _: &BareMetalHost, name: &str) -> anyhow::Result<()> {
        self.answers()?;
        self.secrets.lock().unwrap().remove(name);
        Ok(())
    }

    async fn tell(&self, _: &BareMetalHost, events: Vec<super::store::HostEvent>) {
        let notes = events.into_iter().map(|event| event.note);
        self.told.lock().unwrap().extend(notes);
    }

    async fn apply_status(&self, host: &BareMetalHost) -> anyhow::Result<()> {
        self.answers()?;
        self.change(&host.metadata.name, |object| {
            object.status = host.status.clone();
        });
        Ok(())
    }
}

/// What breaks, and when: asked each time before an effect is carried out.
trait Luck {
    fn next(&mut self) -> Fate;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Good,
    /// The box loses its power before it, or right after it.
    CutBefore,
    CutAfter,
    /// It fails: the disk takes nothing, Ironic or the API server does not answer.
    Fails,
    /// Only the disk takes nothing.
    DiskFull,
}

/// Nothing breaks.
struct Good;

impl Luck for Good {
    fn next(&mut self) -> Fate {
        Fate::Good
    }
}

/// The box: what survives a restart of the controller, and the controller.
struct Site<L = Good> {
    ironic: FakeIronic,
    is_ironic_up: bool,
    store: MemoryStore,
    is_kubernetes_up: bool,
    /// The state partition.
    disk: BTreeMap<MacAddr, Ledger>,
    state: tempfile::TempDir,
    hands: Hands,
    settings: fold::Settings,
    hosts: Hosts,
    now: Duration,
    shown: BTreeMap<MacAddr, Shown>,
    replies: BTreeMap<Ticket, Reply>,
    ticket: Ticket,
    luck: L,
    cuts: usize,
    /// So many rounds after a cut, Ironic does not answer yet.
    boots: usize,
    /// At Ironic's nodes.
    looks: usize,
    strays: Strays,
    held: Vec<String>,
    /// No BMC answers the box.
    is_bmc_silent: bool,
    /// Of the server, once that is installed.
    system: System,
    mirror: mirrors::Kernel,
    /// What comes of telling it to start the ramdisk by itself, and how often it was told; `None`: nobody hears of that.
    kexec: Option<Result<(), String>>,
    direct: usize,
    /// How often it was told to restart.
    restarts: usize,
}

fn hosts(settings: &fold::Settings, disk: &BTreeMap<MacAddr, Ledger>) -> Hosts {
    Hosts::new(settings.clone(), Token::random, disk.clone())
}

/// What every action may need, below `state`; Secrets are read as `store` has them.
fn hands(state: &std::path::Path, secrets: mpsc::Sender<Reading>) -> Hands {
    let [base, uploads] = [("base", "BASE"), ("uploads", "UPLOADS")].map(|(suite, key)| {
        let path = state.join(format!("{suite}.asc"));
        std::fs::write(&path, key).unwrap();
        path
    });
    Hands {
        ssh_keys: Vec::new(),
        keys: Keys::new(state.join("ssh"), 1),
        packages: Sources {
            address: Ipv4Addr::new(172, 22, 0, 1),
            base,
            uploads,
        },
        proxy: None,
        secrets,
        hail: |_, _| Box::pin(async { Ok(()) }),
        ramdisk: RamdiskFiles::new(watch::Sender::new(None).subscribe(), state.to_owned()),
    }
}

/// Of Secrets, for the actions.
fn reader(site: Arc<SiteConfig>, store: &MemoryStore) -> mpsc::Sender<Reading> {
    let (secrets, readings) = mpsc::channel(16);
    let (_, api) = watch::channel(Some(store.clone()));
    tokio::spawn(bootstrap::read_secrets(site, api, readings));
    secrets
}

impl Site {
    /// Ironic and Kubernetes are not up yet.
    async fn start(unclaimed: SitePolicy) -> Self {
        Self::with(unclaimed, Good).await
    }

    async fn up(unclaimed: SitePolicy) -> Self {
        let mut site = Self::start(unclaimed).await;
        site.come_up();
        site
    }
}

impl<L: Luck> Site<L> {
    async fn with(unclaimed: SitePolicy, luck: L) -> Self {
        let (state, settings) = (tempfile::tempdir().unwrap(), settings(unclaimed));
        let store = MemoryStore::default();
        let secrets = reader(settings.site.clone(), &store);
        let disk = BTreeMap::new();
        Self {
            ironic: FakeIronic::start().await.unwrap(),
            is_ironic_up: false,
            store,
            is_kubernetes_up: false,
            hands: hands(state.path(), secrets),
            hosts: hosts(&settings, &disk),
            disk,
            state,
            settings,
            now: Duration::from_secs(100),
            shown: BTreeMap::new(),
            replies: BTreeMap::new(),
            ticket: 0,
            luck,
            cuts: 0,
            boots: 0,
            looks: 0,
            strays: Strays::default(),
            held: Vec::new(),
            is_bmc_silent: false,
            system: System::default(),
            mirror: mirrors::Kernel::default(),
            kexec: Some(Ok(())),
            direct: 0,
            restarts: 0,
        }
    }

    fn come_up(&mut self) {
        (self.is_ironic_up, self.is_kubernetes_up) = (true, true);
    }

    fn end(&self) -> IronicEnd {
        IronicEnd {
            client: self.ironic.client(),
            box_http: "http://172.22.0.1".into(),
            bootstrap: "https://172.22.0.1:8443/bootstrap/v1".into(),
            ca: "PEM".into(),
        }
    }

    /// Everything in memory is lost.
    fn restart_controller(&mut self) {
        self.hosts = hosts(&self.settings, &self.disk);
        self.store.is_told = false;
        self.shown.clear();
        self.looks = 0;
        self.replies.clear();
    }

    /// One event, and all that follows from it. What is lost in a power cut never comes.
    async fn take(&mut self, event: Event) {
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            let now = Now {
                up: self.now,
                wall: 1_800_000_000 + i64::try_from(self.now.as_secs()).unwrap(),
            };
            let effects = self.hosts.fold(event, now);
            self.hosts.assert_failing_is_known();
            for effect in effects {
                let fate = match effect {
                    Effect::Save { .. }
                    | Effect::Act(_)
                    | Effect::Collect(_)
                    | Effect::AskSystem { .. }
                    | Effect::LookAtMirror { .. }
                    | Effect::Account { .. } => self.luck.next(),
                    _ => Fate::Good,
                };
                let cut = matches!(fate, Fate::CutBefore | Fate::CutAfter);
                if fate != Fate::CutBefore {
                    events.extend(self.carry_out(effect, fate).await);
                }
                if cut {
                    (self.cuts, self.boots) = (self.cuts + 1, 5);
                    self.ironic.restart();
                    return self.restart_controller();
                }
            }
        }
    }

    async fn carry_out(&mut self, effect: Effect, fate: Fate) -> Option<Event> {
        match effect {
            Effect::Save { mac, ledger } => {
                let result = if matches!(fate, Fate::Fails | Fate::DiskFull) {
                    Err("no space left on device".to_owned())
                } else {
                    self.disk.insert(mac, *ledger);
                    Ok(())
                };
                return Some(Event::Saved { mac, result });
            }
            Effect::Act(act) => {
                let (mac, action) = (act.mac, act.action.clone());
                let end = if fate == Fate::Fails {
                    super::event::End::Later
                } else {
                    runner::end_of(apply::apply(&self.end(), &self.hands, &act).await)
                };
                return Some(Event::Acted { mac, action, end });
            }
            Effect::Restart { mac, into, .. } => {
                self.restarts += 1;
                let result = Err("connection refused".to_owned());
                return Some(Event::Restarted { mac, into, result });
            }
            Effect::StartRamdisk { mac, .. } => {
                self.direct += 1;
                let result = self.kexec.clone()?;
                return Some(Event::RamdiskStarted { mac, result });
            }
            Effect::Collect(of) => {
                let collector = Collector {
                    ssh_keys: &self.hands.ssh_keys,
                    keys: &self.hands.keys,
                    secrets: &self.hands.secrets,
                };
                let (mac, data) = (of.mac, collector.collect(&of).await);
                let question = of.question;
                return Some(Event::Collected {
                    mac,
                    question,
                    data,
                });
            }
            Effect::Account {
                mac,
                by,
                object,
                change,
            } => {
                let keeps = matches!(change, accounts::Change::Keep { .. });
                let result = if keeps && self.is_bmc_silent {
                    Err(AccountError::Silent)
                } else {
                    self.store.is_down = fate == Fate::Fails;
                    account_writer::write(&self.store, &object, &change).await
                };
                return Some(Event::AccountWritten { mac, by, result });
            }
            Effect::AskSystem { mac, ask, call, .. } => {
                if self.system.is_slow {
                    self.system.calls.push((ask, call));
                    return None;
                }
                let mut result = self.system.answer(ask);
                if fate == Fate::Fails {
                    // It did what it was asked.
                    result = Err(SshError::Unreachable("the connection was lost".into()));
                }
                return Some(Event::SystemTold { mac, call, result });
            }
            Effect::LookAtMirror { mac, call, .. } => {
                let mut result = self.mirror.answer(self.now)?;
                if fate == Fate::Fails {
                    result = Err(SshError::Unreachable("the connection was lost".into()));
                }
                return Some(Event::MirrorTold { mac, call, result });
            }
            Effect::Answer { ticket, answer } => {
                self.replies.insert(ticket, answer);
            }
            Effect::Show { mac, shown } => match shown {
                Some(shown) => drop(self.shown.insert(mac, shown)),
                None => drop(self.shown.remove(&mac)),
            },
            Effect::ForgetKeys(mac) => self.hands.keys.forget(mac).await,
            Effect::ForgetLedger(mac) => drop(self.disk.remove(&mac)),
            Effect::Strays(strays) => self.strays = strays,
            Effect::Held(names) => self.held = names,
            Effect::Probe { .. }
            | Effect::Look(_)
            | Effect::Use(_)
            | Effect::Bmcs(_)
            | Effect::Refused(_) => {}
        }
        None
    }

    /// Time goes by, and the box looks around.
    async fn pass(&mut self, time: Duration) {
        self.now += time;
        self.take(Event::Tick).await;
        self.boots = self.boots.saturating_sub(1);
        if self.is_ironic_up && self.boots == 0 {
            let end = self.end();
            self.take(Event::Ironic {
                box_http: end.box_http,
            })
            .await;
            let asked = self.now;
            // As among many hosts, where all nodes are looked at now and then only.
            let is_of_all = self.looks.is_multiple_of(ALL);
            self.looks += 1;
            let seen = if is_of_all {
                let nodes = end.client.nodes().await;
                nodes.map(|nodes| Event::Nodes { nodes, asked })
            } else {
                let node = end.client.node(&node()).await;
                let node = match node {
                    Err(error) if error.is_not_found() => Ok(None),
                    node => node.map(|node| Some(Box::new(node))),
                };
                node.map(|node| Event::Node {
                    mac: mac(),
                    node,
                    asked,
                })
            };
            let seen = match seen {
                Ok(seen) if self.luck.next() != Fate::Fails => seen,
                _ => Event::IronicSilent("late".into()),
            };
            self.take(seen).await;
        }
        if self.is_kubernetes_up {
            self.store.is_down = self.luck.next() == Fate::Fails;
            // What is wanted before the objects are known knows nothing of their history.
            if !self.store.is_told
                && let Ok(listed) = self.store.list().await
            {
                self.store.is_told = true;
                self.take(Event::Objects(listed.objects)).await;
            }
            let hosts = self.shown.iter();
            let hosts = hosts.filter_map(|(mac, shown)| Some((*mac, shown.desired.clone()?)));
            let wanted = objects::Targets {
                hosts: hosts.collect(),
                strays: self.strays.targets.clone(),
            };
            if let Ok(listed) = self.store.list().await
                && let Ok((objects, _)) = objects::write_all(
                    &self.store,
                    listed,
                    &wanted,
                    &mut objects::Budgets::default(),
                )
                .await
            {
                self.take(Event::Secrets(self.store.versions())).await;
                self.take(Event::Objects(objects)).await;
            }
        }
    }

    fn ask(&mut self) -> Ticket {
        self.ticket += 1;
        self.ticket
    }

    /// `None`: the box lost its power over it.
    async fn bootstrap(&mut self, token: &str, key: Option<PublicKey>, ask: Ask) -> Option<Answer> {
        let ticket = self.ask();
        self.take(Event::Asked(Question {
            ticket,
            host: node(),
            token: Token::of(token.to_owned()),
            key,
            ask,
        }))
        .await;
        match self.replies.remove(&ticket)? {
            Reply::Bootstrap(answer) => Some(answer),
            other => panic!("{other:?}"),
        }
    }

    fn host(&self) -> Option<HostStatus> {
        Some((*self.shown.get(&mac())?.status).clone())
    }

    fn state(&self) -> Option<HostState> {
        self.host().map(|host| host.state)
    }

    fn problem(&self) -> String {
        let problem = self.host().and_then(|host| host.problem);
        problem.map(|problem| problem.what).unwrap_or_default()
    }

    fn boot_target(&self) -> BootTarget {
        let shown = self.shown.get(&mac());
        shown.map_or(BootTarget::Ramdisk, |shown| shown.target.clone())
    }

    async fn wait_for(&mut self, what: &str, is: impl Fn(&Self) -> bool) {
        for _ in 0..ROUNDS {
            if is(self) {
                return;
            }
            self.pass(ROUND).await;
        }
        panic!("waited for {what}; {}", self.told());
    }

    /// All that people can see, for a failed test.
    fn told(&self) -> String {
        format!(
            "Ironic has {:?}, the page {:?}, Kubernetes {:?}",
            self.ironic.state(&node()),
            self.host(),
            self.store.only()
        )
    }
}

impl<L: Luck> Hears for Site<L> {
    async fn report(&mut self, from: Speaker, report: Report) -> Option<Directive> {
        let ticket = self.ask();
        self.take(Event::Report {
            ticket,
            from,
            report: Box::new(report),
        })
        .await;
        match self.replies.remove(&ticket)? {
            Reply::Directive(directive) => Some(directive),
            other => panic!("{other:?}"),
        }
    }

    async fn progress(&mut self, from: Speaker, progress: Progress) -> bool {
        let ticket = self.ask();
        self.take(Event::Progress {
            ticket,
            from,
            progress,
        })
        .await;
        matches!(self.replies.remove(&ticket), Some(Reply::Believed(true)))
    }
}
