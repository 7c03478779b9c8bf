//! What is said to installed systems over SSH: each call is a task that comes back as an event.

use std::net::Ipv4Addr;

use firstlight_api::account::Ask;
use firstlight_netboot::MacAddr;

use super::Runner;
use crate::{
    hosts::{
        apply,
        event::{Call, Event},
    },
    ssh::{self, Node, Towards},
};

impl Runner {
    pub(super) fn restart(&mut self, mac: MacAddr, address: Option<Ipv4Addr>, into: Towards) {
        let keys = self.hands.keys.clone();
        self.tasks.spawn(async move {
            let result = match address {
                Some(address) => keys.restart(mac, address, into).await,
                None => Err(anyhow::anyhow!("its address is not known")),
            };
            let result = result.map_err(|error| format!("{error:#}"));
            Event::Restarted { mac, into, result }
        });
    }

    pub(super) fn start_ramdisk(&mut self, node: Node) {
        let hands = self.hands.clone();
        self.tasks.spawn(async move {
            let result = apply::start_ramdisk(&hands, &node).await;
            let mac = node.mac;
            Event::RamdiskStarted { mac, result }
        });
    }

    pub(super) fn probe(&mut self, mac: MacAddr, address: Ipv4Addr) {
        let port = self.hands.keys.port();
        self.tasks.spawn(async move {
            let answers = ssh::answers(address, port).await;
            Event::Ssh { mac, answers }
        });
    }

    pub(super) fn ask_system(&mut self, node: Node, ask: Ask, call: Call) {
        let keys = self.hands.keys.clone();
        self.tasks.spawn(async move {
            let result = keys.ask_bmc(&node, ask).await;
            let mac = node.mac;
            Event::SystemTold { mac, call, result }
        });
    }

    pub(super) fn look_at_mirror(&mut self, node: Node, call: Call) {
        let keys = self.hands.keys.clone();
        self.tasks.spawn(async move {
            let result = keys.look_at_mirror(&node).await;
            let mac = node.mac;
            Event::MirrorTold { mac, call, result }
        });
    }
}
