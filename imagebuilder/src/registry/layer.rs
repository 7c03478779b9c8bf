//! One layer of a container image: a tar with fixed order, owners and times, compressed with zstd.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::thread;

use anyhow::{Context as _, Result, ensure};
use sha2::{Digest as _, Sha256};

/// containerd reads zstd since 1.5; it unpacks several times faster than gzip, and is smaller.
pub const MEDIA_TYPE: &str = "application/vnd.oci.image.layer.v1.tar+zstd";
const LEVEL: i32 = 12;

/// Something in a layer; paths have no `/` in front.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    Folder {
        to: PathBuf,
        mode: u32,
    },
    File {
        from: PathBuf,
        to: PathBuf,
        mode: u32,
    },
    Link {
        to: PathBuf,
        target: PathBuf,
    },
    /// Folders, files and links of a tar, as they are there: those with these paths, and everything below them.
    Tree {
        tar: PathBuf,
        parts: &'static [&'static str],
    },
}

/// A finished layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layer {
    /// SHA-256 of the compressed bytes, in hex.
    pub digest: String,
    pub bytes: u64,
    /// SHA-256 of the tar.
    pub diff_id: String,
}

/// Writes the layer to `out`.
pub fn write_layer(entries: &[Entry], time: u64, out: &Path) -> Result<Layer> {
    let file = File::create(out).with_context(|| format!("creating {}", out.display()))?;
    let mut encoder = zstd::Encoder::new(Hashed::new(file), LEVEL)?;
    encoder.include_checksum(true)?;
    // The bytes do not depend on the number of workers, only on there being any.
    let workers = thread::available_parallelism().map_or(1, usize::from);
    encoder.multithread(u32::try_from(workers)?)?;
    let mut tar = tar::Builder::new(Hashed::new(encoder));
    tar.follow_symlinks(false);
    for entry in entries {
        append(&mut tar, entry, time).with_context(|| format!("adding {entry:?} to a layer"))?;
    }
    let (encoder, diff_id, _) = tar.into_inner()?.finish();
    let (mut file, digest, bytes) = encoder.finish()?.finish();
    file.flush()?;
    Ok(Layer {
        digest,
        bytes,
        diff_id,
    })
}

fn append<W: Write>(tar: &mut tar::Builder<W>, entry: &Entry, time: u64) -> Result<()> {
    let header = |kind, mode| {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_mtime(time);
        header.set_uid(0);
        header.set_gid(0);
        header.set_size(0);
        header
    };
    match entry {
        Entry::Folder { to, mode } => {
            let mut header = header(tar::EntryType::Directory, *mode);
            tar.append_data(&mut header, to.join(""), io::empty())?;
        }
        Entry::File { from, to, mode } => {
            let file = File::open(from).with_context(|| format!("opening {}", from.display()))?;
            let mut header = header(tar::EntryType::Regular, *mode);
            header.set_size(file.metadata()?.len());
            tar.append_data(&mut header, to, file)?;
        }
        Entry::Link { to, target } => {
            let mut header = header(tar::EntryType::Symlink, 0o777);
            tar.append_link(&mut header, to, target)?;
        }
        Entry::Tree { tar: from, parts } => append_tree(tar, from, parts, time)?,
    }
    Ok(())
}

