//! All hosts: what is heard goes in, what is to be done comes out. Pure: no clock, no disk, no network, and it never waits.
//!
//! [`Hosts::fold`] takes one event and answers with effects, in their order. Only hosts that the event is about are decided anew, except
//! when time has passed or something that all plans depend on has changed.

mod account;
mod hear;
mod look;
mod mirror;
mod settle;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv4Addr,
    ops::RangeInclusive,
    sync::Arc,
    time::Duration,
};

use firstlight_api::{
    site::{InstallPolicy, SiteConfig},
    status::Problem,
};
use firstlight_ironic::PowerTarget;
use firstlight_netboot::MacAddr;

use super::{
    event::{Effect, End, Event, Look, Now, Reply, Shown},
    host::{All, Host, PolicyOf, Rules, Site},
    image::NodeImage,
    intent::SitePolicy,
    known::Newcomers,
    ledger::{Ledger, Model},
    memory::Ticket,
    node_uuid::node_uuid,
    plan::Action,
    store::Versions,
    stray::Strays,
    token::Token,
    who::Patience,
};
use crate::{fleet::Answer, store::ServedImage};

/// What all hosts are judged by.
#[derive(Clone, Debug)]
pub struct Settings {
    pub site: Arc<SiteConfig>,
    /// Where ramdisks are.
    pub networks: Vec<RangeInclusive<Ipv4Addr>>,
    pub image: Result<NodeImage, Problem>,
    /// What hosts are there for that nobody claimed.
    pub unclaimed: SitePolicy,
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

/// Makes a secret; `None` while the kernel gives no random bytes.
pub type Tokens = fn() -> Option<Token>;

/// What is known of Ironic.
#[derive(Debug, Default)]
struct IronicSeen {
    /// It has answered since the start.
    known: bool,
    /// It answered the last time.
    up: bool,
    /// Where hosts get images, once the box is that far.
    box_http: Option<String>,
}

pub struct Hosts {
    settings: Settings,
    tokens: Tokens,
    all: All,
    by_node: BTreeMap<String, MacAddr>,
    /// Of hosts that have not shown up since the start.
    remembered: BTreeMap<MacAddr, Ledger>,
    newcomers: Newcomers,
    ironic: IronicSeen,
    uploads: Vec<ServedImage>,
    /// `None` until somebody has looked.
    credentials: Option<Versions>,
    /// To be decided anew, and shown.
    dirty: BTreeSet<MacAddr>,
    shown: BTreeMap<MacAddr, Shown>,
    /// Whose nodes Ironic changes by itself, or has changed by an order of ours.
    moving: BTreeSet<MacAddr>,
    look: Look,
    /// What is known of Ironic is older than an action.
    look_again: bool,
    /// Seconds since 1970, at the last event.
    wall: i64,
    /// That wait for somebody to let them go, as they are called.
    held: BTreeMap<MacAddr, String>,
    /// Whose servers did not come up by kexec.
    no_kexec: BTreeMap<MacAddr, Model>,
    /// Whose ledgers may say something else about that since it was written down there.
    judged: BTreeSet<MacAddr>,
    /// The models of `no_kexec`, as of the last event.
    failing: BTreeSet<Model>,
    /// Somebody has looked at the objects since the start.
    objects_known: bool,
    /// Objects that count for nothing.
    strays: Strays,
    effects: Vec<Effect>,
}

impl Hosts {
    /// `remembered`: what was found on the disk.
    pub fn new(settings: Settings, tokens: Tokens, remembered: BTreeMap<MacAddr, Ledger>) -> Self {
        Self {
            look: Look {
                pause: settings.pace.busy,
                few: None,
            },
            settings,
            tokens,
            all: BTreeMap::new(),
            by_node: BTreeMap::new(),
            judged: remembered.keys().copied().collect(),
            remembered,
            newcomers: Newcomers::default(),
            ironic: IronicSeen::default(),
            uploads: Vec::new(),
            credentials: None,
            objects_known: false,
            strays: Strays::default(),
            dirty: BTreeSet::new(),
            shown: BTreeMap::new(),
            moving: BTreeSet::new(),
            look_again: false,
            wall: 0,
            held: BTreeMap::new(),
            no_kexec: BTreeMap::new(),
            failing: BTreeSet::new(),
            effects: Vec::new(),
        }
    }

    pub fn fold(&mut self, event: Event, now: Now) -> Vec<Effect> {
        self.wall = now.wall;
        self.learn_failing();
        let held = self.held.clone();
        self.take(event, now);
        self.settle(now);
        if self.held != held {
            let held = self.held.values().cloned().collect();
            self.effects.push(Effect::Held(held));
        }
        std::mem::take(&mut self.effects)
    }

