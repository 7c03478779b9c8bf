//! What is wanted of a host: its object's spec and annotations, or, where nobody has said anything, the site's rule.
//! Pure. To add a desired state: a variant here, and what follows from it in `plan`.

use firstlight_api::{
    bmh::{
        AutomatedCleaningMode, BareMetalHost, Image, SecretReference,
        annotations::{self, Detached, Inspection},
    },
    site::{ClusterChoice, SiteConfig, Standing},
    status::Problem,
    verb::{CONFIRM_ANNOTATION, KEXEC_ANNOTATION, RETRY_ANNOTATION},
};

mod named;

use super::{
    image::{NodeImage, algorithm, same_digest},
    ledger::{Deployment, Ledger, Move},
    root_disk::WantedDisks,
};
use crate::store::ServedImage;

/// What a host that nobody claimed is there for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SitePolicy {
    /// `cluster: none`: it gets the plain node image and its operator's login, and that is all.
    #[default]
    Plain,
    /// It will be a machine of the cluster: it gets the node image ahead of time, and waits for its bootstrap data.
    Cluster,
}

impl SitePolicy {
    /// While nobody knows the site's settings, no host that waits for its cluster may be taken for a plain one.
    pub fn of(site: &SiteConfig) -> Self {
        if site.standing == Standing::Unknown {
            Self::Cluster
        } else {
            Self::from(&site.cluster)
        }
    }
}

impl From<&ClusterChoice> for SitePolicy {
    fn from(choice: &ClusterChoice) -> Self {
        match choice {
            ClusterChoice::None => Self::Plain,
            ClusterChoice::Manual | ClusterChoice::Generated(_) => Self::Cluster,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum DesiredState {
    /// Nobody can tell yet: Kubernetes has to be asked first.
    Unknown,
    /// Nothing: it is available.
    Idle,
    /// The node image without data, ahead of a claim.
    Stage(Install),
    Install(Install),
    /// It carries a system that is not ours.
    External,
    /// Its object was deleted.
    Gone,
    /// Its object is in another management cluster now.
    Moved,
}

impl DesiredState {
    pub fn install(&self) -> Option<&Install> {
        match self {
            Self::Stage(install) | Self::Install(install) => Some(install),
            _ => None,
        }
    }
}

/// What a disk shall hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Install {
    pub image: Image,
    pub data: Data,
}

/// How the installed system learns what it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Data {
    /// From the config drive: the operator's login. No secret is in it.
    Site,
    /// From the bootstrap endpoint, once: the image is ours and asks for it. Without user data it gets what `Site` has.
    Endpoint,
    /// From the config drive, as with every other Metal3: the image is not ours.
    Drive,
}

/// Everything that the object says.
#[derive(Clone, Debug, PartialEq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "facts that hold or do not, each by itself"
)]
pub struct Intent {
    pub desired: Result<DesiredState, Problem>,
    pub paused: Option<String>,
    pub detached: Option<Detached>,
    pub inspection: Inspection,
    pub cleaning: AutomatedCleaningMode,
    /// Annotations that ask for a restart that has not happened.
    pub restarts: Vec<String>,
    pub power: Power,
    /// Which disk gets an image, or which two.
    pub root: WantedDisks,
    /// The failed step shall begin again; nobody has noted that yet.
    pub retry: bool,
    /// What is remembered of its model shall be forgotten.
    pub allow_kexec: bool,
    /// Its own name was said: it may be given back.
    pub confirmed: bool,
    /// `disablePowerOff`: whatever its power shall be, it is restarted at most.
    pub stays_on: bool,
}

/// What its power shall be, where somebody can switch it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Power {
    On,
    Off {
        /// Without asking its system.
        hard: bool,
        /// Which field or annotation says so.
        why: String,
    },
}

