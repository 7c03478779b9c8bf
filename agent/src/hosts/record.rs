//! What the controller remembers of one host between two looks. All of it may be lost at any time, except the ledger,
//! which is on the disk before anything is done that it is about.

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use firstlight_api::{
    bmh::{APPROVE_ANNOTATION, BareMetalHost, Image},
    report::{Inventory, LookupState, Phase, Progress, Report},
    signed::PublicKey,
    site::{InstallPolicy, JoinPolicy, Standing},
    status::{HardwareSummary, HostEvent, HostState, HostStatus, Problem, TpmStatus},
    tpm::Tpm,
};
use firstlight_ironic::{Node, ProvisionState};
use firstlight_netboot::{BootTarget, MacAddr};

use super::{
    admission::Candidate,
    image::NodeImage,
    ledger::{Deployment, Ledger, Ledgers},
    plan::{Action, Ironic, Knocks, Observed, Plan, Restart},
    tpm::{self, Pretender},
    who::{Claim, Refused, Who},
    wish::{self, Data, Destiny, Source, Wanted},
};
use crate::{ssh::Towards, store::ServedImage};

/// So many finished states are kept: a server whose SSH comes and goes adds two each time, and all are in every status.
const HISTORY: usize = 50;

/// Uptime with what arrived then.
type Seen<T> = (T, Duration);

#[derive(Clone, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "facts that hold or do not, each by itself"
)]
pub struct Record {
    pub mac: MacAddr,
    pub name: String,
    /// When it was heard of last.
    pub seen: Duration,
    pub who: Who,
    /// Two machines say that they are this host.
    disputed: bool,
    /// One that cannot show the host's TPM, while it is told.
    pretender: Option<Pretender>,
    /// It is in `hosts` of site.yaml.
    pub named: bool,
    /// A person wrote a code that is not its code.
    wrong_code: bool,
    /// Why it is not taken.
    barred: Option<Problem>,
    pub policy: InstallPolicy,
    pub address: Option<Ipv4Addr>,
    pub report: Option<Seen<Report>>,
    phase: Option<(String, Phase)>,
    /// Its ramdisk has ended since the report.
    left: bool,
    pub node: Option<Node>,
    pub node_since: Duration,
    pub object: Option<BareMetalHost>,
    pub ledger: Ledger,
    wanted: Wanted,
    /// When its installed system asked the bootstrap endpoint last.
    pub polled: Option<Duration>,
    knock: Knock,
    /// When SSH was tried last, and when it answered last.
    pub ssh_tried: Option<Duration>,
    pub ssh_answered: Option<Duration>,
    token_wiped: Option<Duration>,
    gave_up: Option<String>,
    /// An action is under way.
    acting: bool,
    not_before: Duration,
    /// When the last action ended, and whether Ironic has been read since.
    pub acted: Duration,
    pub outdated: bool,
    /// Ironic's answer to the last action, if it was no.
    refused: Option<Problem>,
    /// Why its bootstrap data could not be handed out the last time.
    pub hand_out_problem: Option<Problem>,
    /// Its object may go: that is written down.
    released: bool,
    pub plan: Option<Plan>,
    since: Duration,
    history: Vec<HostEvent>,
}

/// Orders over SSH to restart.
#[derive(Clone, Debug, Default)]
struct Knock {
    under_way: bool,
    tried: Option<Duration>,
    accepted: Option<Duration>,
    failed: u32,
    error: Option<String>,
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

/// By whom every host is paused while nobody knows what the site's file says now.
const HELD: &str = "the box, whose site.yaml cannot be used";

/// A ramdisk that reports a lost token within this time after Ironic was made to forget it has not asked since.
const TOKEN_SETTLES: Duration = Duration::from_secs(5);
/// After this without an answer an installed host does not count as running any more.
const SSH_GONE: Duration = Duration::from_mins(2);

impl Record {
    pub fn new(mac: MacAddr, name: String, now: Duration) -> Self {
        Self {
            mac,
            name,
            seen: now,
            who: Who::default(),
            disputed: false,
            pretender: None,
            named: false,
            wrong_code: false,
            barred: None,
            policy: InstallPolicy::Never,
            address: None,
            report: None,
            phase: None,
            left: false,
            node: None,
            node_since: now,
            object: None,
            ledger: Ledger::default(),
            wanted: Wanted {
                wish: Ok(wish::Wish::Unknown),
                paused: None,
                detached: None,
                inspection: firstlight_api::bmh::annotations::Inspection::Once,
                cleaning: firstlight_api::bmh::AutomatedCleaningMode::Metadata,
                restarts: Vec::new(),
            },
            polled: None,
            knock: Knock::default(),
            ssh_tried: None,
            ssh_answered: None,
            token_wiped: None,
            gave_up: None,
            acting: false,
            not_before: Duration::ZERO,
            acted: Duration::ZERO,
            outdated: false,
            refused: None,
            hand_out_problem: None,
            released: false,
            plan: None,
            since: now,
            history: Vec::new(),
        }
    }

