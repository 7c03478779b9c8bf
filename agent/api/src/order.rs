//! The box's order on a server's disks: what may be done to which of them. It travels in the `extra` of the Ironic node,
//! which Ironic sends with each step, and the ramdisk compares it with the disks in the moment before the first byte.
//!
//! Must not: judge. `hosts::policy` of the agent does before the order, `ipa::judge` of the ramdisk after it.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::bounded;
use crate::report::{DiskSignatures, MOST_DISKS};

/// The key in the node's `extra`.
pub const EXTRA: &str = "firstlight_order";
/// Characters in a serial number or a WWN, which both sides cut and clean alike.
const LONGEST_NAME: usize = 128;

/// One deployment of one server, over all its attempts. Random; it is in the ledger before anything is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DeploymentId([u8; 16]);

impl DeploymentId {
    /// `random` is 128 bits that nobody can guess.
    pub const fn new(random: [u8; 16]) -> Self {
        Self(random)
    }

    /// Of 32 lower-case hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if text.len() != 32 || !text.bytes().all(is_digit) {
            return None;
        }
        u128::from_str_radix(text, 16)
            .ok()
            .map(|number| Self(number.to_be_bytes()))
    }
}

impl fmt::Display for DeploymentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl TryFrom<String> for DeploymentId {
    type Error = &'static str;
    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(&text).ok_or("a deployment is 32 hexadecimal digits")
    }
}

impl From<DeploymentId> for String {
    fn from(id: DeploymentId) -> Self {
        id.to_string()
    }
}

/// What tells one disk from another, whatever name the kernel gives it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DiskId {
    /// At most 128 characters; absent if the disk has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// At most 128 characters; absent if the disk has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wwn: Option<String>,
    /// Of the whole disk.
    pub size_bytes: u64,
}

impl DiskId {
    /// Cuts and cleans both texts, as both sides do before they compare.
    pub fn new(serial: Option<&str>, wwn: Option<&str>, size_bytes: u64) -> Self {
        let cut = |text: &str| bounded::text(text).chars().take(LONGEST_NAME).collect();
        Self {
            serial: serial.map(cut),
            wwn: wwn.map(cut),
            size_bytes,
        }
    }

    /// Something besides its size tells it from others.
    pub fn is_told_apart(&self) -> bool {
        self.serial.is_some() || self.wwn.is_some()
    }
}

impl From<&DiskSignatures> for DiskId {
    fn from(disk: &DiskSignatures) -> Self {
        Self::new(disk.serial.as_deref(), disk.wwn.as_deref(), disk.size_bytes)
    }
}

impl fmt::Display for DiskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a disk of {} MB", self.size_bytes / 1_000_000)?;
        match (&self.serial, &self.wwn) {
            (Some(serial), _) => write!(f, " with the serial number {serial}"),
            (None, Some(wwn)) => write!(f, " with the WWN {wwn}"),
            (None, None) => Ok(()),
        }
    }
}

/// The one disk that gets an image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RootDisk {
    /// Enough, where no other disk has the same.
    pub disk: DiskId,
    /// The kernel's when it was chosen, `/dev/sda`; the same disk may have another one now.
    pub name: String,
    /// Where it was plugged in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_path: Option<String>,
}

/// Why a [`RootDisk`] is not among some disks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// No disk is like it.
    Gone,
    /// Disks are like it, and none of them, or several, are where it was.
    Unclear,
}

impl RootDisk {
    /// The one of `disks` that it is. Where neither serial number nor WWN tells it from others, its position does, and without one
    /// the kernel's name.
    ///
    /// # Errors
    /// Nobody can say that one of them is this one, and no other.
    pub fn find<T>(&self, disks: Vec<T>, named: impl Fn(&T) -> Self) -> Result<T, Missing> {
        let mut alike: Vec<(Self, T)> =
            disks.into_iter().map(|disk| (named(&disk), disk)).collect();
        alike.retain(|(it, _)| it.disk == self.disk);
        if alike.is_empty() {
            return Err(Missing::Gone);
        }
        if alike.len() > 1 || !self.disk.is_told_apart() {
            alike.retain(|(it, _)| match &self.by_path {
                Some(_) => it.by_path == self.by_path,
                None => it.name == self.name,
            });
        }
        match (alike.pop(), alike.is_empty()) {
            (Some((_, disk)), true) => Ok(disk),
            _ => Err(Missing::Unclear),
        }
    }
}

