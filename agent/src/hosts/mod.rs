//! The hosts controller: from a server's first sign of life to its own operating system, by way of Ironic.
//!
//! `plan` decides everything about one host from what is known of it ([`plan::Observed`] to [`plan::Plan`], pure: a table of
//! states). `fold` owns all hosts (`host`): an event in, effects out, pure as well ([`event`]). `runner` brings the events and carries
//! the effects out: what is shown (boot targets for DHCP, directives for ramdisks, the list for the page, `BareMetalHost` objects), what
//! is written down (`memory` says what must be on the disk before what), actions on Ironic (`apply`), writes to Kubernetes (`objects`).
//!
//! The object's spec is the intent (`intent`), Ironic is the engine, the object's status is what people read. After a restart
//! every host is re-derived from Ironic's nodes, the API objects, what the machine itself reports, and one small file a
//! host (`ledger`) for what none of them can know. A host that Kubernetes has never heard of is installed without it;
//! any other waits until it has been asked. Without Ironic hosts are shown and wait.
//!
//! To add a case: a row in `plan` with its test in `plan/tests.rs`; `tests.rs` plays whole installations against the fake
//! Ironic, with a restart of the controller after every step.

mod account;
mod account_writer;
mod admission;
mod apply;
mod bmc;
mod bootstrap;
mod delivery;
mod drive;
mod event;
mod fold;
mod honoured;
mod host;
mod image;
mod intent;
mod known;
pub mod kube_store;
pub mod ledger;
pub mod made;
mod measured;
mod memory;
mod node_uuid;
mod object;
mod objects;
mod plan;
mod policy;
mod poll;
mod ramdisk_files;
mod rmcp;
mod root_disk;
mod runner;
pub mod store;
mod stray;
#[cfg(test)]
mod tests;
mod token;
mod tpm;
mod who;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use anyhow::{Context, Result};
use firstlight_api::{
    bmh::INSTALL_ANNOTATION, names::BOOTSTRAP_PORT, site::SiteConfig, status::Problem,
};
use firstlight_ironic::{Client, ClientConfig, Credentials};
use firstlight_netboot::BootSite;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    fleet,
    ironic_files::{self, IronicAccess},
    network::firewall::Endpoint,
    paths::Paths,
    pki::Pki,
    sources::Sources,
    ssh::{self, Keys},
    status::StatusSender,
};
use fold::Pace;
use kube_store::KubeStore;
use ledger::Ledgers;
use poll::IronicEnd;
use ramdisk_files::RamdiskFiles;
use runner::{Inputs, Settings};

pub use intent::SitePolicy;

/// For one request to Ironic, which goes on with it when nobody waits any more. An emulated box takes a minute for some.
const IRONIC_TIMEOUT: Duration = Duration::from_mins(4);

/// What the rest of the agent publishes and this controller waits for.
pub struct Facts {
    /// There once the state partition is.
    pub pki: watch::Receiver<Option<Arc<Pki>>>,
    pub site: watch::Receiver<Option<Arc<SiteConfig>>>,
    pub ironic: watch::Receiver<Option<IronicAccess>>,
    pub kubernetes: watch::Receiver<Option<kube::Client>>,
    pub artifacts: watch::Receiver<Option<crate::store::Store>>,
    pub bmcs: watch::Sender<BTreeSet<Endpoint>>,
    /// What network boot tells a ramdisk.
    pub boot: watch::Receiver<Option<BootSite>>,
}

/// Runs until `stop`.
pub async fn run(
    paths: Paths,
    mut facts: Facts,
    controller: fleet::Controller,
    status: StatusSender,
    stop: CancellationToken,
) -> Result<()> {
    let work = async {
        let Some(site) = facts.site.wait_for(Option::is_some).await?.clone() else {
            return Ok(());
        };
        // What the ledgers say is on the state partition; before that, an empty directory would look like no memory at all.
        facts.pki.wait_for(Option::is_some).await?;
        let ledgers = Ledgers::new(paths.host_ledgers());
        tell_damaged(&ledgers, &status);
        let packages = Sources::new(&paths, site.provisioning.address.address());
        let settings = Settings {
            judged_by: fold::Settings {
                unclaimed: SitePolicy::of(&site),
                networks: site
                    .provisioning
                    .networks()
                    .iter()
                    .map(|network| network.first()..=network.last())
                    .collect(),
                site,
                image: image::load(&paths.images()),
                pace: Pace::default(),
            },
            ledgers,
            keys: Keys::new(paths.host_keys(), ssh::PORT),
            packages,
            ramdisk: RamdiskFiles::new(facts.boot.clone(), paths.netboot()),
        };
        let ironic = watch::Sender::new(None);
        let store = watch::Sender::new(None);
        let inputs = Inputs {
            fleet: controller,
            ironic: ironic.subscribe(),
            store: store.subscribe(),
            artifacts: facts.artifacts.clone(),
            bmcs: facts.bmcs.clone(),
            status,
        };
        tokio::try_join!(
            runner::run(settings, inputs),
            follow(&mut facts.ironic, &ironic, ironic_end),
            follow(&mut facts.kubernetes, &store, |client| Ok(KubeStore::new(
                client
            ))),
        )?;
        Ok(())
    };
    tokio::select! {
        result = work => result,
        () = stop.cancelled() => Ok(()),
    }
}

/// Whether servers carry, or are getting, systems that this box has installed.
pub fn has_installed(paths: &Paths) -> bool {
    let ledgers = Ledgers::new(paths.host_ledgers());
    let known = ledgers.load().unwrap_or_default();
    known.values().any(|ledger| ledger.deployment.is_some())
}

/// These hosts are listed and left alone; a person says what becomes of them.
fn tell_damaged(ledgers: &Ledgers, status: &StatusSender) {
    let damaged = ledgers.put_damaged_aside();
    let problems = damaged.into_iter().map(|mac| Problem {
        what: format!("what the box knew about the server {mac} cannot be read any more, so it is left alone"),
        next: format!("if it may be installed anew, say so with the annotation {INSTALL_ANNOTATION} on its BareMetalHost; the damaged file is kept in {}", ledgers.dir().display()),
    });
    status.problems("ledgers", problems.collect());
}

/// Publishes `make` of every value that appears.
async fn follow<A: Clone, B>(
    from: &mut watch::Receiver<Option<A>>,
    to: &watch::Sender<Option<B>>,
    make: impl Fn(A) -> Result<B>,
) -> Result<()> {
    loop {
        let value = from.borrow_and_update().clone();
        if let Some(value) = value {
            to.send_replace(Some(make(value)?));
        }
        from.changed().await?;
    }
}

fn ironic_end(access: IronicAccess) -> Result<IronicEnd> {
    let config = ClientConfig {
        url: format!("https://{}:6385", access.address),
        ca_pem: access.ca.clone(),
        credentials: Some(Credentials {
            user: ironic_files::USER.to_owned(),
            password: access.password,
        }),
        timeout: IRONIC_TIMEOUT,
    };
    let client = Client::new(&config).context("making a client for Ironic")?;
    Ok(IronicEnd {
        client,
        box_http: format!("http://{}", access.address),
        bootstrap: format!("https://{}:{}/bootstrap/v1", access.address, BOOTSTRAP_PORT),
        ca: access.ca,
    })
}
