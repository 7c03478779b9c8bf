//! Addons that the stick brings: each folder below `rootfs/addons` is a Helm chart, with `addon.yaml`, which says what its images
//! are built from and which files of upstream's modules define its kinds, `go/`, the module that pins them, `requirements.txt`,
//! which pins wheels of the Python index that bring a program, and `debian/`, a recipe of Debian packages like those below `rootfs`. To add
//! one: a folder, and nothing here.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use firstlight_api::names::REGISTRY;
use serde::Deserialize;
use serde_json::json;

use super::cache::{Work, remove_tree};
use super::command::Program;
use super::manifests::check_images_in;
use super::programs::{GoProgram, module_folder, required_version};
use super::settings::Settings;
use super::wheels;
use super::workload::{NETTOOLS, NETTOOLS_PATH};
use crate::registry::store::Image;

/// Where charts are on the box.
pub const FOLDER: &str = "usr/share/firstlight/addons";
const METADATA: &str = "addon.yaml";
const DEBIAN: &str = "debian";
/// Of the folder, what is for the build alone.
const BUILD_ONLY: [&str; 4] = [METADATA, "go", wheels::LIST, DEBIAN];

#[derive(Clone, Debug)]
pub struct Addon {
    pub name: String,
    folder: PathBuf,
    pub images: Vec<AddonImage>,
    definitions: Vec<ModuleFile>,
}

/// Programs as an image, which starts the first of them.
#[derive(Clone, Debug)]
pub struct AddonImage {
    pub name: String,
    pub programs: Vec<AddonProgram>,
    tag: String,
    below: Below,
}

/// What an image has below its programs.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Below {
    Nothing,
    /// They call programs of `rootfs/nettools`, or need their C library.
    Nettools,
    /// The packages of the addon of this name.
    Debian(String),
}

impl Below {
    /// Of an addon's programs of ours.
    fn ours(folder: &Path, addon: &str) -> Self {
        if folder.join(DEBIAN).exists() {
            Self::Debian(addon.to_owned())
        } else {
            Self::Nothing
        }
    }
}

/// Where the program comes from, and where it is among those of its kind.
#[derive(Clone, Debug)]
pub enum AddonProgram {
    Go {
        package: String,
        /// Folder of its Go module, as [`GoProgram`] wants it.
        module: String,
        /// In the folder of its image.
        path: String,
    },
    /// A file of a wheel, in the folder of its addon.
    Wheel { path: String },
    /// One of ours, called like its crate.
    Ours { package: String },
}

/// A file that a required module brings, or a folder with a kustomization.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ModuleFile {
    module: String,
    path: PathBuf,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Metadata {
    #[serde(default)]
    images: BTreeMap<String, Vec<String>>,
    #[serde(default)]
    wheels: BTreeMap<String, String>,
    /// Images of a crate of ours, on the packages of `debian/` if that is there.
    #[serde(default)]
    ours: BTreeMap<String, String>,
    #[serde(default)]
    nettools: Vec<String>,
    #[serde(default)]
    definitions: Vec<String>,
}

impl Metadata {
    fn check(&self, folder: &Path) -> Result<()> {
        for image in &self.nettools {
            ensure!(
                self.images.contains_key(image) || self.wheels.contains_key(image),
                "{}/{METADATA}: `nettools` names {image}, which is none of `images` and `wheels`",
                folder.display()
            );
        }
        Ok(())
    }
}

/// All addons, by name.
pub fn load(settings: &Settings) -> Result<Vec<Addon>> {
    let root = settings.rootfs("addons");
    let mut names = fs::read_dir(&root)
        .with_context(|| format!("listing {}", root.display()))?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<Result<Vec<_>>>()?;
    names.sort();
    names
        .iter()
        .map(|name| load_addon(&root.join(name), name))
        .collect()
}

