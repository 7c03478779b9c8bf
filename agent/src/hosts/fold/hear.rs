//! What servers say: an address asked for, reports, progress, questions at the bootstrap endpoint.

use std::{collections::BTreeSet, net::Ipv4Addr, time::Duration};

use firstlight_api::{
    order::Mark,
    report::{Directive, DiskSignatures, Progress, Report},
    site::{HostName, Standing, rules::NamePattern},
    status::Problem,
};
use firstlight_netboot::{ClientArch, MacAddr};

use super::Hosts;
use crate::{
    fleet::{Answer, BootstrapData, Speaker},
    hosts::{
        delivery,
        event::{Collect, Effect, Now, Question, Reply},
        host::{Called, Host, Naming, Part},
        known::{Admission, Heard},
        ledger::Ledger,
        made,
        who::{Claim, Refused},
    },
};

impl Hosts {
    /// Only firmware and boot loaders make a server known: a laptop on the segment is none.
    pub(super) fn dhcp(
        &mut self,
        mac: MacAddr,
        arch: Option<ClientArch>,
        address: Option<Ipv4Addr>,
        now: Duration,
    ) {
        let known = self.all.contains_key(&mac);
        let boots = arch.is_some() || self.settings.site.host(mac).is_some();
        let may_be = known || (boots && self.admits(mac, Heard::Dhcp, now));
        if !may_be {
            return;
        }
        let host = self.host(mac, now);
        host.seen = now;
        let moved = address.is_some() && host.address != address;
        host.address = address.or(host.address);
        if arch.is_some() {
            host.firmware_asked(now);
        }
        if !known || moved || arch.is_some() {
            self.dirty.insert(mac);
        }
    }

    pub(super) fn report(&mut self, from: &Speaker, report: Report, now: Duration) -> Directive {
        match self.believe(from, report, now) {
            Err((why, reason)) => {
                self.effects.push(Effect::Refused(why));
                Directive::Wait {
                    seconds: 5,
                    reason: reason.to_owned(),
                }
            }
            Ok(mac) => self.directive(mac, now),
        }
    }

    /// Takes a report if it can be true; otherwise a counter's name and a sentence.
    fn believe(
        &mut self,
        from: &Speaker,
        report: Report,
        now: Duration,
    ) -> Result<MacAddr, (&'static str, &'static str)> {
        let (patience, site) = (self.settings.pace.patience, &self.settings.site);
        let (join, measured) = (site.join, site.measured_boot);
        let mac = report.boot_mac.parse::<MacAddr>();
        let mac = mac.map_err(|_| ("report-mac", "the report has no MAC address"))?;
        let address = report.address.parse::<Ipv4Addr>().ok();
        let mut networks = self.settings.networks.iter();
        let address = address
            .filter(|address| {
                from.peer == *address && networks.any(|network| network.contains(address))
            })
            .ok_or((
                "report-address",
                "the box believes a report only from the address that it names, in the box's network or a relayed one",
            ))?;
        let taken = self.all.values().any(|host| {
            host.mac != mac && host.who.address() == Some(address) && host.who.speaks(now, patience)
        });
        if taken {
            return Err((
                "report-address-taken",
                "another server reports from this address",
            ));
        }
        let raised = self.is_raised();
        let part = self.part_of_other(mac, &report);
        if !self.all.contains_key(&mac) && !self.admits(mac, Heard::Report, now) {
            return Err((
                "report-too-many",
                "the box knows too many servers, or met too many within a minute",
            ));
        }
        self.dirty.insert(mac);
        let host = self.host(mac, now);
        let claim = Claim {
            key: from.key,
            boot_id: &report.boot_id,
            address,
            sequence: report.fresh.sequence,
            tpm: from.tpm,
            boot: from.boot.as_ref(),
        };
        host.recognise(&claim, &report.tpm, measured, now)
            .and_then(|()| host.who.report(&claim, now, patience))
            .map_err(refusal_of)?;
        host.reported(report, &from.follows, raised, now);
        host.ramdisk.has_part(part);
        host.saw_tpm(join, from.boot.clone());
        self.take_rule(mac);
        Ok(mac)
    }

