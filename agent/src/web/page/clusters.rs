//! Workload clusters: what each lacks, which server each machine is on, and what runs there besides Kubernetes.

use firstlight_api::{
    addon::AddonState,
    status::{AddonLine, ClusterMachine, ClusterStatus, UpgradeLine},
    upgrade::UpgradeState,
};
use maud::{Markup, html};
use time::OffsetDateTime;

use super::{
    View,
    parts::{Tone, host_link, line, nothing_yet, pill},
};

pub fn render(view: View<'_>) -> Markup {
    html! {
        @if view.site.clusters.is_empty() {
            (nothing_yet("Clusters", "There is no cluster.", &html! {
                "One is made of the first servers that are installed, unless site.yaml says otherwise."
            }))
        }
        @for cluster in &view.site.clusters { (one(view, cluster)) }
    }
}

fn one(view: View<'_>, cluster: &ClusterStatus) -> Markup {
    let whole = cluster.control_planes_ready >= cluster.control_planes_wanted
        && cluster.workers_ready >= cluster.workers_wanted
        && cluster.control_planes_wanted > 0;
    let (tone, word) = match cluster.phase.as_str() {
        "Deleting" => (Tone::Busy, "deleting"),
        "Failed" => (Tone::Bad, "failed"),
        _ if whole => (Tone::Good, "ready"),
        _ => (Tone::Busy, "coming up"),
    };
    let site = view.site;
    let upgrades = site.upgrades.iter().filter(|it| it.cluster == cluster.name);
    let addons = site.addons.iter().filter(|it| it.cluster == cluster.name);
    let addons: Vec<_> = addons.collect();
    let end = site
        .certificates
        .iter()
        .find(|it| it.cluster == cluster.name);
    html! {
        section.card id=(cluster.name) {
            div.host-head {
                h2.name { (cluster.name) }
                span.dim { "Kubernetes " (cluster.version) " " (cluster.endpoint) }
                (pill(tone, word))
            }
            p {
                (cluster.control_planes_ready) " of " (cluster.control_planes_wanted) " control planes and "
                (cluster.workers_ready) " of " (cluster.workers_wanted) " workers are ready."
            }
            @if !whole && !cluster.message.is_empty() { p.dim { (cluster.message) } }
            @for one in upgrades { (upgrade(one)) }
            @if !cluster.machines.is_empty() {
                h3 { "Machines" }
                ol.steps { @for one in &cluster.machines { (machine(one)) } }
            }
            @if !addons.is_empty() {
                h3 { "Addons" }
                ol.steps { @for one in addons { (addon(one)) } }
            }
            @if let Some(day) = end.and_then(|end| OffsetDateTime::from_unix_timestamp(end.end).ok()) {
                p.dim { "Its first certificate ends on " (day.date()) "; the box renews it before." }
            }
            details {
                summary { "Commands for this cluster" }
                pre { code { "firstlight kubeconfig " (cluster.name) } }
                pre { code { "firstlight upgrade " (cluster.name) " VERSION" } }
            }
        }
    }
}

fn upgrade(upgrade: &UpgradeLine) -> Markup {
    let tone = match upgrade.state {
        UpgradeState::Stopped | UpgradeState::Refused => Tone::Bad,
        UpgradeState::Done => Tone::Good,
        UpgradeState::Pending | UpgradeState::Paused | UpgradeState::Upgrading => Tone::Busy,
    };
    html! {
        p {
            "To " (upgrade.to) " " (pill(tone, upgrade.state.as_str())) " "
            span.dim { (upgrade.ready) " nodes" @if !upgrade.message.is_empty() { "; " (upgrade.message) } }
        }
    }
}

fn addon(addon: &AddonLine) -> Markup {
    let tone = match addon.state {
        AddonState::Ready => Tone::Good,
        AddonState::Failed => Tone::Bad,
        AddonState::Pending => Tone::Calm,
        AddonState::Installing | AddonState::Removing => Tone::Busy,
    };
    let name = html! { (addon.name) };
    line(
        tone,
        &name,
        &addon.chart,
        &addon.message,
        addon.state.as_str(),
    )
}

fn machine(machine: &ClusterMachine) -> Markup {
    let tone = match machine.phase.as_str() {
        "Failed" => Tone::Bad,
        "Running" if machine.message.is_empty() => Tone::Good,
        "Pending" => Tone::Calm,
        _ => Tone::Busy,
    };
    let title = html! {
        (if machine.control_plane { "control plane" } else { "worker" }) " on "
        @if machine.host.is_empty() { "no server yet" } @else { (host_link(&machine.host)) }
    };
    line(
        tone,
        &title,
        &machine.name,
        &machine.message,
        &machine.phase,
    )
}
