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

use firstlight_api::artifact::{ArtifactSpec, Kind};
use firstlight_artifacts::{
    Format, Unfit,
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
    pushed::{Notes, Tagged},
    registry::{Blob, Push, Registry},
    shelf::Published,
};

/// By which nodes and clusters know the box's registry.
pub const REGISTRY: &str = "registry.firstlight.internal";
/// Before the address of a chart, as Helm writes it.
const OCI: &str = "oci://";
const SERVED: &str = "/images/";
const CHARTS: &str = "charts";
const HELM_CONFIG: &str = "application/vnd.cncf.helm.config.v1+json";
const HELM_CHART: &str = "application/vnd.cncf.helm.chart.content.v1.tar+gzip";
const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// Why it is not there yet, or never will be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// Tried again by itself.
    Later(String),
    Never {
        reason: String,
        next: String,
    },
}

impl Trouble {
    pub fn unreadable(path: &Path, error: &io::Error) -> Self {
        Self::Later(format!("opening {}: {error}", path.display()))
    }

    pub fn refused(reason: &str) -> Self {
        Self::Never {
            reason: reason.to_owned(),
            next: "delete the artifact, mend what the reason names, and upload it again".to_owned(),
        }
    }
}

/// Of the box's own disk.
impl From<anyhow::Error> for Trouble {
    fn from(error: anyhow::Error) -> Self {
        Self::Later(format!("{error:#}"))
    }
}

impl From<Unfit> for Trouble {
    fn from(unfit: Unfit) -> Self {
        Self::refused(&unfit.to_string())
    }
}

/// Where it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub published: Published,
    /// The uploaded file is still needed: what is used was not copied from it.
    pub keep: bool,
}

/// The places that there are.
#[derive(Clone, Debug)]
pub struct Places {
    pub registry: Registry,
    pub apt: Repository,
    pub images: PathBuf,
    pub pushed: Notes,
}

impl Place {
    fn at(reference: String, keep: bool) -> Self {
        Self {
            published: Published {
                reference,
                checksum: String::new(),
            },
            keep,
        }
    }
}

