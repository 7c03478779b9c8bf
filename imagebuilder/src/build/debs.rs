//! Debian packages of the programs that nodes run. Each is a folder of `rootfs/debs`, whose README says what is in it: a new
//! package needs no code here, unless it is made from a module whose version nobody has asked for yet ([`variables`]).

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use firstlight_artifacts::deb::Control;
use nix::fcntl::AT_FDCWD;
use nix::sys::stat::{UtimensatFlags, utimensat};
use nix::sys::time::TimeSpec;

use super::cache::{Output, Work, remove_tree};
use super::settings::{SOURCE_DATE_EPOCH, Settings};
use super::tools::Tools;
use super::versions::go_version;

/// Behind upstream's version. `1.1` is what upstream's own packages have there; what follows tells ours from them, because no
/// two packages may share name and version.
pub const REVISION: &str = "1.1+firstlight1";
/// Name of the version of Kubernetes in the folders.
pub const KUBERNETES: &str = "kubernetes";
/// Scripts of packages with a service.
const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];

/// What `${...}` in the folders stands for, by its name.
pub type Variables = BTreeMap<&'static str, String>;

/// Of the stick's own programs.
pub fn variables(settings: &Settings) -> Result<Variables> {
    let modules = [
        (KUBERNETES, "kubernetes", "k8s.io/kubernetes"),
        ("cri-tools", "cri-tools", "sigs.k8s.io/cri-tools"),
        (
            "containerd",
            "containers",
            "github.com/containerd/containerd/v2",
        ),
        (
            "cni",
            "containers",
            "github.com/containernetworking/plugins",
        ),
    ];
    let mut variables = Variables::from([("revision", REVISION.to_owned())]);
    for (name, module, dependency) in modules {
        let version = go_version(settings, module, dependency)?;
        variables.insert(name, version.trim_start_matches('v').to_owned());
    }
    Ok(variables)
}

/// The files of one folder, as they are written.
#[derive(Clone, Debug, Default)]
struct Recipe {
    control: String,
    install: String,
    links: String,
    /// File name of its service.
    unit: Option<String>,
    copyright: String,
    /// For packages with a service: name and text.
    scripts: Vec<(&'static str, String)>,
}

/// One package to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
struct DebPlan {
    /// `NAME_VERSION_ARCH.deb`
    file: String,
    control: String,
    /// Where it is among programs or in the folder, and where it goes.
    install: Vec<(String, String)>,
    /// Where it points to, and where it is.
    links: Vec<(String, String)>,
    /// Maintainer scripts: name and text.
    scripts: Vec<(&'static str, String)>,
    copyright: (String, String),
}

/// What packages are made of, and which.
#[derive(Clone, Copy, Debug)]
pub struct Made<'a> {
    pub programs: &'a [&'a Output],
    pub variables: &'a Variables,
    /// In the control file of each that is meant.
    pub of: &'a str,
}

/// Makes packages of the folders below `root` in the folder of the step.
pub fn build_debs(work: &Work, tools: &Tools, root: &Path, made: &Made<'_>) -> Result<()> {
    for folder in folders(root)? {
        let recipe = load_recipe(root, &folder);
        let done = recipe.and_then(|recipe| {
            if !recipe.control.contains(made.of) {
                return Ok(());
            }
            let plan = plan_deb(&recipe, made.variables)?;
            let places: Vec<&Path> = std::iter::once(folder.as_path())
                .chain(made.programs.iter().map(|output| output.dir()))
                .collect();
            build_deb(work, tools, &plan, &places)
        });
        done.with_context(|| format!("making the package of {}", folder.display()))?;
    }
    Ok(())
}

/// The package files that a step has left, by name.
pub fn list_debs(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut debs = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("listing {}", folder.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == "deb") {
            debs.push(path);
        }
    }
    debs.sort();
    Ok(debs)
}

fn folders(root: &Path) -> Result<Vec<PathBuf>> {
    let mut folders = Vec::new();
    for entry in fs::read_dir(root).with_context(|| format!("listing {}", root.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            folders.push(path);
        }
    }
    folders.sort();
    Ok(folders)
}

fn load_recipe(root: &Path, folder: &Path) -> Result<Recipe> {
    let read = |path: PathBuf| {
        fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))
    };
    let optional = |name: &str| {
        let path = folder.join(name);
        if path.exists() {
            read(path)
        } else {
            Ok(String::new())
        }
    };
    let mut recipe = Recipe {
        control: read(folder.join("control"))?,
        install: optional("install")?,
        links: optional("links")?,
        copyright: read(root.join("copyright"))?,
        ..Recipe::default()
    };
    for name in SCRIPTS {
        recipe.scripts.push((name, read(root.join(name))?));
    }
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.ends_with(".service") {
            recipe.unit = Some(name);
        }
    }
    Ok(recipe)
}

