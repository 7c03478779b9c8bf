//! Whether a cluster's authorities can be rotated, and which node is next: pure.

use firstlight_api::{
    authorities::AuthoritiesStep as Step,
    upgrade::{ClusterUpgradeSpec, NodeUpgrade},
};

use crate::{
    software::Server,
    upgrades::plan::{Known, NodeTold, check_cluster, in_order},
};

/// One node, and the last step that it took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    pub node: NodeUpgrade,
    pub server: Server,
    pub taken: Option<Step>,
}

/// `None`: no rotation has begun. Or a sentence that says why not, and what to do.
pub fn plan(
    spec: &ClusterUpgradeSpec,
    known: &Known,
    told: &[NodeTold],
    rotation: Option<&str>,
) -> Result<Vec<Planned>, String> {
    check_cluster(spec, known)?;
    if let Some(machine) = known
        .machines
        .iter()
        .find(|machine| machine.status.node_ref.is_none())
    {
        return Err(format!(
            "the machine {} has not joined yet: wait until it has, or delete it",
            machine.metadata.name
        ));
    }
    let taken = |node: &NodeTold| Step::marked(node.authorities.as_deref()?, rotation?);
    let is_done = |node: &NodeTold| taken(node) == Some(Step::Forget);
    // What has begun goes on when a node that was lost is Ready again.
    let nodes = in_order(known, told, is_done, rotation.is_none())?;
    let mark = |(node, server): (NodeUpgrade, Server)| {
        let of = told.iter().find(|one| one.name == node.name);
        Planned {
            taken: of.and_then(taken),
            node,
            server,
        }
    };
    Ok(nodes.into_iter().map(mark).collect())
}

/// Of all nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The step, the place of the node that takes it next, and whether no control plane has taken it yet. What a worker says of itself does not count: a
    /// kubelet can write its own annotations.
    Next(Step, usize, bool),
    Done,
}

impl Stage {
    pub fn of(nodes: &[Planned]) -> Self {
        for step in Step::ALL {
            let takes = |planned: &Planned| step != Step::Issue || planned.node.control_plane;
            let has = |planned: &Planned| planned.taken >= Some(step);
            let next = nodes.iter().position(|one| takes(one) && !has(one));
            if let Some(place) = next {
                let mut control_planes = nodes.iter().filter(|one| one.node.control_plane);
                return Self::Next(step, place, !control_planes.any(has));
            }
        }
        Self::Done
    }
}
