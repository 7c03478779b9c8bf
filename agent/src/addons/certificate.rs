//! The certificate that a chart of the stick asks for by an annotation: of the site's CA, for the names below its domains, in a Secret of the
//! cluster. It is renewed a third of its life before its end. A Secret that a person made is never touched.
//!
//! Domains come from the Addon, which is the box's: whoever may only write to the cluster gets no names signed.

use std::path::Path;

use anyhow::{Context, Result};
use firstlight_api::{addon::Addon, names::REGISTRY, site::Domain};
use k8s_openapi::{
    ByteString, api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::Value;

use super::{MANAGER, wishes};
use crate::{
    clock,
    pki::{Authority, CertSpec, fingerprint},
};

/// Of a chart, in its `Chart.yaml`: NAMESPACE/NAME of the Secret.
const ASKED: &str = "firstlight.internal/certificate";
/// On the Secret: what is in it. Without them, and with another certificate than this one, it is somebody else's: `kubectl apply` over it
/// leaves annotations where they are.
const FINGERPRINT: &str = "firstlight.internal/certificate-sha256";
const NAMES: &str = "firstlight.internal/names";
const AUTHORITY: &str = "firstlight.internal/authority";
const RENEW_AFTER: &str = "firstlight.internal/renew-after";
const CERTIFICATE: &str = "tls.crt";
/// Of the Addon's values.
const DOMAINS: &str = "domains";
const MOST: usize = 20;
/// A name with one more label is an address of a server, and has 253 characters at most.
const LONGEST: usize = 253 - 64;
const DAY: i64 = 24 * 3600;
/// What browsers take at most is 398 days.
const LIFE: i64 = 365 * DAY;
const RENEWED: i64 = LIFE / 3 * 2;

/// Where a certificate is wanted, and for which names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    namespace: String,
    secret: String,
    names: Vec<String>,
}

impl Request {
    /// `None`: the chart asks for none. An error is a sentence for who wrote the values.
    pub fn of(chart: &Path, addon: &Addon) -> Result<Option<Self>, String> {
        let Some((namespace, secret)) = wishes::names(chart, ASKED) else {
            return Ok(None);
        };
        Ok(Some(Self {
            namespace,
            secret,
            names: names(addon)?,
        }))
    }
}

fn names(addon: &Addon) -> Result<Vec<String>, String> {
    let own = format!("apps.{}.internal", addon.spec.cluster);
    let domains = match addon.spec.values.get(DOMAINS) {
        None | Some(Value::Null) => vec![own],
        Some(Value::Array(list)) if list.is_empty() => vec![own],
        Some(Value::Array(list)) if list.len() <= MOST => list
            .iter()
            .map(|one| one.as_str().unwrap_or_default().to_ascii_lowercase())
            .collect(),
        Some(_) => {
            return Err(format!(
                "values.{DOMAINS} is a list of at most {MOST} domains, for example [{own}]"
            ));
        }
    };
    for domain in &domains {
        check(domain)?;
    }
    Ok(domains.iter().map(|domain| format!("*.{domain}")).collect())
}

fn check(domain: &str) -> Result<(), String> {
    let wrong = |why: &str| Err(format!("values.{DOMAINS}: `{domain:.100}` {why}"));
    if domain.len() > LONGEST || domain.parse::<Domain>().is_err() {
        return wrong("is no domain, as `apps.example.org` is one");
    }
    if !domain.contains('.') {
        return wrong("has one label; a certificate for everything below it is not made");
    }
    if REGISTRY
        .split_once('.')
        .is_some_and(|(_, of_the_box)| domain == of_the_box)
    {
        return wrong("is where the box's own services are; take one below it");
    }
    Ok(())
}

/// Made if it is not there, if the names or the CA are others, and when its time has come.
pub async fn keep(client: &Client, request: &Request, authority: &Authority) -> Result<()> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), &request.namespace);
    let title = || format!("the Secret {}/{}", request.namespace, request.secret);
    let now = clock::wall_seconds();
    let found = secrets.get_opt(&request.secret).await.with_context(title)?;
    match found {
        None => {
            let made = make(request, authority, now)?;
            secrets
                .create(&PostParams::default(), &made)
                .await
                .with_context(title)?;
        }
        Some(found) if is_due(&found, request, authority, now) => {
            let mut made = make(request, authority, now)?;
            // Somebody who wrote in between is not overwritten.
            made.metadata.resource_version = found.metadata.resource_version;
            let params = PatchParams::apply(MANAGER).force();
            secrets
                .patch(&request.secret, &params, &Patch::Apply(&made))
                .await
                .with_context(title)?;
        }
        Some(_) => {}
    }
    Ok(())
}

