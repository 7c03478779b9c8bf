//! What must outlive a power cut and is nowhere else: one small file a host, `agent/hosts/<mac>.json` on the state partition.
//!
//! Ironic and the API objects say the rest. The files are written where they stand, before the step that they belong to:
//! a few hundred bytes, some ten times in a host's life, and their order is the point of them.
//! No secret is in them: of a token only its SHA-256.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use firstlight_api::{
    bmh::Image,
    measured::Quote,
    order::{DeploymentId, DiskId},
    receipt::Wrote,
    signed::PublicKey,
    tpm::{Digest, Fingerprint},
};
use firstlight_netboot::MacAddr;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::root_disk::Choice;
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
    /// Nobody used it, and it is silent: it is being forgotten, as if it had never been here.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub passing: bool,
    /// Is its object on its way to another management cluster?
    #[serde(skip_serializing_if = "Move::is_none")]
    pub moves: Move,
    /// It is on its way back to `available`.
    pub leaving: bool,
    /// Failed ones since the last that ended well.
    pub inspections: u32,
    pub cleanings: u32,
    /// It showed up after the first cluster was made.
    pub newcomer: bool,
    /// It has had the data of a machine of a cluster, once.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub served: bool,
    /// Public key, in base64, of the machine that was there before the first cluster: of its ramdisk then, or of a later one that
    /// has shown to be on the same machine. `None`: nobody has spoken for it then, or to an older box.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub known: Option<String>,
    /// Public key, in base64, of the machine whose code a person has compared.
    pub approved: Option<String>,
    /// The TPM of that machine, once it was shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approved_tpm: Option<Fingerprint>,
    /// The TPM of the machine that alone is believed in this host's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tpm: Option<Fingerprint>,
    /// How it was started when that was measured first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measured: Option<Measured>,
    /// What its disk holds, or is getting.
    pub deployment: Option<Deployment>,
    /// What the disk held when it was told to come back: whose disks are cleaned, until it is available.
    pub gives_back: Option<Deployment>,
    /// Annotations that were acted on and are about to go: a restart has happened, another try was noted.
    #[serde(rename = "restarted")]
    pub done: BTreeSet<String>,
    /// A person said that the step that failed begins again; until it has begun.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub retry: bool,
    /// When it was let go the last time, and with what on its disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left: Option<Departure>,
    /// A start by kexec did not come up on this server, which was of this model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_kexec: Option<Model>,
    /// The name with a number that a rule gave it; nobody else gets it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub numbered: Option<Numbered>,
    /// Its system was ended to start the ramdisk by kexec, and that has not come yet.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub returns: bool,
    /// An account is being made in its BMC, and what came of that is not written down: its password may be one that nobody knows.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub account_open: bool,
    /// Too many others had left: it waits for its name, however long ago that was.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub held: bool,
}

/// Of the first start that was measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Measured {
    /// Of the TPM's key for quotes.
    pub key: Fingerprint,
    /// What the firmware starts before the first program of ours.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub before: BTreeSet<Digest>,
    /// Of the last start that was believed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quote: Option<Box<Quote>>,
}

/// A host in use that was to be given back, and could.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Departure {
    /// Seconds since 1970: it counts after a restart, too.
    pub at: i64,
    /// What it was about; another deployment is another departure.
    pub deployment: Option<DeploymentId>,
}

/// Of an object, from one management cluster to another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Move {
    #[default]
    None,
    /// It was paused when it was seen last, as it is before a move.
    Paused,
    /// It went while it was paused, so that nobody has asked for its server to be given back: others have it now.
    Away,
}

impl Move {
    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "serde passes a reference"
    )]
    fn is_none(&self) -> bool {
        *self == Self::None
    }
}

/// A name out of a pattern with a number in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Numbered {
    pub pattern: String,
    pub name: String,
}

/// As its firmware calls it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Model {
    pub vendor: String,
    pub product: String,
}

