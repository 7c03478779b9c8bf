//! Kinds of Metal3 that this box does not serve. Their definitions are there and refuse every object with a sentence: without them a
//! manifest of theirs is a riddle ("no matches for kind").
//!
//! To serve one: its line goes, and its definition comes to the other manifests.

use anyhow::{Context, Result};
use kube::Client;
use serde_json::{Value, json};

use super::apply::apply;

/// Of `metal3.io` and `infrastructure.cluster.x-k8s.io`.
const METAL3: (&str, &[&str]) = ("metal3.io", &["v1alpha1"]);
const CAPM3: (&str, &[&str]) = ("infrastructure.cluster.x-k8s.io", &["v1beta2", "v1beta1"]);

const BY_HAND: &str =
    "the box changes no firmware by BMCs; change the settings in the server's own setup";
const NO_EVENTS: &str = "the box takes no events of BMCs; what Ironic sees is in the BareMetalHost";
const NO_SWITCH: &str = "the box manages no switches; set their ports up by hand";
const CLAIMS: &str = "hosts are claimed by Metal3Machine objects, or by a person who writes `image` into the BareMetalHost";
const INSIDE: &str = "Metal3DataTemplate is rendered without it; the Secrets MACHINE-metadata and MACHINE-networkdata hold the result";

/// Group and versions, kind, plural, and why not.
type Refused = (
    (&'static str, &'static [&'static str]),
    &'static str,
    &'static str,
    &'static str,
);

const ALL: [Refused; 13] = [
    (
        METAL3,
        "HostFirmwareSettings",
        "hostfirmwaresettings",
        BY_HAND,
    ),
    (
        METAL3,
        "HostFirmwareComponents",
        "hostfirmwarecomponents",
        BY_HAND,
    ),
    (METAL3, "FirmwareSchema", "firmwareschemas", BY_HAND),
    (METAL3, "HostUpdatePolicy", "hostupdatepolicies", BY_HAND),
    (
        METAL3,
        "BMCEventSubscription",
        "bmceventsubscriptions",
        NO_EVENTS,
    ),
    (
        METAL3,
        "DataImage",
        "dataimages",
        "the box has no way to put a disc into a server; push a package or a container instead",
    ),
    (
        METAL3,
        "PreprovisioningImage",
        "preprovisioningimages",
        "every server starts the ramdisk of the stick",
    ),
    (METAL3, "HostClaim", "hostclaims", CLAIMS),
    (METAL3, "HostDeployPolicy", "hostdeploypolicies", CLAIMS),
    (METAL3, "BareMetalSwitch", "baremetalswitches", NO_SWITCH),
    (
        METAL3,
        "HostNetworkAttachment",
        "hostnetworkattachments",
        NO_SWITCH,
    ),
    (CAPM3, "Metal3Data", "metal3datas", INSIDE),
    (CAPM3, "Metal3DataClaim", "metal3dataclaims", INSIDE),
];

/// Doing it again changes nothing.
///
/// # Errors
/// The API server does not take one.
pub async fn apply_all(client: &Client) -> Result<()> {
    for definition in definitions() {
        let name = definition["metadata"]["name"].to_string();
        let object = serde_json::from_value(definition)?;
        let applied = apply(client, &object).await;
        applied.with_context(|| format!("applying what refuses {name}"))?;
    }
    Ok(())
}

/// As manifests.
pub fn definitions() -> impl Iterator<Item = Value> {
    ALL.into_iter().map(definition)
}

fn definition(((group, versions), kind, plural, why): Refused) -> Value {
    let version = |(at, name): (usize, &&str)| {
        let refused = json!({
            "type": "object",
            "description": format!("Refused: {why}."),
            "x-kubernetes-preserve-unknown-fields": true,
            "x-kubernetes-validations": [{"rule": "false", "message": format!("Firstlight does not take {kind}: {why}")}],
        });
        let schema = json!({"openAPIV3Schema": refused});
        json!({"name": name, "served": true, "storage": at == 0, "schema": schema})
    };
    let versions: Vec<Value> = versions.iter().enumerate().map(version).collect();
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": kind.to_lowercase()},
            "versions": versions,
        },
    })
}