/// Copies the entries of a tar, all of them owned by root and of one time.
fn append_tree<W: Write>(
    tar: &mut tar::Builder<W>,
    from: &Path,
    parts: &[&str],
    time: u64,
) -> Result<()> {
    let mut archive =
        tar::Archive::new(File::open(from).with_context(|| format!("opening {}", from.display()))?);
    for entry in archive.entries()? {
        let mut entry = entry?;
        let path: PathBuf = entry
            .path()?
            .components()
            .filter(|part| matches!(part, std::path::Component::Normal(_)))
            .collect();
        if !parts.iter().any(|part| path.starts_with(part)) {
            continue;
        }
        let kind = entry.header().entry_type();
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(entry.header().mode()?);
        header.set_mtime(time);
        header.set_uid(0);
        header.set_gid(0);
        header.set_size(0);
        match kind {
            tar::EntryType::Directory => {
                tar.append_data(&mut header, path.join(""), io::empty())?;
            }
            tar::EntryType::Regular => {
                header.set_size(entry.header().size()?);
                tar.append_data(&mut header, &path, &mut entry)?;
            }
            tar::EntryType::Symlink => {
                let target = entry.link_name()?.context("a link without a target")?;
                tar.append_link(&mut header, &path, target)?;
            }
            tar::EntryType::Link => {
                let target = entry.link_name()?.context("a link without a target")?;
                let target = target.strip_prefix(".").unwrap_or(&target).to_owned();
                tar.append_link(&mut header, &path, target)?;
            }
            other => ensure!(
                matches!(
                    other,
                    tar::EntryType::Char | tar::EntryType::Block | tar::EntryType::Fifo
                ),
                "{} is of a kind that a layer cannot hold",
                path.display()
            ),
        }
    }
    Ok(())
}

/// Counts and hashes what is written through it.
struct Hashed<W> {
    inner: W,
    hasher: Sha256,
    bytes: u64,
}

impl<W> Hashed<W> {
    fn new(inner: W) -> Self {
        Self {
            inner,
            hasher: Sha256::new(),
            bytes: 0,
        }
    }

    fn finish(self) -> (W, String, u64) {
        (
            self.inner,
            firstlight_artifacts::hex(&self.hasher.finalize()),
            self.bytes,
        )
    }
}

impl<W: Write> Write for Hashed<W> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let count = self.inner.write(data)?;
        self.hasher.update(&data[..count]);
        self.bytes += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Digest of bytes, in hex.
pub fn digest(bytes: &[u8]) -> String {
    firstlight_artifacts::hex(&Sha256::digest(bytes))
}

/// Unpacks a layer's tar, for tests and for a look.
pub fn read_tar(layer: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = File::open(layer).with_context(|| format!("opening {}", layer.display()))?;
    zstd::Decoder::new(file)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs;

    use super::*;

    #[test]
    fn a_layer_is_the_same_bytes_every_time_and_its_digests_are_true() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("program");
        fs::write(&program, "binary").unwrap();
        let tree = dir.path().join("tree.tar");
        let mut tar = tar::Builder::new(File::create(&tree).unwrap());
        let mut header = tar::Header::new_gnu();
        header.set_size(3);
        header.set_mode(0o755);
        header.set_uid(1000);
        header.set_mtime(12345);
        tar.append_data(&mut header, "./usr/sbin/nft", &b"nft"[..])
            .unwrap();
        let mut left_out = header.clone();
        tar.append_data(&mut left_out, "./etc/hostname", &b"abc"[..])
            .unwrap();
        tar.finish().unwrap();
        let entries = [
            Entry::Folder {
                to: "tmp".into(),
                mode: 0o1777,
            },
            Entry::File {
                from: program,
                to: "bin/a".into(),
                mode: 0o755,
            },
            Entry::Link {
                to: "bin/b".into(),
                target: "a".into(),
            },
            Entry::Tree {
                tar: tree,
                parts: &["usr"],
            },
        ];
        let (one, two) = (dir.path().join("one"), dir.path().join("two"));
        let layer = write_layer(&entries, 7, &one).unwrap();
        assert_eq!(write_layer(&entries, 7, &two).unwrap(), layer);
        let bytes = fs::read(&one).unwrap();
        assert_eq!(bytes, fs::read(&two).unwrap());
        assert_eq!(
            (digest(&bytes), bytes.len() as u64),
            (layer.digest, layer.bytes)
        );
        let unpacked = read_tar(&one).unwrap();
        assert_eq!(digest(&unpacked), layer.diff_id);
        let mut names = Vec::new();
        for entry in tar::Archive::new(unpacked.as_slice()).entries().unwrap() {
            let entry = entry.unwrap();
            assert_eq!(
                (
                    entry.header().uid().unwrap(),
                    entry.header().mtime().unwrap()
                ),
                (0, 7)
            );
            names.push(entry.path().unwrap().display().to_string());
        }
        assert_eq!(names, ["tmp/", "bin/a", "bin/b", "usr/sbin/nft"]);
    }
}
