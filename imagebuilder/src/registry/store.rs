//! The tree that CNCF distribution keeps its content in (its `registry/storage/paths.go`): blobs by digest, and in each
//! repository files called `link` that hold the digest of what the repository has.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::layer::{Entry, Layer, MEDIA_TYPE, digest, write_layer};

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";

/// An image: layers by the names they were added under, lowest first.
#[derive(Clone, Debug, PartialEq)]
pub struct Image {
    /// Without the registry's name: `kubernetes/kube-proxy`.
    pub repository: String,
    pub tag: String,
    pub layers: Vec<String>,
    /// `config` of an OCI image configuration.
    pub config: Value,
}

/// The registry's storage below `root`, as it is filled.
#[derive(Debug)]
pub struct RegistryTree {
    root: PathBuf,
    /// Seconds since 1970, and the same as text: what everything is dated.
    time: u64,
    created: String,
    layers: BTreeMap<String, Layer>,
}

impl RegistryTree {
    pub fn create(root: &Path, time: u64) -> Result<Self> {
        let created = i64::try_from(time)
            .ok()
            .and_then(|seconds| time::OffsetDateTime::from_unix_timestamp(seconds).ok())
            .and_then(|date| {
                date.format(&time::format_description::well_known::Rfc3339)
                    .ok()
            })
            .context("the build's time is no date")?;
        let root = root.join("docker/registry/v2");
        for folder in ["blobs/sha256", "repositories"] {
            fs::create_dir_all(root.join(folder))
                .with_context(|| format!("making the registry's {folder}"))?;
        }
        Ok(Self {
            root,
            time,
            created,
            layers: BTreeMap::new(),
        })
    }

    /// Adds a layer that images then name.
    pub fn add_layer(&mut self, name: &str, entries: &[Entry]) -> Result<()> {
        let temporary = self.root.join("layer");
        let layer = write_layer(entries, self.time, &temporary)
            .with_context(|| format!("making the layer {name}"))?;
        let blob = self.blob(&layer.digest);
        fs::create_dir_all(blob.parent().context("a blob has a folder")?)?;
        fs::rename(&temporary, &blob).with_context(|| format!("placing the layer {name}"))?;
        self.layers.insert(name.to_owned(), layer);
        Ok(())
    }

    /// Adds an image and returns the digest of its manifest.
    pub fn add_image(&self, image: &Image) -> Result<String> {
        let layer = |name: &String| {
            let layer = self.layers.get(name);
            layer.with_context(|| {
                format!(
                    "{} wants the layer {name}, which is not there",
                    image.repository
                )
            })
        };
        let layers: Vec<&Layer> = image.layers.iter().map(layer).collect::<Result<_>>()?;
        let diff_ids: Vec<String> = layers.iter().map(|layer| named(&layer.diff_id)).collect();
        let config = self.write_blob(&json!({
            "architecture": "amd64",
            "os": "linux",
            "created": self.created,
            "config": image.config,
            "rootfs": {"type": "layers", "diff_ids": diff_ids},
        }))?;
        let described: Vec<Value> = layers
            .iter()
            .map(|layer| json!({"mediaType": MEDIA_TYPE, "digest": named(&layer.digest), "size": layer.bytes}))
            .collect();
        let manifest = self.write_blob(&json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": {"mediaType": CONFIG, "digest": named(&config.0), "size": config.1},
            "layers": described,
        }))?;
        let links = plan_links(image, &manifest.0, &config.0, &layers);
        for (path, digest) in links {
            let path = self
                .root
                .join("repositories")
                .join(&image.repository)
                .join(path);
            fs::create_dir_all(path.parent().context("a link has a folder")?)?;
            fs::write(&path, named(&digest))
                .with_context(|| format!("writing {}", path.display()))?;
        }
        Ok(manifest.0)
    }

    /// Writes images that were added, by reference and digest, as an archive for whoever has another registry (an OCI image layout).
    pub fn write_archive(&self, images: &[(String, String)], archive: &Path) -> Result<()> {
        let mut blobs = BTreeSet::new();
        let mut index = Vec::new();
        for (reference, digest) in images {
            let path = self.blob(digest);
            let text = fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
            let manifest: Value = serde_json::from_slice(&text).context("a manifest")?;
            let layers = manifest["layers"].as_array().into_iter().flatten();
            let parts = layers.chain([&manifest["config"]]);
            blobs.extend(parts.filter_map(|part| Some(part["digest"].as_str()?[7..].to_owned())));
            blobs.insert(digest.clone());
            index.push(json!({
                "mediaType": MANIFEST, "digest": named(digest), "size": text.len(),
                "annotations": {"org.opencontainers.image.ref.name": reference},
            }));
        }
        let file =
            fs::File::create(archive).with_context(|| format!("creating {}", archive.display()))?;
        let mut tar = tar::Builder::new(file);
        let mut header = tar::Header::new_ustar();
        header.set_mode(0o644);
        header.set_mtime(self.time);
        let index = json!({"schemaVersion": 2, "manifests": index}).to_string();
        let layout = r#"{"imageLayoutVersion":"1.0.0"}"#.to_owned();
        for (name, text) in [("oci-layout", layout), ("index.json", index)] {
            header.set_size(text.len() as u64);
            tar.append_data(&mut header, name, text.as_bytes())?;
        }
        for digest in blobs {
            let path = self.blob(&digest);
            let blob =
                fs::File::open(&path).with_context(|| format!("opening {}", path.display()))?;
            header.set_size(blob.metadata()?.len());
            tar.append_data(&mut header, format!("blobs/sha256/{digest}"), blob)?;
        }
        tar.into_inner()?.sync_all()?;
        Ok(())
    }

    fn write_blob(&self, value: &Value) -> Result<(String, usize)> {
        let text = value.to_string();
        let digest = digest(text.as_bytes());
        let path = self.blob(&digest);
        fs::create_dir_all(path.parent().context("a blob has a folder")?)?;
        fs::write(&path, &text).with_context(|| format!("writing {}", path.display()))?;
        Ok((digest, text.len()))
    }

    fn blob(&self, digest: &str) -> PathBuf {
        self.root
            .join("blobs/sha256")
            .join(&digest[..2])
            .join(digest)
            .join("data")
    }
}

