//! What every page has: head, health of the site, the way to the other pages.

use firstlight_api::health::Health;
use maud::{DOCTYPE, Markup, html};

use super::{
    Page, Reader, View,
    assets::{SCRIPT, STYLE},
    clusters, front, host, hosts,
    parts::{Tone, pill},
    people, software, store, the_box,
};

/// A document.
pub fn whole(view: View<'_>, page: &Page, health: &Health) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            (head(&title(view, page, health)))
            body {
                a.skip href="#main" { "To the content" }
                div #live data-booted=[view.booted.map(|booted| format!("{booted:.1}"))] { (live(view, page, health)) }
                p #lost.lost role="alert" hidden { "The box does not answer; this page shows what was last known." }
                noscript { p.lost { "Without JavaScript this page stands still. " a href="" { "Read it again" } } }
                script src=(SCRIPT.path) defer {}
            }
        }
    }
}

/// What in it may change.
pub fn live(view: View<'_>, page: &Page, health: &Health) -> Markup {
    let (tone, word) = verdict(view, health);
    html! {
        header data-title=(title(view, page, health)) {
            h1 { a href="/" { (site_name(view)) } }
            span.dim { "Firstlight " (view.site.version) }
            span role="status" { (pill(tone, &word)) }
        }
        (navigation(view, page))
        main #main tabindex="-1" {
            @match page {
                Page::Front => (front::render(view, health)),
                Page::Hosts(filter) => (hosts::render(view, filter)),
                Page::Host(name) => (host::render(view, name)),
                Page::Clusters => (clusters::render(view)),
                Page::Software => (software::render(view)),
                Page::Store => (store::render(view)),
                Page::Box => (the_box::render(view)),
            }
        }
        footer {
            "The box is up for " (super::parts::since(view, 0.0)) ". For programs: "
            a href="/api/v1/status" { "status" } ", " a href="/api/v1/openapi.json" { "OpenAPI" } ", "
            a href="/metrics" { "metrics" } "."
        }
    }
}

/// A page that is a form, or the answer to one.
pub fn of_form(title: &str, content: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            (head(title))
            body { main { h1 { (title) } (content) } }
        }
    }
}

fn head(title: &str) -> Markup {
    html! {
        head {
            meta charset="utf-8";
            meta name="viewport" content="width=device-width, initial-scale=1";
            title { (title) }
            link rel="icon" href="data:,";
            link rel="stylesheet" href=(STYLE.path);
        }
    }
}

/// Before site.yaml is read the site has no name.
fn site_name(view: View<'_>) -> &str {
    if view.site.site.is_empty() {
        "Firstlight"
    } else {
        &view.site.site
    }
}

fn title(view: View<'_>, page: &Page, health: &Health) -> String {
    let (_, word) = verdict(view, health);
    let of = match page {
        Page::Front => String::new(),
        Page::Host(name) => format!("{name} · "),
        page => format!("{} · ", name_of(page)),
    };
    format!("{of}{} · {word}", site_name(view))
}

/// Is the site well? It is not while anybody should do something.
fn verdict(view: View<'_>, health: &Health) -> (Tone, String) {
    match (
        health.problems.len() + health.alarms.len(),
        health.work.len(),
    ) {
        (1, _) => (Tone::Bad, "1 thing needs you".to_owned()),
        (many @ 2.., _) => (Tone::Bad, format!("{many} things need you")),
        (0, _) if !view.site.ready => (Tone::Busy, "starting".to_owned()),
        (0, 1..) => (Tone::Busy, "at work".to_owned()),
        (0, 0) => (Tone::Good, "all is well".to_owned()),
    }
}

fn name_of(page: &Page) -> &'static str {
    match page {
        Page::Front => "Site",
        Page::Hosts(_) | Page::Host(_) => "Servers",
        Page::Clusters => "Clusters",
        Page::Software => "Software",
        Page::Store => "Store",
        Page::Box => "Box",
    }
}

fn navigation(view: View<'_>, page: &Page) -> Markup {
    let all = [
        ("/", "Site"),
        ("/hosts", "Servers"),
        ("/clusters", "Clusters"),
        ("/software", "Software"),
        ("/store", "Store"),
        ("/box", "Box"),
        ("/logs", "Logs"),
    ];
    let here = name_of(page);
    html! {
        nav aria-label="Pages" {
            ul {
                @for (path, name) in all {
                    li { a href=(path) aria-current=[(name == here).then_some("page")] { (name) } }
                }
                @if view.reader != Reader::Anybody { (people::ways(view.reader)) }
            }
        }
        @if view.reader == Reader::Anybody { (people::entrance()) }
    }
}
