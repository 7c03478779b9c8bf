//! What an object asks for and this box does not do: said in one condition, so that nothing is ignored without a word. Pure.
//!
//! To add a field that is not acted on: a line in [`ignored`]; one that is acted on from now on: its line goes.

use firstlight_api::{
    bmh::{
        BareMetalHost, BareMetalHostSpec, BootMode, InspectionMode,
        annotations::{self, HARDWARE_DETAILS, REBOOT, STATUS},
    },
    verb::SPARE_ANNOTATION,
};

use super::root_disk;

/// Fields and annotations, each with its reason. `found`: how its ramdisk was started.
pub fn ignored(object: &BareMetalHost, found: Option<BootMode>) -> Vec<String> {
    let mut all = fields(&object.spec);
    all.extend(boot_mode(object.spec.boot_mode, found));
    let annotations = &object.metadata.annotations;
    if annotations.contains_key(HARDWARE_DETAILS) {
        let why = "the box believes what the server's own ramdisk finds";
        all.push(format!("{HARDWARE_DETAILS}: {why}"));
    }
    if let Some(Err(error)) = annotations::status(annotations) {
        all.push(format!("{STATUS}: it is no status of a host: {error}"));
    }
    if let Some(consumer) = &object.spec.consumer_ref
        && annotations.contains_key(SPARE_ANNOTATION)
    {
        all.push(format!(
            "{SPARE_ANNOTATION}: {} has it already; it is a spare once that has given it back",
            consumer.name
        ));
    }
    let fences = annotations.keys().filter(|name| {
        let key = name.strip_prefix(REBOOT);
        key.is_some_and(|key| key.starts_with('/'))
    });
    let stays_on = if has_bmc(&object.spec) {
        object
            .spec
            .disable_power_off
            .then_some("`disablePowerOff` is set")
    } else {
        Some("its object names no BMC")
    };
    let fences = stays_on.map(|why| fences.map(move |name| {
        format!("{name}: the server is restarted once and does not stay off until the annotation goes, for {why}")
    }));
    all.extend(fences.into_iter().flatten());
    all
}

fn has_bmc(spec: &BareMetalHostSpec) -> bool {
    let bmc = spec.bmc.as_ref();
    bmc.is_some_and(|bmc| !bmc.address.is_empty())
}

fn fields(spec: &BareMetalHostSpec) -> Vec<String> {
    let set_by_hand = "the box changes nothing of it by the BMC; set it up in the firmware";
    let foreign = !matches!(spec.architecture.as_str(), "" | "x86_64");
    let oci = |image: &firstlight_api::bmh::Image| image.oci_auth_secret_name.is_some();
    let said = [
        (
            !spec.online && !has_bmc(spec),
            "online",
            "nobody can switch the server off, for `bmc` names none; it is only not installed",
        ),
        (
            !spec.online && spec.disable_power_off && has_bmc(spec),
            "online",
            "the server stays on, for `disablePowerOff` is set; it is only not installed",
        ),
        (
            spec.inspection_mode == Some(InspectionMode::Fast),
            "inspectionMode",
            "the server's own ramdisk says what is in it, not the BMC",
        ),
        (
            !spec.network_interfaces.is_empty(),
            "networkInterfaces",
            "the box manages no switches; set their ports up by hand",
        ),
        (spec.firmware.is_some(), "firmware", set_by_hand),
        (
            !spec.preprovisioning_network_data_name.is_empty(),
            "preprovisioningNetworkDataName",
            "the ramdisk gets its address from the box by DHCP",
        ),
        (
            foreign,
            "architecture",
            "the box starts x86_64 servers only",
        ),
        (
            !spec.taints.is_empty(),
            "taints",
            "nobody puts them on the Node; say them in the bootstrap configuration",
        ),
        (
            spec.custom_deploy.is_some() && spec.image.is_some(),
            "customDeploy",
            "the image is installed instead",
        ),
        (
            spec.image.as_ref().is_some_and(oci),
            "image.ociAuthSecretName",
            "no image is fetched from a registry",
        ),
    ];
    let said = said.into_iter().filter(|(is_said, ..)| *is_said);
    let said = said.map(|(_, field, why)| (field.to_owned(), why));
    said.chain(root_disk::unmet(spec))
        .map(|(field, why)| format!("spec.{field}: {why}"))
        .collect()
}

