//! Which of the rules of site.yaml a server takes, by what it says that it is made of.

use std::collections::BTreeMap;

use firstlight_api::{
    bmh::{HardwareDetails, INSTALL_ANNOTATION},
    site::{InstallPolicy, Rule, SiteConfig},
    status::{HardwareSummary, Problem},
};

use super::{Host, PolicyOf};
use crate::hosts::{made, policy};

/// What the rules say of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Fit {
    /// There are none, or nobody knows what it is made of.
    #[default]
    Open,
    /// The place in the list.
    Rule(usize),
    /// None fits, or the one that fits cannot be followed; with the reason.
    Refused(String),
}

impl Fit {
    pub fn rule(&self) -> Option<usize> {
        match self {
            Self::Rule(index) => Some(*index),
            Self::Open | Self::Refused(_) => None,
        }
    }
}

impl Host {
    /// As its ramdisk says now, or has said before the box was restarted.
    fn hardware(&self) -> Option<&HardwareDetails> {
        let reported = self.ramdisk.report();
        let reported = reported.map(|report| &report.inventory.hardware);
        reported.or_else(|| self.object.as_ref()?.status.as_ref()?.hardware.as_ref())
    }

    /// Nobody has said a word about it but the box.
    pub fn is_nobodys(&self) -> bool {
        self.object.as_ref().is_none_or(made::is_as_made)
    }

    /// Looks for its rule. `others`: who has which name. True if that is news.
    pub fn take_rule(&mut self, site: &SiteConfig, others: &BTreeMap<String, String>) -> bool {
        let Some(hardware) = self.hardware().filter(|_| !site.rules.is_empty()) else {
            return false;
        };
        let hardware = HardwareSummary::from(hardware);
        let fit = match site.rule_of(self.mac, &hardware) {
            Some((index, rule)) => match self.take_name(site, rule, &hardware, others) {
                Ok(()) => Fit::Rule(index),
                Err(why) => Fit::Refused(why),
            },
            None if self.rules.named || !self.is_nobodys() => Fit::Open,
            None => Fit::Refused("no rule of site.yaml fits this server".to_owned()),
        };
        let before = (self.rules, std::mem::replace(&mut self.fit, fit));
        self.take_policy(site);
        before != (self.rules, self.fit.clone())
    }

    /// A name that people chose is kept.
    fn take_name(
        &mut self,
        site: &SiteConfig,
        rule: &Rule,
        hardware: &HardwareSummary,
        others: &BTreeMap<String, String>,
    ) -> Result<(), String> {
        let is_named = site.host(self.mac).is_some_and(|host| host.name.is_some());
        let Some(pattern) = rule.gives.name.as_ref() else {
            return Ok(());
        };
        if is_named || !self.is_nobodys() {
            return Ok(());
        }
        let name = pattern.fill(self.mac, hardware)?;
        if let Some(other) = others.get(name.as_str()) {
            let me = self.mac;
            return Err(format!(
                "its rule calls this server ({me}) `{name}`, and so is {other} called"
            ));
        }
        if self.object.is_none() {
            self.rename(made::NAMESPACE, name.as_str());
        }
        Ok(())
    }

    /// A person's word about this host, otherwise what site.yaml says of it, or of all like it.
    pub fn take_policy(&mut self, site: &SiteConfig) {
        let word = self.install_word();
        let rule = self.fit.rule().and_then(|index| site.rules.get(index));
        let entry = site.host(self.mac).and_then(|host| host.install);
        self.rules.policy = word.unwrap_or_else(|| site.install_policy(self.mac, rule));
        self.rules.policy_of = PolicyOf::this_if(word.is_some() || entry.is_some());
    }

    /// What a person wrote into its object; another word means nothing.
    pub fn install_word(&self) -> Option<InstallPolicy> {
        let annotations = &self.object.as_ref()?.metadata.annotations;
        policy::parse(annotations.get(INSTALL_ANNOTATION)?)
    }

    /// Why it is left alone, unless somebody has written into its object since.
    pub(super) fn unfit(&self) -> Option<Problem> {
        let Fit::Refused(why) = &self.fit else {
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
