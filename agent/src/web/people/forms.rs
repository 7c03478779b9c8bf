//! The pages on which people log in and say who else may: plain forms, whole without JavaScript.

use std::fmt::{self, Write as _};

use firstlight_api::people::{
    AuditLine, MOST_TOKEN_DAYS, Operator, Role, SHORTEST_PASSWORD, TOKEN_DAYS, Token,
};
use http::StatusCode;
use hyper::Response;

use crate::web::{
    Body, html,
    page::{STYLE, Text},
};

/// The form for who is somebody already. `why`: what went wrong.
pub fn login(status: StatusCode, why: Option<&str>) -> Response<Body> {
    page(status, "Log in", |out| {
        open_card(out, "Log in", why)?;
        out.write_str(
            "<form method=\"post\" action=\"/api/v1/login\">\n\
             <p><label>Name <input name=\"name\" autocomplete=\"username\" required autofocus></label></p>\n\
             <p><label>Password <input name=\"password\" type=\"password\" autocomplete=\"current-password\" required></label></p>\n\
             <p><button>Log in</button></p>\n</form>\n\
             <p class=\"dim\">Forgotten? Whoever logs in on the box over SSH gives you another: <code>firstlight operators password NAME</code>.</p>\n</section>\n",
        )
    })
}

/// The form for who makes the first operator.
pub fn first(status: StatusCode, why: Option<&str>) -> Response<Body> {
    page(status, "The first operator", |out| {
        open_card(out, "The first operator", why)?;
        write!(
            out,
            "<p>Nobody looks after this site yet. Whoever reads the code on the box's console becomes its first admin; from then on the page asks everybody \
             to log in.</p>\n\
             <form method=\"post\" action=\"/api/v1/first\">\n\
             <p><label>Code on the console <input name=\"code\" autocomplete=\"off\" required autofocus></label></p>\n\
             <p><label>Your name <input name=\"name\" autocomplete=\"username\" required></label></p>\n\
             <p><label>A password, {SHORTEST_PASSWORD} characters at least <input name=\"password\" type=\"password\" autocomplete=\"new-password\" minlength=\"{SHORTEST_PASSWORD}\" required></label></p>\n\
             <p><button>Become the first admin</button></p>\n</form>\n\
             <p class=\"dim\">No console? <code>firstlight operators add NAME --role admin</code> does the same over SSH.</p>\n</section>\n"
        )
    })
}

/// Once: nobody can see it again.
pub fn shown_once(title: &str, about: &str, shown: &str, back: &str) -> Response<Body> {
    page(StatusCode::CREATED, title, |out| {
        open_card(out, title, None)?;
        write!(
            out,
            "<p>This is shown once. {}</p>\n<p><code>{}</code></p>\n<p><a href=\"{}\">Back</a></p>\n</section>\n",
            Text(about),
            Text(shown),
            Text(back)
        )
    })
}

/// What went wrong with a form.
pub fn failed(status: StatusCode, why: &str, back: &str) -> Response<Body> {
    page(status, "Not done", |out| {
        open_card(out, "Not done", Some(why))?;
        write!(
            out,
            "<p><a href=\"{}\">Back</a></p>\n</section>\n",
            Text(back)
        )
    })
}

/// Who may do what, and what was done.
pub fn people(operators: &[Operator], tokens: &[Token], audit: &[AuditLine]) -> Response<Body> {
    page(StatusCode::OK, "People", |out| {
        out.write_str(
            "<p><a href=\"/\">Back to the site</a></p>\n<section class=\"card\"><h2>People</h2>\n",
        )?;
        for operator in operators {
            write_operator(out, operator)?;
        }
        out.write_str("<form method=\"post\" action=\"/api/v1/operators\"><p>")?;
        write_field(out, "name", "Name", "text")?;
        write_roles(out, Role::Operator)?;
        write_field(out, "password", "Password", "password")?;
        out.write_str("<button>Add</button></p></form>\n</section>\n<section class=\"card\"><h2>Tokens of programs</h2>\n")?;
        for token in tokens {
            writeln!(
                out,
                "<form method=\"post\" action=\"/api/v1/tokens/{name}/remove\"><p><b>{name}</b> {} <span class=\"dim\">by {}, until {}</span> <button>Remove</button></p></form>",
                token.role,
                Text(&token.by),
                Text(&token.ends),
                name = Text(token.name.as_str())
            )?;
        }
        out.write_str("<form method=\"post\" action=\"/api/v1/tokens\"><p>")?;
        write_field(out, "name", "Name", "text")?;
        write_roles(out, Role::Viewer)?;
        write!(
            out,
            "<label>Days <input name=\"days\" type=\"number\" min=\"1\" max=\"{MOST_TOKEN_DAYS}\" value=\"{TOKEN_DAYS}\"></label> <button>Make</button></p></form>\n</section>\n\
             <section class=\"card\"><h2>What was done</h2>\n<table><thead><tr><th>When</th><th>Who</th><th>From</th><th>What</th><th>Outcome</th></tr></thead>\n<tbody>\n"
        )?;
        for line in audit.iter().rev() {
            writeln!(
                out,
                "<tr><td>{}</td><td>{}</td><td>{}</td><td>{} {}</td><td>{}</td></tr>",
                Text(&line.time),
                Text(&line.who),
                Text(&line.from),
                Text(&line.what),
                Text(&line.target),
                Text(&line.outcome)
            )?;
        }
        out.write_str("</tbody></table>\n</section>\n")
    })
}

