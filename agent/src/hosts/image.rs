//! The operating system image of the stick that hosts get.

use std::{fs, path::Path};

use firstlight_api::{
    bmh::{ChecksumType, Image},
    node_image,
    order::RootDisk,
    status::Problem,
};
use firstlight_ironic::InstanceInfo;
use serde_json::{Value, json};

pub use firstlight_api::node_image::NodeImage;

/// Two descriptions of the same bytes.
pub fn same_digest(a: &Image, b: &Image) -> bool {
    !a.checksum.is_empty() && a.checksum.eq_ignore_ascii_case(&b.checksum)
}

/// The name of the digest's algorithm for Ironic, if type and length agree.
pub fn algorithm(image: &Image) -> Option<&'static str> {
    if !image.checksum.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let by_length = match image.checksum.len() {
        32 => "md5",
        64 => "sha256",
        128 => "sha512",
        _ => return None,
    };
    let fits = match image.checksum_type {
        None | Some(ChecksumType::Auto) => true,
        Some(ChecksumType::Md5) => by_length == "md5",
        Some(ChecksumType::Sha256) => by_length == "sha256",
        Some(ChecksumType::Sha512) => by_length == "sha512",
    };
    fits.then_some(by_length)
}

/// For Ironic, whose record names the disk that was chosen. The ramdisk hashes the bytes as served, and unpacks by the name's ending.
pub fn instance_info(image: &Image, root: Option<&RootDisk>) -> InstanceInfo {
    InstanceInfo {
        image_source: image.url.clone(),
        image_os_hash_algo: algorithm(image).unwrap_or("sha256").to_owned(),
        image_os_hash_value: image.checksum.clone(),
        image_disk_format: "raw".to_owned(),
        image_type: "whole-disk".to_owned(),
        root_device: root.map(root_device),
    }
}

/// Hints that mean this disk, by what stays the same over restarts. Other spellings than the usual could be cut or cleaned on their way.
fn root_device(root: &RootDisk) -> Value {
    let is_plain = |text: &&String| {
        let good = |byte: u8| byte.is_ascii_graphic() || byte == b' ';
        text.len() < 128 && text.bytes().all(good)
    };
    let serial = root.disk.serial.as_ref().filter(is_plain);
    let (key, value) = match (serial, &root.by_path) {
        (Some(serial), _) => ("serial", serial),
        (None, Some(by_path)) => ("by_path", by_path),
        (None, None) => ("name", &root.name),
    };
    json!({key: format!("s== {value}")})
}

/// Without an image nothing can be installed; the page says so at each host.
pub fn load(images: &Path) -> Result<NodeImage, Problem> {
    let path = images.join(node_image::FILE);
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
    use firstlight_api::order::DiskId;

    use super::*;

    #[test]
    fn the_description_of_the_image_builder_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let text = r#"{"name": "node", "format": "raw.zst", "rawBytes": 2000, "bytes": 1000, "sha256": "ab"}"#;
        fs::write(dir.path().join("node.json"), text).unwrap();
        let image = load(dir.path()).unwrap();
        let info = instance_info(&image.published("http://172.22.0.1"), None);
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

    #[test]
    fn ironics_record_names_the_disk_by_what_stays_the_same() {
        let root = |serial: Option<&str>, by_path: Option<&str>| RootDisk {
            disk: DiskId::new(serial, None, 8 << 30),
            name: "/dev/sda".into(),
            by_path: by_path.map(str::to_owned),
        };
        for (root, hints) in [
            (root(Some("Z1 2"), Some("p")), json!({"serial": "s== Z1 2"})),
            (root(Some("\u{7}"), Some("p")), json!({"by_path": "s== p"})),
            (root(None, Some("p")), json!({"by_path": "s== p"})),
            (root(None, None), json!({"name": "s== /dev/sda"})),
        ] {
            assert_eq!(root_device(&root), hints);
        }
    }
}
