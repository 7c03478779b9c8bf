//! Which disk of a server gets the image, and why. Pure: the same report says the same.
//!
//! Without a word from anybody: a device made to boot from, then what the firmware boots from, then the smallest. To add a criterion:
//! a field of [`Rank`], whose order is theirs, and its words in [`why`].

mod mirror;
mod wanted;

use std::cmp::Reverse;
use std::fmt;

use firstlight_api::{
    bmh::RootDeviceHints,
    disk::{
        Disk,
        hints::{self, Hints},
    },
    order::{DeploymentId, DiskId, DiskPolicy, DiskScope, Mark, RootDisk, is_free},
    report::{DiskSignatures, Report},
};
use serde::{Deserialize, Serialize};

pub use wanted::{Halves, WantedDisks, unmet};

/// Smaller ones are sticks, cards and mistakes: written only if somebody names them. 8 GB as they are sold.
const LEAST: u64 = 8_000_000_000;
/// Images are made for these; the ramdisk fits them to others.
const SECTOR: u64 = 512;
/// Models of cards that keep two M.2 disks alike for the operating system: Dell BOSS, HPE `NS204i`, Lenovo's and Cisco's M.2 mirrors.
const BOOT_MIRRORS: [&[&str]; 5] = [
    &["dellboss"],
    &["dell", "boss-"],
    &["ns204i"],
    &["thinksystem", "m.2", "vd"],
    &["cisco", "vd"],
];
/// Disks that a sentence names.
const MOST_NAMED: usize = 4;

/// The disk that gets the image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Choice {
    pub disk: RootDisk,
    /// The one that gets the same, as the other half of a mirror.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mirror: Option<Box<RootDisk>>,
    /// Whether somebody named it, so that others do not count.
    pub scope: DiskScope,
    /// `the smallest of 3 disks`
    pub why: String,
}

impl Choice {
    /// One, or both halves of a mirror.
    pub fn disks(&self) -> impl Iterator<Item = &RootDisk> {
        std::iter::once(&self.disk).chain(self.mirror.as_deref())
    }

    /// Bytes that there are for the image, as far as the box can know.
    pub fn size_bytes(&self) -> u64 {
        let sizes = self.disks().map(|disk| disk.disk.size_bytes);
        sizes.min().unwrap_or_default()
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.mirror {
            Some(mirror) => write!(f, "{} and {mirror} as a mirror", self.disk),
            None => write!(f, "{}", self.disk),
        }
    }
}

/// Why no disk gets the image.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoChoice {
    #[error("the hints for its root disk cannot be understood: {0}")]
    Hints(String),
    #[error(
        "no disk of it is what its `rootDeviceHints` say; the nearest is {nearest}: {differences}"
    )]
    Unlike {
        nearest: String,
        differences: String,
    },
    #[error("the disk that its hints mean, {disk}, is not blank: {kinds} found")]
    Data { disk: String, kinds: String },
    #[error(
        "nothing but its name tells {0} from another disk that holds data, and the kernel may give the names the other way round"
    )]
    Unclear(String),
    #[error(
        "{0} has larger sectors than 512 bytes, and this server starts by BIOS, which starts from no such disk"
    )]
    Firmware(String),
    #[error("none of its disks is chosen without being named: {0}")]
    Unfit(String),
    #[error("a mirror needs two disks that fit, and {0}")]
    NoPair(String),
}

/// A disk of a report: what it is, and what is on it.
struct Candidate<'a> {
    disk: Disk,
    found: &'a DiskSignatures,
    named: RootDisk,
}

/// The smallest comes first.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    /// Whoever began on a disk goes on there.
    begun: Reverse<bool>,
    fits_images: Reverse<bool>,
    boot_mirror: Reverse<bool>,
    boot_order: u64,
    size: u64,
    tie: Tie,
}

/// What stays the same over restarts counts before the kernel's name. Each with whether it is missing.
type Tie = ([(bool, Option<String>); 3], String);

/// The disk, or both of a mirror, as `wanted` means them, or as nobody said anything. What `deployment` has written is no data.
pub fn choose(
    report: &Report,
    policy: DiskPolicy,
    wanted: &WantedDisks,
    deployment: Option<DeploymentId>,
) -> Result<Choice, NoChoice> {
    match &wanted.mirror {
        Some(halves) => mirror::choose(report, policy, wanted, halves, deployment),
        None => single(report, policy, wanted.hints.as_ref(), deployment),
    }
}

