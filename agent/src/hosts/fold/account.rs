//! What ramdisks say of their BMCs, and what becomes of the box's accounts in them.

use std::{net::Ipv4Addr, time::Duration};

use firstlight_api::account::Post;
use firstlight_netboot::MacAddr;

use super::Hosts;
use crate::{
    fleet::Speaker,
    hosts::{
        account::AccountError,
        bmc,
        event::{Effect, Reply},
        host::AccountNext,
        memory::Ticket,
    },
};

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
        self.replan(mac, now);
        let others = self.other_bmcs(mac);
        let secrets = self.credentials.clone();
        let Some(host) = self.touch(mac) else {
            return;
        };
        let next = host.account_next(post.bmc, &post.outcome, secrets.as_ref(), &others, now);
        let object = host.object.clone();
        match (next, object) {
            (AccountNext::Write(change), Some(object)) => self.effects.push(Effect::Account {
                mac,
                ticket,
                object: Box::new(object),
                change,
            }),
            (AccountNext::Tell(order), _) => self.answer(ticket, Reply::Account(Some(order))),
            (AccountNext::Write(_), None) => self.answer(ticket, Reply::Account(None)),
        }
    }

    pub(super) fn account_written(
        &mut self,
        mac: MacAddr,
        ticket: Ticket,
        result: Result<(), AccountError>,
        now: Duration,
    ) {
        let host = self.touch(mac);
        let order = host.map(|host| host.account_written(result, now));
        self.answer(ticket, Reply::Account(order));
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
