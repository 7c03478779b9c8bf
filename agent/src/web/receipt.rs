//! `GET /api/v1/receipt`: what the box can prove of its site, signed by the site's CA (docs/receipt.md). Who may is said by
//! `people/gate.rs`: an admin, for it tells what people have done.

use std::{collections::BTreeMap, net::IpAddr};

use anyhow::{Context, Result};
use firstlight_api::{
    bounded,
    people::AuditLine,
    receipt::{Envelope, Installed, Receipt, ServerReceipt, StickReceipt},
    signed::PublicKey,
    site::SiteConfig,
    status::{HostStatus, SiteStatus},
};
use firstlight_netboot::MacAddr;
use firstlight_signature::receipt;
use http::StatusCode;
use hyper::Response;
use serde_json::Value;

use super::{Body, Web, refusal, text};
use crate::{
    clock,
    hosts::ledger::{Deployment, Ledger, Ledgers},
    people::Who,
    pki::Pki,
    start_line::StartedFrom,
};

pub use firstlight_api::receipt::PATH;

const JSON: &str = "application/json";

pub async fn answer(web: &Web, who: &Who, peer: IpAddr) -> Response<Body> {
    let (site, pki) = (
        web.facts.site.borrow().clone(),
        web.facts.pki.borrow().clone(),
    );
    let (Some(site), Some(pki)) = (site, pki) else {
        return refusal(
            StatusCode::SERVICE_UNAVAILABLE,
            "the box is still starting; ask again when the page shows its network",
        );
    };
    let sealed = sealed(web, &site, &pki).await;
    let why_not = sealed.as_ref().err();
    let why_not = why_not.map(|error| bounded::text(&format!("{error:#}")));
    web.people
        .note(&who.name(), peer, "make a receipt", "site", why_not)
        .await;
    match sealed {
        Ok(envelope) => {
            let content = serde_json::to_vec(&envelope).expect("plain JSON");
            text(StatusCode::OK, JSON, content)
        }
        Err(error) => {
            tracing::warn!(error = format!("{error:#}"), "no receipt was made");
            let sentence = bounded::sentence(&format!("no receipt can be made: {error:#}"));
            refusal(StatusCode::CONFLICT, sentence)
        }
    }
}

async fn sealed(web: &Web, site: &SiteConfig, pki: &Pki) -> Result<Envelope> {
    let (paths, status) = (web.paths.clone(), web.status.borrow().clone());
    let stick = match StartedFrom::read(&paths) {
        StartedFrom::Elsewhere => None,
        StartedFrom::Stick | StartedFrom::Trial => {
            let systems = web.update.view().await?.systems;
            Some(StickReceipt {
                slot: systems.running,
                system: systems.system(),
                keys: systems.keys,
                seal: status.seal.clone(),
            })
        }
    };
    let read = tokio::task::spawn_blocking(move || -> Result<_> {
        let ledgers = Ledgers::new(paths.host_ledgers()).load()?;
        let versions = std::fs::read(paths.versions()).context("reading the versions")?;
        let versions: Value = serde_json::from_slice(&versions).context("reading the versions")?;
        Ok((ledgers, versions))
    });
    let (ledgers, versions) = read.await??;
    let (approvals, done) = web.people.audit_for_receipt().await;
    let known = Known {
        site,
        status,
        stick,
        versions,
        ledgers,
        approvals,
        done,
    };
    let receipt = known.receipt(clock::rfc3339());
    receipt::seal(&receipt, &pki.site.certificate, |message| {
        pki.site.sign(message)
    })
}

/// What a receipt is made of.
struct Known<'a> {
    site: &'a SiteConfig,
    status: SiteStatus,
    stick: Option<StickReceipt>,
    versions: Value,
    ledgers: BTreeMap<MacAddr, Ledger>,
    approvals: Vec<AuditLine>,
    done: Vec<AuditLine>,
}

impl Known<'_> {
    fn receipt(self, made: String) -> Receipt {
        let hosts = self.status.hosts.iter();
        let mut shown: BTreeMap<MacAddr, &HostStatus> = hosts
            .filter_map(|host| Some((host.mac.parse().ok()?, host)))
            .collect();
        let with_ledger = self.ledgers.iter();
        let with_ledger =
            with_ledger.map(|(mac, ledger)| server(self.site, *mac, ledger, shown.remove(mac)));
        let mut servers: Vec<ServerReceipt> = with_ledger.collect();
        let bare = Ledger::default();
        let others = shown.iter();
        servers.extend(others.map(|(mac, host)| server(self.site, *mac, &bare, Some(host))));
        Receipt {
            site: self.site.name.to_string(),
            made,
            version: self.status.version,
            join: self.site.join.as_str().to_owned(),
            stick: self.stick,
            versions: self.versions,
            servers,
            approvals: self.approvals,
            done: self.done,
            uploads: self.status.artifacts,
            clusters: self.status.clusters,
            addons: self.status.addons,
            software: self.status.software,
        }
    }
}

