//! A host's object as the box makes it, and whether anybody has written into it since. Pure.

use firstlight_api::bmh::{BareMetalHost, BareMetalHostSpec, BootMode, FINALIZER};

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
        ..BareMetalHostSpec::default()
    }
}

/// The box made it, and nobody has written anything into it since.
pub fn is_as_made(object: &BareMetalHost) -> bool {
    let (meta, spec) = (&object.metadata, &object.spec);
    let other_finalizers = meta.finalizers.iter().any(|name| name != FINALIZER);
    meta.labels.is_empty()
        && meta.annotations.is_empty()
        && !other_finalizers
        && *spec == self::spec(spec.boot_mac_address.clone(), spec.boot_mode)
}
