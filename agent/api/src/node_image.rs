//! `node.json`: what the image builder says of the operating system image of servers.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::bmh::{ChecksumType, Image};

/// Lies beside the image.
pub const FILE: &str = "node.json";

/// What [`FILE`] holds; it describes one image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct NodeImage {
    /// File name without `.raw.zst`.
    pub name: String,
    /// Of the file as served.
    pub sha256: String,
    /// The same.
    pub bytes: u64,
    /// On a disk, before it has grown to fill it.
    #[serde(default, rename = "rawBytes")]
    pub raw_bytes: u64,
    /// Debian packages in it, each with its version.
    #[serde(default)]
    pub packages: BTreeMap<String, String>,
}

impl NodeImage {
    /// Its name beside [`FILE`], and below `/images` of the box.
    pub fn file(&self) -> String {
        format!("{}.raw.zst", self.name)
    }

    /// `box_http` is `http://BOX`.
    pub fn url(&self, box_http: &str) -> String {
        format!("{box_http}/images/{}", self.file())
    }

    /// As a `BareMetalHost` names it.
    pub fn published(&self, box_http: &str) -> Image {
        Image {
            url: self.url(box_http),
            checksum: self.sha256.clone(),
            checksum_type: Some(ChecksumType::Sha256),
            format: Some("raw".to_owned()),
            oci_auth_secret_name: None,
        }
    }
}
