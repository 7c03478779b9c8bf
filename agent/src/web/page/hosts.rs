//! The table of servers: which, in which order, under which headings.

use std::collections::BTreeMap;

use firstlight_api::{
    status::{HostState, HostStatus},
    verb::Owner,
};
use maud::{Markup, html};

use super::{
    View,
    address::{Filter, Group, Sort},
    front::states,
    parts::{Tone, host_link, nothing_yet, pill, sentence, since, wide},
};

/// Rows of the table; whoever has more servers seeks among them.
const MOST: usize = 1000;

pub fn render(view: View<'_>, filter: &Filter) -> Markup {
    if view.site.hosts.is_empty() {
        return nothing_yet(
            "Servers",
            "No server seen yet.",
            &html! { "Connect a server to the provisioning network and switch it on with network boot enabled: it appears here by itself." },
        );
    }
    let found = found(view, filter);
    let groups = grouped(view, &found, filter.group);
    html! {
        (form(view, filter))
        p.dim role="status" {
            (found.len()) " of " (view.site.hosts.len()) " servers"
            @if found.len() > MOST { "; the first " (MOST) " are shown: seek for fewer" }
        }
        (wide("Servers", &html! {
            table.hosts {
                caption.hidden { "Servers" }
                thead {
                    tr {
                        (column(filter, Sort::Name, "Server"))
                        (column(filter, Sort::State, "State"))
                        th scope="col" { "What happens" }
                        (column(filter, Sort::Since, "For"))
                        th scope="col" { "Cluster" }
                        (column(filter, Sort::Address, "Address"))
                        (column(filter, Sort::Hardware, "Hardware"))
                    }
                }
                @for (heading, hosts) in &groups {
                    tbody {
                        @if filter.group != Group::None {
                            tr.group { th colspan="7" scope="rowgroup" { (heading) " (" (hosts.len()) ")" } }
                        }
                        @for host in hosts { (row(view, host)) }
                    }
                }
            }
        }))
        @if found.is_empty() { p { "No server is like that. " a href="/hosts" { "Show all" } } }
    }
}

fn form(view: View<'_>, filter: &Filter) -> Markup {
    html! {
        form.filter role="search" method="get" action="/hosts" data-live {
            label { "Seek " input type="search" name="q" value=(filter.words) placeholder="name, MAC, serial, problem…"; }
            label {
                "State "
                select name="state" {
                    option value="" selected[filter.state.is_none()] { "all" }
                    @for (state, count) in states(view) {
                        option value=(state.as_str()) selected[filter.state == Some(state)] { (state.as_str()) " (" (count) ")" }
                    }
                }
            }
            label {
                "Under headings "
                select name="group" {
                    @for by in Group::ALL { option value=(by.as_str()) selected[filter.group == by] { (by.as_str()) } }
                }
            }
            @if filter.sort != Sort::default() { input type="hidden" name="sort" value=(filter.sort.as_str()); }
            button { "Show" }
        }
    }
}

fn column(filter: &Filter, sort: Sort, title: &str) -> Markup {
    let is_sorted = filter.sort == sort;
    let by = Filter {
        sort,
        ..filter.clone()
    };
    html! {
        th scope="col" aria-sort=[is_sorted.then_some("ascending")] {
            a href=(by.address()) { (title) @if is_sorted { span aria-hidden="true" { " ▾" } } }
        }
    }
}

fn row(view: View<'_>, host: &HostStatus) -> Markup {
    let hardware = host.hardware.as_ref();
    html! {
        tr id={ "host-" (host.mac) } {
            th scope="row" { (host_link(&host.name)) br; code.dim { (host.mac) } }
            td {
                (pill(Tone::of_host(host.state), host.state.as_str()))
                @if host.control.spare { " " (pill(Tone::Calm, "spare")) }
            }
            td {
                (host.step)
                @if let Some(problem) = &host.problem {
                    div.problem.(problem_tone(host).class()) { (sentence(&problem.what)) }
                }
            }
            td { (since(view, host.since)) }
            td { (cluster(view, host)) }
            td { code { (host.address) } }
            td.dim { @if let Some(hardware) = hardware { (hardware.product) br; (hardware.serial) } }
        }
    }
}

