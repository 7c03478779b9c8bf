//! The site's own cluster: Cluster API objects out of `site.yaml`, and replica counts that follow the hosts.
//!
//! Objects are written once. After that they belong to whoever runs the cluster: `kubectl edit` stays, a new stick starts no
//! roll-out, a deleted cluster is not made again ([`marker`]). Only replica counts are kept up, and of these a count that a
//! person set stays until the wish itself changes ([`replicas`]).
//!
//! Must not: write anything itself. It plans ([`plan`], pure); `provider` looks and writes, for `machines` too, because both need one look at all.

mod addons;
pub mod certificates;
mod flannel;
pub mod marker;
pub mod node;
mod object;
mod render;
mod replicas;
mod stick;
#[cfg(test)]
mod tests;

use firstlight_api::{
    site::{ClusterChoice, ClusterConfig},
    status::Problem,
};

pub use render::render;
pub use stick::{Stick, load_stick};

use crate::capi::{
    Action, MARKER, NAMESPACE, Steps,
    world::{Key, World},
};

/// What to write, and what a person should know.
pub fn plan(world: &World, stick: Option<&Stick>) -> (Vec<Steps>, Vec<Problem>) {
    let mut plan: Vec<Steps> = Vec::new();
    let mut problems = Vec::new();
    let marker = marker::read(world);
    if let ClusterChoice::Generated(config) = &world.site.cluster {
        match (&marker, stick) {
            (_, None) => {}
            (marker::Marker::Absent | marker::Marker::Creating, Some(stick)) => {
                plan.push(create(world, config, stick));
            }
            (marker::Marker::Created(created), _) => {
                let cluster = &created.cluster;
                problems.extend(differences(world, config, created));
                let key = Key::new(NAMESPACE, cluster);
                if let Some(found) = world.clusters.get(&key) {
                    if !found.metadata.is_deleting() && found.spec.paused != Some(true) {
                        plan.extend(replicas::plan(world, config, cluster));
                        plan.extend(addons::plan(world, config, created));
                    }
                } else {
                    problems.push(Problem {
                        what: format!("the cluster {cluster} was deleted; it is not made again by itself"),
                        next: format!(
                            "to make it again: `kubectl delete configmap {MARKER}` on the box; to leave the servers alone: `cluster: none` in site.yaml"
                        ),
                    });
                }
            }
        }
    }
    plan.extend(marker::keep_spare(world));
    (plan, problems)
}

/// Everything in order, between two writes of the marker: after a cut in between it goes on where it was.
fn create(world: &World, config: &ClusterConfig, stick: &Stick) -> Steps {
    let site = &world.site;
    let counts = replicas::wanted(world, config, site.name.as_str());
    let mut steps = vec![Action::Put(marker::creating(site.name.as_str(), config))];
    steps.extend(
        render(site, config, stick, counts)
            .into_iter()
            .map(Action::Create),
    );
    steps.push(Action::Put(marker::created(&marker::Created {
        cluster: site.name.to_string(),
        addresses: marker::fixed(config),
        addons: Vec::new(),
        usual_addons: true,
    })));
    steps
}

/// What `site.yaml` says now and the running cluster cannot follow.
fn differences(
    world: &World,
    config: &ClusterConfig,
    created: &marker::Created,
) -> Option<Problem> {
    let (cluster, made) = (&created.cluster, &created.addresses);
    let name = world.site.name.as_str();
    let what = if name != *cluster {
        format!("site.yaml calls the site {name}; its cluster keeps the name {cluster}")
    } else if marker::fixed(config) != *made {
        format!(
            "site.yaml changed the cluster's addresses to {}; the running cluster keeps {made}",
            marker::fixed(config)
        )
    } else {
        return None;
    };
    Some(Problem {
        what,
        next: format!(
            "take the change back, or delete the cluster (`kubectl delete cluster {cluster}`, its servers are erased) and make it again"
        ),
    })
}
