//! `https://BOX/kubernetes`: the box's own API server, asked in the name of who asks. `kubectl` with a token needs no login over SSH, and what
//! it may is what the role's group may (manifests/people.yaml).
//!
//! What a caller says of himself in headers (another user, a certificate, a cookie) is not passed on.

use std::{io, net::IpAddr, time::Duration};

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use hyper::{Request, Response, body::Incoming};

use super::{approvals, hosts::impersonated};
use crate::{
    people::Who,
    web::{Body, Web, refusal},
};

/// As much as the API server takes of one object.
const LARGEST: usize = 3 << 20;
const TIME: Duration = Duration::from_mins(1);
/// What matters to the API server of a request, and to a client of its answer.
const PASSED: [HeaderName; 6] = [
    header::ACCEPT,
    header::CONTENT_TYPE,
    header::USER_AGENT,
    header::WARNING,
    header::RETRY_AFTER,
    HeaderName::from_static("audit-id"),
];

/// `below`: the path behind `/kubernetes`, with its query.
pub async fn answer(
    web: &Web,
    who: &Who,
    peer: IpAddr,
    below: &str,
    request: Request<Incoming>,
) -> Response<Body> {
    let Some((user, group)) = impersonated(who) else {
        return refusal(
            StatusCode::FORBIDDEN,
            "who is on the box has `kubectl` there; others come over https:// with a token",
        );
    };
    if request.headers().contains_key(header::UPGRADE) {
        return refusal(
            StatusCode::NOT_IMPLEMENTED,
            "exec, attach, cp and port-forward are not passed on; use `kubectl` on the box over SSH",
        );
    }
    let Some(client) = web.facts.kubernetes.borrow().clone() else {
        return refusal(
            StatusCode::SERVICE_UNAVAILABLE,
            "the box's Kubernetes is not up yet",
        );
    };
    let method = request.method().clone();
    let mut passed = http::Request::builder().method(&method).uri(below);
    if let Some(headers) = passed.headers_mut() {
        *headers = passed_on(request.headers());
        if let Ok(user) = HeaderValue::from_str(&user) {
            headers.insert("impersonate-user", user);
            headers.insert("impersonate-group", HeaderValue::from_static(group));
        }
    }
    let body = Limited::new(request.into_body(), LARGEST).collect();
    let Ok(Ok(body)) = tokio::time::timeout(TIME, body).await else {
        return refusal(
            StatusCode::PAYLOAD_TOO_LARGE,
            "an object is smaller than 3 MiB, and comes within a minute",
        );
    };
    let body = body.to_bytes();
    let approved = approved(below, &body);
    let Ok(passed) = passed.body(kube::client::Body::from(body.to_vec())) else {
        return refusal(StatusCode::BAD_REQUEST, "this is no path of Kubernetes");
    };
    let answered = match client.send(passed).await {
        Ok(answered) => passed_back(answered),
        Err(error) => refusal(
            StatusCode::BAD_GATEWAY,
            format_args!("the box's Kubernetes did not answer: {error}"),
        ),
    };
    if is_noted(&method, below) {
        let failed = !answered.status().is_success();
        let why_not = failed.then(|| answered.status().to_string());
        let path = below.split('?').next().unwrap_or_default();
        let path = firstlight_api::bounded::text(path);
        let what = format!("kubernetes {method}");
        for what in [what].into_iter().chain(approved) {
            let why_not = why_not.clone();
            web.people
                .note(&who.name(), peer, &what, &path, why_not)
                .await;
        }
    }
    answered
}

/// Words on a server that are in what is written there, unless it is only tried.
fn approved(below: &str, body: &[u8]) -> Vec<String> {
    let (path, query) = below.split_once('?').unwrap_or((below, ""));
    // Of its status nobody takes annotations.
    let mut words = path.split('/').skip_while(|word| *word != "baremetalhosts");
    let is_host = words.next().is_some() && words.count() <= 1;
    if !is_host || approvals::is_tried(query) {
        return Vec::new();
    }
    approvals::in_body(body)
}

/// Changes, and what a secret was read by.
fn is_noted(method: &Method, below: &str) -> bool {
    let asks_only = [
        "selfsubjectaccessreviews",
        "selfsubjectrulesreviews",
        "selfsubjectreviews",
    ];
    if asks_only.iter().any(|kind| below.contains(kind)) {
        return false;
    }
    !matches!(*method, Method::GET | Method::HEAD) || below.contains("/secrets")
}

fn passed_on(headers: &HeaderMap) -> HeaderMap {
    let mut passed = HeaderMap::new();
    for name in PASSED {
        for value in headers.get_all(&name) {
            passed.append(name.clone(), value.clone());
        }
    }
    passed
}

fn passed_back(answered: Response<kube::client::Body>) -> Response<Body> {
    let (head, body) = answered.into_parts();
    let body = body.map_err(io::Error::other).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = head.status;
    *response.headers_mut() = passed_on(&head.headers);
    response
        .headers_mut()
        .insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn nobody_says_by_a_header_that_he_is_somebody_else(
            name in "(impersonate-[a-z]{1,9}|x-remote-[a-z]{1,9}|authorization|cookie|host|connection|[a-z-]{1,12})",
            value in "[ -~]{0,20}",
        ) {
            let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::from_str(&value)) else {
                return Ok(());
            };
            let passed = passed_on(&HeaderMap::from_iter([(name.clone(), value)]));
            prop_assert!(passed.is_empty() || PASSED.contains(&name));
        }
    }

    #[test]
    fn a_word_on_a_server_is_noted_where_it_counts() {
        let body = br#"{"metadata":{"annotations":{"firstlight.internal/approve":"7Q2M"}}}"#;
        let host = "/apis/metal3.io/v1alpha1/namespaces/default/baremetalhosts/n1";
        assert_eq!(approved(host, body), ["host approve 7Q2M"]);
        let forced = format!("{host}?fieldManager=dryRun");
        assert_eq!(approved(&forced, body), ["host approve 7Q2M"]);
        assert!(approved(&format!("{host}?dryRun=All"), body).is_empty());
        assert!(approved(&format!("{host}/status"), body).is_empty());
        assert!(approved("/api/v1/namespaces/default/configmaps/n1", body).is_empty());
    }

    #[test]
    fn changes_and_reads_of_secrets_are_noted() {
        for (method, path, noted) in [
            (Method::GET, "/api/v1/pods", false),
            (
                Method::GET,
                "/api/v1/namespaces/default/secrets?limit=500",
                true,
            ),
            (
                Method::PATCH,
                "/apis/metal3.io/v1alpha1/namespaces/default/baremetalhosts/n1",
                true,
            ),
            (
                Method::POST,
                "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
                false,
            ),
        ] {
            assert_eq!(is_noted(&method, path), noted, "{path}");
        }
    }
}
