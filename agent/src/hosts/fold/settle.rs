//! What follows from what was heard: for each host that it is about, decide anew, note what has been seen, begin what is due, show what
//! has changed.

use std::{sync::Arc, time::Duration};

use firstlight_api::{
    order,
    status::HostState,
    verb::{DEPARTURE_WINDOW_S, MOST_DEPARTURES},
};
use firstlight_ironic::Node;
use firstlight_netboot::MacAddr;

use super::{Hosts, site_of};
use crate::{
    clock,
    fleet::Answer,
    hosts::{
        event::{Act, Effect, Look, Now, Reply, Shown},
        host::{Host, KexecKnown as Known},
        known,
        ledger::{Ledger, Model, Move},
        memory::{Next, Step},
        object,
        objects::ObjectTarget,
        plan::{Action, Plan},
    },
    ssh::Towards,
};

impl Hosts {
    pub(super) fn settle(&mut self, now: Now) {
        while let Some(mac) = self.dirty.pop_first() {
            self.decide(mac, now.up);
            self.show(mac, now);
        }
        let look = self.wanted_look();
        if std::mem::take(&mut self.look_again) || self.look != look {
            self.look = look.clone();
            self.effects.push(Effect::Look(look));
        }
    }

    fn wanted_look(&self) -> Look {
        /// So many nodes of a list take Ironic as long as one that is asked for by itself.
        const WORTH: usize = 25;
        let pace = self.settings.pace;
        let is_few = self.moving.len() * WORTH <= self.all.len();
        Look {
            pause: if self.moving.is_empty() {
                pace.idle
            } else {
                pace.busy
            },
            few: is_few.then(|| self.moving.iter().copied().collect()),
        }
    }

    /// Time alone may change a plan, or make something due.
    pub(super) fn tick(&mut self, now: Duration) {
        for mac in known::silent(&self.all, now) {
            self.forget(mac);
        }
        for mac in known::of_no_use(&self.all, now) {
            if let Some(host) = self.touch(mac) {
                host.memory.note(|ledger| ledger.passing = true);
            }
        }
        let macs: Vec<MacAddr> = self.all.keys().copied().collect();
        for mac in macs {
            if self.decide(mac, now) {
                self.dirty.insert(mac);
            }
        }
    }

    pub(super) fn replan(&mut self, mac: MacAddr, now: Duration) -> bool {
        self.judged.insert(mac);
        let site = site_of(&self.settings, &self.ironic, &self.uploads);
        let Some(host) = self.all.get_mut(&mac) else {
            return false;
        };
        host.learn(&site);
        let held = host.judge_start(now);
        let news = host.learns_kexec(&self.failing);
        let mut changed = host.replan(&site, now) || news;
        let allowed = host.allows_kexec(&site);
        if allowed.is_some() {
            changed |= host.replan(&site, now);
        }
        for model in [held, allowed].into_iter().flatten() {
            self.forgive(&model);
        }
        changed
    }

    /// Of servers of this model everybody may be started by kexec again.
    fn forgive(&mut self, model: &Model) {
        self.failing.remove(model);
        for (mac, ledger) in &mut self.remembered {
            if ledger.no_kexec.take_if(|known| known == model).is_some() {
                self.judged.insert(*mac);
                let (mac, ledger) = (*mac, Box::new(ledger.clone()));
                self.effects.push(Effect::Save { mac, ledger });
            }
        }
        for (mac, host) in &mut self.all {
            if host.ledger().no_kexec.as_ref() == Some(model) {
                host.forgive(model);
                self.dirty.insert(*mac);
            }
        }
    }

    /// Of the others of its model.
    fn kexec_known(&self, host: &Host) -> Known {
        if host.is_of(&self.failing) {
            return Known::Fails;
        }
        let model = host.model();
        let others = self.all.values().filter(|other| other.mac != host.mac);
        let others = others.filter_map(|other| {
            let known = other.tells_of_kexec();
            // The model last: of most there is nothing to compare.
            (known != Known::Nothing && other.model() == model).then_some(known)
        });
        others.max().unwrap_or(Known::Nothing)
    }

    /// Of which models a server did not come up by kexec. Every host whose ledger changes is decided anew, or forgotten.
    pub(super) fn learn_failing(&mut self) {
        for mac in std::mem::take(&mut self.judged) {
            let ledger = self.all.get(&mac).map(Host::ledger);
            let ledger = ledger.or_else(|| self.remembered.get(&mac));
            match ledger.and_then(|ledger| ledger.no_kexec.clone()) {
                Some(model) => drop(self.no_kexec.insert(mac, model)),
                None => drop(self.no_kexec.remove(&mac)),
            }
        }
        self.failing = self.no_kexec.values().cloned().collect();
    }

    /// True if something else is decided than before.
    fn decide(&mut self, mac: MacAddr, now: Duration) -> bool {
        let changed = self.replan(mac, now) | self.let_go_if_due(mac, now);
        let Some(host) = self.all.get_mut(&mac) else {
            return false;
        };
        host.remove_if_due(now);
        self.begin_action(mac, now);
        self.begin_probe(mac, now);
        self.begin_restart(mac, now);
        self.ask_system(mac, now);
        self.look_at_mirror(mac, now);
        self.write_down(mac, now);
        changed
    }

