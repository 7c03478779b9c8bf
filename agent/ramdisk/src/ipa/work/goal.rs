//! What gets an image: one disk, or two that become a mirror.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail};
use firstlight_api::disk::Disk;
use firstlight_api::start::KernelArguments;
use uuid::Uuid;

use super::Worker;
use crate::deploy::cancel::Cancel;
use crate::deploy::device::BlockDevice;
use crate::deploy::finish;
use crate::deploy::mirror::{self, Mirror};
use crate::deploy::start::{self, Use};
use crate::ipa::machine::Access;

pub enum Goal {
    Disk(Box<dyn BlockDevice>),
    Mirror(Box<Mirror>),
}

impl Goal {
    /// Where the image is written to.
    pub fn device(&self) -> &dyn BlockDevice {
        match self {
            Self::Disk(disk) => disk.as_ref(),
            Self::Mirror(mirror) => mirror.as_ref(),
        }
    }

    /// A disk of the kernel's, to look into the image.
    pub fn first(&self) -> &dyn BlockDevice {
        match self {
            Self::Disk(disk) => disk.as_ref(),
            Self::Mirror(mirror) => mirror.first(),
        }
    }

    /// Before the image.
    pub fn begin(&self) -> Result<()> {
        match self {
            Self::Disk(_) => Ok(()),
            Self::Mirror(mirror) => Ok(mirror.begin()?),
        }
    }
}

impl Worker {
    pub(super) fn goal(&self, disks: &[Disk]) -> Result<Goal> {
        match disks {
            [disk] => Ok(Goal::Disk(self.open(&disk.name)?)),
            [first, second] => {
                let (first, second) = (self.open(&first.name)?, self.open(&second.name)?);
                let mirror = Mirror::of(first, second, Uuid::new_v4())?;
                Ok(Goal::Mirror(Box::new(mirror)))
            }
            disks => bail!(
                "an image goes to one disk or to two, not to {}",
                disks.len()
            ),
        }
    }

    /// Brings what was changed on the first disk, `first` by its name, to the second, and the two become one.
    pub(super) fn join(
        &self,
        mirror: &Mirror,
        first: &str,
        length: u64,
        cancel: &Cancel,
    ) -> Result<()> {
        // What the mounted file system has changed is not in the memory of a disk that was opened before.
        let again = self
            .machine
            .open(first, Access::Read)
            .with_context(|| format!("opening {first} again"))?;
        mirror.follow(again.as_ref(), length, cancel)?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        mirror.complete(now.map_or(0, |now| now.as_secs()), &mut Uuid::new_v4)?;
        tracing::info!(disk = mirror.name(), "the two are a mirror");
        Ok(())
    }

    /// The image becomes a system whose kernel takes its root from the mirror: on the first disk, which has no table yet but that in
    /// `head`, and so starts nothing whatever happens.
    pub(super) fn settle(
        &self,
        mirror: &Mirror,
        head: &[u8],
        arguments: Option<&KernelArguments>,
    ) -> Result<()> {
        let first = mirror.first();
        let places = finish::places(head, first.sector())?;
        first
            .show_partitions(&places)
            .with_context(|| format!("showing the kernel the image on {}", first.name()))?;
        let mounted = self
            .machine
            .mount(first, Use::Change)
            .context("looking into the image, whether it starts from a mirror")?;
        let number = mirror::root(&mounted.system)?;
        let mut words = mirror.arguments(number);
        if let Some(arguments) = arguments {
            words = format!("{words} {arguments}");
        }
        start::write_arguments(&mounted.system, &words).with_context(|| {
            format!("the kernel arguments `{words}` cannot be given to this image; use another image, or one disk")
        })?;
        tracing::info!(
            disk = first.name(),
            arguments = words,
            "kernel arguments written"
        );
        Ok(())
    }
}
