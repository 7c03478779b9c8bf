//! File system trees of Debian 13, made by mmdebstrap as root or as an ordinary user with user namespaces.
//!
//! A tree is described by a folder below `rootfs/`: `packages`, and if wanted `exclude` (dpkg's path filters) and
//! `customize` (a script that runs in the finished tree). The result is a tar file with fixed times.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek as _, SeekFrom};
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::cache::Work;
use super::command::Program;
use super::settings::{SOURCE_DATE_EPOCH, Settings};
use crate::initramfs::recipe::parse_list;

pub const SUITE: &str = "trixie";
pub const COMPONENTS: &str = "main,non-free-firmware";

/// How much of Debian is in the tree besides the named packages; mmdebstrap's variants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// Packages are unpacked only: no script of theirs runs.
    Extract,
    /// Packages marked essential, no apt.
    Essential,
    /// Essential packages, those of priority required, and apt.
    Minbase,
}

impl Variant {
    fn name(self) -> &'static str {
        match self {
            Self::Extract => "extract",
            Self::Essential => "essential",
            Self::Minbase => "minbase",
        }
    }

    /// The hook that runs last: mmdebstrap has no customize stage for trees that are unpacked only.
    fn last_hook(self) -> &'static str {
        match self {
            Self::Extract => "--extract-hook",
            Self::Essential | Self::Minbase => "--customize-hook",
        }
    }
}

/// One tree to make.
#[derive(Clone, Debug)]
pub struct TreeSpec {
    pub variant: Variant,
    /// Folder with `packages`, `exclude`, `customize`.
    pub recipe: PathBuf,
    /// Files that are in the tree before packages are configured.
    pub overlay: Option<Overlay>,
    /// Keep the kernel package from making an initramfs that nobody starts.
    pub initramfs: Initramfs,
}

/// A folder of files, and the path in the tree where its content goes (`.` for the root).
#[derive(Clone, Debug)]
pub struct Overlay {
    pub folder: PathBuf,
    pub at: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Initramfs {
    Make,
    Suppress,
}

/// Diverts `update-initramfs` before the kernel comes; the `customize` script puts it back.
const SUPPRESS_INITRAMFS: &str = r#"chroot "$1" dpkg-divert --local --rename --add /usr/sbin/update-initramfs; ln -s /bin/true "$1/usr/sbin/update-initramfs""#;

/// Makes the tree `spec` as `NAME.tar` in the folder of the step.
pub fn bootstrap(work: &Work, settings: &Settings, spec: &TreeSpec, name: &str) -> Result<()> {
    bootstrap_with(work, settings, spec, name, &[])
}

/// Like [`bootstrap`], with hooks of mmdebstrap that run when all packages are there.
pub fn bootstrap_with(
    work: &Work,
    settings: &Settings,
    spec: &TreeSpec,
    name: &str,
    hooks: &[String],
) -> Result<()> {
    let packages = load_list(&spec.recipe.join("packages"))?;
    ensure!(
        !packages.is_empty(),
        "{}/packages names no package",
        spec.recipe.display()
    );
    let mut program = Program::new("mmdebstrap", &work.log)
        .env("SOURCE_DATE_EPOCH", SOURCE_DATE_EPOCH.to_string())
        .arg("--mode=auto")
        .arg(format!("--variant={}", spec.variant.name()))
        .arg(format!("--components={COMPONENTS}"))
        .arg(format!("--include={}", packages.join(",")));
    let exclude = spec.recipe.join("exclude");
    if exclude.exists() {
        program = program.args(load_list(&exclude)?.iter().map(|line| path_filter(line)));
    }
    if spec.initramfs == Initramfs::Suppress {
        program = program.arg(format!("--essential-hook={SUPPRESS_INITRAMFS}"));
    }
    if let Some(overlay) = &spec.overlay {
        let archive = work.path("overlay.tar");
        pack_overlay(&overlay.folder, overlay.at, &archive)?;
        program = program.arg(format!("--essential-hook=tar-in {} /", archive.display()));
    }
    let customize = spec.recipe.join("customize");
    if customize.exists() {
        program = program.arg(format!("--customize-hook={}", chroot_hook(&customize)?));
    }
    program = program.args(
        hooks
            .iter()
            .map(|hook| format!("{}={hook}", spec.variant.last_hook())),
    );
    program
        .arg(SUITE)
        .arg(work.path(&format!("{name}.tar")))
        .args(sources(settings.mirror.as_deref()))
        .run()?;
    if spec.overlay.is_some() {
        fs::remove_file(work.path("overlay.tar"))?;
    }
    Ok(())
}

/// The script travels inside the command: an ordinary user's home may be closed to the user namespace.
pub fn chroot_hook(script: &Path) -> Result<String> {
    let text =
        fs::read_to_string(script).with_context(|| format!("reading {}", script.display()))?;
    Ok(format!(
        "chroot \"$1\" env LC_ALL=C.UTF-8 sh -eu <<'END-OF-CUSTOMIZE'\n{text}\nEND-OF-CUSTOMIZE"
    ))
}

fn path_filter(line: &str) -> String {
    match line.strip_prefix('+') {
        Some(path) => format!("--dpkgopt=path-include={path}"),
        None => format!("--dpkgopt=path-exclude={line}"),
    }
}

/// Lines of apt's sources; none for mmdebstrap's own, which has updates and the security archive too. Elsewhere the
/// security archive lies beside the main one: `…/debian-security` for `…/debian`.
pub fn sources(mirror: Option<&str>) -> Vec<String> {
    let Some(mirror) = mirror else {
        return Vec::new();
    };
    let components = COMPONENTS.replace(',', " ");
    let security = security_mirror(mirror);
    vec![
        format!("deb {mirror} {SUITE} {components}"),
        format!("deb {mirror} {SUITE}-updates {components}"),
        format!("deb {security} {SUITE}-security {components}"),
    ]
}

fn security_mirror(mirror: &str) -> String {
    let parts: Vec<&str> = mirror
        .split('/')
        .map(|part| {
            if part == "debian" {
                "debian-security"
            } else {
                part
            }
        })
        .collect();
    parts.join("/")
}

/// Entries of a list: one a line, `#` begins a comment.
pub fn load_list(path: &Path) -> Result<Vec<String>> {
    let text = fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    Ok(parse_list(&text))
}

/// Packs a folder as root's files at the path `at` of a tree, in the order of the names.
pub fn pack_overlay(folder: &Path, at: &str, archive: &Path) -> Result<()> {
    let mut tar = tar::Builder::new(
        File::create(archive).with_context(|| format!("creating {}", archive.display()))?,
    );
    tar.follow_symlinks(false);
    append_tree(&mut tar, folder, Path::new(at))?;
    tar.finish().context("finishing the overlay archive")
}

/// Adds a folder as root's files to the tar of a tree, in place.
pub fn add_to_tree(archive: &Path, folder: &Path) -> Result<()> {
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(archive)
        .with_context(|| format!("opening {}", archive.display()))?;
    let end = end_of_entries(&file).with_context(|| format!("reading {}", archive.display()))?;
    file.seek(SeekFrom::Start(end))?;
    file.set_len(end)?;
    let mut tar = tar::Builder::new(file);
    tar.follow_symlinks(false);
    append_tree(&mut tar, folder, Path::new("."))?;
    tar.finish()
        .with_context(|| format!("adding files to {}", archive.display()))
}

/// Where the zeros begin that end a tar.
fn end_of_entries(file: &File) -> Result<u64> {
    let mut tar = tar::Archive::new(file);
    let mut end = 0;
    for entry in tar.entries_with_seek()? {
        let entry = entry?;
        end = entry.raw_file_position() + entry.size().next_multiple_of(512);
    }
    Ok(end)
}

fn append_tree(tar: &mut tar::Builder<File>, from: &Path, name: &Path) -> Result<()> {
    let mut entries: Vec<_> = fs::read_dir(from)
        .with_context(|| format!("reading {}", from.display()))?
        .collect::<Result<_, _>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let (path, name) = (entry.path(), name.join(entry.file_name()));
        let data = entry.metadata()?;
        let mut header = tar::Header::new_gnu();
        header.set_metadata_in_mode(&data, tar::HeaderMode::Deterministic);
        header.set_mtime(SOURCE_DATE_EPOCH);
        if data.is_symlink() {
            header.set_size(0);
            tar.append_link(&mut header, &name, fs::read_link(&path)?)?;
        } else if data.is_dir() {
            header.set_size(0);
            tar.append_data(&mut header, name.join(""), std::io::empty())?;
            append_tree(tar, &path, &name)?;
        } else {
            tar.append_data(&mut header, &name, File::open(&path)?)?;
        }
    }
    Ok(())
}