fn load_addon(folder: &Path, name: &str) -> Result<Addon> {
    let read = |file: &str| {
        let path = folder.join(file);
        fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))
    };
    let metadata: Metadata = serde_saphyr::from_str(&read(METADATA)?)
        .with_context(|| format!("{}/{METADATA}", folder.display()))?;
    let modules = if metadata.images.is_empty() && metadata.definitions.is_empty() {
        String::new()
    } else {
        read("go/go.mod")?
    };
    let required = |path: &str| {
        module_of(&modules, path).with_context(|| {
            format!(
                "{0}/{METADATA} names {path}, of no module that {0}/go/go.mod requires: `go get -tool {path}` there, or `go get` its module",
                folder.display()
            )
        })
    };
    let below = |image: &String| {
        if metadata.nettools.contains(image) {
            Below::Nettools
        } else {
            Below::Nothing
        }
    };
    let image = |(image, packages): (String, Vec<String>)| {
        let first = packages.first().with_context(|| {
            format!(
                "{}/{METADATA}: the image {image} has no program",
                folder.display()
            )
        })?;
        let tag = required(first)?.1;
        let program = |package: &String| {
            required(package)?;
            let program = package.rsplit('/').next().unwrap_or(package);
            Ok(AddonProgram::Go {
                package: package.clone(),
                module: format!("../addons/{name}/go"),
                path: format!("{image}/{program}"),
            })
        };
        Ok(AddonImage {
            programs: packages.iter().map(program).collect::<Result<_>>()?,
            below: below(&image),
            name: image,
            tag,
        })
    };
    let wheel = |(image, path): (String, String)| {
        let (wheel, file) = path.split_once('/').with_context(|| {
            format!("{}/{METADATA}: `{path}` is no WHEEL/FILE", folder.display())
        })?;
        let list = folder.join(wheels::LIST);
        let pinned = wheels::load(&list)?
            .into_iter()
            .find(|one| one.name == wheel);
        let pinned = pinned.with_context(|| format!("{} does not pin {wheel}", list.display()))?;
        Ok(AddonImage {
            below: below(&image),
            name: image,
            programs: vec![AddonProgram::Wheel {
                path: format!("{name}/{file}"),
            }],
            tag: format!("v{}", pinned.version),
        })
    };
    let ours = |(image, package): (String, String)| {
        Ok(AddonImage {
            name: image,
            programs: vec![AddonProgram::Ours { package }],
            tag: chart_version(&read("Chart.yaml")?)?,
            below: Below::ours(folder, name),
        })
    };
    metadata.check(folder)?;
    let definition = |path: &String| {
        let (module, _) = required(path)?;
        Ok(ModuleFile {
            path: Path::new(path).strip_prefix(&module)?.to_owned(),
            module,
        })
    };
    Ok(Addon {
        name: name.to_owned(),
        folder: folder.to_owned(),
        definitions: metadata
            .definitions
            .iter()
            .map(definition)
            .collect::<Result<_>>()?,
        images: metadata
            .images
            .into_iter()
            .map(image)
            .chain(metadata.wheels.into_iter().map(wheel))
            .chain(metadata.ours.into_iter().map(ours))
            .collect::<Result<_>>()?,
    })
}

/// Of what is ours it is the version of the chart, which goes up with each change of either.
fn chart_version(chart: &str) -> Result<String> {
    #[derive(Deserialize)]
    struct Chart {
        version: String,
    }
    let chart: Chart = serde_saphyr::from_str(chart).context("Chart.yaml")?;
    Ok(format!("v{}", chart.version))
}

/// The required module that this path is in, and its version: the one with the longest name.
fn module_of(modules: &str, path: &str) -> Option<(String, String)> {
    let parts: Vec<&str> = path.split('/').collect();
    let mut prefixes = (1..=parts.len())
        .rev()
        .map(|count| parts[..count].join("/"));
    prefixes.find_map(|module| {
        let version = required_version(modules, &module)?.to_owned();
        Some((module, version))
    })
}

impl AddonProgram {
    pub fn go_program(&self) -> Option<GoProgram<'_>> {
        match self {
            Self::Go {
                package,
                module,
                path,
            } => Some(GoProgram {
                module,
                package,
                name: path,
                links: &[],
            }),
            Self::Wheel { .. } | Self::Ours { .. } => None,
        }
    }

    /// The crate, if it is ours.
    pub fn ours(&self) -> Option<&str> {
        match self {
            Self::Ours { package } => Some(package),
            Self::Go { .. } | Self::Wheel { .. } => None,
        }
    }

    pub fn path(&self) -> &str {
        match self {
            Self::Go { path, .. } | Self::Wheel { path } => path,
            Self::Ours { package } => package,
        }
    }

    /// What it is called in its image.
    pub fn file_name(&self) -> &str {
        self.path().rsplit('/').next().unwrap_or_default()
    }
}

impl Addon {
    /// Of the wheels that it takes files from.
    pub fn wheels(&self) -> Option<PathBuf> {
        let list = self.folder.join(wheels::LIST);
        list.exists().then_some(list)
    }

    /// The recipe of its packages.
    pub fn debian(&self) -> Option<PathBuf> {
        let folder = self.folder.join(DEBIAN);
        folder.exists().then_some(folder)
    }