    /// Nothing but DHCP knows it.
    pub fn is_silent(&self) -> bool {
        let known = self.report.is_some() || self.object.is_some() || self.node.is_some();
        !known && self.ledger == Ledger::default()
    }

    /// A report that [`Who`] believes.
    pub fn reported(&mut self, mut report: Report, now: Duration) {
        let wiped = self
            .token_wiped
            .is_some_and(|at| now.saturating_sub(at) < TOKEN_SETTLES);
        if wiped && report.lookup == LookupState::TokenLost {
            report.lookup = LookupState::NotAsked;
        }
        if self
            .phase
            .as_ref()
            .is_some_and(|(boot, _)| *boot != report.boot_id)
        {
            self.phase = None;
        }
        if let Ok(address) = report.address.parse() {
            self.address = Some(address);
        }
        (self.left, self.seen) = (false, now);
        // Its firmware ran again: what answered before does not any more.
        self.ssh_answered = None;
        self.report = Some((report, now));
    }

    /// At the address of its last report: Ironic may remember an older one.
    pub fn ramdisk_listens(&self) -> Option<SocketAddr> {
        let (report, _) = self.report.as_ref()?;
        let port = self.node.as_ref()?.agent()?.port();
        Some(SocketAddr::new(report.address.parse().ok()?, port))
    }

    pub fn progressed(
        &mut self,
        key: PublicKey,
        progress: Progress,
        now: Duration,
    ) -> Result<(), Refused> {
        let sequence = progress.fresh.sequence;
        self.who.progress(key, &progress.boot_id, sequence, now)?;
        // It is a sign of life as good as a report.
        if let Some((_, at)) = &mut self.report {
            *at = now;
        }
        if progress.phase == Phase::Rebooting {
            self.who.leaves();
        }
        self.phase = Some((progress.boot_id, progress.phase));
        Ok(())
    }

    /// A node as Ironic shows it now; `None` after it was removed.
    pub fn observe_node(&mut self, node: Option<Node>, now: Duration) {
        let state = |node: &Option<Node>| node.as_ref().map(|node| node.provision_state.clone());
        let (before, after) = (state(&self.node), state(&node));
        if before != after {
            self.node_since = now;
        }
        // What a ramdisk did before a deployment ended belongs to that one.
        if before != after
            && !matches!(
                after,
                Some(ProvisionState::Deploying | ProvisionState::DeployWait)
            )
        {
            self.phase = None;
        }
        self.left |= before != after && after == Some(ProvisionState::Active);
        if before.is_some() && after.is_none() {
            self.gave_up = None;
        }
        self.node = node;
    }