fn boot_mode(wanted: Option<BootMode>, found: Option<BootMode>) -> Option<String> {
    let why = match (wanted?, found?) {
        (wanted, found) if wanted == found => return None,
        (BootMode::UefiSecureBoot, BootMode::Uefi) => {
            "the server starts by UEFI, and the box cannot see whether Secure Boot is on; look into its firmware"
        }
        (_, BootMode::Legacy) => "the server starts by BIOS; change that in its firmware",
        (..) => "the server starts by UEFI; change that in its firmware",
    };
    Some(format!("spec.bootMode: {why}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    fn object(spec: serde_json::Value) -> BareMetalHost {
        let mut host = BareMetalHost::new("n1", "metal3", BareMetalHostSpec::default());
        host.spec = serde_json::from_value(spec).unwrap();
        host
    }

    #[test]
    fn each_field_and_annotation_that_nobody_acts_on_is_named() {
        let cases = [
            (json!({"online": false}), "online"),
            (json!({"inspectionMode": "fast"}), "inspectionMode"),
            (
                json!({"networkInterfaces": [{"name": "ens3f0", "hostNetworkAttachment": {"name": "mgmt"}}]}),
                "networkInterfaces",
            ),
            (
                json!({"raid": {"hardwareRAIDVolumes": []}}),
                "raid.hardwareRAIDVolumes",
            ),
            (
                json!({"raid": {"softwareRAIDVolumes": [{"level": "0"}]}}),
                "raid.softwareRAIDVolumes[0]",
            ),
            (json!({"firmware": {"sriovEnabled": true}}), "firmware"),
            (
                json!({"preprovisioningNetworkDataName": "x"}),
                "preprovisioningNetworkDataName",
            ),
            (json!({"architecture": "aarch64"}), "architecture"),
            (
                json!({
                    "online": false, "disablePowerOff": true,
                    "bmc": {"address": "ipmi://10.0.0.1", "credentialsName": "n1"},
                }),
                "online",
            ),
            (
                json!({"taints": [{"key": "a", "effect": "NoSchedule"}]}),
                "taints",
            ),
            (
                json!({"image": {"url": "http://a"}, "customDeploy": {"method": "x"}}),
                "customDeploy",
            ),
            (
                json!({"image": {"url": "http://a", "ociAuthSecretName": "x"}}),
                "image.ociAuthSecretName",
            ),
            (json!({"bootMode": "legacy"}), "bootMode"),
            (json!({"bootMode": "UEFISecureBoot"}), "bootMode"),
        ];
        for (mut spec, field) in cases {
            if spec.get("online").is_none() {
                spec["online"] = json!(true);
            }
            let said = ignored(&object(spec), Some(BootMode::Uefi));
            assert_eq!(said.len(), 1, "{said:?}");
            assert!(said[0].starts_with(&format!("spec.{field}: ")), "{said:?}");
        }
        let mut host =
            object(json!({"online": true, "architecture": "x86_64", "bootMode": "legacy"}));
        assert_eq!(ignored(&host, None), [""; 0], "nobody has seen it start");
        host.spec.raid =
            serde_json::from_value(json!({"softwareRAIDVolumes": [{"level": "1"}]})).unwrap();
        assert_eq!(ignored(&host, Some(BootMode::Legacy)), [""; 0]);
        for name in [HARDWARE_DETAILS, STATUS, "reboot.metal3.io/fence", REBOOT] {
            host.metadata.annotations = [(name.to_owned(), String::new())].into();
            let said = ignored(&host, None);
            let is_named = said
                .iter()
                .any(|line| line.starts_with(&format!("{name}: ")));
            assert_eq!(is_named, name != REBOOT, "{name}: {said:?}");
        }
    }
}
