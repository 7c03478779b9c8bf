//! Jobs carried out: what the pure core decided, on the machine's disks and firmware.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result, anyhow, bail};
use base64::Engine as _;
use firstlight_api::disk::{Disk, hints::root_disk};
use firstlight_api::order::DiskOrder;
use firstlight_api::receipt::Wrote;
use firstlight_api::report::Phase;
use firstlight_client::http::Client;
use firstlight_client::key::Key;
use serde_json::{Value, json};
use uuid::Uuid;

use super::facts::Facts;
use super::job::{Erase, EraseScope, Job, Target, WriteImage};
use super::judge;
use super::machine::{Access, Machine};
use super::relay::Relay;
use crate::deploy::boot_entry::{self, Installed};
use crate::deploy::cancel::Cancel;
use crate::deploy::device::BlockDevice;
use crate::deploy::image::{self, HttpFetch, Offer, Patience, Progress};
use crate::deploy::{config_drive, erase, finish, mark::Maker};

/// Whose word on the disks is needed before they are written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Ironic's alone, as with ironic-python-agent.
    AnyIronic,
    /// The order of the box that this ramdisk was started by, and what is on the disks then.
    Box,
}

pub struct Worker {
    pub rule: Rule,
    pub machine: Arc<dyn Machine>,
    pub key: Key,
    pub facts: Arc<Facts>,
    pub patience: Patience,
    /// Beside a box, which tells other servers of it.
    pub relay: Option<(Offer, Relay)>,
    /// Progress for the page.
    pub tell: Arc<dyn Fn(Phase) + Send + Sync>,
    /// The disk that was installed last, for `install_bootloader`.
    pub installed: Mutex<Option<String>>,
}

impl Worker {
    /// Runs a job to its end; the value is the command's result.
    pub fn run(&self, job: &Job, client: &Client, cancel: &Cancel) -> Result<Value> {
        match job {
            Job::WriteImage(job) => {
                let result = self.write_image(job, client, cancel);
                self.facts.forget_signatures();
                result
            }
            Job::Erase(job) => {
                let result = self.erase(job, cancel);
                self.facts.forget_signatures();
                result
            }
            Job::InstallBootEntry => self.install_again(),
            Job::Sync => {
                self.machine.sync();
                Ok(Value::Null)
            }
            Job::CollectLogs => self.logs(),
            Job::HardwareInfo => Ok(serde_json::to_value(self.facts.inventory())?),
        }
    }

    /// With the private key in the place of the public one.
    fn drive(&self, source: &str, client: &Client) -> Result<Vec<u8>> {
        let mut drive = config_drive::load(source, client)?;
        let public = self.key.public().to_string();
        config_drive::hand_over(&mut drive, &public, &self.key.private());
        Ok(drive)
    }

    fn maker(&self, order: Option<&DiskOrder>) -> Option<Maker> {
        let deployment = order?.deployment?;
        let key = self.key.clone();
        Some(Maker { deployment, key })
    }

