//! Addresses of the segment, asked for by ARP: whether one is free before it is given away, and who else has the box's own.

use std::net::Ipv4Addr;

use anyhow::Result;
use firstlight_netboot::{MacAddr, ProbeResult};
use tokio::sync::{mpsc, watch};

use crate::network::{Segment, arp::Arp};

/// Datagrams that wait for a probe; their clients repeat themselves anyway.
pub const WAITING: usize = 64;

pub fn open_arp(segment: &Segment) -> Result<Arp> {
    Arp::open(segment.index, segment.mac)
}

/// Probing takes half a second, so it has a task of its own: addresses go in, results come out.
type AddressProber = (
    mpsc::Sender<Ipv4Addr>,
    mpsc::Receiver<(Ipv4Addr, ProbeResult)>,
    tokio::task::JoinHandle<()>,
);

pub fn spawn_prober(arp: Arp) -> AddressProber {
    let (ask, mut asked) = mpsc::channel(WAITING);
    let (answer, found) = mpsc::channel(WAITING);
    let task = tokio::spawn(async move {
        while let Some(address) = asked.recv().await {
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
