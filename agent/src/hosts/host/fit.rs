//! Which of the rules of site.yaml a server takes, by what it says that it is made of.

use std::collections::BTreeSet;

use firstlight_api::{
    bmh::{BareMetalHost, HardwareDetails, INSTALL_ANNOTATION},
    site::{Gives, HostName, InstallPolicy, SiteConfig, rules::NamePattern},
    status::{HardwareSummary, Problem},
};

use super::{Host, PolicyOf};
use crate::{
    host_networks,
    hosts::{ledger::Numbered, made},
};

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

/// What the rule that fits calls a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Called {
    /// Nothing, or people call it something else.
    Freely,
    As(HostName),
    /// With a number that nobody has.
    Numbered(NamePattern),
}

/// What it is called from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Naming {
    /// As it is.
    Stays,
    Is(HostName),
    /// This other one is called so.
    Taken(HostName, String),
    /// It gets a number once all names are known.
    Waits,
}

/// The rule that a host takes, and what follows from it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ruled {
    fit: Fit,
    /// Its object as that rule makes it, where the box had made another of it, and nobody has used it since.
    overdue: Option<Box<BareMetalHost>>,
    /// It has no name yet, and so no object.
    nameless: bool,
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

    pub fn is_nameless(&self) -> bool {
        self.nameless
    }

    pub fn overdue(&self) -> Option<&BareMetalHost> {
        self.overdue.as_deref()
    }
}

impl Host {
    /// As its ramdisk says now, or has said before the box was restarted.
    pub(super) fn hardware(&self) -> Option<&HardwareDetails> {
        let reported = self.ramdisk.report();
        let reported = reported.map(|report| &*report.inventory.hardware);
        reported.or_else(|| self.object.as_ref()?.status.as_ref()?.hardware.as_deref())
    }

    /// Nobody has said a word about it but the box.
    pub fn is_nobodys(&self) -> bool {
        self.object.as_deref().is_none_or(made::is_as_made)
    }

    /// The place of the rule that fits, and what that calls it; `None` while nobody knows what it is made of.
    pub fn look_for_rule(&self, site: &SiteConfig) -> Option<(Fit, Called)> {
        let hardware = HardwareSummary::from(self.hardware()?);
        let Some((index, rule)) = site.rule_of(self.mac, &hardware) else {
            let fit = if site.rules.is_empty() {
                Fit::Open
            } else if self.rules.named || !self.is_nobodys() {
                Fit::Beside
            } else {
                Fit::Refused(NONE_FITS.to_owned())
            };
            return Some((fit, Called::Freely));
        };
        let pattern = rule.gives.name.as_ref();
        let is_named = site.host(self.mac).is_some_and(|host| host.name.is_some());
        // A name that people chose is kept.
        let pattern = pattern.filter(|_| !is_named && self.is_nobodys());
        let Some(pattern) = pattern else {
            return Some((Fit::Rule(index), Called::Freely));
        };
        Some(match pattern.fill(self.mac, &hardware, 1) {
            Err(why) => (Fit::Refused(why), Called::Freely),
            // The number is part of the name that its object has.
            Ok(_) if pattern.is_numbered() && self.object.is_some() => {
                (Fit::Rule(index), Called::Freely)
            }
            Ok(_) if pattern.is_numbered() => (Fit::Rule(index), Called::Numbered(pattern.clone())),
            Ok(name) => (Fit::Rule(index), Called::As(name)),
        })
    }

    /// The name with the lowest number that nobody has, `taken` by others; the one that it was given once, if that is still free.
    pub fn number(&mut self, pattern: &NamePattern, taken: &BTreeSet<&str>) -> Option<HostName> {
        let known = self.ledger().numbered.as_ref();
        let known = known.filter(|known| known.pattern == pattern.to_string());
        let known = known.filter(|known| !taken.contains(known.name.as_str()));
        if let Some(name) = known.and_then(|known| HostName::parse(&known.name).ok()) {
            return Some(name);
        }
        let hardware = HardwareSummary::from(self.hardware()?);
        // One of so many names is free.
        let mut names =
            (1..=taken.len() + 1).map(|number| pattern.fill(self.mac, &hardware, number));
        let name =
            names.find_map(|name| name.ok().filter(|name| !taken.contains(name.as_str())))?;
        let numbered = Numbered {
            pattern: pattern.to_string(),
            name: name.to_string(),
        };
        self.memory.note(|ledger| ledger.numbered = Some(numbered));
        Some(name)
    }

    /// True if something is new.
    pub fn take_rule(&mut self, site: &SiteConfig, mut fit: Fit, naming: Naming) -> bool {
        let nameless = naming == Naming::Waits;
        match naming {
            Naming::Taken(name, other) => {
                let me = self.mac;
                fit = Fit::Refused(format!(
                    "its rule calls this server ({me}) `{name}`, and so is {other} called"
                ));
            }
            Naming::Is(name) if self.object.is_none() => {
                self.rename(made::NAMESPACE, name.as_str());
            }
            Naming::Is(_) | Naming::Stays | Naming::Waits => {}
        }
        let mut ruled = Ruled {
            fit,
            overdue: None,
            nameless,
        };
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
        let object = self.object.as_deref();
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
        self.rules.cluster = gives.cluster;
        self.rules.policy_of = PolicyOf::this_if(word.is_some() || entry.is_some());
        self.take_account(site);
    }

    /// What a person wrote into its object; another word means nothing.
    pub fn install_word(&self) -> Option<InstallPolicy> {
        let annotations = &self.object.as_ref()?.metadata.annotations;
        annotations.get(INSTALL_ANNOTATION)?.parse().ok()
    }

    /// site.yaml wants networks on NICs that it does not have, or an address on a network that no NIC of it carries.
    pub(super) fn cannot_be_linked(&self, site: &SiteConfig) -> Option<Problem> {
        let own = |object: &BareMetalHost| object.spec.network_data.is_some();
        if self.object.as_deref().is_some_and(own) {
            return None;
        }
        let hardware = self.hardware()?;
        let layout = site.layout(self.mac, &HardwareSummary::from(hardware));
        let named = site.host(self.mac).into_iter();
        let mut addressed = named.flat_map(|host| host.addresses.keys());
        let lost = addressed.find(|name| !layout.as_ref().is_some_and(|it| it.carries(name)));
        if let Some(name) = lost {
            return Some(Problem {
                what: format!(
                    "site.yaml names an address for it on the network {name}, which its `links` do not carry"
                ),
                next: format!(
                    "add {name} to the `links` of its rule, or give it `links` in its line of `hosts`; or take the address out. Then restart the box"
                ),
            });
        }
        let layout = layout?;
        let what = host_networks::nics(&layout, self.mac, hardware).err()?;
        let next =
            "correct `links` in site.yaml and restart the box, or put the card in that is missing"
                .to_owned();
        Some(Problem { what, next })
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
