#![allow(clippy::unwrap_used)]
use std::io::Cursor;

use super::*;

fn tar(files: &[(&str, &[u8])], links: &[(&str, &str)]) -> Cursor<Vec<u8>> {
    let mut tar = tar::Builder::new(Vec::new());
    for (path, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        tar.append_data(&mut header, path, *content).unwrap();
    }
    for (path, target) in links {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Symlink);
        header.set_size(0);
        tar.append_link(&mut header, path, target).unwrap();
    }
    Cursor::new(tar.into_inner().unwrap())
}

fn blob(content: &[u8]) -> (String, String) {
    let digest = digest_of(content);
    (blob_path(&digest).unwrap(), digest)
}

/// An image of one layer, and the archive's files with it.
fn layout(children: usize) -> (Vec<(String, Vec<u8>)>, Vec<String>) {
    let mut files = Vec::new();
    let mut add = |content: Vec<u8>| {
        let (path, digest) = blob(&content);
        files.push((path, content));
        digest
    };
    let layer = add(b"layer".to_vec());
    let mut images = Vec::new();
    for child in 0..children {
        let config = add(format!("config {child}").into_bytes());
        let manifest = json!({
            "schemaVersion": 2, "mediaType": OCI_MANIFEST,
            "config": {"mediaType": OCI_CONFIG, "digest": config, "size": 8},
            "layers": [{"mediaType": OCI_LAYER, "digest": layer, "size": 5}],
        });
        images.push(add(manifest.to_string().into_bytes()));
    }
    (files, images)
}

fn archive(files: &[(String, Vec<u8>)], root: &str, media_type: &str) -> Cursor<Vec<u8>> {
    let index = json!({"schemaVersion": 2, "manifests": [{
        "mediaType": media_type, "digest": root, "size": 1,
        "annotations": {"org.opencontainers.image.ref.name": "web:1"},
    }]})
    .to_string();
    with_index(files, &index)
}

fn with_index(files: &[(String, Vec<u8>)], index: &str) -> Cursor<Vec<u8>> {
    let mut all: Vec<(&str, &[u8])> = files
        .iter()
        .map(|(path, content)| (path.as_str(), content.as_slice()))
        .collect();
    all.push(("index.json", index.as_bytes()));
    tar(&all, &[])
}

fn slice(file: &Cursor<Vec<u8>>, range: Range) -> &[u8] {
    let from = usize::try_from(range.offset).unwrap();
    &file.get_ref()[from..from + usize::try_from(range.size).unwrap()]
}

#[test]
fn an_oci_layout_gives_blobs_then_the_manifest() {
    let (files, images) = layout(1);
    let mut file = archive(&files, &images[0], OCI_MANIFEST);
    let pushed = read_container(&mut file).unwrap();
    assert_eq!(pushed.names, ["web:1"]);
    assert_eq!(pushed.blobs.len(), 2);
    for blob in &pushed.blobs {
        assert_eq!(digest_of(slice(&file, blob.range)), blob.digest);
    }
    let manifests: Vec<_> = pushed
        .manifests
        .iter()
        .map(|one| (&one.digest, one.media_type.as_str()))
        .collect();
    assert_eq!(manifests, [(&images[0], OCI_MANIFEST)]);
}