    fn write_image(&self, job: &WriteImage, client: &Client, cancel: &Cancel) -> Result<Value> {
        // A config drive that cannot be had must not cost the disk's content.
        let drive = match &job.config_drive {
            Some(source) => Some(self.drive(source, client)?),
            None => None,
        };
        let disks = match self.rule {
            Rule::AnyIronic => vec![choose(&job.target, self.facts.inventory().disks)?],
            Rule::Box => {
                let disks = judge::may_install(job.order.as_ref(), self.facts.judged())?;
                agrees(&job.target, &disks)?;
                disks
            }
        };
        let maker = self.maker(job.order.as_ref());
        let goal = self.goal(&disks)?;
        let device = goal.device();
        self.machine.unload();
        tracing::info!(
            disk = device.name(),
            url = job.image.urls[0],
            "writing the image"
        );
        goal.begin()?;
        let held = image::write_image(
            &image::Context {
                device,
                fetch: &HttpFetch {
                    client: client.clone(),
                    offer: self.relay.as_ref().map(|(offer, _)| offer.clone()),
                },
                patience: self.patience,
                cancel,
                maker: maker.as_ref(),
                share: self.relay.as_ref().map(|(_, relay)| relay.share.as_ref()),
                progress: &|progress| self.progress(progress),
            },
            &job.image,
        )?;
        tracing::info!(
            disk = device.name(),
            bytes = held.length,
            "the image is complete and its digest is right"
        );
        (self.tell)(Phase::ConfigDrive);
        let (drive, maker) = (drive.as_deref(), maker.as_ref());
        let arguments = job.start.kernel_arguments.as_ref();
        let image_bytes = held.length;
        let config_drive = match &goal {
            Goal::Disk(disk) => {
                let drive = finish::finish(device, held, drive, maker, &mut Uuid::new_v4)?;
                reread(device, cancel);
                self.add_arguments(arguments, disk.as_ref())?;
                drive
            }
            Goal::Mirror(mirror) => {
                let prepared = finish::prepare(device, held, drive, maker, &mut Uuid::new_v4)?;
                // The kernel forgets what was there before.
                reread(device, cancel);
                self.settle(mirror, &prepared.head, arguments)?;
                self.join(mirror, &disks[0].name, image_bytes, cancel)?;
                finish::make_bootable(device, &prepared.head)?;
                reread(device, cancel);
                prepared.config_drive
            }
        };
        *self
            .installed
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(disks[0].name.clone());
        (self.tell)(Phase::BootEntry);
        self.boot_entry(goal.first())?;
        let start = self.prepare(&job.start, goal.first());
        let names: Vec<&str> = disks.iter().map(|disk| disk.name.as_str()).collect();
        let said = format!("image written to {}", names.join(" and "));
        let wrote = Wrote {
            image_bytes,
            config_drive,
            kernel_arguments: arguments.cloned(),
        };
        Ok(
            json!({"deploy_result": {"result": said, "start": start, "wrote": wrote}, "deploy_step": job.step}),
        )
    }

    fn progress(&self, progress: Progress) {
        match progress {
            Progress::Bytes { done, total } => (self.tell)(Phase::Writing { bytes: done, total }),
            Progress::Retry { reason } => {
                tracing::warn!(reason, "the download pauses and goes on where it stopped");
                (self.tell)(Phase::Retrying { reason });
            }
        }
    }

    fn boot_entry(&self, device: &dyn BlockDevice) -> Result<()> {
        let Some(vars) = self.machine.efi_vars() else {
            return Ok(());
        };
        match boot_entry::install(device, &vars)? {
            Installed::Entry(number) => tracing::info!(
                disk = device.name(),
                entry = format!("Boot{number:04X}"),
                "boot entry set"
            ),
            Installed::RemovablePath(reason) => tracing::warn!("{reason}"),
        }
        Ok(())
    }

    fn install_again(&self) -> Result<Value> {
        let name = self
            .installed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let name = name.context("no image was written since this ramdisk started; deploy again")?;
        self.boot_entry(self.open(&name)?.as_ref())?;
        Ok(Value::Null)
    }

    fn erase(&self, job: &Erase, cancel: &Cancel) -> Result<Value> {
        let mut disks: Vec<Disk> = match self.rule {
            Rule::AnyIronic => self.facts.inventory().disks,
            Rule::Box => judge::may_erase(job.order.as_ref(), self.facts.judged())?
                .into_iter()
                .map(|judged| judged.disk)
                .collect(),
        };
        disks.retain(|disk| !job.target.skip.iter().any(|hints| hints.matches(disk)));
        let maker = self.maker(job.order.as_ref());
        for disk in &disks {
            self.is_still(disk)?;
            let device = self.open(&disk.name)?;
            tracing::info!(disk = disk.name, scope = ?job.scope, "erasing");
            match job.scope {
                EraseScope::Metadata => erase::metadata(device.as_ref(), maker.as_ref())?,
                EraseScope::Express => erase::express(device.as_ref(), maker.as_ref())?,
                EraseScope::Everything => {
                    let line = |done: u64, total: u64| {
                        tracing::info!(disk = disk.name, done, total, "erasing");
                    };
                    erase::everything(device.as_ref(), cancel, &line)?;
                }
            }
        }
        let names: Vec<&str> = disks.iter().map(|d| d.name.as_str()).collect();
        Ok(json!({"clean_result": {"erased": names}, "clean_step": job.step}))
    }