/// How the system of a deployment was started the first time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Started {
    /// By its firmware, or not yet.
    #[default]
    Unknown,
    /// Its ramdisk is to do it by kexec.
    Ordered,
    /// By kexec; it has not answered yet.
    Kexec,
    /// By kexec, and it came up.
    Held,
    /// By kexec, and it did not come up.
    Failed,
    /// By kexec, and then by its firmware.
    Restarted,
}

impl Started {
    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "serde passes a reference"
    )]
    fn is_unknown(&self) -> bool {
        *self == Self::Unknown
    }
}

/// One image on its way to a disk, or there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Deployment {
    /// The same over all attempts. `None`: it was begun by a version that gave none.
    pub id: Option<DeploymentId>,
    pub image: Image,
    /// Disks with nothing worth keeping when it began: what is on them since came with it.
    pub disks: Vec<DiskId>,
    /// The one that gets the image. `None`: it was begun by a version that left the choice to the ramdisk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub root: Option<Choice>,
    /// SHA-256, in hex, of the token for the bootstrap endpoint. Without one everything was on the config drive.
    pub token: Option<String>,
    /// Public key, in base64, of the ramdisk that was to write the image: its system signs with it. `None`: an older box
    /// ordered it, and the token alone has to do.
    pub key: Option<String>,
    /// The host has confirmed its bootstrap data: the token works no more.
    pub delivered: bool,
    /// Every byte is on the disk and was verified.
    pub written: bool,
    /// What its ramdisk says of that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wrote: Option<Wrote>,
    /// When its ramdisk said that it was written; in seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wrote_at: Option<i64>,
    /// The object's spec was seen to name an image since: only what was there can have been taken away.
    pub shown: bool,
    #[serde(skip_serializing_if = "Started::is_unknown")]
    pub started: Started,
}

impl Deployment {
    /// The next attempt. `token_hash` is of the token that is made for it, whether it is used or not.
    pub fn next(before: Option<Self>, image: &Image, free: &[DiskId], token_hash: &str) -> Self {
        let under_way = before.as_ref().filter(|before| !before.written);
        Self {
            id: under_way
                .and_then(|before| before.id)
                .or_else(|| Some(new_id(token_hash))),
            image: image.clone(),
            disks: free.to_vec(),
            shown: before.is_some_and(|before| before.shown),
            ..Self::default()
        }
    }

    /// Was the ramdisk with `key` to write it?
    pub fn is_ordered_of(&self, key: PublicKey) -> bool {
        let ordered = self.key.as_ref();
        ordered.is_none_or(|ordered| *ordered == key.to_string())
    }

    /// Its system waits for bootstrap data.
    pub fn is_staged(&self) -> bool {
        self.token.is_some() && !self.delivered
    }
}

/// As random as the token, and tells nothing of it.
fn new_id(token_hash: &str) -> DeploymentId {
    let digest = Sha256::digest(format!("firstlight deployment {token_hash}"));
    let bytes = digest[..16]
        .try_into()
        .expect("a SHA-256 digest has more than 16 bytes");
    DeploymentId::new(bytes)
}

impl Ledger {
    /// The deployment whose image is on its way, or got stuck there.
    pub fn under_way(&self) -> Option<DeploymentId> {
        let deployment = self.deployment.as_ref()?;
        deployment.id.filter(|_| !deployment.written)
    }

    /// Of a host that a person removed, or whose file cannot be read.
    pub fn removed() -> Self {
        Self {
            removed: true,
            ..Self::default()
        }
    }

    /// The ramdisk with `key` is believed, and has shown that it follows those with the keys `follows` on the same machine; so it does
    /// where a TPM is bound. `raised`: a cluster was there already.
    pub fn met(&mut self, key: PublicKey, follows: &[PublicKey], raised: bool) {
        let follows = |before: &Option<String>| {
            let before = before.as_deref().and_then(PublicKey::parse);
            before.is_some_and(|before| follows.contains(&before))
        };
        let key = key.to_string();
        let is_same = self.tpm.is_some() || follows(&self.known);
        if follows(&self.approved) {
            self.approved = Some(key.clone());
        }
        if !self.newcomer && (is_same || !raised) {
            self.known = Some(key);
        }
    }