    /// The modules that its programs are built of.
    pub fn modules(&self) -> Option<PathBuf> {
        let list = self.folder.join("go/go.mod");
        list.exists().then_some(list)
    }
}

impl AddonImage {
    fn repository(&self) -> String {
        format!("addons/{}", self.name)
    }

    /// For the registry; the layer with its programs has the image's name.
    pub fn image(&self) -> Image {
        let mut layers = vec![self.layer()];
        let mut config = json!({"Entrypoint": [format!("/{}", self.programs[0].file_name())]});
        // First, as in the other images: a node may have it already.
        match &self.below {
            Below::Nothing => {}
            Below::Nettools => layers.insert(0, NETTOOLS.to_owned()),
            Below::Debian(addon) => layers.insert(0, debian_layer(addon)),
        }
        if self.below != Below::Nothing {
            config["Env"] = json!([NETTOOLS_PATH]);
        }
        Image {
            repository: self.repository(),
            tag: self.tag.clone(),
            layers,
            config,
        }
    }

    pub fn layer(&self) -> String {
        self.repository()
    }

    fn reference(&self) -> String {
        format!("{REGISTRY}/{}:{}", self.repository(), self.tag)
    }
}

/// The layer with the packages of an addon.
pub fn debian_layer(addon: &str) -> String {
    format!("addons/{addon}-{DEBIAN}")
}

/// The charts as they are on the box, each tried with the Helm of this build: a chart that does not render, or names an image
/// that is not on the stick, would fail at a site.
pub fn lay_out(work: &Work, programs: &Path, addons: &[Addon]) -> Result<()> {
    let home = work.path("home");
    for addon in addons {
        let chart = work.path(&addon.name);
        copy_chart(&addon.folder, &chart)?;
        add_definitions(work, programs, addon, &chart)?;
        let rendered = Program::new(programs.join("helm"), &work.log)
            .env("HOME", home.display().to_string())
            .args(["template", &addon.name])
            .arg(&chart)
            .read()?;
        let known: Vec<String> = addon.images.iter().map(AddonImage::reference).collect();
        check_images_in(&rendered, &addon.folder, &known)?;
    }
    if home.exists() {
        remove_tree(&home)?;
    }
    Ok(())
}

/// Helm installs what is in `crds` first and never removes it: with a definition every object of its kind would go.
fn add_definitions(work: &Work, programs: &Path, addon: &Addon, chart: &Path) -> Result<()> {
    for file in &addon.definitions {
        let module = module_folder(&work.log, &addon.folder.join("go"), &file.module)?;
        let folder = chart.join("crds");
        fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
        let from = module.join(&file.path);
        let name = file.path.file_name().context("a file has a name")?;
        // Modules are read-only where Go keeps them, and so would a copy be.
        let text = if from.is_dir() {
            Program::new(programs.join("kubectl"), &work.log)
                .arg("kustomize")
                .arg(&from)
                .read()?
        } else {
            fs::read_to_string(&from).with_context(|| format!("reading {}", from.display()))?
        };
        fs::write(
            folder.join(name).with_extension("yaml"),
            with_wide_numbers(&text),
        )
        .with_context(|| format!("writing {}", folder.display()))?;
    }
    Ok(())
}

/// Upstream's generator calls Go's `uint32` an `int32` with a maximum that is none, and the API server then refuses each object that has it.
fn with_wide_numbers(definitions: &str) -> String {
    let mut lines: Vec<String> = definitions.lines().map(str::to_owned).collect();
    for at in 1..lines.len() {
        let maximum = lines[at].trim_start().strip_prefix("maximum: ");
        let maximum = maximum.and_then(|number| number.parse::<i64>().ok());
        if maximum.is_some_and(|number| i32::try_from(number).is_err()) {
            lines[at - 1] = lines[at - 1].replace("format: int32", "format: int64");
        }
    }
    lines.join("\n") + "\n"
}

/// A folder with all that is in it, but for what the build alone needs.
pub fn copy_chart(from: &Path, to: &Path) -> Result<()> {
    copy_folder(from, to, &BUILD_ONLY)
}

