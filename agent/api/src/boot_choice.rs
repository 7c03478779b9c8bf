//! Which of the stick's two systems GRUB starts: `/boot/grubenv` on the ESP, which `rootfs/box/grub.cfg` reads and writes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::digest::Sha256Digest;

/// On the ESP.
pub const BOOT_CHOICE: &str = "boot/grubenv";
/// Of each system, in its folder on the ESP: what GRUB loads, and how ([`boot_config`]).
pub const KERNEL: &str = "vmlinuz";
/// The initramfs.
pub const INITRD: &str = "initrd";
/// Read by GRUB's own `grub.cfg`.
pub const START: &str = "boot.cfg";
/// On the ESP, once there was an update: the slot table of the image that shim, GRUB and its script are from, for an update brings none.
pub const LOADERS: &str = "boot/loaders";
/// The code in the MBR, as a [`crate::slot::BootFile`].
pub const MBR: &str = "mbr";
/// In front of the disk's number and the partition table there.
pub const MBR_CODE: usize = 440;
/// The partition of GRUB's core image for BIOS.
pub const BIOS_BOOT: &str = "bios-boot";
/// Of the box's kernel, when it starts a system for the first time, which then has to show that it works.
pub const TRIAL_WORD: &str = "firstlight.trial";
/// GRUB takes a file of this length only.
const LENGTH: usize = 1024;
const HEAD: &str = "# GRUB Environment Block\n";
/// Keys and values of an undamaged file are in its first sector, which a disk writes whole or not at all.
const SECTOR: usize = 512;

/// One of the two places for a system on a stick.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SystemSlot {
    /// That of the image.
    A,
    /// Made at the first boot.
    B,
}

impl SystemSlot {
    /// As in paths below `/boot`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::A => "a",
            Self::B => "b",
        }
    }

    /// Name of its partition.
    pub const fn partition(self) -> &'static str {
        match self {
            Self::A => "system-a",
            Self::B => "system-b",
        }
    }

    /// That which an update goes to.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }

    /// A file of it on the ESP, for example `vmlinuz`.
    pub fn boot_file(self, name: &str) -> String {
        format!("boot/{}/{name}", self.as_str())
    }

    fn parse(text: &str) -> Option<Self> {
        [Self::A, Self::B]
            .into_iter()
            .find(|slot| slot.as_str() == text)
    }
}

/// How GRUB starts a system, out of the system's own `boot.cfg`.
/// `table`: of the slot, without which its layers are not used.
pub fn boot_config(
    template: &str,
    slot: SystemSlot,
    partition: &str,
    table: Sha256Digest,
) -> String {
    template
        .replace("@SLOT@", slot.as_str())
        .replace("@SYSTEM@", partition)
        .replace("@TABLE@", &table.to_string())
}

/// The template of a [`boot_config`]; another text where it is none of these.
pub fn boot_template(
    config: &str,
    slot: SystemSlot,
    partition: &str,
    table: Sha256Digest,
) -> String {
    let folder = |slot: &str| format!("/boot/{slot}/");
    config
        .replace(&folder(slot.as_str()), &folder("@SLOT@"))
        .replace(partition, "@SYSTEM@")
        .replace(&table.to_string(), "@TABLE@")
}

/// Where a [`crate::slot::BootFile`] is on a stick.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BootPlace {
    /// So many of its first bytes.
    Mbr(usize),
    /// A whole partition.
    BiosBoot,
    /// A path on the ESP, of both systems.
    Esp(String),
    /// A path on the ESP, of this system alone.
    System(String),
    /// There, too, filled in.
    Start(String),
}

impl BootPlace {
    /// Of the file with this name, where it belongs to the system in `slot`.
    pub fn of(name: &str, slot: SystemSlot) -> Self {
        match name {
            MBR => Self::Mbr(MBR_CODE),
            BIOS_BOOT => Self::BiosBoot,
            KERNEL | INITRD => Self::System(slot.boot_file(name)),
            START => Self::Start(slot.boot_file(name)),
            path => Self::Esp(path.to_owned()),
        }
    }

