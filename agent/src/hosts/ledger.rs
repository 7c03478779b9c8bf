//! What must outlive a power cut and is nowhere else: one small file a host, `agent/hosts/<mac>.json` on the state partition.
//!
//! Ironic and the API objects say the rest. The files are written where they stand, before the step that they belong to:
//! a few hundred bytes, some ten times in a host's life, and their order is the point of them.
//! No secret is in them: of a token only its SHA-256.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
};

use anyhow::{Context, Result};
use firstlight_api::bmh::Image;
use firstlight_netboot::MacAddr;
use serde::{Deserialize, Serialize};

use crate::files::{self, Access};

/// Of one host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "facts that hold or do not, each by itself"
)]
pub struct Ledger {
    /// A person deleted it: when it shows up again, it is listed and left alone.
    pub removed: bool,
    /// Kubernetes has had an object of it, which may say anything by now.
    pub has_object: bool,
    /// Its image was taken away once: installing without a word is over.
    pub released: bool,
    /// It is on its way back to `available`.
    pub leaving: bool,
    /// Failed ones since the last that ended well.
    pub inspections: u32,
    pub cleanings: u32,
    /// What its disk holds, or is getting.
    pub deployment: Option<Deployment>,
    /// Annotations whose restart has happened.
    pub restarted: BTreeSet<String>,
}

/// One image on its way to a disk, or there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Deployment {
    pub image: Image,
    /// SHA-256, in hex, of the token for the bootstrap endpoint. Without one everything was on the config drive.
    pub token: Option<String>,
    /// The host has confirmed its bootstrap data: the token works no more.
    pub delivered: bool,
    /// Every byte is on the disk and was verified.
    pub written: bool,
    /// The object's spec was seen to name an image since: only what was there can have been taken away.
    pub shown: bool,
}

impl Deployment {
    /// Its system waits for bootstrap data.
    pub fn is_staged(&self) -> bool {
        self.token.is_some() && !self.delivered
    }
}

impl Ledger {
    /// The deployment, if its image is on the disk.
    pub fn written(&self) -> Option<&Deployment> {
        self.deployment
            .as_ref()
            .filter(|deployment| deployment.written)
    }
}

/// The directory of all of them.
#[derive(Clone, Debug)]
pub struct Ledgers {
    dir: PathBuf,
}

impl Ledgers {
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    fn path(&self, mac: MacAddr) -> PathBuf {
        let name = mac.to_string().replace(':', "-");
        self.dir.join(format!("{name}.json"))
    }

    /// A damaged file is as none, and is told: it cannot come from a power cut.
    pub fn load(&self) -> Result<BTreeMap<MacAddr, Ledger>> {
        files::make_dir(&self.dir, 0o750)?;
        let entries =
            fs::read_dir(&self.dir).with_context(|| format!("listing {}", self.dir.display()))?;
        let mut all = BTreeMap::new();
        for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
            let mac = path
                .file_name()
                .and_then(|name| name.to_str()?.strip_suffix(".json")?.parse().ok());
            let Some(mac) = mac else { continue };
            let text = fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
            match serde_json::from_slice(&text) {
                Ok(ledger) => drop(all.insert(mac, ledger)),
                Err(error) => {
                    tracing::error!(%mac, path = %path.display(), %error, "the memory of a host is damaged");
                }
            }
        }
        Ok(all)
    }

    /// Returns when it is on the disk.
    pub fn save(&self, mac: MacAddr, ledger: &Ledger) -> Result<()> {
        let text = serde_json::to_vec_pretty(ledger).context("encoding the memory of a host")?;
        files::write(&self.path(mac), &text, Access::Owner)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_was_saved_is_loaded_and_a_damaged_file_is_as_none() {
        let dir = tempfile::tempdir().unwrap();
        let ledgers = Ledgers::new(dir.path().join("hosts"));
        assert!(ledgers.load().unwrap().is_empty());
        let mac = |text: &str| text.parse::<MacAddr>().unwrap();
        let ledger = Ledger {
            inspections: 2,
            deployment: Some(Deployment {
                token: Some("ab".into()),
                ..Deployment::default()
            }),
            ..Ledger::default()
        };
        ledgers.save(mac("52:54:00:00:00:01"), &ledger).unwrap();
        fs::write(dir.path().join("hosts/52-54-00-00-00-02.json"), "{").unwrap();
        fs::write(dir.path().join("hosts/README"), "").unwrap();
        let loaded = ledgers.load().unwrap();
        assert_eq!(loaded, BTreeMap::from([(mac("52:54:00:00:00:01"), ledger)]));
        // An older agent wrote fewer fields.
        fs::write(dir.path().join("hosts/52-54-00-00-00-02.json"), "{}").unwrap();
        assert_eq!(
            ledgers.load().unwrap()[&mac("52:54:00:00:00:02")],
            Ledger::default()
        );
    }
}
