//! What the box's store keeps: operating system images, packages, container archives, charts.
//!
//! An artifact is known by kind, name, version and architecture; its content by SHA-256. Two contents under one name are a
//! conflict. [`ArtifactSpec::check`] refuses what no store could keep, with a sentence.

use std::{fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Largest upload: 1 TiB. More is a mistake, not an image.
pub const LARGEST: u64 = 1 << 40;
const LONGEST_NAME: usize = 128;

/// What it is, and so where it is published: images at `/images`, packages in the apt repository, the others in the registry.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A disk: raw, zstd-compressed raw, or qcow2.
    Image,
    /// A Debian package.
    Package,
    /// A tar of an OCI image layout, or of `docker save`.
    Container,
    /// A Helm chart as `helm package` writes it.
    Chart,
}

impl Kind {
    /// In the order in which messages list them.
    pub const ALL: [Self; 4] = [Self::Image, Self::Package, Self::Container, Self::Chart];

    /// As in JSON and in messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Image => "image",
            Self::Package => "package",
            Self::Container => "container",
            Self::Chart => "chart",
        }
    }
}

/// In Debian's words; `all` runs anywhere.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Arch {
    /// `x86_64`.
    Amd64,
    /// `aarch64`.
    Arm64,
    /// Nothing in it was made for one architecture.
    All,
}

impl Arch {
    /// In the order in which messages list them.
    pub const ALL: [Self; 3] = [Self::Amd64, Self::Arm64, Self::All];

    /// As in JSON and in messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
            Self::All => "all",
        }
    }
}

macro_rules! words {
    ($type:ty, $what:literal) => {
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl FromStr for $type {
            type Err = Refused;

            fn from_str(text: &str) -> Result<Self, Refused> {
                let found = Self::ALL.into_iter().find(|one| one.as_str() == text);
                found.ok_or_else(|| {
                    let all: Vec<_> = Self::ALL.iter().map(|one| one.as_str()).collect();
                    Refused(format!("`{text}` is no {}; use {}", $what, all.join(", ")))
                })
            }
        }
    };
}

words!(Kind, "kind of artifact");
words!(Arch, "architecture");

/// What an uploader says of the bytes to come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ArtifactSpec {
    /// What the bytes are; the box looks whether they are.
    pub kind: Kind,
    /// At most 128 of a-z, 0-9 and `.+_-`, with a letter or digit at its beginning. Names of containers have folders between slashes.
    pub name: String,
    /// At most 128 letters, digits and `.+~:_-`, with a letter or digit at its beginning; of a container its tag, without `+~:`.
    pub version: String,
    /// What it was made for.
    pub arch: Arch,
    /// Bytes.
    pub size: u64,
    /// Lower-case hex.
    pub sha256: String,
}

/// Why a description cannot be accepted, as a sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refused(pub String);

impl ArtifactSpec {
    /// Whether the store could keep it, by the limits of each field; nothing is said of the bytes.
    pub fn check(&self) -> Result<(), Refused> {
        let refuse = |what: String| Err(Refused(what));
        if let Some(wrong) = wrong_name(self.kind, &self.name) {
            return refuse(wrong);
        }
        let good = |byte: u8| byte.is_ascii_alphanumeric() || b".+~:_-".contains(&byte);
        let begins = self
            .version
            .bytes()
            .next()
            .is_some_and(|byte| byte.is_ascii_alphanumeric());
        if !begins || self.version.len() > LONGEST_NAME || !self.version.bytes().all(good) {
            return refuse(format!(
                "version: `{}` is none; letters, digits and . + ~ : _ - can be in it, and it begins with a letter or digit",
                self.version
            ));
        }
        // A chart's version becomes a tag by a rule of Helm's.
        let is_tag = |version: &str| !version.contains(['+', '~', ':']);
        if self.kind == Kind::Container && !is_tag(&self.version) {
            return refuse(format!(
                "version: `{}` is no tag of a container; letters, digits and . _ - can be in it",
                self.version
            ));
        }
        if self.size == 0 {
            return refuse("size: an empty file is no artifact".to_owned());
        }
        if self.size > LARGEST {
            return refuse(format!("size: {} bytes are more than 1 TiB", self.size));
        }
        let hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if self.sha256.len() != 64 || !self.sha256.bytes().all(hex) {
            return refuse(
                "sha256: 64 lower-case hex digits are wanted, as `sha256sum` prints them"
                    .to_owned(),
            );
        }
        Ok(())
    }

    /// What makes two artifacts the same but for their content.
    pub fn identity(&self) -> (Kind, &str, &str, Arch) {
        (self.kind, &self.name, &self.version, self.arch)
    }
}

/// Names of containers have folders in them; no other has.
fn wrong_name(kind: Kind, name: &str) -> Option<String> {
    let segment = |segment: &str| {
        let good = |byte: u8| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".+_-".contains(&byte)
        };
        let begins = segment
            .bytes()
            .next()
            .is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
        begins && segment.bytes().all(good)
    };
    let good = match kind {
        Kind::Container => name.split('/').all(segment),
        Kind::Image | Kind::Package | Kind::Chart => segment(name),
    };
    let folders = if kind == Kind::Container {
        ", with / between folders"
    } else {
        ""
    };
    (!good || name.len() > LONGEST_NAME).then(|| {
        format!("name: `{name}` is none; lower-case letters, digits and . + _ - can be in it{folders}, and it begins with a letter or digit")
    })
}