/// A server that is left alone is as safe as can be: no alarm.
pub fn problem_tone(host: &HostStatus) -> Tone {
    match host.state {
        HostState::Discovered | HostState::External | HostState::Detached => Tone::Warm,
        _ => Tone::Bad,
    }
}

/// Of which it is, or that it is for.
fn cluster<'a>(view: View<'a>, host: &'a HostStatus) -> &'a str {
    Owner::of(view.site, host).map_or(&host.control.cluster, |owner| owner.cluster())
}

fn found<'a>(view: View<'a>, filter: &Filter) -> Vec<&'a HostStatus> {
    let words: Vec<String> = filter
        .words
        .split_whitespace()
        .map(str::to_lowercase)
        .collect();
    let fits = |host: &&HostStatus| {
        let known = known(view, host);
        filter.state.is_none_or(|state| host.state == state)
            && words.iter().all(|word| known.contains(word))
    };
    let mut found: Vec<_> = view.site.hosts.iter().filter(fits).collect();
    match filter.sort {
        // As they come.
        Sort::Name => {}
        Sort::State => {
            found.sort_by_key(|host| HostState::ALL.iter().position(|it| *it == host.state));
        }
        Sort::Since => found.sort_by(|a, b| b.since.total_cmp(&a.since)),
        Sort::Address => found.sort_by_key(|host| host.address.parse::<std::net::Ipv4Addr>().ok()),
        Sort::Hardware => found.sort_by_key(|host| host.hardware.as_ref().map(|it| &it.product)),
    }
    found
}

/// What a person may seek it by, in small letters.
fn known(view: View<'_>, host: &HostStatus) -> String {
    let hardware = host.hardware.as_ref();
    let problem = host.problem.as_ref();
    let disks = || hardware.iter().flat_map(|it| &it.disks);
    let nics = hardware.iter().flat_map(|it| &it.interfaces);
    let mut all = vec![
        host.name.as_str(),
        &host.namespace,
        &host.mac,
        &host.address,
        &host.code,
        host.state.as_str(),
        &host.step,
        cluster(view, host),
    ];
    all.extend(
        hardware
            .iter()
            .flat_map(|it| [it.product.as_str(), &it.serial]),
    );
    all.extend(problem.map(|it| it.what.as_str()));
    all.extend(disks().flat_map(|disk| [disk.serial.as_str(), &disk.model]));
    all.extend(disks().flat_map(|disk| &disk.found).map(String::as_str));
    all.extend(nics.flat_map(|nic| [nic.mac.as_str(), &nic.switch, &nic.port]));
    all.join("\n").to_lowercase()
}

fn grouped<'a>(
    view: View<'a>,
    found: &[&'a HostStatus],
    by: Group,
) -> Vec<(String, Vec<&'a HostStatus>)> {
    let mut groups: BTreeMap<String, Vec<_>> = BTreeMap::new();
    for host in found.iter().take(MOST) {
        let hardware = host.hardware.as_ref();
        let of = match by {
            Group::None => "",
            Group::State => host.state.as_str(),
            Group::Cluster => cluster(view, host),
            Group::Hardware => hardware.map_or("", |it| &it.product),
            Group::Switch => {
                let mut nics = hardware.iter().flat_map(|it| &it.interfaces);
                nics.find(|nic| !nic.switch.is_empty())
                    .map_or("", |nic| &nic.switch)
            }
        };
        let of = if of.is_empty() { "unknown" } else { of };
        groups.entry(of.to_owned()).or_default().push(*host);
    }
    groups.into_iter().collect()
}