/// Another version of the box's system.
pub fn update() -> Response<Body> {
    page(StatusCode::OK, "Update", |out| {
        out.write_str(
            "<p><a href=\"/\">Back to the site</a></p>\n<section class=\"card\"><h2>Write</h2>\n\
             <p>An image of <code>firstlight build</code> is written beside the running system, while everything goes on; the page of the site says how far it is.</p>\n\
             <form method=\"post\" action=\"/api/v1/update/image\" enctype=\"multipart/form-data\"><p><input type=\"file\" name=\"image\" required> <button>Write</button></p></form>\n</section>\n\
             <section class=\"card\"><h2>Start</h2>\n<p>The box restarts into what was written. It keeps it if the site is as well as before within ten minutes, and goes back by itself if not; \
             clusters and servers go on.</p>\n\
             <form method=\"post\" action=\"/api/v1/update/start\"><p><button>Restart the box</button></p></form>\n</section>\n\
             <section class=\"card\"><h2>Recovery key</h2>\n<p>Where the box's state is encrypted: another key that opens it on any machine, in place of the one before. From then on the machine's TPM opens it \
             only after a start of what the box was started by now.</p>\n\
             <form method=\"post\" action=\"/api/v1/update/seal\"><p><button>Make a recovery key</button></p></form>\n</section>\n",
        )
    })
}

fn write_operator(out: &mut String, operator: &Operator) -> fmt::Result {
    let name = Text(operator.name.as_str());
    if operator.of_site {
        return writeln!(
            out,
            "<p><b>{name}</b> {} <span class=\"dim\">of site.yaml</span></p>",
            operator.role
        );
    }
    write!(
        out,
        "<form method=\"post\" action=\"/api/v1/operators/{name}\"><p><b>{name}</b> "
    )?;
    write_roles(out, operator.role)?;
    writeln!(
        out,
        "<button>Change</button> <button formaction=\"/api/v1/operators/{name}/remove\">Remove</button></p></form>"
    )
}

fn write_field(out: &mut String, name: &str, title: &str, kind: &str) -> fmt::Result {
    write!(
        out,
        "<label>{title} <input name=\"{name}\" type=\"{kind}\" autocomplete=\"off\" required></label> "
    )
}

fn write_roles(out: &mut String, chosen: Role) -> fmt::Result {
    out.write_str("<label>Role <select name=\"role\">")?;
    for role in Role::ALL {
        let selected = if role == chosen { " selected" } else { "" };
        write!(out, "<option{selected}>{role}</option>")?;
    }
    out.write_str("</select></label> ")
}

fn open_card(out: &mut String, title: &str, why: Option<&str>) -> fmt::Result {
    writeln!(out, "<section class=\"card\"><h2>{title}</h2>")?;
    if let Some(why) = why {
        writeln!(
            out,
            "<div class=\"problem bad\" role=\"alert\"><b>{}</b></div>",
            Text(why)
        )?;
    }
    Ok(())
}

fn page(
    status: StatusCode,
    title: &str,
    write: impl FnOnce(&mut String) -> fmt::Result,
) -> Response<Body> {
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n\
         <link rel=\"icon\" href=\"data:,\">\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n<h1>{title}</h1>\n"
    );
    write(&mut out).expect("a String takes every text");
    out.push_str("</main>\n</body>\n</html>\n");
    let mut response = html(out.into());
    *response.status_mut() = status;
    response
}
