//! What GRUB loads from the ESP: kernel, initramfs and start of each system, and which of them is started. A kernel is taken away
//! before its system is written, and comes last: what has one is whole.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use firstlight_api::boot_choice::{
    BOOT_CHOICE, BootChoice, INITRD, KERNEL, LOADERS, START, SystemSlot, boot_config,
};
use firstlight_api::digest::Sha256Digest;
use firstlight_api::slot::{BootFile, parse_slot_table};

use crate::seal::expect::Files;

/// Somebody has asked for the stick to be cleared of its site.
const WIPE: &str = "boot/wipe";

/// Where the files of a new system are, once its layers are there.
#[derive(Clone, Debug)]
pub struct BootFiles {
    pub kernel: PathBuf,
    pub initrd: PathBuf,
    /// A template ([`boot_config`]).
    pub start: PathBuf,
}

/// The ESP, mounted.
#[derive(Clone, Copy, Debug)]
pub struct Esp<'a>(pub &'a Path);

impl Esp<'_> {
    fn file(&self, slot: SystemSlot, name: &str) -> PathBuf {
        self.0.join(slot.boot_file(name))
    }

    /// What GRUB reads for a start of it.
    pub fn files(&self, slot: SystemSlot) -> Result<Files> {
        let read = |name| {
            let path = self.file(slot, name);
            fs::read(&path).with_context(|| format!("reading {}", path.display()))
        };
        let config = String::from_utf8(read(START)?).context("boot.cfg")?;
        Files::new(slot, &read(KERNEL)?, &read(INITRD)?, config)
    }

    pub fn is_whole(&self, slot: SystemSlot) -> bool {
        self.file(slot, KERNEL).is_file()
    }

    /// From now on GRUB does not start it.
    pub fn take_away(&self, slot: SystemSlot) -> Result<()> {
        for name in [KERNEL, INITRD, START] {
            match fs::remove_file(self.file(slot, name)) {
                Ok(()) => self.sync()?,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error).context("taking the old kernel from the ESP"),
            }
        }
        Ok(())
    }

    /// From now on GRUB can start it.
    pub fn bring(
        &self,
        slot: SystemSlot,
        files: &BootFiles,
        partition: &str,
        table: Sha256Digest,
    ) -> Result<()> {
        fs::create_dir_all(self.0.join(slot.boot_file("")))
            .context("making a folder on the ESP")?;
        let template = fs::read_to_string(&files.start)
            .with_context(|| format!("reading {}", files.start.display()))?;
        let start = boot_config(&template, slot, partition, table);
        self.write(&self.file(slot, START), start.as_bytes())?;
        let read =
            |path: &Path| fs::read(path).with_context(|| format!("reading {}", path.display()));
        self.write(&self.file(slot, INITRD), &read(&files.initrd)?)?;
        let unnamed = self.file(slot, "vmlinuz.new");
        self.write(&unnamed, &read(&files.kernel)?)?;
        fs::rename(unnamed, self.file(slot, KERNEL)).context("naming the kernel")?;
        self.sync()
    }

    /// `table`: of the running system, which the loaders are from if nothing else was said.
    pub fn keep_loaders(&self, table: &[u8]) -> Result<()> {
        let path = self.0.join(LOADERS);
        if path.exists() {
            return Ok(());
        }
        let unnamed = path.with_extension("new");
        self.write(&unnamed, table)?;
        fs::rename(unnamed, path).context("naming the list of loaders")?;
        self.sync()
    }

    /// Digests of the loaders, where an update has noted them.
    pub fn loaders(&self) -> Vec<BootFile> {
        let table = fs::read(self.0.join(LOADERS)).ok();
        let table = table.and_then(|table| parse_slot_table(&table, u64::MAX).ok());
        table.unwrap_or_default().boot
    }

    fn write(&self, path: &Path, content: &[u8]) -> Result<()> {
        let name = || format!("writing {} to the ESP", path.display());
        fs::write(path, content).with_context(name)?;
        let file = File::open(path)?;
        file.sync_all().with_context(name)?;
        nix::fcntl::posix_fadvise(
            &file,
            0,
            0,
            nix::fcntl::PosixFadviseAdvice::POSIX_FADV_DONTNEED,
        )?;
        ensure!(
            fs::read(path)? == content,
            "{} reads back differently: the stick is worn out or broken",
            path.display()
        );
        self.sync()
    }

    /// At the next start, and until it is done.
    pub fn ask_for_wipe(&self) -> Result<()> {
        self.write(&self.0.join(WIPE), b"wipe\n")
    }

    pub fn is_wipe_asked_for(&self) -> bool {
        self.0.join(WIPE).exists()
    }

    pub fn wiped(&self) -> Result<()> {
        fs::remove_file(self.0.join(WIPE)).context("taking the mark from the ESP")?;
        self.sync()
    }

    fn sync(&self) -> Result<()> {
        let folder = File::open(self.0).context("opening the ESP")?;
        nix::unistd::syncfs(&folder).context("writing to the ESP")
    }

    /// What GRUB does where it can read nothing, if there is nothing.
    pub fn choice(&self) -> BootChoice {
        let file = fs::read(self.0.join(BOOT_CHOICE)).unwrap_or_default();
        BootChoice::parse(&file).unwrap_or(BootChoice {
            slot: SystemSlot::A,
            trial: None,
        })
    }

    /// In place: one sector, which a disk writes whole or not at all.
    pub fn choose(&self, choice: BootChoice) -> Result<()> {
        let path = self.0.join(BOOT_CHOICE);
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .with_context(|| format!("opening {}", path.display()))?;
        file.write_all_at(&choice.to_file(), 0)
            .and_then(|()| file.sync_all())
            .with_context(|| format!("writing {}", path.display()))?;
        self.sync()
    }
}
