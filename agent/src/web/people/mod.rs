//! Login, people, tokens and verbs over HTTP (docs/people.md). `gate` says who may ask for what, `input` reads what is sent, `forms` are the
//! pages, `hosts` what people ask of servers, `kubernetes` what they
//! ask of the box's Kubernetes, `kubectl` what was done on the box itself, `approvals` which of that is a word on a server. Must not: decide who somebody is ([`crate::people`]).

mod approvals;
mod forms;
pub mod gate;
mod hosts;
mod input;
pub mod kubectl;
pub mod kubernetes;
#[cfg(test)]
pub mod tests;

use std::net::IpAddr;

use firstlight_api::people::{Me, NewOperator, NewToken, PersonName, Role, TOKEN_DAYS, Unfit};
use http::{HeaderValue, Method, StatusCode, header};
use hyper::{Request, Response, body::Incoming};
use serde::Serialize;

use super::{Body, Web, refusal, text};
use crate::people::{Claim, LONGEST_SESSION, Refusal, Who};
pub use forms::{failed, shown_once};
use gate::{COOKIE, Refused, Way};
use input::Input;

const JSON: &str = "application/json";

/// Words behind `/api/v1/`.
const WORDS: [&str; 9] = [
    "login",
    "logout",
    "first",
    "me",
    "password",
    "operators",
    "tokens",
    "audit",
    "hosts",
];

/// Whether [`answer`] has something to say of it.
pub fn is_theirs(path: &str) -> bool {
    let word = path.strip_prefix("/api/v1/");
    let word = word.and_then(|rest| rest.split('/').next());
    matches!(path, "/login" | "/first" | "/people" | "/update")
        || word.is_some_and(|word| WORDS.contains(&word))
}

/// Who asks may do so.
pub async fn answer(
    web: &Web,
    who: &Who,
    peer: IpAddr,
    path: &str,
    request: Request<Incoming>,
) -> Response<Body> {
    let method = request.method().clone();
    let reads = matches!(method, Method::GET | Method::HEAD);
    if let ("/login" | "/first", true) = (path, reads) {
        return entrance(web, path, request.headers());
    }
    if let ("/update", true) = (path, reads) {
        return forms::update();
    }
    if let ("/people", true) = (path, reads) {
        let audit = web.people.audit().await;
        return forms::people(&web.people.operators(), &web.people.tokens(), &audit);
    }
    let mut words = path.strip_prefix("/api/v1/").unwrap_or_default().split('/');
    let first = words.next().unwrap_or_default();
    let (second, third) = (words.next(), words.next());
    if words.next().is_some() {
        return nothing_here();
    }
    let call = Call {
        web,
        who,
        peer,
        method,
        at: (first, second, third),
    };
    call.answer(request).await
}

/// Where people come in.
fn entrance(web: &Web, path: &str, headers: &http::HeaderMap) -> Response<Body> {
    if web.way == Way::Clear {
        let over_tls = gate::secure(path, headers);
        return over_tls
            .unwrap_or_else(|| refusal(StatusCode::FORBIDDEN, "people log in at https:// only"));
    }
    match (path, web.people.claim()) {
        ("/first", Claim::Nobody) => forms::first(StatusCode::OK, None),
        ("/first", _) => to("/login"),
        (_, Claim::Nobody) => to("/first"),
        _ => forms::login(StatusCode::OK, None),
    }
}

struct Call<'a> {
    web: &'a Web,
    who: &'a Who,
    peer: IpAddr,
    method: Method,
    /// Words of the path.
    at: (&'a str, Option<&'a str>, Option<&'a str>),
}

