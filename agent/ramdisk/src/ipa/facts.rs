//! What is known of this machine, brought up to date before each use: disks may appear late, and jobs change them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use firstlight_api::report::DiskSignatures;
use serde_json::{Value, json};

use super::machine::{Access, Machine};
use crate::deploy::signatures;
use crate::inventory::disks::Disk;
use crate::inventory::hints::root_disk;
use crate::inventory::{self, Inventory, Link};

pub struct Facts {
    machine: Arc<dyn Machine>,
    link: Link,
    /// By disk and size: a disk is read again only after [`Facts::forget_signatures`].
    known: Mutex<BTreeMap<(String, u64), Vec<String>>>,
}

impl Facts {
    pub fn new(machine: Arc<dyn Machine>, link: Link) -> Self {
        Self {
            machine,
            link,
            known: Mutex::default(),
        }
    }

    pub fn inventory(&self) -> Inventory {
        inventory::collect(&self.machine.sys(), &self.link)
    }

    /// Signatures of these disks; disks not seen before are read, all at the same time.
    pub fn signatures(&self, disks: &[Disk]) -> Vec<DiskSignatures> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let key = |disk: &Disk| (disk.name.clone(), disk.size);
        let fresh: Vec<&Disk> = disks
            .iter()
            .filter(|d| !known.contains_key(&key(d)))
            .collect();
        thread::scope(|scope| {
            let readers: Vec<_> = fresh
                .iter()
                .map(|disk| (key(disk), scope.spawn(|| self.read(disk))))
                .collect();
            for (key, reader) in readers {
                let found = reader
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                known.insert(key, found);
            }
        });
        let of = |disk: &Disk| DiskSignatures {
            name: disk.name.clone(),
            size_bytes: disk.size,
            signatures: known.get(&key(disk)).cloned().unwrap_or_default(),
        };
        disks.iter().map(of).collect()
    }

    pub fn forget_signatures(&self) {
        self.known
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
    }

    /// The body of `continue_inspection`.
    pub fn inspection(&self) -> Value {
        let inventory = self.inventory();
        json!({
            "root_disk": root_disk(&inventory.disks, None),
            "boot_interface": inventory.boot.pxe_interface,
            "inventory": inventory,
            "error": null,
            "configuration": {"managers": [], "collectors": ["default"]},
        })
    }

    fn read(&self, disk: &Disk) -> Vec<String> {
        match self.machine.open(&disk.name, Access::Read) {
            Ok(device) => signatures::find_or_suspect(device.as_ref()),
            Err(error) => {
                tracing::warn!(disk = disk.name, %error, "the disk cannot be opened and counts as not blank");
                vec![signatures::UNREADABLE.to_owned()]
            }
        }
    }
}
