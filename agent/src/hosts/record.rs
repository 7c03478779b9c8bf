//! What the controller remembers of one host between two looks. Everything here may be lost at any time.

use std::{collections::BTreeMap, net::Ipv4Addr, time::Duration};

use firstlight_api::{
    bmh::BareMetalHost,
    report::{LookupState, Phase, Progress, Report},
    site::{self, InstallPolicy},
    status::{HardwareSummary, HostEvent, HostState, HostStatus, Problem},
};
use firstlight_ironic::{Node, ProvisionState};
use firstlight_netboot::{BootTarget, MacAddr};

use super::{
    image::NodeImage,
    plan::{Action, Ironic, Observed, Plan},
};

/// Uptime with what arrived then.
type Seen<T> = (T, Duration);

#[derive(Clone, Debug)]
pub struct Record {
    pub mac: MacAddr,
    pub name: String,
    pub policy: InstallPolicy,
    pub address: Option<Ipv4Addr>,
    pub report: Option<Seen<Report>>,
    phase: Option<(String, Phase)>,
    /// Its ramdisk has ended since the report.
    left: bool,
    pub node: Option<Node>,
    pub node_since: Duration,
    pub object: Option<BareMetalHost>,
    /// When SSH was tried last, and when it answered last.
    pub ssh_tried: Option<Duration>,
    pub ssh_answered: Option<Duration>,
    token_wiped: Option<Duration>,
    inspections: u32,
    gave_up: Option<String>,
    /// An action is under way.
    acting: bool,
    not_before: Duration,
    /// When the last action ended, and whether Ironic has been read since.
    pub acted: Duration,
    pub outdated: bool,
    /// Ironic's answer to the last action, if it was no.
    refused: Option<Problem>,
    pub plan: Option<Plan>,
    since: Duration,
    history: Vec<HostEvent>,
}

/// A ramdisk that reports a lost token within this time after Ironic was made to forget it has not asked since.
const TOKEN_SETTLES: Duration = Duration::from_secs(5);
/// After this without an answer an installed host does not count as running any more.
const SSH_GONE: Duration = Duration::from_mins(2);

impl Record {
    pub fn new(mac: MacAddr, name: String, now: Duration) -> Self {
        Self {
            mac,
            name,
            policy: InstallPolicy::Never,
            address: None,
            report: None,
            phase: None,
            left: false,
            node: None,
            node_since: now,
            object: None,
            ssh_tried: None,
            ssh_answered: None,
            token_wiped: None,
            inspections: 0,
            gave_up: None,
            acting: false,
            not_before: Duration::ZERO,
            acted: Duration::ZERO,
            outdated: false,
            refused: None,
            plan: None,
            since: now,
            history: Vec::new(),
        }
    }

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
        self.left = false;
        // Its firmware ran again: what answered before does not any more.
        self.ssh_answered = None;
        self.report = Some((report, now));
    }

    pub fn progressed(&mut self, progress: Progress, now: Duration) {
        // It is a sign of life as good as a report.
        if let Some((report, at)) = &mut self.report
            && report.boot_id == progress.boot_id
        {
            *at = now;
        }
        self.phase = Some((progress.boot_id, progress.phase));
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
            (self.inspections, self.gave_up) = (0, None);
        }
        self.node = node;
    }

    /// Decides anew and notes what changed.
    pub fn replan(
        &mut self,
        image: Result<&NodeImage, &Problem>,
        ironic_known: bool,
        now: Duration,
    ) {
        let plan = super::plan::plan(&self.observed(image, ironic_known, now));
        let before = self
            .plan
            .as_ref()
            .map_or(HostState::Discovered, |plan| plan.state);
        if plan.state != before {
            tracing::info!(host = self.name, mac = %self.mac, state = ?plan.state, step = plan.step, "host changed its state");
            let (started, ended) = (self.since.as_secs_f64(), now.as_secs_f64());
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

    fn observed<'a>(
        &'a self,
        image: Result<&'a NodeImage, &'a Problem>,
        ironic_known: bool,
        now: Duration,
    ) -> Observed<'a> {
        let installed = |object: &BareMetalHost| {
            use firstlight_api::bmh::ProvisioningState;
            object
                .status
                .as_ref()
                .is_some_and(|status| status.provisioning.state == ProvisioningState::Provisioned)
        };
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
                None if ironic_known => Ironic::Absent,
                None => Ironic::Unknown,
            },
            node_since: self.node_since,
            object_says_installed: self.object.as_ref().is_some_and(installed),
            ssh_answers: self
                .ssh_answered
                .is_some_and(|at| now.saturating_sub(at) < SSH_GONE),
            image,
            inspections: self.inspections,
            gave_up: self.gave_up.as_deref(),
        }
    }

    /// The next action, if it may be begun now.
    pub fn due(&self, now: Duration) -> Option<Action> {
        let action = self.plan.as_ref()?.action.clone()?;
        (!self.acting && !self.outdated && now >= self.not_before).then_some(action)
    }

    pub fn begun(&mut self, action: &Action) {
        self.acting = true;
        match action {
            Action::Inspect => self.inspections += 1,
            Action::Deploy { .. } => self.gave_up = None,
            Action::Manage if self.gave_up.is_some() => {
                (self.inspections, self.gave_up) = (0, None);
            }
            _ => {}
        }
    }

    /// Ironic accepted it. What the ramdisk said of its token before may be wrong now.
    pub fn accepted(&mut self, action: &Action, now: Duration) {
        (self.acting, self.refused) = (false, None);
        if !matches!(
            action,
            Action::Inspect | Action::ForgetToken | Action::Release | Action::Abort
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
            state: plan.map(|plan| plan.state).unwrap_or_default(),
            step: plan.map(|plan| plan.step.clone()).unwrap_or_default(),
            percent: plan.and_then(|plan| plan.percent),
            since: self.since.as_secs_f64(),
            problem: plan
                .and_then(|plan| plan.problem.clone())
                .or_else(|| self.refused.clone()),
            hardware: self
                .report
                .as_ref()
                .map(|(report, _)| summary(&report.inventory)),
            history: self.history.clone(),
        }
    }

    pub fn boot_target(&self) -> BootTarget {
        self.plan
            .as_ref()
            .map_or(BootTarget::Ramdisk, |plan| plan.boot.clone())
    }
}

fn summary(inventory: &serde_json::Value) -> HardwareSummary {
    let details = firstlight_api::bmh::HardwareDetails::from_inventory(inventory);
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
        boot_mode: inventory["boot"]["current_boot_mode"]
            .as_str()
            .unwrap_or_default()
            .to_owned(),
    }
}

/// All hosts, by the NIC that they boot from.
pub type Records = BTreeMap<MacAddr, Record>;

pub fn site_mac(mac: MacAddr) -> site::MacAddr {
    site::MacAddr(mac.octets())
}
