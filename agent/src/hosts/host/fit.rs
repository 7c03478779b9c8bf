//! Which of the rules of site.yaml a server takes, by what it says that it is made of.

use firstlight_api::{
    bmh::{BareMetalHost, HardwareDetails, INSTALL_ANNOTATION},
    site::{Gives, HostName, InstallPolicy, SiteConfig},
    status::{HardwareSummary, Problem},
};

use super::{Host, PolicyOf};
use crate::hosts::made;

/// What the rules say of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Fit {
    /// There are none, or nobody knows what it is made of.
    #[default]
    Open,
    /// The place in the list.
    Rule(usize),
    /// None fits, and it is taken all the same, because somebody has spoken of it.
    Beside,
    /// None fits, or the one that fits cannot be followed; with the reason.
    Refused(String),
}

const NONE_FITS: &str = "no rule of site.yaml fits this server";

/// The rule that a host takes, and what follows from it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ruled {
    fit: Fit,
    /// Its object as that rule makes it, where the box had made another of it, and nobody has used it since.
    overdue: Option<Box<BareMetalHost>>,
}

impl Ruled {
    /// The place in the list.
    pub fn rule(&self) -> Option<usize> {
        match self.fit {
            Fit::Rule(index) => Some(index),
            Fit::Open | Fit::Beside | Fit::Refused(_) => None,
        }
    }

    /// Why it takes none, where there are some.
    pub fn why_none(&self) -> Option<&str> {
        match &self.fit {
            Fit::Open | Fit::Rule(_) => None,
            Fit::Beside => Some(NONE_FITS),
            Fit::Refused(why) => Some(why),
        }
    }

    pub fn overdue(&self) -> Option<&BareMetalHost> {
        self.overdue.as_deref()
    }
}

impl Host {
    /// As its ramdisk says now, or has said before the box was restarted.
    pub(super) fn hardware(&self) -> Option<&HardwareDetails> {
        let reported = self.ramdisk.report();
        let reported = reported.map(|report| &report.inventory.hardware);
        reported.or_else(|| self.object.as_ref()?.status.as_ref()?.hardware.as_ref())
    }

    /// Nobody has said a word about it but the box.
    pub fn is_nobodys(&self) -> bool {
        self.object.as_ref().is_none_or(made::is_as_made)
    }

    /// The place of the rule that fits, and what that calls it; `None` while nobody knows what it is made of.
    pub fn look_for_rule(&self, site: &SiteConfig) -> Option<(Fit, Option<HostName>)> {
        let hardware = HardwareSummary::from(self.hardware()?);
        let Some((index, rule)) = site.rule_of(self.mac, &hardware) else {
            let fit = if site.rules.is_empty() {
                Fit::Open
            } else if self.rules.named || !self.is_nobodys() {
                Fit::Beside
            } else {
                Fit::Refused(NONE_FITS.to_owned())
            };
            return Some((fit, None));
        };
        let pattern = rule.gives.name.as_ref();
        let is_named = site.host(self.mac).is_some_and(|host| host.name.is_some());
        // A name that people chose is kept.
        let pattern = pattern.filter(|_| !is_named && self.is_nobodys());
        match pattern.map(|pattern| pattern.fill(self.mac, &hardware)) {
            Some(Err(why)) => Some((Fit::Refused(why), None)),
            Some(Ok(name)) => Some((Fit::Rule(index), Some(name))),
            None => Some((Fit::Rule(index), None)),
        }
    }

    /// `name`: what a rule calls it, and who has that name already. True if something is new.
    pub fn take_rule(
        &mut self,
        site: &SiteConfig,
        mut fit: Fit,
        name: Option<(HostName, Option<String>)>,
    ) -> bool {
        match name {
            Some((name, Some(other))) => {
                let me = self.mac;
                fit = Fit::Refused(format!(
                    "its rule calls this server ({me}) `{name}`, and so is {other} called"
                ));
            }
            Some((name, None)) if self.object.is_none() => {
                self.rename(made::NAMESPACE, name.as_str());
            }
            _ => {}
        }
        let mut ruled = Ruled { fit, overdue: None };
        let rule = ruled.rule().and_then(|index| site.rules.get(index));
        ruled.overdue = self.made_anew(&site.gives(self.mac, rule)).map(Box::new);
        let before = (
            self.rules.clone(),
            std::mem::replace(&mut self.ruled, ruled),
        );
        self.take_policy(site);
        (&before.0, &before.1) != (&self.rules, &self.ruled)
    }

    /// Whoever spoke first in its name may have said that it is made of something else than the machine that is believed now.
    fn made_anew(&self, gives: &Gives) -> Option<BareMetalHost> {
        let is_free = self.ramdisk.report().is_some() && self.ledger().deployment.is_none();
        let object = self.object.as_ref();
        let object = object.filter(|object| is_free && !object.is_deleted())?;
        made::anew(object, gives)
    }

    /// A person's word about this host, otherwise what site.yaml says of it, or of all like it.
    pub fn take_policy(&mut self, site: &SiteConfig) {
        let word = self.install_word();
        let rule = self.ruled.rule().and_then(|index| site.rules.get(index));
        let entry = site.host(self.mac).and_then(|host| host.install);
        let gives = site.gives(self.mac, rule);
        self.rules.policy = word.unwrap_or_else(|| site.install_policy(self.mac, rule));
        self.rules.hints = gives.root_disk.is_some();
        self.rules.clean = gives.clean;
        self.rules.start = gives.start;
        self.rules.kernel_arguments = gives.kernel_arguments;
        self.rules.policy_of = PolicyOf::this_if(word.is_some() || entry.is_some());
        self.take_account(site);
    }

    /// What a person wrote into its object; another word means nothing.
    pub fn install_word(&self) -> Option<InstallPolicy> {
        let annotations = &self.object.as_ref()?.metadata.annotations;
        annotations.get(INSTALL_ANNOTATION)?.parse().ok()
    }

    /// Why it is left alone, unless somebody has written into its object since.
    pub(super) fn unfit(&self) -> Option<Problem> {
        let Fit::Refused(why) = &self.ruled.fit else {
            return None;
        };
        let called = &self.called;
        self.is_nobodys().then(|| Problem {
            what: why.clone(),
            next: format!(
                "nothing, if it shall be left alone; otherwise give it a rule, or a line in `hosts`, in site.yaml and restart the box \
                 (`firstlight check site.yaml --hosts` shows which server takes which rule), or run `kubectl annotate bmh {called} \
                 firstlight.internal/install=blank`"
            ),
        })
    }
}