fn plan_deb(recipe: &Recipe, variables: &Variables) -> Result<DebPlan> {
    let text = expand(&recipe.control, variables)?;
    let control = Control::parse(&text)?;
    let (package, version) = (control.package(), control.version());
    let mut known = variables.clone();
    known.insert("package", package.to_owned());
    let mut install = pairs(&expand(&recipe.install, &known)?)?;
    let mut scripts = Vec::new();
    if let Some(unit) = &recipe.unit {
        install.push((unit.clone(), format!("usr/lib/systemd/system/{unit}")));
        known.insert("unit", unit.clone());
        for (name, text) in &recipe.scripts {
            scripts.push((*name, expand(text, &known)?));
        }
    }
    let copyright = expand(&recipe.copyright, &known)?;
    Ok(DebPlan {
        file: format!("{package}_{version}_{}.deb", control.architecture()),
        install,
        links: pairs(&expand(&recipe.links, &known)?)?,
        scripts,
        copyright: (format!("usr/share/doc/{package}/copyright"), copyright),
        control: text,
    })
}

/// Puts values in the place of `${name}`.
fn expand(template: &str, variables: &Variables) -> Result<String> {
    let mut text = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("${") {
        let (name, behind) = after.split_once('}').context("`${` without `}`")?;
        let Some(value) = variables.get(name) else {
            bail!("`${{{name}}}` stands for nothing");
        };
        text.push_str(before);
        text.push_str(value);
        rest = behind;
    }
    Ok(text + rest)
}

/// Two words a line.
fn pairs(list: &str) -> Result<Vec<(String, String)>> {
    let lines = list.lines().filter(|line| !line.trim().is_empty());
    lines
        .map(
            |line| match line.split_whitespace().collect::<Vec<_>>()[..] {
                [from, to] => Ok((from.to_owned(), to.to_owned())),
                _ => bail!("`{line}` is not a pair of paths"),
            },
        )
        .collect()
}

/// `places` are where files to install are looked for, in this order.
fn build_deb(work: &Work, tools: &Tools, plan: &DebPlan, places: &[&Path]) -> Result<()> {
    let tree = work.path("tree");
    let mut bytes = 0;
    for (from, to) in &plan.install {
        let found = places.iter().map(|place| place.join(from));
        let from = found
            .into_iter()
            .find(|path| path.is_file())
            .with_context(|| format!("nothing has made {from}"))?;
        bytes += place(&tree.join(to), |to| fs::copy(&from, to))?;
    }
    for (target, at) in &plan.links {
        place(&tree.join(at), |to| symlink(target, to))?;
    }
    place(&tree.join(&plan.copyright.0), |to| {
        fs::write(to, &plan.copyright.1)
    })?;
    let control = format!(
        "{}\nInstalled-Size: {}\n",
        plan.control.trim_end(),
        u64::div_ceil(bytes, 1024)
    );
    place(&tree.join("DEBIAN/control"), |to| fs::write(to, control))?;
    for (name, text) in &plan.scripts {
        let path = tree.join("DEBIAN").join(name);
        place(&path, |to| fs::write(to, text))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    }
    settle(&tree)?;
    tools
        .program("usr/bin/dpkg-deb", &work.log)
        .env("SOURCE_DATE_EPOCH", SOURCE_DATE_EPOCH.to_string())
        .args(["--root-owner-group", "-Zxz", "--build"])
        .arg(&tree)
        .arg(work.path(&plan.file))
        .run()?;
    remove_tree(&tree)
}

fn place<T>(path: &Path, make: impl FnOnce(&Path) -> std::io::Result<T>) -> Result<T> {
    fs::create_dir_all(path.parent().context("a file has a folder")?)
        .and_then(|()| make(path))
        .with_context(|| format!("making {}", path.display()))
}

/// Modes and times that do not depend on who builds, and when.
fn settle(path: &Path) -> Result<()> {
    let data = fs::symlink_metadata(path)?;
    if data.is_dir() {
        for entry in fs::read_dir(path)? {
            settle(&entry?.path())?;
        }
    }
    if !data.is_symlink() {
        let runs = data.is_dir() || data.permissions().mode() & 0o111 != 0;
        let mode = if runs { 0o755 } else { 0o644 };
        fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    }
    let time = TimeSpec::from_duration(Duration::from_secs(SOURCE_DATE_EPOCH));
    utimensat(
        AT_FDCWD,
        path,
        &time,
        &time,
        UtimensatFlags::NoFollowSymlink,
    )
    .with_context(|| format!("setting the time of {}", path.display()))
}

#[cfg(test)]
#[path = "debs/tests.rs"]
mod tests;
