//! What a file is: by its content where it says so itself, by its name where it does not, and by what the person given.

use std::fs::File;
use std::io::Seek;
use std::path::Path;

use anyhow::{Context, Result, bail};
use firstlight_api::artifact::{Arch, ArtifactSpec, Kind};
use firstlight_artifacts::{Format, chart, container, deb, recognise};
use indicatif::ProgressBar;

use crate::UsageError;
use crate::build::cache::digest_all;

/// What the person given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    pub kind: Option<Kind>,
    pub name: Option<String>,
    pub version: Option<String>,
    pub arch: Option<Arch>,
}

impl Overrides {
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

/// What was found in the file.
#[derive(Debug, PartialEq, Eq)]
struct Found {
    kind: Kind,
    name: Option<String>,
    version: Option<String>,
    arch: Arch,
}

pub fn describe(path: &Path, given: &Overrides, bar: &ProgressBar) -> Result<ArtifactSpec> {
    let mut file = File::open(path).context("opening it")?;
    let found = look(&mut file, path, given.kind)?;
    let missing = |what: &str| {
        UsageError(format!(
            "the file does not say its {what}; say it with --{what}"
        ))
    };
    let name = given
        .name
        .clone()
        .or(found.name)
        .ok_or_else(|| missing("name"))?;
    let version = given
        .version
        .clone()
        .or(found.version)
        .ok_or_else(|| missing("version"))?;
    file.rewind().context("reading it")?;
    let size = file.metadata().context("reading it")?.len();
    let sha256 = digest_all(&mut bar.wrap_read(file)).context("reading it")?;
    let spec = ArtifactSpec {
        kind: found.kind,
        name,
        version,
        arch: given.arch.unwrap_or(found.arch),
        size,
        sha256,
    };
    spec.check().map_err(|refused| UsageError(refused.0))?;
    Ok(spec)
}

fn look(file: &mut File, path: &Path, given: Option<Kind>) -> Result<Found> {
    let stem = path
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let found = match recognise(file)? {
        Format::Deb => {
            let control = deb::read_control(&mut *file)?;
            Found {
                kind: Kind::Package,
                name: Some(control.package().to_owned()),
                version: Some(control.version().to_owned()),
                arch: control
                    .architecture()
                    .parse()
                    .map_err(|refused: firstlight_api::artifact::Refused| UsageError(refused.0))?,
            }
        }
        Format::Tar => {
            let pushed = container::read_container(file)?;
            let (name, version) = pushed
                .names
                .first()
                .map(|name| split_image(name))
                .unwrap_or_default();
            Found {
                kind: Kind::Container,
                name,
                version,
                arch: Arch::Amd64,
            }
        }
        Format::Gzip => {
            let chart = chart::read_chart(&mut *file)
                .context("a gzip file is taken for a chart; if it is another thing, unpack it first: `gunzip FILE`")?;
            Found {
                kind: Kind::Chart,
                name: Some(chart.name),
                version: Some(chart.version),
                arch: Arch::All,
            }
        }
        Format::Zstd | Format::Qcow2 | Format::Raw => {
            let (name, version) = split_file(&stem);
            Found {
                kind: Kind::Image,
                name,
                version,
                arch: Arch::Amd64,
            }
        }
    };
    if let Some(given) = given.filter(|given| *given != found.kind) {
        bail!(UsageError(format!("it is a {}, not a {given}", found.kind)));
    }
    Ok(found)
}

/// `registry.example:5000/team/web:1.2` is `team/web` and `1.2`: the box's registry takes the place of the one before.
fn split_image(reference: &str) -> (Option<String>, Option<String>) {
    let path = match reference.split_once('/') {
        Some((host, path)) if host.contains(['.', ':']) || host == "localhost" => path,
        _ => reference,
    };
    match path.rsplit_once(':') {
        Some((name, tag)) => (Some(name.to_owned()), Some(tag.to_owned())),
        // An OCI layout often has the tag alone.
        None => (None, Some(path.to_owned())),
    }
}

/// `debian-13.2.qcow2` is `debian` and `13.2`.
fn split_file(name: &str) -> (Option<String>, Option<String>) {
    let endings = [".zst", ".qcow2", ".raw", ".img"];
    let mut stem = name;
    while let Some(shorter) = endings.iter().find_map(|ending| stem.strip_suffix(ending)) {
        stem = shorter;
    }
    let at = stem
        .match_indices('-')
        .map(|(at, _)| at)
        .find(|at| stem.as_bytes().get(at + 1).is_some_and(u8::is_ascii_digit));
    match at {
        Some(at) => (
            Some(stem[..at].to_lowercase()),
            Some(stem[at + 1..].to_owned()),
        ),
        None => (Some(stem.to_lowercase()), None),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_image_is_called_as_in_its_own_registry() {
        for (reference, name, tag) in [
            ("web:1.2", Some("web"), "1.2"),
            ("team/web:1.2", Some("team/web"), "1.2"),
            (
                "docker.io/library/nginx:1.27",
                Some("library/nginx"),
                "1.27",
            ),
            ("localhost/web:dev", Some("web"), "dev"),
            ("registry.example:5000/web:1", Some("web"), "1"),
            ("1.27", None, "1.27"),
        ] {
            assert_eq!(
                split_image(reference),
                (name.map(str::to_owned), Some(tag.to_owned())),
                "{reference}"
            );
        }
    }

    #[test]
    fn a_disk_is_called_like_its_file() {
        for (file, name, version) in [
            ("debian-13.2.qcow2", "debian", Some("13.2")),
            (
                "Rocky-9-GenericCloud.raw.zst",
                "rocky",
                Some("9-GenericCloud"),
            ),
            ("my-disk-2.img", "my-disk", Some("2")),
            ("disk.raw", "disk", None),
        ] {
            assert_eq!(
                split_file(file),
                (Some(name.to_owned()), version.map(str::to_owned)),
                "{file}"
            );
        }
    }

    #[test]
    fn what_a_file_does_not_say_has_to_be_said() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk.raw");
        let mut disk = vec![0; 1024];
        disk[510..512].copy_from_slice(&[0x55, 0xaa]);
        std::fs::write(&path, &disk).unwrap();
        let error = describe(&path, &Overrides::default(), &ProgressBar::hidden()).unwrap_err();
        assert!(error.to_string().contains("--version"), "{error}");
        let given = Overrides {
            version: Some("1".into()),
            ..Overrides::default()
        };
        let spec = describe(&path, &given, &ProgressBar::hidden()).unwrap();
        assert_eq!(
            (spec.kind, spec.name.as_str(), spec.size),
            (Kind::Image, "disk", 1024)
        );
        let wrong = Overrides {
            kind: Some(Kind::Package),
            ..given
        };
        assert!(
            describe(&path, &wrong, &ProgressBar::hidden())
                .unwrap_err()
                .to_string()
                .contains("it is a image, not a package")
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        /// What is described is taken by the box, whatever the file and its name say.
        #[test]
        fn any_file_of_a_person_is_described_or_refused(
            name in "[a-zA-Z0-9][a-zA-Z0-9._+~-]{0,20}(-[0-9.]{1,8})?(\\.(raw|qcow2|img|zst|deb|tar|tgz)){0,2}",
            magic in prop::sample::select(vec![&b"!<arch>\ndebian-binary"[..], b"QFI\xfb", b"\x28\xb5\x2f\xfd", b"\x1f\x8b\x08\0", b""]),
            rest in proptest::collection::vec(any::<u8>(), 0..1200),
            version in prop::option::of(".{0,12}"),
        ) {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join(&name);
            let mut content = [magic, &rest].concat();
            if let Some(signature) = content.get_mut(510..512) {
                signature.copy_from_slice(&[0x55, 0xaa]);
            }
            std::fs::write(&path, &content).unwrap();
            let said = Overrides {
                version,
                ..Overrides::default()
            };
            if let Ok(spec) = describe(&path, &said, &ProgressBar::hidden()) {
                prop_assert!(spec.check().is_ok());
                prop_assert_eq!(spec.size, content.len() as u64);
                prop_assert!(said.version.is_none_or(|version| version == spec.version));
            }
        }

        #[test]
        fn any_reference_of_an_image_has_a_name_and_a_tag(reference in "([a-z0-9.:]{0,8}/){0,3}[a-z0-9.é]{0,8}(:[a-z0-9.]{0,8})?") {
            let (name, tag) = split_image(&reference);
            let joined = [name.unwrap_or_default(), tag.unwrap_or_default()].join(":");
            prop_assert!(reference.ends_with(joined.trim_start_matches(':')), "{joined}");
        }
    }
}
