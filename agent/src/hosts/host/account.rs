//! The account in a host's BMC: what its ramdisk or its running system says of it, and what that is told to do. Who may say so is for
//! `fold`.

mod system;

use std::{net::Ipv4Addr, time::Duration};

use firstlight_api::{
    account::{Bmc, Order, Outcome},
    bmh::BareMetalHost,
    site::{BmcAccount, SiteConfig},
    status::{HardwareSummary, Problem},
};
use firstlight_ironic::ProvisionState;

use super::Host;
use crate::hosts::{
    account::{self, AccountError, Change, DesiredAccount, MADE, Named},
    plan::{EXTRA_BMC, Remote},
    store::Versions,
};
use system::Inquiry;

/// Between two looks at what stays as it is.
const REST: u32 = 60;
/// While something else has to happen first.
const SOON: u32 = 5;
/// Until what was written has come back from Kubernetes for sure.
const SETTLES: u32 = 15;
/// For a BMC that did not answer the box the last time: an account is made, or opened to the network, no oftener.
const SILENT: Duration = Duration::from_mins(30);

#[derive(Clone, Debug, Default)]
pub struct Account {
    /// What is in the way of it.
    trouble: Option<Problem>,
    /// When its BMC did not answer.
    silent: Option<Duration>,
    /// When Ironic could not use it, and why; it has never been able to.
    unusable: Option<(Duration, Problem)>,
    rule: Rule,
    /// Of the running system.
    pub asked: Inquiry,
}

/// What site.yaml says of such a server.
#[derive(Clone, Copy, Debug, Default)]
enum Rule {
    /// Nobody knows what it is made of.
    #[default]
    Unknown,
    Says(Option<BmcAccount>),
}

/// What follows from what a ramdisk or a system says of its BMC.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    Tell(Order),
    Write(Change),
}

impl Next {
    const fn rest(seconds: u32) -> Self {
        Self::Tell(Order::Rest { seconds })
    }
}

impl Account {
    /// For people.
    pub fn trouble(&self) -> Option<&Problem> {
        self.trouble.as_ref()
    }
}

impl Host {
    pub(super) fn take_account(&mut self, site: &SiteConfig) {
        let hardware = self.hardware().map(HardwareSummary::from);
        self.remote.account.rule = match hardware {
            None if !site.rules.is_empty() => Rule::Unknown,
            hardware => {
                let rule = hardware.and_then(|it| site.rule_of(self.mac, &it));
                Rule::Says(rule.and_then(|(_, rule)| rule.gives.account))
            }
        };
    }

    pub fn desired_account(&self) -> DesiredAccount {
        match (&self.object, self.remote.account.rule) {
            (Some(object), Rule::Says(rule)) => account::desired(object, rule),
            (None, _) | (_, Rule::Unknown) => DesiredAccount::Nothing,
        }
    }

    /// There may be one: whoever has use for it can switch it on.
    pub(super) fn has_account(&self) -> bool {
        let object = self.object.as_ref();
        object.is_some_and(|object| object.metadata.annotations.contains_key(MADE))
    }

    fn has_account_named(&self) -> bool {
        let object = self.object.as_ref();
        object.is_some_and(|object| account::named(object) == Named::Ours)
    }

    /// `spec.bmc` is the box's own, and goes.
    pub fn account_goes(&self) -> bool {
        let unusable = self.remote.account.unusable.is_some();
        (unusable || self.desired_account() == DesiredAccount::Remove) && self.has_account_named()
    }

    /// A BMC by which Ironic could not speak to the server from the beginning is as good as none: a server with none is installed.
    pub(super) fn learn_account(&mut self, now: Duration) {
        let Remote::Named(bmc) = self.remote.seen() else {
            return;
        };
        let node = self.node.as_ref();
        let enrols = node.filter(|node| node.provision_state == ProvisionState::Enroll);
        let refused = enrols.and_then(|node| node.last_error.as_deref());
        let is_new =
            node.is_none_or(|node| node.extra[EXTRA_BMC].as_str().is_none_or(str::is_empty));
        let failed = bmc.failed.filter(|_| is_new).cloned();
        let failed = refused.map(|error| bmc.explained(error)).or(failed);
        if let Some(problem) = failed.filter(|_| self.has_account_named()) {
            self.remote.account.unusable.get_or_insert((now, problem));
        }
    }

