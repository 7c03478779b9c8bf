//! The operating system image of the stick that hosts get.

use std::{fs, path::Path};

use firstlight_api::status::Problem;
use firstlight_ironic::InstanceInfo;
use serde::Deserialize;

/// `node.json`, as the image builder writes it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeImage {
    /// File name without `.raw.zst`.
    pub name: String,
    /// Of the file as served.
    pub sha256: String,
    pub bytes: u64,
}

impl NodeImage {
    pub fn file(&self) -> String {
        format!("{}.raw.zst", self.name)
    }

    pub fn url(&self, box_http: &str) -> String {
        format!("{box_http}/images/{}", self.file())
    }

    /// The ramdisk hashes the bytes as served, and unpacks by the name's ending.
    pub fn instance_info(&self, box_http: &str) -> InstanceInfo {
        InstanceInfo {
            image_source: self.url(box_http),
            image_os_hash_algo: "sha256".to_owned(),
            image_os_hash_value: self.sha256.clone(),
            image_disk_format: "raw".to_owned(),
            image_type: "whole-disk".to_owned(),
            root_device: None,
        }
    }
}

/// Without an image nothing can be installed; the page says so at each host.
pub fn load(images: &Path) -> Result<NodeImage, Problem> {
    let path = images.join("node.json");
    let parsed = fs::read(&path)
        .map_err(|error| error.to_string())
        .and_then(|text| {
            serde_json::from_slice::<NodeImage>(&text).map_err(|error| error.to_string())
        });
    parsed.map_err(|error| Problem {
        what: format!(
            "the stick has no usable operating system image: {}: {error}",
            path.display()
        ),
        next: "build the stick again with `firstlight build`".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_description_of_the_image_builder_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let text = r#"{"name": "node", "format": "raw.zst", "rawBytes": 2000, "bytes": 1000, "sha256": "ab"}"#;
        fs::write(dir.path().join("node.json"), text).unwrap();
        let image = load(dir.path()).unwrap();
        let info = image.instance_info("http://172.22.0.1");
        assert_eq!(info.image_source, "http://172.22.0.1/images/node.raw.zst");
        assert_eq!(
            (info.image_os_hash_value.as_str(), image.bytes),
            ("ab", 1000)
        );
        assert!(
            load(&dir.path().join("none"))
                .unwrap_err()
                .what
                .contains("node.json")
        );
    }
}
