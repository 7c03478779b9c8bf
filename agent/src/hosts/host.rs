//! One host: what was observed of it, what is decided for it, and what outlives a power cut. Pure; time is handed in.
//!
//! All of it may be lost at any time except [`Memory`], which is on the disk before anything is done that it is about.

mod history;
mod ramdisk;
mod system;
mod work;

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use firstlight_api::{
    bmh::{APPROVE_ANNOTATION, BareMetalHost, Image, annotations::Inspection},
    report::{Inventory, Phase, Progress, Report},
    signed::PublicKey,
    site::{InstallPolicy, JoinPolicy, Standing},
    status::{HardwareSummary, HostState, HostStatus, Problem, TpmStatus},
    tpm::Tpm,
};
use firstlight_ironic::{Node, ProvisionState};
use firstlight_netboot::{BootTarget, MacAddr};

use super::{
    admission::Candidate,
    image::NodeImage,
    ledger::{Deployment, Ledger},
    memory::{Memory, Step},
    plan::{self, Action, Ironic, Observed, Plan, Restart},
    tpm::{self, Pretender},
    who::{Claim, Refused, Who},
    wish::{self, Destiny, Source, Wanted},
};
use crate::{ssh::Towards, store::ServedImage};
use history::History;
use ramdisk::Ramdisk;
use system::System;
use work::Work;

/// All hosts, by the NIC that they boot from.
pub type All = BTreeMap<MacAddr, Host>;

/// By whom every host is paused while nobody knows what the site's file says now.
const HELD: &str = "the box, whose site.yaml cannot be used";

#[derive(Clone, Debug)]
pub struct Host {
    pub mac: MacAddr,
    pub name: String,
    /// When it was heard of last.
    pub seen: Duration,
    pub address: Option<Ipv4Addr>,
    pub rules: Rules,
    pub who: Who,
    /// One that cannot show the host's TPM, while it is told.
    pretender: Option<Pretender>,
    pub ramdisk: Ramdisk,
    pub node: Option<Node>,
    pub object: Option<BareMetalHost>,
    pub memory: Memory,
    pub system: System,
    pub work: Work,
    decision: Decision,
    history: History,
}

/// What site.yaml and people say of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    pub policy: InstallPolicy,
    /// It is in `hosts` of site.yaml.
    pub named: bool,
    /// A person wrote a code that is not its code.
    pub wrong_code: bool,
}

/// What every host's plan depends on.
#[derive(Clone, Copy, Debug)]
pub struct Site<'a> {
    pub destiny: Destiny,
    pub join: JoinPolicy,
    pub image: Result<&'a NodeImage, &'a Problem>,
    pub uploads: &'a [ServedImage],
    pub box_http: &'a str,
    /// Ironic has answered since the start.
    pub ironic_known: bool,
    pub standing: Standing,
}

#[derive(Clone, Debug, PartialEq)]
struct Decision {
    /// Two machines say that they are this host.
    disputed: bool,
    /// Why it is not taken.
    barred: Option<Problem>,
    wanted: Wanted,
    plan: Option<Plan>,
}

impl Default for Decision {
    fn default() -> Self {
        Self {
            disputed: false,
            barred: None,
            wanted: Wanted {
                wish: Ok(wish::Wish::Unknown),
                paused: None,
                detached: None,
                inspection: Inspection::Once,
                cleaning: firstlight_api::bmh::AutomatedCleaningMode::Metadata,
                restarts: Vec::new(),
            },
            plan: None,
        }
    }
}

impl Host {
    pub fn new(mac: MacAddr, name: String, rules: Rules, ledger: Ledger, now: Duration) -> Self {
        Self {
            mac,
            name,
            seen: now,
            address: None,
            rules,
            who: Who::default(),
            pretender: None,
            ramdisk: Ramdisk::default(),
            node: None,
            object: None,
            memory: Memory::of(ledger),
            system: System::default(),
            work: Work::new(now),
            decision: Decision::default(),
            history: History::new(now),
        }
    }

    pub fn ledger(&self) -> &Ledger {
        self.memory.known()
    }

    pub fn plan(&self) -> Option<&Plan> {
        self.decision.plan.as_ref()
    }

    pub fn wanted(&self) -> &Wanted {
        &self.decision.wanted
    }

    /// Nothing but DHCP knows it.
    pub fn is_silent(&self) -> bool {
        let known = self.ramdisk.report().is_some() || self.object.is_some() || self.node.is_some();
        !known && *self.ledger() == Ledger::default()
    }

