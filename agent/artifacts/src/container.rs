//! Container archives: what of them goes to a registry, and under which digests.
//!
//! Two forms are read: an OCI image layout (`skopeo copy … oci-archive:`, `podman save --format oci-archive`, `docker save` since
//! version 25), and what `docker save` and `podman save` wrote before. Nothing is unpacked: a layer is a range of the file.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, Read, Seek, SeekFrom, Write},
};

use serde::Deserialize;
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::{Unfit, read_bounded};

const LARGEST_MANIFEST: u64 = 4 << 20;
/// Index, image; an index in an index is allowed, more is a loop.
const DEEPEST: usize = 3;
const MOST_FILES: usize = 100_000;

const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";
const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const DOCKER_LIST: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
const OCI_CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const OCI_LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
/// Annotation: the whole name, where the layout's own has the tag alone.
const CONTAINERD_NAME: &str = "io.containerd.image.name";

/// What a registry is given, in this order; the last manifest is the image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pushed {
    /// Layers and configurations, each once.
    pub blobs: Vec<Blob>,
    /// Each after those that it names.
    pub manifests: Vec<Manifest>,
    /// `NAME:TAG` as the archive itself says.
    pub names: Vec<String>,
}

/// A part of the archive, which is not copied into memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blob {
    /// `sha256:…`
    pub digest: String,
    /// Where it is in the archive.
    pub range: Range,
}

/// Of the archive's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// In bytes from the archive's beginning.
    pub offset: u64,
    /// In bytes.
    pub size: u64,
}

/// An image or an index, by the media type that a registry wants to be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// `sha256:…`, of `content`.
    pub digest: String,
    /// Of OCI or Docker.
    pub media_type: String,
    /// JSON, unchanged where the archive has it: its digest is the image's name.
    pub content: Vec<u8>,
}

/// The one image of a tar archive that is not compressed: an OCI layout, or what `docker save` writes.
pub fn read_container(file: &mut (impl Read + Seek)) -> Result<Pushed, Unfit> {
    let all = read_containers(file)?;
    let [one] = <[Pushed; 1]>::try_from(all).map_err(|all| {
        Unfit::new(format!(
            "it holds {} images; `firstlight push` sends each of them alone",
            all.len()
        ))
    })?;
    Ok(one)
}

/// The names of each image of such an archive, of which nothing else is read.
pub fn read_names(file: &mut (impl Read + Seek)) -> Result<Vec<Vec<String>>, Unfit> {
    let files = files_in(file)?;
    let mut archive = Archive { file, files };
    if archive.is_layout()? {
        let images = archive.roots()?.into_iter();
        Ok(images.map(|(_, names)| names).collect())
    } else {
        let saved: Vec<Saved> = archive.json("manifest.json")?;
        let names = saved.into_iter().map(|saved| saved.repo_tags);
        Ok(names.map(Option::unwrap_or_default).collect())
    }
}

/// All images of such an archive, each with its names.
pub fn read_containers(file: &mut (impl Read + Seek)) -> Result<Vec<Pushed>, Unfit> {
    let files = files_in(file)?;
    let mut archive = Archive { file, files };
    if archive.is_layout()? {
        archive.oci_layout()
    } else {
        archive.docker_save()
    }
}

/// Writes one image of `file` as an OCI layout of its own, under one of its names, the same bytes each time.
pub fn write_layout(
    file: &mut (impl Read + Seek),
    image: &Pushed,
    name: Option<&str>,
    out: impl Write,
) -> Result<(), Unfit> {
    let Some(root) = image.manifests.last() else {
        return Err(Unfit::new("it holds no image"));
    };
    let mut layout = tar::Builder::new(out);
    let annotations = name.map_or_else(|| json!({}), |name| json!({CONTAINERD_NAME: name}));
    let index = json!({
        "schemaVersion": 2, "mediaType": OCI_INDEX,
        "manifests": [{
            "mediaType": root.media_type, "digest": root.digest, "size": root.content.len(), "annotations": annotations,
        }],
    });
    let version = br#"{"imageLayoutVersion":"1.0.0"}"#;
    append(
        &mut layout,
        "oci-layout",
        version.len() as u64,
        &version[..],
    )?;
    let index = index.to_string();
    append(
        &mut layout,
        "index.json",
        index.len() as u64,
        index.as_bytes(),
    )?;
    for manifest in &image.manifests {
        let (path, content) = (blob_path(&manifest.digest)?, &manifest.content[..]);
        append(&mut layout, &path, content.len() as u64, content)?;
    }
    for blob in &image.blobs {
        file.seek(SeekFrom::Start(blob.range.offset))?;
        let content = file.by_ref().take(blob.range.size);
        append(
            &mut layout,
            &blob_path(&blob.digest)?,
            blob.range.size,
            content,
        )?;
    }
    layout.finish()?;
    Ok(())
}