/// What an intent is read from.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    pub object: Option<&'a BareMetalHost>,
    pub ledger: &'a Ledger,
    pub unclaimed: SitePolicy,
    /// site.yaml writes into its object, which is to be made first.
    pub is_given: bool,
    /// Its object is to be written again first, as site.yaml has it now.
    pub is_overdue: bool,
    pub image: Option<&'a NodeImage>,
    /// What people have put on the box.
    pub uploads: &'a [ServedImage],
    pub box_http: &'a str,
}

pub fn wanted(source: &Source) -> Intent {
    let none = std::collections::BTreeMap::new();
    let said = source
        .object
        .map_or(&none, |object| &object.metadata.annotations);
    let spec = source.object.map(|object| &object.spec);
    let disabled = spec.is_some_and(|spec| {
        spec.inspection_mode == Some(firstlight_api::bmh::InspectionMode::Disabled)
    });
    Intent {
        desired: desired(source),
        paused: annotations::paused_by(said).map(str::to_owned),
        detached: annotations::detached(said),
        inspection: if disabled {
            Inspection::Never
        } else {
            annotations::inspection(said)
        },
        cleaning: spec
            .and_then(|spec| spec.automated_cleaning_mode)
            .unwrap_or_default(),
        restarts: annotations::reboots(said)
            .filter(|name| !source.ledger.done.contains(*name))
            .map(str::to_owned)
            .collect(),
        power: power(source),
        root: spec.map(WantedDisks::of).unwrap_or_default(),
        retry: said.contains_key(RETRY_ANNOTATION)
            && !source.ledger.done.contains(RETRY_ANNOTATION),
        allow_kexec: said.contains_key(KEXEC_ANNOTATION)
            && !source.ledger.done.contains(KEXEC_ANNOTATION),
        confirmed: source
            .object
            .is_some_and(|object| said.get(CONFIRM_ANNOTATION) == Some(&object.metadata.name)),
        stays_on: spec.is_some_and(|spec| spec.disable_power_off),
    }
}

/// A restart is off until that was seen; a fence, `reboot.metal3.io/KEY`, is off until it goes.
fn power(source: &Source) -> Power {
    let Some(object) = source.object else {
        return Power::On;
    };
    let said = &object.metadata.annotations;
    let done = &source.ledger.done;
    let asked: Vec<&str> = annotations::reboots(said)
        .filter(|name| *name != annotations::REBOOT || !done.contains(*name))
        .collect();
    let hard = asked.iter().any(|name| annotations::is_hard(&said[*name]));
    match asked.first() {
        Some(name) => Power::Off {
            hard,
            why: format!("`{name}`"),
        },
        None if !object.spec.online => Power::Off {
            hard: false,
            why: "`online: false`".to_owned(),
        },
        None => Power::On,
    }
}

/// Who pauses a host whose object cannot be read.
pub const UNREADABLE: &str = "the box, which cannot read its object";

fn desired(source: &Source) -> Result<DesiredState, Problem> {
    if source.ledger.passing {
        return Ok(DesiredState::Gone);
    }
    let Some(object) = source.object else {
        if source.ledger.moves == Move::Away {
            return Ok(DesiredState::Moved);
        }
        return Ok(nobody_said(source, None));
    };
    // What is left of it says nothing of what it wants: what the server has keeps, and boots.
    if annotations::paused_by(&object.metadata.annotations) == Some(UNREADABLE) {
        return Ok(DesiredState::Unknown);
    }
    if object.is_deleted() {
        return Ok(DesiredState::Gone);
    }
    if source.is_overdue {
        return Ok(DesiredState::Unknown);
    }
    if object.spec.externally_provisioned {
        return Ok(DesiredState::External);
    }
    match &object.spec.image {
        Some(image) if !image.url.is_empty() => {
            claimed(source, object, &named::resolve(source, image)?)
        }
        _ if object.spec.custom_deploy.is_some() => Err(Problem {
            what: "`customDeploy` names a way of installing that this site does not have"
                .to_owned(),
            next: "remove it from the spec and give an `image`".to_owned(),
        }),
        _ => Ok(nobody_said(source, Some(object))),
    }
}

