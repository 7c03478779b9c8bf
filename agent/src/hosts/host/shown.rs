//! What people read of a host.

use firstlight_api::{
    report::Report,
    status::{HardwareSummary, HostStatus, Problem},
};

use super::Host;
use crate::hosts::{measured, tpm};

impl Host {
    fn dispute(&self) -> Problem {
        let mac = self.mac;
        Problem {
            what: format!(
                "two machines say that they are {} ({mac}); the first is believed",
                self.name
            ),
            next: "find the other one: it has a copied MAC address, or somebody plays this server"
                .to_owned(),
        }
    }

    /// The most urgent of what people should know.
    fn problem(&self) -> Option<Problem> {
        if self.decision.disputed {
            return Some(self.dispute());
        }
        if let Some(other) = &self.pretender {
            return Some(other.problem(&self.name, self.mac));
        }
        let plan = self.plan();
        let undelivered = self.work.undelivered.clone();
        plan.and_then(|plan| plan.problem.clone())
            .or_else(|| undelivered.filter(|_| plan.is_some_and(|plan| plan.deliver)))
            .or_else(|| self.memory.problem().cloned())
            .or_else(|| self.work.refused.clone())
    }

    fn hardware_summary(&self, report: &Report) -> HardwareSummary {
        let mut summary = HardwareSummary {
            tpm: tpm::status(self.ledger(), self.who.tpm(), &report.tpm),
            measured_boot: measured::status(self.booted.as_ref()),
            boot_mode: report.inventory.boot_mode.clone(),
            ..HardwareSummary::from(&*report.inventory.hardware)
        };
        for disk in &mut summary.disks {
            let read = report.disks.iter().find(|read| read.name == disk.name);
            disk.found = read.map(|read| read.signatures.clone()).unwrap_or_default();
        }
        summary
    }

    /// What is shown of it.
    pub fn status(&self) -> HostStatus {
        let plan = self.plan();
        let address = self.address.map(|address| address.to_string());
        let report = self.ramdisk.report();
        HostStatus {
            name: self.name.clone(),
            namespace: self.namespace.clone(),
            mac: self.mac.to_string(),
            address: address.unwrap_or_default(),
            code: self.who.key().map(|key| key.code()).unwrap_or_default(),
            other_code: self
                .pretender
                .as_ref()
                .map(|other| other.key.code())
                .unwrap_or_default(),
            state: plan.map(|plan| plan.state).unwrap_or_default(),
            step: plan.map(|plan| plan.step.clone()).unwrap_or_default(),
            percent: plan.and_then(|plan| plan.percent),
            since: self.history.since().as_secs_f64(),
            problem: self.problem(),
            control: self.control(),
            rule: self.ruled.rule().map(|index| index + 1),
            no_rule: self.ruled.why_none().unwrap_or_default().to_owned(),
            root_disk: self.root_disk(),
            hardware: report.map(|report| self.hardware_summary(report)),
            history: self.history.ended().to_vec(),
        }
    }
}
