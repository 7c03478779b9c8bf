//! The box itself: its network, its bring-up, what keeps its state, and what its controllers did last.

use firstlight_api::status::{
    BoxNic, ControllerRound, DhcpMode, NetworkStatus, Space, Step, StepState, UplinkStatus,
};
use maud::{Markup, html};

use super::{
    View,
    parts::{Size, Span, Tone, mark, moment, problem, since, wide},
};
use crate::status::banner;

pub fn render(view: View<'_>) -> Markup {
    let site = view.site;
    html! {
        @if !site.problems.is_empty() || !site.alarms.is_empty() {
            section.card {
                h2 { "What needs you" }
                @for found in &site.problems { (problem(found, Tone::Bad)) }
                @for alarm in &site.alarms { (problem(&alarm.problem, Tone::Bad)) }
            }
        }
        div.grid {
            (network(&site.network))
            section.card {
                h2 { "System and state" }
                dl {
                    dt { "Version" } dd { "Firstlight " (site.version) }
                    dt { "Started" } dd { (moment(view, 0.0)) }
                    @if let Some(space) = &site.machine.state { dt { "Stick" } dd { (state(space)) } }
                }
                @if let Some(stage) = &site.update { p { (stage.sentence()) } }
                @if let Some(seal) = &site.seal { p { (seal.sentence()) } }
                @if let Some(backup) = &site.backup { p { (backup.sentence()) } }
            }
        }
        (machine(view))
        section.card {
            h2 { "Bring-up" }
            ol.steps { @for one in &site.bring_up { (step(view, one)) } }
        }
        (controllers(view, &site.controllers))
        @if !site.before_start.is_empty() {
            details.card {
                summary { "Warnings before the last start" }
                pre { @for line in &site.before_start { (line) "\n" } }
            }
        }
    }
}

/// What is left of the state partition.
fn state(space: &Space) -> Markup {
    let used = space.size.saturating_sub(space.free);
    html! {
        (Size(space.free)) " of " (Size(space.size)) " free "
        meter min="0" max=(space.size) high=(space.size / 10 * 9) value=(used) aria-label="used space of the state partition" {}
    }
}

fn machine(view: View<'_>) -> Markup {
    let machine = &view.site.machine;
    html! {
        @if !machine.nics.is_empty() {
            section.card {
                h2 { "Machine" }
                @if !machine.product.is_empty() { p { (machine.product) @if !machine.serial.is_empty() { ", serial number " code { (machine.serial) } } } }
                (wide("Network cards", &html! {
                    table {
                        thead { tr { @for title in ["Network card", "Address", "Link", "Use"] { th scope="col" { (title) } } } }
                        tbody { @for nic in &machine.nics {
                            tr {
                                th scope="row" { (nic.name) }
                                td { code { (nic.mac) } }
                                td { (link(nic)) }
                                td { (banner::used(view.site, nic)) }
                            }
                        } }
                    }
                }))
            }
        }
    }
}

fn link(nic: &BoxNic) -> Markup {
    html! {
        @if nic.link { span.good { "up" } @if nic.speed > 0 { ", " (nic.speed) " Mbit/s" } } @else { span.dim { "none" } }
    }
}

fn network(network: &NetworkStatus) -> Markup {
    html! {
        section.card {
            h2 { "Provisioning network" }
            dl {
                dt { "Interface" }
                @if network.interface.is_empty() {
                    dd.dim { "none chosen yet" }
                } @else {
                    dd { (network.interface) " " span.dim { (network.mac) } }
                    dt { "Address" } dd { (network.address) }
                }
                dt { "DHCP" } dd { (dhcp(network)) }
                @if let Some(it) = &network.uplink { (uplink(it)) }
                @for (protocol, count) in &network.refused { dt { "Refused by " (protocol) } dd { (count) " requests beyond the limits" } }
            }
        }
    }
}

fn dhcp(network: &NetworkStatus) -> Markup {
    let leases = network.leases;
    html! {
        @match &network.dhcp {
            DhcpMode::Off => span.dim { "not started" },
            DhcpMode::Probing => span.busy { "asking whether another server leases addresses here" },
            DhcpMode::Serving => { span.good { "serving" } ", " (leases) " leased" }
            DhcpMode::Silent { server } => { span.warm { "silent" } ": " (server) " leases addresses here" }
            DhcpMode::Proxy { server: None } => { span.warm { "boot information only" } ", and nobody leases addresses here" }
            DhcpMode::Proxy { server: Some(server) } => { span.good { "boot information" } " beside " (server) }
            DhcpMode::Relay => { span.good { "serving" } " relayed networks, " (leases) " leased" }
        }
    }
}

fn uplink(uplink: &UplinkStatus) -> Markup {
    html! {
        dt { "Uplink" }
        @match (&uplink.address, &uplink.interface) {
            (Some(address), Some(interface)) => dd { (address) " " span.dim { (interface) } },
            _ => dd.dim { "no address yet" },
        }
        @for (cluster, port) in &uplink.clusters { dt { "API of " (cluster) } dd { "port " (port) " of the uplink" } }
    }
}

fn step(view: View<'_>, step: &Step) -> Markup {
    let (tone, word) = match &step.state {
        StepState::Waiting => (Tone::Calm, "waiting"),
        StepState::Running { .. } => (Tone::Busy, "running"),
        StepState::Done { .. } => (Tone::Good, "done"),
        StepState::Failed { .. } => (Tone::Bad, "failed"),
    };
    html! {
        li {
            (mark(tone))
            span { (step.title) }
            span.time {
                (word)
                @match &step.state {
                    StepState::Waiting => "",
                    StepState::Running { started } => { ", for " (since(view, *started)) }
                    StepState::Done { started, ended } => { " in " (format_args!("{:.1} s", ended - started)) ", at " (Span(*ended)) }
                    StepState::Failed { started, ended, .. } => { " after " (Span(ended - started)) }
                }
            }
            @if let StepState::Failed { problem: found, .. } = &step.state { (problem(found, Tone::Bad)) }
        }
    }
}

/// What each did last, so that one that is stuck shows.
fn controllers(view: View<'_>, controllers: &[ControllerRound]) -> Markup {
    html! {
        @if !controllers.is_empty() {
            details.card {
                summary { "Controllers" }
                ol.steps {
                    @for round in controllers {
                        li {
                            (mark(if round.failed == 0 { Tone::Good } else { Tone::Bad }))
                            span {
                                (round.name)
                                @if round.failed > 0 { " " span.bad { (round.failed) " failed" } }
                                @for failure in &round.failures { br; span.dim { (failure) } }
                            }
                            span.time { (format_args!("{:.1} s", round.took)) ", at " (moment(view, round.started)) }
                        }
                    }
                }
            }
        }
    }
}