fn single(
    report: &Report,
    policy: DiskPolicy,
    hints: Option<&RootDeviceHints>,
    deployment: Option<DeploymentId>,
) -> Result<Choice, NoChoice> {
    let all = candidates(report);
    let Some(hints) = hints.and_then(hints::root_device) else {
        return unnamed(report, &all, policy, deployment);
    };
    let hints = Hints::parse(&hints).map_err(NoChoice::Hints)?;
    let meant: Vec<&Candidate> = all.iter().filter(|one| hints.matches(&one.disk)).collect();
    if meant.is_empty() {
        return Err(unlike(&all, &hints));
    }
    let writable = |one: &&&Candidate| policy == DiskPolicy::Wipe || is_free(one.found, deployment);
    let free: Vec<&Candidate> = meant.iter().filter(writable).copied().collect();
    // Hints that fit many disks name none of those that nobody would choose.
    let usual = free.iter().filter(|one| flaw(&one.disk).is_none());
    let usual: Vec<&Candidate> = usual.copied().collect();
    let from = if usual.is_empty() { free } else { usual };
    let Some(best) = first(&from, deployment) else {
        let first = meant[0];
        return Err(NoChoice::Data {
            disk: first.named.to_string(),
            kinds: first.found.signatures.join(", "),
        });
    };
    starts_from(report, best)?;
    if is_ambiguous(best, &all, deployment) {
        return Err(NoChoice::Unclear(best.named.to_string()));
    }
    let reason = match from.len() {
        1 if meant.len() == 1 => "the one that its `rootDeviceHints` mean".to_owned(),
        1 => format!(
            "the only one of {} disks that its `rootDeviceHints` mean which may be written",
            meant.len()
        ),
        many => format!(
            "{} of {many} disks that its `rootDeviceHints` mean",
            why(best, deployment)
        ),
    };
    Ok(choice(best, DiskScope::Root, policy, deployment, reason))
}

fn unnamed(
    report: &Report,
    all: &[Candidate],
    policy: DiskPolicy,
    deployment: Option<DeploymentId>,
) -> Result<Choice, NoChoice> {
    let fit = all.iter().filter(|one| flaw(&one.disk).is_none());
    let fit: Vec<&Candidate> = fit.collect();
    let mut others: Vec<String> = all
        .iter()
        .filter_map(|one| Some(format!("{} {}", one.disk.name, flaw(&one.disk)?)))
        .collect();
    if others.len() > MOST_NAMED {
        others.truncate(MOST_NAMED);
        others.push("and others".to_owned());
    }
    let others = others.join(", ");
    let Some(best) = first(&fit, deployment) else {
        return Err(NoChoice::Unfit(others));
    };
    starts_from(report, best)?;
    let mut reason = match fit.len() {
        1 if all.len() == 1 => "the only disk".to_owned(),
        1 => "the only disk that may be chosen".to_owned(),
        many => format!("{} of {many} disks", why(best, deployment)),
    };
    if !others.is_empty() {
        reason = format!("{reason} ({others})");
    }
    Ok(choice(best, DiskScope::Server, policy, deployment, reason))
}

fn starts_from(report: &Report, best: &Candidate) -> Result<(), NoChoice> {
    if report.inventory.boot_mode == "bios" && has_large_sectors(&best.disk) {
        return Err(NoChoice::Firmware(best.named.to_string()));
    }
    Ok(())
}

/// The disk of the report that `root` is, if nobody can mistake it.
pub fn find<'a>(root: &RootDisk, report: &'a Report) -> Option<&'a DiskSignatures> {
    let found = root.find(candidates(report), |one| one.named.clone());
    found.ok().map(|one| one.found)
}

fn candidates(report: &Report) -> Vec<Candidate<'_>> {
    let facts = &report.inventory.disks;
    let disks = report.disks.iter();
    disks.map(|found| Candidate::new(found, facts)).collect()
}

impl<'a> Candidate<'a> {
    fn new(found: &'a DiskSignatures, facts: &[Disk]) -> Self {
        let is_it = |disk: &&Disk| disk.name == found.name && disk.size == found.size_bytes;
        let disk = facts.iter().find(is_it).cloned().unwrap_or_else(|| Disk {
            name: found.name.clone(),
            size: found.size_bytes,
            serial: found.serial.clone(),
            wwn: found.wwn.clone(),
            ..Disk::default()
        });
        let named = RootDisk {
            disk: DiskId::from(found),
            name: found.name.clone(),
            by_path: disk.by_path.clone(),
        };
        Self { disk, found, named }
    }
}

