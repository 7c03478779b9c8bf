//! From a whole artifact to the place where it is used: containers and charts in the registry, packages in the apt repository,
//! disks beside the stick's own.
//!
//! To add a kind: a branch in [`publish`].

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use firstlight_api::artifact::{ArtifactSpec, Kind};
use firstlight_artifacts::{
    Format, Unfit,
    chart::read_chart,
    container::{self, Manifest, Range, digest_of, read_container},
    deb::read_control,
    recognise,
};
use serde_json::json;

use super::{
    apt::Repository,
    registry::{Blob, Push, Registry},
};

/// By which nodes and clusters know the box's registry.
pub const REGISTRY: &str = "registry.firstlight.internal";
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
    pub fn refused(reason: &str) -> Self {
        Self::Never {
            reason: reason.to_owned(),
            next: "delete the artifact, mend what the reason names, and upload it again".to_owned(),
        }
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
    pub reference: String,
    /// The uploaded file is still needed: what is used was not copied from it.
    pub keep: bool,
}

/// The places that there are.
#[derive(Clone, Debug)]
pub struct Places {
    pub registry: Registry,
    pub apt: Repository,
    pub images: PathBuf,
}

impl Places {
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
            places.registry.push(&push).await?;
            Ok(Place {
                reference: format!("{scheme}{REGISTRY}/{}:{}", push.repository, push.tag),
                keep: false,
            })
        }
        // The repository is made over all of them at once.
        Plan::Index => Ok(Place {
            reference: format!("{}={}", spec.name, spec.version),
            keep: true,
        }),
        Plan::Serve { name } => {
            let waits = |error: io::Error| Trouble::Later(format!("serving {name}: {error}"));
            fs::create_dir_all(&places.images).map_err(waits)?;
            match fs::hard_link(content, places.images.join(&name)) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(waits(error)),
                _ => Ok(Place {
                    reference: format!("{SERVED}{name}"),
                    keep: true,
                }),
            }
        }
    }
}

enum Plan {
    Push { scheme: &'static str, push: Push },
    Index,
    Serve { name: String },
}

fn plan(spec: &ArtifactSpec, content: &Path) -> Result<Plan, Trouble> {
    match spec.kind {
        Kind::Container => {
            plan_container(spec, content).map(|push| Plan::Push { scheme: "", push })
        }
        Kind::Chart => plan_chart(spec, content).map(|push| Plan::Push {
            scheme: "oci://",
            push,
        }),
        Kind::Package => check_package(spec, content).map(|()| Plan::Index),
        Kind::Image => plan_image(spec, content),
    }
}

/// As servers are given it: raw, and compressed with zstd.
fn plan_image(spec: &ArtifactSpec, content: &Path) -> Result<Plan, Trouble> {
    match recognise(&mut open(content)?)? {
        Format::Zstd => Ok(Plan::Serve {
            name: image_file(spec),
        }),
        _ => Err(Trouble::Never {
            reason: "servers are given raw disks compressed with zstd, and this is another format".to_owned(),
            next: "convert it with `qemu-img convert -O raw FILE disk.raw && zstd -19 disk.raw`, delete this one, and push disk.raw.zst"
                .to_owned(),
        }),
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
    File::open(content)
        .map_err(|error| Trouble::Later(format!("opening {}: {error}", content.display())))
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