/// What the ramdisk itself has written on a disk to know it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "camelCase")]
pub enum Mark {
    /// The disk holds a part of an image and nothing else.
    Unfinished {
        /// The one that began to write.
        deployment: DeploymentId,
    },
    /// An image and its config drive are complete; `None`: by a ramdisk that left no mark, or not by ours.
    Installed {
        /// The one that wrote it.
        deployment: Option<DeploymentId>,
    },
}

impl Mark {
    /// Who has written it, where the mark says so.
    pub fn deployment(self) -> Option<DeploymentId> {
        match self {
            Self::Unfinished { deployment } => Some(deployment),
            Self::Installed { deployment } => deployment,
        }
    }
}

/// Why the disks may be written to, and so what the ramdisk must find on them before the first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum DiskPolicy {
    /// Every disk is blank, or holds what this deployment has written.
    Blank,
    /// A person gave up what is on the disks of this server.
    Wipe,
    /// The server is given back: these disks are erased, if one of them still holds what the deployment wrote.
    GiveBack,
}

/// Which disks of a server an order is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum DiskScope {
    /// All of them, and no other may be there. So are orders of boxes that knew no other.
    #[default]
    Server,
    /// The root disk alone, or both of a mirror, which a person or a rule has named: others are none of its business, whatever they
    /// hold.
    Root,
}

/// The value of [`EXTRA`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DiskOrder {
    /// `None` only with [`DiskPolicy::GiveBack`]: the deployment is older than these orders.
    pub deployment: Option<DeploymentId>,
    /// Holds for all of `disks`.
    pub policy: DiskPolicy,
    /// With [`DiskPolicy::GiveBack`] it says nothing.
    #[serde(default)]
    pub scope: DiskScope,
    /// The disks of the server, as far as they count, as they were judged; with [`DiskPolicy::GiveBack`] those to erase.
    pub disks: Vec<DiskId>,
    /// Which of them gets the image, or got it. No image is written without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<RootDisk>,
    /// The one that gets the same, as the other half of a mirror. A ramdisk that knows of none refuses the whole order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mirror: Option<Box<RootDisk>>,
}

impl DiskOrder {
    /// The disk that gets the image, or both halves of a mirror.
    pub fn roots(&self) -> impl Iterator<Item = &RootDisk> {
        self.root.iter().chain(self.mirror.as_deref())
    }

    /// Of a node's `extra`; `Ok(None)`: there is none, or it was taken back (an empty text).
    pub fn of_node(node: &Value) -> Result<Option<Self>, String> {
        match &node["extra"][EXTRA] {
            Value::Null => Ok(None),
            Value::String(taken_back) if taken_back.is_empty() => Ok(None),
            value => {
                let order = Self::deserialize(value).map_err(|error| {
                    bounded::sentence(&format!("extra.{EXTRA} of the node: {error}"))
                })?;
                if order.disks.len() > MOST_DISKS {
                    return Err(format!("extra.{EXTRA} names more than {MOST_DISKS} disks"));
                }
                Ok(Some(order))
            }
        }
    }
}

/// Nothing on this disk is worth keeping: it is blank, or holds what `deployment` has written.
pub fn is_free(disk: &DiskSignatures, deployment: Option<DeploymentId>) -> bool {
    let marked = disk.mark.and_then(Mark::deployment);
    disk.signatures.is_empty() || (marked.is_some() && marked == deployment)
}

