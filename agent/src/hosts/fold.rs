//! All hosts: what is heard goes in, what is to be done comes out. Pure: no clock, no disk, no network, and it never waits.
//!
//! [`Hosts::fold`] takes one event and answers with effects, in their order. Only hosts that the event is about are decided anew, except
//! when time has passed or something that all plans depend on has changed.

mod settle;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv4Addr,
    ops::RangeInclusive,
    sync::Arc,
    time::Duration,
};

use firstlight_api::{
    bmh::{APPROVE_ANNOTATION, BareMetalHost, INSTALL_ANNOTATION},
    report::{Directive, Progress, Report},
    site::{InstallPolicy, SiteConfig},
    status::Problem,
};
use firstlight_ironic::Node;
use firstlight_netboot::{ClientArch, MacAddr};

use super::{
    apply::node_uuid,
    delivery,
    event::{Collect, Effect, End, Event, Now, Question, Reply, Shown},
    host::{All, Host, Rules, Site},
    image::NodeImage,
    known::{Admission, Heard, Newcomers},
    ledger::Ledger,
    memory::Ticket,
    object,
    plan::{Action, EXTRA_MAC},
    policy,
    token::Token,
    who::{Claim, Patience, Refused},
    wish::Destiny,
};
use crate::{
    fleet::{Answer, Speaker},
    store::{Reference, ServedImage, Target},
};

/// What all hosts are judged by.
#[derive(Clone, Debug)]
pub struct Settings {
    pub site: Arc<SiteConfig>,
    /// Where ramdisks are.
    pub network: RangeInclusive<Ipv4Addr>,
    pub image: Result<NodeImage, Problem>,
    /// What hosts are there for that nobody claimed.
    pub destiny: Destiny,
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
    /// To be decided anew, and shown.
    dirty: BTreeSet<MacAddr>,
    shown: BTreeMap<MacAddr, Shown>,
    /// Whose nodes Ironic changes by itself.
    moving: BTreeSet<MacAddr>,
    pace: Duration,
    effects: Vec<Effect>,
}

impl Hosts {
    /// `remembered`: what was found on the disk.
    pub fn new(settings: Settings, tokens: Tokens, remembered: BTreeMap<MacAddr, Ledger>) -> Self {
        Self {
            pace: settings.pace.busy,
            settings,
            tokens,
            all: BTreeMap::new(),
            by_node: BTreeMap::new(),
            remembered,
            newcomers: Newcomers::default(),
            ironic: IronicSeen::default(),
            uploads: Vec::new(),
            dirty: BTreeSet::new(),
            shown: BTreeMap::new(),
            moving: BTreeSet::new(),
            effects: Vec::new(),
        }
    }

    pub fn fold(&mut self, event: Event, now: Now) -> Vec<Effect> {
        self.take(event, now.up);
        self.settle(now);
        std::mem::take(&mut self.effects)
    }