fn named(digest: &str) -> String {
    format!("sha256:{digest}")
}

/// Files of an image in its repository, each with the digest it holds.
fn plan_links(
    image: &Image,
    manifest: &str,
    config: &str,
    layers: &[&Layer],
) -> Vec<(String, String)> {
    let tag = format!("_manifests/tags/{}", image.tag);
    let mut links = vec![
        (
            format!("_manifests/revisions/sha256/{manifest}/link"),
            manifest,
        ),
        (format!("{tag}/current/link"), manifest),
        (format!("{tag}/index/sha256/{manifest}/link"), manifest),
        (format!("_layers/sha256/{config}/link"), config),
    ];
    links.extend(layers.iter().map(|layer| {
        let digest = layer.digest.as_str();
        (format!("_layers/sha256/{digest}/link"), digest)
    }));
    links
        .into_iter()
        .map(|(path, digest)| (path, digest.to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn read(path: &Path) -> Vec<u8> {
        fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    #[test]
    fn a_tag_leads_to_the_layers_by_links_and_true_digests() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = RegistryTree::create(dir.path(), 1_793_491_200).unwrap();
        let folder = |to: &str| Entry::Folder {
            to: to.into(),
            mode: 0o755,
        };
        store.add_layer("programs", &[folder("bin")]).unwrap();
        store.add_layer("tools", &[folder("sbin")]).unwrap();
        let image = Image {
            repository: "kubernetes/kube-proxy".to_owned(),
            tag: "v1.36.3".to_owned(),
            layers: vec!["programs".into(), "tools".into()],
            config: json!({"Env": ["PATH=/bin"]}),
        };
        let manifest = store.add_image(&image).unwrap();
        let root = dir.path().join("docker/registry/v2");
        let repository = root.join("repositories/kubernetes/kube-proxy");
        let current = read(&repository.join("_manifests/tags/v1.36.3/current/link"));
        assert_eq!(current, named(&manifest).as_bytes());
        let blob = |name: &str| {
            let digest = name.strip_prefix("sha256:").unwrap();
            let bytes = read(
                &root
                    .join("blobs/sha256")
                    .join(&digest[..2])
                    .join(digest)
                    .join("data"),
            );
            assert_eq!(super::digest(&bytes), digest);
            bytes
        };
        // Whatever no image names would be garbage on the box, and hidden there for every later stick.
        let folders = |path: &Path| -> Vec<PathBuf> {
            let entries = fs::read_dir(path).unwrap();
            entries.map(|entry| entry.unwrap().path()).collect()
        };
        let blobs = folders(&root.join("blobs/sha256"));
        assert_eq!(blobs.iter().flat_map(|folder| folders(folder)).count(), 4);
        let archive = dir.path().join("archive.tar");
        let reference = "registry.example/kubernetes/kube-proxy:v1.36.3".to_owned();
        let images = [(reference.clone(), manifest.clone())];
        store.write_archive(&images, &archive).unwrap();
        let mut archive = fs::File::open(archive).unwrap();
        let found = firstlight_artifacts::container::read_containers(&mut archive).unwrap();
        assert_eq!((found.len(), &found[0].names[..]), (1, &[reference][..]));
        let manifest: Value = serde_json::from_slice(&blob(&named(&manifest))).unwrap();
        let config: Value =
            serde_json::from_slice(&blob(manifest["config"]["digest"].as_str().unwrap())).unwrap();
        assert_eq!(config["created"], "2026-11-01T00:00:00Z");
        assert_eq!(config["config"]["Env"][0], "PATH=/bin");
        let layers = manifest["layers"].as_array().unwrap();
        assert_eq!(
            (
                layers.len(),
                config["rootfs"]["diff_ids"].as_array().unwrap().len()
            ),
            (2, 2)
        );
        for layer in layers {
            let digest = layer["digest"].as_str().unwrap();
            assert_eq!(blob(digest).len() as u64, layer["size"].as_u64().unwrap());
            let link = format!("_layers/sha256/{}/link", &digest[7..]);
            assert_eq!(read(&repository.join(link)), digest.as_bytes());
        }
        assert!(!root.join("layer").exists());
    }

    #[test]
    fn an_image_with_an_unknown_layer_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let store = RegistryTree::create(dir.path(), 0).unwrap();
        let image = Image {
            repository: "kubernetes/pause".to_owned(),
            tag: "1".to_owned(),
            layers: vec!["nothing".into()],
            config: json!({}),
        };
        let problem = store.add_image(&image).unwrap_err().to_string();
        assert!(problem.contains("nothing"), "{problem}");
    }
}
