//! What the pages offer by who reads them: the way in, and verbs of servers.

use firstlight_api::{
    status::HostStatus,
    verb::{self, Insistence, Manner, Owner, Verb},
};
use maud::{Markup, html};

use super::{Reader, View};

/// For who is logged in.
pub fn ways(reader: Reader) -> Markup {
    html! {
        @if reader == Reader::Admin {
            li { a href="/people" { "People" } }
            li { a href="/update" { "Update" } }
        }
        li { form method="post" action="/api/v1/logout" { button { "Log out" } } }
    }
}

pub fn entrance() -> Markup {
    html! {
        p.dim.banner {
            "Nobody has to log in to read this, and nobody can change anything here, until there is a "
            a href="/first" { "first operator" } "."
        }
    }
}

/// A button for each verb that the server takes now, or the command for who may not ask here. What ends somebody's work is asked for twice.
pub fn verbs(view: View<'_>, host: &HostStatus) -> Markup {
    let owner = Owner::of(view.site, host);
    let offered = |verb: &Verb| match verb::refusal(*verb, Manner::Soft, host, owner.as_ref()) {
        None => Some(None),
        Some(refusal) if refusal.unless == Some(Insistence::Yes) => Some(Some(refusal.why)),
        Some(_) => None,
    };
    let all = Verb::ALL.iter();
    let all: Vec<(Verb, Option<String>)> = all
        .filter_map(|verb| Some((*verb, offered(verb)?)))
        .collect();
    let is_button =
        |verb: Verb| view.reader >= Reader::Operator && verb.patch(Manner::Soft).is_some();
    html! {
        @if all.iter().any(|(verb, _)| is_button(*verb)) {
            div.verbs {
                @for (verb, sure) in all.iter().filter(|(verb, _)| is_button(*verb)) {
                    @match sure {
                        None => (button(host, *verb, false)),
                        Some(why) => details {
                            summary { (verb.as_str()) }
                            p { (why) }
                            (button(host, *verb, true))
                        },
                    }
                }
            }
        }
        @if all.iter().any(|(verb, _)| !is_button(*verb)) {
            details {
                summary { "Commands for this server" }
                @for (verb, sure) in all.iter().filter(|(verb, _)| !is_button(*verb)) {
                    pre { code {
                        "firstlight hosts " (verb.as_str()) " " (host.name)
                        @if sure.is_some() { " --yes" }
                    } }
                }
            }
        }
    }
}

fn button(host: &HostStatus, verb: Verb, is_sure: bool) -> Markup {
    html! {
        form method="post" action={ "/api/v1/hosts/" (host.name) "/" (verb.word()) } {
            @if is_sure { input type="hidden" name="yes" value="yes"; }
            button { (verb.as_str()) }
        }
    }
}