impl Places {
    /// Under a name that is nobody else's.
    async fn push(&self, push: &Push) -> Result<(), Trouble> {
        let ours = Tagged::of(push);
        let known = self.pushed.load()?;
        if !known.iter().any(|note| note.name() == ours.name()) {
            match self.registry.tagged(&push.repository, &push.tag).await? {
                // Whoever brought it keeps it when this one is deleted.
                there @ Some(_) if there.as_ref() == ours.digest() => return Ok(()),
                Some(_) => {
                    return Err(Trouble::Never {
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
        self.pushed.add(known, ours)?;
        self.registry.push(push).await
    }

    /// What was pushed and belongs to no artifact any more goes.
    pub async fn sweep_registry(&self, references: &BTreeSet<String>) -> Result<(), Trouble> {
        let mut notes = self.pushed.load()?;
        let is_used = |note: &Tagged| {
            let address = format!("{REGISTRY}/{}", note.name());
            references
                .iter()
                .any(|reference| reference.trim_start_matches(OCI) == address)
        };
        while let Some(at) = notes.iter().position(|note| !is_used(note)) {
            self.registry.remove(&notes[at]).await?;
            notes.remove(at);
            self.pushed.write(&notes)?;
        }
        Ok(())
    }

    /// What is served and belongs to no artifact any more goes.
    pub fn sweep_images(&self, references: &BTreeSet<String>) -> io::Result<()> {
        let files = match fs::read_dir(&self.images) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            files => files?,
        };
        for file in files {
            let file = file?;
            let reference = format!("{SERVED}{}", file.file_name().to_string_lossy());
            if !references.contains(&reference) {
                fs::remove_file(file.path())?;
            }
        }
        Ok(())
    }
}

pub async fn publish(
    places: &Places,
    spec: &ArtifactSpec,
    content: &Path,
) -> Result<Place, Trouble> {
    let (owned, path) = (spec.clone(), content.to_owned());
    let planned = tokio::task::spawn_blocking(move || plan(&owned, &path)).await;
    match planned.map_err(|_| Trouble::Later("the box is stopping".to_owned()))?? {
        Plan::Push { scheme, push } => {
            places.push(&push).await?;
            let reference = format!("{scheme}{REGISTRY}/{}:{}", push.repository, push.tag);
            Ok(Place::at(reference, false))
        }
        // The repository is made over all of them at once.
        Plan::Index => Ok(Place::at(format!("{}={}", spec.name, spec.version), true)),
        Plan::Serve { name, form } => {
            let (served, source) = (places.images.join(&name), content.to_owned());
            let made =
                tokio::task::spawn_blocking(move || serve_image(&source, &served, form)).await;
            let made = made.map_err(|_| Trouble::Later("the box is stopping".to_owned()))??;
            let published = Published {
                reference: format!("{SERVED}{name}"),
                checksum: made.unwrap_or_else(|| spec.sha256.clone()),
            };
            Ok(Place {
                published,
                keep: form == Form::Ready,
            })
        }
    }
}

enum Plan {
    Push { scheme: &'static str, push: Push },
    Index,
    Serve { name: String, form: Form },
}

fn plan(spec: &ArtifactSpec, content: &Path) -> Result<Plan, Trouble> {
    match spec.kind {
        Kind::Container => {
            plan_container(spec, content).map(|push| Plan::Push { scheme: "", push })
        }
        Kind::Chart => plan_chart(spec, content).map(|push| Plan::Push { scheme: OCI, push }),
        Kind::Package => check_package(spec, content).map(|()| Plan::Index),
        Kind::Image => plan_image(spec, content),
    }
}

/// What has to be done to a disk before servers can be given it: they take raw ones, compressed with zstd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Ready,
    Raw,
    Qcow2,
}

fn plan_image(spec: &ArtifactSpec, content: &Path) -> Result<Plan, Trouble> {
    let form = match recognise(&mut open(content)?)? {
        Format::Zstd => Form::Ready,
        Format::Raw => Form::Raw,
        Format::Qcow2 => Form::Qcow2,
        Format::Deb | Format::Tar | Format::Gzip => return Err(Trouble::refused("it is no disk")),
    };
    Ok(Plan::Serve {
        name: image_file(spec),
        form,
    })
}

/// It gets its name when it is whole; the digest of what was made of it.
fn serve_image(content: &Path, served: &Path, form: Form) -> Result<Option<String>, Trouble> {
    let waits = |error: io::Error| Trouble::Later(format!("making {}: {error}", served.display()));
    let aside = served.with_extension("new");
    fs::create_dir_all(served.parent().unwrap_or(served)).map_err(waits)?;
    // Of a conversion that was cut.
    if aside.exists() {
        fs::remove_file(&aside).map_err(waits)?;
    }
    let made = match form {
        Form::Ready => fs::hard_link(content, &aside).map(|()| None),
        Form::Raw => compress(open(content)?, &aside).map(Some),
        Form::Qcow2 => compress(Disk::open(open(content)?)?, &aside).map(Some),
    };
    match made.and_then(|digest| fs::rename(&aside, served).map(|()| digest)) {
        Ok(digest) => Ok(digest),
        Err(error) => {
            // The error says more than one from here.
            drop(fs::remove_file(&aside));
            Err(match error.kind() {
                io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => {
                    Trouble::refused(&format!("the disk is damaged: {error}"))
                }
                io::ErrorKind::StorageFull => Trouble::Never {
                    reason: "there is no room for the disk in the form that servers are given".to_owned(),
                    next: "delete what is not used, then delete this one and push it again; or use a larger stick".to_owned(),
                },
                _ => waits(error),
            })
        }
    }
}

fn compress(mut disk: impl Read, to: &Path) -> io::Result<String> {
    let file = Hashed {
        file: File::create(to)?,
        digest: Sha256::new(),
    };
    let mut packed = zstd::Encoder::new(file, zstd::DEFAULT_COMPRESSION_LEVEL)?;
    packed.include_checksum(true)?;
    io::copy(&mut disk, &mut packed)?;
    let Hashed { file, digest } = packed.finish()?;
    file.sync_all()?;
    Ok(hex(&digest.finalize()))
}

/// A file with the digest of what was written.
struct Hashed {
    file: File,
    digest: Sha256,
}

impl Write for Hashed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.digest.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

fn image_file(spec: &ArtifactSpec) -> String {
    format!(
        "{}-{}.raw.zst",
        spec.name,
        spec.version.replace([':', '~', '+'], "_")
    )
}

fn check_package(spec: &ArtifactSpec, content: &Path) -> Result<(), Trouble> {
    let control = read_control(open(content)?)?;
    let found = (control.package(), control.version(), control.architecture());
    if found != (&spec.name, &spec.version, spec.arch.as_str()) {
        return Err(Trouble::refused(&format!(
            "it was announced as {} {} for {}, and the package says {} {} for {}",
            spec.name, spec.version, spec.arch, found.0, found.1, found.2
        )));
    }
    Ok(())
}

fn open(content: &Path) -> Result<File, Trouble> {
    File::open(content).map_err(|error| Trouble::unreadable(content, &error))
}

fn plan_container(spec: &ArtifactSpec, content: &Path) -> Result<Push, Trouble> {
    let pushed = read_container(&mut open(content)?)?;
    let part = |blob: container::Blob| Blob::part(content.to_owned(), blob.digest, blob.range);
    Ok(Push {
        repository: spec.name.clone(),
        tag: spec.version.clone(),
        blobs: pushed.blobs.into_iter().map(part).collect(),
        manifests: pushed.manifests,
    })
}

/// As Helm itself pushes it.
fn plan_chart(spec: &ArtifactSpec, content: &Path) -> Result<Push, Trouble> {
    let chart = read_chart(open(content)?)?;
    if (&chart.name, &chart.version) != (&spec.name, &spec.version) {
        return Err(Trouble::refused(&format!(
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
    Ok(Push {
        repository: format!("{CHARTS}/{}", chart.name),
        // A tag cannot hold what semantic versions may; Helm asks for it spelled like this.
        tag: chart.version.replace('+', "_"),
        blobs: vec![config, layer],
        manifests: vec![Manifest {
            digest: digest_of(&manifest),
            media_type: OCI_MANIFEST.to_owned(),
            content: manifest,
        }],
    })
}
