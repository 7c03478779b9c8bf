//! What people ask of a host with annotations that are taken once: noted, or refused with a sentence.

use std::collections::BTreeMap;

use firstlight_api::{
    bmh::ObjectReference,
    capm3::FOR_CLUSTER_LABEL,
    site::HostName,
    status::{HostControl, HostPower},
    verb::{
        self, CONFIRM_ANNOTATION, KEXEC_ANNOTATION, Manner, RETRY_ANNOTATION, SPARE_ANNOTATION,
        Verb,
    },
};

use super::{Host, Site};
use crate::hosts::{
    image::same_digest,
    intent::DesiredState,
    ledger::{Ledger, Model},
    plan::{Plan, Remote},
};

impl Host {
    /// What Ironic has of it is known, and nobody asked for hands off.
    fn may_be_asked(&self, site: &Site) -> bool {
        let known = self.node.is_some() || site.ironic_known;
        known && !self.work.is_unclear() && self.decision.wanted.paused.is_none()
    }

    /// Notes what `plan` says about a wish to begin again, and to leave; true if another plan follows from that.
    pub(super) fn hears(&mut self, plan: &Plan, site: &Site) -> bool {
        if !self.may_be_asked(site) {
            return false;
        }
        let retry = self.ledger().retry;
        if self.decision.wanted.retry && plan.failed.is_some() {
            self.memory.note(|ledger| {
                ledger.retry = true;
                ledger.done.insert(RETRY_ANNOTATION.to_owned());
            });
            self.decision.wanted.retry = false;
            self.work.hurries();
            return true;
        }
        if retry && plan.failed.is_none() {
            self.memory.note(|ledger| ledger.retry = false);
        }
        if self.stays() {
            self.memory.note(Ledger::stays);
        }
        retry && plan.failed.is_none()
    }

    /// The model that a person wants to be started by kexec again.
    pub fn allows_kexec(&mut self, site: &Site) -> Option<Model> {
        let asked = self.decision.wanted.allow_kexec && self.no_kexec;
        if !asked || !self.may_be_asked(site) {
            return None;
        }
        self.memory.note(|ledger| {
            ledger.done.insert(KEXEC_ANNOTATION.to_owned());
        });
        self.no_kexec = false;
        self.model()
    }

    /// What it has on its disk is asked for, by whoever knows.
    fn stays(&self) -> bool {
        let written = self.ledger().written();
        match &self.decision.wanted.desired {
            Ok(DesiredState::Install(install)) => {
                written.is_some_and(|held| same_digest(&install.image, &held.image))
            }
            Ok(DesiredState::External) => true,
            _ => false,
        }
    }

    /// It waits for somebody to let it go.
    pub fn is_held(&self) -> bool {
        self.plan().is_some_and(|plan| plan.held)
    }

    pub(super) fn refusals(&self, site: &Site) -> BTreeMap<&'static str, String> {
        let mut refused = BTreeMap::new();
        let (wanted, ledger) = (self.wanted(), self.ledger());
        let Some(plan) = self.plan().filter(|_| self.may_be_asked(site)) else {
            return refused;
        };
        let mut refuse = |verb, annotation| {
            let why = verb::refusal(verb, Manner::Soft, &self.status(), None);
            refused.extend(why.map(|refusal| (annotation, refusal.why)));
        };
        if wanted.retry && plan.failed.is_none() {
            refuse(Verb::Retry, RETRY_ANNOTATION);
        }
        if wanted.allow_kexec && !self.no_kexec {
            refuse(Verb::AllowKexec, KEXEC_ANNOTATION);
        }
        if wanted.confirmed && !plan.held && !ledger.may_leave() {
            let why = "nothing waits for its name: it is not being given back".to_owned();
            refused.insert(CONFIRM_ANNOTATION, why);
        }
        refused
    }

    /// Annotations that go, each with the reason why it was not acted on.
    pub fn refused(&self) -> &BTreeMap<&'static str, String> {
        &self.decision.refused
    }

    pub(super) fn control(&self) -> HostControl {
        let object = self.object.as_ref();
        let spec = object.map(|object| &object.spec);
        let plan = self.plan();
        let consumer = spec.and_then(|spec| spec.consumer_ref.as_ref());
        HostControl {
            consumer: consumer.map(described).unwrap_or_default(),
            paused: self.wanted().paused.clone().unwrap_or_default(),
            spare: object
                .is_some_and(|object| object.metadata.annotations.contains_key(SPARE_ANNOTATION)),
            cluster: self.cluster().unwrap_or_default().to_owned(),
            image: spec.is_some_and(|spec| spec.image.is_some() || spec.custom_deploy.is_some()),
            held: self.is_held(),
            no_kexec: self.no_kexec,
            power: self.power(),
            disk: plan.map(|plan| plan.disk).unwrap_or_default(),
            failed: plan.and_then(|plan| plan.failed),
        }
    }

    /// Whose it may become, as `World::kept_for` has it.
    fn cluster(&self) -> Option<&str> {
        let labels = self.object.as_ref().map(|object| &object.metadata.labels);
        let label = labels.and_then(|labels| labels.get(FOR_CLUSTER_LABEL));
        let said = self.rules.cluster.as_ref().map(HostName::as_str);
        label.map(String::as_str).or(said)
    }

    fn power(&self) -> HostPower {
        if matches!(self.remote.seen(), Remote::Unknown | Remote::None) {
            return HostPower::Manual;
        }
        let node = self.node.as_ref().filter(|node| node.has_bmc());
        match node.and_then(|node| node.power_state.as_deref()) {
            Some("power on") => HostPower::On,
            Some("power off") => HostPower::Off,
            _ => HostPower::Unknown,
        }
    }
}

fn described(consumer: &ObjectReference) -> String {
    let ObjectReference { kind, name, .. } = consumer;
    let what = if kind.is_empty() { "object" } else { kind };
    format!("{what} {name}")
}
