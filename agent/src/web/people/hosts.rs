//! `POST /api/v1/hosts/NAME/VERB`: what a person asks of a server, written into its object as that person: the box's Kubernetes says
//! whether the role is enough (manifests/people.yaml), `verb::refusal` whether it does harm.

use std::net::IpAddr;

use firstlight_api::{
    bounded,
    status::HostStatus,
    verb::{self, Insistence, Manner, Owner, Verb},
};
use http::{HeaderValue, StatusCode};
use kube::{
    Client,
    api::{Patch, PatchParams},
    core::Request,
};
use serde_json::Value;

use super::input::Input;
use crate::{people::Who, web::Web};

/// Why not.
type WhyNot = (StatusCode, String);

pub async fn carry_out(
    web: &Web,
    who: &Who,
    peer: IpAddr,
    host: &str,
    verb: &str,
    input: &Input,
) -> Result<(), WhyNot> {
    let done = order(web, who, host, verb, input).await;
    let why_not = done.as_ref().err().map(|(_, why)| why.clone());
    let what = format!("host {verb}");
    let host = bounded::text(host);
    web.people
        .note(&who.name(), peer, &bounded::text(&what), &host, why_not)
        .await;
    done
}

async fn order(web: &Web, who: &Who, name: &str, word: &str, input: &Input) -> Result<(), WhyNot> {
    let unknown = |what: String| (StatusCode::NOT_FOUND, what);
    let verb = Verb::of_word(word);
    let manner = match input.get("mode") {
        Some("hard") => Manner::Hard,
        _ => Manner::Soft,
    };
    let patch = verb.and_then(|verb| verb.patch(manner));
    let (Some(verb), Some(patch)) = (verb, patch) else {
        let all = Verb::ALL.into_iter();
        let all = all.filter(|verb| verb.patch(manner).is_some());
        let all: Vec<String> = all.map(Verb::word).collect();
        return Err(unknown(format!(
            "{:?} cannot be asked here, but {}; for the others there is `firstlight hosts`",
            bounded::text(word),
            all.join(", ")
        )));
    };
    let host = {
        let status = web.status.borrow();
        let host = status.hosts.iter().find(|host| host.name == name);
        let host = host.ok_or_else(|| unknown(format!("no server is called {name}")))?;
        let owner = Owner::of(&status, host);
        if let Some(refusal) = verb::refusal(verb, manner, host, owner.as_ref()) {
            let insists = refusal.unless == Some(Insistence::Yes) && input.get("yes").is_some();
            if !insists {
                return Err((StatusCode::CONFLICT, refusal.why));
            }
        }
        host.clone()
    };
    let client = web.facts.kubernetes.borrow().clone();
    let client = client.ok_or((
        StatusCode::SERVICE_UNAVAILABLE,
        "the box's Kubernetes is not up yet".to_owned(),
    ))?;
    write(&client, who, &host, patch).await
}

/// As this person, or as the box for who is logged in there.
async fn write(client: &Client, who: &Who, host: &HostStatus, patch: Value) -> Result<(), WhyNot> {
    let folder = format!(
        "/apis/metal3.io/v1alpha1/namespaces/{}/baremetalhosts",
        host.namespace
    );
    let broken = |error: &dyn std::fmt::Display| {
        (
            StatusCode::BAD_GATEWAY,
            format!("the box's Kubernetes did not take it: {error}"),
        )
    };
    let asked = Request::new(folder);
    let asked = asked.patch(&host.name, &PatchParams::default(), &Patch::Merge(patch));
    let mut request = asked.map_err(|error| broken(&error))?;
    if let Some((user, group)) = impersonated(who) {
        let user = HeaderValue::from_str(&user).map_err(|error| broken(&error))?;
        let headers = request.headers_mut();
        headers.insert("impersonate-user", user);
        headers.insert("impersonate-group", HeaderValue::from_static(group));
    }
    match client.request::<Value>(request).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 403 => {
            Err((StatusCode::FORBIDDEN, status.message.clone()))
        }
        Err(error) => Err(broken(&error)),
    }
}

/// How the box's Kubernetes knows them: a name of its own kind, and the role as a group.
pub fn impersonated(who: &Who) -> Option<(String, &'static str)> {
    match who {
        Who::Person(name, role) => Some((format!("firstlight:person:{name}"), role.group())),
        Who::Token(name, role) => Some((format!("firstlight:token:{name}"), role.group())),
        Who::OnBox | Who::Nobody => None,
    }
}
