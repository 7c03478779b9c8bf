//! Whether an address is free before it is given away, asked by ARP on the segment and by ICMP beyond it, and who else has the
//! box's own.

use std::{net::Ipv4Addr, sync::Arc};

use anyhow::Result;
use firstlight_netboot::{MacAddr, ProbeResult};
use tokio::sync::{Semaphore, mpsc, watch};

use crate::network::{Segment, arp::Arp, echo};

/// Datagrams that wait for a probe; their clients repeat themselves anyway.
pub const WAITING: usize = 64;
/// Addresses of relayed networks that are asked for at once.
const BEYOND: usize = 16;

pub fn open_arp(segment: &Segment) -> Result<Arp> {
    Arp::open(segment.index, segment.mac)
}

/// Probing takes half a second, so it has a task of its own: addresses go in, results come out.
type AddressProber = (
    mpsc::Sender<Ipv4Addr>,
    mpsc::Receiver<(Ipv4Addr, ProbeResult)>,
    tokio::task::JoinHandle<()>,
);

pub fn spawn_prober(arp: Arp, segment: &Segment) -> AddressProber {
    let (ask, mut asked) = mpsc::channel(WAITING);
    let (answer, found) = mpsc::channel(WAITING);
    let (subnet, interface) = (segment.address, segment.interface.clone());
    let beyond = Arc::new(Semaphore::new(BEYOND));
    let task = tokio::spawn(async move {
        while let Some(address) = asked.recv().await {
            if !subnet.has_host(address) {
                let Ok(place) = Arc::clone(&beyond).acquire_owned().await else {
                    return;
                };
                let (interface, answer) = (interface.clone(), answer.clone());
                tokio::spawn(async move {
                    let answers = echo::answers(&interface, address).await;
                    let _ = answer.send((address, result(address, answers))).await;
                    drop(place);
                });
                continue;
            }
            let result = match arp.claim(address).await {
                Ok(Some(_)) => ProbeResult::InUse,
                Ok(None) => ProbeResult::Free,
                Err(error) => {
                    tracing::warn!(error = format!("{error:#}"), "probing addresses failed");
                    return;
                }
            };
            if answer.send((address, result)).await.is_err() {
                return;
            }
        }
    });
    (ask, found, task)
}

/// Who cannot be asked, because there is no way to that network yet, has not answered.
fn result(address: Ipv4Addr, answers: Result<bool>) -> ProbeResult {
    match answers {
        Ok(true) => ProbeResult::InUse,
        Ok(false) => ProbeResult::Free,
        Err(error) => {
            tracing::debug!(%address, error = format!("{error:#}"), "an address was not probed");
            ProbeResult::Free
        }
    }
}

/// Who else has the box's own address.
pub fn spawn_watch(
    arp: Arp,
    own: Ipv4Addr,
) -> (
    watch::Receiver<Option<MacAddr>>,
    tokio::task::JoinHandle<()>,
) {
    let (tell, others) = watch::channel(None);
    let task = tokio::spawn(async move {
        let Err(error) = arp
            .watch(own, |other| {
                tell.send_if_modified(|known| {
                    std::mem::replace(known, other) != other || other.is_some()
                });
            })
            .await;
        tracing::warn!(
            error = format!("{error:#}"),
            "watching the own address failed"
        );
    });
    (others, task)
}