    /// A host in use that shall be given back: the first few go, then those whose names a person has said. Who had to wait once waits for
    /// that. True if it goes now.
    fn let_go_if_due(&mut self, mac: MacAddr, now: Duration) -> bool {
        let Some(host) = self.all.get(&mac).filter(|host| host.is_held()) else {
            return false;
        };
        let wall = self.wall;
        let lately = |ledger: &&Ledger| {
            let left = ledger.left.map(|left| wall.saturating_sub(left.at));
            left.is_some_and(|ago| ago.abs() < DEPARTURE_WINDOW_S)
        };
        let all = self.all.values().map(Host::ledger);
        let may_go = host.wanted().confirmed
            || !host.ledger().held
                && all.chain(self.remembered.values()).filter(lately).count() < MOST_DEPARTURES;
        let held = host.ledger().held;
        let Some(host) = self.all.get_mut(&mac) else {
            return false;
        };
        if may_go {
            host.memory.note(|ledger| ledger.leaves(wall));
            return self.replan(mac, now);
        }
        if !held {
            host.memory.note(|ledger| ledger.held = true);
        }
        false
    }

    fn begin_action(&mut self, mac: MacAddr, now: Duration) {
        let reachable = self.ironic.up && self.ironic.box_http.is_some();
        let Some(host) = self.all.get_mut(&mac).filter(|_| reachable) else {
            return;
        };
        let Some(action) = host.due(now) else {
            return;
        };
        let Some(token) = (self.tokens)() else {
            tracing::error!("the kernel gives no random bytes");
            return;
        };
        host.memory.queue(Step::Act {
            key: host.who.key().map(|key| key.to_string()),
            token,
            anew: host.work.gave_up.is_some() || host.ledger().retry,
            action,
        });
        host.work.begins();
    }

    fn begin_probe(&mut self, mac: MacAddr, now: Duration) {
        let pace = self.settings.pace;
        let Some(host) = self.all.get_mut(&mac) else {
            return;
        };
        let pause = match host.plan().map(|plan| plan.state) {
            Some(HostState::Provisioned) => pace.busy * 3,
            Some(HostState::Running | HostState::External) => pace.idle * 3,
            _ => return,
        };
        if let Some(address) = host.address
            && host.system.probe_due(now, pause)
        {
            self.effects.push(Effect::Probe { mac, address });
        }
    }

    fn begin_restart(&mut self, mac: MacAddr, now: Duration) {
        let pause = self.settings.pace.refused;
        let Some(host) = self.all.get_mut(&mac) else {
            return;
        };
        let Some(into) = host.restart_due(now, pause) else {
            return;
        };
        let address = host.address;
        let may_be_direct = into == Towards::Network && host.may_start_ramdisk(now);
        let host = self.all.get(&mac).filter(|_| may_be_direct);
        let is_direct = host.is_some_and(|host| host.start_order(self.kexec_known(host)).kexec);
        let host = self.all.get_mut(&mac).filter(|_| is_direct);
        self.effects.push(match (host, address) {
            (Some(host), Some(address)) => {
                host.system.starts_ramdisk();
                Effect::StartRamdisk { mac, address }
            }
            _ => Effect::Restart { mac, address, into },
        });
    }

    fn write_down(&mut self, mac: MacAddr, now: Duration) {
        let Some(host) = self.all.get_mut(&mac) else {
            return;
        };
        match host.memory.next(now) {
            Next::Nothing => {}
            Next::Write(ledger) => self.effects.push(Effect::Save { mac, ledger }),
            Next::Go(steps) => steps.into_iter().for_each(|step| self.go(mac, step)),
        }
    }

    pub(super) fn saved(&mut self, mac: MacAddr, result: Result<(), String>, now: Duration) {
        if let Err(error) = &result {
            tracing::error!(%mac, error, "the memory of a host was not written");
        }
        let Some(host) = self.touch(mac) else {
            return;
        };
        match host.memory.wrote(result, now) {
            Ok(steps) => steps.into_iter().for_each(|step| self.go(mac, step)),
            Err(steps) => steps.into_iter().for_each(|step| self.stop(mac, step, now)),
        }
    }

    /// What the step waited for is on the disk.
    fn go(&mut self, mac: MacAddr, step: Step) {
        let known = self.all.get(&mac).map(|host| self.kexec_known(host));
        let Some((host, known)) = self.touch(mac).zip(known) else {
            return;
        };
        match step {
            Step::Act { action, token, .. } => {
                if matches!(action, Action::Deploy { .. } | Action::Manage) {
                    host.work.gave_up = None;
                }
                let start = host.start_order(known);
                if matches!(action, Action::Deploy { .. }) {
                    host.start_ordered(&start);
                }
                tracing::info!(host = host.name, %mac, action = ?action, "action");
                let act = Act {
                    action,
                    mac,
                    name: host.name.clone(),
                    report: host.ramdisk.report().cloned(),
                    ramdisk: host.ramdisk_listens(),
                    object: host.object.clone(),
                    bmc: host.remote.mark().map(str::to_owned),
                    uncleaned: host.node.as_ref().is_some_and(is_uncleaned),
                    deployment: host.ledger().deployment.clone(),
                    start,
                    token,
                    key: host.who.key(),
                };
                self.effects.push(Effect::Act(Box::new(act)));
            }
            Step::Remove => host.work.removed = true,
            Step::Delivered { ticket, .. } => {
                // Who does not hear it asks again, and is told that the token was used.
                self.answer(ticket, Reply::Bootstrap(Answer::Confirmed));
            }
        }
    }

