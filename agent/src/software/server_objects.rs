//! The objects that say which server is which node.

use std::sync::Arc;

use anyhow::Result;
use firstlight_api::{capi::Machine, capm3::Metal3Machine, site::SiteConfig};

use crate::{
    capi::{
        HOSTS, MACHINES, METAL3_MACHINES,
        world::{Host, World, keyed},
    },
    objects::{Objects, Selection, Watches},
};

pub struct ServerObjects {
    site: Arc<SiteConfig>,
    hosts: Objects<Host>,
    machines: Objects<Machine>,
    metal3_machines: Objects<Metal3Machine>,
}

impl ServerObjects {
    /// A site without clusters has no machines.
    pub fn new(watches: &mut Watches, site: Arc<SiteConfig>) -> Self {
        Self {
            site,
            hosts: watches.objects(Selection::perhaps(HOSTS)),
            machines: watches.objects(Selection::perhaps(MACHINES)),
            metal3_machines: watches.objects(Selection::perhaps(METAL3_MACHINES)),
        }
    }

    /// As much of the world as they say.
    pub async fn look(&self) -> Result<World> {
        let mut unreadable = Vec::new();
        Ok(World {
            site: self.site.clone(),
            hosts: keyed(self.hosts.all().await?, &mut unreadable),
            machines: keyed(self.machines.all().await?, &mut unreadable),
            metal3_machines: keyed(self.metal3_machines.all().await?, &mut unreadable),
            unreadable,
            ..World::default()
        })
    }
}
