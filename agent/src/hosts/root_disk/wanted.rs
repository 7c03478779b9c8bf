//! What the object of a host says of the disk that gets its image: which one, or that two become a mirror. Pure.
//!
//! Of Metal3's `raid` a mirror of two disks is made, for the root. What else it asks for is named, with the reason, by [`unmet`].

use firstlight_api::{
    bmh::{BareMetalHostSpec, RaidConfig, RootDeviceHints, SoftwareRaidVolume},
    disk::hints,
};

/// As `level` says it.
const MIRROR: &str = "1";
/// Ironic and Metal3 name the array itself so.
const ARRAY: &str = "/dev/md";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WantedDisks {
    /// For the disk; of a mirror for both.
    pub hints: Option<RootDeviceHints>,
    pub mirror: Option<Halves>,
}

/// Which two become a mirror.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Halves {
    /// Those that the box chooses.
    Chosen,
    /// One that fits the first, and another that fits the second.
    Named(Box<[RootDeviceHints; 2]>),
}

impl WantedDisks {
    pub fn of(spec: &BareMetalHostSpec) -> Self {
        let mirror = spec.raid.as_ref().and_then(halves);
        let hints = spec.root_device_hints.clone();
        let hints = hints.filter(|hints| mirror.is_none() || !is_array(hints));
        Self { hints, mirror }
    }

    /// Other disks are none of its business, then.
    pub fn names_disks(&self) -> bool {
        let hints = self.hints.as_ref().and_then(hints::root_device);
        hints.is_some() || matches!(self.mirror, Some(Halves::Named(_)))
    }
}

/// The array's name fits no disk, and means the mirror.
fn is_array(hints: &RootDeviceHints) -> bool {
    hints.device_name.starts_with(ARRAY)
}

fn halves(raid: &RaidConfig) -> Option<Halves> {
    if raid.hardware_raid_volumes.is_some() {
        return None;
    }
    let (_, volume) = root_volume(raid)?;
    if volume.level != MIRROR {
        return None;
    }
    match volume.physical_disks.as_slice() {
        [] => Some(Halves::Chosen),
        [first, second] => Some(Halves::Named(Box::new([first.clone(), second.clone()]))),
        _ => None,
    }
}

/// The one that the image is installed on, with its place.
fn root_volume(raid: &RaidConfig) -> Option<(usize, &SoftwareRaidVolume)> {
    let volumes = raid.software_raid_volumes.as_deref().unwrap_or_default();
    let mut all = volumes.iter().enumerate();
    let named = all.clone().find(|(_, volume)| volume.root_volume);
    named.or_else(|| all.next())
}

/// What `raid`, and the hints beside it, ask for and nobody does: fields below `spec`, each with its reason.
pub fn unmet(spec: &BareMetalHostSpec) -> Vec<(String, &'static str)> {
    let Some(raid) = &spec.raid else {
        return Vec::new();
    };
    let mut said = Vec::new();
    if raid.hardware_raid_volumes.is_some() {
        said.push((
            "raid.hardwareRAIDVolumes".to_owned(),
            "the box changes nothing of a controller; set it up in the firmware",
        ));
    }
    let volumes = raid.software_raid_volumes.as_deref().unwrap_or_default();
    let root = root_volume(raid).map(|(place, _)| place);
    for (place, volume) in volumes.iter().enumerate() {
        let name = format!("raid.softwareRAIDVolumes[{place}]");
        let why = if raid.hardware_raid_volumes.is_some() {
            "it counts only without `hardwareRAIDVolumes`; the image goes to one disk"
        } else if root != Some(place) {
            "only the disks with the image become a mirror; make other volumes in the installed system"
        } else if volume.level != MIRROR {
            "only mirrors (level 1) are made; the image goes to one disk"
        } else if !matches!(volume.physical_disks.len(), 0 | 2) {
            "a mirror is of two disks: write two `physicalDisks`, or none; the image goes to one disk"
        } else if volume.size_gibibytes.is_some() {
            said.push((
                format!("{name}.sizeGibibytes"),
                "the mirror takes all that the smaller disk has",
            ));
            continue;
        } else {
            continue;
        };
        said.push((name, why));
    }
    let hints = spec.root_device_hints.as_ref();
    let is_named = matches!(halves(raid), Some(Halves::Named(_)));
    if is_named && hints.is_some_and(|hints| !is_array(hints)) {
        said.push((
            "rootDeviceHints".to_owned(),
            "`physicalDisks` of `raid` names the two disks",
        ));
    }
    said
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value, json};

    use super::*;

    fn spec(raid: &Value, hints: &Value) -> BareMetalHostSpec {
        serde_json::from_value(json!({"online": true, "raid": raid, "rootDeviceHints": hints}))
            .unwrap()
    }

    #[test]
    fn metal3s_mirror_for_the_root_is_understood_and_everything_else_is_named() {
        let disk = |serial: &str| json!({"serialNumber": serial});
        let two = || json!([disk("a"), disk("b")]);
        let volumes = |list: Value| json!({"softwareRAIDVolumes": list});
        let first = "raid.softwareRAIDVolumes[0]";
        let second = "raid.softwareRAIDVolumes[1]";
        for (raid, hints, is_mirror, is_named, unmet_fields) in [
            (Value::Null, Value::Null, false, false, vec![]),
            (volumes(json!([])), Value::Null, false, false, vec![]),
            (
                volumes(json!([{"level": "1"}])),
                Value::Null,
                true,
                false,
                vec![],
            ),
            (
                volumes(json!([{"level": "1"}])),
                disk("a"),
                true,
                true,
                vec![],
            ),
            // As Metal3's own manuals have it.
            (
                volumes(json!([{"level": "1"}])),
                json!({"deviceName": "/dev/md0"}),
                true,
                false,
                vec![],
            ),
            (
                volumes(json!([{"level": "1", "physicalDisks": two()}])),
                disk("c"),
                true,
                true,
                vec!["rootDeviceHints"],
            ),
            (
                volumes(json!([{"level": "1", "sizeGibibytes": 8}])),
                Value::Null,
                true,
                false,
                vec!["raid.softwareRAIDVolumes[0].sizeGibibytes"],
            ),
            (
                volumes(json!([{"level": "1"}, {"level": "0"}])),
                Value::Null,
                true,
                false,
                vec![second],
            ),
            (
                volumes(json!([{"level": "0"}, {"level": "1", "rootVolume": true}])),
                Value::Null,
                true,
                false,
                vec![first],
            ),
            (
                volumes(json!([{"level": "1+0"}])),
                Value::Null,
                false,
                false,
                vec![first],
            ),
            (
                volumes(
                    json!([{"level": "1", "physicalDisks": [disk("a"), disk("b"), disk("c")]}]),
                ),
                Value::Null,
                false,
                false,
                vec![first],
            ),
            (
                json!({"hardwareRAIDVolumes": [{"level": "1"}], "softwareRAIDVolumes": [{"level": "1"}]}),
                Value::Null,
                false,
                false,
                vec!["raid.hardwareRAIDVolumes", first],
            ),
        ] {
            let spec = spec(&raid, &hints);
            let wanted = WantedDisks::of(&spec);
            assert_eq!(wanted.mirror.is_some(), is_mirror, "{raid}");
            assert_eq!(wanted.names_disks(), is_named, "{raid} {hints}");
            let fields: Vec<String> = unmet(&spec).into_iter().map(|(field, _)| field).collect();
            assert_eq!(fields, unmet_fields, "{raid}");
        }
    }
}
