//! `https://127.0.0.1:8444/audit`: the box's API server tells here what was done by who is logged in on the box with `kubectl`, as its audit
//! policy says (overlays/box/etc/kubernetes/audit.yaml), so that one log has it all.

use std::{net::IpAddr, time::Duration};

use firstlight_api::bounded;
use http::StatusCode;
use http_body_util::{BodyExt, Limited};
use hyper::{Request, Response, body::Incoming};
use serde::Deserialize;
use serde_json::Value;

use super::approvals;
use crate::{
    people::{People, Who},
    web::{Body, refusal, text},
};

pub const PATH: &str = "/audit";
/// Twenty events (the API server's unit), which say who and what; of a `BareMetalHost` also what was written.
const LARGEST: usize = 8 << 20;
const TIME: Duration = Duration::from_secs(20);
/// Of one batch; the API server sends fewer.
const MOST: usize = 1000;

#[derive(Deserialize)]
struct EventList {
    items: Vec<Event>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    verb: String,
    #[serde(default, rename = "sourceIPs")]
    source_ips: Vec<IpAddr>,
    object_ref: Option<Reference>,
    #[serde(default)]
    response_status: Answer,
    #[serde(default, rename = "requestURI")]
    request_uri: String,
    /// Of a `BareMetalHost` only.
    #[serde(default)]
    request_object: Value,
}

#[derive(Deserialize)]
struct Reference {
    #[serde(default)]
    resource: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    name: String,
}

#[derive(Default, Deserialize)]
struct Answer {
    #[serde(default)]
    code: u16,
    #[serde(default)]
    message: String,
}

/// What a line of the log says of it.
#[derive(Debug, PartialEq)]
struct Told {
    from: IpAddr,
    what: String,
    target: String,
    why_not: Option<String>,
}

pub async fn take(people: &People, request: Request<Incoming>) -> Response<Body> {
    let body = Limited::new(request.into_body(), LARGEST).collect();
    let Ok(Ok(body)) = tokio::time::timeout(TIME, body).await else {
        return refusal(StatusCode::PAYLOAD_TOO_LARGE, "send fewer events at a time");
    };
    let Some(told) = parse(&body.to_bytes()) else {
        return refusal(
            StatusCode::BAD_REQUEST,
            "this is no EventList of audit.k8s.io/v1",
        );
    };
    let who = Who::OnBox.name();
    for told in told {
        people
            .note(&who, told.from, &told.what, &told.target, told.why_not)
            .await;
    }
    text(StatusCode::OK, "application/json", "{}")
}

fn parse(body: &[u8]) -> Option<Vec<Told>> {
    let list: EventList = serde_json::from_slice(body).ok()?;
    let told = list.items.into_iter().take(MOST).flat_map(|event| {
        let query = event.request_uri.split_once('?').map(|(_, query)| query);
        let approved = if query.is_some_and(approvals::is_tried) {
            Vec::new()
        } else {
            approvals::in_json(&event.request_object)
        };
        let target = event.object_ref.map_or(String::new(), |of| {
            let place = [&of.namespace, &of.name]
                .into_iter()
                .filter(|word| !word.is_empty());
            let place: Vec<&str> = place.map(String::as_str).collect();
            format!("{} {}", of.resource, place.join("/"))
        });
        let Answer { code, message } = event.response_status;
        let from = event.source_ips.first().copied();
        let verb = bounded::text(&format!("kubectl {}", event.verb));
        let lines = std::iter::once(verb).chain(approved).map(move |what| Told {
            from: from.unwrap_or(IpAddr::from([127, 0, 0, 1])),
            what,
            target: bounded::text(target.trim()),
            why_not: (code >= 400).then(|| bounded::text(&format!("{code} {message}"))),
        });
        lines.collect::<Vec<_>>()
    });
    Some(told.collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    #[test]
    fn an_event_is_a_line() {
        let list = json!({"kind": "EventList", "apiVersion": "audit.k8s.io/v1", "items": [
            {"verb": "patch", "user": {"username": "kubernetes-admin"}, "sourceIPs": ["100.64.0.1"],
             "objectRef": {"resource": "baremetalhosts", "namespace": "default", "name": "n1", "apiGroup": "metal3.io"},
             "requestURI": "/apis/metal3.io/v1alpha1/namespaces/default/baremetalhosts/n1?fieldManager=kubectl-annotate",
             "requestObject": {"metadata": {"annotations": {"firstlight.internal/install": "wipe"}}},
             "responseStatus": {"metadata": {}, "code": 200}},
            {"verb": "list", "objectRef": {"resource": "secrets"}, "responseStatus": {"code": 403, "message": "forbidden: \u{1b}[31m"}},
        ]});
        let told = parse(list.to_string().as_bytes()).unwrap();
        assert_eq!(
            told[0],
            Told {
                from: [100, 64, 0, 1].into(),
                what: "kubectl patch".to_owned(),
                target: "baremetalhosts default/n1".to_owned(),
                why_not: None,
            }
        );
        let (word, target) = (told[1].what.as_str(), told[1].target.as_str());
        assert_eq!(
            (word, target),
            ("host install wipe", "baremetalhosts default/n1")
        );
        assert_eq!(told[2].target, "secrets");
        let why_not = told[2].why_not.as_deref().unwrap();
        assert!(why_not.starts_with("403 forbidden") && !why_not.contains('\u{1b}'));
    }

    proptest::proptest! {
        #[test]
        fn whatever_is_said_to_be_done_is_a_short_line_or_nothing(noise: Vec<u8>, verb in ".{0,400}", name in ".{0,400}", code: u16) {
            let _ = parse(&noise);
            let event = json!({"items": [{"verb": verb, "objectRef": {"name": name}, "responseStatus": {"code": code, "message": name}}]});
            for line in parse(event.to_string().as_bytes()).unwrap() {
                let words = [line.what, line.target, line.why_not.unwrap_or_default()];
                proptest::prop_assert!(words.iter().all(|word| word.chars().count() <= 256 && !word.contains(char::is_control)));
            }
        }
    }
}