    /// What people should know of it, each with the place in the object that it is about.
    pub fn account_notes(&self) -> Vec<String> {
        let told =
            |what: &str, problem: &Problem| format!("{what}: {}; {}", problem.what, problem.next);
        let unasked = self.system_trouble();
        match self.desired_account() {
            DesiredAccount::Create => {
                // Whoever has the account need not be asked.
                let unasked = unasked.filter(|_| !self.has_account_named());
                let trouble = self.remote.account.trouble().or(unasked);
                let note = trouble.map(|it| told("bmc.account", it));
                note.into_iter().collect()
            }
            DesiredAccount::Remove => {
                let still = format!(
                    "{MADE}: the box's account is still in its BMC, and is taken out of it when its system lets the box do that, or when \
                     the server runs its ramdisk the next time"
                );
                let note = unasked.map(|it| told(MADE, it));
                std::iter::once(still).chain(note).collect()
            }
            DesiredAccount::Nothing => Vec::new(),
        }
    }

    /// `secrets`: those that there are; `others`: where the BMCs of other hosts are.
    pub fn account_next(
        &mut self,
        bmc: Bmc,
        said: &Outcome,
        secrets: Option<&Versions>,
        others: &[Ipv4Addr],
        now: Duration,
    ) -> Next {
        if self.plan().is_some_and(|plan| plan.ends_account) {
            return if bmc.account {
                Next::Tell(Order::Remove)
            } else {
                Next::Write(Change::Forget)
            };
        }
        if let Some(next) = self.account_waits() {
            return match said {
                // It is said again, and meanwhile nobody else has it.
                Outcome::Made { .. } => Next::Tell(Order::Repeat { seconds: SOON }),
                _ => next,
            };
        }
        match self.desired_account() {
            DesiredAccount::Create => self.account_created(bmc, said, secrets, others, now),
            DesiredAccount::Remove => self.account_removed(bmc),
            DesiredAccount::Nothing => unwanted(said),
        }
    }

    /// Nobody is to change anything about this host yet.
    fn account_waits(&self) -> Option<Next> {
        let wanted = self.wanted();
        let waits = self.decision.barred.is_some()
            || wanted.paused.is_some()
            || wanted.detached.is_some()
            || self.rules.twin
            || self.object.as_deref().is_none_or(BareMetalHost::is_deleted);
        waits.then_some(Next::rest(SOON))
    }

    fn account_created(
        &mut self,
        bmc: Bmc,
        said: &Outcome,
        secrets: Option<&Versions>,
        others: &[Ipv4Addr],
        now: Duration,
    ) -> Next {
        let Some(object) = self.object.clone() else {
            return Next::rest(SOON);
        };
        let named = account::named(&object);
        if named == Named::Theirs {
            self.remote.account.trouble = None;
            return unwanted(said);
        }
        if let Some(next) = self.account_unusable(named, bmc, said, now) {
            return next;
        }
        let address = bmc.address.filter(|it| account::is_reachable(&object, *it));
        let problem = match (said, bmc.address, address) {
            (Outcome::Failed { reason }, ..) => Some(failed(reason)),
            (_, None, _) => Some(no_address()),
            (_, Some(at), None) => Some(no_place(at)),
            (_, Some(at), Some(_)) if others.contains(&at) => Some(anothers(at)),
            _ => None,
        };
        let silent = self.remote.account.silent;
        let is_silent = silent.is_some_and(|at| now.saturating_sub(at) < SILENT);
        let (Some(address), None) = (address, &problem) else {
            self.remote.account.trouble = problem;
            return unwanted(said);
        };
        if let Outcome::Made { password } = said {
            let password = password.clone();
            return Next::Write(Change::Keep { address, password });
        }
        if is_silent {
            return Next::rest(REST);
        }
        self.remote.account.trouble = None;
        let at = object.spec.bmc.as_ref().map(|bmc| bmc.address.as_str());
        let Some(secrets) = secrets else {
            return Next::rest(SOON);
        };
        let is_kept = secrets.contains_key(&account::secret_key(&object));
        let is_there = at == Some(account::address(address).as_str()) && is_kept && bmc.account;
        let is_open = self.ledger().account_open;
        if is_there && !is_open {
            return Next::rest(REST);
        }
        // On the disk before the BMC has another password, for whoever makes it may be gone before it is known here.
        if is_open && self.memory.is_kept() {
            return Next::Tell(Order::Make);
        }
        self.memory.note(|ledger| ledger.account_open = true);
        Next::rest(SOON)
    }

