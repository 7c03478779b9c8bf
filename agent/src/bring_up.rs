//! The order in which the box comes up. Each task here waits for what it needs, says so, and publishes what it made.

use std::{collections::BTreeSet, net::Ipv4Addr, sync::Arc};

use anyhow::Result;
use firstlight_api::{
    names::HTTP_PORT,
    site::{SiteConfig, Standing},
    status::Problem,
};
use firstlight_netboot::{BootSite, BoxHttp, CaFingerprint, Guard};
use sha2::{Digest, Sha256};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    clock,
    clusters::{self, Stick},
    dhcp::{self, Dhcp},
    files,
    fleet::Fleet,
    ironic_files::{self, IronicAccess},
    keep::Kept,
    kubernetes,
    network::{self, Heard, Segment, firewall::Endpoint},
    notify,
    options::BoxForm,
    paths::Paths,
    pki::{self, Pki},
    registry_files, state, state_versions,
    status::{StatusSender, StepName},
    store::Store,
};

const IRONIC_PORT: u16 = 6385;

/// Values that one task publishes and others wait for.
#[derive(Clone)]
pub struct Facts {
    pub site: watch::Sender<Option<Arc<SiteConfig>>>,
    pub segment: watch::Sender<Option<Segment>>,
    /// How often the provisioning NIC got a carrier.
    pub link_ups: watch::Sender<u32>,
    /// What the DHCP server has learned of the segment.
    pub heard: watch::Sender<Option<Heard>>,
    /// The uplink, and the name servers that are told there.
    pub outside: watch::Sender<Option<Segment>>,
    pub name_servers: watch::Sender<Vec<Ipv4Addr>>,
    pub pki: watch::Sender<Option<Arc<Pki>>>,
    pub boot: watch::Sender<Option<BootSite>>,
    pub ironic: watch::Sender<Option<IronicAccess>>,
    pub kubernetes: watch::Sender<Option<kube::Client>>,
    /// Cluster API's kinds are served, and its managers run.
    pub cluster_api: watch::Sender<bool>,
    pub stick: watch::Sender<Option<Arc<Stick>>>,
    pub store: watch::Sender<Option<Store>>,
    /// Addresses that DHCP has leased.
    pub leased: watch::Sender<Arc<BTreeSet<Ipv4Addr>>>,
    /// Where the BMCs listen that hosts name.
    pub bmcs: watch::Sender<BTreeSet<Endpoint>>,
}

impl Default for Facts {
    fn default() -> Self {
        Self {
            site: watch::Sender::new(None),
            segment: watch::Sender::new(None),
            link_ups: watch::Sender::default(),
            heard: watch::Sender::new(None),
            outside: watch::Sender::new(None),
            name_servers: watch::Sender::default(),
            pki: watch::Sender::new(None),
            boot: watch::Sender::new(None),
            ironic: watch::Sender::new(None),
            kubernetes: watch::Sender::new(None),
            cluster_api: watch::Sender::new(false),
            stick: watch::Sender::new(None),
            store: watch::Sender::new(None),
            leased: watch::Sender::default(),
            bmcs: watch::Sender::default(),
        }
    }
}

/// `box0`, the state partition and the PKI, without which nothing of Kubernetes may start; then systemd is told.
pub async fn foundation(
    paths: Paths,
    form: BoxForm,
    status: StatusSender,
    facts: Facts,
    stop: CancellationToken,
) -> Result<()> {
    if form != BoxForm::Desk {
        network::make_box_interface(&paths, &status, &stop).await?;
    }
    state::wait_for_state(&paths, &status, &stop).await;
    if stop.is_cancelled() {
        return Ok(());
    }
    if let Err(refused) = state_versions::check(&paths) {
        status.failed(StepName::State, refused.what, refused.next);
        // Neither Kubernetes nor anything that waits for keys begins.
        stop.cancelled().await;
        return Ok(());
    }
    status.running(StepName::Pki);
    let retry = std::time::Duration::from_secs(5);
    let made = loop {
        let blocking = paths.clone();
        match tokio::task::spawn_blocking(move || {
            pki::load_or_make(&blocking, clock::wall_seconds())
        })
        .await?
        {
            Ok(made) => break made,
            Err(error) => {
                let next = error.downcast_ref().map_or_else(
                    || "the box tries again; if the state partition is full or read-only, write the image to another stick".to_owned(),
                    Kept::next,
                );
                status.failed(
                    StepName::Pki,
                    format!("certificates cannot be made: {error:#}"),
                    next,
                );
            }
        }
        tokio::select! {
            () = tokio::time::sleep(retry) => {}
            () = stop.cancelled() => return Ok(()),
        }
    };
    // Before kubelet looks for it; the pods follow.
    files::make_dir(&paths.run_manifests(), 0o755)?;
    facts.pki.send_replace(Some(Arc::new(made)));
    status.done(StepName::Pki);
    if let Err(error) = notify::notify("READY=1") {
        tracing::error!(
            error = format!("{error:#}"),
            "systemd was not told; Kubernetes will not start"
        );
    }
    stop.cancelled().await;
    Ok(())
}

