//! One host: what was observed of it, what is decided for it, and what outlives a power cut. Pure; time is handed in.
//!
//! All of it may be lost at any time except [`Memory`], which is on the disk before anything is done that it is about.

mod account;
mod chosen;
mod fit;
mod history;
mod identity;
mod mirror;
mod observe;
mod ramdisk;
mod remote;
mod shown;
mod start;
mod system;
mod verbs;
mod work;

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use firstlight_api::{
    bmh::{BareMetalHost, annotations::Inspection},
    report::{Phase, Progress, Report},
    signed::PublicKey,
    site::{Clean, HostName, InstallPolicy, JoinPolicy, SiteConfig, Standing},
    start::{KernelArguments, StartPolicy},
    status::{HostState, Problem},
};
use firstlight_ironic::Node;
use firstlight_measured::Booted;
use firstlight_netboot::{BootTarget, MacAddr};

use super::{
    account as bmc_account,
    event::Now,
    image::NodeImage,
    intent::{self, Intent, SitePolicy, Source},
    ledger::Ledger,
    made,
    memory::{Memory, Step},
    plan::{self, Action, Ironic, Observed, Plan, Restart},
    root_disk::WantedDisks,
    tpm::Pretender,
    who::{Refused, Who},
};
use crate::{ssh::Towards, store::ServedImage};
pub use account::Next as AccountNext;
pub use fit::{Called, Naming, Ruled};
use history::History;
use mirror::Watch;
pub use ramdisk::Part;
use ramdisk::Ramdisk;
use remote::Remote;
pub use start::Known as KexecKnown;
use system::System;
use work::Work;

/// All hosts, by the NIC that they boot from.
pub type All = BTreeMap<MacAddr, Host>;

/// By whom every host is paused while nobody knows what the site's file says now, or whether this system stays.
const HELD: &str =
    "the box, whose site.yaml cannot be used or whose system is new and not yet kept";

#[derive(Clone, Debug)]
pub struct Host {
    pub mac: MacAddr,
    /// Of its object; [`made::NAMESPACE`] as long as nobody has made one.
    pub namespace: String,
    pub name: String,
    /// As `kubectl` is told which host is meant.
    called: String,
    /// When it was heard of last.
    pub seen: Duration,
    pub address: Option<Ipv4Addr>,
    pub rules: Rules,
    pub ruled: Ruled,
    pub who: Who,
    /// One that cannot show the host's TPM or how it was started, while it is told.
    pretender: Option<Pretender>,
    /// How the machine that is believed was started.
    booted: Option<Booted>,
    pub ramdisk: Ramdisk,
    pub node: Option<Node>,
    pub object: Option<Arc<BareMetalHost>>,
    pub memory: Memory,
    pub system: System,
    pub remote: Remote,
    pub work: Work,
    mirror: Watch,
    /// A system on a server of its model did not come up by kexec.
    no_kexec: bool,
    decision: Decision,
    history: History,
}

/// Whom the installation policy of a host was said of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyOf {
    AllHosts,
    /// A person said it of this one.
    ThisHost,
}

impl PolicyOf {
    pub fn this_if(said: bool) -> Self {
        if said { Self::ThisHost } else { Self::AllHosts }
    }
}

/// What site.yaml and people say of it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "facts that hold or do not, each by itself"
)]
pub struct Rules {
    pub policy: InstallPolicy,
    pub policy_of: PolicyOf,
    /// Which disk is written is said there.
    pub hints: bool,
    /// What is erased when it is given back, if something was said.
    pub clean: Option<Clean>,
    /// How its system is started, if something was said.
    pub start: Option<StartPolicy>,
    pub kernel_arguments: Option<KernelArguments>,
    /// For which of the site's clusters it is, if something was said.
    pub cluster: Option<HostName>,
    /// It is in `hosts` of site.yaml.
    pub named: bool,
    /// A person wrote a code that is not its code.
    pub wrong_code: bool,
    /// Another object is about the same server.
    pub twin: bool,
}

/// What every host's plan depends on.
#[derive(Clone, Copy, Debug)]
pub struct Site<'a> {
    pub unclaimed: SitePolicy,
    pub join: JoinPolicy,
    pub image: Result<&'a NodeImage, &'a Problem>,
    pub uploads: &'a [ServedImage],
    pub box_http: &'a str,
    /// Ironic has answered since the start.
    pub ironic_known: bool,
    pub standing: Standing,
    /// site.yaml, where it says what NICs of servers carry.
    pub networks: Option<&'a SiteConfig>,
}

