//! What is seen of a host, and what follows from it at once.

use std::{sync::Arc, time::Duration};

use firstlight_api::{
    bmh::{BareMetalHost, Image, ProvisioningState, annotations},
    report::Phase,
};
use firstlight_ironic::{Node, ProvisionState};

use super::{Host, Site};
use crate::hosts::{
    intent::UNREADABLE,
    ledger::{Deployment, Move},
};

impl Host {
    /// A node as Ironic shows it now; `None` after it was removed. True if that is news.
    pub fn observe_node(&mut self, node: Option<Node>, now: Duration) -> bool {
        use ProvisionState as S;
        let news = self.work.seen() || self.node != node;
        let state = |node: &Option<Node>| node.as_ref().map(|node| node.provision_state.clone());
        let (before, after) = (state(&self.node), state(&node));
        if before != after {
            self.work.node_since = now;
            // What a ramdisk did before a deployment ended belongs to that one.
            if !matches!(after, Some(S::Deploying | S::DeployWait)) {
                self.ramdisk.forget_phase();
            }
            if after == Some(S::Active) {
                self.ramdisk.has_ended();
            }
        }
        if node.as_ref().is_some_and(Node::is_off) {
            self.remote.is_off();
            self.system_is_down();
            self.restarted();
        }
        if before.is_some() && after.is_none() {
            self.work.gave_up = None;
        }
        self.node = node;
        news
    }

    /// The object as it is now, with the policy that holds then. True if that is news.
    pub fn observe_object(&mut self, object: Option<Arc<BareMetalHost>>) -> bool {
        let news = self.object != object;
        self.object = object;
        self.share_hardware();
        news
    }

    /// What it is made of is known by its object and by its ramdisk, as a rule the same.
    pub fn share_hardware(&mut self) {
        let status = self.object.as_ref().and_then(|it| it.status.as_ref());
        if let Some(hardware) = status.and_then(|status| status.hardware.as_ref()) {
            self.ramdisk.share(hardware);
        }
    }

    /// The object as it says itself to be. One that comes from another management cluster brings its status as an annotation, and
    /// its server what was installed from there.
    pub fn moved_in(&mut self, mut object: Arc<BareMetalHost>) -> Arc<BareMetalHost> {
        let said = &object.metadata.annotations;
        let is_paused = annotations::paused_by(said).is_some_and(|by| by != UNREADABLE);
        let has_status = object.status.as_ref();
        let has_status = has_status.is_some_and(|status| status.last_updated.is_some());
        let brought = annotations::status(said).filter(|_| !has_status);
        let status = brought.and_then(Result::ok);
        let held = status.as_ref().map(|status| &status.provisioning);
        let held = held.filter(|it| it.state == ProvisioningState::Provisioned);
        let held = held.and_then(|it| it.image.clone());
        self.memory.note(|ledger| {
            ledger.moves = if is_paused { Move::Paused } else { Move::None };
            if let Some(image) = held {
                ledger.deployment.get_or_insert_with(|| Deployment {
                    image,
                    delivered: true,
                    written: true,
                    shown: true,
                    ..Deployment::default()
                });
            }
        });
        if status.is_some() {
            Arc::make_mut(&mut object).status = status;
        }
        object
    }

    /// There is no object of it.
    pub fn has_moved(&mut self) {
        if self.ledger().moves == Move::Paused {
            tracing::info!(host = self.name, mac = %self.mac, "its paused object is gone: it was moved");
            self.memory.note(|ledger| ledger.moves = Move::Away);
        }
    }

    /// Notes what has been seen to be so.
    pub fn learn(&mut self, site: &Site) {
        use ProvisionState as S;
        let state = self.node.as_ref().map(|node| &node.provision_state);
        let free = state == Some(&S::Available);
        // Only a deployment ends with a verified image on the disk.
        let deploys = matches!(state, None | Some(S::Deploying | S::DeployWait));
        let phase = self.ramdisk.phase();
        let is_whole =
            deploys && matches!(phase, Some(Phase::Written { .. } | Phase::Rebooting { .. }));
        let key = self.who.key();
        let installed = state == Some(&S::Active) && !self.ledger().leaving;
        let held = self.node.as_ref().filter(|_| installed);
        let gone = site.ironic_known && self.node.is_none();
        let object = self.object.as_ref();
        self.memory.note(|ledger| {
            if let Some(object) = object {
                ledger.has_object = true;
                let asked = &object.metadata.annotations;
                ledger.done.retain(|name| asked.contains_key(name));
                if let Some(known) = &mut ledger.deployment {
                    known.shown |= object.spec.image.is_some();
                }
            }
            if free {
                (ledger.inspections, ledger.cleanings) = (0, 0);
            }
            if free || gone {
                (ledger.leaving, ledger.gives_back) = (false, None);
            }
            if let Some(node) = held {
                let known = ledger.deployment.get_or_insert_with(|| Deployment {
                    image: installed_image(node),
                    ..Deployment::default()
                });
                known.written = true;
            }
            // Of the ramdisk that got the order.
            if let Some(known) = ledger.deployment.as_mut().filter(|_| is_whole) {
                let is_its = key.map_or(known.key.is_none(), |key| known.is_ordered_of(key));
                known.written |= is_its;
            }
        });
    }
}

/// What an active node of an agent that kept no ledger holds.
fn installed_image(node: &Node) -> Image {
    let text = |key: &str| {
        let text = node.instance_info[key].as_str();
        text.unwrap_or_default().to_owned()
    };
    Image {
        url: text("image_source"),
        checksum: text("image_os_hash_value"),
        ..Image::default()
    }
}
