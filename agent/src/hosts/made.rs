//! A host's object as the box makes it, and whether anybody has written into it since. Pure.

use firstlight_api::{
    bmh::{
        AutomatedCleaningMode, BareMetalHost, BareMetalHostSpec, BootMode, FINALIZER, Image,
        RaidConfig,
    },
    capm3::FAILURE_DOMAIN_LABEL,
    site::Gives,
};
use firstlight_artifacts::hex;
use serde_json::json;
use sha2::{Digest, Sha256};

use super::account::{self, Named};

/// Where `kubectl get bmh` looks without being told.
pub const NAMESPACE: &str = "default";

/// As `kubectl` is told which object is meant.
pub fn called(namespace: &str, name: &str) -> String {
    if namespace == NAMESPACE {
        name.to_owned()
    } else {
        format!("{name} -n {namespace}")
    }
}

pub fn spec(boot_mac_address: String, boot_mode: Option<BootMode>) -> BareMetalHostSpec {
    BareMetalHostSpec {
        online: true,
        boot_mac_address,
        boot_mode,
        architecture: "x86_64".to_owned(),
        disable_power_off: true,
        // The definition's default, which the API server writes into every object.
        automated_cleaning_mode: Some(AutomatedCleaningMode::Metadata),
        ..BareMetalHostSpec::default()
    }
}

/// On an object that site.yaml has written into: SHA-256, in hex, of what the box made. Rules may change meanwhile.
const MADE: &str = "firstlight.internal/made";

/// An object in which nobody has written, as it would be made by what site.yaml gives it today; `None`: it is so.
pub fn anew(object: &BareMetalHost, gives: &Gives) -> Option<BareMetalHost> {
    if !is_as_made(object) {
        return None;
    }
    let bare = without_account(object);
    let mut new = bare.clone();
    new.spec = spec(object.spec.boot_mac_address.clone(), object.spec.boot_mode);
    new.metadata.labels.clear();
    new.metadata.annotations.clear();
    by_site(&mut new, gives);
    if new == bare {
        return None;
    }
    if let Some(at) = object.metadata.annotations.get(account::MADE) {
        new.metadata
            .annotations
            .insert(account::MADE.to_owned(), at.clone());
        new.spec.bmc.clone_from(&object.spec.bmc);
        new.spec.disable_power_off = object.spec.disable_power_off;
    }
    Some(new)
}

/// As it was before the box named its BMC.
fn without_account(object: &BareMetalHost) -> BareMetalHost {
    let mut bare = object.clone();
    let is_ours = account::named(object) != Named::Theirs;
    if bare.metadata.annotations.remove(account::MADE).is_some() && is_ours {
        bare.spec.bmc = None;
        bare.spec.disable_power_off = true;
    }
    bare
}

/// What site.yaml gives it.
pub fn by_site(object: &mut BareMetalHost, gives: &Gives) {
    object.metadata.labels.clone_from(&gives.labels);
    if let Some(domain) = &gives.failure_domain {
        let label = FAILURE_DOMAIN_LABEL.to_owned();
        object.metadata.labels.insert(label, domain.clone());
    }
    let root = gives.root_disk.clone().unwrap_or_default();
    object.spec.root_device_hints = root.hints;
    object.spec.raid = root.mirror.then(RaidConfig::mirror);
    object.spec.image = gives.image.as_ref().map(|name| Image {
        url: name.clone(),
        ..Image::default()
    });
    let plain = spec(object.spec.boot_mac_address.clone(), object.spec.boot_mode);
    if object.spec != plain || !object.metadata.labels.is_empty() {
        let (made, mark) = (MADE.to_owned(), mark(object));
        object.metadata.annotations.insert(made, mark);
    }
}

fn mark(object: &BareMetalHost) -> String {
    let made = json!([object.metadata.labels, object.spec]).to_string();
    hex(&Sha256::digest(made))
}

/// The box made it, and nobody has written anything into it since.
pub fn is_as_made(object: &BareMetalHost) -> bool {
    let object = &without_account(object);
    let (meta, spec) = (&object.metadata, &object.spec);
    if meta.finalizers.iter().any(|name| name != FINALIZER) {
        return false;
    }
    if let Some(made) = meta.annotations.get(MADE) {
        return meta.annotations.len() == 1 && *made == mark(object);
    }
    meta.labels.is_empty()
        && meta.annotations.is_empty()
        && *spec == self::spec(spec.boot_mac_address.clone(), spec.boot_mode)
}