/// What `found` has and `wanted` has not, and the other way round; disks that cannot be told apart are counted.
pub fn differences<'a>(
    wanted: &'a [DiskId],
    found: &'a [DiskId],
) -> (Vec<&'a DiskId>, Vec<&'a DiskId>) {
    let mut missing: Vec<&DiskId> = wanted.iter().collect();
    let mut new = Vec::new();
    for disk in found {
        match missing.iter().position(|known| *known == disk) {
            Some(at) => drop(missing.swap_remove(at)),
            None => new.push(disk),
        }
    }
    (new, missing)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const ID: DeploymentId = DeploymentId::new([7; 16]);

    fn disk(signatures: &[&str], mark: Option<Mark>) -> DiskSignatures {
        DiskSignatures {
            name: "/dev/sda".into(),
            size_bytes: 8 << 30,
            serial: Some("S1".into()),
            wwn: None,
            signatures: signatures.iter().map(|kind| (*kind).to_owned()).collect(),
            mark,
        }
    }

    #[test]
    fn a_disk_is_free_if_it_is_blank_or_holds_what_this_deployment_wrote() {
        let other = DeploymentId::new([8; 16]);
        let unfinished = |deployment| Some(Mark::Unfinished { deployment });
        let installed = |deployment| Some(Mark::Installed { deployment });
        for (disk, deployment, free) in [
            (disk(&[], None), None, true),
            (disk(&["gpt"], None), Some(ID), false),
            (disk(&["ours"], unfinished(ID)), Some(ID), true),
            (disk(&["ours"], unfinished(other)), Some(ID), false),
            (disk(&["ours"], unfinished(ID)), None, false),
            (disk(&["gpt"], installed(Some(ID))), Some(ID), true),
            (disk(&["gpt"], installed(Some(other))), Some(ID), false),
            (disk(&["gpt"], installed(None)), None, false),
        ] {
            assert_eq!(is_free(&disk, deployment), free, "{disk:?} {deployment:?}");
        }
    }

    fn root(serial: &str, name: &str, by_path: Option<&str>) -> RootDisk {
        let serial = Some(serial).filter(|serial| !serial.is_empty());
        RootDisk {
            disk: DiskId::new(serial, None, 8),
            name: name.to_owned(),
            by_path: by_path.map(str::to_owned),
        }
    }

    #[test]
    fn a_root_disk_is_found_by_what_tells_it_apart_and_never_by_chance() {
        let find = |wanted: &RootDisk, disks: &[RootDisk]| {
            let found = wanted.find(disks.to_vec(), Clone::clone);
            found.map(|disk| disk.name)
        };
        let is = |name: &str| Ok(name.to_owned());
        // The kernel gave the names the other way round.
        let swapped = [root("B", "/dev/sda", None), root("A", "/dev/sdb", None)];
        assert_eq!(find(&root("A", "/dev/sda", None), &swapped), is("/dev/sdb"));
        assert_eq!(
            find(&root("C", "/dev/sda", None), &swapped),
            Err(Missing::Gone)
        );
        // One disk by two ways.
        let twice = [root("A", "/dev/sda", None), root("A", "/dev/sdb", None)];
        assert_eq!(find(&root("A", "/dev/sdb", None), &twice), is("/dev/sdb"));
        assert_eq!(
            find(&root("A", "/dev/sdc", None), &twice),
            Err(Missing::Unclear)
        );
        // Without serial numbers the position counts, and a name only where there is none.
        let twins = [
            root("", "/dev/vda", Some("p2")),
            root("", "/dev/vdb", Some("p1")),
        ];
        assert_eq!(
            find(&root("", "/dev/vda", Some("p1")), &twins),
            is("/dev/vdb")
        );
        assert_eq!(
            find(&root("", "/dev/vda", Some("p3")), &twins),
            Err(Missing::Unclear)
        );
        assert_eq!(find(&root("", "/dev/vda", None), &twins), is("/dev/vda"));
        assert_eq!(
            find(&root("", "/dev/vdc", None), &twins[..1]),
            Err(Missing::Unclear)
        );
        let same = [
            root("", "/dev/vda", Some("p1")),
            root("", "/dev/vdb", Some("p1")),
        ];
        assert_eq!(
            find(&root("", "/dev/vda", Some("p1")), &same),
            Err(Missing::Unclear)
        );
    }

    #[test]
    fn disks_that_came_and_disks_that_went_are_told_also_among_twins() {
        let id = |serial: Option<&str>| DiskId::new(serial, None, 8);
        let (a, b, twin) = (id(Some("a")), id(Some("b")), id(None));
        let (judged, found) = (
            [a.clone(), twin.clone()],
            [twin.clone(), b.clone(), twin.clone()],
        );
        assert_eq!(differences(&judged, &found), (vec![&b, &twin], vec![&a]));
        assert_eq!(
            differences(&judged, &[twin.clone(), a.clone()]),
            (vec![], vec![])
        );
    }

    #[test]
    fn an_order_comes_back_from_a_node_and_a_strange_one_is_refused() {
        let order = DiskOrder {
            deployment: Some(ID),
            policy: DiskPolicy::Blank,
            scope: DiskScope::Root,
            disks: vec![DiskId::new(Some("S1"), None, 8 << 30)],
            root: Some(root("S1", "/dev/sda", None)),
            mirror: Some(Box::new(root("S2", "/dev/sdb", None))),
        };
        let node = |order: Value| json!({"extra": {EXTRA: order}});
        let sent = node(serde_json::to_value(&order).unwrap());
        assert_eq!(DiskOrder::of_node(&sent), Ok(Some(order)));
        assert_eq!(DiskOrder::of_node(&json!({})), Ok(None));
        assert_eq!(DiskOrder::of_node(&node(Value::Null)), Ok(None));
        assert_eq!(DiskOrder::of_node(&node(json!(""))), Ok(None));
        // Of a box that did not choose: what it ordered to be erased is erased.
        let old = json!({"deployment": ID, "policy": "giveBack", "disks": [{"sizeBytes": 1}]});
        let old = DiskOrder::of_node(&node(old)).unwrap().unwrap();
        assert_eq!((old.scope, old.root), (DiskScope::Server, None));
        let many = vec![json!({"sizeBytes": 1}); MOST_DISKS + 1];
        for strange in [
            json!("wipe"),
            json!({"deployment": ID, "policy": "wipe"}),
            json!({"deployment": "7", "policy": "wipe", "disks": []}),
            json!({"deployment": ID, "policy": "all", "disks": []}),
            json!({"deployment": ID, "policy": "wipe", "disks": [], "force": true}),
            json!({"deployment": ID, "policy": "wipe", "disks": many}),
        ] {
            assert!(
                DiskOrder::of_node(&node(strange.clone())).is_err(),
                "{strange}"
            );
        }
    }

    proptest! {
        #[test]
        fn a_deployment_is_read_as_it_is_written(bytes in any::<[u8; 16]>(), text in "\\PC{0,40}") {
            let id = DeploymentId::new(bytes);
            prop_assert_eq!(DeploymentId::parse(&id.to_string()), Some(id));
            if let Some(id) = DeploymentId::parse(&text) {
                prop_assert_eq!(id.to_string(), text);
            }
        }

        /// A valid order with one of its values replaced.
        #[test]
        fn whatever_a_node_carries_is_an_order_or_a_short_sentence(
            field in prop::sample::select(&[
                "", "/deployment", "/policy", "/scope", "/disks", "/disks/0", "/disks/0/serial", "/disks/0/sizeBytes", "/root", "/root/disk",
                "/root/name", "/root/byPath",
            ][..]),
            value in prop_oneof![
                Just(Value::Null), any::<u64>().prop_map(Value::from), any::<i64>().prop_map(Value::from), any::<f64>().prop_map(Value::from),
                (".{0,8}", 0..300_usize).prop_map(|(word, times)| Value::from(word.repeat(times))),
                prop::collection::vec(Just(json!({"sizeBytes": 1})), 0..200).prop_map(Value::from),
            ],
        ) {
            let disk = json!({"serial": "S1", "sizeBytes": 8});
            let mut order = json!({
                "deployment": ID, "policy": "blank", "scope": "root", "disks": [disk], "root": {"disk": disk, "name": "/dev/sda", "byPath": "p"},
            });
            *order.pointer_mut(field).unwrap() = value;
            match DiskOrder::of_node(&json!({"extra": {EXTRA: order}})) {
                Ok(Some(order)) => {
                    prop_assert!(order.disks.len() <= MOST_DISKS);
                    let again = json!({"extra": {EXTRA: serde_json::to_value(&order).unwrap()}});
                    prop_assert_eq!(DiskOrder::of_node(&again), Ok(Some(order)));
                }
                Ok(None) => {}
                Err(sentence) => prop_assert!(sentence.chars().count() <= 1000 && !sentence.contains(char::is_control)),
            }
        }
    }
}