impl Call<'_> {
    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        let people = &self.web.people;
        match (&self.method, self.at) {
            (&Method::GET, ("me", None, None)) => self.me(),
            (&Method::GET, ("operators", None, None)) => say(StatusCode::OK, &people.operators()),
            (&Method::GET, ("tokens", None, None)) => say(StatusCode::OK, &people.tokens()),
            (&Method::GET, ("audit", None, None)) => say(StatusCode::OK, &people.audit().await),
            (&Method::POST, ("logout", None, None)) => self.log_out(&request),
            (&Method::POST | &Method::PATCH | &Method::DELETE, _) => {
                let input = match input::read(request).await {
                    Ok(input) => input,
                    Err(refused) => return *refused,
                };
                self.change(&input).await.unwrap_or_else(|refused| *refused)
            }
            _ => nothing_here(),
        }
    }

    async fn change(&self, input: &Input) -> Result<Response<Body>, Refused> {
        match (&self.method, self.at) {
            (&Method::POST, ("login", None, None)) => self.log_in(input).await,
            (&Method::POST, ("first", None, None)) => self.first(input).await,
            (&Method::POST, ("password", None, None)) => self.own_password(input).await,
            (&Method::POST, ("operators", None, None)) => {
                let new = NewOperator {
                    name: name(input.need("name")?)?,
                    role: role(input.need("role")?)?,
                    password: input.need("password")?.to_owned(),
                };
                let added = self.web.people.add(self.who, self.peer, new).await;
                self.told(added, input, StatusCode::CREATED)
            }
            (&Method::PATCH | &Method::POST, ("operators", Some(of), None)) => {
                let role = input.get("role").map(role).transpose()?;
                let password = input.get("password").map(str::to_owned);
                let of = name(of)?;
                let changed = self
                    .web
                    .people
                    .change_operator(self.who, self.peer, &of, role, password)
                    .await;
                self.told(changed, input, StatusCode::NO_CONTENT)
            }
            (&Method::DELETE, ("operators", Some(of), None))
            | (&Method::POST, ("operators", Some(of), Some("remove"))) => {
                let removed = self
                    .web
                    .people
                    .remove(self.who, self.peer, &name(of)?)
                    .await;
                self.told(removed, input, StatusCode::NO_CONTENT)
            }
            (&Method::POST, ("tokens", None, None)) => self.make_token(input).await,
            (&Method::DELETE, ("tokens", Some(of), None))
            | (&Method::POST, ("tokens", Some(of), Some("remove"))) => {
                let of = name(of)?;
                let removed = self.web.people.remove_token(self.who, self.peer, &of).await;
                self.told(removed, input, StatusCode::NO_CONTENT)
            }
            (&Method::POST, ("hosts", Some(host), Some(verb))) => {
                let page = format!("/hosts/{host}");
                let done = hosts::carry_out(self.web, self.who, self.peer, host, verb, input).await;
                match done {
                    Ok(()) if input.is_form => Ok(to(&page)),
                    Ok(()) => Ok(text(StatusCode::NO_CONTENT, JSON, "")),
                    Err((status, why)) if input.is_form => {
                        Err(Box::new(forms::failed(status, &why, &page)))
                    }
                    Err((status, why)) => Err(Box::new(refusal(status, why))),
                }
            }
            _ => Err(Box::new(nothing_here())),
        }
    }

    fn me(&self) -> Response<Body> {
        match self.who.role() {
            Some(role) => say(
                StatusCode::OK,
                &Me {
                    name: self.who.name(),
                    role,
                },
            ),
            None => refusal(StatusCode::UNAUTHORIZED, "you are not logged in"),
        }
    }

    /// What must not be said in clear.
    fn over_tls(&self) -> Result<(), Refused> {
        if self.web.way == Way::Tls {
            return Ok(());
        }
        Err(Box::new(refusal(
            StatusCode::FORBIDDEN,
            "what you have just sent could be read on the cable; log in at https:// only, and change this password",
        )))
    }

    async fn log_in(&self, input: &Input) -> Result<Response<Body>, Refused> {
        self.over_tls()?;
        let (name, password) = (input.need("name")?, input.need("password")?);
        match self.web.people.log_in(self.peer, name, password).await {
            Ok(secret) => Ok(logged_in(&secret, input)),
            Err(refused) if input.is_form => Err(Box::new(forms::login(
                status_of(&refused),
                Some(&refused.to_string()),
            ))),
            Err(refused) => Err(Box::new(refuse(&refused))),
        }
    }

    async fn first(&self, input: &Input) -> Result<Response<Body>, Refused> {
        self.over_tls()?;
        let made = async {
            let new = NewOperator {
                name: PersonName::parse(input.get("name").unwrap_or_default())?,
                role: Role::Admin,
                password: input.get("password").unwrap_or_default().to_owned(),
            };
            let code = input.get("code").unwrap_or_default();
            self.web.people.make_first(self.peer, code, new).await
        };
        match made.await {
            Ok(secret) => Ok(logged_in(&secret, input)),
            Err(refused) if input.is_form => Err(Box::new(forms::first(
                status_of(&refused),
                Some(&refused.to_string()),
            ))),
            Err(refused) => Err(Box::new(refuse(&refused))),
        }
    }

    async fn own_password(&self, input: &Input) -> Result<Response<Body>, Refused> {
        let Who::Person(name, _) = self.who else {
            return Err(Box::new(refusal(
                StatusCode::CONFLICT,
                "only a person who has logged in has a password",
            )));
        };
        let people = &self.web.people;
        let changed = async {
            let old = input.get("old").unwrap_or_default();
            let session = people.log_in(self.peer, name.as_str(), old).await?;
            people.log_out(&session);
            let new = input.get("password").unwrap_or_default().to_owned();
            people
                .change_operator(self.who, self.peer, name, None, Some(new))
                .await
        };
        self.told(changed.await, input, StatusCode::NO_CONTENT)
    }

    async fn make_token(&self, input: &Input) -> Result<Response<Body>, Refused> {
        let days = match input.get("days") {
            Some(days) => days.parse().map_err(|_| {
                let why = "`days` is a whole number";
                Box::new(refusal(StatusCode::UNPROCESSABLE_ENTITY, why))
            })?,
            None => TOKEN_DAYS,
        };
        let new = NewToken {
            name: name(input.need("name")?)?,
            role: role(input.need("role")?)?,
            days,
        };
        match self.web.people.make_token(self.who, self.peer, new).await {
            Ok(made) if input.is_form => {
                let ends = format!("It ends at {}.", made.ends);
                Ok(forms::shown_once("A token", &ends, &made.token, "/people"))
            }
            Ok(made) => Ok(say(StatusCode::CREATED, &made)),
            Err(refused) => self.told(Err(refused), input, StatusCode::CREATED),
        }
    }

    fn log_out(&self, request: &Request<Incoming>) -> Response<Body> {
        if let Some(shown) = gate::cookie(request.headers()) {
            self.web.people.log_out(shown);
        }
        let mut response = to("/login");
        let gone = format!("{COOKIE}=; Path=/; Secure; HttpOnly; SameSite=Strict; Max-Age=0");
        set_cookie(&mut response, &gone);
        response
    }

    fn told(
        &self,
        result: Result<(), Refusal>,
        input: &Input,
        status: StatusCode,
    ) -> Result<Response<Body>, Refused> {
        let back = if self.at.0 == "password" {
            "/"
        } else {
            "/people"
        };
        match result {
            Ok(()) if input.is_form => Ok(to(back)),
            Ok(()) => Ok(text(status, JSON, "")),
            Err(refused) if input.is_form => Err(Box::new(forms::failed(
                status_of(&refused),
                &refused.to_string(),
                back,
            ))),
            Err(refused) => Err(Box::new(refuse(&refused))),
        }
    }
}

