//! The end of the machine's run: restart or power off. PID 1 must never just exit (the kernel would panic).

use nix::sys::reboot::{RebootMode, reboot as restart};

use crate::context::Outcome;

/// Writes everything back and restarts the machine.
pub fn reboot() -> ! {
    end(Outcome::Reboot)
}

/// Writes everything back and ends as `outcome` says. Where the kernel refuses (not PID 1, no privilege), the thread
/// stays parked: there is nothing better left to do.
pub fn end(outcome: Outcome) -> ! {
    nix::unistd::sync();
    if outcome == Outcome::Kexec {
        let Err(error) = restart(RebootMode::RB_KEXEC);
        tracing::error!(%error, "the kernel that was loaded is not started; the machine restarts");
    }
    let mode = match outcome {
        Outcome::Reboot | Outcome::Kexec => RebootMode::RB_AUTOBOOT,
        Outcome::PowerOff => RebootMode::RB_POWER_OFF,
    };
    let Err(error) = restart(mode);
    tracing::error!(%error, ?outcome, "the kernel refused; switch the machine off and on by hand");
    loop {
        std::thread::park();
    }
}
