//! `site.yaml` as a person writes it, for the published JSON Schema (`docs/site.schema.json`).
//!
//! These types are never filled: an editor's YAML plug-in reads their schema, the box reads the file itself, because
//! only a walk over the marked tree can report every problem with its place. A test holds both to the same keys.

use schemars::JsonSchema;

pub(super) const SITE_KEYS: &[&str] = &["name", "provisioning", "install", "sshKeys", "hosts"];
pub(super) const PROVISIONING_KEYS: &[&str] = &["interface", "address", "range"];
pub(super) const HOST_KEYS: &[&str] = &["mac", "name", "address", "install"];

/// The site. Every key may be left out.
#[derive(JsonSchema)]
#[schemars(
    rename_all = "camelCase",
    deny_unknown_fields,
    title = "Firstlight site.yaml"
)]
#[allow(dead_code, reason = "read by schemars only")]
pub struct SiteSpec {
    /// Name of the site, shown on the page. Default: firstlight.
    #[schemars(pattern(r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"))]
    name: Option<String>,
    provisioning: Option<ProvisioningSpec>,
    install: Option<InstallSpec>,
    /// SSH public keys for `admin` on the box and on every installed server.
    ssh_keys: Option<Vec<String>>,
    /// Servers that need a name, an address or a rule of their own. Others need no entry.
    hosts: Option<Vec<HostSpec>>,
}

/// The network that servers boot from.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase", deny_unknown_fields)]
#[allow(dead_code, reason = "read by schemars only")]
pub struct ProvisioningSpec {
    /// auto (the first NIC with a cable), a kernel name such as enp1s0, or a MAC address. Default: auto.
    interface: Option<String>,
    /// The box's address on this network with prefix length. Default: 172.22.0.1/24.
    #[schemars(pattern(r"^[0-9.]+/[0-9]+$"))]
    address: Option<String>,
    /// Addresses to lease, FIRST-LAST. Default: a part of the network, 172.22.0.100-172.22.0.250.
    #[schemars(pattern(r"^[0-9.]+ *- *[0-9.]+$"))]
    range: Option<String>,
}

/// blank: install servers whose disks are all blank. wipe: install whatever is on the disks. never: leave alone.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
#[allow(dead_code, reason = "read by schemars only")]
pub enum InstallSpec {
    Blank,
    Wipe,
    Never,
}

/// One server.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase", deny_unknown_fields)]
#[allow(dead_code, reason = "read by schemars only")]
pub struct HostSpec {
    /// The NIC that it boots from.
    #[schemars(pattern(r"^[0-9A-Fa-f]{2}([:-][0-9A-Fa-f]{2}){5}$"))]
    mac: String,
    /// Host name. Default: host- and the MAC without colons.
    name: Option<String>,
    /// Its address on the provisioning network, inside or outside the range. Default: from the range.
    address: Option<String>,
    install: Option<InstallSpec>,
}

/// The schema as pretty JSON with a final newline.
pub fn site_schema() -> String {
    let schema = schemars::schema_for!(SiteSpec);
    let mut text = serde_json::to_string_pretty(&schema).expect("a schema is plain JSON");
    text.push('\n');
    text
}
