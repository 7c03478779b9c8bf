//! Definitions of kinds that have a second version: the API server is told who converts their objects.
//!
//! The manifests have the version that is stored; the other one is made of it (`firstlight_api::capm3::v1beta1`). Must not: convert
//! anything; that is `web/conversion.rs`.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use firstlight_api::{capm3::v1beta1, names::CONVERSION_PORT};
use serde_json::Value;

/// The second version of a definition whose kind has one, behind a door with a certificate of `authority` (PEM). Everything else stays
/// as it is.
pub fn complete(definition: &mut Value, authority: &str) {
    let url = format!("https://127.0.0.1:{CONVERSION_PORT}{}", v1beta1::PATH);
    v1beta1::definition(definition, &url, &STANDARD.encode(authority));
}

#[cfg(test)]
mod tests;