    fn take(&mut self, event: Event, now: Duration) {
        match event {
            Event::Dhcp { mac, arch, address } => self.dhcp(mac, arch, address, now),
            Event::Report {
                ticket,
                from,
                report,
            } => {
                let directive = self.report(from, *report, now);
                self.answer(ticket, Reply::Directive(directive));
            }
            Event::Progress {
                ticket,
                from,
                progress,
            } => {
                let believed = self.progress(from, progress, now);
                self.answer(ticket, Reply::Believed(believed));
            }
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
            Event::IronicSilent => {
                if std::mem::take(&mut self.ironic.up) {
                    tracing::warn!("Ironic does not answer any more; hosts wait for it");
                }
            }
            Event::Objects(objects) => self.objects(objects, now),
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

    /// Only firmware and boot loaders make a server known: a laptop on the segment is none.
    fn dhcp(
        &mut self,
        mac: MacAddr,
        arch: Option<ClientArch>,
        address: Option<Ipv4Addr>,
        now: Duration,
    ) {
        let known = self.all.contains_key(&mac);
        let boots = arch.is_some() || self.settings.site.host(mac).is_some();
        let may_be = known || (boots && self.admits(mac, Heard::Dhcp, now));
        if !may_be {
            return;
        }
        let host = self.host(mac, now);
        host.seen = now;
        let moved = address.is_some() && host.address != address;
        host.address = address.or(host.address);
        if arch.is_some() {
            host.firmware_asked(now);
        }
        if !known || moved || arch.is_some() {
            self.dirty.insert(mac);
        }
    }

    fn report(&mut self, from: Speaker, report: Report, now: Duration) -> Directive {
        match self.believe(from, report, now) {
            Err((why, reason)) => {
                self.effects.push(Effect::Refused(why));
                Directive::Wait {
                    seconds: 5,
                    reason: reason.to_owned(),
                }
            }
            Ok(mac) => self.directive(mac, now),
        }
    }

    /// Takes a report if it can be true; otherwise a counter's name and a sentence.
    fn believe(
        &mut self,
        from: Speaker,
        report: Report,
        now: Duration,
    ) -> Result<MacAddr, (&'static str, &'static str)> {
        let (patience, join) = (self.settings.pace.patience, self.settings.site.join);
        let mac = report.boot_mac.parse::<MacAddr>();
        let mac = mac.map_err(|_| ("report-mac", "the report has no MAC address"))?;
        let address = report.address.parse::<Ipv4Addr>().ok();
        let address = address
            .filter(|address| from.peer == *address && self.settings.network.contains(address))
            .ok_or((
                "report-address",
                "the box believes a report only from the address that it names, in the box's network",
            ))?;
        let taken = self.all.values().any(|host| {
            host.mac != mac && host.who.address() == Some(address) && host.who.speaks(now, patience)
        });
        if taken {
            return Err((
                "report-address-taken",
                "another server reports from this address",
            ));
        }
        let raised = self.is_raised();
        if !self.all.contains_key(&mac) && !self.admits(mac, Heard::Report, now) {
            return Err((
                "report-too-many",
                "the box knows too many servers, or met too many within a minute",
            ));
        }
        self.dirty.insert(mac);
        let host = self.host(mac, now);
        let claim = Claim {
            key: from.key,
            boot_id: &report.boot_id,
            address,
            sequence: report.fresh.sequence,
            tpm: from.tpm,
        };
        host.recognise(&claim, &report.tpm, now)
            .and_then(|()| host.who.report(&claim, now, patience))
            .map_err(refusal_of)?;
        host.reported(report, raised, now);
        host.saw_tpm(join);
        Ok(mac)
    }

    /// A host has had its bootstrap data, as the first control plane of a cluster does before all others.
    fn is_raised(&self) -> bool {
        let known = self.all.values().map(Host::ledger);
        let mut ledgers = known.chain(self.remembered.values());
        ledgers.any(|ledger| ledger.deployment.as_ref().is_some_and(|it| it.delivered))
    }

    fn directive(&mut self, mac: MacAddr, now: Duration) -> Directive {
        self.replan(mac, now);
        let Some(host) = self.all.get_mut(&mac) else {
            return Directive::Again;
        };
        let directive = host.plan().map_or_else(
            || Directive::Wait {
                seconds: 10,
                reason: "the box has not decided yet".to_owned(),
            },
            |plan| plan.directive.clone(),
        );
        if directive == Directive::BootDisk {
            host.who.leaves();
            host.ramdisk.has_ended();
        }
        directive
    }

    /// True if it was believed.
    fn progress(&mut self, from: Speaker, progress: Progress, now: Duration) -> bool {
        let mac = progress.boot_mac.parse::<MacAddr>().ok();
        let Some(host) = mac.and_then(|mac| self.touch(mac)) else {
            return false;
        };
        let believed = host.progressed(from.key, progress, now);
        if let Err(why) = believed {
            self.effects.push(Effect::Refused(refusal_of(why).0));
        }
        believed.is_ok()
    }

    /// May somebody who says that he is there be known? Within the limits for such.
    fn admits(&mut self, mac: MacAddr, heard: Heard, now: Duration) -> bool {
        if self.remembered.contains_key(&mac) || self.settings.site.host(mac).is_some() {
            return true;
        }
        match self.newcomers.admit(&self.all, heard, now) {
            Admission::Refused => false,
            Admission::Admitted => true,
            Admission::InPlaceOf(oldest) => {
                self.forget(oldest);
                true
            }
        }
    }

    /// The host, made if it is new.
    fn host(&mut self, mac: MacAddr, now: Duration) -> &mut Host {
        let (site, by_node) = (&self.settings.site, &mut self.by_node);
        let (remembered, dirty) = (&mut self.remembered, &mut self.dirty);
        self.all.entry(mac).or_insert_with(|| {
            by_node.insert(node_uuid(mac), mac);
            dirty.insert(mac);
            let rules = Rules {
                policy: site.install_policy(mac),
                named: site.host(mac).is_some(),
                wrong_code: false,
            };
            let ledger = remembered.remove(&mac).unwrap_or_default();
            let name = site.host_name(mac).to_string();
            let mut host = Host::new(mac, name, rules, ledger, now);
            host.address = site.host(mac).and_then(|host| host.address);
            host
        })
    }

    fn forget(&mut self, mac: MacAddr) -> Option<Host> {
        let host = self.all.remove(&mac)?;
        self.by_node.remove(&node_uuid(mac));
        self.dirty.remove(&mac);
        self.moving.remove(&mac);
        if self.shown.remove(&mac).is_some() {
            self.effects.push(Effect::Show { mac, shown: None });
        }
        Some(host)
    }

    fn asked(&mut self, question: Question, now: Duration) {
        let mac = self.by_node.get(&question.host).copied();
        let Some((mac, host)) = mac.and_then(|mac| Some((mac, self.touch(mac)?))) else {
            return self.answer(question.ticket, Reply::Bootstrap(Answer::Unknown));
        };
        delivery::heard(host, &question, now);
        self.replan(mac, now);
        let Some(host) = self.all.get(&mac) else {
            return;
        };
        match delivery::answer(host, &question) {
            Some(answer) => self.answer(question.ticket, Reply::Bootstrap(answer)),
            None => self.effects.push(Effect::Collect(Box::new(Collect {
                mac,
                name: host.name.clone(),
                object: host.object.clone(),
                question,
            }))),
        }
    }

    fn collected(
        &mut self,
        mac: MacAddr,
        question: &Question,
        data: Result<crate::fleet::BootstrapData, Problem>,
    ) {
        let answer = match self.touch(mac) {
            Some(host) => delivery::collected(host, question, data),
            None => Some(Answer::Unknown),
        };
        if let Some(answer) = answer {
            self.answer(question.ticket, Reply::Bootstrap(answer));
        }
    }

    fn nodes(&mut self, nodes: Vec<Node>, asked: Duration, now: Duration) {
        if !std::mem::replace(&mut self.ironic.known, true) {
            self.touch_all();
        }
        self.ironic.up = true;
        let mut by_mac: BTreeMap<MacAddr, Node> = BTreeMap::new();
        for node in nodes {
            let mac = node.extra[EXTRA_MAC].as_str();
            let mac = mac.and_then(|mac| mac.parse::<MacAddr>().ok());
            if let Some(mac) = mac.filter(|mac| node.uuid == node_uuid(*mac)) {
                self.host(mac, now);
                by_mac.insert(mac, node);
            }
        }
        for (mac, host) in &mut self.all {
            // A list from before the last action would show the state before it.
            if host.work.is_shown_by(asked) && host.observe_node(by_mac.remove(mac), now) {
                self.dirty.insert(*mac);
            }
        }
    }

    fn objects(&mut self, objects: Vec<BareMetalHost>, now: Duration) {
        self.effects.push(Effect::Use(disks_of(&objects)));
        let mut gone: BTreeSet<MacAddr> = self.all.keys().copied().collect();
        for object in objects {
            let mac = object.spec.boot_mac_address.to_lowercase();
            let Ok(mac) = mac.parse::<MacAddr>() else {
                continue;
            };
            gone.remove(&mac);
            if self.object(mac, object, now) {
                self.dirty.insert(mac);
            }
        }
        for mac in gone {
            let host = self.all.get_mut(&mac);
            if host.is_some_and(|host| host.observe_object(None)) {
                self.dirty.insert(mac);
            }
            if self.all.get(&mac).is_some_and(|host| host.work.removed) {
                self.let_go(mac);
            }
        }
    }

    /// True if it says something new.
    fn object(&mut self, mac: MacAddr, object: BareMetalHost, now: Duration) -> bool {
        let rule = self.settings.site.install_policy(mac);
        let host = self.host(mac, now);
        let before = (host.rules, host.ledger().clone());
        let annotations = &object.metadata.annotations;
        let word = annotations.get(INSTALL_ANNOTATION);
        let word = word.and_then(|word| policy::parse(word));
        host.rules.policy = word.unwrap_or(rule);
        host.approve(annotations.get(APPROVE_ANNOTATION).map(String::as_str));
        let taken_back = word.is_some_and(|word| word != InstallPolicy::Never)
            || object.spec.image.is_some()
            || object.spec.externally_provisioned;
        host.memory.note(|ledger| ledger.removed &= !taken_back);
        // A person may have made the object, and chosen the name.
        host.name.clone_from(&object.metadata.name);
        host.address = host.address.or_else(|| object::known_address(&object));
        let words = before != (host.rules, host.ledger().clone());
        host.observe_object(Some(object)) || words
    }

    /// A host whose deleted object is gone. It is new if it shows up again, and left alone.
    fn let_go(&mut self, mac: MacAddr) {
        if let Some(host) = self.forget(mac) {
            tracing::info!(host = host.name, %mac, "a deleted host is gone");
            self.effects.push(Effect::ForgetKeys(mac));
            self.remembered.insert(mac, host.ledger().clone());
        }
    }

    fn acted(&mut self, mac: MacAddr, action: &Action, end: End, now: Duration) {
        let pace = self.settings.pace;
        let Some(host) = self.touch(mac) else {
            return;
        };
        match end {
            End::Begun => {
                host.work.begun(now);
                if wipes_token(action) {
                    host.ramdisk.token_wiped(now);
                }
            }
            End::Later => host.work.failed(now, pace.busy * 3, None),
            End::Refused(problem) => host.work.failed(now, pace.refused, Some(problem)),
        }
        self.look_at(pace.busy);
    }
}

fn site_of<'a>(
    settings: &'a Settings,
    ironic: &'a IronicSeen,
    uploads: &'a [ServedImage],
) -> Site<'a> {
    let site = &settings.site;
    Site {
        destiny: settings.destiny,
        join: site.join,
        image: settings.image.as_ref(),
        uploads,
        box_http: ironic.box_http.as_deref().unwrap_or_default(),
        ironic_known: ironic.known,
        standing: site.standing,
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
            | Action::TearDown { .. }
    )
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

/// Which disks hosts refer to.
fn disks_of(objects: &[BareMetalHost]) -> Vec<Reference> {
    let wanted = objects.iter().filter_map(|object| {
        let image = object.spec.image.as_ref()?;
        Some(Reference {
            by: format!("BareMetalHost {}", object.metadata.name),
            to: Target::Disk(image.url.clone()),
        })
    });
    wanted.collect()
}