/// No image is asked for: the site's rule decides, unless somebody took an image away.
fn nobody_said(source: &Source, object: Option<&BareMetalHost>) -> DesiredState {
    let Source { ledger, .. } = source;
    // Without its object nobody can tell, unless there never was one and none is needed.
    let has_to_be = source.is_given || source.unclaimed == SitePolicy::Cluster;
    if object.is_none() && (ledger.has_object || has_to_be) {
        return DesiredState::Unknown;
    }
    let Some(image) = source.image.filter(|_| !ledger.removed) else {
        return DesiredState::Idle;
    };
    let install = |data| Install {
        image: image.published(source.box_http),
        data,
    };
    let online = object.is_none_or(|object| object.spec.online);
    // Whoever took the image away gives the host back when it is clean, and waits for that.
    let held = object.is_some_and(|object| object.spec.consumer_ref.is_some());
    let deployment = ledger.deployment.as_ref();
    let taken_away = deployment.is_some_and(|deployment| deployment.shown);
    // A machine holds a host first, and says what it shall become once its data are there.
    let becomes_its = deployment.is_some_and(Deployment::is_staged) && !taken_away;
    match source.unclaimed {
        SitePolicy::Cluster if online && (!held || becomes_its) => {
            DesiredState::Stage(install(Data::Endpoint))
        }
        SitePolicy::Plain if online && !ledger.released && !taken_away => {
            DesiredState::Install(install(Data::Site))
        }
        _ => DesiredState::Idle,
    }
}

fn claimed(
    source: &Source,
    object: &BareMetalHost,
    image: &Image,
) -> Result<DesiredState, Problem> {
    if !object.spec.online && source.ledger.deployment.is_none() {
        return Ok(DesiredState::Idle);
    }
    let ours = source
        .image
        .is_some_and(|node| same_digest(image, &node.published(source.box_http)));
    if !ours {
        refuse(image)?;
    }
    let data = match (ours, has_data(object)) {
        (false, _) => Data::Drive,
        (true, true) => Data::Endpoint,
        (true, false) if object.spec.consumer_ref.is_some() => Data::Endpoint,
        (true, false) => Data::Site,
    };
    Ok(DesiredState::Install(Install {
        image: image.clone(),
        data,
    }))
}

fn has_data(object: &BareMetalHost) -> bool {
    let named = |secret: &Option<SecretReference>| {
        secret
            .as_ref()
            .is_some_and(|secret| !secret.name.is_empty())
    };
    let spec = &object.spec;
    named(&spec.user_data) || named(&spec.meta_data) || named(&spec.network_data)
}

/// What our ramdisk could not write or could not check.
fn refuse(image: &Image) -> Result<(), Problem> {
    let refused = |what: String, next: &str| {
        Err(Problem {
            what,
            next: next.to_owned(),
        })
    };
    if !(image.url.starts_with("http://") || image.url.starts_with("https://")) {
        return refused(
            format!("the image {} cannot be fetched", image.url),
            "serve it by HTTP, and change `spec.image.url`",
        );
    }
    if image.format.as_deref() == Some("live-iso") {
        return refused(
            "the image is said to be a live ISO, and servers are started from their disks here"
                .to_owned(),
            "give an image of a whole disk, with its checksum",
        );
    }
    if let Some(format) = image.format.as_deref().filter(|format| *format != "raw") {
        return refused(
            format!("the image is said to be {format}, and only raw images can be written"),
            "convert it with `qemu-img convert -O raw`, compress it with `zstd`, and set `format: raw`",
        );
    }
    if image.checksum.is_empty() {
        return refused(
            "the image has no digest, and nothing is booted unchecked".to_owned(),
            "set `spec.image.checksum` to the SHA-256 of the file as it is served",
        );
    }
    if algorithm(image).is_none() {
        return refused(
            format!(
                "`{}` is no MD5, SHA-256 or SHA-512 digest of the image",
                image.checksum
            ),
            "set `spec.image.checksum` to the digest itself, not to the address of a list",
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests;