    /// The ramdisk with `key` has written all of it: `wall` in seconds since 1970.
    pub fn wrote(&mut self, key: PublicKey, wrote: Option<&Wrote>, wall: i64) {
        let current = self.deployment.as_mut();
        if let Some(known) = current.filter(|known| known.is_ordered_of(key)) {
            (known.wrote, known.wrote_at) = (wrote.cloned(), Some(wall));
        }
    }

    pub fn was_served(&self) -> bool {
        // Older boxes noted no more than this.
        self.served || self.deployment.as_ref().is_some_and(|it| it.delivered)
    }

    /// What is left of it when a person removes its host: whoever comes back is as new as it was.
    #[must_use]
    pub fn once_removed(&self) -> Self {
        Self {
            newcomer: self.newcomer,
            served: self.served,
            known: self.known.clone(),
            left: self.left,
            no_kexec: self.no_kexec.clone(),
            ..Self::removed()
        }
    }

    /// Nothing in it would be missed if its host came back as a new one.
    pub fn is_of_no_use(&self) -> bool {
        let bare = Self {
            has_object: self.has_object,
            passing: self.passing,
            inspections: self.inspections,
            newcomer: self.newcomer,
            known: self.known.clone(),
            tpm: self.tpm,
            measured: self.measured.clone(),
            left: self.left,
            no_kexec: self.no_kexec.clone(),
            numbered: self.numbered.clone(),
            account_open: self.account_open,
            ..Self::default()
        };
        *self == bare
    }

    /// What is on its disk may be taken away.
    pub fn may_leave(&self) -> bool {
        let id = self.deployment.as_ref().and_then(|it| it.id);
        self.leaving || self.left.is_some_and(|left| left.deployment == id)
    }

    /// It goes, now: `wall` in seconds since 1970.
    pub fn leaves(&mut self, wall: i64) {
        let deployment = self.deployment.as_ref().and_then(|it| it.id);
        let at = wall;
        (self.left, self.held) = (Some(Departure { at, deployment }), false);
    }

    /// Nobody wants to have it back any more: the next time is another departure.
    pub fn stays(&mut self) {
        self.held = false;
        if let Some(left) = self.left.as_mut().filter(|_| !self.leaving) {
            left.deployment = None;
        }
    }

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

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    fn path(&self, mac: MacAddr) -> PathBuf {
        let name = mac.to_string().replace(':', "-");
        self.dir.join(format!("{name}.json"))
    }

    /// Before [`Self::load`]: a file that cannot be read is put aside, and its host counts as removed, now and after every
    /// restart: nobody can say what its disk holds, so it is left alone until a person asks. Returns these hosts.
    pub fn put_damaged_aside(&self) -> Vec<MacAddr> {
        let damaged: Vec<MacAddr> = self
            .files()
            .unwrap_or_default()
            .into_iter()
            .filter(|(_, path)| read(path).is_err())
            .map(|(mac, _)| mac)
            .collect();
        for mac in &damaged {
            let path = self.path(*mac);
            let kept = fs::rename(&path, path.with_extension("damaged"))
                .context("putting the damaged file aside")
                .and_then(|()| self.save(*mac, &Ledger::removed()));
            if let Err(error) = kept {
                tracing::warn!(%mac, error = format!("{error:#}"), "a damaged ledger stays where it is");
            }
        }
        damaged
    }

    /// One file a host; one that cannot be read makes its host one to be left alone, and no other.
    pub fn load(&self) -> Result<BTreeMap<MacAddr, Ledger>> {
        let read_or_unknown = |path: &Path| read(path).unwrap_or_else(|_| Ledger::removed());
        Ok(self
            .files()?
            .into_iter()
            .map(|(mac, path)| (mac, read_or_unknown(&path)))
            .collect())
    }

