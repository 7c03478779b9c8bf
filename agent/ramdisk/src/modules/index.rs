//! The index of the initramfs' kernel modules, written by the image builder (`imagebuilder/src/initramfs.rs`).
//!
//! `firstlight-modules 1`, then in any order: `m NAME PATH DEPENDENCIES-IN-ORDER…` (path below `/lib/modules`),
//! `a PATTERN NAME`, `l MODE NAME`. Unlike depmod's text files it needs no search at run time: dependencies are already
//! in the order of loading, and patterns are found by their literal prefix.

use std::collections::{BTreeSet, HashMap};

use super::pattern::{literal_prefix, matches};

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum IndexError {
    #[error(
        "the module index does not begin with `firstlight-modules 1`; rebuild the initramfs with this init"
    )]
    Version,
    #[error("line {0} of the module index cannot be read; rebuild the initramfs")]
    Line(usize),
}

/// One module: where it is, and what must be loaded before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Module<'a> {
    pub path: &'a str,
    dependencies: &'a str,
}

impl<'a> Module<'a> {
    /// Names, in the order of loading.
    pub fn dependencies(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.dependencies.split(' ').filter(|name| !name.is_empty())
    }
}

/// The parsed index; borrows its text.
#[derive(Debug, Default)]
pub struct Index<'a> {
    modules: HashMap<&'a str, Module<'a>>,
    /// Patterns and their modules, by the pattern's literal prefix.
    aliases: HashMap<&'a str, Vec<(&'a str, &'a str)>>,
    prefix_lengths: BTreeSet<usize>,
    load: Vec<(&'a str, &'a str)>,
}

impl<'a> Index<'a> {
    pub fn parse(text: &'a str) -> Result<Self, IndexError> {
        let mut lines = text.lines();
        if lines.next() != Some("firstlight-modules 1") {
            return Err(IndexError::Version);
        }
        let mut index = Self::default();
        for (number, line) in lines.enumerate() {
            index.add(line).ok_or(IndexError::Line(number + 2))?;
        }
        Ok(index)
    }

    fn add(&mut self, line: &'a str) -> Option<()> {
        let (kind, rest) = line.split_once(' ')?;
        let (first, rest) = rest.split_once(' ')?;
        match kind {
            "m" => {
                let (path, dependencies) = rest.split_once(' ').unwrap_or((rest, ""));
                self.modules.insert(first, Module { path, dependencies });
            }
            // An alias may contain spaces (names from firmware tables), a module's name cannot.
            "a" => {
                let (pattern, name) = line.get(2..)?.rsplit_once(' ')?;
                let prefix = literal_prefix(pattern);
                self.prefix_lengths.insert(prefix.len());
                self.aliases
                    .entry(prefix)
                    .or_default()
                    .push((pattern, name));
            }
            "l" => self.load.push((first, rest)),
            _ => return None,
        }
        Some(())
    }

    /// The module of that name; `-` and `_` are the same.
    pub fn module(&self, name: &str) -> Option<(&'a str, Module<'a>)> {
        let entry = self
            .modules
            .get_key_value(name)
            .or_else(|| self.modules.get_key_value(name.replace('-', "_").as_str()));
        entry.map(|(name, module)| (*name, *module))
    }

    pub fn names(&self) -> impl Iterator<Item = &'a str> {
        self.modules.keys().copied()
    }

    /// Modules that declare an alias which matches, in the order of the index' prefixes, each once.
    pub fn by_alias(&self, modalias: &str) -> Vec<&'a str> {
        let mut names = Vec::new();
        for length in &self.prefix_lengths {
            let Some(prefix) = modalias.get(..*length) else {
                continue;
            };
            for (pattern, name) in self.aliases.get(prefix).into_iter().flatten() {
                if !names.contains(name) && matches(pattern.as_bytes(), modalias.as_bytes()) {
                    names.push(*name);
                }
            }
        }
        names
    }

    /// What `mode` loads without waiting for a device, in order.
    pub fn load_list(&self, mode: &str) -> Vec<&'a str> {
        self.load
            .iter()
            .filter(|(of, _)| *of == mode)
            .map(|(_, name)| *name)
            .collect()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &str = "firstlight-modules 1\n\
        m scsi_mod 6.12/kernel/drivers/scsi/scsi_mod.ko scsi_common\n\
        m scsi_common 6.12/kernel/drivers/scsi/scsi_common.ko.xz\n\
        m usb_storage 6.12/kernel/drivers/usb/storage/usb-storage.ko scsi_common scsi_mod\n\
        a usb:v*p*d*dc*dsc*dp*ic08isc06ip50in* usb_storage\n\
        a fs-ext4 ext4\n\
        a dmi*:sn:An Odd Name:* usb_storage\n\
        l box usb_storage\n\
        l ramdisk scsi_mod\n";

    #[test]
    fn modules_come_with_their_dependencies_in_order() {
        let index = Index::parse(TEXT).unwrap();
        let (name, module) = index.module("usb-storage").unwrap();
        assert_eq!(
            (name, module.path),
            (
                "usb_storage",
                "6.12/kernel/drivers/usb/storage/usb-storage.ko"
            )
        );
        assert_eq!(
            module.dependencies().collect::<Vec<_>>(),
            ["scsi_common", "scsi_mod"]
        );
        assert_eq!(
            index
                .module("scsi_common")
                .unwrap()
                .1
                .dependencies()
                .count(),
            0
        );
        assert_eq!(index.module("floppy"), None);
        assert_eq!(
            (index.load_list("box"), index.load_list("ramdisk")),
            (vec!["usb_storage"], vec!["scsi_mod"])
        );
    }

    #[test]
    fn aliases_are_found_with_and_without_wildcards() {
        let index = Index::parse(TEXT).unwrap();
        assert_eq!(
            index.by_alias("usb:v46F4p0001d0000dc00dsc00dp00ic08isc06ip50in00"),
            ["usb_storage"]
        );
        assert_eq!(index.by_alias("fs-ext4"), ["ext4"]);
        assert_eq!(index.by_alias("dmi:x:sn:An Odd Name:y"), ["usb_storage"]);
        assert!(index.by_alias("fs-ext").is_empty() && index.by_alias("").is_empty());
    }

    #[test]
    fn damage_is_named_by_its_line() {
        assert_eq!(
            Index::parse("firstlight-modules 2\n").unwrap_err(),
            IndexError::Version
        );
        assert_eq!(
            Index::parse("firstlight-modules 1\nm a b\nzz\n").unwrap_err(),
            IndexError::Line(3)
        );
    }

    proptest! {
        #[test]
        fn any_text_is_answered(text in "\\PC*", alias in "\\PC{0,20}") {
            let text = format!("firstlight-modules 1\n{text}");
            if let Ok(index) = Index::parse(&text) {
                index.by_alias(&alias);
            }
        }
    }
}