    /// Writes down what has been seen to be so.
    pub fn learn(&mut self, ledgers: &Ledgers) {
        let state = self.node.as_ref().map(|node| &node.provision_state);
        let installed = state == Some(&ProvisionState::Active) && !self.ledger.leaving;
        let seen = self
            .node
            .as_ref()
            .filter(|_| installed)
            .map(installed_image);
        // Only a deployment ends with a verified image on the disk.
        let deploys = matches!(
            state,
            None | Some(ProvisionState::Deploying | ProvisionState::DeployWait)
        );
        let rebooting = deploys && matches!(self.phase, Some((_, Phase::Rebooting)));
        let key = self.who.key().map(|key| key.to_string());
        let free = state == Some(&ProvisionState::Available);
        let forgotten = self.node.is_none() && self.ledger.leaving;
        let asked: Option<Vec<String>> = self
            .object
            .as_ref()
            .map(|object| object.metadata.annotations.keys().cloned().collect());
        let shown = self
            .object
            .as_ref()
            .is_some_and(|object| object.spec.image.is_some());
        self.remember(ledgers, |ledger| {
            ledger.has_object |= asked.is_some();
            if let Some(known) = ledger.deployment.as_mut().filter(|_| shown) {
                known.shown = true;
            }
            if let Some(asked) = asked {
                ledger.restarted.retain(|name| asked.contains(name));
            }
            if free {
                (ledger.leaving, ledger.inspections, ledger.cleanings) = (false, 0, 0);
            }
            if forgotten {
                ledger.leaving = false;
            }
            if let Some(image) = seen {
                let known = ledger.deployment.get_or_insert_with(|| Deployment {
                    image,
                    ..Deployment::default()
                });
                known.written = true;
            }
            if let Some(known) = ledger.deployment.as_mut().filter(|_| rebooting)
                // Of the ramdisk that got the order.
                && (known.key.is_none() || known.key == key)
            {
                known.written = true;
            }
        });
    }

    /// True once the change is on the disk; if it cannot be written, it has not happened.
    pub fn remember(&mut self, ledgers: &Ledgers, change: impl FnOnce(&mut Ledger)) -> bool {
        let mut new = self.ledger.clone();
        change(&mut new);
        if new == self.ledger {
            return true;
        }
        match ledgers.save(self.mac, &new) {
            Ok(()) => {
                self.ledger = new;
                true
            }
            Err(error) => {
                tracing::error!(host = self.name, mac = %self.mac, error = format!("{error:#}"), "the memory of a host was not written");
                self.refused = Some(Problem {
                    what: format!("the state partition does not take what must outlive a power cut: {error}"),
                    next: "the box tries again; if the partition is full or worn out, write the image to another stick".to_owned(),
                });
                false
            }
        }
    }

    /// What must be on the disk before `action` begins. `token_hash` is of the token that a deployment gets.
    pub fn prepare(&mut self, action: &Action, ledgers: &Ledgers, token_hash: &str) -> bool {
        let gave_up = self.gave_up.is_some();
        let key = self.who.key().map(|key| key.to_string());
        self.remember(ledgers, |ledger| match action {
            Action::Inspect => ledger.inspections += 1,
            Action::Manage if gave_up => (ledger.inspections, ledger.cleanings) = (0, 0),
            Action::Provide { .. } if ledger.leaving => ledger.cleanings += 1,
            Action::TearDown { clean } => {
                (ledger.released, ledger.leaving, ledger.deployment) = (true, true, None);
                ledger.cleanings += u32::from(clean.is_some());
            }
            Action::Deploy {
                install, judgement, ..
            } => {
                let before = ledger.deployment.take();
                ledger.leaving = false;
                ledger.deployment = Some(Deployment {
                    key,
                    token: (install.data == Data::Endpoint).then(|| token_hash.to_owned()),
                    ..Deployment::next(before, &install.image, &judgement.free, token_hash)
                });
            }
            _ => {}
        })
    }

    /// Decides anew and notes what changed.
    pub fn replan(&mut self, site: &Site, now: Duration) {
        self.disputed = self.who.is_disputed(now);
        self.pretender.take_if(|pretender| !pretender.is_told(now));
        self.barred = self.candidate().barred(site.join);
        self.wanted = wish::wanted(&Source {
            object: self.object.as_ref(),
            ledger: &self.ledger,
            destiny: site.destiny,
            image: site.image.ok(),
            uploads: site.uploads,
            box_http: site.box_http,
        });
        let held = (site.standing != Standing::Current).then_some(HELD);
        self.wanted.paused = held
            .map(str::to_owned)
            .or_else(|| self.wanted.paused.take());
        // What a deployment has written on its way to Ironic does not say yet what came of it.
        let deploys = matches!(
            self.plan.as_ref().and_then(|plan| plan.action.as_ref()),
            Some(Action::Deploy { .. })
        );
        if deploys && (self.acting || self.outdated) {
            return;
        }
        let mut plan = super::plan::plan(&self.observed(site, now));
        plan.deliver &= held.is_none();
        if plan.restart.is_none() {
            self.knock = Knock {
                under_way: self.knock.under_way,
                ..Knock::default()
            };
        }
        let before = self
            .plan
            .as_ref()
            .map_or(HostState::Discovered, |plan| plan.state);
        if plan.state != before {
            tracing::info!(host = self.name, mac = %self.mac, state = ?plan.state, step = plan.step, "host changed its state");
            let (started, ended) = (self.since.as_secs_f64(), now.as_secs_f64());
            let surplus = (self.history.len() + 1).saturating_sub(HISTORY);
            self.history.drain(..surplus);
            self.history.push(HostEvent {
                state: before,
                started,
                ended,
            });
            self.since = now;
        }
        if plan.state == HostState::Failed && self.gave_up.is_none() {
            self.gave_up = self
                .report
                .as_ref()
                .map(|(report, _)| report.boot_id.clone());
        }
        self.plan = Some(plan);
    }