    /// A host that a person removed is remembered, so that it is left alone when it shows up again; of a site that changes its
    /// servers for years only the newest of them. `known` is what was loaded.
    pub fn forget_long_removed(
        &self,
        known: &mut BTreeMap<MacAddr, Ledger>,
        most: usize,
    ) -> Result<()> {
        let all = known.iter();
        let removed = all.filter(|(_, ledger)| **ledger == ledger.once_removed());
        let removed: Vec<MacAddr> = removed.map(|(mac, _)| *mac).collect();
        let beyond = removed.len().saturating_sub(most);
        if beyond == 0 {
            return Ok(());
        }
        let mut dated = Vec::new();
        for mac in removed {
            dated.push((fs::metadata(self.path(mac))?.modified()?, mac));
        }
        dated.sort();
        for (_, mac) in &dated[..beyond] {
            let path = self.path(*mac);
            fs::remove_file(&path).with_context(|| format!("removing {}", path.display()))?;
            known.remove(mac);
        }
        Ok(())
    }

    /// As if it had never been here.
    pub fn forget(&self, mac: MacAddr) -> io::Result<()> {
        match fs::remove_file(self.path(mac)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn files(&self) -> Result<Vec<(MacAddr, PathBuf)>> {
        let entries = match fs::read_dir(&self.dir) {
            // Nothing was ever written down.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.with_context(|| format!("listing {}", self.dir.display()))?,
        };
        let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
        let named = paths.filter_map(|path| {
            let mac = path.file_name()?.to_str()?.strip_suffix(".json")?;
            Some((mac.parse().ok()?, path))
        });
        Ok(named.collect())
    }

    /// Returns when it is on the disk.
    pub fn save(&self, mac: MacAddr, ledger: &Ledger) -> Result<()> {
        files::make_dir(&self.dir, 0o750)?;
        let text = serde_json::to_vec_pretty(ledger).context("encoding the memory of a host")?;
        files::write(&self.path(mac), &text, Access::Owner)
    }
}

fn read(path: &Path) -> Result<Ledger> {
    let text = fs::read(path).with_context(|| format!("reading {}", path.display()))?;
    serde_json::from_slice(&text).with_context(|| format!("reading {}", path.display()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::{Duration, SystemTime};

    use proptest::prelude::*;

    use super::*;

    fn mac(last: u8) -> MacAddr {
        MacAddr::new([0x52, 0x54, 0, 0, 0, last]).unwrap()
    }

    #[test]
    fn what_was_saved_is_loaded() {
        let dir = tempfile::tempdir().unwrap();
        let ledgers = Ledgers::new(dir.path().join("hosts"));
        assert!(ledgers.load().unwrap().is_empty());
        assert!(!ledgers.dir().exists(), "reading writes nothing");
        let ledger = Ledger {
            inspections: 2,
            deployment: Some(Deployment {
                token: Some("ab".into()),
                ..Deployment::default()
            }),
            ..Ledger::default()
        };
        ledgers.save(mac(1), &ledger).unwrap();
        fs::write(dir.path().join("hosts/README"), "").unwrap();
        // An older agent wrote fewer fields.
        fs::write(dir.path().join("hosts/52-54-00-00-00-02.json"), "{}").unwrap();
        assert!(ledgers.put_damaged_aside().is_empty());
        assert_eq!(
            ledgers.load().unwrap(),
            BTreeMap::from([(mac(1), ledger), (mac(2), Ledger::default())])
        );
    }

    #[test]
    fn of_removed_hosts_the_newest_are_remembered_and_every_other_host_is() {
        let dir = tempfile::tempdir().unwrap();
        let ledgers = Ledgers::new(dir.path());
        for last in 1..=5 {
            ledgers.save(mac(last), &Ledger::removed()).unwrap();
            let file = fs::File::open(ledgers.path(mac(last))).unwrap();
            let days_ago = Duration::from_hours(24) * u32::from(last);
            file.set_modified(SystemTime::now() - days_ago).unwrap();
        }
        let here = Ledger {
            has_object: true,
            ..Ledger::removed()
        };
        ledgers.save(mac(4), &here).unwrap();
        let mut known = ledgers.load().unwrap();
        ledgers.forget_long_removed(&mut known, 2).unwrap();
        let left = ledgers.load().unwrap();
        assert!(left.keys().eq(&[mac(1), mac(2), mac(4)]), "{left:?}");
        assert_eq!(known, left);
    }

    #[test]
    fn a_file_that_cannot_be_read_leaves_its_host_alone_for_good_and_stops_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let ledgers = Ledgers::new(dir.path());
        ledgers.save(mac(1), &Ledger::default()).unwrap();
        fs::write(dir.path().join("52-54-00-00-00-02.json"), "{").unwrap();
        // Reading a directory fails as a bad block does.
        fs::create_dir(dir.path().join("52-54-00-00-00-03.json")).unwrap();
        let removed = |all: &BTreeMap<MacAddr, Ledger>| {
            let removed = all.iter().filter(|(_, ledger)| ledger.removed);
            removed.map(|(mac, _)| *mac).collect::<Vec<_>>()
        };
        let loaded = ledgers.load().unwrap();
        assert_eq!((loaded.len(), removed(&loaded)), (3, vec![mac(2), mac(3)]));
        let mut told = ledgers.put_damaged_aside();
        told.sort();
        assert_eq!(told, [mac(2), mac(3)]);
        assert!(ledgers.put_damaged_aside().is_empty(), "once");
        assert_eq!(ledgers.load().unwrap(), loaded, "also after a restart");
        let kept = fs::read(dir.path().join("52-54-00-00-00-02.damaged"));
        assert_eq!(kept.unwrap(), b"{", "for who wants to look");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// A stick that wears out: a few bytes of a file changed, or its end gone.
        #[test]
        fn a_damaged_file_is_a_ledger_or_a_host_that_is_left_alone(
            released: bool, inspections: u32, approved in proptest::option::of("\\PC{0,20}"), serial in "\\PC{0,20}", token in "[0-9a-f]{0,64}",
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
            cut in any::<prop::sample::Index>(),
        ) {
            let dir = tempfile::tempdir().unwrap();
            let ledgers = Ledgers::new(dir.path());
            let deployment = Deployment {
                id: Some(new_id(&token)),
                disks: vec![DiskId::new(Some(&serial), None, 8)],
                token: Some(token),
                ..Deployment::default()
            };
            let whole = Ledger { released, inspections, approved, deployment: Some(deployment), ..Ledger::default() };
            ledgers.save(mac(1), &whole).unwrap();
            prop_assert_eq!(&ledgers.load().unwrap()[&mac(1)], &whole);
            let path = ledgers.path(mac(1));
            let mut bytes = fs::read(&path).unwrap();
            for (at, value) in changes {
                let at = at.index(bytes.len());
                bytes[at] = value;
            }
            bytes.truncate(cut.index(bytes.len() * 2));
            fs::write(&path, &bytes).unwrap();
            let loaded = ledgers.load().unwrap();
            let told = ledgers.put_damaged_aside();
            if told.is_empty() {
                prop_assert_eq!(serde_json::from_slice(&bytes).ok(), loaded.get(&mac(1)).cloned());
            } else {
                prop_assert_eq!(&loaded[&mac(1)], &Ledger::removed());
                prop_assert_eq!(fs::read(path.with_extension("damaged")).unwrap(), bytes);
            }
            prop_assert!(ledgers.put_damaged_aside().is_empty());
            prop_assert_eq!(ledgers.load().unwrap(), loaded);
        }
    }
}
