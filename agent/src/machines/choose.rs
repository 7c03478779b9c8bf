//! Which host a machine gets. Pure.

use std::{cmp::Reverse, collections::BTreeSet};

use firstlight_api::{
    bmh::ProvisioningState,
    capm3::{self, HostSelector, MachineImage},
    site::HostRole,
};

use crate::capi::world::{Host, HostExt, Key, World, is_left_alone};

/// What a machine asks of its host.
#[derive(Clone, Debug)]
pub struct HostRequest<'a> {
    pub namespace: &'a str,
    pub cluster: &'a str,
    pub control_plane: bool,
    pub selector: Option<&'a HostSelector>,
    /// Preferred, not demanded.
    pub failure_domain: Option<&'a str>,
    /// The control plane or deployment that the machine belongs to.
    pub owner: Option<&'a str>,
    pub image: Option<&'a MachineImage>,
    /// That its cluster is on, where it is not the provisioning network.
    pub network: Option<&'a str>,
}

/// Why a host is not free for a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Unfit {
    OtherLabels,
    OtherCluster,
    OtherRole,
    Spare,
    InUse,
    /// For the next machine of this owner.
    Kept(String),
    LeftAlone,
    Failed,
    /// Nothing shows that it may have the keys of a cluster.
    Untrusted,
    NotReady,
    /// Its NICs do not carry the network that the cluster is on.
    OtherNetwork,
}

/// The best free host, or a sentence that says why there is none. `taken` was claimed by the same plan.
pub fn choose<'a>(
    world: &'a World,
    request: &HostRequest,
    taken: &BTreeSet<Key>,
) -> Result<&'a Host, String> {
    let mut free = Vec::new();
    let mut unfit = Vec::new();
    let hosts = world
        .hosts
        .values()
        .filter(|host| host.metadata.namespace == request.namespace);
    for host in hosts {
        match judge(world, request, host, taken) {
            Ok(()) => free.push(host),
            Err(why) => unfit.push((host, why)),
        }
    }
    let is_kept_for_us = |host: &Host| {
        request.owner.is_some() && host.metadata.label(capm3::NODE_REUSE_LABEL) == request.owner
    };
    let kept_but_busy = unfit
        .iter()
        .find(|(host, why)| *why == Unfit::NotReady && is_kept_for_us(host));
    if let Some((host, _)) = kept_but_busy
        && !free.iter().any(|host| is_kept_for_us(host))
    {
        return Err(format!(
            "waiting for the host {}, which is kept for this machine, to become available",
            host.metadata.name
        ));
    }
    // The last key makes the choice the same each time.
    let best = free.into_iter().max_by_key(|host| {
        (
            is_kept_for_us(host),
            world.role(host) != HostRole::Any,
            request.failure_domain.is_some()
                && host.metadata.label(capm3::FAILURE_DOMAIN_LABEL) == request.failure_domain,
            request.image.is_some_and(|image| carries(host, image)),
            Reverse(&host.metadata.name),
        )
    });
    best.ok_or_else(|| explain(world, request, &unfit))
}

/// The image is on its disk already.
fn carries(host: &Host, image: &MachineImage) -> bool {
    let staged = host.status.provisioning.image.as_ref();
    staged.is_some_and(|staged| !staged.checksum.is_empty() && staged.checksum == image.checksum)
}

