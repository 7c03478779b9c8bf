//! Who asks, and whether that is enough for what is asked. One table says it for each path ([`need`]); what is not in it and looks like
//! ours takes an admin.

use std::net::IpAddr;

use firstlight_api::people::Role;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use hyper::Response;

use super::forms;
use crate::{
    people::{Claim, Who},
    web::{Body, Web, changes, monitoring, page::Page, refusal},
};

/// Below it is the box's own API server.
pub const KUBERNETES: &str = "/kubernetes";
/// `__Host-`: a browser takes it over TLS only, for this host and no path below, and from nobody else.
pub const COOKIE: &str = "__Host-firstlight";

/// The answer to who may not, or did not say it right.
pub type Refused = Box<Response<Body>>;

/// How it is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Whoever is on the cable reads along.
    Clear,
    Tls,
}

/// What a request takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// For firmware, for servers, and for who is about to log in.
    Nothing,
    Role(Role),
}

/// The whole table. `path` is plain.
pub fn need(method: &Method, path: &str) -> Need {
    let reads = matches!(*method, Method::GET | Method::HEAD);
    let below = |folder: &str| {
        path.strip_prefix(folder)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let Some(rest) = path.strip_prefix("/api/") else {
        return match path {
            "/metrics" | changes::PATH | monitoring::LOGS_PAGE => Need::Role(Role::Viewer),
            _ if path.starts_with(monitoring::PATH) => Need::Role(Role::Viewer),
            _ if Page::of(path, "").is_some() => Need::Role(Role::Viewer),
            "/people" | "/update" => Need::Role(Role::Admin),
            // What its group may is said by Kubernetes.
            _ if below(KUBERNETES) => Need::Role(Role::Viewer),
            // Files that servers boot from; they have nothing to show.
            _ => Need::Nothing,
        };
    };
    match rest {
        "v1/ramdisk/report" | "v1/ramdisk/progress" | "v1/login" | "v1/logout" | "v1/first" => {
            Need::Nothing
        }
        "v1/me" | "v1/password" => Need::Role(Role::Viewer),
        // It says nothing of this site.
        "v1/openapi.json" if reads => Need::Nothing,
        "v1/status" | "v1/events" | "v1/edge" | "v1/logs" | "v1/logs/starts" if reads => {
            Need::Role(Role::Viewer)
        }
        _ if below("/api/v1/artifacts") && reads => Need::Role(Role::Viewer),
        _ if below("/api/v1/artifacts") || below("/api/v1/hosts") => Need::Role(Role::Operator),
        _ => Need::Role(Role::Admin),
    }
}

/// Who may go on with it; else the answer.
pub fn admit(
    web: &Web,
    peer: IpAddr,
    method: &Method,
    path: &str,
    headers: &HeaderMap,
) -> Result<Who, Refused> {
    let who = who(web, peer, headers)?;
    let changes = !matches!(*method, Method::GET | Method::HEAD);
    if changes && !matches!(who, Who::Token(..)) && !path.starts_with("/api/v1/ramdisk/") {
        from_our_page(headers)?;
    }
    let Need::Role(role) = need(method, path) else {
        return Ok(who);
    };
    if who == Who::OnBox && (changes || role > Role::Viewer) && is_misled(headers) {
        return Err(Box::new(refusal(
            StatusCode::FORBIDDEN,
            "call this by an address or as localhost",
        )));
    }
    match who.role() {
        Some(found) if found >= role => Ok(who),
        Some(found) => Err(Box::new(refusal(
            StatusCode::FORBIDDEN,
            format_args!("this takes the role {role}; yours is {found}"),
        ))),
        // Nobody could log in yet, and the page is there for everybody who stands before the box.
        None if role == Role::Viewer
            && !changes
            && !monitoring::is_theirs(path)
            && is_open(web) =>
        {
            Ok(who)
        }
        None => Err(Box::new(log_in_first(web, path, headers))),
    }
}

/// Whether everybody may read. Before the record of people is read, the page knows of no server either.
fn is_open(web: &Web) -> bool {
    match web.people.claim() {
        Claim::Nobody => true,
        Claim::Unknown => web.status.borrow().hosts.is_empty(),
        Claim::Somebody => false,
    }
}

fn who(web: &Web, peer: IpAddr, headers: &HeaderMap) -> Result<Who, Refused> {
    let bearer = headers.get(header::AUTHORIZATION);
    match web.way {
        Way::Clear if peer.is_loopback() => Ok(Who::OnBox),
        Way::Clear if bearer.is_some() => Err(Box::new(refusal(
            StatusCode::FORBIDDEN,
            "what you have just sent could be read on the cable: call https:// instead, and have an admin remove this token",
        ))),
        Way::Clear => Ok(Who::Nobody),
        Way::Tls => {
            if let Some(bearer) = bearer {
                let token = bearer.to_str().ok();
                let token = token.and_then(|value| value.strip_prefix("Bearer "));
                let who = token.and_then(|token| web.people.by_token(token.trim()));
                return who.ok_or_else(|| {
                    Box::new(unauthorized("this token is not known, or has ended"))
                });
            }
            let session = cookie(headers).and_then(|shown| web.people.by_session(shown));
            Ok(session.unwrap_or(Who::Nobody))
        }
    }
}

/// The secret of a session.
pub fn cookie(headers: &HeaderMap) -> Option<&str> {
    let all = headers.get_all(header::COOKIE).iter();
    let all = all.filter_map(|value| value.to_str().ok());
    all.flat_map(|value| value.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .find_map(|(name, value)| (name == COOKIE).then_some(value))
}

/// By a name that a page of somebody else's made point at a port that is forwarded to the box: to the browser it is that page's own.
fn is_misled(headers: &HeaderMap) -> bool {
    let host = headers.get(header::HOST);
    let host = host.and_then(|host| host.to_str().ok()).unwrap_or_default();
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    name != "localhost" && name.trim_matches(['[', ']']).parse::<IpAddr>().is_err()
}

/// A browser says from which page a change comes; a page of somebody else's may change nothing here. Other programs say nothing.
fn from_our_page(headers: &HeaderMap) -> Result<(), Refused> {
    let said = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let host = said("host").unwrap_or_default();
    let site = said("sec-fetch-site").is_none_or(|site| matches!(site, "same-origin" | "none"));
    let origin = said("origin").is_none_or(|origin| {
        let (_, of) = origin.split_once("://").unwrap_or_default();
        !of.is_empty() && of == host
    });
    // A browser names the page by one of the two, and has the cookie.
    let is_named = said("origin").is_some() || said("sec-fetch-site").is_some();
    if site && origin && (is_named || cookie(headers).is_none()) {
        return Ok(());
    }
    Err(Box::new(refusal(
        StatusCode::FORBIDDEN,
        "this came from another page; do it on the box's own",
    )))
}

fn log_in_first(web: &Web, path: &str, headers: &HeaderMap) -> Response<Body> {
    let is_page = matches!(path, "/people" | "/update" | monitoring::LOGS_PAGE)
        || Page::of(path, "").is_some();
    match web.way {
        Way::Tls if is_page => forms::login(StatusCode::UNAUTHORIZED, None),
        Way::Tls => unauthorized("log in, or send a token: `Authorization: Bearer firstlight_…`"),
        Way::Clear => match secure(path, headers).filter(|_| is_page) {
            Some(response) => response,
            None => unauthorized("this takes a login, which is at https:// only"),
        },
    }
}

/// The same over TLS. `None` where the caller does not say how it calls this box.
pub fn secure(path: &str, headers: &HeaderMap) -> Option<Response<Body>> {
    let host = headers.get(header::HOST)?.to_str().ok()?;
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    let letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-.".contains(&byte);
    if name.is_empty() || !name.bytes().all(letter) {
        return None;
    }
    let location = HeaderValue::from_str(&format!("https://{name}{path}")).ok()?;
    let mut response = refusal(StatusCode::PERMANENT_REDIRECT, "over https:// only");
    // Of its own: a browser would keep the one above for ever, and before there are people the page is here.
    *response.status_mut() = StatusCode::TEMPORARY_REDIRECT;
    response.headers_mut().insert(header::LOCATION, location);
    Some(response)
}

fn unauthorized(message: &str) -> Response<Body> {
    let mut response = refusal(StatusCode::UNAUTHORIZED, message);
    response.headers_mut().insert(
        header::WWW_AUTHENTICATE,
        HeaderValue::from_static("Bearer realm=\"firstlight\""),
    );
    response
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_not_in_the_table_takes_an_admin() {
        for path in [
            "/api/",
            "/api/v2/status",
            "/api/v1/operators/x",
            "/api/v1/statusx",
            "/api/v1/artifactsx",
        ] {
            assert_eq!(need(&Method::GET, path), Need::Role(Role::Admin), "{path}");
        }
        assert_eq!(
            need(&Method::POST, "/api/v1/status"),
            Need::Role(Role::Admin)
        );
    }

    #[test]
    fn who_is_on_the_box_is_called_by_its_own_names_only() {
        for (host, misled) in [
            ("127.0.0.1:8080", false),
            ("localhost", false),
            ("[::1]:80", false),
            ("evil.example:8080", true),
            ("", true),
        ] {
            let headers = HeaderMap::from_iter([(header::HOST, HeaderValue::from_static(host))]);
            assert_eq!(is_misled(&headers), misled, "{host}");
        }
        assert!(is_misled(&HeaderMap::new()));
    }

    proptest! {
        #[test]
        fn whatever_headers_say_of_a_session_or_a_page_is_read_or_refused(
            cookies in proptest::collection::vec("(__Host-firstlight=[a-z]{0,4}|[a-z]{0,4}=?[a-z]{0,4})(; ?[a-z=]{0,9}){0,3}|\\PC{0,9}", 0..3),
            origin in "(https?://)?[a-z0-9:.]{0,12}|null",
            host in "[a-z0-9:.\\[\\]-]{0,12}|\\PC{0,6}",
        ) {
            let mut headers = HeaderMap::new();
            for value in cookies {
                headers.extend(HeaderValue::from_str(&value).ok().map(|value| (header::COOKIE, value)));
            }
            let _ = cookie(&headers);
            headers.extend(HeaderValue::from_str(&host).ok().map(|value| (header::HOST, value)));
            if let Some(response) = secure("/people", &headers) {
                let location = response.headers()[header::LOCATION].to_str().unwrap().to_owned();
                prop_assert!(location.starts_with("https://") && location.ends_with("/people") && location.len() < 40, "{location}");
            }
            headers.extend(HeaderValue::from_str(&origin).ok().map(|value| (header::ORIGIN, value)));
            let allowed = from_our_page(&headers).is_ok();
            prop_assert!(!allowed || origin.ends_with(&host), "{origin} {host}");
        }
    }
}
