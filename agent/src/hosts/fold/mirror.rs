//! Mirrors that systems run on: looked at now and then, a few of them at once.

use std::time::Duration;

use firstlight_api::mirror::Told;
use firstlight_netboot::MacAddr;

use super::Hosts;
use crate::{
    hosts::{
        event::{Call, Effect},
        host::Host,
    },
    ssh::SshError,
};

/// Systems that are looked at at once, each of them by a login.
const MOST_LOOKS: usize = 4;

impl Hosts {
    pub(super) fn look_at_mirror(&mut self, mac: MacAddr, now: Duration) {
        let is_due = |host: &Host| host.mirror_is_due(now);
        if !self.all.get(&mac).is_some_and(is_due) {
            return;
        }
        let looks = self.all.values().filter(|host| host.is_mirror_asked());
        if looks.count() >= MOST_LOOKS {
            return;
        }
        if let Some(host) = self.all.get_mut(&mac)
            && let Some(address) = host.address
        {
            let call = host.asks_mirror();
            self.effects
                .push(Effect::LookAtMirror { mac, address, call });
        }
    }

    pub(super) fn mirror_told(
        &mut self,
        mac: MacAddr,
        call: Call,
        result: Result<Told, SshError>,
        now: Duration,
    ) {
        let Some(host) = self.touch(mac) else {
            return;
        };
        if let Err(error) = &result {
            tracing::info!(host = host.name, %mac, %error, "a system could not be asked for its mirror");
        }
        let before = host.mirror_state();
        if !host.mirror_told(call, result, now) {
            return;
        }
        let after = host.mirror_state();
        if before != after
            && let Some(problem) = after.and_then(|after| after.problem)
        {
            tracing::warn!(host = host.name, %mac, what = problem.what, "a mirror is not whole");
        }
    }
}