    /// What site.yaml says of a server, by what it is made of. True if that is news. While nobody knows what the file says now, what it
    /// said once stays.
    pub(super) fn take_rule(&mut self, mac: MacAddr) -> bool {
        let site = self.settings.site.clone();
        let is_known = site.standing != Standing::Unknown;
        let host = self.all.get(&mac).filter(|_| is_known);
        let Some((fit, called)) = host.and_then(|host| host.look_for_rule(&site)) else {
            return false;
        };
        let naming = match called {
            Called::Freely => Naming::Stays,
            Called::As(name) => match self.who_is_called(name.as_str(), mac) {
                Some(other) => Naming::Taken(name, other),
                None => Naming::Is(name),
            },
            Called::Numbered(pattern) => self.numbered(mac, &pattern),
        };
        let host = self.all.get_mut(&mac);
        host.is_some_and(|host| host.take_rule(&site, fit, naming))
    }

    /// A name with a number that no other server has, nor any object that somebody has written.
    fn numbered(&mut self, mac: MacAddr, pattern: &NamePattern) -> Naming {
        if !self.objects_known {
            return Naming::Waits;
        }
        let Some(mut host) = self.all.remove(&mac) else {
            return Naming::Waits;
        };
        let mut taken: BTreeSet<&str> = BTreeSet::new();
        let known = self.all.values();
        let here = known.filter(|host| host.namespace == made::NAMESPACE);
        taken.extend(here.map(|host| host.name.as_str()));
        let ledgers = self.all.values().map(Host::ledger);
        let ledgers = ledgers.chain(self.remembered.values());
        let numbered = ledgers.filter_map(|ledger| ledger.numbered.as_ref());
        taken.extend(numbered.map(|numbered| numbered.name.as_str()));
        let entries = self.settings.site.hosts.iter();
        let others = entries.filter(|entry| entry.mac != mac);
        taken.extend(others.filter_map(|entry| Some(entry.name.as_ref()?.as_str())));
        taken.extend(self.strays.names_in(made::NAMESPACE));
        let name = host.number(pattern, &taken);
        self.all.insert(mac, host);
        name.map_or(Naming::Waits, Naming::Is)
    }

    /// Another server than `mac`.
    fn who_is_called(&self, name: &str, mac: MacAddr) -> Option<String> {
        let mut known = self.all.values();
        let known = known
            .find(|host| host.mac != mac && host.name == name && host.namespace == made::NAMESPACE);
        let entry = || {
            let mut entries = self.settings.site.hosts.iter();
            let is_it = |other: &HostName| other.as_str() == name;
            entries.find(|entry| entry.mac != mac && entry.name.as_ref().is_some_and(is_it))
        };
        known
            .map(|host| format!("{} ({})", host.name, host.mac))
            .or_else(|| Some(format!("{} in `hosts` of site.yaml", entry()?.mac)))
    }

    /// A host with a system of ours whose network card this machine has, so that it is that machine, or whose disk.
    fn part_of_other(&self, mac: MacAddr, report: &Report) -> Option<Part> {
        // After a start of the box nobody may have spoken of some yet.
        let known = self.all.iter().map(|(mac, host)| (*mac, host.ledger()));
        let remembered = self.remembered.iter().map(|(mac, ledger)| (*mac, ledger));
        let others = known.chain(remembered).filter(|(other, _)| *other != mac);
        let installed = others.filter_map(|(mac, ledger)| Some((mac, ledger.deployment.as_ref()?)));
        let name = |mac: MacAddr| {
            let known = self.all.get(&mac).map(|host| host.name.clone());
            known.unwrap_or_else(|| self.settings.site.host_name(mac).to_string())
        };
        let nics = report.inventory.hardware.nics.iter();
        let cards: BTreeSet<MacAddr> = nics.filter_map(|nic| nic.mac.parse().ok()).collect();
        let mut disk = None;
        for (other, deployment) in installed {
            if cards.contains(&other) {
                return Some(Part::Card { of: name(other) });
            }
            let is_its = |disk: &&DiskSignatures| {
                let wrote = disk.mark.and_then(Mark::deployment);
                wrote.is_some() && wrote == deployment.id
            };
            disk = disk.or_else(|| Some((other, report.disks.iter().find(is_its)?)));
        }
        disk.map(|(other, disk)| Part::Disk {
            of: name(other),
            disk: disk.name.clone(),
        })
    }