fn append(
    layout: &mut tar::Builder<impl Write>,
    path: &str,
    size: u64,
    content: impl Read,
) -> io::Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_size(size);
    header.set_mode(0o644);
    layout.append_data(&mut header, path, content)
}

/// Regular files and hard or symbolic links to them, by name without a leading `./`.
fn files_in(file: &mut (impl Read + Seek)) -> Result<BTreeMap<String, Range>, Unfit> {
    file.seek(SeekFrom::Start(0))?;
    let mut archive = tar::Archive::new(&mut *file);
    let mut files = BTreeMap::new();
    let mut links = Vec::new();
    for entry in archive.entries_with_seek()? {
        let entry = entry?;
        let path = plain(&entry.path()?.to_string_lossy());
        if files.len() + links.len() >= MOST_FILES {
            return Err(Unfit::new("it holds more than 100000 files"));
        }
        match entry.header().entry_type() {
            tar::EntryType::Regular => {
                let range = Range {
                    offset: entry.raw_file_position(),
                    size: entry.size(),
                };
                files.insert(path, range);
            }
            tar::EntryType::Symlink | tar::EntryType::Link => {
                if let Some(target) = entry.link_name()? {
                    links.push((path, target.to_string_lossy().into_owned()));
                }
            }
            _ => {}
        }
    }
    for (path, target) in links {
        let beside = path
            .rsplit_once('/')
            .map_or(String::new(), |(folder, _)| format!("{folder}/"));
        let found = files
            .get(&resolve(&format!("{beside}{target}")))
            .or_else(|| files.get(&plain(&target)));
        if let Some(range) = found.copied() {
            files.insert(path, range);
        }
    }
    Ok(files)
}

fn plain(path: &str) -> String {
    path.trim_start_matches("./").to_owned()
}

