//! The one initramfs: `/init`, the kernel modules and firmware that servers need, and an index of the modules.
//!
//! Decides from the lists in `rootfs/ramdisk` ([`Recipe`]) and unpacked Debian packages. Must not: run a program (no
//! depmod, no cpio), or depend on the time or the order of directories: same inputs, same bytes.
//!
//! The index `lib/modules/index` replaces depmod's files. PID 1 (crate `firstlight-ramdisk`, `modules/index.rs`) reads it:
//! `firstlight-modules 1`, then `m NAME PATH DEPENDENCIES-IN-ORDER…`, `a PATTERN NAME`, `l MODE NAME`.

pub mod cpio;
pub mod modinfo;
pub mod recipe;
pub mod select;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

pub use recipe::{Recipe, load_recipe};

use cpio::{Entries, Entry};
use modinfo::module_name;
use select::{Firmware, Modules};

/// zstd's level for the archive; made once, read at each boot.
const LEVEL: i32 = 19;

/// What the initramfs is made from.
#[derive(Clone, Copy, Debug)]
pub struct InitramfsSpec<'a> {
    /// The static binary of crate `firstlight-ramdisk`.
    pub init: &'a Path,
    /// An unpacked `linux-image` package.
    pub kernel: &'a Path,
    /// Unpacked firmware packages.
    pub firmware: &'a [PathBuf],
    pub recipe: &'a Recipe,
}

/// What went in, for the table at the end of a build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InitramfsSummary {
    pub kernel_version: String,
    pub modules: usize,
    pub firmware: usize,
    /// Named by modules, but in none of the packages.
    pub missing_firmware: BTreeSet<String>,
    pub unpacked_bytes: u64,
    pub bytes: u64,
}

/// Writes the initramfs to `output`.
pub fn build_initramfs(spec: InitramfsSpec<'_>, output: &Path) -> Result<InitramfsSummary> {
    let tree = select::load_kernel_tree(spec.kernel)?;
    let modules = select::select_modules(&tree, spec.recipe)?;
    let (firmware, missing_firmware) = select::select_firmware(&modules, spec.firmware)?;
    let init = fs::read(spec.init).with_context(|| format!("reading {}", spec.init.display()))?;
    let entries = lay_out(init, &tree.version, &modules, &firmware, spec.recipe)?;

    let mut archive = Vec::new();
    cpio::write_archive(&entries, &mut archive)?;
    let packed = compress(&archive).context("compressing the initramfs")?;
    fs::write(output, &packed).with_context(|| format!("writing {}", output.display()))?;
    Ok(InitramfsSummary {
        kernel_version: tree.version,
        modules: modules.len(),
        firmware: firmware.len(),
        missing_firmware,
        unpacked_bytes: archive.len() as u64,
        bytes: packed.len() as u64,
    })
}

fn compress(archive: &[u8]) -> Result<Vec<u8>> {
    let mut encoder = zstd::Encoder::new(Vec::new(), LEVEL)?;
    encoder.set_pledged_src_size(Some(archive.len() as u64))?;
    encoder.include_contentsize(true)?;
    encoder.write_all(archive)?;
    Ok(encoder.finish()?)
}

fn lay_out(
    init: Vec<u8>,
    version: &str,
    modules: &Modules,
    firmware: &Firmware,
    recipe: &Recipe,
) -> Result<Entries> {
    let mut entries = Entries::new();
    entries.insert(
        "init".to_owned(),
        Entry::File {
            mode: 0o755,
            data: init,
        },
    );
    // The kernel's own requests (file systems, ciphers, character sets) come through this path.
    entries.insert(
        "sbin/modprobe".to_owned(),
        Entry::Symlink {
            target: "../init".to_owned(),
        },
    );
    let root = format!("lib/modules/{version}");
    let unpacked: BTreeSet<String> = recipe
        .unpacked
        .iter()
        .map(|name| module_name(name))
        .collect();
    for (name, module) in modules {
        let plain = unpacked.contains(name);
        let data = if plain { &module.plain } else { &module.stored };
        entries.insert(
            format!("{root}/{}", path_in_archive(&module.path, plain)),
            file(data.clone()),
        );
    }
    let index = format_index(version, modules, recipe)?;
    entries.insert("lib/modules/index".to_owned(), file(index.into_bytes()));
    for (name, path) in firmware {
        let entry = if path.is_symlink() {
            Entry::Symlink {
                target: fs::read_link(path)?.to_string_lossy().into_owned(),
            }
        } else {
            file(fs::read(path).with_context(|| format!("reading {}", path.display()))?)
        };
        entries.insert(format!("lib/firmware/{name}"), entry);
    }
    Ok(entries)
}

fn file(data: Vec<u8>) -> Entry {
    Entry::File { mode: 0o644, data }
}

fn path_in_archive(path: &str, plain: bool) -> &str {
    if plain {
        path.trim_end_matches(".xz")
    } else {
        path
    }
}

/// The text that PID 1 reads instead of depmod's files.
fn format_index(version: &str, modules: &Modules, recipe: &Recipe) -> Result<String> {
    let unpacked: BTreeSet<String> = recipe
        .unpacked
        .iter()
        .map(|name| module_name(name))
        .collect();
    let mut text = String::from("firstlight-modules 1\n");
    for (name, module) in modules {
        let path = path_in_archive(&module.path, unpacked.contains(name));
        write!(text, "m {name} {version}/{path}")?;
        let mut order = Vec::new();
        load_order(name, modules, &mut order);
        for dependency in order
            .iter()
            .filter(|dependency| dependency.as_str() != name)
        {
            write!(text, " {dependency}")?;
        }
        text.push('\n');
    }
    for (name, module) in modules {
        for alias in &module.info.aliases {
            writeln!(text, "a {alias} {name}")?;
        }
    }
    for (mode, names) in &recipe.load {
        for name in names
            .iter()
            .map(|name| module_name(name))
            .filter(|name| modules.contains_key(name))
        {
            writeln!(text, "l {mode} {name}")?;
        }
    }
    Ok(text)
}

/// Dependencies first, each once, `name` last. A circle (there is none among kernel modules) ends where it began.
fn load_order(name: &str, modules: &Modules, order: &mut Vec<String>) {
    fn visit(name: &str, modules: &Modules, seen: &mut BTreeSet<String>, order: &mut Vec<String>) {
        let Some(module) = modules.get(name) else {
            return;
        };
        if !seen.insert(name.to_owned()) {
            return;
        }
        for dependency in module
            .info
            .soft
            .iter()
            .flat_map(|soft| providers(soft, modules))
        {
            visit(&dependency, modules, seen, order);
        }
        for dependency in &module.info.depends {
            visit(dependency, modules, seen, order);
        }
        order.push(name.to_owned());
    }
    visit(name, modules, &mut BTreeSet::new(), order);
}

/// The modules that a soft dependency means: by name, or by alias (`crypto-crc32c` has two).
fn providers(soft: &str, modules: &Modules) -> Vec<String> {
    let name = module_name(soft);
    let provides = |entry: &(&String, &select::Module)| {
        *entry.0 == name || entry.1.info.aliases.iter().any(|alias| alias == soft)
    };
    modules
        .iter()
        .filter(provides)
        .map(|(name, _)| name.clone())
        .collect()
}
