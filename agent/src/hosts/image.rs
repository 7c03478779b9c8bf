//! The operating system image of the stick that hosts get.

use std::{fs, path::Path};

use firstlight_api::{
    bmh::{ChecksumType, Image, RootDeviceHints},
    node_image,
    status::Problem,
};
use firstlight_ironic::InstanceInfo;
use serde_json::{Map, Value, json};

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

/// For Ironic. The ramdisk hashes the bytes as served, and unpacks by the name's ending.
pub fn instance_info(image: &Image, hints: Option<&RootDeviceHints>) -> InstanceInfo {
    InstanceInfo {
        image_source: image.url.clone(),
        image_os_hash_algo: algorithm(image).unwrap_or("sha256").to_owned(),
        image_os_hash_value: image.checksum.clone(),
        image_disk_format: "raw".to_owned(),
        image_type: "whole-disk".to_owned(),
        root_device: hints.and_then(root_device),
    }
}

/// Hints in Ironic's words, where a value begins with its operator.
fn root_device(hints: &RootDeviceHints) -> Option<Value> {
    let by_path = hints.device_name.starts_with("/dev/disk/by-path/");
    let name = if by_path { "by_path" } else { "name" };
    let texts = [
        (name, "s==", &hints.device_name),
        ("hctl", "s==", &hints.hctl),
        ("model", "<in>", &hints.model),
        ("vendor", "<in>", &hints.vendor),
        ("serial", "s==", &hints.serial_number),
        ("wwn", "s==", &hints.wwn),
        ("wwn_with_extension", "s==", &hints.wwn_with_extension),
        ("wwn_vendor_extension", "s==", &hints.wwn_vendor_extension),
    ];
    let mut all: Map<String, Value> = texts
        .into_iter()
        .filter(|(_, _, value)| !value.is_empty())
        .map(|(key, operator, value)| (key.to_owned(), json!(format!("{operator} {value}"))))
        .collect();
    if let Some(size) = hints.min_size_gigabytes {
        all.insert("size".to_owned(), json!(format!(">= {size}")));
    }
    if let Some(rotational) = hints.rotational {
        all.insert("rotational".to_owned(), json!(rotational.to_string()));
    }
    (!all.is_empty()).then_some(Value::Object(all))
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
        let hints = RootDeviceHints {
            device_name: "/dev/vda".into(),
            model: "QEMU".into(),
            min_size_gigabytes: Some(8),
            rotational: Some(false),
            ..RootDeviceHints::default()
        };
        let info = instance_info(&image.published("http://172.22.0.1"), Some(&hints));
        assert_eq!(
            info.root_device.unwrap(),
            json!({"name": "s== /dev/vda", "model": "<in> QEMU", "size": ">= 8", "rotational": "false"})
        );
        let hints = RootDeviceHints {
            device_name: "/dev/disk/by-path/pci-0000:00:1f.2-ata-3".into(),
            ..RootDeviceHints::default()
        };
        assert_eq!(
            root_device(&hints).unwrap(),
            json!({"by_path": "s== /dev/disk/by-path/pci-0000:00:1f.2-ata-3"})
        );
        assert!(
            load(&dir.path().join("none"))
                .unwrap_err()
                .what
                .contains("node.json")
        );
    }
}