/// A folder with all that is in it, but for files and folders of these names.
pub fn copy_folder(from: &Path, to: &Path, without: &[&str]) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("making {}", to.display()))?;
    for entry in fs::read_dir(from).with_context(|| format!("listing {}", from.display()))? {
        let (path, name) = entry.map(|entry| (entry.path(), entry.file_name()))?;
        if without.iter().any(|only| name == *only) {
            continue;
        }
        let target = to.join(&name);
        if path.is_dir() {
            copy_folder(&path, &target, without)?;
        } else {
            fs::copy(&path, &target).with_context(|| format!("copying {}", path.display()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn folder(metadata: &str) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("go")).unwrap();
        fs::create_dir_all(dir.path().join("templates")).unwrap();
        for (file, text) in [
            ("addon.yaml", metadata),
            (
                "Chart.yaml",
                "apiVersion: v2\nname: dummy\nversion: 0.1.0\n",
            ),
            ("templates/a.yaml", "a: b\n"),
            (wheels::LIST, "tool==1.2.3 --hash=sha256:0\n"),
            (
                "go/go.mod",
                "module dummy\n\nrequire (\n\texample.org/a v1.0.0\n\texample.org/a/b v2.0.0 // indirect\n)\n",
            ),
        ] {
            fs::write(dir.path().join(file), text).unwrap();
        }
        dir
    }

    #[test]
    fn a_folder_with_a_metadata_file_is_an_addon() {
        let dir = folder(
            "images:\n  one: [example.org/a/cmd/one, example.org/a/b/cmd/three]\n  two: [example.org/a/b/cmd/two]\ndefinitions: [example.org/a/b/c/kinds.yaml]\n",
        );
        let addon = load_addon(dir.path(), "dummy").unwrap();
        let references: Vec<_> = addon.images.iter().map(AddonImage::reference).collect();
        assert_eq!(
            references,
            [
                "registry.firstlight.internal/addons/one:v1.0.0",
                "registry.firstlight.internal/addons/two:v2.0.0"
            ]
        );
        let programs: Vec<_> = addon.images[0]
            .programs
            .iter()
            .map(|program| (program.path(), program.file_name()))
            .collect();
        assert_eq!(programs, [("one/one", "one"), ("one/three", "three")]);
        let program = addon.images[0].programs[0].go_program().unwrap();
        assert_eq!(program.module, "../addons/dummy/go");
        let kinds = ModuleFile {
            module: "example.org/a/b".to_owned(),
            path: "c/kinds.yaml".into(),
        };
        assert_eq!(addon.definitions, [kinds]);
        let dir = folder("wheels: {three: tool/tool/bin/run}\nnettools: [three]\n");
        let addon = load_addon(dir.path(), "dummy").unwrap();
        let image = &addon.images[0];
        assert!(image.reference().ends_with("addons/three:v1.2.3"));
        let program = &image.programs[0];
        assert_eq!(
            (program.path(), program.file_name()),
            ("dummy/tool/bin/run", "run")
        );
        assert!(program.go_program().is_none() && image.image().layers.len() == 2);
        let dir = folder("ours: {four: firstlight-dummy}\n");
        let alone = load_addon(dir.path(), "dummy").unwrap();
        assert_eq!(alone.images[0].image().layers, ["addons/four"]);
        fs::create_dir(dir.path().join(DEBIAN)).unwrap();
        let addon = load_addon(dir.path(), "dummy").unwrap();
        let image = &addon.images[0];
        assert!(image.reference().ends_with("addons/four:v0.1.0"));
        assert_eq!(image.image().layers, ["addons/dummy-debian", "addons/four"]);
        let chart = tempfile::tempdir().unwrap();
        let chart = chart.path();
        copy_chart(dir.path(), chart).unwrap();
        assert!(chart.join("templates/a.yaml").exists());
        for only in BUILD_ONLY {
            assert!(!chart.join(only).exists(), "{only}");
        }
    }

    #[test]
    fn a_maximum_that_does_not_fit_into_its_format_widens_it() {
        let narrow = "  a:\n    format: int32\n    maximum: 65535\n  b:\n    format: int32\n    maximum: 4294967295\n";
        let wide = narrow.replacen("b:\n    format: int32", "b:\n    format: int64", 1);
        assert_eq!(with_wide_numbers(narrow), wide);
        assert_eq!(with_wide_numbers(&wide), wide);
    }

    #[test]
    fn a_package_of_an_unknown_module_is_refused_with_what_to_do() {
        for (metadata, part) in [
            (
                "images: {one: [example.net/c]}\n",
                "go get -tool example.net/c",
            ),
            (
                "definitions: [example.net/c/kinds.yaml]\n",
                "example.net/c/kinds.yaml",
            ),
            ("images: {one: []}\n", "has no program"),
            ("wheels: {one: tool}\n", "`tool` is no WHEEL/FILE"),
            ("wheels: {one: other/bin/other}\n", "does not pin other"),
            ("nettools: [two]\n", "names two"),
            ("image: {one: [example.org/a]}\n", METADATA),
        ] {
            let dir = folder(metadata);
            let error = load_addon(dir.path(), "dummy").unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