/// Why nobody would choose it who was not asked to.
fn flaw(disk: &Disk) -> Option<&'static str> {
    // Sticks, and the virtual media of BMCs.
    if disk.tran.as_deref() == Some("usb") {
        return Some("is on USB");
    }
    (disk.size < LEAST).then_some("has less than 8 GB")
}

fn first<'a, 'b>(
    from: &[&'a Candidate<'b>],
    deployment: Option<DeploymentId>,
) -> Option<&'a Candidate<'b>> {
    from.iter().copied().min_by_key(|one| rank(one, deployment))
}

fn rank(one: &Candidate, deployment: Option<DeploymentId>) -> Rank {
    let DiskId { serial, wwn, .. } = &one.named.disk;
    let stays = [serial, wwn, &one.named.by_path];
    Rank {
        begun: Reverse(is_begun(one, deployment)),
        fits_images: Reverse(!has_large_sectors(&one.disk)),
        boot_mirror: Reverse(is_boot_mirror(&one.disk)),
        boot_order: one.disk.boot_order.unwrap_or(u64::MAX),
        size: one.disk.size,
        tie: (
            stays.map(|text| (text.is_none(), text.clone())),
            one.named.name.clone(),
        ),
    }
}

fn has_large_sectors(disk: &Disk) -> bool {
    disk.logical_sectors.is_some_and(|bytes| bytes != SECTOR)
}

fn is_begun(one: &Candidate, deployment: Option<DeploymentId>) -> bool {
    let marked = one.found.mark.and_then(Mark::deployment);
    marked.is_some() && marked == deployment
}

fn is_boot_mirror(disk: &Disk) -> bool {
    let vendor = disk.vendor.as_deref().unwrap_or_default();
    let model = format!("{vendor} {}", disk.model).to_lowercase();
    let has = |words: &&[&str]| words.iter().all(|word| model.contains(word));
    BOOT_MIRRORS.iter().any(has)
}

/// It, and a disk with data, may have changed their names when the order is carried out.
fn is_ambiguous(best: &Candidate, all: &[Candidate], deployment: Option<DeploymentId>) -> bool {
    let named: Vec<&RootDisk> = all.iter().map(|one| &one.named).collect();
    let is_found = best.named.find(named, |one| (*one).clone()).is_ok();
    let has_place = best.named.by_path.is_some();
    let is_alike =
        |one: &&Candidate| one.named.disk == best.named.disk && one.named.name != best.named.name;
    let alike = all.iter().filter(is_alike);
    !is_found || !has_place && alike.into_iter().any(|one| !is_free(one.found, deployment))
}

fn unlike(all: &[Candidate], hints: &Hints) -> NoChoice {
    let differs = |one: &&Candidate| (hints.differences(&one.disk).len(), rank(one, None));
    match all.iter().min_by_key(differs) {
        Some(nearest) => NoChoice::Unlike {
            nearest: nearest.named.to_string(),
            differences: hints.differences(&nearest.disk).join(", "),
        },
        None => NoChoice::Unfit("it has none".to_owned()),
    }
}

/// What put it before others.
fn why(best: &Candidate, deployment: Option<DeploymentId>) -> String {
    if is_begun(best, deployment) {
        "the one that this installation has begun to write".to_owned()
    } else if is_boot_mirror(&best.disk) {
        format!("the mirrored boot device ({})", best.disk.model.trim())
    } else if best.disk.boot_order.is_some() {
        "the first in the firmware's boot order".to_owned()
    } else {
        "the smallest".to_owned()
    }
}

fn choice(
    best: &Candidate,
    scope: DiskScope,
    policy: DiskPolicy,
    deployment: Option<DeploymentId>,
    mut why: String,
) -> Choice {
    if has_large_sectors(&best.disk) {
        why = format!("{why}; the image is fitted to its 4096-byte sectors");
    }
    if policy == DiskPolicy::Wipe && !is_free(best.found, deployment) {
        let kinds = best.found.signatures.join(", ");
        why = format!("{why}; what it holds is given up ({kinds})");
    }
    Choice {
        disk: best.named.clone(),
        mirror: None,
        scope,
        why,
    }
}

#[cfg(test)]
mod tests;
