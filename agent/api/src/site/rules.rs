//! `rules`: what a server is given that the box meets for the first time, by what it is made of. Pure.
//!
//! The first rule that fits counts. What a server says of itself is not proven: no rule makes anybody trusted.
//! To add a condition: a variant of [`TextFact`] or [`NumberFact`]; something to give: [`Gives`]; then the walk in
//! `parse::rules` and the schema.

use std::{collections::BTreeMap, fmt, str::FromStr};

use super::{Clean, HostName, HostRole, InstallPolicy, Layout, MacAddr, ValueError};
use crate::{
    bmh::RootDeviceHints,
    start::{KernelArguments, StartPolicy},
    status::HardwareSummary,
    wildcard,
};

/// One entry of `rules`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// `match`: all of them have to hold; none for `any`.
    pub conditions: Vec<Condition>,
    /// Everything beside `match`.
    pub gives: Gives,
}

/// `rootDisk`: where its system goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GivenRootDisk {
    /// Which disk that is; without them the box chooses.
    pub hints: Option<RootDeviceHints>,
    /// Two disks hold the same.
    pub mirror: bool,
}

/// What a rule says of the servers that it fits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gives {
    /// Absent: as without rules, `host-` and the MAC address.
    pub name: Option<NamePattern>,
    /// For the cluster.
    pub role: Option<HostRole>,
    /// One of the site's clusters that it is for.
    pub cluster: Option<HostName>,
    /// Instead of the site's.
    pub install: Option<InstallPolicy>,
    /// Of the `BareMetalHost`.
    pub labels: BTreeMap<String, String>,
    /// `failureDomain`: where it stands.
    pub failure_domain: Option<String>,
    /// Absent: the box chooses.
    pub root_disk: Option<GivenRootDisk>,
    /// What is erased when it is given back. Absent: [`Clean::Root`] where hints name the disk, [`Clean::All`] elsewhere.
    pub clean: Option<Clean>,
    /// Name of an image on the box that it gets without being asked for it.
    pub image: Option<String>,
    /// How its installed system is started the first time.
    pub start: Option<StartPolicy>,
    /// `kernelArguments` of its installed system.
    pub kernel_arguments: Option<KernelArguments>,
    /// Which of its NICs carries what.
    pub layout: Option<Layout>,
    /// `bmc.account`: an account of the box's own in its BMC.
    pub account: Option<BmcAccount>,
    /// `keepsBackups`: its installed system holds the box's backups.
    pub keeps_backups: bool,
}

/// How the box comes to an account in a BMC that nobody has named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BmcAccount {
    /// The server makes it, by its own way to its BMC.
    Create,
}

impl BmcAccount {
    /// As in site.yaml.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Create => "create",
        }
    }
}

impl FromStr for BmcAccount {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        if text == Self::Create.word() {
            return Ok(Self::Create);
        }
        Err(ValueError(format!(
            "`{text}` is nothing that is done about accounts of BMCs; write `create`, or take `bmc` out"
        )))
    }
}

/// One line of `match`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Any of the patterns.
    Text(TextFact, Vec<Pattern>),
    /// Within the span.
    Number(NumberFact, Span),
}

/// What a server is called, by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the words in site.yaml say it")]
pub enum TextFact {
    Mac,
    Serial,
    Vendor,
    Product,
}

/// What a server has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberFact {
    /// Logical ones.
    Cpus,
    /// GiB.
    Memory,
    /// Ethernet cards.
    Nics,
    /// Gbit/s of the fastest that has a link.
    NicSpeed,
    /// As the ramdisk counts them.
    Disks,
    /// GB (10^9 bytes) of the largest.
    DiskSize,
}

impl TextFact {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Mac, Self::Serial, Self::Vendor, Self::Product];

    /// As in site.yaml.
    pub fn word(self) -> &'static str {
        match self {
            Self::Mac => "mac",
            Self::Serial => "serial",
            Self::Vendor => "vendor",
            Self::Product => "product",
        }
    }

    fn of(self, mac: MacAddr, hardware: &HardwareSummary) -> String {
        match self {
            Self::Mac => mac.to_string(),
            Self::Serial => hardware.serial.clone(),
            Self::Vendor => hardware.vendor.clone(),
            Self::Product => hardware.model.clone(),
        }
    }
}

impl NumberFact {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Cpus,
        Self::Memory,
        Self::Nics,
        Self::NicSpeed,
        Self::Disks,
        Self::DiskSize,
    ];

    /// As in site.yaml.
    pub fn word(self) -> &'static str {
        match self {
            Self::Cpus => "cpus",
            Self::Memory => "memory",
            Self::Nics => "nics",
            Self::NicSpeed => "nicSpeed",
            Self::Disks => "disks",
            Self::DiskSize => "diskSize",
        }
    }

    fn of(self, hardware: &HardwareSummary) -> u64 {
        match self {
            Self::Cpus => hardware.cpus.into(),
            // Of 64 GiB the firmware keeps some MiB for itself on many servers.
            Self::Memory => (hardware.memory_mib + 512) / 1024,
            Self::Nics => hardware.nics,
            Self::NicSpeed => hardware.nic_gbps,
            Self::Disks => hardware.disks.len() as u64,
            Self::DiskSize => hardware.disk_gb,
        }
    }
}

/// A text in which `*` stands for anything; capitals do not matter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(String);

