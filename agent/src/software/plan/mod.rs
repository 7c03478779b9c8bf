//! What a Software's servers have come to, which of them is worked on next, and what is said of it all: pure.

mod say;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use firstlight_api::{
    packages::{PackageReport, Report},
    software::{
        NodeState, NodeStatus, PackageState, PackageStatus, Reboot, Software, SoftwareStatus,
    },
};

use super::servers::{Server, wish};

pub use say::{line, packages, status};

/// Logins that may be under way for one Software; each is a process on the box.
const MOST_AT_ONCE: usize = 64;

/// Why a server is not ready, as one word. [`is_failed`] knows those that make it one of `maxUnavailable`.
pub const PACKAGE_FAILED: &str = "PackageFailed";
pub const UNREACHABLE: &str = "Unreachable";
/// It went while it was worked on.
pub const LOST: &str = "Lost";
pub const HOST_KEY_MISMATCH: &str = "HostKeyMismatch";
pub const NO_KEY: &str = "NoKey";
pub const REFUSED: &str = "Refused";
pub const COMMAND_FAILED: &str = "CommandFailed";
const CONFLICT: &str = "Conflict";
const TURN: &str = "Turn";
const STOPPED: &str = "Stopped";
const RESTART_NEEDED: &str = "RestartNeeded";

/// Why a server could not be worked on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobError {
    pub reason: &'static str,
    pub message: String,
}

/// Something that is done to one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Job {
    /// What is there? Changes nothing, so it waits for nobody.
    Look,
    /// Everything that it takes, to the uncordoned node.
    Apply,
    /// It is not selected any more: what was cordoned for a restart is uncordoned.
    Release,
}

/// What a job tells while it runs and when it ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    Doing(NodeState, String),
    /// The packages as they are, while something else is still to be done.
    Has(Vec<PackageReport>),
    Looked(Result<Report, JobError>),
    Applied(Result<Report, JobError>),
    Released,
}

impl News {
    pub fn is_end(&self) -> bool {
        !matches!(self, Self::Doing(..) | Self::Has(_))
    }
}

/// The servers as they are known now. `busy` have a job of this Software.
pub fn refresh(
    software: &Software,
    servers: &[Server],
    conflicts: &BTreeMap<String, String>,
    busy: &BTreeSet<String>,
    old: &SoftwareStatus,
    now: &str,
) -> Vec<NodeStatus> {
    let deleting = software.metadata.is_deleting();
    let mut nodes: Vec<NodeStatus> = Vec::new();
    for server in servers.iter().filter(|_| !deleting) {
        let before = old.nodes.iter().find(|node| node.name == server.name);
        let mut node = before.cloned().unwrap_or_default();
        node.name.clone_from(&server.name);
        node.cluster.clone_from(&server.cluster);
        node.node.clone_from(&server.node);
        if !busy.contains(&server.name) {
            settle(
                &mut node,
                software,
                server,
                conflicts.get(&server.name),
                now,
            );
        }
        nodes.push(node);
    }
    let known: BTreeSet<&str> = servers.iter().map(|server| server.name.as_str()).collect();
    // Nobody else would uncordon them.
    let left = old.nodes.iter().filter(|node| {
        let held = matches!(node.state, NodeState::Draining | NodeState::Restarting)
            || node.reason == LOST;
        (deleting || !known.contains(node.name.as_str())) && (held || busy.contains(&node.name))
    });
    nodes.extend(left.cloned());
    nodes.sort_by(|a, b| a.name.cmp(&b.name));
    let stopped = failed(&nodes) >= most(software, &nodes);
    for node in nodes.iter_mut().filter(|node| is_in_line(node)) {
        let (reason, message) = if stopped {
            (STOPPED, "the roll-out has stopped before it")
        } else {
            (TURN, "it waits for its turn")
        };
        enter(node, NodeState::Waiting, reason, message, now);
    }
    nodes
}

/// What changed around a server that nobody works on.
fn settle(
    node: &mut NodeStatus,
    software: &Software,
    server: &Server,
    conflict: Option<&String>,
    now: &str,
) {
    let wish = wish(software, server);
    if node.wish != wish {
        node.wish = wish;
        node.packages = software
            .spec
            .packages
            .iter()
            .map(|package| PackageStatus {
                name: package.name.clone(),
                wanted: software.spec.state.of(package).to_owned(),
                since: now.to_owned(),
                ..PackageStatus::default()
            })
            .collect();
        if !node.state.is_working() {
            node.since = String::new();
            enter(node, NodeState::Waiting, "", "", now);
        }
    }
    if let Some(why) = conflict {
        enter(node, NodeState::Failed, CONFLICT, why, now);
    } else if node.reason == CONFLICT {
        enter(node, NodeState::Waiting, "", "", now);
    }
    if node.state == NodeState::Waiting {
        match server.waits() {
            Some((reason, message)) => enter(node, NodeState::Waiting, reason, message, now),
            None if !is_in_line(node) => enter(node, NodeState::Waiting, "", "", now),
            None => {}
        }
    }
}

/// A state keeps its time until it becomes another one.
fn enter(node: &mut NodeStatus, state: NodeState, reason: &str, message: &str, now: &str) {
    if node.state != state || node.since.is_empty() {
        now.clone_into(&mut node.since);
    }
    node.state = state;
    reason.clone_into(&mut node.reason);
    message.clone_into(&mut node.message);
}

/// It was looked at, something is to be done, and it can be.
fn is_in_line(node: &NodeStatus) -> bool {
    node.state == NodeState::Waiting
        && ["", TURN, STOPPED].contains(&node.reason.as_str())
        && !node.packages.is_empty()
        && node.packages.iter().all(|package| !package.have.is_empty())
}

