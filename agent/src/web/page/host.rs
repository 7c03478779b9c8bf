//! One server: what happens with it, what it has been through, what it is made of, and what may be asked of it.

use firstlight_api::status::{
    ClusterMachine, ClusterStatus, HardwareSummary, HostPower, HostStatus, MeasuredBootStatus,
    RootDiskState, TpmStatus,
};
use maud::{Markup, html};

use super::{
    View,
    hosts::problem_tone,
    parts::{Size, Tone, nothing_yet, pill, problem, since, wide},
    people, timeline,
};

/// In two namespaces there may be one of the same name each.
pub fn render(view: View<'_>, name: &str) -> Markup {
    let named = view.site.hosts.iter().filter(|host| host.name == name);
    let named: Vec<_> = named.collect();
    if named.is_empty() {
        return nothing_yet(
            name,
            "No server is called that.",
            &html! { "Perhaps it has another name by now: " a href="/hosts" { "all servers" } "." },
        );
    }
    html! { @for host in named { (one(view, host)) } }
}

fn one(view: View<'_>, host: &HostStatus) -> Markup {
    html! {
        section.card {
            div.host-head {
                h2.name { (host.name) }
                (pill(Tone::of_host(host.state), host.state.as_str()))
                @if host.control.spare { (pill(Tone::Calm, "spare")) }
            }
            p { (host.step) " for " (since(view, host.since)) }
            @if let Some(found) = &host.problem { (problem(found, problem_tone(host))) }
            p { a href={ "/logs?q=" (host.name) } { "What the logs say of it" } }
            (people::verbs(view, host))
        }
        (timeline::table(view, host))
        (facts(view, host))
        @if let Some(hardware) = &host.hardware { (disks(host, hardware)) (nics(hardware)) }
        (packages(view, host))
    }
}

fn facts(view: View<'_>, host: &HostStatus) -> Markup {
    let machine = machine_of(view, host);
    let control = &host.control;
    html! {
        section.card {
            h2 { "What it is" }
            dl {
                dt { "MAC address" } dd { code { (host.mac) } }
                @if !host.address.is_empty() { dt { "Address" } dd { code { (host.address) } } }
                dt { "Object" } dd { "BareMetalHost " code { (host.namespace) "/" (host.name) } }
                @if let Some((cluster, machine)) = machine {
                    dt { "Cluster" } dd { a href={ "/clusters#" (cluster.name) } { (cluster.name) } ", " (role(machine)) }
                    dt { "Machine" } dd { code { (machine.name) } " " span.dim { (machine.phase) } }
                    @if !machine.node.is_empty() { dt { "Node" } dd { code { (machine.node) } " " span.dim { (machine.version) } } }
                } @else if !control.cluster.is_empty() {
                    dt { "Cluster" } dd { "for " (control.cluster) }
                }
                @if !control.consumer.is_empty() { dt { "Claimed by" } dd { (control.consumer) } }
                @if !control.paused.is_empty() { dt { "Hands off" } dd { (control.paused) } }
                dt { "Power" } dd { (power(control.power)) }
                @if let Some(hardware) = &host.hardware { (machine_facts(hardware)) }
                @for line in [host.rule_line(), host.kexec_line()].iter().filter(|line| !line.is_empty()) {
                    dt { "Rule" } dd { (line) }
                }
                @if !host.code.is_empty() { dt { "Code" } dd { code { (host.code) } ", as on its screen" } }
            }
        }
    }
}

fn machine_of<'a>(
    view: View<'a>,
    host: &HostStatus,
) -> Option<(&'a ClusterStatus, &'a ClusterMachine)> {
    view.site.clusters.iter().find_map(|cluster| {
        let machine = cluster
            .machines
            .iter()
            .find(|machine| machine.host == host.name)?;
        Some((cluster, machine))
    })
}

const fn role(machine: &ClusterMachine) -> &'static str {
    if machine.control_plane {
        "control plane"
    } else {
        "worker"
    }
}

const fn power(power: HostPower) -> &'static str {
    match power {
        HostPower::Manual => "switched by hand: its object names no BMC",
        HostPower::Unknown => "its BMC has not answered yet",
        HostPower::On => "on, says its BMC",
        HostPower::Off => "off, says its BMC",
    }
}