    /// A host has had its bootstrap data, as the first control plane of a cluster does before all others; also where that cluster
    /// was deleted since.
    fn is_raised(&self) -> bool {
        let known = self.all.values().map(Host::ledger);
        let mut ledgers = known.chain(self.remembered.values());
        ledgers.any(Ledger::was_served)
    }

    fn directive(&mut self, mac: MacAddr, now: Duration) -> Directive {
        self.replan(mac, now);
        let Some(host) = self.all.get_mut(&mac) else {
            return Directive::Again;
        };
        let directive = host.plan().map_or_else(
            || Directive::Wait {
                seconds: 10,
                reason: "the box has not decided yet".to_owned(),
            },
            |plan| plan.directive.clone(),
        );
        if directive == Directive::BootDisk {
            host.who.leaves();
            host.ramdisk.has_ended();
        }
        directive
    }

    /// True if it was believed.
    pub(super) fn progress(&mut self, from: &Speaker, progress: Progress, now: Now) -> bool {
        let mac = progress.boot_mac.parse::<MacAddr>().ok();
        let Some(host) = mac.and_then(|mac| self.touch(mac)) else {
            return false;
        };
        let believed = host.progressed(from.key, progress, now);
        if let Err(why) = believed {
            self.effects.push(Effect::Refused(refusal_of(why).0));
        }
        believed.is_ok()
    }

    /// May somebody who says that he is there be known? Within the limits for such.
    fn admits(&mut self, mac: MacAddr, heard: Heard, now: Duration) -> bool {
        if self.remembered.contains_key(&mac) || self.settings.site.host(mac).is_some() {
            return true;
        }
        match self.newcomers.admit(&self.all, heard, now) {
            Admission::Refused => false,
            Admission::Admitted => true,
            Admission::InPlaceOf(oldest) => {
                self.forget(oldest);
                true
            }
        }
    }

    pub(super) fn asked(&mut self, question: Question, now: Duration) {
        let mac = self.by_node.get(&question.host).copied();
        let Some((mac, host)) = mac.and_then(|mac| Some((mac, self.touch(mac)?))) else {
            return self.answer(question.ticket, Reply::Bootstrap(Answer::Unknown));
        };
        delivery::heard(host, &question, now);
        self.replan(mac, now);
        let Some(host) = self.all.get(&mac) else {
            return;
        };
        match delivery::answer(host, &question) {
            Some(answer) => self.answer(question.ticket, Reply::Bootstrap(answer)),
            None => self.effects.push(Effect::Collect(Box::new(Collect {
                mac,
                name: host.name.clone(),
                object: host.object.clone(),
                question,
            }))),
        }
    }

    pub(super) fn collected(
        &mut self,
        mac: MacAddr,
        question: &Question,
        data: Result<BootstrapData, Problem>,
    ) {
        let answer = match self.touch(mac) {
            Some(host) => delivery::collected(host, question, data),
            None => Some(Answer::Unknown),
        };
        if let Some(answer) = answer {
            self.answer(question.ticket, Reply::Bootstrap(answer));
        }
    }
}

/// A counter's name and a sentence.
fn refusal_of(why: Refused) -> (&'static str, &'static str) {
    match why {
        Refused::Old => ("report-old", "the box has heard this before"),
        Refused::Taken => (
            "report-taken",
            "another machine speaks for this MAC address; it is believed until it has been silent for a while",
        ),
        Refused::Unbound => (
            "report-unbound",
            "the box has had no report of this machine",
        ),
        Refused::Unproven => (
            "report-unproven",
            "the box waits for this machine's TPM to say that it is the one it knows",
        ),
        Refused::Stranger => (
            "report-stranger",
            "the box knows another TPM by this MAC address; if it was replaced, approve this machine's code: firstlight hosts approve",
        ),
        Refused::Misled => (
            "report-misled",
            "the box does not believe how this machine was started; its page says why",
        ),
    }
}