/// What depends on both the PKI and the provisioning address: Ironic's files, and what boot scripts say.
pub async fn provisioning(
    paths: Paths,
    status: StatusSender,
    facts: Facts,
    stop: CancellationToken,
) -> Result<()> {
    let mut segment = facts.segment.subscribe();
    let mut pki = facts.pki.subscribe();
    let work = async {
        let Some(pki) = pki.wait_for(Option::is_some).await?.clone() else {
            return Ok(());
        };
        loop {
            let Some(address) = network::wait_for_address(&mut segment).await else {
                return Ok(());
            };
            let written = {
                let (paths, pki) = (paths.clone(), pki.clone());
                tokio::task::spawn_blocking(move || {
                    let now = clock::wall_seconds();
                    registry_files::write(&paths, &pki, address, now)?;
                    ironic_files::write(&paths, &pki, address, now)
                })
                .await?
            };
            match written {
                Ok(access) => {
                    describe_stick(&paths, &status, &facts, address);
                    facts.ironic.send_replace(Some(access));
                    facts.boot.send_replace(Some(boot_site(&pki, address)?));
                }
                Err(error) => {
                    status.failed(
                        StepName::Ironic,
                        format!("Ironic's configuration cannot be written: {error:#}"),
                        "the box tries again; if the state partition is full, write the image to a larger stick",
                    );
                    tokio::time::sleep(std::time::Duration::from_secs(5)).await;
                    continue;
                }
            }
            let moved = |segment: &Option<Segment>| {
                segment
                    .as_ref()
                    .is_some_and(|segment| segment.address.address() != address)
            };
            segment.wait_for(moved).await?;
        }
    };
    tokio::select! {
        result = work => result,
        () = stop.cancelled() => Ok(()),
    }
}

/// Starts DHCP once the site is known.
pub async fn dhcp(
    paths: Paths,
    status: StatusSender,
    facts: Facts,
    fleet: Fleet,
    stop: CancellationToken,
) -> Result<()> {
    let mut site = facts.site.subscribe();
    let site = tokio::select! {
        site = site.wait_for(Option::is_some) => site?.clone(),
        () = stop.cancelled() => return Ok(()),
    };
    let Some(site) = site else { return Ok(()) };
    if site.standing == Standing::Unknown {
        let why = "site.yaml cannot be used, so nobody knows which addresses are this site's";
        status.waiting_for(StepName::Dhcp, why);
        stop.cancelled().await;
        return Ok(());
    }
    let dhcp = Dhcp {
        paths,
        site,
        fleet,
        status,
        link_ups: facts.link_ups.subscribe(),
        name_servers: facts.name_servers.subscribe(),
        heard: facts.heard.clone(),
        leased: facts.leased.clone(),
        guard: Guard::Up,
    };
    dhcp::run(
        dhcp,
        facts.segment.subscribe(),
        facts.boot.subscribe(),
        stop,
    )
    .await
}

/// Starts to look at Kubernetes once its certificates exist.
pub async fn kubernetes(
    paths: Paths,
    status: StatusSender,
    facts: Facts,
    stop: CancellationToken,
) -> Result<()> {
    let mut pki = facts.pki.subscribe();
    let pki = tokio::select! {
        pki = pki.wait_for(Option::is_some) => pki?.clone(),
        () = stop.cancelled() => return Ok(()),
    };
    let Some(pki) = pki else { return Ok(()) };
    let known = kubernetes::Known {
        site: facts.site.subscribe(),
        ironic: facts.ironic.subscribe(),
    };
    let published = kubernetes::Published {
        client: facts.kubernetes.clone(),
        cluster_api: facts.cluster_api.clone(),
    };
    Box::pin(kubernetes::run(paths, status, pki, known, published, stop)).await
}

/// What clusters are made of. A site without clusters needs none of it.
fn describe_stick(
    paths: &Paths,
    status: &StatusSender,
    facts: &Facts,
    address: std::net::Ipv4Addr,
) {
    let site = facts.site.borrow().clone();
    if site.is_none_or(|site| site.generated_clusters().next().is_none()) {
        return;
    }
    match clusters::load_stick(paths, address) {
        Ok(stick) => {
            facts.stick.send_replace(Some(Arc::new(stick)));
            status.problems("stick", Vec::new());
        }
        Err(error) => status.problems(
            "stick",
            vec![Problem {
                what: format!("no cluster can be made from this stick: {error:#}"),
                next: "build the stick again with `firstlight build`".to_owned(),
            }],
        ),
    }
}

fn boot_site(pki: &Pki, address: std::net::Ipv4Addr) -> Result<BootSite> {
    let digest = Sha256::digest(pki::der(&pki.site.certificate)?);
    Ok(BootSite {
        http: BoxHttp::new(address, HTTP_PORT),
        ironic_port: IRONIC_PORT,
        ca: CaFingerprint::new(digest.into()),
        extra_args: vec![],
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{fleet, status};

    #[tokio::test]
    async fn a_box_that_knows_no_settings_leases_nothing_and_says_so() {
        let (sender, mut shown, owner) = status::channel("1");
        let stop = CancellationToken::new();
        tokio::spawn(status::own(owner, stop.clone()));
        let facts = Facts::default();
        let refused = Arc::new(SiteConfig::for_a_refused_file());
        facts.site.send_replace(Some(refused));
        let (fleet, _controller) = fleet::channel();
        let paths = Paths::new("/nonexistent");
        let task = tokio::spawn(dhcp(paths, sender, facts, fleet, stop.clone()));
        let told = |step: &firstlight_api::status::Step| step.title.contains("nobody knows");
        let told = shown.wait_for(|status| status.bring_up.iter().any(told));
        told.await.unwrap();
        assert!(!task.is_finished());
        stop.cancel();
        task.await.unwrap().unwrap();
    }
}
