//! Machines that stop on the way to their ramdisk: what they load is followed, and what does not come next is told. Their screens say
//! so for a moment, or not at all.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use anyhow::Result;
use firstlight_api::status::Problem;
use firstlight_netboot::boot_files::{GRUB, INITRD, KERNEL, SHIM};
use tokio_util::sync::CancellationToken;

use crate::status::StatusSender;

/// Shim asks for GRUB within seconds.
const SHIM_PATIENCE: Duration = Duration::from_mins(1);
/// GRUB's script, which goes round, loads a kernel that is refused again and again.
const KERNELS: usize = 3;
/// From the initramfs to the first report: loaded by TFTP, on a slow processor, with firmware that waits for its screen.
const RAMDISK_PATIENCE: Duration = Duration::from_mins(5);
/// Firmware asks for one file more than once in one attempt.
const APART: Duration = Duration::from_secs(3);
/// A machine that tries again is heard of again.
const TELL: Duration = Duration::from_mins(10);
/// Machines that are remembered, and told.
const MOST: usize = 1024;
const TOLD: usize = 8;
const LOOK: Duration = Duration::from_secs(10);

/// The last that a machine loaded.
#[derive(Clone, Copy, Debug)]
struct Loaded {
    what: Stage,
    /// For the first and the last time.
    first: Instant,
    last: Instant,
    times: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Shim,
    Kernel,
    Initramfs,
}

/// By address.
#[derive(Clone, Debug, Default)]
pub struct Loaders(Arc<Mutex<BTreeMap<IpAddr, Loaded>>>);

impl Loaders {
    /// `name`: of a boot file, without a slash at its begin.
    pub fn asked(&self, client: IpAddr, name: &str, now: Instant) {
        let what = match name {
            SHIM => Stage::Shim,
            KERNEL => Stage::Kernel,
            INITRD => Stage::Initramfs,
            GRUB => return self.came(client),
            _ => return,
        };
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() >= MOST && !waiting.contains_key(&client) {
            return;
        }
        let known = waiting.get(&client).copied();
        let mut loaded = known.filter(|known| known.what == what).unwrap_or(Loaded {
            what,
            first: now,
            last: now,
            times: 1,
        });
        if now.saturating_duration_since(loaded.last) >= APART {
            loaded.times += 1;
            loaded.last = now;
        }
        waiting.insert(client, loaded);
    }

    /// It went on: GRUB was loaded, or its ramdisk reported.
    pub fn came(&self, client: IpAddr) {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.remove(&client);
    }

    fn stopped(&self, now: Instant) -> Vec<Problem> {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let since = |at: Instant| now.saturating_duration_since(at);
        waiting.retain(|_, loaded| since(loaded.last) < TELL);
        let stopped = waiting.iter().filter(|(_, loaded)| match loaded.what {
            Stage::Shim => since(loaded.first) >= SHIM_PATIENCE,
            Stage::Kernel => loaded.times >= KERNELS,
            Stage::Initramfs => since(loaded.last) >= RAMDISK_PATIENCE,
        });
        stopped
            .take(TOLD)
            .map(|(client, loaded)| told(*client, loaded.what))
            .collect()
    }
}

fn told(client: IpAddr, last: Stage) -> Problem {
    let (what, next) = match last {
        Stage::Shim => (
            format!(
                "the firmware of the machine at {client} loaded {SHIM} and did not run it: its Secure Boot may not know the certificate by which \
                 Microsoft signs other systems"
            ),
            "in the firmware's Secure Boot menu, allow the Microsoft third-party UEFI CA (2011 or 2023; some call it `Microsoft & 3rd Party \
             CA`), or enrol its key again by the menu's defaults; then restart the machine",
        ),
        Stage::Kernel => (
            format!(
                "the machine at {client} loads the kernel again and again and does not start it: its Secure Boot refuses what arrives, or it \
                 does not arrive whole"
            ),
            "look at its screen. `bad shim signature` means that the kernel is not the one that the box sent, or that the firmware's list of \
             revoked certificates (dbx) has its signature: see who else is on the network, or boot the machine without Secure Boot",
        ),
        Stage::Initramfs => (
            format!(
                "the machine at {client} loaded kernel and initramfs, and its ramdisk has not reported for {} minutes",
                RAMDISK_PATIENCE.as_secs() / 60
            ),
            "look at its screen: a kernel that panics has been given a damaged initramfs or too little memory, and a ramdisk that runs says \
             what it waits for, such as a NIC without a driver or a link",
        ),
    };
    Problem {
        what,
        next: next.to_owned(),
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
        let now = loaders.stopped(Instant::now());
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

    fn sentence(loaders: &Loaders, now: Instant) -> String {
        let problems = loaders.stopped(now);
        problems
            .first()
            .map_or_else(String::new, |problem| problem.what.clone())
    }

    #[test]
    fn firmware_that_does_not_run_shim_is_told_until_it_does() {
        let (loaders, start) = (Loaders::default(), Instant::now());
        loaders.asked(CLIENT, SHIM, start);
        assert_eq!(loaders.stopped(after(59, start)), []);
        let [problem] = &loaders.stopped(after(60, start))[..] else {
            panic!("it is told");
        };
        assert!(problem.what.contains("at 172.22.0.101"), "{}", problem.what);
        assert!(problem.next.contains("third-party"), "{}", problem.next);
        // A person has changed it.
        loaders.asked(CLIENT, SHIM, after(120, start));
        loaders.asked(CLIENT, GRUB, after(125, start));
        assert_eq!(loaders.stopped(after(200, start)), []);
    }

    #[test]
    fn a_kernel_that_is_loaded_again_and_again_is_refused() {
        let (loaders, start) = (Loaders::default(), Instant::now());
        for name in [SHIM, GRUB, "grub/grub.cfg", KERNEL] {
            loaders.asked(CLIENT, name, start);
        }
        // By HEAD and by GET, at once.
        for seconds in [0, 1, 2, 8] {
            loaders.asked(CLIENT, KERNEL, after(seconds, start));
        }
        assert_eq!(sentence(&loaders, after(100, start)), "");
        loaders.asked(CLIENT, KERNEL, after(16, start));
        assert!(sentence(&loaders, after(17, start)).contains("loads the kernel again and again"));
        loaders.asked(CLIENT, INITRD, after(24, start));
        assert_eq!(sentence(&loaders, after(25, start)), "");
    }

    #[test]
    fn a_ramdisk_that_does_not_report_is_told_and_one_that_does_is_not() {
        let (loaders, start) = (Loaders::default(), Instant::now());
        loaders.asked(CLIENT, KERNEL, start);
        loaders.asked(CLIENT, INITRD, after(2, start));
        assert_eq!(sentence(&loaders, after(300, start)), "");
        assert!(sentence(&loaders, after(302, start)).contains("has not reported for 5 minutes"));
        loaders.came(CLIENT);
        assert_eq!(sentence(&loaders, after(302, start)), "");
    }

    #[test]
    fn who_went_away_is_forgotten_and_a_crowd_takes_no_room() {
        let (loaders, start) = (Loaders::default(), Instant::now());
        for last in 0..2 * u32::try_from(MOST).unwrap_or_default() {
            let client = IpAddr::from(std::net::Ipv4Addr::from(last));
            loaders.asked(client, SHIM, start);
        }
        assert_eq!(loaders.stopped(after(60, start)).len(), TOLD);
        assert!(loaders.0.lock().is_ok_and(|waiting| waiting.len() == MOST));
        assert_eq!(loaders.stopped(after(600, start)), []);
        assert!(loaders.0.lock().is_ok_and(|waiting| waiting.is_empty()));
    }
}