/// A server that broke under our hands, in contrast to one that was not there in the first place.
fn is_failed(node: &NodeStatus) -> bool {
    node.state == NodeState::Failed
        && [PACKAGE_FAILED, LOST, COMMAND_FAILED].contains(&node.reason.as_str())
}

fn failed(nodes: &[NodeStatus]) -> usize {
    nodes.iter().filter(|node| is_failed(node)).count()
}

fn most(software: &Software, nodes: &[NodeStatus]) -> usize {
    software.spec.max_unavailable.of(nodes.len())
}

/// Before a server in this state is looked at, or tried, again.
pub fn again(node: &NodeStatus) -> Duration {
    match node.state {
        // Somebody may have changed it by hand.
        NodeState::Ready => Duration::from_mins(30),
        NodeState::Failed if [PACKAGE_FAILED, COMMAND_FAILED].contains(&node.reason.as_str()) => {
            Duration::from_mins(5)
        }
        NodeState::Failed => Duration::from_secs(30),
        _ => Duration::ZERO,
    }
}

/// What to begin now. `busy` servers have a job, of whichever Software; `due` is a server whose [`again`] is over.
pub fn jobs(
    software: &Software,
    servers: &[Server],
    nodes: &[NodeStatus],
    busy: &BTreeSet<String>,
    due: impl Fn(&NodeStatus) -> bool,
) -> Vec<(String, Job)> {
    let selected = |node: &NodeStatus| {
        let found = servers.iter().find(|server| server.name == node.name);
        found.filter(|_| !software.metadata.is_deleting())
    };
    let working = nodes.iter().filter(|node| node.state.is_working()).count();
    let mut room = most(software, nodes).saturating_sub(failed(nodes) + working);
    // Two control planes that restart at the same time can cost a cluster its etcd.
    let restarts = software.spec.reboot == Reboot::IfNeeded;
    let mut taken: BTreeSet<&str> = nodes
        .iter()
        .filter(|node| node.state.is_working() || is_failed(node))
        .filter_map(|node| selected(node).filter(|server| server.control_plane))
        .map(|server| server.cluster.as_str())
        .collect();
    let mut jobs = Vec::new();
    for node in nodes {
        if busy.contains(&node.name) || jobs.len() + busy.len() >= MOST_AT_ONCE {
            continue;
        }
        let Some(server) = selected(node) else {
            jobs.push((node.name.clone(), Job::Release));
            continue;
        };
        let job = match node.state {
            _ if server.waits().is_some() || node.reason == CONFLICT => None,
            // The box was switched off in the middle of it.
            state if state.is_working() => Some(Job::Apply),
            NodeState::Waiting if is_in_line(node) => {
                let is_free =
                    !restarts || !server.control_plane || !taken.contains(server.cluster.as_str());
                (room > 0 && is_free).then(|| {
                    room -= 1;
                    if server.control_plane {
                        taken.insert(&server.cluster);
                    }
                    Job::Apply
                })
            }
            NodeState::Waiting => Some(Job::Look),
            _ if !due(node) => None,
            _ if is_failed(node) => Some(Job::Apply),
            _ => Some(Job::Look),
        };
        jobs.extend(job.map(|job| (node.name.clone(), job)));
    }
    jobs
}

/// What a job told.
pub fn note(software: &Software, node: &mut NodeStatus, news: &News, now: &str) {
    match news {
        News::Doing(state, message) => enter(node, *state, "", message, now),
        News::Has(packages) => take_packages(node, packages, now),
        News::Released => enter(node, NodeState::Ready, "", "", now),
        News::Looked(Err(failure)) | News::Applied(Err(failure)) => {
            // Tried again and still not there: it is what it was.
            let lost = failure.reason == UNREACHABLE && matches!(news, News::Applied(_));
            let reason = if lost { LOST } else { failure.reason };
            enter(node, NodeState::Failed, reason, &failure.message, now);
        }
        News::Looked(Ok(report)) | News::Applied(Ok(report)) => {
            take_packages(node, &report.packages, now);
            conclude(software, node, report, now);
        }
    }
}

fn conclude(software: &Software, node: &mut NodeStatus, report: &Report, now: &str) {
    let not_ready = node
        .packages
        .iter()
        .find(|package| package.state != PackageState::Ready);
    match not_ready {
        Some(package) if package.state == PackageState::Failed => {
            let message = format!("{} {}: {}", package.name, package.wanted, package.reason);
            enter(node, NodeState::Failed, PACKAGE_FAILED, &message, now);
        }
        None if !report.reboot_needed => enter(node, NodeState::Ready, "", "", now),
        None if software.spec.reboot == Reboot::Never => {
            let message = "what was installed counts only after a restart, which `reboot: never` leaves to you";
            enter(node, NodeState::Ready, RESTART_NEEDED, message, now);
        }
        // Once is enough: the next look would restart it again, and again.
        None if node.state == NodeState::Restarting || node.reason == RESTART_NEEDED => {
            let message = "it was restarted, and still says that it needs a restart";
            enter(node, NodeState::Ready, RESTART_NEEDED, message, now);
        }
        // Something is to be done, or only the restart.
        _ => enter(node, NodeState::Waiting, "", "", now),
    }
}

fn take_packages(node: &mut NodeStatus, reports: &[PackageReport], now: &str) {
    let packages = reports.iter().map(|report| {
        let before = node.packages.iter().find(|old| old.name == report.name);
        let same = before.filter(|old| {
            old.state == report.state && old.have == report.have && !old.since.is_empty()
        });
        PackageStatus {
            name: report.name.clone(),
            wanted: report.wanted.clone(),
            have: report.have.clone(),
            state: report.state,
            reason: report.reason.clone(),
            since: same.map_or_else(|| now.to_owned(), |old| old.since.clone()),
        }
    });
    node.packages = packages.collect();
}