    /// Erasing the disks before this one may have taken hours.
    fn is_still(&self, disk: &Disk) -> Result<()> {
        let now = self.facts.inventory().disks;
        let same = |other: &Disk| other.name == disk.name && other.id() == disk.id();
        if now.iter().any(same) {
            return Ok(());
        }
        bail!(
            "{} was taken out or replaced while the disks before it were erased; the rest is not touched: clean again",
            disk.name
        )
    }

    fn open(&self, name: &str) -> Result<Box<dyn BlockDevice>> {
        self.machine
            .open(name, Access::Write)
            .with_context(|| format!("opening {name}"))
    }

    /// base64(tar.gz) of the log and the inventory.
    fn logs(&self) -> Result<Value> {
        let inventory = serde_json::to_vec_pretty(&self.facts.inventory())?;
        let gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        let mut archive = tar::Builder::new(gzip);
        for (name, bytes) in [
            ("kernel-and-agent.log", self.machine.log()),
            ("inventory.json", inventory),
        ] {
            let mut header = tar::Header::new_gnu();
            header.set_size(bytes.len() as u64);
            header.set_mode(0o644);
            archive.append_data(&mut header, name, bytes.as_slice())?;
        }
        let packed = archive.into_inner()?.finish()?;
        Ok(json!({"system_logs": base64::engine::general_purpose::STANDARD.encode(packed)}))
    }
}

/// Whoever changed the node's hints after the box had chosen means something by it.
fn agrees(target: &Target, disks: &[Disk]) -> Result<()> {
    let hints = target.hints.as_ref();
    // Ironic's record has one disk: of a mirror the first.
    let unmeant = disks
        .first()
        .filter(|disk| hints.is_some_and(|hints| !hints.matches(disk)));
    let is_skipped = |disk: &&Disk| target.skip.iter().any(|hints| hints.matches(disk));
    let Some(disk) = unmeant.or_else(|| disks.iter().find(is_skipped)) else {
        return Ok(());
    };
    bail!(
        "nothing was written: the box has chosen {}, and root_device or skip_block_devices of the Ironic node mean another disk; \
         leave the node to the box, and name disks by `rootDeviceHints` of the BareMetalHost",
        disk.named()
    )
}

/// The root disk by the node's hints.
fn choose(target: &Target, mut disks: Vec<Disk>) -> Result<Disk> {
    disks.retain(|disk| !target.skip.iter().any(|hints| hints.matches(disk)));
    if let Some(disk) = root_disk(&disks, target.hints.as_ref()) {
        return Ok(disk.clone());
    }
    let there: Vec<String> = disks
        .iter()
        .map(|d| format!("{} ({} GiB)", d.name, d.size >> 30))
        .collect();
    let there = if there.is_empty() {
        "it has no disk at all".to_owned()
    } else {
        format!("it has {}", there.join(", "))
    };
    if target.hints.is_some() {
        bail!("no disk of this machine matches the root_device hints ({there}); change the hints");
    }
    bail!(
        "this machine has no disk of 4 GiB or more to install on ({there}); check its disks and controllers"
    )
}

/// Something may still look at the disk (the kernel's own scan, a BMC's agent): a few tries, then the next boot reads it.
fn reread(device: &dyn BlockDevice, cancel: &Cancel) {
    for _ in 0..10 {
        match device.reread_partitions() {
            Ok(()) => return,
            Err(error) => {
                tracing::debug!(disk = device.name(), %error, "the partition table is in use");
            }
        }
        if cancel.wait(std::time::Duration::from_millis(200)) {
            return;
        }
    }
    tracing::warn!(
        disk = device.name(),
        "the kernel keeps the old partition table; the next boot reads the new one"
    );
}

mod goal;
mod start;

use goal::Goal;

/// What a person reads in Ironic's `last_error`.
pub fn sentence(error: &anyhow::Error) -> String {
    anyhow!("{error:#}").to_string()
}
