//! A disk where any program sees it: the edge to FUSE. The kernel keeps no names and no attributes, and bytes only as long as a
//! file is open, so that each fault is met.
//!
//! Everybody may do everything there: permissions are kept, not checked.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use fuser::{BackgroundSession, Config, MountOption};
use nix::errno::Errno;
use nix::mount::{MntFlags, umount, umount2};

use crate::{Disk, edge::Edge};

/// For programs that are about to let go.
const PATIENCE: Duration = Duration::from_secs(5);
/// For the kernel to let go.
const LINGER: Duration = Duration::from_millis(200);

pub type Shared = Arc<Mutex<Disk>>;

pub fn lock(disk: &Shared) -> MutexGuard<'_, Disk> {
    disk.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A disk at a directory, until it is dropped.
#[derive(Debug)]
pub struct Mount {
    disk: Shared,
    at: PathBuf,
    session: Option<BackgroundSession>,
}

impl Mount {
    /// Needs root and `/dev/fuse`, or `fusermount3` (package fuse3).
    pub fn new(disk: Disk, at: &Path) -> Result<Self> {
        let mut mount = Self {
            disk: Arc::new(Mutex::new(disk)),
            at: at.to_owned(),
            session: None,
        };
        mount.attach()?;
        Ok(mount)
    }

    fn attach(&mut self) -> Result<()> {
        let mut config = Config::default();
        config.mount_options = vec![
            MountOption::FSName("faulty".to_owned()),
            MountOption::NoAtime,
        ];
        let session =
            fuser::spawn_mount(Edge(self.disk.clone()), &self.at, &config).with_context(|| {
                format!(
                    "mounting at {}; it needs root and /dev/fuse, or the package fuse3",
                    self.at.display()
                )
            })?;
        self.session = Some(session);
        Ok(())
    }

    pub fn at(&self) -> &Path {
        &self.at
    }

    /// To set faults and to look; what is held must not touch the mount.
    pub fn disk(&self) -> MutexGuard<'_, Disk> {
        lock(&self.disk)
    }

    /// The machine starts again after its power went: see [`Disk::survive`]. No program may still be at work on the mount.
    pub fn restart(&mut self, seed: u64) -> Result<()> {
        self.disk().cut();
        self.detach()
            .context("unmounting; a program still uses it")?;
        self.disk().survive(seed);
        self.attach()
    }

    fn detach(&mut self) -> io::Result<()> {
        // A child that is being started has copies of open files until it runs its program.
        let Some(session) = self.session.take() else {
            return Ok(());
        };
        let since = Instant::now();
        loop {
            match umount(&self.at) {
                Ok(()) => return join(session),
                Err(Errno::EBUSY) if since.elapsed() < PATIENCE => {}
                // Not root: through fusermount3.
                Err(_) => return ended(session.umount_and_join()),
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
}

/// A mount namespace that was made meanwhile has a copy of the mount, and the kernel asks us until that ends: nobody waits for it.
fn join(session: BackgroundSession) -> io::Result<()> {
    let since = Instant::now();
    while !session.guard.is_finished() {
        if since.elapsed() > LINGER {
            // At its end it would unmount what is mounted there by then.
            std::mem::forget(session);
            return Ok(());
        }
        thread::sleep(Duration::from_millis(1));
    }
    ended(session.join())
}

/// A question that the kernel was asking while the mount went ends so, for it ends the connection meanwhile.
fn ended(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => Ok(()),
        other => other,
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        drop(self.detach());
        // A program that still uses it must not leave it behind on the machine.
        let _ = umount2(&self.at, MntFlags::MNT_DETACH);
    }
}