fn machine_facts(hardware: &HardwareSummary) -> Markup {
    let tpm = tpm(&hardware.tpm);
    let measured = measured_boot(&hardware.measured_boot);
    html! {
        @if !hardware.product.is_empty() { dt { "Product" } dd { (hardware.product) } }
        @if !hardware.serial.is_empty() { dt { "Serial number" } dd { code { (hardware.serial) } } }
        dt { "Processors" } dd { (hardware.cpus) }
        dt { "Memory" } dd { @if hardware.memory_mib < 2048 { (hardware.memory_mib) " MiB" } @else { (hardware.memory_mib / 1024) " GiB" } }
        @if !hardware.boot_mode.is_empty() { dt { "Firmware" } dd { (hardware.boot_mode) } }
        @if let Some(tpm) = tpm { dt { "TPM" } dd { (tpm) } }
        @if let Some(measured) = measured { dt { "Start" } dd { (measured) } }
    }
}

fn disks(host: &HostStatus, hardware: &HardwareSummary) -> Markup {
    html! {
        section.card {
            h2 { "Disks" }
            @if let Some(root) = &host.root_disk {
                p { (root.says) }
                // Why nothing is written is said above where it matters.
                @if let Some(found) = root.problem.as_ref().filter(|_| root.state == RootDiskState::Wrote) { (problem(found, Tone::Bad)) }
            }
            (wide("Disks", &html! { table {
                thead { tr { th scope="col" { "Disk" } th scope="col" { "Kind" } th scope="col" { "Size" } th scope="col" { "Model" } th scope="col" { "Serial number" } th scope="col" { "Found on it" } } }
                tbody {
                    @for disk in &hardware.disks {
                        tr {
                            th scope="row" { code { (disk.name) } }
                            td { (disk.kind) } td { (Size(disk.size_bytes)) } td { (disk.model) } td { code { (disk.serial) } }
                            td { @if disk.found.is_empty() { "blank" } @else { (disk.found.join(", ")) } }
                        }
                    }
                }
            } }))
            p.dim { "As its ramdisk saw them when it started." }
        }
    }
}

fn nics(hardware: &HardwareSummary) -> Markup {
    html! {
        section.card {
            h2 { "Network cards" }
            (wide("Network cards", &html! { table {
                thead { tr { th scope="col" { "Card" } th scope="col" { "MAC address" } th scope="col" { "Link" } th scope="col" { "Switch and port" } th scope="col" { "Address" } th scope="col" { "Model" } } }
                tbody {
                    @for nic in &hardware.interfaces {
                        tr {
                            th scope="row" { code { (nic.name) } @if nic.boots { " " span.dim { "boots from it" } } }
                            td { code { (nic.mac) } }
                            td { @if nic.speed_gbps > 0 { (nic.speed_gbps) " Gbit/s" } @else { "not known" } }
                            td { @if nic.switch.is_empty() { "not told" } @else { (nic.switch) " " (nic.port) } }
                            td { code { (nic.address) } }
                            td.dim { (nic.model) }
                        }
                    }
                }
            } }))
        }
    }
}

fn packages(view: View<'_>, host: &HostStatus) -> Markup {
    let software = view.site.software.iter();
    let here: Vec<_> = software
        .flat_map(|software| software.nodes.iter().map(move |node| (software, node)))
        .filter(|(_, node)| node.name == host.name)
        .collect();
    html! {
        @if !here.is_empty() {
            section.card {
                h2 { "Software" }
                ul.lines {
                    @for (software, node) in here {
                        li { a href="/software" { (software.name) } " " (node.state.as_str()) " " span.dim { (node.message) } }
                    }
                }
            }
        }
    }
}

fn tpm(tpm: &TpmStatus) -> Option<String> {
    Some(match tpm {
        TpmStatus::Unknown => return None,
        TpmStatus::Absent => "none".to_owned(),
        TpmStatus::Asked => "asked".to_owned(),
        TpmStatus::Silent { reason } => format!("did not answer ({reason})"),
        TpmStatus::Shown => "shown, not bound".to_owned(),
        TpmStatus::Bound => "bound: only who shows it is believed to be this server".to_owned(),
    })
}

fn measured_boot(found: &MeasuredBootStatus) -> Option<String> {
    Some(match found {
        MeasuredBootStatus::Unknown => return None,
        MeasuredBootStatus::Measured { secure_boot: true } => {
            "measured, with Secure Boot".to_owned()
        }
        MeasuredBootStatus::Measured { secure_boot: false } => "measured".to_owned(),
        MeasuredBootStatus::Unmeasured { reason } => format!("not measured: {reason}"),
        MeasuredBootStatus::Altered { what } => format!("by others: {what}"),
    })
}
