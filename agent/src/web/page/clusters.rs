//! Workload clusters on the page: what each lacks, and which server each machine is on.

use std::fmt::{self, Write as _};

use firstlight_api::{
    addon::AddonState,
    status::{AddonLine, ClusterMachine, ClusterStatus, SiteStatus, UpgradeLine},
    upgrade::UpgradeState,
};

use super::Text;

pub fn write(out: &mut String, site: &SiteStatus) -> fmt::Result {
    site.clusters
        .iter()
        .try_for_each(|cluster| write_cluster(out, cluster, site))
}

fn write_cluster(out: &mut String, cluster: &ClusterStatus, site: &SiteStatus) -> fmt::Result {
    let whole = cluster.control_planes_ready >= cluster.control_planes_wanted
        && cluster.workers_ready >= cluster.workers_wanted
        && cluster.control_planes_wanted > 0;
    let (class, word) = match cluster.phase.as_str() {
        "Deleting" => ("busy", "deleting"),
        "Failed" => ("bad", "failed"),
        _ if whole => ("good", "ready"),
        _ => ("busy", "coming up"),
    };
    writeln!(
        out,
        "<section class=\"card\"><h2>Cluster</h2>\n<div class=\"host-head\"><h3>{}</h3><span class=\"dim\">Kubernetes {} {}</span>\
         <span class=\"pill {class}\">{word}</span></div>",
        Text(&cluster.name),
        Text(&cluster.version),
        Text(&cluster.endpoint),
    )?;
    writeln!(
        out,
        "<p>{} of {} control planes and {} of {} workers are ready.</p>",
        cluster.control_planes_ready,
        cluster.control_planes_wanted,
        cluster.workers_ready,
        cluster.workers_wanted
    )?;
    if !whole && !cluster.message.is_empty() {
        writeln!(out, "<p class=\"dim\">{}</p>", Text(&cluster.message))?;
    }
    let upgrades = site.upgrades.iter();
    for upgrade in upgrades.filter(|upgrade| upgrade.cluster == cluster.name) {
        write_upgrade(out, upgrade)?;
    }
    if !cluster.machines.is_empty() {
        out.write_str("<ol class=\"steps\">\n")?;
        cluster
            .machines
            .iter()
            .try_for_each(|machine| write_machine(out, machine))?;
        out.write_str("</ol>\n")?;
    }
    let here: Vec<_> = site
        .addons
        .iter()
        .filter(|addon| addon.cluster == cluster.name)
        .collect();
    if !here.is_empty() {
        out.write_str("<h3>Addons</h3>\n<ol class=\"steps\">\n")?;
        here.iter().try_for_each(|addon| write_addon(out, addon))?;
        out.write_str("</ol>\n")?;
    }
    out.write_str("</section>\n")
}

fn write_upgrade(out: &mut String, upgrade: &UpgradeLine) -> fmt::Result {
    let class = match upgrade.state {
        UpgradeState::Stopped | UpgradeState::Refused => "bad",
        UpgradeState::Done => "good",
        UpgradeState::Pending | UpgradeState::Paused | UpgradeState::Upgrading => "busy",
    };
    write!(
        out,
        "<p>To {} <span class=\"pill {class}\">{}</span> <span class=\"dim\">{} nodes",
        Text(&upgrade.to),
        upgrade.state.as_str(),
        Text(&upgrade.ready)
    )?;
    if !upgrade.message.is_empty() {
        write!(out, "; {}", Text(&upgrade.message))?;
    }
    out.write_str("</span></p>\n")
}

fn write_addon(out: &mut String, addon: &AddonLine) -> fmt::Result {
    let (class, mark) = match addon.state {
        AddonState::Ready => ("good", "✓"),
        AddonState::Failed => ("bad", "✗"),
        AddonState::Pending => ("wait", "○"),
        AddonState::Installing | AddonState::Removing => ("busy", "●"),
    };
    write_line(
        out,
        (class, mark),
        &addon.name,
        &addon.chart,
        &addon.message,
        addon.state.as_str(),
    )
}

fn write_machine(out: &mut String, machine: &ClusterMachine) -> fmt::Result {
    let (class, mark) = match machine.phase.as_str() {
        "Failed" => ("bad", "✗"),
        "Running" if machine.message.is_empty() => ("good", "✓"),
        "Pending" => ("wait", "○"),
        _ => ("busy", "●"),
    };
    let role = if machine.control_plane {
        "control plane"
    } else {
        "worker"
    };
    let place = if machine.host.is_empty() {
        "no server yet"
    } else {
        &machine.host
    };
    let title = format!("{role} on {place}");
    write_line(
        out,
        (class, mark),
        &title,
        &machine.name,
        &machine.message,
        &machine.phase,
    )
}

fn write_line(
    out: &mut String,
    (class, mark): (&str, &str),
    title: &str,
    more: &str,
    message: &str,
    state: &str,
) -> fmt::Result {
    write!(
        out,
        "<li><span class=\"mark {class}\">{mark}</span><span>{} <span class=\"dim\">{}</span>",
        Text(title),
        Text(more)
    )?;
    if !message.is_empty() {
        write!(out, "<br><span class=\"dim\">{}</span>", Text(message))?;
    }
    writeln!(
        out,
        "</span><span class=\"time\">{}</span></li>",
        Text(state)
    )
}
