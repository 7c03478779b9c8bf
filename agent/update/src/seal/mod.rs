//! The state partition, sealed to the machine's TPM.
//!
//! It is encrypted at the first start if there is a TPM 2. Until somebody was given a recovery key, the TPM opens it whatever the machine
//! has started, because nobody else could: a stick alone tells nothing. From then on the TPM opens it only after a start of the
//! firmware, loader, kernel, initramfs and command line that it is sealed to ([`expect`]); before an update it is sealed to the starts of
//! the other system, too.

pub mod expect;
pub mod luks;

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use firstlight_api::boot_choice::SystemSlot;
use firstlight_api::digest::Sha256Digest;
use firstlight_api::seal::{Bound, RootOfTrust, SealStatus};
use firstlight_api::status::Problem;
use firstlight_measured::Log;

use crate::boot::Esp;
use crate::refusal::refuse;
use crate::stick::{Access, Mounted, Stick, begin_again};
use expect::{Files, PCRS, Registers, Start, expect, registers};
use luks::{Key, Luks, Slots};

const TPM: &str = "sys/class/tpm/tpm0";
const UEFI: &str = "sys/firmware/efi";
const LOG: &str = "sys/kernel/security/tpm0/binary_bios_measurements";
/// Read by systemd-repart beside `50-state.conf`.
const REPART: &str = "run/repart.d/50-state.conf.d";
/// For the agent.
const STATUS: &str = "run/firstlight-seal/status.json";

/// Before the partitions are made: the state is encrypted if there is something that keeps its key.
pub fn prepare(root: &Path, stick: &Stick) -> Result<()> {
    if let Err(reason) = keeper(root, stick) {
        eprintln!("seal: {reason}");
        return Ok(());
    }
    let folder = root.join(REPART);
    fs::create_dir_all(&folder)?;
    fs::write(folder.join("seal.conf"), "[Partition]\nEncrypt=tpm2\n")
        .context("telling systemd-repart")
}

/// Why there is nothing that keeps a key, as a half sentence.
fn keeper(root: &Path, stick: &Stick) -> Result<(), String> {
    let major = fs::read_to_string(root.join(TPM).join("tpm_version_major"));
    match major.as_deref().map(str::trim) {
        Ok("2") => {}
        Ok(_) => return Err("this machine's TPM is older than version 2".to_owned()),
        Err(_) => return Err("this machine has no TPM".to_owned()),
    }
    if stick.wants_seal() {
        Ok(())
    } else {
        Err("site.yaml says `seal: none`".to_owned())
    }
}

/// Once a start: opens what is encrypted, and tells the agent how.
pub fn open(root: &Path, stick: &Stick) -> Result<()> {
    let Some(device) = &stick.state else {
        return Ok(());
    };
    let Some(luks) = Luks::on(&device.device)? else {
        let reason = match keeper(root, stick) {
            Err(reason) => reason,
            Ok(()) => "no TPM took its key when it was made".to_owned(),
        };
        let status = SealStatus {
            reason,
            ..SealStatus::default()
        };
        return tell(root, &status);
    };
    let slots = luks.slots()?;
    let Err(error) = luks.open_by_tpm() else {
        return tell(root, &status(&slots));
    };
    eprintln!("seal: {error:#}");
    let what = format!(
        "the box's state is sealed, and this machine's TPM does not open it: {}",
        why(&now(root), &slots)
    );
    eprintln!("seal: {what}");
    let mut told = status(&slots);
    told.problem = Some(Problem {
        what: what.clone(),
        next: if slots.recovery_key {
            "if you know why, type the recovery key at the box's console; if not, somebody has changed the stick or the machine"
        } else {
            "nobody was given a recovery key: start the machine that it was sealed on, or restore a backup on another stick"
        }
        .to_owned(),
    });
    tell(root, &told)?;
    luks.open_by_recovery_key()?;
    // What needed the state may have waited in vain.
    begin_again()?;
    told.problem = Some(Problem {
        what: what.replace("does not open it", "did not open it"),
        next: "if what runs is what you want, seal the state to it: `firstlight seal`; until then each start asks for the recovery key".to_owned(),
    });
    tell(root, &told)
}

/// Another recovery key, the only one from now on, and a TPM that opens the state after a start like this one and no other. `old`: the
/// recovery key before, where the TPM did not open it.
pub fn renew(root: &Path, stick: &Stick, old: Option<&str>) -> Result<String> {
    let luks = sealed(stick)?.ok_or_else(|| {
        refuse(
            "the state of this box is not encrypted",
            "it is made so at the first start of a new stick in a machine with a TPM 2: `firstlight backup`, and `firstlight restore` there",
        )
    })?;
    let key = old.map_or(Key::Tpm, Key::Recovery);
    let opens = |error: anyhow::Error| match old {
        None => refuse(
            format!("the TPM does not open it: {error:#}"),
            "give the recovery key that you have: `firstlight seal --recovery-key`",
        ),
        Some(_) => refuse(
            format!("this recovery key does not open it: {error:#}"),
            "type it as it was shown, with its dashes",
        ),
    };
    let files = files(stick, stick.running)?;
    // Without a log that is the TPM's, it is bound to the machine.
    let starts: Vec<Registers> = match measured(root) {
        Some(log) => own(&log, stick, &files)?,
        None => Vec::new(),
    };
    let recovery = luks.new_recovery_key(key).map_err(opens)?;
    luks.seal(Key::Recovery(&recovery), &starts)?;
    tell(root, &status(&luks.slots()?))?;
    Ok(recovery)
}

