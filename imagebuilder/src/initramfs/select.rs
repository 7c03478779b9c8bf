//! Which modules and firmware go in: the recipe's choice, and everything that it depends on.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::modinfo::{ModInfo, module_name, read_modinfo, unpack_module};
use super::recipe::{Recipe, stem};

/// The modules of a kernel package, and what is built into the kernel.
pub struct KernelTree {
    /// `…/lib/modules/VERSION`
    pub root: PathBuf,
    pub version: String,
    /// Module name to path below `root`.
    paths: BTreeMap<String, String>,
    builtin: BTreeSet<String>,
}

/// A module that goes in.
pub struct Module {
    /// Path below the tree's root as found, e.g. `kernel/fs/ext4/ext4.ko.xz`.
    pub path: String,
    pub stored: Vec<u8>,
    pub plain: Vec<u8>,
    pub info: ModInfo,
}

pub type Modules = BTreeMap<String, Module>;

/// Finds the one kernel in an unpacked `linux-image` package.
pub fn load_kernel_tree(package: &Path) -> Result<KernelTree> {
    let mut found = Vec::new();
    for base in ["usr/lib/modules", "lib/modules"] {
        if let Ok(entries) = fs::read_dir(package.join(base)) {
            for entry in entries {
                let path = entry?.path();
                if path.join("kernel").is_dir() && !found.contains(&fs::canonicalize(&path)?) {
                    found.push(fs::canonicalize(&path)?);
                }
            }
        }
    }
    let [root] = <[PathBuf; 1]>::try_from(found).map_err(|found| {
        anyhow::anyhow!(
            "{}: {} kernels in usr/lib/modules; unpack exactly one linux-image package",
            package.display(),
            found.len()
        )
    })?;
    let version = root
        .file_name()
        .context("a kernel without version")?
        .to_string_lossy()
        .into_owned();
    let mut paths = BTreeMap::new();
    collect(&root, &root.join("kernel"), &mut paths)?;
    let builtin =
        fs::read_to_string(root.join("modules.builtin")).context("reading modules.builtin")?;
    let builtin = builtin.lines().filter_map(name_of).collect();
    Ok(KernelTree {
        root,
        version,
        paths,
        builtin,
    })
}

fn collect(root: &Path, dir: &Path, paths: &mut BTreeMap<String, String>) -> Result<()> {
    for entry in fs::read_dir(dir).with_context(|| format!("listing {}", dir.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            collect(root, &path, paths)?;
        } else if let Ok(relative) = path.strip_prefix(root) {
            let relative = relative.to_string_lossy().into_owned();
            if let Some(name) = name_of(&relative) {
                paths.insert(name, relative);
            }
        }
    }
    Ok(())
}

/// `kernel/fs/fat/vfat.ko.xz` is `vfat`.
fn name_of(path: &str) -> Option<String> {
    let file = path.rsplit('/').next()?;
    file.split_once(".ko").map(|(name, _)| module_name(name))
}

/// Reads the modules that the recipe names and, repeatedly, those that they need.
pub fn select_modules(tree: &KernelTree, recipe: &Recipe) -> Result<Modules> {
    let stems: Vec<&str> = tree.paths.values().map(|path| stem(path)).collect();
    if let Some(pattern) = recipe.unused(&stems) {
        bail!(
            "rootfs/ramdisk/modules: `{pattern}` matches no module of kernel {}; correct or remove the line",
            tree.version
        );
    }
    let chosen = tree
        .paths
        .iter()
        .filter(|(_, path)| recipe.chooses(stem(path)));
    let mut wanted: Vec<String> = chosen.map(|(name, _)| name.clone()).collect();
    for name in recipe.named() {
        if tree.paths.contains_key(&name) {
            wanted.push(name);
        } else if !tree.builtin.contains(&name) {
            bail!(
                "rootfs/ramdisk: module `{name}` is named in a list, but kernel {} has none of that name",
                tree.version
            );
        }
    }
    let mut modules = Modules::new();
    while let Some(name) = wanted.pop() {
        if modules.contains_key(&name) || tree.builtin.contains(&name) {
            continue;
        }
        let path = tree
            .paths
            .get(&name)
            .with_context(|| format!("no module {name} in kernel {}", tree.version))?;
        let module = load_module(tree, path).with_context(|| format!("reading module {path}"))?;
        wanted.extend(module.info.depends.iter().cloned());
        wanted.extend(
            module
                .info
                .soft
                .iter()
                .map(|name| module_name(name))
                .filter(|name| tree.paths.contains_key(name)),
        );
        modules.insert(name, module);
    }
    Ok(modules)
}

fn load_module(tree: &KernelTree, path: &str) -> Result<Module> {
    let stored = fs::read(tree.root.join(path))?;
    let plain = unpack_module(&stored)?;
    let info = read_modinfo(&plain)?;
    Ok(Module {
        path: path.to_owned(),
        stored,
        plain,
        info,
    })
}

/// A firmware file or link: path below `/lib/firmware`, and where it is on this machine.
pub type Firmware = BTreeMap<String, PathBuf>;

/// The firmware that `modules` name and that is in one of the packages, with the links in between.
/// What is missing comes back too: a module may name files that nobody ships.
pub fn select_firmware(
    modules: &Modules,
    packages: &[PathBuf],
) -> Result<(Firmware, BTreeSet<String>)> {
    let mut found = Firmware::new();
    let mut missing = BTreeSet::new();
    let mut wanted: Vec<String> = modules
        .values()
        .flat_map(|module| module.info.firmware.clone())
        .collect();
    while let Some(name) = wanted.pop() {
        if found.contains_key(&name) {
            continue;
        }
        let Some(path) = find_firmware(&name, packages) else {
            missing.insert(name);
            continue;
        };
        if path.is_symlink() {
            let target = fs::read_link(&path)?;
            wanted.push(join_link(&name, &target.to_string_lossy())?);
        }
        found.insert(name, path);
    }
    Ok((found, missing))
}

fn find_firmware(name: &str, packages: &[PathBuf]) -> Option<PathBuf> {
    let places = ["usr/lib/firmware", "lib/firmware"];
    let candidates = packages
        .iter()
        .flat_map(|package| places.map(|place| package.join(place).join(name)));
    candidates
        .into_iter()
        .find(|path| path.is_symlink() || path.is_file())
}

/// Where a relative link in a firmware directory leads, still below `/lib/firmware`.
fn join_link(link: &str, target: &str) -> Result<String> {
    let mut parts: Vec<&str> = link.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            ".." if parts.pop().is_none() => {
                bail!("firmware link {link} leads out of its directory: {target}")
            }
            "" if target.starts_with('/') => bail!("firmware link {link} is absolute: {target}"),
            ".." | "." | "" => {}
            part => parts.push(part),
        }
    }
    Ok(parts.join("/"))
}
