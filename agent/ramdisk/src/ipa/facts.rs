//! What is known of this machine, brought up to date before each use: disks may appear late, and jobs change them.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use firstlight_api::disk::{Disk, hints::root_disk};
use firstlight_api::order::DiskId;
use firstlight_api::report::DiskSignatures;
use firstlight_client::key::Key;
use firstlight_efi::boot_entry::boot_disks;
use firstlight_efi::load_option::DiskPath;
use serde_json::{Value, json};

use super::machine::{Access, Machine};
use crate::deploy::signatures::{self, Content};
use crate::inventory::interfaces::Interface;
use crate::inventory::{self, Inventory, Link, boot_order};

/// A report may say what was read this long ago.
const KEPT: Duration = Duration::from_mins(1);

pub struct Facts {
    machine: Arc<dyn Machine>,
    link: Link,
    /// The firmware's, as it was at the start: an installation changes it.
    boot_order: Vec<DiskPath>,
    /// Of disks that are there, for reports alone: what is done to a disk is decided by [`Facts::judged`].
    known: Mutex<BTreeMap<Position, (Instant, Content)>>,
    kept: Duration,
    /// Where its BMC is, once that has said so.
    bmc: Mutex<Option<Ipv4Addr>>,
}

/// With the kernel's name, for disks that cannot be told apart otherwise.
type Position = (DiskId, String);

/// A disk, and what is on it in this moment.
#[derive(Clone, Debug)]
pub struct Judged {
    pub disk: Disk,
    pub found: DiskSignatures,
}

impl Facts {
    pub fn new(machine: Arc<dyn Machine>, link: Link) -> Self {
        let vars = machine.efi_vars();
        Self {
            boot_order: vars.map_or_else(Vec::new, |vars| boot_disks(&vars)),
            machine,
            link,
            known: Mutex::default(),
            kept: KEPT,
            bmc: Mutex::default(),
        }
    }

    /// Its BMC has this address.
    pub fn has_bmc(&self, address: Option<Ipv4Addr>) {
        *self.bmc.lock().unwrap_or_else(PoisonError::into_inner) = address;
    }

    pub fn inventory(&self) -> Inventory {
        let sys = self.machine.sys();
        let mut inventory = inventory::collect(&sys, &self.link);
        boot_order::note(&sys, &mut inventory.disks, &self.boot_order);
        let bmc = *self.bmc.lock().unwrap_or_else(PoisonError::into_inner);
        inventory.bmc_address = bmc.map(|address| address.to_string());
        inventory
    }

    /// What is on these disks, for a report: read a minute ago at most.
    pub fn signatures(&self, disks: &[Disk]) -> Vec<DiskSignatures> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let positions: Vec<Position> = disks.iter().map(position).collect();
        known.retain(|position, (at, _)| positions.contains(position) && at.elapsed() < self.kept);
        let unknown: Vec<&Disk> = disks
            .iter()
            .filter(|disk| !known.contains_key(&position(disk)))
            .collect();
        let now = Instant::now();
        for (disk, content) in unknown.iter().zip(self.read_all(&unknown)) {
            known.insert(position(disk), (now, content));
        }
        let of = |disk: &Disk| {
            let content = known
                .get(&position(disk))
                .map(|(_, content)| content.clone());
            said(disk, content.unwrap_or_else(Content::unreadable))
        };
        disks.iter().map(of).collect()
    }

    /// What earlier ramdisks of this machine left on the disks of the last report.
    pub fn earlier_keys(&self) -> Vec<Key> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let keys = known.values().map(|(_, content)| content.key.clone());
        keys.flatten().collect()
    }

    /// Every disk that is there now, and what is on it now.
    pub fn judged(&self) -> Vec<Judged> {
        let disks = self.inventory().disks;
        let contents = self.read_all(&disks.iter().collect::<Vec<_>>());
        disks
            .into_iter()
            .zip(contents)
            .map(|(disk, content)| Judged {
                found: said(&disk, content),
                disk,
            })
            .collect()
    }

    pub fn forget_signatures(&self) {
        self.known
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
    }

    /// The body of `continue_inspection`. Ironic refuses an inventory with a MAC address of another node, which anybody can
    /// claim; the node that the box named has one port, of the NIC that the machine booted from.
    pub fn inspection(&self, node: Option<&str>) -> Value {
        let mut inventory = self.inventory();
        if node.is_some() {
            let booted = |nic: &Interface| nic.mac_address == self.link.boot_mac;
            inventory.interfaces.retain(booted);
        }
        json!({
            "root_disk": root_disk(&inventory.disks, None),
            "boot_interface": inventory.boot.pxe_interface,
            "inventory": inventory,
            "error": null,
            "configuration": {"managers": [], "collectors": ["default"]},
        })
    }

    /// All at the same time.
    fn read_all(&self, disks: &[&Disk]) -> Vec<Content> {
        thread::scope(|scope| {
            let readers: Vec<_> = disks
                .iter()
                .map(|disk| scope.spawn(|| self.read(disk)))
                .collect();
            readers
                .into_iter()
                .map(|reader| {
                    reader
                        .join()
                        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                })
                .collect()
        })
    }

    fn read(&self, disk: &Disk) -> Content {
        match self.machine.open(&disk.name, Access::Read) {
            Ok(device) => signatures::look_or_suspect(device.as_ref()),
            Err(error) => {
                tracing::warn!(disk = disk.name, %error, "the disk cannot be opened and counts as not blank");
                Content::unreadable()
            }
        }
    }
}