/// Before the other system is tried: the TPM opens the state after its starts, too.
pub fn expect_other(root: &Path, stick: &Stick) -> Result<()> {
    let Some(luks) = sealed(stick)?.filter(|luks| is_bound(*luks)) else {
        return Ok(());
    };
    let next = || "see the page for how the state was opened, and seal it again: `firstlight seal`";
    let log = measured(root).ok_or_else(|| {
        refuse(
            "the state is sealed to the start of this system, and the TPM's log of it cannot be read",
            next(),
        )
    })?;
    let (mine, other) = (
        files(stick, stick.running)?,
        files(stick, stick.running.other())?,
    );
    let this = Start {
        files: &mine,
        trial_from: tried_from(stick),
    };
    let start = |files, trial_from| expect(&log, this, Start { files, trial_from });
    let seal = || {
        let mut starts = own(&log, stick, &mine)?;
        starts.push(start(&other, Some(stick.running))?);
        starts.push(start(&other, None)?);
        luks.seal(Key::Tpm, &starts)
    };
    seal().map_err(|error| {
        refuse(
            format!("the state cannot be sealed to the start of the other system: {error:#}"),
            next(),
        )
    })
}

/// Once it is decided which system stays: the TPM opens the state after its starts only.
pub fn settle(root: &Path, stick: &Stick) -> Result<()> {
    let Some(luks) = sealed(stick)?.filter(|luks| is_bound(*luks)) else {
        return Ok(());
    };
    let log = measured(root).context("the TPM's log of this start cannot be read")?;
    let files = files(stick, stick.running)?;
    luks.seal(Key::Tpm, &own(&log, stick, &files)?)
}

/// Of the running system: this start first, for the TPM has to open the state now, too, and if it was a trial the ones after it.
fn own(log: &Log, stick: &Stick, files: &Files) -> Result<Vec<Registers>> {
    let start = |trial_from| Start { files, trial_from };
    let usual = expect(log, start(tried_from(stick)), start(None))?;
    let mut own = vec![registers(log)];
    if !own.contains(&usual) {
        own.push(usual);
    }
    Ok(own)
}

/// Where GRUB had started this system for once.
fn tried_from(stick: &Stick) -> Option<SystemSlot> {
    stick.trial.then_some(stick.running.other())
}

fn sealed(stick: &Stick) -> Result<Option<Luks<'_>>> {
    let state = stick
        .state
        .as_ref()
        .context("there is no state partition")?;
    Luks::on(&state.device)
}

fn is_bound(luks: Luks<'_>) -> bool {
    luks.slots().is_ok_and(|slots| slots.bound_to_starts)
}

fn status(slots: &Slots) -> SealStatus {
    let bound = if slots.bound_to_starts {
        Bound::Start
    } else {
        Bound::Machine
    };
    SealStatus {
        root_of_trust: RootOfTrust::Tpm,
        bound: Some(bound),
        recovery_key: slots.recovery_key,
        ..SealStatus::default()
    }
}

fn tell(root: &Path, status: &SealStatus) -> Result<()> {
    let path = root.join(STATUS);
    let new = path.with_extension("new");
    fs::create_dir_all(path.parent().context("a file has a folder")?)?;
    fs::write(&new, serde_json::to_vec(status)?)
        .and_then(|()| fs::rename(&new, &path))
        .context("telling the agent how the state was opened")
}

fn files(stick: &Stick, slot: SystemSlot) -> Result<Files> {
    let esp = Mounted::esp(&stick.esp, Access::Read)?;
    Esp(esp.path()).files(slot)
}

/// What the TPM holds.
fn now(root: &Path) -> Registers {
    let register = |pcr: u8| {
        let path = root.join(TPM).join(format!("pcr-sha256/{pcr}"));
        let text = fs::read_to_string(path).ok()?;
        let value = Sha256Digest::parse(text.trim())?;
        Some((pcr, value))
    };
    PCRS.into_iter().filter_map(register).collect()
}

/// The log of this start, if it is what the TPM was told. GRUB for BIOS tells nothing.
fn measured(root: &Path) -> Option<Log> {
    if !root.join(UEFI).exists() {
        return None;
    }
    let log = Log::parse(&fs::read(root.join(LOG)).ok()?).ok()?;
    (registers(&log) == now(root)).then_some(log)
}

/// Why a TPM with these registers does not open it, as a half sentence.
fn why(now: &Registers, slots: &Slots) -> String {
    if now.is_empty() {
        return "this machine has none that can be read".to_owned();
    }
    let differs = |start: &Registers| -> Vec<u8> {
        let differs = |pcr: &u8| now.get(pcr) != start.get(pcr);
        PCRS.into_iter().filter(differs).collect()
    };
    let nearest = slots.starts.iter().map(differs).min_by_key(Vec::len);
    let words: Vec<&str> = nearest
        .unwrap_or_default()
        .into_iter()
        .map(|pcr| match pcr {
            4 => "the loader or the kernel is another one",
            7 => "Secure Boot was switched, or its keys were changed",
            _ => {
                "a file that GRUB loads, the initramfs or the kernel's command line is another one"
            }
        })
        .collect();
    if words.is_empty() {
        return "it is another machine's, or it was cleared".to_owned();
    }
    words.join("; ")
}
