//! Images by name: `spec.image.url` without a scheme is `NAME` or `NAME:VERSION` of a disk on the box, and needs no digest.

use firstlight_api::{
    bmh::{ChecksumType, Image},
    status::Problem,
};

use super::Source;
use crate::hosts::image::same_digest;

/// The image with its address; an address stays as it is.
pub fn resolve(source: &Source, image: &Image) -> Result<Image, Problem> {
    if image.url.contains("://") {
        return Ok(image.clone());
    }
    if let Some(node) = source.image.filter(|node| node.name == image.url) {
        return agreeing(image, node.published(source.box_http));
    }
    let meant: Vec<_> = source
        .uploads
        .iter()
        .filter(|upload| upload.is_meant_by(&image.url))
        .collect();
    let [upload] = meant.as_slice() else {
        return Err(not_one(source, &image.url, meant.len()));
    };
    let found = Image {
        url: format!("{}{}", source.box_http, upload.path),
        checksum: upload.sha256.clone(),
        checksum_type: Some(ChecksumType::Sha256),
        format: Some("raw".to_owned()),
        oci_auth_secret_name: None,
    };
    agreeing(image, found)
}

/// A digest that somebody wrote beside the name is that of the uploaded file or of the served one, or a mistake.
fn agreeing(asked: &Image, found: Image) -> Result<Image, Problem> {
    if asked.checksum.is_empty() || same_digest(asked, &found) {
        return Ok(found);
    }
    Err(Problem {
        what: format!(
            "the image `{}` on the box is served with the SHA-256 {}, and `spec.image.checksum` is {}",
            asked.url, found.checksum, asked.checksum
        ),
        next: "leave `spec.image.checksum` empty: an image that is named is checked anyway"
            .to_owned(),
    })
}

fn not_one(source: &Source, name: &str, count: usize) -> Problem {
    let known = source.uploads.iter();
    let mut known: Vec<String> = known
        .map(|upload| format!("{}:{}", upload.name, upload.version))
        .collect();
    known.extend(source.image.map(|node| node.name.clone()));
    let known = known.join(", ");
    if count > 1 {
        return Problem {
            what: format!("several images on the box are called `{name}`"),
            next: format!("set `spec.image.url` to one of {known}"),
        };
    }
    Problem {
        what: format!("there is no image `{name}` on the box"),
        next: format!(
            "put it there with `firstlight push`, or set `spec.image.url` to one of {known}, or to an address"
        ),
    }
}
