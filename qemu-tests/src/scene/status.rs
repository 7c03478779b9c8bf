//! What stories read of the page's status.

use anyhow::{Result, bail};
use firstlight_api::status::{HostState, HostStatus, SiteStatus, StepState};

/// Seconds after which a host in `failed` is not expected to recover.
const STAYS_FAILED: f64 = 120.0;

pub fn find_host<'s>(status: &'s SiteStatus, mac: &str) -> Option<&'s HostStatus> {
    status
        .hosts
        .iter()
        .find(|host| host.mac.eq_ignore_ascii_case(mac))
}

/// The host if it is in `state`.
pub fn host_in(status: &SiteStatus, mac: &str, state: HostState) -> Option<HostStatus> {
    find_host(status, mac)
        .filter(|host| host.state == state)
        .cloned()
}

/// True when the bring-up step `name` is done.
pub fn step_done(status: &SiteStatus, name: &str) -> bool {
    status
        .bring_up
        .iter()
        .any(|step| step.name == name && matches!(step.state, StepState::Done { .. }))
}

/// How often the host came to have an image on its disk, by its history.
pub fn installs(host: &HostStatus) -> usize {
    let now = usize::from(host.state == HostState::Provisioned);
    now + host
        .history
        .iter()
        .filter(|event| event.state == HostState::Provisioned)
        .count()
}

/// Stops a story early when a host stays failed: waiting longer would not help.
pub fn fail_on_failed(status: &SiteStatus) -> Result<()> {
    let failed = |host: &&HostStatus| {
        host.state == HostState::Failed && status.uptime - host.since > STAYS_FAILED
    };
    let Some(host) = status.hosts.iter().find(failed) else {
        return Ok(());
    };
    let problem = host.problem.clone().unwrap_or_default();
    bail!(
        "host {} failed: {} (next: {})",
        host.name,
        problem.what,
        problem.next
    )
}
