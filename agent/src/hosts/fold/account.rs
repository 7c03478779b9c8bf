//! What ramdisks and running systems say of their BMCs, and what becomes of the box's accounts in them.

use std::{net::Ipv4Addr, time::Duration};

use firstlight_api::account::{Bmc, Order, Outcome, Post, Told};
use firstlight_netboot::MacAddr;

use super::Hosts;
use crate::{
    fleet::Speaker,
    hosts::{
        account::AccountError,
        bmc,
        event::{AccountBy, Call, Effect, Reply},
        host::{AccountNext, Host},
        memory::Ticket,
    },
    ssh::SshError,
};

/// Systems that are asked at once, each of them by a login.
const MOST_CALLS: usize = 8;

impl Hosts {
    pub(super) fn bmc(&mut self, ticket: Ticket, from: &Speaker, post: &Post, now: Duration) {
        let mac = post.boot_mac.parse::<MacAddr>().ok();
        let is_believed = |mac: &MacAddr| {
            let host = self.all.get(mac);
            host.is_some_and(|host| host.who.is(from.key, &post.boot_id, from.peer))
        };
        let Some(mac) = mac.filter(is_believed) else {
            self.effects.push(Effect::Refused("bmc-unbound"));
            return self.answer(ticket, Reply::Account(None));
        };
        let by = AccountBy::Ramdisk(ticket);
        self.account_said(mac, by, post.bmc, &post.outcome, now);
    }

    /// A system that runs, and may be asked for its BMC.
    pub(super) fn ask_system(&mut self, mac: MacAddr, now: Duration) {
        let due = self.all.get_mut(&mac).filter(|_| self.ironic.known);
        if !due.is_some_and(|host| host.ask_is_due(now)) {
            return;
        }
        let calls = self.all.values().filter(|host| host.is_system_asked());
        if calls.count() >= MOST_CALLS {
            return;
        }
        let Some(host) = self.all.get_mut(&mac) else {
            return;
        };
        if let Some(address) = host.address {
            let (call, ask) = host.asks_system();
            self.effects.push(Effect::AskSystem {
                mac,
                address,
                ask,
                call,
            });
        }
    }

    pub(super) fn system_told(
        &mut self,
        mac: MacAddr,
        call: Call,
        result: Result<Told, SshError>,
        now: Duration,
    ) {
        let Some(host) = self.touch(mac).filter(|host| host.is_last_call(call)) else {
            tracing::info!(%mac, "what a system said of its BMC comes too late and counts for nothing");
            return;
        };
        if let Err(error) = &result {
            tracing::warn!(host = host.name, %mac, %error, "a system could not be asked for its BMC");
        }
        if let Some((bmc, said)) = host.system_told(result, now) {
            self.account_said(mac, AccountBy::System(call), bmc, &said, now);
        }
    }

    fn account_said(
        &mut self,
        mac: MacAddr,
        by: AccountBy,
        bmc: Bmc,
        said: &Outcome,
        now: Duration,
    ) {
        self.replan(mac, now);
        let others = self.other_bmcs(mac);
        let secrets = self.credentials.clone();
        let Some(host) = self.touch(mac) else {
            return;
        };
        let next = host.account_next(bmc, said, secrets.as_ref(), &others, now);
        let object = host.object.clone();
        match (next, object) {
            (AccountNext::Write(change), Some(object)) => self.effects.push(Effect::Account {
                mac,
                by,
                object,
                change,
            }),
            (AccountNext::Tell(order), _) => self.account_goes_on(mac, by, Some(order), now),
            (AccountNext::Write(_), None) => self.account_goes_on(mac, by, None, now),
        }
    }

    pub(super) fn account_written(
        &mut self,
        mac: MacAddr,
        by: AccountBy,
        result: Result<(), AccountError>,
        now: Duration,
    ) {
        let host = self.touch(mac);
        // A ramdisk that has come since may have made another password than the one that was written down: it stays open.
        let is_current = |host: &&mut Host| match by {
            AccountBy::Ramdisk(_) => true,
            AccountBy::System(call) => host.is_last_call(call),
        };
        let host = host.filter(is_current);
        let order = host.map(|host| host.account_written(result, now));
        self.account_goes_on(mac, by, order, now);
    }

    /// `order`: none where the host is gone.
    fn account_goes_on(
        &mut self,
        mac: MacAddr,
        by: AccountBy,
        order: Option<Order>,
        now: Duration,
    ) {
        match (by, order) {
            (AccountBy::Ramdisk(ticket), order) => self.answer(ticket, Reply::Account(order)),
            (AccountBy::System(_), None) => {}
            (AccountBy::System(call), Some(order)) => {
                if let Some(host) = self.touch(mac).filter(|host| host.is_last_call(call)) {
                    host.system_goes_on(order, now);
                }
            }
        }
    }

    /// Where the BMCs of all other hosts are, as their objects name them.
    fn other_bmcs(&self, mac: MacAddr) -> Vec<Ipv4Addr> {
        let others = self.all.values().filter(|host| host.mac != mac);
        let named = others.filter_map(|host| host.object.as_ref()?.spec.bmc.as_ref());
        named
            .filter_map(|details| bmc::read(details).ok()?.address())
            .collect()
    }
}