    /// It is there for each system.
    pub const fn is_of_system(&self) -> bool {
        matches!(self, Self::System(_) | Self::Start(_))
    }
}

/// What the file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BootChoice {
    /// What is started always.
    pub slot: SystemSlot,
    /// What is started once, the next time.
    pub trial: Option<SystemSlot>,
}

impl BootChoice {
    /// As GRUB reads it.
    pub fn to_file(self) -> Vec<u8> {
        let trial = self.trial.map_or("", SystemSlot::as_str);
        let text = format!("{HEAD}slot={}\ntrial={trial}\n", self.slot.as_str());
        debug_assert!(text.len() < SECTOR, "torn writes matter");
        let mut file = text.into_bytes();
        file.resize(LENGTH, b'#');
        file
    }

    /// Whether the file says nothing but that: to GRUB a word of it is a part of a path.
    pub fn is_all_of(file: &[u8]) -> bool {
        let text = std::str::from_utf8(file).ok();
        let words = text.and_then(|text| text.strip_prefix(HEAD));
        let is_known = |line: &str| {
            line.is_empty()
                || matches!(
                    line.split_once('='),
                    Some(("slot", "a" | "b") | ("trial", "" | "a" | "b"))
                )
        };
        words.is_some_and(|words| words.trim_end_matches('#').lines().all(is_known))
    }

    /// `None` where GRUB would start what it starts without a file.
    pub fn parse(file: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(file).ok()?;
        let lines = text.strip_prefix(HEAD)?.lines();
        let mut found = (None, None);
        for (key, value) in lines.filter_map(|line| line.split_once('=')) {
            match key {
                "slot" => found.0 = SystemSlot::parse(value),
                "trial" => found.1 = SystemSlot::parse(value),
                _ => {}
            }
        }
        let (slot, trial) = found;
        (file.len() == LENGTH).then_some(Self { slot: slot?, trial })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_file_is_grubs() {
        let choice = BootChoice {
            slot: SystemSlot::A,
            trial: Some(SystemSlot::B),
        };
        let file = choice.to_file();
        assert_eq!(file.len(), 1024);
        assert!(file.starts_with(b"# GRUB Environment Block\nslot=a\ntrial=b\n####"));
        assert_eq!(BootChoice::parse(&file), Some(choice));
        let kept = BootChoice {
            slot: SystemSlot::B,
            trial: None,
        };
        assert_eq!(BootChoice::parse(&kept.to_file()), Some(kept));
        assert!(BootChoice::is_all_of(&file) && BootChoice::is_all_of(&kept.to_file()));
        for other in ["slot=a/../x\ntrial=\n###", "slot=a\nroot=(hd1)\n#", "x"] {
            assert!(!BootChoice::is_all_of(format!("{HEAD}{other}").as_bytes()));
        }
        assert_eq!(BootChoice::parse(&file[..1023]), None);
        assert_eq!(BootChoice::parse(&[0; 1024]), None);
    }

    #[test]
    fn a_template_is_filled_in() {
        let template = "linux /boot/@SLOT@/vmlinuz x=@SYSTEM@ y=@TABLE@ $word\n";
        let table = [0xab; 32].into();
        let text = boot_config(template, SystemSlot::B, "0-1", table);
        assert_eq!(boot_template(&text, SystemSlot::B, "0-1", table), template);
        let table = "ab".repeat(32);
        assert_eq!(
            text,
            format!("linux /boot/b/vmlinuz x=0-1 y={table} $word\n")
        );
        assert_eq!(SystemSlot::B.other().boot_file("initrd"), "boot/a/initrd");
    }

    proptest! {
        #[test]
        fn any_file_is_a_choice_or_none(lines in "(# GRUB Environment Block\n)?((slot|trial|x)?=?[abc]?\n?){0,6}", noise: Vec<u8>) {
            let mut file = lines.into_bytes();
            file.resize(LENGTH, b'#');
            for file in [file, noise] {
                if let Some(choice) = BootChoice::parse(&file) {
                    prop_assert_eq!(BootChoice::parse(&choice.to_file()), Some(choice));
                }
            }
        }
    }
}
