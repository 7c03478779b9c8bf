//! The status of a Software out of those of its servers.

use firstlight_api::{
    object::{ConditionUpdate, merge_conditions},
    software::{
        APPROVED, APPROVED_ANNOTATION, Gate, NodeState, NodeStatus, PACKAGES_READY, Presence,
        Software, SoftwareState, SoftwareStatus,
    },
    status::SoftwareLine,
};

use super::{HOST_KEY_MISMATCH, LOST, NO_KEY, UNREACHABLE, failed, is_failed, is_in_line, most};

use crate::store::{Reference, Target};

/// Which packages of the box's store are to be there.
pub fn packages(all: &[Software]) -> Vec<Reference> {
    let wants = all
        .iter()
        .filter(|software| software.spec.state == Presence::Present);
    wants
        .flat_map(|software| {
            let packages = software.spec.packages.iter();
            packages.map(|package| Reference {
                by: format!("Software {}", software.metadata.name),
                to: Target::Version {
                    name: package.name.clone(),
                    version: package.version.clone(),
                },
            })
        })
        .collect()
}

pub fn status(software: &Software, nodes: Vec<NodeStatus>, now: &str) -> SoftwareStatus {
    let meta = &software.metadata;
    let ready = count(&nodes, |node| node.state == NodeState::Ready);
    let state = state(software, &nodes);
    let mut message = message(software, &nodes, state);
    let approved = approval(software, state);
    if state == SoftwareState::Ready {
        message.clone_from(&approved.message);
    }
    let packages = if state == SoftwareState::Ready {
        ConditionUpdate::yes(PACKAGES_READY, "Ready")
    } else {
        ConditionUpdate::no(PACKAGES_READY, state.as_str(), message.clone())
    };
    SoftwareStatus {
        state,
        message,
        ready: format!("{ready}/{}", nodes.len()),
        observed_generation: meta.generation,
        nodes,
        conditions: merge_conditions(
            &software.status.conditions,
            &[packages, approved],
            meta.generation,
            now,
        ),
    }
}

/// For the page.
pub fn line(software: &Software, status: &SoftwareStatus) -> SoftwareLine {
    SoftwareLine {
        name: software.metadata.name.clone(),
        state: status.state,
        ready: status.ready.clone(),
        message: status.message.clone(),
        nodes: status.nodes.clone(),
    }
}

fn count(nodes: &[NodeStatus], holds: impl Fn(&NodeStatus) -> bool) -> usize {
    nodes.iter().filter(|node| holds(node)).count()
}

fn state(software: &Software, nodes: &[NodeStatus]) -> SoftwareState {
    let any = |holds: fn(&NodeStatus) -> bool| nodes.iter().any(holds);
    if nodes.is_empty() {
        SoftwareState::Pending
    } else if nodes.iter().all(|node| node.state == NodeState::Ready) {
        SoftwareState::Ready
    } else if failed(nodes) >= most(software, nodes) && any(is_in_line) {
        SoftwareState::Stopped
    } else if any(|node| node.state == NodeState::Failed) {
        SoftwareState::Failed
    } else if any(|node| node.state.is_working() || is_in_line(node)) {
        SoftwareState::Installing
    } else {
        SoftwareState::Pending
    }
}

fn message(software: &Software, nodes: &[NodeStatus], state: SoftwareState) -> String {
    let bad: Vec<&NodeStatus> = nodes
        .iter()
        .filter(|node| node.state == NodeState::Failed)
        .collect();
    // What stops the others first.
    let first = bad.iter().find(|node| is_failed(node)).or(bad.first());
    if let Some(first) = first {
        let others: Vec<&str> = bad
            .iter()
            .filter(|node| node.name != first.name)
            .map(|node| node.name.as_str())
            .collect();
        let others = if others.is_empty() {
            String::new()
        } else {
            format!(" (and {})", others.join(", "))
        };
        let what = format!("{}{others}: {}; {}", first.name, first.message, next(first));
        return if state == SoftwareState::Stopped {
            let (failed, most) = (failed(nodes), most(software, nodes));
            format!(
                "{failed} of {} servers failed and maxUnavailable allows {most}, so no further one is touched: {what}",
                nodes.len()
            )
        } else {
            what
        };
    }
    let told = |node: &&NodeStatus| node.state != NodeState::Ready && !node.message.is_empty();
    let working = nodes
        .iter()
        .filter(|node| node.state.is_working())
        .find(told);
    match working.or_else(|| nodes.iter().find(told)) {
        _ if nodes.is_empty() => {
            let selector = software.spec.selector.to_string();
            let selector = if selector.is_empty() {
                "all"
            } else {
                &selector
            };
            format!(
                "no server that carries a system is selected ({selector}); label one, or change the selector"
            )
        }
        Some(node) if state != SoftwareState::Ready => format!("{}: {}", node.name, node.message),
        _ => String::new(),
    }
}

/// What a person can do about a failure.
fn next(node: &NodeStatus) -> &'static str {
    match node.reason.as_str() {
        UNREACHABLE => "switch it on, or look after its cable; the box tries again every 30 s",
        LOST => "look at its console; the box goes on with it when it answers again",
        HOST_KEY_MISMATCH => "the box stays away from it until then",
        NO_KEY => "install it again to let the box in",
        super::PACKAGE_FAILED => {
            "mend the package or change the version; the box tries this server again every 5 minutes"
        }
        _ => "the box tries again",
    }
}

/// Whether what depends on the packages may go on.
fn approval(software: &Software, state: SoftwareState) -> ConditionUpdate {
    let meta = &software.metadata;
    let generation = meta.generation.to_string();
    match software.spec.gate {
        _ if state != SoftwareState::Ready => {
            ConditionUpdate::no(APPROVED, "PackagesNotReady", "the packages are not ready")
        }
        Gate::Auto => ConditionUpdate::yes(APPROVED, "Auto"),
        Gate::Manual if meta.annotation(APPROVED_ANNOTATION) == Some(&generation) => {
            ConditionUpdate::yes(APPROVED, "ByPerson")
        }
        Gate::Manual => ConditionUpdate::no(
            APPROVED,
            "WaitsForPerson",
            format!(
                "all packages are there; when you are satisfied: kubectl annotate -n {} software {} --overwrite {APPROVED_ANNOTATION}={generation}",
                meta.namespace, meta.name
            ),
        ),
    }
}