fn logged_in(secret: &str, input: &Input) -> Response<Body> {
    let mut response = if input.is_form {
        to("/")
    } else {
        text(StatusCode::NO_CONTENT, JSON, "")
    };
    let cookie = format!(
        "{COOKIE}={secret}; Path=/; Secure; HttpOnly; SameSite=Strict; Max-Age={}",
        LONGEST_SESSION.as_secs()
    );
    set_cookie(&mut response, &cookie);
    response
}

fn set_cookie(response: &mut Response<Body>, cookie: &str) {
    if let Ok(cookie) = HeaderValue::from_str(cookie) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
}

/// Another page, by a new question.
pub fn to(path: &str) -> Response<Body> {
    let mut response = refusal(StatusCode::SEE_OTHER, path);
    if let Ok(location) = HeaderValue::from_str(path) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    response
}

fn name(text: &str) -> Result<PersonName, Refused> {
    PersonName::parse(text).map_err(|unfit| Box::new(unfit_for(&unfit)))
}

fn role(text: &str) -> Result<Role, Refused> {
    text.parse().map_err(|unfit| Box::new(unfit_for(&unfit)))
}

fn unfit_for(why: &Unfit) -> Response<Body> {
    refusal(StatusCode::UNPROCESSABLE_ENTITY, why)
}

fn say(status: StatusCode, value: &impl Serialize) -> Response<Body> {
    match serde_json::to_vec(value) {
        Ok(content) => text(status, JSON, content),
        Err(error) => refusal(StatusCode::INTERNAL_SERVER_ERROR, error),
    }
}

fn nothing_here() -> Response<Body> {
    refusal(
        StatusCode::NOT_FOUND,
        "nothing is here; docs/people.md says what can be asked",
    )
}

fn status_of(refused: &Refusal) -> StatusCode {
    match refused {
        Refusal::Wait(_) => StatusCode::TOO_MANY_REQUESTS,
        Refusal::Busy => StatusCode::SERVICE_UNAVAILABLE,
        Refusal::Wrong => StatusCode::UNAUTHORIZED,
        Refusal::Unfit(_) => StatusCode::UNPROCESSABLE_ENTITY,
        Refusal::Conflict(_) => StatusCode::CONFLICT,
        Refusal::Missing(_) => StatusCode::NOT_FOUND,
        Refusal::Broken(_) => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

fn refuse(refused: &Refusal) -> Response<Body> {
    let mut response = refusal(status_of(refused), refused);
    if let Refusal::Wait(seconds) = refused {
        let seconds = HeaderValue::from(*seconds);
        response.headers_mut().insert(header::RETRY_AFTER, seconds);
    }
    response
}