    fn take(&mut self, event: Event, at: Now) {
        let now = at.up;
        match event {
            Event::Dhcp { mac, arch, address } => self.dhcp(mac, arch, address, now),
            Event::Report {
                ticket,
                from,
                report,
            } => {
                let directive = self.report(&from, *report, now);
                self.answer(ticket, Reply::Directive(directive));
            }
            Event::Progress {
                ticket,
                from,
                progress,
            } => {
                let believed = self.progress(&from, progress, at);
                self.answer(ticket, Reply::Believed(believed));
            }
            Event::Bmc { ticket, from, post } => self.bmc(ticket, &from, &post, now),
            Event::AccountWritten { mac, by, result } => {
                self.account_written(mac, by, result, now);
            }
            Event::SystemTold { mac, call, result } => self.system_told(mac, call, result, now),
            Event::MirrorTold { mac, call, result } => self.mirror_told(mac, call, result, now),
            Event::Asked(question) => self.asked(question, now),
            Event::Collected {
                mac,
                question,
                data,
            } => self.collected(mac, &question, data),
            Event::Ironic { box_http } => {
                self.ironic.box_http = Some(box_http);
                self.touch_all();
            }
            Event::Nodes { nodes, asked } => self.nodes(nodes, asked, now),
            Event::Node { mac, node, asked } => {
                self.node(mac, node.map(|node| *node), asked, now);
            }
            Event::IronicSilent(error) => {
                if std::mem::take(&mut self.ironic.up) {
                    tracing::warn!(error, "Ironic does not answer any more; hosts wait for it");
                }
            }
            Event::Objects(objects) => self.objects(objects, at),
            Event::Secrets(versions) => self.secrets(versions),
            Event::Uploads(uploads) => {
                self.uploads = uploads;
                self.touch_all();
            }
            Event::Saved { mac, result } => self.saved(mac, result, now),
            Event::Acted { mac, action, end } => self.acted(mac, &action, end, now),
            Event::Restarted { mac, into, result } => {
                if let Some(host) = self.touch(mac) {
                    tracing::info!(host = host.name, %mac, into = ?into, result = ?result, "told it to restart");
                    if host.system.ordered(into, result, now) {
                        host.restarted();
                    }
                }
            }
            Event::RamdiskStarted { mac, result } => {
                if let Some(host) = self.touch(mac) {
                    tracing::info!(host = host.name, %mac, result = ?result, "told it to start the ramdisk by kexec");
                    host.ramdisk_started(result, now);
                }
            }
            Event::Ssh { mac, answers } => {
                if let Some(host) = self.touch(mac).filter(|_| answers) {
                    host.system.answered(now);
                }
            }
            Event::Tick => self.tick(now),
        }
    }

    fn answer(&mut self, ticket: Ticket, answer: Reply) {
        self.effects.push(Effect::Answer { ticket, answer });
    }

    fn touch(&mut self, mac: MacAddr) -> Option<&mut Host> {
        let host = self.all.get_mut(&mac)?;
        self.dirty.insert(mac);
        Some(host)
    }

    fn touch_all(&mut self) {
        self.dirty.extend(self.all.keys());
    }

    /// The host, made if it is new.
    fn host(&mut self, mac: MacAddr, now: Duration) -> &mut Host {
        let (site, by_node) = (&self.settings.site, &mut self.by_node);
        let (remembered, dirty) = (&mut self.remembered, &mut self.dirty);
        self.all.entry(mac).or_insert_with(|| {
            by_node.insert(node_uuid(mac), mac);
            dirty.insert(mac);
            let rules = Rules {
                twin: false,
                policy: InstallPolicy::Never,
                policy_of: PolicyOf::AllHosts,
                hints: false,
                clean: None,
                start: None,
                kernel_arguments: None,
                cluster: None,
                named: site.host(mac).is_some(),
                wrong_code: false,
            };
            let ledger = remembered.remove(&mac).unwrap_or_default();
            let named = site.host(mac).is_some_and(|host| host.name.is_some());
            // The one that it was given, also where its object got lost.
            let numbered = ledger.numbered.as_ref().filter(|_| !named);
            let name = numbered.map_or_else(
                || site.host_name(mac).to_string(),
                |numbered| numbered.name.clone(),
            );
            let mut host = Host::new(mac, name, rules, ledger, now);
            host.address = site.host(mac).and_then(|host| host.address);
            host.take_policy(site);
            host
        })
    }

    fn forget(&mut self, mac: MacAddr) -> Option<Host> {
        let host = self.all.remove(&mac)?;
        self.by_node.remove(&node_uuid(mac));
        self.judged.insert(mac);
        self.dirty.remove(&mac);
        self.moving.remove(&mac);
        self.held.remove(&mac);
        if self.shown.remove(&mac).is_some() {
            self.effects.push(Effect::Show { mac, shown: None });
        }
        for ticket in host.memory.questions() {
            self.answer(ticket, Reply::Bootstrap(Answer::Unknown));
        }
        Some(host)
    }

    fn acted(&mut self, mac: MacAddr, action: &Action, end: End, now: Duration) {
        let pace = self.settings.pace;
        let Some(host) = self.touch(mac) else {
            return;
        };
        host.remote.acted(action, &end, now);
        match end {
            End::Begun => {
                host.work.begun(now);
                if action.begins_step() {
                    host.memory.note(|ledger| ledger.retry = false);
                }
                // Any other restart is seen: the server is off for a moment.
                if *action == Action::Switch(PowerTarget::Reboot) {
                    host.restarted();
                    host.start_anew();
                }
                if wipes_token(action) {
                    host.ramdisk.token_wiped(now);
                }
            }
            End::Later => host.work.failed(now, pace.busy * 3, None),
            End::Refused(problem) => host.work.failed(now, pace.refused, Some(problem)),
        }
        self.look_again = true;
    }
}

fn site_of<'a>(
    settings: &'a Settings,
    ironic: &'a IronicSeen,
    uploads: &'a [ServedImage],
) -> Site<'a> {
    let site = &settings.site;
    let has_addresses = site.hosts.iter().any(|host| !host.addresses.is_empty());
    Site {
        unclaimed: settings.unclaimed,
        join: site.join,
        image: settings.image.as_ref(),
        uploads,
        box_http: ironic.box_http.as_deref().unwrap_or_default(),
        ironic_known: ironic.known,
        standing: site.standing,
        networks: Some(&**site).filter(|site| has_addresses || site.has_links()),
    }
}

/// Ironic forgets the ramdisk with it.
fn wipes_token(action: &Action) -> bool {
    matches!(
        action,
        Action::Inspect
            | Action::ForgetToken
            | Action::Release
            | Action::Abort
            | Action::Summon
            | Action::TearDown { .. }
    )
}