#[derive(Clone, Debug, PartialEq)]
struct Decision {
    /// Two machines say that they are this host.
    disputed: bool,
    /// Why it is not taken.
    barred: Option<Problem>,
    wanted: Intent,
    plan: Option<Plan>,
    /// Annotations that ask for what cannot be, each with the reason.
    refused: BTreeMap<&'static str, String>,
}

impl Default for Decision {
    fn default() -> Self {
        Self {
            disputed: false,
            barred: None,
            wanted: Intent {
                desired: Ok(intent::DesiredState::Unknown),
                paused: None,
                detached: None,
                inspection: Inspection::Once,
                cleaning: firstlight_api::bmh::AutomatedCleaningMode::Metadata,
                restarts: Vec::new(),
                power: intent::Power::On,
                root: WantedDisks::default(),
                retry: false,
                allow_kexec: false,
                confirmed: false,
                stays_on: false,
            },
            plan: None,
            refused: BTreeMap::new(),
        }
    }
}

impl Host {
    pub fn new(mac: MacAddr, name: String, rules: Rules, ledger: Ledger, now: Duration) -> Self {
        Self {
            mac,
            namespace: made::NAMESPACE.to_owned(),
            called: name.clone(),
            name,
            seen: now,
            address: None,
            rules,
            ruled: Ruled::default(),
            who: Who::default(),
            pretender: None,
            booted: None,
            ramdisk: Ramdisk::default(),
            node: None,
            object: None,
            memory: Memory::of(ledger),
            system: System::default(),
            remote: Remote::default(),
            work: Work::new(now),
            mirror: Watch::default(),
            no_kexec: false,
            decision: Decision::default(),
            history: History::new(now),
        }
    }

    /// A person may have made its object, and chosen the name.
    pub fn rename(&mut self, namespace: &str, name: &str) {
        namespace.clone_into(&mut self.namespace);
        name.clone_into(&mut self.name);
        self.called = made::called(namespace, name);
    }

    pub fn ledger(&self) -> &Ledger {
        self.memory.known()
    }

    pub fn plan(&self) -> Option<&Plan> {
        self.decision.plan.as_ref()
    }

    pub fn wanted(&self) -> &Intent {
        &self.decision.wanted
    }

    /// Nothing but DHCP knows it.
    pub fn is_silent(&self) -> bool {
        let known = self.ramdisk.report().is_some() || self.object.is_some() || self.node.is_some();
        !known && *self.ledger() == Ledger::default()
    }

    /// Nobody has used it or said a word about it, and nothing is on its disks that the box knows of.
    pub fn is_of_no_use(&self) -> bool {
        let reported = self.ramdisk.report().is_some() || self.object.is_some();
        reported
            && !self.rules.named
            && self.is_nobodys()
            && self.ledger().is_of_no_use()
            && !self.has_account()
    }

    /// Firmware or a boot loader asks for an address: it was restarted, by whomever.
    pub fn firmware_asked(&mut self, now: Duration) {
        self.who.firmware_asked(now);
        self.system_is_down();
        self.restarted();
        self.kexec_ended();
    }

    /// Something else runs on the machine now.
    fn system_is_down(&mut self) {
        self.system.is_down();
        self.remote.account.asked.is_over();
    }

    /// A report that [`Who`] believes, of a ramdisk that `follows` those with these keys. `raised`: a cluster was there already.
    pub fn reported(&mut self, report: Report, follows: &[PublicKey], raised: bool, now: Duration) {
        let new = self.object.is_none() && *self.ledger() == Ledger::default();
        let key = self.who.key();
        self.memory.note(|ledger| {
            ledger.newcomer |= new && raised;
            if let Some(key) = key {
                ledger.met(key, follows, raised);
            }
        });
        self.address = report.address.parse().ok().or(self.address);
        self.seen = now;
        // Its firmware ran again: what answered before does not any more.
        self.system_is_down();
        self.ramdisk.reported(report, now);
        self.share_hardware();
        self.remote.came();
    }

    pub fn progressed(
        &mut self,
        key: PublicKey,
        progress: Progress,
        now: Now,
    ) -> Result<(), Refused> {
        let sequence = progress.fresh.sequence;
        self.who
            .progress(key, &progress.boot_id, sequence, now.up)?;
        if let Phase::Written { wrote } = &progress.phase {
            self.memory
                .note(|ledger| ledger.wrote(key, wrote.as_ref(), now.wall));
        }
        if matches!(progress.phase, Phase::Rebooting { .. }) {
            self.who.leaves();
        }
        self.ramdisk.progressed(progress, now.up);
        Ok(())
    }