    fn observed<'a>(&'a self, site: &Site<'a>, now: Duration) -> Observed<'a> {
        Observed {
            now,
            name: &self.name,
            policy: self.policy,
            report: self
                .report
                .as_ref()
                .filter(|_| !self.left)
                .map(|(report, at)| (report, *at)),
            phase: self.phase.as_ref().map(|(_, phase)| phase),
            ironic: match &self.node {
                Some(node) => Ironic::Node(node),
                None if site.ironic_known => Ironic::Absent,
                None => Ironic::Unknown,
            },
            node_since: self.node_since,
            since: self.since,
            wanted: &self.wanted,
            ledger: &self.ledger,
            polled: self.polled,
            knocks: Knocks {
                accepted: self.knock.accepted,
                failed: self.knock.failed,
                error: self.knock.error.as_deref(),
            },
            ssh_answers: self
                .ssh_answered
                .is_some_and(|at| now.saturating_sub(at) < SSH_GONE),
            image: site.image,
            gave_up: self.gave_up.as_deref(),
            barred: self.barred.as_ref(),
        }
    }

    pub fn candidate(&self) -> Candidate<'_> {
        Candidate {
            name: &self.name,
            named: self.named,
            ledger: &self.ledger,
            key: self.who.key(),
            tpm: self.who.tpm(),
            wrong_code: self.wrong_code,
        }
    }

    /// What a person wrote into the object's annotation.
    pub fn approve(&mut self, code: Option<&str>, ledgers: &Ledgers) {
        let bound = self.who.key().map(|key| (key, self.who.tpm()));
        let pretender = self.pretender.as_ref().map(|other| (other.key, other.tpm));
        let fits = |code| move |(key, _): &(PublicKey, _)| key.has_code(code);
        let meant = code.and_then(|code| bound.into_iter().chain(pretender).find(fits(code)));
        self.wrong_code = code.is_some() && bound.is_some() && meant.is_none();
        let Some((key, tpm)) = meant else { return };
        self.remember(ledgers, |ledger| ledger.approve(key, tpm));
        let ledger = &self.ledger;
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
        ledgers: &Ledgers,
    ) -> Result<(), Refused> {
        let first = tpm::recognise(&self.ledger, claim, said);
        if first != Err(Refused::Stranger) {
            return first;
        }
        self.pretender = Some(Pretender::new(claim, said, now));
        let object = self.object.as_ref();
        let word = object.and_then(|object| object.metadata.annotations.get(APPROVE_ANNOTATION));
        self.approve(word.cloned().as_deref(), ledgers);
        tpm::recognise(&self.ledger, claim, said)
    }

    /// Binds the host to the TPM that was shown.
    pub fn saw_tpm(&mut self, join: JoinPolicy, ledgers: &Ledgers) {
        let taken = self.candidate().barred(join).is_none();
        if let (Some(key), Some(tpm)) = (self.who.key(), self.who.tpm()) {
            self.remember(ledgers, |ledger| ledger.saw_tpm(key, tpm, taken));
        }
    }

    /// It reported for the first time; `raised`: a cluster was there already.
    pub fn met(&mut self, raised: bool, ledgers: &Ledgers) {
        let new = self.object.is_none() && self.ledger == Ledger::default();
        if new && raised {
            self.remember(ledgers, |ledger| ledger.newcomer = true);
        }
    }