fn is_due(found: &Secret, request: &Request, authority: &Authority, now: i64) -> bool {
    let annotations = found.metadata.annotations.as_ref();
    let said = |key: &str| annotations?.get(key).map(String::as_str);
    let certificate = found.data.as_ref().and_then(|data| data.get(CERTIFICATE));
    let held = certificate.and_then(|pem| fingerprint(str::from_utf8(&pem.0).ok()?).ok());
    let (Some(names), Some(by), Some(renew)) = (said(NAMES), said(AUTHORITY), said(RENEW_AFTER))
    else {
        return false;
    };
    if held.is_none() || held.as_deref() != said(FINGERPRINT) {
        return false;
    }
    // Times are of one form, so they compare as texts. One that is too far away was made by a clock that was ahead.
    let [earliest, latest] = [now, now + RENEWED + DAY].map(clock::rfc3339_of);
    let is_in_time = (earliest.as_str()..latest.as_str()).contains(&renew);
    names != request.names.join(" ") || by != authority.fingerprint || !is_in_time
}

fn make(request: &Request, authority: &Authority, now: i64) -> Result<Secret> {
    let pair = authority.issue_for(
        &CertSpec::for_services(&request.names),
        [now - DAY, now + LIFE],
    )?;
    let said = [
        (FINGERPRINT, fingerprint(&pair.certificate)?),
        (NAMES, request.names.join(" ")),
        (AUTHORITY, authority.fingerprint.clone()),
        (RENEW_AFTER, clock::rfc3339_of(now + RENEWED)),
    ];
    let data = [
        ("ca.crt", authority.certificate.clone()),
        (CERTIFICATE, pair.certificate),
        ("tls.key", pair.key),
    ];
    Ok(Secret {
        metadata: ObjectMeta {
            name: Some(request.secret.clone()),
            namespace: Some(request.namespace.clone()),
            annotations: Some(said.map(|(key, value)| (key.to_owned(), value)).into()),
            ..ObjectMeta::default()
        },
        type_: Some("kubernetes.io/tls".to_owned()),
        data: Some(
            data.map(|(key, text)| (key.to_owned(), ByteString(text.into_bytes())))
                .into(),
        ),
        ..Secret::default()
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs;

    use serde_json::json;

    use super::*;
    use crate::pki::AuthorityName;

    const NOW: i64 = 1_795_219_200;

    fn addon(domains: &Value) -> Addon {
        let mut addon = Addon::default();
        "lab".clone_into(&mut addon.spec.cluster);
        addon
            .spec
            .values
            .insert(DOMAINS.to_owned(), domains.clone());
        addon
    }

    fn wanted(names: &[&str]) -> Request {
        Request {
            namespace: "ways".to_owned(),
            secret: "site".to_owned(),
            names: names.iter().map(|&name| name.to_owned()).collect(),
        }
    }

    #[test]
    fn a_chart_asks_by_an_annotation_and_has_the_clusters_domain_without_a_word() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Request::of(dir.path(), &addon(&json!([]))), Ok(None));
        let chart = "name: gateway\nversion: 0.1.0\nannotations:\n  firstlight.internal/certificate: ways/site\n";
        fs::write(dir.path().join("Chart.yaml"), chart).unwrap();
        for none in [json!([]), json!(null)] {
            let found = Request::of(dir.path(), &addon(&none)).unwrap();
            assert_eq!(found, Some(wanted(&["*.apps.lab.internal"])));
        }
        let two = Request::of(
            dir.path(),
            &addon(&json!(["a.example.org", "B.example.org"])),
        );
        assert_eq!(
            two,
            Ok(Some(wanted(&["*.a.example.org", "*.b.example.org"])))
        );
    }

    #[test]
    fn domains_that_are_none_or_the_boxs_own_are_refused_in_a_sentence() {
        for (domains, part) in [
            (json!("example.org"), "is a list"),
            (json!(vec!["a.example.org"; MOST + 1]), "at most 20"),
            (json!([7]), "`` is no domain"),
            (json!(["*.example.org"]), "is no domain"),
            (json!(["-a.example.org"]), "is no domain"),
            (json!(["192.168.1."]), "is no domain"),
            (json!([format!("{}.org", "a.".repeat(120))]), "is no domain"),
            (json!(["internal"]), "one label"),
            (json!(["firstlight.internal"]), "the box's own services"),
        ] {
            let error = names(&addon(&domains)).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn it_is_made_anew_for_other_names_by_another_ca_and_before_its_end() {
        let authority = Authority::make(AuthorityName::Site, NOW).unwrap();
        let wish = wanted(&["*.apps.lab.internal"]);
        let made = make(&wish, &authority, NOW).unwrap();
        let due = |wish: &Request, authority: &Authority, days: i64| {
            is_due(&made, wish, authority, NOW + days * DAY)
        };
        assert!(!due(&wish, &authority, 0) && !due(&wish, &authority, 240));
        assert!(due(&wish, &authority, 244), "four months before its end");
        assert!(due(&wish, &authority, -400), "the clock was ahead");
        assert!(due(&wanted(&["*.b.org"]), &authority, 0));
        let other = Authority::make(AuthorityName::Site, NOW).unwrap();
        assert!(due(&wish, &other, 0));
        let of_a_person = Secret::default();
        assert!(!is_due(&of_a_person, &wish, &other, NOW + LIFE));
        let mut applied_over_ours = made.clone();
        let mine = ByteString(b"mine".to_vec());
        applied_over_ours.data = Some([(CERTIFICATE.to_owned(), mine)].into());
        assert!(!is_due(&applied_over_ours, &wish, &other, NOW + LIFE));
    }
}
