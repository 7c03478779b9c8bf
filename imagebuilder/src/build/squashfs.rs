//! Layers of a slot: read-only squashfs images, each with a hash tree behind it. A step that makes a layer leaves `layer.sqfs`, its digest
//! and the root of its tree.

use std::fs::{self, File};
use std::io::{BufReader, Read as _, Write as _};
use std::path::Path;

use anyhow::{Context, Result};
use firstlight_api::digest::Sha256Digest;
use firstlight_api::verity::{BLOCK, Tree};

use super::cache::{Output, Work, digest_file};
use super::settings::SOURCE_DATE_EPOCH;
use super::tools::Tools;

const IMAGE: &str = "layer.sqfs";
const DIGEST: &str = "layer.sha256";
const ROOT: &str = "layer.root";

/// How the content of a layer is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// zstd, for programs and libraries. 128 KiB blocks: a page fault in a big binary unpacks no more than that.
    Zstd,
    /// As it is: the files are compressed already, and a server sends them straight from the page cache.
    Stored,
}

impl Packing {
    fn options(self) -> &'static [&'static str] {
        match self {
            Self::Zstd => &["-comp", "zstd", "-Xcompression-level", "15", "-b", "128K"],
            Self::Stored => &["-comp", "zstd", "-b", "1M", "-noD", "-noF"],
        }
    }
}

/// Whose files are in a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    Root,
    /// The user that the registry runs as (`overlays/box`, registry.yaml): it adds to folders of this layer.
    Registry,
}

impl Owner {
    fn options(self) -> &'static [&'static str] {
        match self {
            Self::Root => &["-all-root"],
            Self::Registry => &["-force-uid", "65532", "-force-gid", "65532"],
        }
    }
}

/// A finished layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layer {
    pub name: &'static str,
    pub path: std::path::PathBuf,
    pub bytes: u64,
    pub sha256: Sha256Digest,
    /// Of its hash tree.
    pub root: Sha256Digest,
}

/// The layer that a step has left.
pub fn load_layer(name: &'static str, output: &Output) -> Result<Layer> {
    let path = output.path(IMAGE);
    let bytes = fs::metadata(&path)
        .with_context(|| format!("reading {}", path.display()))?
        .len();
    let digest = |file: &str| {
        let text = fs::read_to_string(output.path(file))
            .with_context(|| format!("reading the digest of layer {name}"))?;
        Sha256Digest::parse(&text).with_context(|| format!("the digest of layer {name} is none"))
    };
    Ok(Layer {
        name,
        path,
        bytes,
        sha256: digest(DIGEST)?,
        root: digest(ROOT)?,
    })
}

/// Makes a layer from the tar of a Debian tree, owners and capabilities kept, without the given paths.
pub fn pack_tar(work: &Work, tools: &Tools, tar: &Path, without: &[&str]) -> Result<()> {
    tools
        .program("usr/bin/sqfstar", &work.log)
        .env("SOURCE_DATE_EPOCH", SOURCE_DATE_EPOCH.to_string())
        .args(["-no-progress", "-reproducible"])
        .args(Packing::Zstd.options())
        .arg(work.path(IMAGE))
        .args(without)
        .input(tar)
        .run()?;
    finish(work)
}

/// Makes a layer from a folder; everything in it belongs to one user and carries the build's time.
pub fn pack_folder(
    work: &Work,
    tools: &Tools,
    folder: &Path,
    packing: Packing,
    owner: Owner,
) -> Result<()> {
    let time = SOURCE_DATE_EPOCH.to_string();
    tools
        .program("usr/bin/mksquashfs", &work.log)
        .arg(folder)
        .arg(work.path(IMAGE))
        .args([
            "-noappend",
            "-no-progress",
            "-reproducible",
            "-no-xattrs",
            "-mkfs-time",
            &time,
            "-all-time",
            &time,
        ])
        .args(owner.options())
        .args(packing.options())
        .run()?;
    finish(work)
}

fn finish(work: &Work) -> Result<()> {
    let root = add_tree(&work.path(IMAGE))?;
    let digest = digest_file(&work.path(IMAGE))?;
    fs::write(work.path(ROOT), root.to_string())
        .and_then(|()| fs::write(work.path(DIGEST), digest))
        .context("writing the digest of a layer")
}

/// Appends the hash tree by which the box checks each block when it reads it; returns its root.
pub fn add_tree(image: &Path) -> Result<Sha256Digest> {
    let what = || format!("adding the hash tree of {}", image.display());
    let mut file = File::options()
        .read(true)
        .append(true)
        .open(image)
        .with_context(what)?;
    let bytes = file.metadata()?.len();
    file.set_len(bytes.next_multiple_of(BLOCK as u64))
        .with_context(what)?;
    let mut tree = Tree::default();
    let mut block = [0; BLOCK];
    let mut reader = BufReader::with_capacity(1 << 20, &file);
    for _ in 0..bytes.div_ceil(BLOCK as u64) {
        reader.read_exact(&mut block).with_context(what)?;
        tree.push(&block);
    }
    let (tree, root) = tree.finish();
    file.write_all(&tree).with_context(what)?;
    Ok(root)
}
