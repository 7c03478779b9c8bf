//! What a person wants to know first: is the site well, what needs me, how far is what runs now, what is there.

use firstlight_api::{
    addon::AddonState,
    health::{Finding, Health, Work},
    software::SoftwareState,
    status::{HostState, StepState},
};
use maud::{Markup, html};

use super::{
    View,
    address::Filter,
    parts::{Size, Span, Tone, counted, nothing_yet, problem, sentence},
    timeline,
};

/// Of each list; the pages of what they are about have all.
const MOST: usize = 30;

pub fn render(view: View<'_>, health: &Health) -> Markup {
    html! {
        (needs(health))
        (timeline::picture(view))
        (work(view, &health.work))
        (what_is_there(view))
    }
}

fn needs(health: &Health) -> Markup {
    let problems: Vec<&Finding> = health.problems.iter().chain(&health.alarms).collect();
    html! {
        @if !problems.is_empty() {
            section.card {
                h2 { "What needs you" }
                @for found in problems.iter().take(MOST) {
                    div {
                        p.about { (about(&found.about)) }
                        (problem(&found.problem, Tone::Bad))
                    }
                }
                (more(problems.len()))
            }
        }
    }
}

/// Servers have a picture of their own.
fn work(view: View<'_>, work: &[Work]) -> Markup {
    let others: Vec<_> = work
        .iter()
        .filter(|one| !one.about.starts_with("server "))
        .collect();
    html! {
        @if !others.is_empty() {
            section.card {
                h2 { "Under way" }
                ul.lines {
                    @for one in others.iter().take(MOST) {
                        li { span.about { (about(&one.about)) } " " span.dim { (sentence(&one.what)) } }
                    }
                }
                (more(others.len()))
            }
        }
        @if let Some(took) = bring_up(view) { p.dim { "The box was ready " (Span(took)) " after its start." } }
    }
}

/// When its last step was done, once all are.
fn bring_up(view: View<'_>) -> Option<f64> {
    let steps = view.site.bring_up.iter().map(|step| match step.state {
        StepState::Done { ended, .. } => Some(ended),
        _ => None,
    });
    let ends: Option<Vec<f64>> = steps.collect();
    ends?.into_iter().max_by(f64::total_cmp)
}

fn more(all: usize) -> Markup {
    html! { @if let more @ 1.. = all.saturating_sub(MOST) { p.dim { "and " (more) " more" } } }
}

/// `server n3`, with the way to its page.
fn about(about: &str) -> Markup {
    let path = match about.split_once(' ') {
        Some(("server", name)) => format!("/hosts/{name}"),
        Some(("cluster" | "addon", _)) => "/clusters".to_owned(),
        Some(("software", _)) => "/software".to_owned(),
        _ => "/box".to_owned(),
    };
    html! { a href=(path) { (about) } }
}

fn what_is_there(view: View<'_>) -> Markup {
    let site = view.site;
    let nodes = site.clusters.iter().map(|cluster| {
        (
            cluster.control_planes_ready + cluster.workers_ready,
            cluster.control_planes_wanted + cluster.workers_wanted,
        )
    });
    let (ready, wanted) = nodes.fold((0, 0), |(a, b), (c, d)| (a + c, b + d));
    let addons = site
        .addons
        .iter()
        .filter(|addon| addon.state == AddonState::Ready);
    let software = site
        .software
        .iter()
        .filter(|one| one.state == SoftwareState::Ready);
    let bytes: u64 = site
        .artifacts
        .iter()
        .map(|artifact| artifact.spec.size)
        .sum();
    html! {
        @if site.hosts.is_empty() && site.ready {
            (nothing_yet("Servers", "No server seen yet.", &html! {
                "Connect a server to the provisioning network and switch it on with network boot enabled: it appears here by itself."
            }))
        }
        section {
            h2 { "What is there" }
            ul.tiles {
                li {
                    a href="/hosts" { b { (counted(site.hosts.len(), "server")) } }
                    @for (state, count) in states(view) {
                        br; a.dim href=(Filter { state: Some(state), ..Filter::default() }.address()) { (count) " " (state.as_str()) }
                    }
                }
                li {
                    a href="/clusters" { b { (counted(site.clusters.len(), "cluster")) } }
                    br; span.dim { (ready) " of " (wanted) " nodes ready" }
                    @if !site.addons.is_empty() { br; span.dim { (addons.count()) " of " (counted(site.addons.len(), "addon")) " ready" } }
                }
                li {
                    a href="/software" { b { "Software" } }
                    br; span.dim { (software.count()) " of " (site.software.len()) " ready" }
                }
                li { a href="/store" { b { (counted(site.artifacts.len(), "upload")) } } br; span.dim { (Size(bytes)) } }
                li {
                    a href="/box" { b { "The box" } }
                    br; span.dim { (counted(site.network.leases, "lease")) }
                    @if let Some(backup) = &site.backup { br; span.dim { (backup.sentence()) } }
                }
            }
        }
    }
}

/// Those that there are.
pub fn states(view: View<'_>) -> Vec<(HostState, usize)> {
    let count = |state| {
        let hosts = view.site.hosts.iter();
        (state, hosts.filter(|host| host.state == state).count())
    };
    let all = HostState::ALL.into_iter().map(count);
    all.filter(|(_, count)| *count > 0).collect()
}