/// Where an artifact is on its way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "state", rename_all = "camelCase")]
pub enum ArtifactState {
    /// `offset` bytes are here; the next upload goes on from there.
    Uploading {
        /// Bytes from the beginning of the file.
        offset: u64,
    },
    /// All bytes are here and verified; it is being put where it is used from.
    Publishing,
    /// It is where it is used from.
    Ready,
    /// It cannot be used, and why, with what to do.
    Failed {
        /// What is wrong with it.
        reason: String,
        /// What a person can do about it.
        next: String,
    },
}

/// `GET /api/v1/artifacts/ID`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Artifact {
    /// 24 lower-case hex digits made of the identity and the digest: the same for the same artifact, for ever.
    pub id: String,
    /// As the uploader described it.
    #[serde(flatten)]
    pub spec: ArtifactSpec,
    /// On the wire a key `state` beside those of the spec, with the fields of its variant.
    #[serde(flatten)]
    pub state: ArtifactState,
    /// How it is named where it is used: a URL, an image, a chart, a package.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reference: String,
    /// SHA-256 of the file behind the reference, where servers fetch it: an image that was compressed has another than `spec`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub checksum: String,
    /// What refers to it: `BareMetalHost rack1-server4`. It cannot be deleted meanwhile.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub used_by: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(kind: Kind, name: &str, version: &str) -> ArtifactSpec {
        ArtifactSpec {
            kind,
            name: name.into(),
            version: version.into(),
            arch: Arch::Amd64,
            size: 1,
            sha256: "ab".repeat(32),
        }
    }

    #[test]
    fn names_and_versions_of_each_kind() {
        for (kind, name, version, good) in [
            (Kind::Package, "libstdc++6", "1:12.2.0-14+deb12u1~x", true),
            (Kind::Container, "apps/team/web", "1.2", true),
            (Kind::Container, "web", "1.2+3", false),
            (Kind::Chart, "nfd", "0.1.0", true),
            (Kind::Chart, "a/b", "0.1.0", false),
            (Kind::Image, "..", "1", false),
            (Kind::Image, "Debian", "1", false),
            (Kind::Container, "apps//web", "1", false),
            (Kind::Container, "../web", "1", false),
            (Kind::Image, "debian", "", false),
            (Kind::Image, "debian", "../1", false),
            (Kind::Image, "debian", "1/2", false),
        ] {
            let checked = spec(kind, name, version).check();
            assert_eq!(
                checked.is_ok(),
                good,
                "{kind} {name} {version}: {checked:?}"
            );
        }
    }

    proptest::proptest! {
        /// A description becomes a folder, a tag, a file below `/images`, a line of an index.
        #[test]
        fn what_is_accepted_is_a_plain_name_everywhere(
            kind in 0..4_usize, name in "[a-zA-Z0-9./+~:_\\-\n é]{0,140}", version: String, size: u64, sha256 in "[0-9a-fA-F]{62,66}",
        ) {
            let spec = ArtifactSpec { kind: Kind::ALL[kind], name, version, arch: Arch::All, size, sha256 };
            let text = serde_json::to_vec(&spec).unwrap_or_default();
            let read = serde_json::from_slice::<ArtifactSpec>(&text).ok();
            proptest::prop_assert_eq!(read.as_ref(), Some(&spec));
            if spec.check().is_ok() {
                let plain = |text: &str| !text.is_empty() && text.len() <= LONGEST_NAME && text.bytes().all(|byte| byte.is_ascii_graphic());
                proptest::prop_assert!(plain(&spec.name) && plain(&spec.version));
                proptest::prop_assert!(spec.name.split('/').all(|part| !part.starts_with('.') && !part.is_empty()));
                proptest::prop_assert!(spec.kind == Kind::Container || !spec.name.contains('/'));
                proptest::prop_assert!(!spec.version.contains('/'));
                proptest::prop_assert!((1..=LARGEST).contains(&spec.size));
            }
        }

        #[test]
        fn no_bytes_break_a_description(bytes: Vec<u8>) {
            if let Ok(spec) = serde_json::from_slice::<ArtifactSpec>(&bytes) {
                let _ = spec.check();
            }
        }
    }

    #[test]
    fn sizes_and_digests() {
        let good = spec(Kind::Image, "debian", "13");
        for wrong in [
            ArtifactSpec {
                size: 0,
                ..good.clone()
            },
            ArtifactSpec {
                size: LARGEST + 1,
                ..good.clone()
            },
            ArtifactSpec {
                sha256: "AB".repeat(32),
                ..good.clone()
            },
            ArtifactSpec {
                sha256: "ab".into(),
                ..good.clone()
            },
        ] {
            assert!(wrong.check().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn words_are_read_back_and_wrong_ones_named() {
        for kind in Kind::ALL {
            assert_eq!(kind.as_str().parse(), Ok(kind));
        }
        let refused = "disk".parse::<Kind>();
        assert_eq!(
            refused,
            Err(Refused(
                "`disk` is no kind of artifact; use image, package, container, chart".into()
            ))
        );
    }

    #[test]
    fn an_artifact_is_flat() {
        let artifact = Artifact {
            id: "5".into(),
            spec: spec(Kind::Image, "debian", "13"),
            state: ArtifactState::Uploading { offset: 7 },
            reference: String::new(),
            checksum: String::new(),
            used_by: Vec::new(),
        };
        let value = serde_json::to_value(&artifact).expect("plain JSON");
        assert_eq!(
            (&value["kind"], &value["state"], &value["offset"]),
            (&"image".into(), &"uploading".into(), &7.into())
        );
        assert_eq!(
            serde_json::from_value::<Artifact>(value).ok(),
            Some(artifact)
        );
    }
}