/// Unpacks the parts of a tree's tar below the given prefixes (all of it for `""`) as files of the user who builds.
pub fn unpack(archive: &Path, prefixes: &[&str], to: &Path) -> Result<()> {
    let mut tar = tar::Archive::new(
        File::open(archive).with_context(|| format!("opening {}", archive.display()))?,
    );
    tar.set_preserve_mtime(false);
    tar.set_overwrite(true);
    for entry in tar.entries()? {
        let mut entry = entry?;
        let path = entry.path()?.into_owned();
        let relative = below_root(&path);
        let wanted = prefixes.iter().any(|prefix| relative.starts_with(prefix));
        let device = matches!(
            entry.header().entry_type(),
            tar::EntryType::Char | tar::EntryType::Block | tar::EntryType::Fifo
        );
        if wanted && !device {
            entry
                .unpack_in(to)
                .with_context(|| format!("unpacking {}", relative.display()))?;
        }
    }
    Ok(())
}

/// The path without `./` or `/` in front.
fn below_root(path: &Path) -> PathBuf {
    path.components()
        .filter(|part| matches!(part, Component::Normal(_)))
        .collect()
}

/// One file out of a tree's tar.
pub fn read_member(archive: &Path, member: &str) -> Result<Vec<u8>> {
    let mut tar = tar::Archive::new(
        File::open(archive).with_context(|| format!("opening {}", archive.display()))?,
    );
    for entry in tar.entries()? {
        let mut entry = entry?;
        if below_root(&entry.path()?) == Path::new(member) {
            let mut data = Vec::new();
            entry.read_to_end(&mut data)?;
            return Ok(data);
        }
    }
    anyhow::bail!("{} holds no {member}", archive.display())
}

/// Installed packages of a dpkg status file: name and version.
pub fn installed(status: &str) -> impl Iterator<Item = (&str, &str)> {
    status.split("\n\n").filter_map(|paragraph| {
        let field = |name: &str| {
            paragraph
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
        };
        // `hold` stands before it as well as `install`.
        let is_installed = field("Status")?.ends_with(" ok installed");
        is_installed.then_some((field("Package")?, field("Version")?))
    })
}

#[cfg(test)]
mod tests;
