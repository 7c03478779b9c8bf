//! The BMC of a host: what its object names, and what came of speaking to it.

use std::time::Duration;

use firstlight_api::{
    bmh::{BareMetalHostSpec, CredentialsStatus},
    status::Problem,
};
use firstlight_ironic::PowerTarget;

use super::account::Account;
use crate::hosts::{
    bmc::{self, Start},
    event::End,
    plan::{self, Action},
};

#[derive(Clone, Debug, Default)]
pub struct Remote {
    /// Somebody has looked what its object says.
    is_known: bool,
    /// Its mark and how it starts a server, or why it cannot be used.
    named: Option<Result<(String, Start), Problem>>,
    /// Those of its Secret as it is now.
    credentials: Option<CredentialsStatus>,
    failed: Option<Problem>,
    heard: bool,
    summoned: Option<Duration>,
    asked_to_end: bool,
    /// The box's own in it.
    pub account: Account,
}

impl Remote {
    /// `credentials`: of the Secret, as far as it is known. True if that is news.
    pub fn is_named(
        &mut self,
        spec: &BareMetalHostSpec,
        credentials: Option<CredentialsStatus>,
    ) -> bool {
        let details = spec.bmc.as_ref();
        let details = details.filter(|details| !details.address.is_empty());
        let credentials = credentials.filter(|_| details.is_some());
        let version = credentials
            .as_ref()
            .map(|it| it.credentials_version.as_str());
        let mark = |details| bmc::mark(details, bmc::power_off(spec), version);
        let named = bmc::of(spec)
            .zip(details)
            .map(|(bmc, details)| bmc.map(|bmc| (mark(details), bmc.start())));
        let news = !self.is_known || self.named != named;
        if news {
            *self = Self {
                is_known: true,
                named,
                credentials,
                account: std::mem::take(&mut self.account),
                ..Self::default()
            };
        }
        news
    }

    /// What Ironic knows it by once it has been told of it.
    pub fn mark(&self) -> Option<&str> {
        let named = self.named.as_ref()?.as_ref();
        named.ok().map(|(mark, _)| mark.as_str())
    }

    pub fn credentials(&self) -> Option<&CredentialsStatus> {
        self.credentials.as_ref()
    }

    pub fn acted(&mut self, action: &Action, end: &End, now: Duration) {
        if self.mark().is_none() || !action.is_of_bmc() || *end == End::Later {
            return;
        }
        self.failed = match end {
            End::Refused(problem) => Some(problem.clone()),
            _ => None,
        };
        if matches!(action, Action::Register | Action::Connect) {
            self.heard = *end == End::Begun;
        }
        if *end != End::Begun {
            return;
        }
        match action {
            Action::Summon => self.summoned = Some(now),
            Action::Switch(PowerTarget::SoftOff) => self.asked_to_end = true,
            _ => {}
        }
    }

    /// What went wrong is over once nothing is wanted of it.
    pub fn wants(&mut self, something: bool) {
        if !something {
            self.failed = None;
        }
    }

    /// Its ramdisk is there.
    pub fn came(&mut self) {
        self.summoned = None;
    }

    pub fn is_off(&mut self) {
        self.asked_to_end = false;
    }

    pub fn seen(&self) -> plan::Remote<'_> {
        match &self.named {
            None if !self.is_known => plan::Remote::Unknown,
            None => plan::Remote::None,
            Some(Err(problem)) => plan::Remote::Unusable(problem),
            Some(Ok((mark, start))) => plan::Remote::Named(plan::Bmc {
                mark,
                start: *start,
                failed: self.failed.as_ref(),
                heard: self.heard,
                summoned: self.summoned,
                asked_to_end: self.asked_to_end,
            }),
        }
    }
}