/// Without `.` and `..`.
fn resolve(path: &str) -> String {
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Descriptor {
    #[serde(default)]
    media_type: String,
    digest: String,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
struct Index {
    manifests: Vec<Descriptor>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Image {
    #[serde(default)]
    media_type: String,
    config: Descriptor,
    layers: Vec<Descriptor>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Saved {
    config: String,
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

struct Archive<'a, F> {
    file: &'a mut F,
    files: BTreeMap<String, Range>,
}

impl<F: Read + Seek> Archive<'_, F> {
    fn range(&self, name: &str) -> Result<Range, Unfit> {
        let found = self.files.get(&plain(name)).copied();
        found.ok_or_else(|| {
            Unfit::new(format!(
                "it lacks its own file {name}; save the image again"
            ))
        })
    }

    fn read(&mut self, name: &str) -> Result<Vec<u8>, Unfit> {
        let range = self.range(name)?;
        self.file.seek(SeekFrom::Start(range.offset))?;
        read_bounded(self.file.by_ref().take(range.size), LARGEST_MANIFEST, name)
    }

    fn json<T: serde::de::DeserializeOwned>(&mut self, name: &str) -> Result<T, Unfit> {
        let content = self.read(name)?;
        serde_json::from_slice(&content)
            .map_err(|error| Unfit::new(format!("its {name} cannot be read: {error}")))
    }

    /// Or else what `docker save` wrote before it wrote layouts.
    fn is_layout(&self) -> Result<bool, Unfit> {
        if self.files.contains_key("index.json") {
            Ok(true)
        } else if self.files.contains_key("manifest.json") {
            Ok(false)
        } else {
            Err(Unfit::new(
                "it is no container archive: it has neither index.json (OCI layout) nor manifest.json (docker save)",
            ))
        }
    }

    /// What a layout's index names, each once with all its names.
    fn roots(&mut self) -> Result<Vec<(Descriptor, Vec<String>)>, Unfit> {
        let index: Index = self.json("index.json")?;
        let mut roots: Vec<(Descriptor, Vec<String>)> = Vec::new();
        for found in index.manifests {
            let name = [CONTAINERD_NAME, "org.opencontainers.image.ref.name"]
                .into_iter()
                .find_map(|key| found.annotations.get(key))
                .cloned();
            match roots
                .iter_mut()
                .find(|(root, _)| root.digest == found.digest)
            {
                Some((_, names)) => names.extend(name),
                None => roots.push((found, name.into_iter().collect())),
            }
        }
        Ok(roots)
    }

    fn oci_layout(&mut self) -> Result<Vec<Pushed>, Unfit> {
        let mut images = Vec::new();
        for (root, names) in self.roots()? {
            let mut pushed = Pushed {
                names,
                ..Pushed::default()
            };
            self.add(&root, 0, &mut BTreeSet::new(), &mut pushed)?;
            images.push(pushed);
        }
        Ok(images)
    }

    /// Children before the one that names them.
    fn add(
        &mut self,
        what: &Descriptor,
        depth: usize,
        seen: &mut BTreeSet<String>,
        pushed: &mut Pushed,
    ) -> Result<(), Unfit> {
        if depth > DEEPEST {
            return Err(Unfit::new("its indexes go too deep"));
        }
        if !seen.insert(what.digest.clone()) {
            return Ok(());
        }
        let content = self.read(&blob_path(&what.digest)?)?;
        if digest_of(&content) != what.digest {
            return Err(Unfit::new(format!(
                "its manifest {} is damaged; save the image again",
                what.digest
            )));
        }
        let damaged = |error| {
            Unfit::new(format!(
                "its manifest {} cannot be read: {error}",
                what.digest
            ))
        };
        let media_type = if let Ok(index) = serde_json::from_slice::<Index>(&content) {
            for child in &index.manifests {
                self.add(child, depth + 1, seen, pushed)?;
            }
            if what.media_type == DOCKER_LIST {
                DOCKER_LIST
            } else {
                OCI_INDEX
            }
            .to_owned()
        } else {
            let image: Image = serde_json::from_slice(&content).map_err(damaged)?;
            for blob in std::iter::once(&image.config).chain(&image.layers) {
                if seen.insert(blob.digest.clone()) {
                    let range = self.range(&blob_path(&blob.digest)?)?;
                    pushed.blobs.push(Blob {
                        digest: blob.digest.clone(),
                        range,
                    });
                }
            }
            [image.media_type, what.media_type.clone()]
                .into_iter()
                .find(|media_type| !media_type.is_empty())
                .unwrap_or_else(|| OCI_MANIFEST.to_owned())
        };
        pushed.manifests.push(Manifest {
            digest: what.digest.clone(),
            media_type,
            content,
        });
        Ok(())
    }

    /// The old form has no manifest of a registry's kind: it is made here, from what is in the archive as it is.
    fn docker_save(&mut self) -> Result<Vec<Pushed>, Unfit> {
        let saved: Vec<Saved> = self.json("manifest.json")?;
        saved.into_iter().map(|saved| self.saved(saved)).collect()
    }

    fn saved(&mut self, saved: Saved) -> Result<Pushed, Unfit> {
        let mut pushed = Pushed {
            names: saved.repo_tags.unwrap_or_default(),
            ..Pushed::default()
        };
        let mut describe = |archive: &mut Self, name: &str, media_type: &str| {
            let range = archive.range(name)?;
            let digest = archive.hash(range)?;
            let described = json!({"mediaType": media_type, "digest": digest, "size": range.size});
            if pushed.blobs.iter().all(|blob| blob.digest != digest) {
                pushed.blobs.push(Blob { digest, range });
            }
            Ok::<_, Unfit>(described)
        };
        let config = describe(self, &saved.config, OCI_CONFIG)?;
        let layers = saved
            .layers
            .iter()
            .map(|layer| describe(self, layer, OCI_LAYER))
            .collect::<Result<Vec<_>, _>>()?;
        let manifest = json!({"schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": config, "layers": layers});
        let content = manifest.to_string().into_bytes();
        pushed.manifests.push(Manifest {
            digest: digest_of(&content),
            media_type: OCI_MANIFEST.to_owned(),
            content,
        });
        Ok(pushed)
    }

    fn hash(&mut self, range: Range) -> Result<String, Unfit> {
        self.file.seek(SeekFrom::Start(range.offset))?;
        let mut digest = Sha256::new();
        let mut piece = vec![0; 1 << 20];
        let mut left = self.file.by_ref().take(range.size);
        loop {
            match left.read(&mut piece)? {
                0 => break,
                count => digest.update(&piece[..count]),
            }
        }
        if left.limit() > 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        Ok(spell(&digest.finalize()))
    }
}

/// Where an OCI layout keeps a blob; other digests than SHA-256 are nowhere in use.
fn blob_path(digest: &str) -> Result<String, Unfit> {
    let hex = digest.strip_prefix("sha256:").unwrap_or_default();
    if hex.len() != 64 || !hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(Unfit::new(format!("`{digest}` is no SHA-256 digest")));
    }
    Ok(format!("blobs/sha256/{hex}"))
}

/// `sha256:…` of these bytes.
pub fn digest_of(bytes: &[u8]) -> String {
    spell(&Sha256::digest(bytes))
}

fn spell(digest: &[u8]) -> String {
    format!("sha256:{}", crate::hex(digest))
}

#[cfg(test)]
mod tests;
