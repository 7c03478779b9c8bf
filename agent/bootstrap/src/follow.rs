//! The loop: look at what this disk holds, ask or confirm, do the next step.

use anyhow::Result;

use crate::drive::Drive;
use crate::link::Link;
use crate::machine::Machine;
use crate::plan::{Held, Step, after_answer, after_receipt};
use crate::seed::Seed;

/// More than this is not the way of a packet, but a wrong clock.
const TOLERANCE: u64 = 5;

/// Returns when this disk holds confirmed bootstrap data, or when the machine restarts.
pub fn follow(
    link: &mut Link,
    machine: &mut impl Machine,
    seed: &Seed,
    drive: &Drive,
) -> Result<()> {
    let mut told = Some(String::new());
    loop {
        let held = seed.held()?;
        let step = match &held {
            Held::Confirmed => return Ok(()),
            Held::Unconfirmed(digest) => after_receipt(link.confirm(digest)),
            Held::Nothing => after_answer(link.ask()),
        };
        // Certificates of the cluster are made by this clock before chrony has run for long.
        if let Some(seconds) = link.told_time()
            && seconds.abs_diff(machine.time()) > TOLERANCE
        {
            machine.set_time(seconds);
        }
        match (step, held) {
            (Step::Store(data), _) => {
                // Before: what is stored is taken for whole after a power cut.
                machine.prepare(&data.meta_data)?;
                seed.store(&data, drive)?;
                tracing::info!("bootstrap data received");
            }
            (Step::Confirmed, Held::Unconfirmed(digest)) => seed.confirm(&digest)?,
            (Step::Confirmed, Held::Nothing | Held::Confirmed) => {}
            (Step::Restart, _) => {
                machine.restart();
                return Ok(());
            }
            (Step::Pause { length, why }, _) => {
                if why != told {
                    if let Some(why) = &why {
                        tracing::warn!("{why}");
                    } else {
                        tracing::info!(
                            "installed; waiting until the box says what this server becomes"
                        );
                    }
                    told = why;
                }
                machine.pause(length);
            }
        }
    }
}