    /// Firmware or a boot loader asks for an address: it was restarted, by whomever.
    pub fn firmware_asked(&mut self, now: Duration) {
        self.who.firmware_asked(now);
        self.system.is_down();
        self.restarted();
    }

    /// A report that [`Who`] believes. `raised`: a cluster was there already.
    pub fn reported(&mut self, report: Report, raised: bool, now: Duration) {
        let new = self.object.is_none() && *self.ledger() == Ledger::default();
        if new && raised {
            self.memory.note(|ledger| ledger.newcomer = true);
        }
        self.address = report.address.parse().ok().or(self.address);
        self.seen = now;
        // Its firmware ran again: what answered before does not any more.
        self.system.is_down();
        self.ramdisk.reported(report, now);
    }

    pub fn progressed(
        &mut self,
        key: PublicKey,
        progress: Progress,
        now: Duration,
    ) -> Result<(), Refused> {
        let sequence = progress.fresh.sequence;
        self.who.progress(key, &progress.boot_id, sequence, now)?;
        if progress.phase == Phase::Rebooting {
            self.who.leaves();
        }
        self.ramdisk.progressed(progress, now);
        Ok(())
    }

    /// At the address of its last report.
    pub fn ramdisk_listens(&self) -> Option<SocketAddr> {
        self.ramdisk.listens(self.node.as_ref()?.agent()?.port())
    }

    /// A node as Ironic shows it now; `None` after it was removed. True if that is news.
    pub fn observe_node(&mut self, node: Option<Node>, now: Duration) -> bool {
        use ProvisionState as S;
        let news = self.work.seen() || self.node != node;
        let state = |node: &Option<Node>| node.as_ref().map(|node| node.provision_state.clone());
        let (before, after) = (state(&self.node), state(&node));
        if before != after {
            self.work.node_since = now;
            // What a ramdisk did before a deployment ended belongs to that one.
            if !matches!(after, Some(S::Deploying | S::DeployWait)) {
                self.ramdisk.forget_phase();
            }
            if after == Some(S::Active) {
                self.ramdisk.has_ended();
            }
        }
        if before.is_some() && after.is_none() {
            self.work.gave_up = None;
        }
        self.node = node;
        news
    }

    /// The object as it is now, with the policy that holds then. True if that is news.
    pub fn observe_object(&mut self, object: Option<BareMetalHost>) -> bool {
        let news = self.object != object;
        self.object = object;
        news
    }

    /// Notes what has been seen to be so.
    pub fn learn(&mut self, site: &Site) {
        use ProvisionState as S;
        let state = self.node.as_ref().map(|node| &node.provision_state);
        let free = state == Some(&S::Available);
        // Only a deployment ends with a verified image on the disk.
        let deploys = matches!(state, None | Some(S::Deploying | S::DeployWait));
        let rebooting = deploys && self.ramdisk.phase() == Some(&Phase::Rebooting);
        let key = self.who.key().map(|key| key.to_string());
        let installed = state == Some(&S::Active) && !self.ledger().leaving;
        let held = self.node.as_ref().filter(|_| installed);
        let gone = site.ironic_known && self.node.is_none();
        let object = self.object.as_ref();
        self.memory.note(|ledger| {
            if let Some(object) = object {
                ledger.has_object = true;
                let asked = &object.metadata.annotations;
                ledger.restarted.retain(|name| asked.contains_key(name));
                if let Some(known) = &mut ledger.deployment {
                    known.shown |= object.spec.image.is_some();
                }
            }
            if free {
                (ledger.inspections, ledger.cleanings) = (0, 0);
            }
            if free || gone {
                (ledger.leaving, ledger.gives_back) = (false, None);
            }
            if let Some(node) = held {
                let known = ledger.deployment.get_or_insert_with(|| Deployment {
                    image: installed_image(node),
                    ..Deployment::default()
                });
                known.written = true;
            }
            // Of the ramdisk that got the order.
            if let Some(known) = ledger.deployment.as_mut().filter(|_| rebooting)
                && (known.key.is_none() || known.key == key)
            {
                known.written = true;
            }
        });
    }

    /// Decides anew; true if something else comes out.
    pub fn replan(&mut self, site: &Site, now: Duration) -> bool {
        let before = self.decision.clone();
        let pretender = &mut self.pretender;
        let gone = pretender.take_if(|other| !other.is_told(now)).is_some();
        self.decide(site, now);
        gone || self.decision != before
    }

