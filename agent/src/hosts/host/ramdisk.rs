//! What the ramdisk of a host has said. Who may say it is for [`super::super::who`].

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use firstlight_api::{
    bmh::HardwareDetails,
    report::{LookupState, Phase, Progress, Report},
};

/// A ramdisk that reports a lost token within this time after Ironic was made to forget it has not asked since.
const TOKEN_SETTLES: Duration = Duration::from_secs(5);

#[derive(Clone, Debug, Default)]
pub struct Ramdisk {
    /// With the uptime at which it was heard last.
    report: Option<(Report, Duration)>,
    /// With the boot that it belongs to.
    phase: Option<(String, Phase)>,
    /// It has ended since the report.
    ended: bool,
    token_wiped: Option<Duration>,
    part: Option<Part>,
}

/// What a machine has of an installed host that it does not seem to be, and the name of that host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    Card { of: String },
    Disk { of: String, disk: String },
}

impl Ramdisk {
    pub fn reported(&mut self, mut report: Report, now: Duration) {
        let wiped = self.token_wiped;
        let wiped = wiped.is_some_and(|at| now.saturating_sub(at) < TOKEN_SETTLES);
        if wiped && report.lookup == LookupState::TokenLost {
            report.lookup = LookupState::NotAsked;
        }
        let phase = self.phase.as_ref();
        if phase.is_some_and(|(boot, _)| *boot != report.boot_id) {
            self.phase = None;
        }
        self.ended = false;
        if let Some((old, _)) = self.report.replace((report, now)) {
            self.share(&old.inventory.hardware);
        }
    }

    /// What is known to be the same is kept once.
    pub fn share(&mut self, hardware: &Arc<HardwareDetails>) {
        if let Some((report, _)) = &mut self.report
            && report.inventory.hardware == *hardware
        {
            report.inventory.hardware = hardware.clone();
        }
    }

    pub fn has_part(&mut self, part: Option<Part>) {
        self.part = part;
    }

    pub fn part_of_other(&self) -> Option<&Part> {
        self.part.as_ref()
    }

    /// It is a sign of life as good as a report.
    pub fn progressed(&mut self, progress: Progress, now: Duration) {
        if let Some((_, heard)) = &mut self.report {
            *heard = now;
        }
        self.phase = Some((progress.boot_id, progress.phase));
    }

    /// What it did belongs to a deployment that is over.
    pub fn forget_phase(&mut self) {
        self.phase = None;
    }

    pub fn has_ended(&mut self) {
        self.ended = true;
    }

    /// Ironic was made to forget it: what it said of its token may be wrong now.
    pub fn token_wiped(&mut self, now: Duration) {
        self.token_wiped = Some(now);
        if let Some((report, _)) = &mut self.report {
            report.lookup = LookupState::NotAsked;
        }
    }

    /// The last one, of whenever it is.
    pub fn report(&self) -> Option<&Report> {
        self.report.as_ref().map(|(report, _)| report)
    }

    /// The report of a ramdisk that has not ended, and when it was heard.
    pub fn current(&self) -> Option<(&Report, Duration)> {
        let (report, heard) = self.report.as_ref().filter(|_| !self.ended)?;
        Some((report, *heard))
    }

    pub fn phase(&self) -> Option<&Phase> {
        self.phase.as_ref().map(|(_, phase)| phase)
    }

    /// Where Ironic reaches it: at the address of its last report, for Ironic may remember an older one.
    pub fn listens(&self, port: u16) -> Option<SocketAddr> {
        let address: Ipv4Addr = self.report()?.address.parse().ok()?;
        Some(SocketAddr::new(address.into(), port))
    }
}
