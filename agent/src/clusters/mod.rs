//! The site's clusters: Cluster API objects out of `site.yaml`, and replica counts that follow the hosts.
//!
//! Objects are written once. After that they belong to whoever runs the cluster: `kubectl edit` stays, a new stick starts no
//! roll-out, a deleted cluster is not made again ([`marker`]). Only replica counts are kept up, and of these a count that a
//! person set stays until the wish itself changes ([`replicas`]).
//!
//! Must not: write anything itself. It plans ([`plan`], pure); `provider` looks and writes, for `machines` too, because both need one look at all.

mod addons;
pub mod certificates;
mod flannel;
mod heal;
pub mod marker;
pub mod node;
mod object;
mod render;
mod replicas;
mod stick;
#[cfg(test)]
mod tests;

use firstlight_api::{site::ClusterConfig, status::Problem};

pub use render::render;
pub use stick::{Stick, load_stick};

use marker::{Created, Marker};

use crate::capi::{
    Action, MARKER, NAMESPACE, Steps,
    world::{Key, World},
};

/// What to write, and what a person should know.
pub fn plan(world: &World, stick: Option<&Stick>) -> (Vec<Steps>, Vec<Problem>) {
    let mut plan: Vec<Steps> = Vec::new();
    let mut problems = Vec::new();
    for (name, config) in world.site.generated_clusters() {
        let marker = marker::name(&world.site, name);
        match (marker::read(world, &marker), stick) {
            (_, None) => {}
            (Marker::Absent | Marker::Creating, Some(stick)) => {
                plan.push(create(world, name, config, stick));
            }
            (Marker::Created(created), _) => {
                problems.extend(differences(name, config, &created));
                keep(world, config, &created, &marker, &mut plan, &mut problems);
            }
        }
    }
    plan.extend(marker::keep_spare(world));
    (plan, problems)
}

/// A cluster that was made once.
fn keep(
    world: &World,
    config: &ClusterConfig,
    created: &Created,
    marker: &str,
    plan: &mut Vec<Steps>,
    problems: &mut Vec<Problem>,
) {
    let cluster = &created.cluster;
    let Some(found) = world.clusters.get(&Key::new(NAMESPACE, cluster)) else {
        let elsewhere = if marker == MARKER {
            "to leave the servers alone: `cluster: none` in site.yaml"
        } else {
            "or take it out of `clusters` in site.yaml"
        };
        problems.push(Problem {
            what: format!("the cluster {cluster} was deleted; it is not made again by itself"),
            next: format!(
                "to make it again: `kubectl delete configmap {marker}` on the box; {elsewhere}"
            ),
        });
        return;
    };
    if !found.metadata.is_deleting() && found.spec.paused != Some(true) {
        plan.extend(replicas::plan(world, config, cluster));
        let mut next = created.clone();
        let mut steps = addons::plan(world, config, marker, &mut next);
        steps.extend(addons::follow(config, marker, &mut next));
        steps.extend(heal::plan(config, &mut next));
        if next != *created {
            steps.push(Action::Put(marker::created(marker, &next)));
            plan.push(steps);
        }
    }
}

/// Everything in order, between two writes of the marker: after a cut in between it goes on where it was.
fn create(world: &World, name: &str, config: &ClusterConfig, stick: &Stick) -> Steps {
    let site = &world.site;
    let marker = marker::name(site, name);
    let counts = replicas::wanted(world, config, name);
    let mut steps = vec![Action::Put(marker::creating(&marker, name, config))];
    let key = Key::new(NAMESPACE, name);
    if !world.clusters.contains_key(&key) {
        steps.push(Action::ForgetKeys(key.clone()));
    }
    steps.push(Action::CreateSecretsKey { cluster: key });
    let objects = render(site, name, config, stick, counts).into_iter();
    let heal = heal::objects(name, config.heal);
    steps.extend(objects.chain(heal).map(Action::Create));
    let created = Created {
        cluster: name.to_owned(),
        addresses: marker::fixed(config),
        addons: Vec::new(),
        usual_addons: true,
        services: marker::services(config),
        heal: config.heal,
    };
    steps.push(Action::Put(marker::created(&marker, &created)));
    steps
}

/// What `site.yaml` says now and the running cluster cannot follow.
fn differences(name: &str, config: &ClusterConfig, created: &Created) -> Option<Problem> {
    let (cluster, made) = (&created.cluster, &created.addresses);
    let what = if name != *cluster {
        format!("site.yaml calls the site {name}; its cluster keeps the name {cluster}")
    } else if marker::fixed(config) != *made {
        format!(
            "site.yaml changed the addresses of the cluster {cluster} to {}; the running cluster keeps {made}",
            marker::fixed(config)
        )
    } else {
        return heal::difference(config, created);
    };
    Some(Problem {
        what,
        next: format!(
            "take the change back, or delete the cluster (`kubectl delete cluster {cluster}`, its servers are erased) and make it again"
        ),
    })
}