fn position(disk: &Disk) -> Position {
    (disk.id(), disk.name.clone())
}

fn said(disk: &Disk, content: Content) -> DiskSignatures {
    let id = disk.id();
    DiskSignatures {
        name: disk.name.clone(),
        size_bytes: id.size_bytes,
        serial: id.serial,
        wwn: id.wwn,
        signatures: content.signatures,
        mark: content.mark,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs;
    use std::io;
    use std::os::unix::fs::FileExt;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use firstlight_efi::vars::EfiVars;

    use super::*;
    use crate::deploy::device::{BlockDevice, FileDisk};
    use crate::inventory::sys::SysTree;

    struct OneDisk {
        dir: tempfile::TempDir,
        opened: AtomicUsize,
    }

    impl OneDisk {
        fn write(&self, bytes: &[u8]) {
            let disk = fs::OpenOptions::new()
                .write(true)
                .open(self.dir.path().join("sda.img"));
            disk.unwrap().write_all_at(bytes, 0).unwrap();
        }

        fn serial(&self, serial: &str) {
            fs::write(self.dir.path().join("sys/block/sda/serial"), serial).unwrap();
        }
    }

    impl Machine for OneDisk {
        fn sys(&self) -> SysTree {
            SysTree::new(self.dir.path())
        }
        fn open(&self, _: &str, _: Access) -> io::Result<Box<dyn BlockDevice>> {
            self.opened.fetch_add(1, Ordering::Relaxed);
            let disk = FileDisk::open(&self.dir.path().join("sda.img"), 512)?;
            Ok(Box::new(disk))
        }
        fn efi_vars(&self) -> Option<EfiVars> {
            None
        }
        fn log(&self) -> Vec<u8> {
            Vec::new()
        }
        fn sync(&self) {}
    }

    fn facts(kept: Duration) -> (Arc<OneDisk>, Facts) {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("sys/block/sda")).unwrap();
        fs::write(dir.path().join("sys/block/sda/size"), "16384").unwrap();
        let disk = fs::File::create(dir.path().join("sda.img")).unwrap();
        disk.set_len(8 << 20).unwrap();
        let machine = Arc::new(OneDisk {
            dir,
            opened: AtomicUsize::new(0),
        });
        let link = Link {
            boot_mac: "52:54:00:12:34:56".into(),
            address: Ipv4Addr::LOCALHOST,
        };
        let facts = Facts::new(machine.clone(), link);
        (machine, Facts { kept, ..facts })
    }

    fn reported(facts: &Facts) -> Vec<String> {
        let disks = facts.inventory().disks;
        facts.signatures(&disks).remove(0).signatures
    }

    #[test]
    fn a_report_may_be_a_minute_old_and_a_judgement_never() {
        let (machine, facts) = facts(Duration::from_hours(1));
        machine.serial("a");
        assert!(reported(&facts).is_empty());
        machine.write(b"XFSB");
        assert!(reported(&facts).is_empty());
        assert_eq!(machine.opened.load(Ordering::Relaxed), 1);
        let judged = facts.judged().remove(0);
        assert_eq!(judged.found.signatures, ["xfs"]);
        assert_eq!(judged.found.serial.as_deref(), Some("a"));
        let (machine, old) = self::facts(Duration::ZERO);
        assert!(reported(&old).is_empty());
        machine.write(b"XFSB");
        assert_eq!(reported(&old), ["xfs"], "the minute is over");
    }

    #[test]
    fn another_disk_of_the_same_size_in_the_same_place_is_read() {
        let (machine, facts) = facts(Duration::from_hours(1));
        machine.serial("a");
        assert!(reported(&facts).is_empty());
        machine.serial("b");
        machine.write(b"XFSB");
        assert_eq!(reported(&facts), ["xfs"]);
    }
}