    fn decide(&mut self, site: &Site, now: Duration) {
        let held = (site.standing != Standing::Current).then_some(HELD);
        let mut wanted = wish::wanted(&Source {
            object: self.object.as_ref(),
            ledger: self.memory.known(),
            destiny: site.destiny,
            image: site.image.ok(),
            uploads: site.uploads,
            box_http: site.box_http,
        });
        wanted.paused = held.map(str::to_owned).or(wanted.paused);
        self.decision.disputed = self.who.is_disputed(now);
        self.decision.barred = self.candidate().barred(site.join);
        self.decision.wanted = wanted;
        // What a deployment has written on its way to Ironic does not say yet what came of it.
        let action = self.plan().and_then(|plan| plan.action.as_ref());
        if matches!(action, Some(Action::Deploy { .. })) && self.work.is_unclear() {
            return;
        }
        let mut plan = plan::plan(&self.observed(site, now));
        plan.deliver &= held.is_none();
        if plan.restart.is_none() {
            self.system.forget_orders();
        }
        let before = self.plan().map_or(HostState::Discovered, |plan| plan.state);
        if plan.state != before {
            tracing::info!(host = self.name, mac = %self.mac, state = ?plan.state, step = plan.step, "host changed its state");
            self.history.leaves(before, now);
        }
        if plan.state == HostState::Failed && self.work.gave_up.is_none() {
            let report = self.ramdisk.report();
            self.work.gave_up = report.map(|report| report.boot_id.clone());
        }
        self.decision.plan = Some(plan);
    }

    fn observed<'a>(&'a self, site: &Site<'a>, now: Duration) -> Observed<'a> {
        Observed {
            now,
            name: &self.name,
            policy: self.rules.policy,
            report: self.ramdisk.current(),
            phase: self.ramdisk.phase(),
            ironic: match &self.node {
                Some(node) => Ironic::Node(node),
                None if site.ironic_known => Ironic::Absent,
                None => Ironic::Unknown,
            },
            node_since: self.work.node_since,
            since: self.history.since(),
            wanted: &self.decision.wanted,
            ledger: self.memory.known(),
            polled: self.system.polled,
            restart_orders: self.system.orders(),
            ssh_answers: self.system.answers(now),
            image: site.image,
            gave_up: self.work.gave_up.as_deref(),
            barred: self.decision.barred.as_ref(),
        }
    }