fn judge(
    world: &World,
    request: &HostRequest,
    host: &Host,
    taken: &BTreeSet<Key>,
) -> Result<(), Unfit> {
    let meta = &host.metadata;
    if request
        .selector
        .is_some_and(|selector| !selector.matches(&meta.labels))
    {
        return Err(Unfit::OtherLabels);
    }
    if !world.is_for(host, request.cluster) {
        return Err(Unfit::OtherCluster);
    }
    match world.role(host) {
        HostRole::Any => {}
        HostRole::ControlPlane if request.control_plane => {}
        HostRole::Worker if !request.control_plane => {}
        HostRole::Spare => return Err(Unfit::Spare),
        HostRole::ControlPlane | HostRole::Worker => return Err(Unfit::OtherRole),
    }
    if request.control_plane && !world.is_trusted(host) {
        return Err(Unfit::Untrusted);
    }
    if host.spec.consumer_ref.is_some()
        || taken.contains(&Key::of(meta))
        || host.spec.wants_system()
        || host.spec.externally_provisioned
    {
        return Err(Unfit::InUse);
    }
    if let Some(owner) = meta.label(capm3::NODE_REUSE_LABEL)
        && Some(owner) != request.owner
        && world.lacks_hosts(request.namespace, owner)
    {
        return Err(Unfit::Kept(owner.to_owned()));
    }
    if meta.is_deleting() || is_left_alone(host) {
        return Err(Unfit::LeftAlone);
    }
    if !host.status.error_message.is_empty() {
        return Err(Unfit::Failed);
    }
    let carries = |network| world.carries(host, network);
    if !request.network.is_none_or(carries) {
        return Err(Unfit::OtherNetwork);
    }
    match host.state() {
        ProvisioningState::Available | ProvisioningState::Ready => Ok(()),
        _ => Err(Unfit::NotReady),
    }
}

fn explain(world: &World, request: &HostRequest, unfit: &[(&Host, Unfit)]) -> String {
    if let Some(other) = world.hosts.values().next().filter(|_| unfit.is_empty()) {
        return format!(
            "no matching free host: a machine takes hosts of its own namespace, and {} has none; {} are in others, like {} in {}; make \
             the cluster there, or the BareMetalHost objects here",
            request.namespace,
            world.hosts.len(),
            other.metadata.name,
            other.metadata.namespace
        );
    }
    if unfit.is_empty() {
        return "no matching free host: no server has reported yet; switch one on with network boot"
            .to_owned();
    }
    let of = |is: fn(&Unfit) -> bool| unfit.iter().filter(|(_, why)| is(why)).count();
    let others = of(|why| *why == Unfit::OtherLabels);
    if let Some(selector) = request.selector.filter(|_| others == unfit.len()) {
        return format!(
            "no matching free host: hostSelector ({selector}) matches none of the {} hosts; label one, or change the selector",
            unfit.len()
        );
    }
    let mut parts = Vec::new();
    let mut say = |count: usize, what: &str| {
        if count > 0 {
            parts.push(format!("{count} {what}"));
        }
    };
    say(of(|why| *why == Unfit::InUse), "in use");
    say(others, "without the labels asked for");
    say(
        of(|why| *why == Unfit::OtherCluster),
        "for another cluster (`kubectl label bmh NAME firstlight.internal/cluster=CLUSTER`)",
    );
    say(of(|why| *why == Unfit::OtherRole), "with another role");
    say(
        of(|why| *why == Unfit::Spare),
        "spare (`firstlight hosts unspare NAME`, or another role)",
    );
    say(
        of(|why| matches!(why, Unfit::Kept(_))),
        "kept for a machine that is being replaced",
    );
    say(
        of(|why| *why == Unfit::LeftAlone),
        "set aside or being deleted",
    );
    say(
        of(|why| *why == Unfit::Untrusted),
        "not trusted with a cluster's keys (its condition Trusted says why; read the code on its screen and run `kubectl \
         annotate --overwrite bmh NAME firstlight.internal/approve=CODE`)",
    );
    say(
        of(|why| *why == Unfit::OtherNetwork),
        "without the cluster's network (no `links` of site.yaml give it to them)",
    );
    say(of(|why| *why == Unfit::Failed), "failed");
    say(of(|why| *why == Unfit::NotReady), "not available yet");
    format!(
        "no matching free host among {}: {}; add a server, or free one",
        unfit.len(),
        parts.join(", ")
    )
}

#[cfg(test)]
#[path = "choose/tests.rs"]
mod tests;
