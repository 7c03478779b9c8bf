//! The pages on which people log in and say who else may: plain forms, whole without JavaScript.

use firstlight_api::people::{
    AuditLine, MOST_TOKEN_DAYS, Operator, Role, SHORTEST_PASSWORD, TOKEN_DAYS, Token,
};
use http::StatusCode;
use hyper::Response;
use maud::{Markup, html};

use crate::web::{self, Body, page};

/// The form for who is somebody already. `why`: what went wrong.
pub fn login(status: StatusCode, why: Option<&str>) -> Response<Body> {
    let fields = html! {
        form method="post" action="/api/v1/login" {
            p { label { "Name " input name="name" autocomplete="username" required autofocus; } }
            p { label { "Password " input name="password" type="password" autocomplete="current-password" required; } }
            p { button { "Log in" } }
        }
        p.dim { "Forgotten? Whoever logs in on the box over SSH gives you another: " code { "firstlight operators password NAME" } "." }
    };
    card(status, "Log in", why, &fields)
}

/// The form for who makes the first operator.
pub fn first(status: StatusCode, why: Option<&str>) -> Response<Body> {
    let fields = html! {
        p {
            "Nobody looks after this site yet. Whoever reads the code on the box's console becomes its first admin; from then on the page asks everybody \
             to log in."
        }
        form method="post" action="/api/v1/first" {
            p { label { "Code on the console " input name="code" autocomplete="off" required autofocus; } }
            p { label { "Your name " input name="name" autocomplete="username" required; } }
            p {
                label {
                    "A password, " (SHORTEST_PASSWORD) " characters at least "
                    input name="password" type="password" autocomplete="new-password" minlength=(SHORTEST_PASSWORD) required;
                }
            }
            p { button { "Become the first admin" } }
        }
        p.dim { "No console? " code { "firstlight operators add NAME --role admin" } " does the same over SSH." }
    };
    card(status, "The first operator", why, &fields)
}

/// Once: nobody can see it again.
pub fn shown_once(title: &str, about: &str, shown: &str, back: &str) -> Response<Body> {
    let content = html! {
        p { "This is shown once. " (about) }
        p { code { (shown) } }
        p { a href=(back) { "Back" } }
    };
    card(StatusCode::CREATED, title, None, &content)
}

/// What went wrong with a form.
pub fn failed(status: StatusCode, why: &str, back: &str) -> Response<Body> {
    let content = html! { p { a href=(back) { "Back" } } };
    card(status, "Not done", Some(why), &content)
}

/// Who may do what, and what was done.
pub fn people(operators: &[Operator], tokens: &[Token], audit: &[AuditLine]) -> Response<Body> {
    let content = html! {
        (way_back())
        section.card {
            h2 { "People" }
            @for one in operators { (operator(one)) }
            form method="post" action="/api/v1/operators" {
                p {
                    (field("name", "Name", "text")) (roles(Role::Operator)) (field("password", "Password", "password"))
                    button { "Add" }
                }
            }
        }
        section.card {
            h2 { "Tokens of programs" }
            @for token in tokens {
                form method="post" action={ "/api/v1/tokens/" (token.name) "/remove" } {
                    p { b { (token.name) } " " (token.role) " " span.dim { "by " (token.by) ", until " (token.ends) } " " button { "Remove" } }
                }
            }
            form method="post" action="/api/v1/tokens" {
                p {
                    (field("name", "Name", "text")) (roles(Role::Viewer))
                    label { "Days " input name="days" type="number" min="1" max=(MOST_TOKEN_DAYS) value=(TOKEN_DAYS); } " "
                    button { "Make" }
                }
            }
        }
        section.card {
            h2 { "What was done" }
            (page::wide("What was done", &html! {
                table {
                    thead { tr { @for title in ["When", "Who", "From", "What", "Outcome"] { th scope="col" { (title) } } } }
                    tbody {
                        @for line in audit.iter().rev() {
                            tr { td { (line.time) } td { (line.who) } td { (line.from) } td { (line.what) " " (line.target) } td { (line.outcome) } }
                        }
                    }
                }
            }))
        }
    };
    answer(StatusCode::OK, "People", &content)
}

/// Another version of the box's system.
pub fn update() -> Response<Body> {
    let content = html! {
        (way_back())
        section.card {
            h2 { "Write" }
            p { "An image of " code { "firstlight build" } " is written beside the running system, while everything goes on; the page of the site says how far it is." }
            form method="post" action="/api/v1/update/image" enctype="multipart/form-data" {
                p { label { "Image " input type="file" name="image" required; } " " button { "Write" } }
            }
        }
        section.card {
            h2 { "Start" }
            p {
                "The box restarts into what was written. It keeps it if the site is as well as before within ten minutes, and goes back by itself if not; \
                 clusters and servers go on."
            }
            form method="post" action="/api/v1/update/start" { p { button { "Restart the box" } } }
        }
        section.card {
            h2 { "Recovery key" }
            p {
                "Where the box's state is encrypted: another key that opens it on any machine, in place of the one before. From then on the machine's TPM opens it \
                 only after a start of what the box was started by now."
            }
            form method="post" action="/api/v1/update/seal" { p { button { "Make a recovery key" } } }
        }
    };
    answer(StatusCode::OK, "Update", &content)
}

fn way_back() -> Markup {
    html! { p { a href="/" { "Back to the site" } } }
}

fn operator(operator: &Operator) -> Markup {
    let name = &operator.name;
    if operator.of_site {
        return html! { p { b { (name) } " " (operator.role) " " span.dim { "of site.yaml" } } };
    }
    html! {
        form method="post" action={ "/api/v1/operators/" (name) } {
            p {
                b { (name) } " " (roles(operator.role))
                button { "Change" } " " button formaction={ "/api/v1/operators/" (name) "/remove" } { "Remove" }
            }
        }
    }
}

fn field(name: &str, title: &str, kind: &str) -> Markup {
    html! { label { (title) " " input name=(name) type=(kind) autocomplete="off" required; } " " }
}

fn roles(chosen: Role) -> Markup {
    html! {
        label { "Role " select name="role" { @for role in Role::ALL { option selected[role == chosen] { (role) } } } } " "
    }
}

fn card(status: StatusCode, title: &str, why: Option<&str>, content: &Markup) -> Response<Body> {
    let card = html! {
        section.card {
            @if let Some(why) = why { div.problem.bad role="alert" { b { (why) } } }
            (content)
        }
    };
    answer(status, title, &card)
}

fn answer(status: StatusCode, title: &str, content: &Markup) -> Response<Body> {
    let page = page::of_form(title, content).into_string();
    let mut response = web::html(page.into());
    *response.status_mut() = status;
    response
}
