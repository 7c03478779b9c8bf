//! From a whole artifact to the place where it is used: containers and charts in the registry, packages in the apt repository,
//! disks beside the stick's own.
//!
//! To add a kind: a branch in [`publish`].

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use firstlight_api::{
    artifact::{ArtifactSpec, Kind},
    names::REGISTRY,
};
use firstlight_artifacts::{
    Format,
    chart::read_chart,
    container::{self, Manifest, Range, digest_of, read_container},
    deb::read_control,
    hex,
    qcow2::Disk,
    recognise,
};
use serde_json::json;
use sha2::{Digest, Sha256};

use super::{
    apt::Repository,
    identity::{OCI, SERVED, image_file, reference, tag},
    publish_error::PublishError,
    pushed::{Notes, Tagged},
    registry::{Blob, Push, Registry},
    room::Room,
    shelf::Published,
};

const HELM_CONFIG: &str = "application/vnd.cncf.helm.config.v1+json";
const HELM_CHART: &str = "application/vnd.cncf.helm.chart.content.v1.tar+gzip";
const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
/// Written before somebody looks again how much room is left.
const LOOK_AGAIN: u64 = 64 << 20;

/// Where it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publication {
    pub published: Published,
    /// The uploaded file is still needed: what is used was not copied from it.
    pub keep: bool,
}

/// Where artifacts are brought to.
#[derive(Clone, Debug)]
pub struct Destinations {
    pub registry: Registry,
    pub apt: Repository,
    pub images: PathBuf,
    pub pushed: Notes,
    pub room: Room,
}

impl Destinations {
    /// Under a name that is nobody else's.
    async fn push(&self, push: &Push) -> Result<(), PublishError> {
        let ours = push.tagged();
        let known = self.pushed.load().await?;
        if !known.iter().any(|note| note.name() == ours.name()) {
            match self.registry.tagged(&push.repository, &push.tag).await? {
                // Whoever brought it keeps it when this one is deleted.
                there @ Some(_) if there.as_ref() == ours.digest() => return Ok(()),
                Some(_) => {
                    return Err(PublishError::Never {
                        reason: format!(
                            "the registry has another {}, from the stick or pushed there directly",
                            ours.name()
                        ),
                        next: "delete the artifact, and push it with another `--version`"
                            .to_owned(),
                    });
                }
                None => {}
            }
        }
        self.pushed.add(ours).await?;
        self.registry.push(push, &self.room).await
    }

    /// What was pushed and belongs to no artifact any more goes.
    pub async fn sweep_registry(&self, references: &BTreeSet<String>) -> Result<(), PublishError> {
        let is_used = |note: &Tagged| {
            let address = format!("{REGISTRY}/{}", note.name());
            references
                .iter()
                .any(|reference| reference.trim_start_matches(OCI) == address)
        };
        let notes = self.pushed.load().await?;
        for note in notes.into_iter().filter(|note| !is_used(note)) {
            self.registry.remove(&note).await?;
            self.pushed.forget(note).await?;
        }
        Ok(())
    }

    /// What is served and belongs to no artifact any more goes.
    pub async fn sweep_images(&self, references: BTreeSet<String>) -> Result<(), PublishError> {
        let images = self.images.clone();
        let swept = tokio::task::spawn_blocking(move || sweep(&images, &references)).await;
        let waits =
            |error| PublishError::later(format!("removing disks that were deleted: {error}"));
        swept.map_err(PublishError::stopping)?.map_err(waits)
    }
}

fn sweep(images: &Path, references: &BTreeSet<String>) -> io::Result<()> {
    let files = match fs::read_dir(images) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        files => files?,
    };
    // With those that are being made.
    let names = references.iter().filter_map(|one| one.strip_prefix(SERVED));
    let kept: BTreeSet<PathBuf> = names
        .map(|name| images.join(name))
        .flat_map(|path| [aside(&path), path])
        .collect();
    for file in files {
        let path = file?.path();
        if !kept.contains(&path) {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}

pub async fn publish(
    destinations: &Destinations,
    spec: &ArtifactSpec,
    content: &Path,
) -> Result<Publication, PublishError> {
    let (owned, path) = (spec.clone(), content.to_owned());
    let planned = tokio::task::spawn_blocking(move || plan(&owned, &path)).await;
    let publication = |checksum, keep| Publication {
        published: Published {
            reference: reference(spec),
            checksum,
        },
        keep,
    };
    match planned.map_err(PublishError::stopping)?? {
        Plan::Push(push) => {
            destinations.push(&push).await?;
            Ok(publication(String::new(), false))
        }
        // The repository is made over all of them at once.
        Plan::Index => Ok(publication(String::new(), true)),
        Plan::Serve(form) => {
            let served = destinations.images.join(image_file(spec));
            let (source, room) = (content.to_owned(), destinations.room.clone());
            let made =
                tokio::task::spawn_blocking(move || serve_image(&source, &served, form, &room));
            let made = made.await.map_err(PublishError::stopping)??;
            let checksum = made.unwrap_or_else(|| spec.sha256.clone());
            Ok(publication(checksum, form == Form::Ready))
        }
    }
}

enum Plan {
    Push(Push),
    Index,
    Serve(Form),
}

fn plan(spec: &ArtifactSpec, content: &Path) -> Result<Plan, PublishError> {
    match spec.kind {
        Kind::Container => plan_container(spec, content).map(Plan::Push),
        Kind::Chart => plan_chart(spec, content).map(Plan::Push),
        Kind::Package => check_package(spec, content).map(|()| Plan::Index),
        Kind::Image => plan_image(content),
    }
}

/// What has to be done to a disk before servers can be given it: they take raw ones, compressed with zstd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Ready,
    Raw,
    Qcow2,
}

