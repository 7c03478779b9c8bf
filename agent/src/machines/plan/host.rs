//! What is written to a host: its claim, its release, its pause.

use firstlight_api::{
    bmh::annotations,
    capi,
    capm3::{
        self, BLOCK_MOVE_ANNOTATION, CONTROL_PLANE_ANNOTATION, GIVEN_UP_ANNOTATION,
        HOST_PAUSED_ANNOTATION, HOST_PAUSED_BY_US, MachineImage, Metal3Machine, NODE_REUSE_LABEL,
        ObjectRef,
    },
};
use serde_json::{Value, json};

use crate::capi::{
    Action, Kind,
    world::{Host, HostExt, Key, is_control_plane},
};

/// The three Secrets that a host is told of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Data {
    pub user: Option<ObjectRef>,
    pub meta: Option<ObjectRef>,
    pub network: Option<ObjectRef>,
}

/// Takes the host for the machine, refused if the host changed meanwhile. It is told what to become once the machine has
/// been seen to be there still: the API server lets go an object that got its finalizer while it was being deleted.
pub fn claim(host: &Host, machine: &Metal3Machine, cluster: &str) -> Action {
    write(host, taken(machine, cluster))
}

/// Tells the machine's host what to become, refused if the host changed meanwhile.
pub fn install(host: &Host, machine: &Metal3Machine, cluster: &str, data: &Data) -> Action {
    let spec = &machine.spec;
    let mut patch = taken(machine, cluster);
    for (field, value) in [
        ("image", json!(spec.image.as_ref().map(image))),
        ("customDeploy", json!(spec.custom_deploy)),
        ("userData", json!(data.user)),
        ("metaData", json!(data.meta)),
        ("networkData", json!(data.network)),
        (
            "automatedCleaningMode",
            json!(
                spec.automated_cleaning_mode
                    .as_deref()
                    .unwrap_or("metadata")
            ),
        ),
        ("online", json!(true)),
    ] {
        patch["spec"][field] = value;
    }
    write(host, patch)
}

fn taken(machine: &Metal3Machine, cluster: &str) -> Value {
    let control_plane = is_control_plane(&machine.metadata).then_some("");
    json!({
        "metadata": {
            "labels": {capi::CLUSTER_LABEL: cluster, NODE_REUSE_LABEL: Value::Null},
            "annotations": {
                BLOCK_MOVE_ANNOTATION: "",
                CONTROL_PLANE_ANNOTATION: control_plane,
                GIVEN_UP_ANNOTATION: Value::Null,
            },
        },
        "spec": {"consumerRef": {
            "apiVersion": capm3::API_VERSION,
            "kind": "Metal3Machine",
            "name": machine.metadata.name,
            "namespace": machine.metadata.namespace,
        }},
    })
}

/// A claim of which nobody knows whether it came to be is refused from now on, for it carries an older version of the host.
pub fn give_up(host: &Host, machine: &Metal3Machine) -> Option<Action> {
    let by = &machine.metadata.uid;
    let is_given_up = host.metadata.annotation(GIVEN_UP_ANNOTATION) == Some(by);
    (!is_given_up).then(|| {
        write(
            host,
            json!({"metadata": {"annotations": {GIVEN_UP_ANNOTATION: by}}}),
        )
    })
}

/// As the host spells it.
fn image(image: &MachineImage) -> Value {
    let mut value = json!({"url": image.url});
    if !image.checksum.is_empty() {
        value["checksum"] = json!(image.checksum);
    }
    if let Some(kind) = image.checksum_type {
        value["checksumType"] = json!(kind);
    }
    if let Some(format) = &image.disk_format {
        value["format"] = json!(format);
    }
    value
}

/// The host's controller takes the image off it. A host without remote power is left as on or off as a person wants it.
pub fn take_image_off(host: &Host) -> Action {
    let mut patch = json!({"spec": {
        "image": null,
        "customDeploy": null,
        "userData": null,
        "metaData": null,
        "networkData": null,
    }});
    if !host.spec.stays_on() {
        patch["spec"]["online"] = json!(false);
    }
    write(host, patch)
}

/// Gives the host back for the machine with the UID `by`, if that is known; `keep_for` is who gets it next.
pub fn release(host: &Host, by: Option<&str>, keep_for: Option<&str>) -> Action {
    write(
        host,
        json!({
            "metadata": {
                "labels": {capi::CLUSTER_LABEL: null, NODE_REUSE_LABEL: keep_for},
                "annotations": {
                    BLOCK_MOVE_ANNOTATION: null,
                    CONTROL_PLANE_ANNOTATION: null,
                    GIVEN_UP_ANNOTATION: by,
                },
            },
            "spec": {"consumerRef": null},
        }),
    )
}

/// Gives up on a host that does not answer any more: it is cleaned when it comes back, and chosen by nobody.
pub fn forget(host: &Host, machine: &Metal3Machine) -> Action {
    write(
        host,
        json!({
            "metadata": {
                "labels": {capi::CLUSTER_LABEL: null, NODE_REUSE_LABEL: null},
                "annotations": {
                    BLOCK_MOVE_ANNOTATION: null,
                    CONTROL_PLANE_ANNOTATION: null,
                    GIVEN_UP_ANNOTATION: machine.metadata.uid,
                    capm3::UNHEALTHY_ANNOTATIONS[0]: "",
                },
            },
            "spec": {
                "consumerRef": null,
                "image": null,
                "customDeploy": null,
                "userData": null,
                "metaData": null,
                "networkData": null,
            },
        }),
    )
}

/// A paused cluster's hosts are left alone, too, and may be moved to another management cluster; only a pause of ours is taken away.
pub fn pause(host: &Host, wanted: bool) -> Option<Action> {
    let says = |name: &str| host.metadata.annotation(name);
    match says(HOST_PAUSED_ANNOTATION) {
        by if wanted => {
            let travels =
                says(annotations::STATUS).is_some() && says(BLOCK_MOVE_ANNOTATION).is_none();
            let is_due = by.is_none() || !travels;
            is_due.then(|| Action::PauseHost {
                key: Key::of(&host.metadata),
                version: host.metadata.resource_version.clone(),
                by: by.unwrap_or(HOST_PAUSED_BY_US).to_owned(),
            })
        }
        Some(HOST_PAUSED_BY_US) => {
            let annotations = json!({HOST_PAUSED_ANNOTATION: null, BLOCK_MOVE_ANNOTATION: ""});
            Some(write(
                host,
                json!({"metadata": {"annotations": annotations}}),
            ))
        }
        _ => None,
    }
}

fn write(host: &Host, patch: Value) -> Action {
    Action::Patch {
        kind: Kind::Host,
        key: Key::of(&host.metadata),
        version: Some(host.metadata.resource_version.clone()),
        patch,
    }
}

/// What a person reads of a host that is on its way.
pub fn progress(host: &Host) -> String {
    let name = &host.metadata.name;
    if !host.status.error_message.is_empty() {
        return format!("host {name}: {}", host.status.error_message);
    }
    let state = serde_json::to_value(host.state())
        .ok()
        .and_then(|state| state.as_str().map(str::to_owned))
        .filter(|state| !state.is_empty())
        .unwrap_or_else(|| "new".to_owned());
    format!("host {name} is {state}")
}
