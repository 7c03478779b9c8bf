//! What a TPM's registers hold after a start of one of the stick's two systems: the log of this start, with the files of the other. Pure.
//!
//! Firmware measures the programs that it starts, GRUB each file that it reads, the kernel its command line and its initramfs. What is
//! the same at each start (the firmware, Secure Boot's keys, shim, GRUB and its `grub.cfg`) is taken from the log as it is.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use firstlight_api::boot_choice::{
    BOOT_CHOICE, BootChoice, INITRD, KERNEL, START, SystemSlot, TRIAL_WORD,
};
use firstlight_api::digest::Sha256Digest;
use firstlight_api::tpm::Digest;
use firstlight_measured::{Log, program_digest, register};
use sha2::{Digest as _, Sha256};

/// Programs that firmware started, Secure Boot and its keys, files. GRUB's commands (8) are left out: what they load, and the command
/// line that a kernel gets of them, are measured by themselves.
pub const PCRS: [u8; 3] = [4, 7, 9];
const PROGRAMS: u8 = 4;
const FILES: u8 = 9;

/// Each of [`PCRS`].
pub type Registers = BTreeMap<u8, Sha256Digest>;

/// What is on the stick for a start of one of its systems.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    pub slot: SystemSlot,
    /// As GRUB measures it.
    pub kernel: Digest,
    /// The kernel as firmware measures a program.
    pub program: Digest,
    pub initrd: Digest,
    /// `boot.cfg`, for this slot.
    pub config: String,
}

impl Files {
    /// Each by its content.
    pub fn new(slot: SystemSlot, kernel: &[u8], initrd: &[u8], config: String) -> Result<Self> {
        Ok(Self {
            slot,
            kernel: of(kernel),
            program: Digest::new(program_digest(kernel).context("the kernel")?),
            initrd: of(initrd),
            config,
        })
    }
}

/// A start: this one, or one to come.
#[derive(Clone, Copy, Debug)]
pub struct Start<'a> {
    pub files: &'a Files,
    /// GRUB starts it for once, and what it would start else.
    pub trial_from: Option<SystemSlot>,
}

impl Start<'_> {
    /// What GRUB reads of its choice, each time.
    fn choices(&self) -> Vec<BootChoice> {
        let chosen = |slot, trial| BootChoice { slot, trial };
        match self.trial_from {
            None => vec![chosen(self.files.slot, None)],
            Some(from) => vec![chosen(from, Some(self.files.slot)), chosen(from, None)],
        }
    }

    /// As the kernel gets it.
    fn command_line(&self) -> Result<Digest> {
        let mut lines = self.files.config.lines();
        let line = lines.find_map(|line| line.strip_prefix("linux "));
        let word = self.trial_from.map_or("", |_| TRIAL_WORD);
        let line = line
            .context("boot.cfg starts no kernel")?
            .replace("$word", word);
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let text = format!("BOOT_IMAGE={}", words.join(" "));
        let units: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
        Ok(of(&units))
    }

    /// The last that are told of files, in their order.
    fn told(&self) -> Result<Vec<Digest>> {
        let mut told: Vec<Digest> = self
            .choices()
            .into_iter()
            .map(|choice| of(&choice.to_file()))
            .collect();
        told.push(of(self.files.config.as_bytes()));
        told.push(self.files.kernel);
        told.push(self.files.initrd);
        told.push(self.command_line()?);
        told.push(self.files.initrd);
        Ok(told)
    }
}

/// Of `log`, the start that has just been.
pub fn registers(log: &Log) -> Registers {
    let of_register = |pcr| {
        let told = log.steps().filter(move |event| event.pcr == pcr);
        (pcr, register(told.map(|event| &event.digest)).into())
    };
    PCRS.into_iter().map(of_register).collect()
}

/// After `next`, as far as everything goes as it went at `this`, whose log is `log`.
pub fn expect(log: &Log, this: Start<'_>, next: Start<'_>) -> Result<Registers> {
    let of_register = |pcr: u8| -> Vec<Digest> {
        let told = log.steps().filter(|event| event.pcr == pcr);
        told.map(|event| event.digest).collect()
    };
    let mut programs = of_register(PROGRAMS);
    let kernel = programs
        .last_mut()
        .context("the firmware has told of no program")?;
    ensure!(
        *kernel == this.files.program,
        "the last program that the firmware tells of is not {}",
        this.files.slot.boot_file(KERNEL)
    );
    *kernel = next.files.program;

    let mut files = of_register(FILES);
    let told = this.told()?;
    let before = files.len().checked_sub(told.len());
    let before = before.context("GRUB has told of too few files")?;
    let names = [START, KERNEL, INITRD, "the command line", INITRD];
    let names = this.choices().into_iter().map(|_| BOOT_CHOICE).chain(names);
    for ((name, is), ought) in names.zip(&files[before..]).zip(&told) {
        ensure!(
            is == ought,
            "what was measured of {name} is not what is on the stick"
        );
    }
    files.truncate(before);
    files.extend(next.told()?);

    let mut expected = registers(log);
    expected.insert(PROGRAMS, register(programs.iter()).into());
    expected.insert(FILES, register(files.iter()).into());
    Ok(expected)
}

fn of(bytes: &[u8]) -> Digest {
    Digest::new(Sha256::digest(bytes).into())
}