#[test]
fn an_index_comes_after_its_images_and_shared_layers_once() {
    let (mut files, images) = layout(2);
    let children: Vec<_> = images
        .iter()
        .map(|digest| json!({"mediaType": OCI_MANIFEST, "digest": digest, "size": 1}))
        .collect();
    let index =
        json!({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": children}).to_string();
    let (path, root) = blob(index.as_bytes());
    files.push((path, index.into_bytes()));
    let pushed = read_container(&mut archive(&files, &root, OCI_INDEX)).unwrap();
    let order: Vec<_> = pushed
        .manifests
        .iter()
        .map(|one| one.digest.as_str())
        .collect();
    assert_eq!(order, [&images[0], &images[1], &root]);
    assert_eq!(pushed.manifests[2].media_type, OCI_INDEX);
    assert_eq!(pushed.blobs.len(), 3);
}

#[test]
fn what_docker_saved_before_gets_a_manifest() {
    let config = br#"{"architecture":"amd64"}"#;
    let manifest = json!([{"Config": "c.json", "RepoTags": ["web:1"], "Layers": ["a/layer.tar", "b/layer.tar"]}]).to_string();
    let mut file = tar(
        &[
            ("c.json", config),
            ("a/layer.tar", b"layer"),
            ("manifest.json", manifest.as_bytes()),
        ],
        &[("b/layer.tar", "../a/layer.tar")],
    );
    let pushed = read_container(&mut file).unwrap();
    assert_eq!(pushed.names, ["web:1"]);
    assert_eq!(pushed.blobs.len(), 2, "the same layer twice is one blob");
    let made: serde_json::Value = serde_json::from_slice(&pushed.manifests[0].content).unwrap();
    assert_eq!(made["config"]["digest"], digest_of(config));
    assert_eq!(made["layers"][1]["digest"], digest_of(b"layer"));
    assert_eq!(made["layers"].as_array().unwrap().len(), 2);
}

#[test]
fn what_cannot_be_pushed_whole_is_refused_with_the_reason() {
    let (files, images) = layout(1);
    let mut damaged = files.clone();
    damaged.last_mut().unwrap().1.push(b' ');
    let lacking: Vec<_> = files[1..].to_vec();
    for (mut file, why) in [
        (tar(&[("hello", b"world")], &[]), "neither index.json"),
        (tar(&[("index.json", b"{}")], &[]), "cannot be read"),
        (
            tar(&[("index.json", br#"{"manifests":[]}"#)], &[]),
            "holds 0 images",
        ),
        (tar(&[("manifest.json", b"[]")], &[]), "holds 0 images"),
        (archive(&damaged, &images[0], OCI_MANIFEST), "damaged"),
        (
            archive(&lacking, &images[0], OCI_MANIFEST),
            "lacks its own file",
        ),
        (
            archive(&files, "sha256:../../etc/passwd", OCI_MANIFEST),
            "no SHA-256 digest",
        ),
    ] {
        let error = read_container(&mut file).unwrap_err().to_string();
        assert!(error.contains(why), "{why}: {error}");
    }
}

#[test]
fn each_image_of_an_archive_becomes_a_layout_of_its_own_the_same_each_time() {
    let (files, images) = layout(2);
    let entry = |digest: &String, name: &str| json!({"mediaType": OCI_MANIFEST, "digest": digest, "size": 1, "annotations": {CONTAINERD_NAME: name}});
    let index = json!({"schemaVersion": 2, "manifests": [
        entry(&images[0], "docker.io/library/web:1"), entry(&images[1], "team/db:2"), entry(&images[0], "docker.io/library/web:latest"),
    ]})
    .to_string();
    let config = br#"{"architecture":"amd64"}"#;
    let manifest = json!([
        {"Config": "c.json", "RepoTags": ["docker.io/library/web:1", "docker.io/library/web:latest"], "Layers": ["l"]},
        {"Config": "c.json", "RepoTags": ["team/db:2"], "Layers": []},
    ])
    .to_string();
    let saved: [(&str, &[u8]); 3] = [
        ("c.json", config),
        ("l", b"layer"),
        ("manifest.json", manifest.as_bytes()),
    ];
    for mut file in [with_index(&files, &index), tar(&saved, &[])] {
        let error = read_container(&mut file).unwrap_err().to_string();
        assert!(error.contains("it holds 2 images"), "{error}");
        let found = read_containers(&mut file).unwrap();
        let names: Vec<_> = found.iter().map(|image| image.names.clone()).collect();
        assert_eq!(read_names(&mut file).unwrap(), names);
        assert_eq!(
            names,
            [
                vec!["docker.io/library/web:1", "docker.io/library/web:latest"],
                vec!["team/db:2"]
            ]
        );
        for image in &found {
            let name = image.names.last().map(String::as_str);
            let mut alone = || {
                let mut out = Vec::new();
                write_layout(&mut file, image, name, &mut out).unwrap();
                out
            };
            let first = alone();
            assert_eq!(first, alone());
            let read = read_container(&mut Cursor::new(first)).unwrap();
            assert_eq!(read.names.last().map(String::as_str), name);
            assert_eq!(read.manifests, image.manifests);
            let digests = |image: &Pushed| -> Vec<String> {
                image.blobs.iter().map(|blob| blob.digest.clone()).collect()
            };
            assert_eq!(digests(&read), digests(image));
        }
    }
}

proptest::proptest! {
    #[test]
    fn no_input_breaks_it(bytes: Vec<u8>, at in 0..6000_usize) {
        let (files, images) = layout(1);
        let mut file = archive(&files, &images[0], OCI_MANIFEST).into_inner();
        let end = (at + bytes.len()).min(file.len());
        file.splice(at.min(end)..end, bytes);
        let _ = read_names(&mut Cursor::new(&file));
        let _ = read_container(&mut Cursor::new(file));
    }
}