    fn account_unusable(
        &mut self,
        named: Named,
        bmc: Bmc,
        said: &Outcome,
        now: Duration,
    ) -> Option<Next> {
        let (at, problem) = self.remote.account.unusable.clone()?;
        if now.saturating_sub(at) >= SILENT {
            self.remote.account.unusable = None;
            return None;
        }
        self.remote.account.trouble = Some(problem);
        Some(match named {
            Named::Ours => Next::rest(SOON),
            _ if self.is_ironic_by_bmc() => Next::rest(SOON),
            _ if bmc.account => Next::Tell(Order::Remove),
            _ => unwanted(said),
        })
    }

    fn is_ironic_by_bmc(&self) -> bool {
        let node = self.node.as_ref();
        node.is_some_and(firstlight_ironic::Node::has_bmc)
    }

    /// First Ironic lets go of it: it would speak to a BMC that does not know it any more.
    fn account_removed(&mut self, bmc: Bmc) -> Next {
        let has_bmc = self.is_ironic_by_bmc();
        let object = self.object.as_deref();
        match object.map(account::named) {
            Some(Named::Ours) => Next::rest(SOON),
            Some(Named::Nothing) if has_bmc => Next::rest(SOON),
            _ if bmc.account => Next::Tell(Order::Remove),
            _ => Next::Write(Change::Forget),
        }
    }

    /// What came of a change, as whoever told of it is told.
    pub fn account_written(&mut self, result: Result<(), AccountError>, now: Duration) -> Order {
        let account = &mut self.remote.account;
        match result {
            Ok(()) => {
                (account.trouble, account.silent) = (None, None);
                self.memory.note(|ledger| ledger.account_open = false);
                Order::Rest { seconds: SETTLES }
            }
            Err(AccountError::Silent) => {
                account.silent = Some(now);
                account.trouble = Some(unheard());
                Order::Remove
            }
            Err(AccountError::Unwritten(problem)) => {
                account.trouble = Some(problem);
                Order::Repeat { seconds: SOON }
            }
        }
    }
}

/// What was made meanwhile goes again.
fn unwanted(said: &Outcome) -> Next {
    match said {
        Outcome::Made { .. } => Next::Tell(Order::Remove),
        _ => Next::rest(REST),
    }
}

fn problem(what: String, next: &str) -> Problem {
    Problem {
        what,
        next: format!(
            "{next}; the box looks again by itself, as long as the server runs its ramdisk or its system"
        ),
    }
}

fn failed(reason: &str) -> Problem {
    problem(
        format!("no account could be made in its BMC: {reason}"),
        "mend what the reason names, or name the BMC in `spec.bmc`",
    )
}

fn no_address() -> Problem {
    problem(
        "its BMC has no address on a network".to_owned(),
        "give it one in the server's firmware, by DHCP or by hand",
    )
}

fn no_place(at: Ipv4Addr) -> Problem {
    problem(
        format!("its BMC says that it is at {at}, where no BMC can be that the box may speak to"),
        "give it an address of its own in the server's firmware",
    )
}

fn anothers(at: Ipv4Addr) -> Problem {
    problem(
        format!("its BMC says that it is at {at}, where the BMC of another host is"),
        "look which of the two it is, and give the other one an address of its own",
    )
}

fn unheard() -> Problem {
    problem(
        "its BMC does not answer the box by IPMI at the address that it has".to_owned(),
        "connect the BMC's network to one that the box has a way to, and see that UDP port 623 is let through",
    )
}
