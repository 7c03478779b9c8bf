//! Time as the machines see it.
//!
//! Several emulated machines on two processors get less of them than their software expects, and what was written for hardware
//! then spends much of it on being late: probes, leases and timers that are due again before they were dealt with. Machines whose
//! clocks go slower see a faster processor instead. All of a lab go at the same pace, so that they agree on the time.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};

use super::qemu::Accel;

/// Stands between QEMU and the clocks of its host; a process of its own would be asked too often.
const LIBRARY: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clock {
    #[default]
    Real,
    /// In a hundred seconds of ours so many of theirs pass, if they are emulated.
    Slowed { percent: u8 },
}

impl Clock {
    /// For a box with the nodes of a small cluster.
    pub const CLUSTER: Self = Self::Slowed { percent: 40 };

    /// What QEMU's environment says of it, `since` after the first machine of the lab could have started.
    pub fn environment(self, accel: Accel, since: Duration) -> Result<Vec<(&'static str, String)>> {
        let Some(rate) = self.rate(accel) else {
            return Ok(Vec::new());
        };
        if !Path::new(LIBRARY).is_file() {
            bail!(
                "{LIBRARY} is missing: it slows the clocks of machines\n  next: sudo apt-get install libfaketime"
            );
        }
        Ok(vec![
            ("LD_PRELOAD", LIBRARY.to_owned()),
            ("FAKETIME", faketime(rate, since)),
            // Files keep the times that they have.
            ("NO_FAKE_STAT", "1".to_owned()),
        ])
    }

    /// A waiting time that is right for the real clock, in our seconds.
    pub fn stretch(self, accel: Accel, time: Duration) -> Duration {
        self.rate(accel).map_or(time, |rate| time.div_f64(rate))
    }

    /// How far the machines' clocks go while ours goes on by `time`.
    pub fn passed(self, accel: Accel, time: Duration) -> Duration {
        self.rate(accel).map_or(time, |rate| time.mul_f64(rate))
    }

    fn rate(self, accel: Accel) -> Option<f64> {
        match (self, accel) {
            (Self::Slowed { percent }, Accel::Tcg) => {
                Some(f64::from(percent.clamp(1, 100)) / 100.0)
            }
            _ => None,
        }
    }
}

/// As much behind the real time as those that started first are by now.
fn faketime(rate: f64, since: Duration) -> String {
    let behind = since.as_secs_f64() * (1.0 - rate);
    format!("-{behind:.3} x{rate}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOW: Clock = Clock::Slowed { percent: 40 };

    #[test]
    fn waiting_takes_longer_where_clocks_are_slow() {
        let minute = Duration::from_mins(1);
        assert_eq!(SLOW.stretch(Accel::Tcg, minute), Duration::from_secs(150));
        assert_eq!(SLOW.passed(Accel::Tcg, minute), Duration::from_secs(24));
        assert_eq!(SLOW.stretch(Accel::Kvm, minute), minute);
        assert_eq!(Clock::Real.stretch(Accel::Tcg, minute), minute);
    }

    #[test]
    fn a_machine_that_starts_later_agrees_with_the_others() {
        let rate = SLOW.rate(Accel::Tcg);
        assert_eq!(
            rate.map(|rate| faketime(rate, Duration::from_secs(100)))
                .as_deref(),
            Some("-60.000 x0.4")
        );
    }
}