    /// It could not be written down, so it does not happen.
    fn stop(&mut self, mac: MacAddr, step: Step, now: Duration) {
        let pause = self.settings.pace.refused;
        match (step, self.touch(mac)) {
            (Step::Act { .. }, Some(host)) => host.work.never_began(now, pause),
            (Step::Delivered { ticket, .. }, _) => {
                self.answer(ticket, Reply::Bootstrap(Answer::Differs));
            }
            (Step::Act { .. } | Step::Remove, _) => {}
        }
    }

    fn show(&mut self, mac: MacAddr, now: Now) {
        let Some(host) = self.all.get(&mac) else {
            return;
        };
        if host.plan().is_some_and(moves) || host.is_switched() || host.work.is_unclear() {
            self.moving.insert(mac);
        } else {
            self.moving.remove(&mac);
        }
        if host.is_held() {
            self.held.insert(mac, host.name.clone());
        } else {
            self.held.remove(&mac);
        }
        let status = host.status();
        let target = host.boot_target();
        let keys = host.keys();
        let desired = has_object(host).then(|| {
            let rule = host.ruled.rule();
            let rule = rule.and_then(|index| self.settings.site.rules.get(index));
            let gives = self.settings.site.gives(mac, rule);
            object::desired(host, &gives, &clock::rfc3339_of(now.wall))
        });
        let old = self.shown.get(&mac);
        let shown = Shown {
            status: match old {
                Some(old) if *old.status == status => old.status.clone(),
                _ => Arc::new(status),
            },
            target,
            keys,
            desired: desired.map(|desired| {
                let old = old.and_then(|old| old.desired.as_ref());
                kept(old, desired)
            }),
        };
        if old.is_some_and(|old| is_kept(old, &shown)) {
            return;
        }
        self.shown.insert(mac, shown.clone());
        let shown = Some(shown);
        self.effects.push(Effect::Show { mac, shown });
    }
}

/// What was wanted, if nothing but times has changed; of what the server is made of, the copy that others have, too.
fn kept(old: Option<&Arc<ObjectTarget>>, mut new: ObjectTarget) -> Arc<ObjectTarget> {
    let Some(old) = old.filter(|old| object::same_but_for_times(old, &mut new)) else {
        return Arc::new(new);
    };
    let hardware = new.host.status.and_then(|status| status.hardware);
    let known = old.host.status.as_ref().map(|status| &status.hardware);
    match (known, &hardware) {
        (Some(Some(known)), Some(shared)) if !Arc::ptr_eq(known, shared) => {
            let mut target = old.clone();
            if let Some(status) = &mut Arc::make_mut(&mut target).host.status {
                status.hardware = hardware;
            }
            target
        }
        _ => old.clone(),
    }
}

fn is_kept(old: &Shown, new: &Shown) -> bool {
    let objects = match (&old.desired, &new.desired) {
        (Some(old), Some(new)) => Arc::ptr_eq(old, new),
        (old, new) => old.is_none() && new.is_none(),
    };
    objects
        && Arc::ptr_eq(&old.status, &new.status)
        && old.target == new.target
        && old.keys == new.keys
}

/// Who has only asked for an address is nobody yet, and of whom something is to be remembered there is an object once it is.
fn has_object(host: &Host) -> bool {
    !host.is_silent()
        && host.ledger().moves != Move::Away
        && (host.object.is_some() || host.memory.is_kept() && !host.ruled.is_nameless())
}

/// As `apply` would make it; nobody else changes that.
fn is_uncleaned(node: &Node) -> bool {
    let order = &node.extra[order::EXTRA];
    node.automated_clean != Some(true) && (order.is_null() || order == "")
}

/// Only there does Ironic change a node by itself; everything else begins with an action, after which it is looked at.
fn moves(plan: &Plan) -> bool {
    matches!(
        plan.state,
        HostState::Registering
            | HostState::Inspecting
            | HostState::Provisioning
            | HostState::Deprovisioning
            | HostState::Deleting
    )
}

#[cfg(test)]
impl Hosts {
    /// What is kept up is what a look at all ledgers would show.
    pub(in crate::hosts) fn assert_failing_is_known(&mut self) {
        self.learn_failing();
        let ledgers = self.all.values().map(Host::ledger);
        let ledgers = ledgers.chain(self.remembered.values());
        let all = ledgers.filter_map(|ledger| ledger.no_kexec.clone());
        assert_eq!(self.failing, all.collect());
    }
}