    pub fn candidate(&self) -> Candidate<'_> {
        Candidate {
            name: &self.name,
            named: self.rules.named,
            ledger: self.memory.known(),
            key: self.who.key(),
            tpm: self.who.tpm(),
            wrong_code: self.rules.wrong_code,
        }
    }

    /// What a person wrote into the object's annotation.
    pub fn approve(&mut self, code: Option<&str>) {
        let bound = self.who.key().map(|key| (key, self.who.tpm()));
        let pretender = self.pretender.as_ref().map(|other| (other.key, other.tpm));
        let fits = |code| move |(key, _): &(PublicKey, _)| key.has_code(code);
        let meant = code.and_then(|code| bound.into_iter().chain(pretender).find(fits(code)));
        self.rules.wrong_code = code.is_some() && bound.is_some() && meant.is_none();
        let Some((key, tpm)) = meant else { return };
        self.memory.note(|ledger| ledger.approve(key, tpm));
        let ledger = self.memory.known();
        let is_host = |other: &mut Pretender| other.key == key && ledger.takes(other.tpm);
        if self.pretender.take_if(is_host).is_some() {
            self.who.dismiss();
        }
    }

    /// Is it the machine that had this host's TPM? Who is not is told of, and may have a person's word already.
    pub fn recognise(
        &mut self,
        claim: &Claim<'_>,
        said: &Tpm,
        now: Duration,
    ) -> Result<(), Refused> {
        let first = tpm::recognise(self.ledger(), claim, said);
        if first != Err(Refused::Stranger) {
            return first;
        }
        self.pretender = Some(Pretender::new(claim, said, now));
        let object = self.object.as_ref();
        let word = object.and_then(|object| object.metadata.annotations.get(APPROVE_ANNOTATION));
        self.approve(word.cloned().as_deref());
        tpm::recognise(self.ledger(), claim, said)
    }

    /// Binds the host to the TPM that was shown.
    pub fn saw_tpm(&mut self, join: JoinPolicy) {
        let taken = self.candidate().barred(join).is_none();
        if let (Some(key), Some(tpm)) = (self.who.key(), self.who.tpm()) {
            self.memory.note(|ledger| ledger.saw_tpm(key, tpm, taken));
        }
    }

    /// The next action, if it may begin now.
    pub fn due(&self, now: Duration) -> Option<Action> {
        let action = self.plan()?.action.clone()?;
        self.work.may_begin(now).then_some(action)
    }

    /// The order to restart that is due now, if any.
    pub fn restart_due(&mut self, now: Duration, pause: Duration) -> Option<Towards> {
        let Some(Restart::Ssh(into)) = self.plan()?.restart else {
            return None;
        };
        self.system.restart_due(now, pause).then_some(into)
    }

    /// Every restart that was asked for has happened.
    pub fn restarted(&mut self) {
        let done = &self.decision.wanted.restarts;
        self.memory
            .note(|ledger| ledger.restarted.extend(done.iter().cloned()));
    }

    /// Before a deleted object goes, it is written down that its host was removed by a person.
    pub fn remove_if_due(&mut self, now: Duration) {
        let due = self.plan().is_some_and(|plan| plan.release);
        if due && !self.work.removed && !self.memory.rests(now) {
            self.memory.queue(Step::Remove);
        }
    }

    fn dispute(&self) -> Problem {
        let mac = self.mac;
        Problem {
            what: format!(
                "two machines say that they are {} ({mac}); the first is believed",
                self.name
            ),
            next: "find the other one: it has a copied MAC address, or somebody plays this server"
                .to_owned(),
        }
    }

    /// The most urgent of what people should know.
    fn problem(&self) -> Option<Problem> {
        if self.decision.disputed {
            return Some(self.dispute());
        }
        if let Some(other) = &self.pretender {
            return Some(other.problem(&self.name, self.mac));
        }
        let plan = self.plan();
        let undelivered = self.work.undelivered.clone();
        plan.and_then(|plan| plan.problem.clone())
            .or_else(|| undelivered.filter(|_| plan.is_some_and(|plan| plan.deliver)))
            .or_else(|| self.memory.problem().cloned())
            .or_else(|| self.work.refused.clone())
    }

    /// What is shown of it.
    pub fn status(&self) -> HostStatus {
        let plan = self.plan();
        let address = self.address.map(|address| address.to_string());
        let report = self.ramdisk.report();
        HostStatus {
            name: self.name.clone(),
            mac: self.mac.to_string(),
            address: address.unwrap_or_default(),
            code: self.who.key().map(|key| key.code()).unwrap_or_default(),
            other_code: self
                .pretender
                .as_ref()
                .map(|other| other.key.code())
                .unwrap_or_default(),
            state: plan.map(|plan| plan.state).unwrap_or_default(),
            step: plan.map(|plan| plan.step.clone()).unwrap_or_default(),
            percent: plan.and_then(|plan| plan.percent),
            since: self.history.since().as_secs_f64(),
            problem: self.problem(),
            hardware: report.map(|report| HardwareSummary {
                tpm: tpm::status(self.ledger(), self.who.tpm(), &report.tpm),
                ..summary(&report.inventory)
            }),
            history: self.history.ended().to_vec(),
        }
    }

    pub fn boot_target(&self) -> BootTarget {
        let plan = self.plan();
        plan.map_or(BootTarget::Ramdisk, |plan| plan.boot.clone())
    }
}

/// What an active node of an agent that kept no ledger holds.
fn installed_image(node: &Node) -> Image {
    let text = |key: &str| {
        let text = node.instance_info[key].as_str();
        text.unwrap_or_default().to_owned()
    };
    Image {
        url: text("image_source"),
        checksum: text("image_os_hash_value"),
        ..Image::default()
    }
}

fn summary(inventory: &Inventory) -> HardwareSummary {
    let details = &inventory.hardware;
    let product = format!(
        "{} {}",
        details.system_vendor.manufacturer, details.system_vendor.product_name
    );
    let disk = |disk: &firstlight_api::bmh::Storage| {
        format!("{} {} GB", disk.name, disk.size_bytes / 1_000_000_000)
    };
    HardwareSummary {
        product: product.trim().to_owned(),
        cpus: u32::try_from(details.cpu.count).unwrap_or(u32::MAX),
        memory_mib: details.ram_mebibytes,
        disks: details.storage.iter().map(disk).collect(),
        boot_mode: inventory.boot_mode.clone(),
        tpm: TpmStatus::default(),
    }
}

#[cfg(test)]
mod tests;