fn plan_image(content: &Path) -> Result<Plan, PublishError> {
    let form = match recognise(&mut open(content)?)? {
        Format::Zstd => Form::Ready,
        Format::Raw => Form::Raw,
        Format::Qcow2 => Form::Qcow2,
        Format::Deb | Format::Tar | Format::Gzip => {
            return Err(PublishError::refused("it is not a disk"));
        }
    };
    Ok(Plan::Serve(form))
}

/// It gets its name when it is whole; the digest of what was made of it.
fn serve_image(
    content: &Path,
    served: &Path,
    form: Form,
    room: &Room,
) -> Result<Option<String>, PublishError> {
    let waits =
        |error: io::Error| PublishError::later(format!("making {}: {error}", served.display()));
    let aside = aside(served);
    fs::create_dir_all(served.parent().unwrap_or(served)).map_err(waits)?;
    // Of a conversion that was cut.
    if aside.exists() {
        fs::remove_file(&aside).map_err(waits)?;
    }
    let made = match form {
        Form::Ready => fs::hard_link(content, &aside).map(|()| None),
        Form::Raw => compress(open(content)?, &aside, room).map(Some),
        Form::Qcow2 => compress(Disk::open(open(content)?)?, &aside, room).map(Some),
    };
    match made.and_then(|digest| fs::rename(&aside, served).map(|()| digest)) {
        Ok(digest) => Ok(digest),
        Err(error) => {
            // The error says more than one from here.
            drop(fs::remove_file(&aside));
            Err(match error.kind() {
                io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => {
                    PublishError::refused(&format!("the disk is damaged: {error}"))
                }
                io::ErrorKind::StorageFull => PublishError::no_room(
                    "the disk in the form that servers are given",
                    room.left().unwrap_or(0),
                ),
                _ => waits(error),
            })
        }
    }
}

/// Under this name it is made.
fn aside(served: &Path) -> PathBuf {
    served.with_extension("new")
}

fn compress(mut disk: impl Read, to: &Path, room: &Room) -> io::Result<String> {
    let file = Hashed {
        file: File::create(to)?,
        digest: Sha256::new(),
        room,
        unseen: LOOK_AGAIN,
    };
    let mut packed = zstd::Encoder::new(file, zstd::DEFAULT_COMPRESSION_LEVEL)?;
    packed.include_checksum(true)?;
    io::copy(&mut disk, &mut packed)?;
    let Hashed { file, digest, .. } = packed.finish()?;
    file.sync_all()?;
    Ok(hex(&digest.finalize()))
}

/// A file with the digest of what was written, which ends where the reserve begins.
struct Hashed<'a> {
    file: File,
    digest: Sha256,
    room: &'a Room,
    /// Bytes since somebody looked how much room is left.
    unseen: u64,
}

impl Write for Hashed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.unseen += bytes.len() as u64;
        if self.unseen >= LOOK_AGAIN {
            self.unseen = 0;
            if self.room.left()? < LOOK_AGAIN {
                return Err(io::ErrorKind::StorageFull.into());
            }
        }
        let written = self.file.write(bytes)?;
        self.digest.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

fn check_package(spec: &ArtifactSpec, content: &Path) -> Result<(), PublishError> {
    let control = read_control(open(content)?)?;
    let found = (control.package(), control.version(), control.architecture());
    if found != (&spec.name, &spec.version, spec.arch.as_str()) {
        return Err(PublishError::refused(&format!(
            "it was announced as {} {} for {}, and the package says {} {} for {}",
            spec.name, spec.version, spec.arch, found.0, found.1, found.2
        )));
    }
    Ok(())
}

fn open(content: &Path) -> Result<File, PublishError> {
    File::open(content).map_err(|error| PublishError::unreadable(content, &error))
}

fn plan_container(spec: &ArtifactSpec, content: &Path) -> Result<Push, PublishError> {
    let pushed = read_container(&mut open(content)?)?;
    let part = |blob: container::Blob| Blob::part(content.to_owned(), blob.digest, blob.range);
    let (repository, tag) = tag(spec);
    Ok(Push {
        repository,
        tag,
        blobs: pushed.blobs.into_iter().map(part).collect(),
        manifests: pushed.manifests,
    })
}

/// As Helm itself pushes it.
fn plan_chart(spec: &ArtifactSpec, content: &Path) -> Result<Push, PublishError> {
    let chart = read_chart(open(content)?)?;
    if (&chart.name, &chart.version) != (&spec.name, &spec.version) {
        return Err(PublishError::refused(&format!(
            "it was announced as {} {}, and Chart.yaml says {} {}",
            spec.name, spec.version, chart.name, chart.version
        )));
    }
    let config = Blob::memory(chart.metadata.to_string().into_bytes());
    let whole = Range {
        offset: 0,
        size: spec.size,
    };
    let layer = Blob::part(content.to_owned(), format!("sha256:{}", spec.sha256), whole);
    let describe = |blob: &Blob, kind: &str| json!({"mediaType": kind, "digest": blob.digest, "size": blob.size});
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "config": describe(&config, HELM_CONFIG),
        "layers": [describe(&layer, HELM_CHART)],
    });
    let manifest = manifest.to_string().into_bytes();
    let (repository, tag) = tag(spec);
    Ok(Push {
        repository,
        tag,
        blobs: vec![config, layer],
        manifests: vec![Manifest {
            digest: digest_of(&manifest),
            media_type: OCI_MANIFEST.to_owned(),
            content: manifest,
        }],
    })
}