impl Pattern {
    /// # Errors
    /// Nothing but space, or more than any firmware says.
    pub fn parse(text: &str) -> Result<Self, ValueError> {
        let text = text.trim();
        if text.is_empty() || text.len() > 256 {
            return Err(ValueError(
                "a pattern has 1 to 256 characters; `*` stands for anything".to_owned(),
            ));
        }
        Ok(Self(text.to_lowercase()))
    }

    fn fits(&self, text: &str) -> bool {
        wildcard::fits(&self.0, &text.trim().to_lowercase())
    }
}

/// Whole numbers from one to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    least: u64,
    most: u64,
}

impl FromStr for Span {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let wrong = || {
            ValueError(format!(
                "`{text}` is no number of things; write 16 (exactly), 16+ (at least) or 16-64"
            ))
        };
        let number = |text: &str| text.trim().parse::<u64>().map_err(|_| wrong());
        let (least, most) = if let Some(least) = text.strip_suffix('+') {
            (number(least)?, u64::MAX)
        } else if let Some((least, most)) = text.split_once('-') {
            (number(least)?, number(most)?)
        } else {
            (number(text)?, number(text)?)
        };
        if least > most {
            return Err(ValueError(format!(
                "`{text}` holds no number; write the smaller one first"
            )));
        }
        Ok(Self { least, most })
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.least, self.most) {
            (least, u64::MAX) => write!(f, "{least}+"),
            (least, most) if least == most => write!(f, "{least}"),
            (least, most) => write!(f, "{least}-{most}"),
        }
    }
}

/// A host name with `{serial}`, `{product}`, `{mac}` or `{n}` in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamePattern(String);

/// Stands for a number that makes the name one of a kind.
const NUMBER: &str = "{n}";
/// Of the servers of a site.
const LARGEST_NUMBER: usize = 99_999;

impl NamePattern {
    /// # Errors
    /// What is no host name with good values filled in.
    pub fn parse(text: &str) -> Result<Self, ValueError> {
        let pattern = Self(text.to_owned());
        let sample = pattern.filled(LARGEST_NUMBER, |_| "x".to_owned());
        if sample.contains(['{', '}']) {
            return Err(ValueError(format!(
                "`{text}` has a brace that stands for nothing; use {{serial}}, {{product}}, {{mac}} or {{n}}"
            )));
        }
        HostName::parse(&sample)?;
        Ok(pattern)
    }

    /// The box gives its servers numbers.
    pub fn is_numbered(&self) -> bool {
        self.0.contains(NUMBER)
    }

    fn filled(&self, number: usize, value: impl Fn(TextFact) -> String) -> String {
        let facts = [TextFact::Serial, TextFact::Product, TextFact::Mac];
        let numbered = self.0.replace(NUMBER, &number.to_string());
        facts.into_iter().fold(numbered, |text, fact| {
            let place = format!("{{{}}}", fact.word());
            if text.contains(&place) {
                text.replace(&place, &value(fact))
            } else {
                text
            }
        })
    }

    /// The name of one server. `number`: what `{n}` stands for, where there is one.
    ///
    /// # Errors
    /// A sentence: what it says of itself makes no name.
    pub fn fill(
        &self,
        mac: MacAddr,
        hardware: &HardwareSummary,
        number: usize,
    ) -> Result<HostName, String> {
        let lacks = TextFact::ALL.into_iter().find(|fact| {
            let place = format!("{{{}}}", fact.word());
            self.0.contains(&place) && label_of(&fact.of(mac, hardware)).is_empty()
        });
        if let Some(fact) = lacks {
            let word = fact.word();
            return Err(format!(
                "its rule calls it `{}`, and it says no {word} of itself",
                self.0
            ));
        }
        let name = self.filled(number, |fact| label_of(&fact.of(mac, hardware)));
        HostName::parse(&name).map_err(|error| format!("its rule calls it `{}`: {error}", self.0))
    }
}

impl fmt::Display for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What firmware says, as a part of a host name: `R740 (Rev. 2)` is `r740-rev-2`. A MAC address loses its colons.
fn label_of(text: &str) -> String {
    let text = text.to_lowercase().replace(':', "");
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric());
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    words.join("-")
}

impl Condition {
    /// # Errors
    /// How the server differs, as a sentence.
    fn holds(&self, mac: MacAddr, hardware: &HardwareSummary) -> Result<(), String> {
        match self {
            Self::Text(fact, patterns) => {
                let value = fact.of(mac, hardware);
                if patterns.iter().any(|pattern| pattern.fits(&value)) {
                    return Ok(());
                }
                let wanted: Vec<&str> = patterns.iter().map(|one| one.0.as_str()).collect();
                let wanted = wanted.join(" or ");
                Err(format!("{} is `{value}`, not {wanted}", fact.word()))
            }
            Self::Number(fact, span) => {
                let value = fact.of(hardware);
                if (span.least..=span.most).contains(&value) {
                    return Ok(());
                }
                Err(format!("{} is {value}, not {span}", fact.word()))
            }
        }
    }
}

impl Rule {
    /// # Errors
    /// The first condition that does not hold, as a sentence.
    pub fn fits(&self, mac: MacAddr, hardware: &HardwareSummary) -> Result<(), String> {
        let mut conditions = self.conditions.iter();
        conditions.try_for_each(|condition| condition.holds(mac, hardware))
    }
}

#[cfg(test)]
mod tests;