    /// The next action, if it may be begun now.
    pub fn due(&self, now: Duration) -> Option<Action> {
        let action = self.plan.as_ref()?.action.clone()?;
        (!self.acting && !self.outdated && now >= self.not_before).then_some(action)
    }

    pub fn begun(&mut self, action: &Action) {
        self.acting = true;
        if matches!(action, Action::Deploy { .. } | Action::Manage) {
            self.gave_up = None;
        }
    }

    /// The order to restart that is due now, if any.
    pub fn knock_due(&mut self, now: Duration, pause: Duration) -> Option<Towards> {
        let Some(Restart::Ssh(into)) = self.plan.as_ref()?.restart else {
            return None;
        };
        let rested = self
            .knock
            .tried
            .is_none_or(|at| now.saturating_sub(at) >= pause);
        if self.knock.under_way || !rested {
            return None;
        }
        (self.knock.under_way, self.knock.tried) = (true, Some(now));
        Some(into)
    }

    pub fn knocked(
        &mut self,
        into: Towards,
        result: Result<(), String>,
        ledgers: &Ledgers,
        now: Duration,
    ) {
        self.knock.under_way = false;
        match result {
            Ok(()) => {
                (self.knock.accepted, self.knock.failed) = (Some(now), 0);
                if into == Towards::Disk {
                    self.restarted(ledgers);
                }
            }
            Err(error) => {
                self.knock.failed += 1;
                self.knock.error = Some(error);
            }
        }
    }

    /// Every restart that was asked for has happened.
    pub fn restarted(&mut self, ledgers: &Ledgers) {
        let done = self.wanted.restarts.clone();
        self.remember(ledgers, |ledger| ledger.restarted.extend(done));
    }

    /// Before a deleted object goes, it is written down that its host was removed by a person.
    pub fn release(&mut self, ledgers: &Ledgers) {
        if !self.plan.as_ref().is_some_and(|plan| plan.release) {
            return;
        }
        self.released = self.remember(ledgers, |ledger| {
            *ledger = Ledger::removed();
        });
    }

    pub fn is_released(&self) -> bool {
        self.released
    }

    pub fn wanted(&self) -> &Wanted {
        &self.wanted
    }

    /// Ironic accepted it. What the ramdisk said of its token before may be wrong now.
    pub fn accepted(&mut self, action: &Action, now: Duration) {
        (self.acting, self.refused) = (false, None);
        if !matches!(
            action,
            Action::Inspect
                | Action::ForgetToken
                | Action::Release
                | Action::Abort
                | Action::TearDown { .. }
        ) {
            return;
        }
        self.token_wiped = Some(now);
        if let Some((report, _)) = &mut self.report {
            report.lookup = LookupState::NotAsked;
        }
    }

