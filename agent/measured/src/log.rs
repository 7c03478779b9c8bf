//! The log of a start: the firmware's own (TCG PC Client Platform Firmware Profile 1.06, 10.2), and the sum of it that a TPM signs.

use std::collections::HashMap;

use firstlight_api::{
    measured::{Event, Evidence, LONGEST_TEXT, MOST_EVENTS, MOST_STEPS, PCRS, is_plain},
    tpm::Digest,
};
use sha2::{Digest as _, Sha256};
use thiserror::Error;

const SHA256: u16 = 0x000b;
/// An event that is no measurement (`EV_NO_ACTION`).
const NO_ACTION: u32 = 3;
/// Register, kind, SHA-1 digest, length.
const FIRST_HEADER: usize = 32;
const SIGNATURE: &[u8] = b"Spec ID Event03\0";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LogError {
    #[error("its firmware keeps a log of SHA-1 only")]
    Old,
    #[error("its firmware's log is damaged")]
    Damaged,
    #[error(
        "its firmware's log has more than {MOST_EVENTS} different events, or {MOST_STEPS} in all"
    )]
    TooLong,
}

/// Of the registers that are quoted, in the form that travels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Log {
    pub events: Vec<Event>,
    pub steps: Vec<u8>,
}

impl Log {
    /// As the kernel hands out `binary_bios_measurements`.
    pub fn parse(bytes: &[u8]) -> Result<Self, LogError> {
        let mut rest = Reader(bytes);
        let header = rest.take(FIRST_HEADER)?;
        let length = u32::from_le_bytes([header[28], header[29], header[30], header[31]]);
        let sizes = sizes(rest.take_as(length)?)?;
        let mut log = Self::default();
        let mut places = HashMap::new();
        while !rest.0.is_empty() {
            let Some(event) = rest.event(&sizes)? else {
                continue;
            };
            let place = *places.entry(event.clone()).or_insert(log.events.len());
            if place == log.events.len() {
                log.events.push(event);
            }
            // A box refuses the whole report with more.
            let has_room = place < MOST_EVENTS && log.steps.len() < MOST_STEPS;
            let step = u8::try_from(place).ok().filter(|_| has_room);
            log.steps.push(step.ok_or(LogError::TooLong)?);
        }
        Ok(log)
    }

    /// As it went.
    pub fn steps(&self) -> impl Iterator<Item = &Event> {
        let step = |at: &u8| self.events.get(usize::from(*at));
        self.steps.iter().filter_map(step)
    }
}

/// Bytes of the digests that each event has, by algorithm.
fn sizes(spec: &[u8]) -> Result<HashMap<u16, usize>, LogError> {
    let mut rest = Reader(spec);
    if rest.take(SIGNATURE.len()) != Ok(SIGNATURE) {
        return Err(LogError::Old);
    }
    // Class of the platform, versions, size of an integer.
    rest.take(8)?;
    let mut sizes = HashMap::new();
    for _ in 0..rest.u32()? {
        sizes.insert(rest.u16()?, usize::from(rest.u16()?));
    }
    match sizes.get(&SHA256) {
        Some(32) => Ok(sizes),
        _ => Err(LogError::Old),
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], LogError> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(LogError::Damaged)?;
        self.0 = rest;
        Ok(taken)
    }

    fn take_as(&mut self, count: u32) -> Result<&'a [u8], LogError> {
        self.take(usize::try_from(count).map_err(|_| LogError::Damaged)?)
    }

    fn u16(&mut self) -> Result<u16, LogError> {
        self.take(2).map(|it| u16::from_le_bytes([it[0], it[1]]))
    }

    fn u32(&mut self) -> Result<u32, LogError> {
        self.take(4)
            .map(|it| u32::from_le_bytes([it[0], it[1], it[2], it[3]]))
    }

    /// The next one; `None` if it is of no register that is quoted.
    fn event(&mut self, sizes: &HashMap<u16, usize>) -> Result<Option<Event>, LogError> {
        let (pcr, kind) = (self.u32()?, self.u32()?);
        let mut digest = None;
        for _ in 0..self.u32()? {
            let algorithm = self.u16()?;
            let size = sizes.get(&algorithm).ok_or(LogError::Damaged)?;
            let bytes = self.take(*size)?;
            if algorithm == SHA256 {
                digest = bytes.try_into().ok().map(Digest::new);
            }
        }
        let length = self.u32()?;
        let text = text(self.take_as(length)?);
        let pcr = u8::try_from(pcr).unwrap_or(u8::MAX);
        if kind == NO_ACTION || !PCRS.contains(&pcr) {
            return Ok(None);
        }
        let digest = digest.ok_or(LogError::Damaged)?;
        Ok(Some(Event {
            pcr,
            kind,
            digest,
            text,
        }))
    }
}

/// GRUB's end with a zero.
fn text(data: &[u8]) -> String {
    let text = data.strip_suffix(b"\0").unwrap_or(data);
    let is_told = text.len() <= LONGEST_TEXT && is_plain(text);
    let text = is_told.then(|| String::from_utf8_lossy(text).into_owned());
    text.unwrap_or_default()
}

/// As it went; `None` if it names what is not there.
pub fn steps(evidence: &Evidence) -> Option<Vec<&Event>> {
    let step = |at: &u8| evidence.events.get(usize::from(*at));
    let steps: Option<Vec<&Event>> = evidence.steps.iter().map(step).collect();
    steps.filter(|steps| steps.iter().all(|event| PCRS.contains(&event.pcr)))
}

/// What a TPM signs that was told these: SHA-256 over its registers.
pub fn sum(registers: &[Digest]) -> [u8; 32] {
    let mut all = Sha256::new();
    for register in registers {
        all.update(register.as_bytes());
    }
    all.finalize().into()
}

/// What [`PCRS`] hold after these.
pub fn registers(steps: &[&Event]) -> [Digest; PCRS.len()] {
    PCRS.map(|pcr| {
        let of_it = steps.iter().filter(|event| event.pcr == pcr);
        Digest::new(register(of_it.map(|event| &event.digest)))
    })
}

/// What a register holds that was told these since the machine's start.
pub fn register<'a>(told: impl Iterator<Item = &'a Digest>) -> [u8; 32] {
    told.fold([0; 32], |before, digest| {
        let extended = Sha256::new_with_prefix(before);
        extended.chain_update(digest.as_bytes()).finalize().into()
    })
}
