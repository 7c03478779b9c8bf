//! Packages: by server, what is wanted beside what is there.

use firstlight_api::{
    software::{NodeState, NodeStatus, PackageState, PackageStatus, SoftwareState},
    status::SoftwareLine,
};
use maud::{Markup, html};

use super::{
    View,
    parts::{Tone, host_link, nothing_yet, pill, wide},
};

pub fn render(view: View<'_>) -> Markup {
    html! {
        @if view.site.software.is_empty() {
            (nothing_yet("Software", "No packages are asked for on servers.", &html! {
                "A " code { "Software" } " object names packages with their versions, and the servers that get them."
            }))
        }
        @for one in &view.site.software { (card(one)) }
    }
}

fn card(software: &SoftwareLine) -> Markup {
    let tone = match software.state {
        SoftwareState::Ready => Tone::Good,
        SoftwareState::Pending => Tone::Calm,
        SoftwareState::Installing => Tone::Busy,
        SoftwareState::Failed | SoftwareState::Stopped => Tone::Bad,
    };
    html! {
        section.card {
            div.host-head {
                h2.name { (software.name) }
                span.dim { (software.ready) " servers ready" }
                (pill(tone, software.state.as_str()))
            }
            @if !software.message.is_empty() { p { (software.message) } }
            @if !software.nodes.is_empty() {
                (wide("Packages", &html! { table {
                    thead { tr { th scope="col" { "Server" } th scope="col" { "Package" } th scope="col" { "Wanted" } th scope="col" { "Have" } th scope="col" { "State" } } }
                    @for one in &software.nodes { tbody { (node(one)) } }
                } }))
            }
        }
    }
}

fn node(node: &NodeStatus) -> Markup {
    let tone = match node.state {
        NodeState::Ready => Tone::Good,
        NodeState::Waiting => Tone::Calm,
        NodeState::Failed => Tone::Bad,
        _ => Tone::Busy,
    };
    html! {
        tr {
            th scope="rowgroup" rowspan=(node.packages.len() + 1) {
                (host_link(&node.name))
                @if !node.cluster.is_empty() { br; span.dim { (node.cluster) } }
            }
            td.dim colspan="3" { (node.message) }
            td.(tone.class()) { (node.state.as_str()) }
        }
        @for one in &node.packages { (package(one)) }
    }
}

fn package(package: &PackageStatus) -> Markup {
    let tone = match package.state {
        PackageState::Ready => Tone::Good,
        PackageState::Pending => Tone::Calm,
        PackageState::Failed => Tone::Bad,
    };
    let have = if package.have.is_empty() {
        "?"
    } else {
        &package.have
    };
    html! {
        tr {
            td { (package.name) } td { (package.wanted) } td { (have) }
            td.(tone.class()) {
                (package.state.as_str())
                @if !package.reason.is_empty() { br; span.dim { (package.reason) } }
            }
        }
    }
}