    /// Ironic did not do it; `problem` if that is no passing thing.
    pub fn rejected(&mut self, again: Duration, problem: Option<Problem>) {
        (self.acting, self.refused, self.not_before) = (false, problem, again);
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

    /// What is shown of it.
    pub fn status(&self) -> HostStatus {
        let plan = self.plan.as_ref();
        HostStatus {
            name: self.name.clone(),
            mac: self.mac.to_string(),
            address: self
                .address
                .map(|address| address.to_string())
                .unwrap_or_default(),
            code: self.who.key().map(|key| key.code()).unwrap_or_default(),
            other_code: self
                .pretender
                .as_ref()
                .map(|pretender| pretender.key.code())
                .unwrap_or_default(),
            state: plan.map(|plan| plan.state).unwrap_or_default(),
            step: plan.map(|plan| plan.step.clone()).unwrap_or_default(),
            percent: plan.and_then(|plan| plan.percent),
            since: self.since.as_secs_f64(),
            problem: self
                .disputed
                .then(|| self.dispute())
                .or_else(|| Some(self.pretender.as_ref()?.problem(&self.name, self.mac)))
                .or_else(|| plan.and_then(|plan| plan.problem.clone()))
                .or_else(|| {
                    self.hand_out_problem
                        .clone()
                        .filter(|_| plan.is_some_and(|plan| plan.deliver))
                })
                .or_else(|| self.refused.clone()),
            hardware: self.report.as_ref().map(|(report, _)| HardwareSummary {
                tpm: tpm::status(&self.ledger, self.who.tpm(), &report.tpm),
                ..summary(&report.inventory)
            }),
            history: self.history.clone(),
        }
    }

    pub fn boot_target(&self) -> BootTarget {
        self.plan
            .as_ref()
            .map_or(BootTarget::Ramdisk, |plan| plan.boot.clone())
    }
}

/// What an active node of an agent that kept no ledger holds.
fn installed_image(node: &Node) -> Image {
    let text = |key: &str| {
        node.instance_info[key]
            .as_str()
            .unwrap_or_default()
            .to_owned()
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

/// All hosts, by the NIC that they boot from.
pub type Records = BTreeMap<MacAddr, Record>;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use firstlight_api::bmh::BareMetalHostSpec;

    use super::*;

    fn at(standing: Standing, image: &NodeImage) -> Site<'_> {
        Site {
            destiny: Destiny::Plain,
            image: Ok(image),
            uploads: &[],
            box_http: "http://box",
            ironic_known: true,
            standing,
            join: JoinPolicy::Open,
        }
    }

    fn record(policy: InstallPolicy) -> Record {
        let mac = MacAddr::new([0x52, 0x54, 0, 0, 0, 1]).unwrap();
        Record {
            policy,
            ..Record::new(mac, "n1".into(), Duration::ZERO)
        }
    }

    #[test]
    fn while_the_sites_file_cannot_be_used_nothing_is_installed_and_no_data_are_handed_out() {
        let image = NodeImage {
            name: "node".into(),
            sha256: "ab".into(),
            bytes: 1000,
            ..NodeImage::default()
        };
        let now = Duration::from_secs(1);
        let mut newcomer = record(InstallPolicy::Wipe);
        let report = Report {
            boot_mac: "52:54:00:00:00:01".into(),
            boot_id: "1".into(),
            address: String::new(),
            inventory: Inventory::default(),
            disks: vec![firstlight_api::report::DiskSignatures {
                name: "/dev/sda".into(),
                size_bytes: 1 << 40,
                signatures: vec![],
                ..firstlight_api::report::DiskSignatures::default()
            }],
            lookup: LookupState::NotAsked,
            tpm: Tpm::default(),
            fresh: firstlight_api::report::Fresh::default(),
        };
        newcomer.report = Some((report, now));
        // Ahead of its claim, and claimed meanwhile.
        let mut staged = record(InstallPolicy::Blank);
        staged.ledger.deployment = Some(Deployment {
            image: image.published("http://box"),
            token: Some("digest".into()),
            written: true,
            ..Deployment::default()
        });
        let node = serde_json::json!({"uuid": "u", "name": "n1", "provision_state": "active", "power_state": "power on", "extra": {},
            "target_provision_state": null, "last_error": null, "reservation": null});
        staged.node = Some(serde_json::from_value(node).unwrap());
        let spec = BareMetalHostSpec {
            online: true,
            image: Some(image.published("http://box")),
            ..BareMetalHostSpec::default()
        };
        staged.object = Some(BareMetalHost::new("n1", "metal3-system", spec));

        let mut planned = |standing| {
            let site = at(standing, &image);
            newcomer.replan(&site, now);
            staged.replan(&site, now);
            let action = newcomer.plan.clone().unwrap().action;
            (action, staged.plan.clone().unwrap().deliver)
        };
        for held in [Standing::LastGood, Standing::Unknown] {
            assert_eq!(planned(held), (None, false), "{held:?}");
        }
        assert_eq!(
            planned(Standing::Current),
            (Some(Action::Register), true),
            "or this test shows nothing"
        );
    }

    #[test]
    fn of_a_server_that_goes_back_and_forth_the_last_states_are_kept() {
        let image = NodeImage::default();
        let site = at(Standing::Current, &image);
        let mut host = record(InstallPolicy::Blank);
        for second in 1..=200 {
            // As if it had been up in between.
            if let Some(plan) = &mut host.plan {
                plan.state = HostState::Running;
            }
            host.replan(&site, Duration::from_secs(second));
        }
        let history = host.status().history;
        assert_eq!(history.len(), HISTORY);
        assert!((history[HISTORY - 1].ended - 200.0).abs() < 0.1);
        assert!(
            history.windows(2).all(|two| two[0].ended <= two[1].started),
            "oldest first, none missing in between: {history:?}"
        );
    }
}
