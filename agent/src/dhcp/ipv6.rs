//! Firmware that asks for its network boot by IPv6, which nobody is served by: it is heard, so that a person is told why it waits.

use std::time::Duration;

use anyhow::Result;
use firstlight_netboot::{MacAddr, boots_by_ipv6};
use tokio::{
    sync::mpsc,
    task::JoinHandle,
    time::{MissedTickBehavior, interval},
};

use crate::network::{Segment, packets::Packets};

const ETH_P_IPV6: u16 = 0x86dd;
/// Between two packets: who floods the segment keeps nobody busy.
const SPACING: Duration = Duration::from_millis(10);
const WAITING: usize = 8;

pub fn spawn(segment: &Segment) -> Result<(mpsc::Receiver<MacAddr>, JoinHandle<()>)> {
    let packets = Packets::open(segment.index, ETH_P_IPV6)?;
    let (tell, told) = mpsc::channel(WAITING);
    let task = tokio::spawn(async move {
        let mut pace = interval(SPACING);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            pace.tick().await;
            match packets.receive().await {
                // A page names few of them, and each asks again.
                Ok(packet) => drop(boots_by_ipv6(&packet).map(|mac| tell.try_send(mac))),
                Err(error) => tracing::debug!(%error, "a packet of IPv6 was not read"),
            }
        }
    });
    Ok((told, task))
}