    /// Its power is on its way somewhere.
    pub fn is_switched(&self) -> bool {
        let node = self.node.as_ref();
        node.is_some_and(|node| node.target_power_state.is_some())
    }

    /// At the address of its last report.
    pub fn ramdisk_listens(&self) -> Option<SocketAddr> {
        self.ramdisk.listens(self.node.as_ref()?.agent()?.port())
    }

    /// Decides anew; true if something else comes out.
    pub fn replan(&mut self, site: &Site, now: Duration) -> bool {
        let before = self.decision.clone();
        self.learn_account(now);
        let pretender = &mut self.pretender;
        let gone = pretender.take_if(|other| !other.is_told(now)).is_some();
        self.decide(site, now);
        gone || self.decision != before
    }

    fn decide(&mut self, site: &Site, now: Duration) {
        let held = (site.standing != Standing::Current).then_some(HELD);
        let mut wanted = intent::wanted(&Source {
            object: self.object.as_deref(),
            ledger: self.memory.known(),
            unclaimed: site.unclaimed,
            is_given: self.ruled.rule().is_some() || self.rules.hints,
            is_overdue: self.ruled.overdue().is_some(),
            image: site.image.ok(),
            uploads: site.uploads,
            box_http: site.box_http,
        });
        wanted.paused = held.map(str::to_owned).or(wanted.paused);
        self.decision.disputed = self.who.is_disputed(now);
        let untrusted = self.untrusted();
        let barred = self.doubt().or_else(|| self.candidate().barred(site.join));
        let barred = barred.or_else(|| self.unfit());
        let barred = barred.or_else(|| self.cannot_be_linked(site.networks?));
        self.decision.barred = barred.or_else(|| untrusted.clone());
        self.decision.wanted = wanted;
        // What a deployment has written on its way to Ironic does not say yet what came of it.
        let action = self.plan().and_then(|plan| plan.action.as_ref());
        if matches!(action, Some(Action::Deploy { .. })) && self.work.is_unclear() {
            return;
        }
        let mut plan = plan::plan(&self.observed(site, now));
        if self.hears(&plan, site) {
            plan = plan::plan(&self.observed(site, now));
        }
        if plan.deliver && untrusted.is_some() {
            (plan.deliver, plan.problem) = (false, untrusted);
        }
        plan.deliver &= held.is_none();
        if plan.restart.is_none() {
            self.system.forget_orders();
        }
        let is_of_bmc = plan.action.as_ref().is_some_and(Action::is_of_bmc);
        self.remote.wants(is_of_bmc);
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
        self.decision.refused = self.refusals(site);
    }

    fn observed<'a>(&'a self, site: &Site<'a>, now: Duration) -> Observed<'a> {
        Observed {
            now,
            called: &self.called,
            policy: self.rules.policy,
            clean: self.rules.clean,
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
            system: self.system.seen(now),
            image: site.image,
            gave_up: self.work.gave_up.as_deref(),
            refused: self.work.refused.is_some(),
            barred: self.decision.barred.as_ref(),
            remote: self.remote.seen(),
            owes_account: self.object.as_deref().is_some_and(bmc_account::is_owed),
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

    /// Its running system may still be told to start the ramdisk by itself.
    pub fn may_start_ramdisk(&self, now: Duration) -> bool {
        let ledger = self.ledger();
        // Its firmware has to be there when the start of its ramdisk is measured.
        let is_measured = ledger.measured.is_some();
        let may = ledger.written().is_some() && !ledger.returns && !is_measured;
        may && self.system.may_start_ramdisk(now)
    }

    /// Every restart that was asked for has happened.
    pub fn restarted(&mut self) {
        let done = &self.decision.wanted.restarts;
        self.memory
            .note(|ledger| ledger.done.extend(done.iter().cloned()));
    }

    /// Before a deleted object goes, it is written down that its host was removed by a person.
    pub fn remove_if_due(&mut self, now: Duration) {
        let due = self.plan().is_some_and(|plan| plan.release);
        if due && !self.work.removed && !self.memory.rests(now) {
            if self.object.as_deref().is_some_and(bmc_account::is_owed) {
                tracing::warn!(host = self.name, mac = %self.mac, "a deleted host leaves the box's account in its BMC");
            }
            self.memory.queue(Step::Remove);
        }
    }

    pub fn boot_target(&self) -> BootTarget {
        let plan = self.plan();
        plan.map_or(BootTarget::Ramdisk, |plan| plan.boot.clone())
    }
}

#[cfg(test)]
mod tests;