/// `host`: as the page shows it, if it has been heard.
fn server(
    site: &SiteConfig,
    mac: MacAddr,
    ledger: &Ledger,
    host: Option<&HostStatus>,
) -> ServerReceipt {
    let hardware = host.and_then(|host| host.hardware.as_ref());
    let text = |text: Option<&String>| text.cloned().unwrap_or_default();
    let approved = ledger.approved.as_deref().and_then(PublicKey::parse);
    let measured = ledger.measured.as_ref();
    // While it is cleaned, what it held may still be there.
    let held = ledger.deployment.as_ref().or(ledger.gives_back.as_ref());
    ServerReceipt {
        name: text(host.map(|host| &host.name)),
        mac: mac.to_string(),
        product: text(hardware.map(|parts| &parts.product)),
        serial: text(hardware.map(|parts| &parts.serial)),
        state: host.map(|host| host.state),
        named: site.host(mac).is_some(),
        approved: approved.map(|key| key.code()).unwrap_or_default(),
        tpm: ledger.tpm,
        quote: measured.and_then(|measured| measured.quote.as_deref().cloned()),
        installed: held.map(installed),
    }
}

fn installed(held: &Deployment) -> Installed {
    let root = held.root.as_ref();
    let disks = root.map(|root| root.disks().map(ToString::to_string).collect());
    Installed {
        complete: held.written,
        at: held.wrote_at.map(clock::rfc3339_of).unwrap_or_default(),
        disks: disks.unwrap_or_default(),
        image: without_password(&held.image.url),
        checksum: held.image.checksum.clone(),
        wrote: held.wrote.clone(),
        delivered: held.delivered,
    }
}

/// An address may say as whom it is asked.
fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return url.to_owned();
    };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let server = authority
        .rsplit_once('@')
        .map_or(authority, |(_, server)| server);
    format!("{scheme}://{server}{path}")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use firstlight_api::{bmh::Image, receipt::Wrote, status::HostState};
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const HEARD: &str = "52:54:00:00:00:01";
    const SILENT: &str = "52:54:00:00:00:02";
    const NEW: &str = "52:54:00:00:00:03";

    fn host(name: &str, mac: &str) -> HostStatus {
        HostStatus {
            name: name.to_owned(),
            mac: mac.to_owned(),
            state: HostState::Running,
            ..HostStatus::default()
        }
    }

    fn known(site: &SiteConfig) -> Known<'_> {
        let key = PublicKey::new([7; 32]);
        let written = Ledger {
            approved: Some(key.to_string()),
            deployment: Some(Deployment {
                image: Image {
                    url: "https://ada:secret@images.example/debian.raw".to_owned(),
                    checksum: "ab".repeat(32),
                    ..Image::default()
                },
                token: Some("a secret's digest".to_owned()),
                written: true,
                wrote: Some(Wrote {
                    image_bytes: 7,
                    ..Wrote::default()
                }),
                wrote_at: Some(1_790_000_000),
                ..Deployment::default()
            }),
            ..Ledger::default()
        };
        let leaves = Ledger {
            gives_back: written.deployment.clone(),
            ..Ledger::default()
        };
        let ledgers = [(HEARD, written), (SILENT, leaves)];
        Known {
            site,
            status: SiteStatus {
                hosts: vec![host("n1", HEARD), host("n3", NEW)],
                ..SiteStatus::default()
            },
            stick: None,
            versions: json!({"firstlight": "0.1.0"}),
            ledgers: ledgers.map(|(mac, it)| (mac.parse().unwrap(), it)).into(),
            approvals: Vec::new(),
            done: Vec::new(),
        }
    }

    #[test]
    fn each_server_is_in_it_once_whether_it_is_heard_or_remembered() {
        let site = SiteConfig::default();
        let receipt = known(&site).receipt("2026-11-30T10:00:00Z".to_owned());
        let servers: Vec<_> = receipt.servers.iter().collect();
        let macs: Vec<&str> = servers.iter().map(|server| server.mac.as_str()).collect();
        assert_eq!(macs, [HEARD, SILENT, NEW]);
        assert_eq!(
            (servers[0].name.as_str(), receipt.join.as_str()),
            ("n1", "open")
        );
        assert_eq!(servers[0].approved, PublicKey::new([7; 32]).code());
        let held = servers[0].installed.as_ref().unwrap();
        assert_eq!(held.image, "https://images.example/debian.raw");
        assert_eq!(
            (held.at.as_str(), held.complete),
            ("2026-09-21T14:13:20Z", true)
        );
        assert!(servers[1].installed.is_some(), "its disk is not clean yet");
        assert!(servers[2].installed.is_none() && servers[2].approved.is_empty());
        let text = serde_json::to_string(&receipt).unwrap();
        assert!(!text.contains("secret"), "{text}");
    }

    proptest! {
        #[test]
        fn an_address_keeps_all_but_who_asks(user in "[a-z:@]{0,9}", server in "[a-z.]{1,9}(:[0-9]{1,4})?", path in "(/[a-z@:]{0,9})?") {
            let whole = format!("http://{user}@{server}{path}");
            prop_assert_eq!(without_password(&whole), format!("http://{server}{path}"));
            prop_assert_eq!(without_password(&server), server);
        }
    }
}
