//! Firmware that loads shim and does not run it: it trusts nobody who has signed it. Its screen says so for a moment, or not at all.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use anyhow::Result;
use firstlight_api::status::Problem;
use firstlight_netboot::boot_files::{GRUB, SHIM};
use tokio_util::sync::CancellationToken;

use crate::status::StatusSender;

/// Shim asks for GRUB within seconds.
const PATIENCE: Duration = Duration::from_mins(1);
/// Firmware that tries again is heard of again.
const TELL: Duration = Duration::from_mins(10);
/// Machines that are remembered, and told.
const MOST: usize = 1024;
const TOLD: usize = 8;
const LOOK: Duration = Duration::from_secs(10);

/// By address: when shim was asked for, and GRUB was not since.
#[derive(Clone, Debug, Default)]
pub struct Loaders(Arc<Mutex<BTreeMap<IpAddr, Instant>>>);

impl Loaders {
    /// `name`: of a boot file, without a slash at its begin.
    pub fn asked(&self, client: IpAddr, name: &str, now: Instant) {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match name {
            SHIM if waiting.len() < MOST => drop(waiting.entry(client).or_insert(now)),
            GRUB => drop(waiting.remove(&client)),
            _ => {}
        }
    }

    fn refused(&self, now: Instant) -> Vec<Problem> {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let since = |at: Instant| now.saturating_duration_since(at);
        waiting.retain(|_, at| since(*at) < TELL);
        let refused = waiting.iter().filter(|(_, at)| since(**at) >= PATIENCE);
        refused
            .take(TOLD)
            .map(|(client, _)| refused_by(*client))
            .collect()
    }
}

fn refused_by(client: IpAddr) -> Problem {
    Problem {
        what: format!(
            "the firmware of the machine at {client} loaded {SHIM} and did not run it: its Secure Boot may not know the certificate by which \
             Microsoft signs other systems"
        ),
        next: "in the firmware's Secure Boot menu, allow the Microsoft third-party UEFI CA (2011 or 2023; some call it `Microsoft & 3rd Party \
               CA`), or enrol its key again by the menu's defaults; then restart the machine"
            .to_owned(),
    }
}

/// Tells of them until `stop`.
pub async fn tell(loaders: Loaders, status: StatusSender, stop: CancellationToken) -> Result<()> {
    let mut told = Vec::new();
    while stop
        .run_until_cancelled(tokio::time::sleep(LOOK))
        .await
        .is_some()
    {
        let now = loaders.refused(Instant::now());
        if now != told {
            status.problems("boot-loader", now.clone());
            told = now;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(172, 22, 0, 101));

    fn after(seconds: u64, start: Instant) -> Instant {
        start + Duration::from_secs(seconds)
    }

    #[test]
    fn firmware_that_does_not_run_shim_is_told_until_it_does() {
        let (loaders, start) = (Loaders::default(), Instant::now());
        loaders.asked(CLIENT, SHIM, start);
        assert_eq!(loaders.refused(after(59, start)), []);
        let [problem] = &loaders.refused(after(60, start))[..] else {
            panic!("it is told");
        };
        assert!(problem.what.contains("at 172.22.0.101"), "{}", problem.what);
        assert!(problem.next.contains("third-party"), "{}", problem.next);
        // A person has changed it.
        loaders.asked(CLIENT, SHIM, after(120, start));
        loaders.asked(CLIENT, GRUB, after(125, start));
        assert_eq!(loaders.refused(after(200, start)), []);
    }

    #[test]
    fn who_went_away_is_forgotten_and_a_crowd_takes_no_room() {
        let (loaders, start) = (Loaders::default(), Instant::now());
        for last in 0..2 * u32::try_from(MOST).unwrap_or_default() {
            let client = IpAddr::from(std::net::Ipv4Addr::from(last));
            loaders.asked(client, SHIM, start);
        }
        assert_eq!(loaders.refused(after(60, start)).len(), TOLD);
        assert!(loaders.0.lock().is_ok_and(|waiting| waiting.len() == MOST));
        assert_eq!(loaders.refused(after(600, start)), []);
        assert!(loaders.0.lock().is_ok_and(|waiting| waiting.is_empty()));
    }
}
