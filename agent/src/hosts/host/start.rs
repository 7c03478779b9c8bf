//! How the installed system of a host is started the first time, and how it starts the ramdisk when it goes: what is told, what came of it,
//! and what is remembered of servers of its model.

use std::{collections::BTreeSet, time::Duration};

use firstlight_api::{
    report::Phase,
    start::{Start, StartOrder, StartPolicy},
};

use firstlight_ironic::ProvisionState;

use super::Host;
use crate::hosts::{
    ledger::{Model, Started},
    plan::BOOTS,
};

/// What is known of kexec on other servers of the same model; what comes later here counts more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Known {
    Nothing,
    /// The first one tries it. If it does not stand it, one server needs a hand and not a rack of them.
    Tried,
    /// One came up.
    Holds,
    /// One did not, and none since.
    Fails,
}

/// Its system asks for its data every few seconds.
const ASKS: Duration = Duration::from_mins(1);

impl Host {
    /// As its ramdisk says now, or has said before the box was restarted.
    pub fn model(&self) -> Option<Model> {
        let vendor = &self.hardware()?.system_vendor;
        Some(Model {
            vendor: vendor.manufacturer.clone(),
            product: vendor.product_name.clone(),
        })
    }

    /// What its ramdisk does once the image is on the disk.
    pub fn start_order(&self, known: Known) -> StartOrder {
        let wanted = match self.rules.start.unwrap_or_default() {
            StartPolicy::Auto => matches!(known, Known::Nothing | Known::Holds),
            StartPolicy::Kexec => true,
            StartPolicy::Restart => false,
        };
        StartOrder {
            kexec: wanted,
            kernel_arguments: self.rules.kernel_arguments.clone(),
        }
    }

    /// Its ramdisk gets this order.
    pub fn start_ordered(&mut self, order: &StartOrder) {
        if order.kexec {
            let model = self.model().unwrap_or_default();
            self.note_start(Started::Ordered, &model);
        }
    }

    /// How far its own start by kexec has come, for servers of the same model.
    pub fn tells_of_kexec(&self) -> Known {
        if self.ledger().returns {
            return Known::Tried;
        }
        match self.ledger().deployment.as_ref().map(|it| it.started) {
            Some(Started::Ordered | Started::Kexec) => Known::Tried,
            Some(Started::Held) => Known::Holds,
            _ => Known::Nothing,
        }
    }

    /// Notes how its system was started, and whether it came up, and the ramdisk after it. Gives back its model if a start by kexec has
    /// just held.
    pub fn judge_start(&mut self, now: Duration) -> Option<Model> {
        if self.ledger().returns {
            return self.judge_return(now);
        }
        self.system.returns_since = None;
        let written = self.ledger().written()?;
        let before = written.started;
        let kexec = Phase::Rebooting {
            start: Start::Kexec,
        };
        let is_up = self.system.answers(now)
            || self
                .system
                .polled
                .is_some_and(|at| now.saturating_sub(at) < ASKS);
        let state = self.node.as_ref().map(|node| &node.provision_state);
        let is_active = state == Some(&ProvisionState::Active);
        let phase = self.ramdisk.phase();
        let after = match before {
            Started::Unknown | Started::Ordered if phase == Some(&kexec) => Started::Kexec,
            // It could not, or nobody has heard how it was started.
            Started::Ordered if is_up || matches!(phase, Some(Phase::Rebooting { .. })) => {
                Started::Unknown
            }
            Started::Kexec if is_up => Started::Held,
            // The time of the ramdisk does not count, nor that of a box that was away.
            Started::Kexec if is_active && now.saturating_sub(self.work.node_since) >= BOOTS => {
                Started::Failed
            }
            // That it was restarted since is remembered of its model.
            Started::Failed if is_up => Started::Restarted,
            other => other,
        };
        if before == after {
            return None;
        }
        let model = self.model().unwrap_or_default();
        if after == Started::Failed {
            let (vendor, product) = (&model.vendor, &model.product);
            tracing::warn!(host = self.name, mac = %self.mac, vendor, product, "a start by kexec did not come up; servers of this model are restarted");
        }
        self.note_start(after, &model);
        (after == Started::Held).then_some(model)
    }

    /// What came of telling its system to start the ramdisk.
    pub fn ramdisk_started(&mut self, result: Result<(), String>, now: Duration) {
        let has_begun = result.is_ok();
        self.system.started_ramdisk(result, now);
        if self.system.stops_ramdisk() {
            self.memory.note(|ledger| ledger.returns |= has_begun);
        }
    }

    fn judge_return(&mut self, now: Duration) -> Option<Model> {
        let model = self.model().unwrap_or_default();
        // The time of a box that was away does not count.
        let since = *self.system.returns_since.get_or_insert(now);
        let heard = self.ramdisk.current().map(|(_, heard)| heard);
        if heard.is_some_and(|at| at >= since) {
            self.memory.note(|ledger| ledger.returns = false);
            return Some(model);
        }
        if now.saturating_sub(since) >= BOOTS {
            self.return_failed();
        }
        None
    }

    /// It was not, or not by kexec, that the ramdisk came.
    fn return_failed(&mut self) {
        let model = self.model().unwrap_or_default();
        let (vendor, product) = (&model.vendor, &model.product);
        tracing::warn!(host = self.name, mac = %self.mac, vendor, product, "a ramdisk that was started by kexec did not come; servers of this model are restarted");
        self.memory.note(|ledger| {
            ledger.returns = false;
            ledger.no_kexec = Some(model);
        });
    }

    /// Its firmware runs, so that no kernel that was started without it does.
    pub(super) fn kexec_ended(&mut self) {
        if self.system.stops_ramdisk() || self.ledger().returns {
            self.return_failed();
        }
        let started = self.ledger().written().map(|written| written.started);
        if started == Some(Started::Kexec) {
            let model = self.model().unwrap_or_default();
            self.note_start(Started::Failed, &model);
        }
    }

    /// Its BMC has restarted what had not come up.
    pub fn start_anew(&mut self) {
        let started = self.ledger().written().map(|written| written.started);
        if started == Some(Started::Failed) {
            let model = self.model().unwrap_or_default();
            self.note_start(Started::Restarted, &model);
        }
    }

    fn note_start(&mut self, started: Started, model: &Model) {
        self.memory.note(|ledger| {
            if let Some(deployment) = &mut ledger.deployment {
                deployment.started = started;
            }
            match started {
                Started::Failed => ledger.no_kexec = Some(model.clone()),
                Started::Held => drop(ledger.no_kexec.take_if(|known| known == model)),
                Started::Unknown | Started::Ordered | Started::Kexec | Started::Restarted => {}
            }
        });
    }

    /// What is remembered of its model. True if that is news.
    pub fn learns_kexec(&mut self, failing: &BTreeSet<Model>) -> bool {
        let fails = self.is_of(failing);
        std::mem::replace(&mut self.no_kexec, fails) != fails
    }

    pub fn is_of(&self, models: &BTreeSet<Model>) -> bool {
        let some = !models.is_empty();
        some && self.model().is_some_and(|model| models.contains(&model))
    }

    /// A server of this model came up by kexec, or a person wants it to be tried again.
    pub fn forgive(&mut self, model: &Model) {
        if self.ledger().no_kexec.as_ref() == Some(model) {
            self.memory.note(|ledger| ledger.no_kexec = None);
        }
    }
}
