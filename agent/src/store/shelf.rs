//! The store's folder: `ID/spec.json` and either `ID/partial`, whose length is how far the upload came, or `ID/content`. Once it
//! is where it is used, `ID/published` says where, and the content may be gone. `ID/removed` marks what is being deleted.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Seek, SeekFrom, Write},
    os::fd::AsRawFd,
    path::{Path, PathBuf},
};

use firstlight_api::artifact::ArtifactSpec;
use nix::fcntl::{FallocateFlags, fallocate};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use sha2::{Digest, Sha256};

use crate::keep::{self, Reader};

const SPEC: &str = "spec.json";
const PARTIAL: &str = "partial";
const CONTENT: &str = "content";
const PUBLISHED: &str = "published";
const REMOVED: &str = "removed";
/// The disk is told to begin with so many bytes, so that the end of an upload has little left to wait for.
const FLUSH: u64 = 32 << 20;
const PIECE: usize = 1 << 20;

#[derive(Debug)]
pub struct Shelf {
    dir: PathBuf,
}

/// What one folder holds.
pub struct Found {
    pub id: String,
    pub spec: ArtifactSpec,
    pub progress: Progress,
}

/// What cannot be read, or was written by another version: nobody's until it can.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Aside {
    pub id: String,
    pub why: String,
    /// Where it is used, if that can be told.
    pub published: Option<Published>,
}

impl Aside {
    /// For a person.
    pub fn next(&self, on: &Shelf) -> String {
        format!(
            "nothing of it was changed; check the state partition with fsck and start the box again, or give it up with `sudo rm -r {}`, start again, and upload it anew",
            on.dir.join(&self.id).display()
        )
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// So many bytes of it are here.
    Partial(u64),
    Whole,
    Published(Published),
}

/// Where an artifact is used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Published {
    pub reference: String,
    /// SHA-256 of the file behind it, if it is one.
    pub checksum: String,
}

impl Shelf {
    pub fn open(dir: &Path) -> io::Result<Self> {
        fs::create_dir_all(dir)?;
        Ok(Self {
            dir: dir.to_owned(),
        })
    }

    fn path(&self, id: &str, name: &str) -> PathBuf {
        self.dir.join(id).join(name)
    }

    pub fn content(&self, id: &str) -> PathBuf {
        self.path(id, CONTENT)
    }

    /// Everything that can be gone on with, and what cannot be read, which stays as it is. What a power cut left of an upload that
    /// was being begun or deleted goes.
    pub fn scan(&self) -> io::Result<(Vec<Found>, Vec<Aside>)> {
        self.scan_with(&|path| fs::read(path))
    }

    fn scan_with(&self, reader: Reader) -> io::Result<(Vec<Found>, Vec<Aside>)> {
        let (mut all, mut aside) = (Vec::new(), Vec::new());
        for entry in fs::read_dir(&self.dir)? {
            let entry = entry?;
            let Ok(id) = entry.file_name().into_string() else {
                continue;
            };
            if !entry.file_type()?.is_dir() {
                continue;
            }
            match self.look(&id, reader) {
                Ok(Some(found)) => all.push(found),
                Ok(None) => {
                    tracing::warn!(id, "a half-made upload was thrown away");
                    fs::remove_dir_all(entry.path())?;
                }
                Err(why) => {
                    tracing::warn!(
                        id,
                        error = why,
                        "an upload cannot be read, and is left alone"
                    );
                    let published = keep::read(&self.path(&id, PUBLISHED), reader);
                    let published = published.ok().flatten();
                    let published = published.and_then(|text| serde_json::from_slice(&text).ok());
                    aside.push(Aside { id, why, published });
                }
            }
        }
        Ok((all, aside))
    }

    /// `None`: there is nothing of worth.
    fn look(&self, id: &str, reader: Reader) -> Result<Option<Found>, String> {
        fn parse<T: DeserializeOwned>(name: &str, text: &[u8]) -> Result<T, String> {
            serde_json::from_slice(text).map_err(|error| format!("{name} is damaged: {error}"))
        }
        let read = |name: &str| {
            let read = keep::read(&self.path(id, name), reader);
            read.map_err(|error| format!("{:#}", anyhow::Error::from(error)))
        };
        let exists = |name: &str| {
            let found = fs::metadata(self.path(id, name));
            match found {
                Ok(found) => Ok(Some(found.len())),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(format!("{name}: {error}")),
            }
        };
        if exists(REMOVED)?.is_some() {
            return Ok(None);
        }
        let (content, partial) = (exists(CONTENT)?, exists(PARTIAL)?);
        let (spec, published) = (read(SPEC)?, read(PUBLISHED)?);
        let Some(spec) = spec else {
            return match (content, published) {
                (None, None) => Ok(None),
                _ => Err(format!("{SPEC} is gone")),
            };
        };
        let spec = parse(SPEC, &spec)?;
        let progress = match (published, partial, content) {
            (Some(published), ..) => Progress::Published(parse(PUBLISHED, &published)?),
            (None, Some(length), _) => Progress::Partial(length),
            (None, None, Some(_)) => Progress::Whole,
            (None, None, None) => return Ok(None),
        };
        let id = id.to_owned();
        Ok(Some(Found { id, spec, progress }))
    }

    /// A place of the full size, empty; a disk that is too full says so now. The description comes last and makes it valid.
    pub fn reserve(&self, id: &str, spec: &ArtifactSpec) -> io::Result<()> {
        let dir = self.dir.join(id);
        // Of one that was deleted, as far as the disk allowed.
        if dir.exists() {
            fs::remove_dir_all(&dir)?;
        }
        fs::create_dir_all(&dir)?;
        let result = self.reserve_in(id, spec);
        if result.is_err() {
            // The first error says more than one from here.
            drop(fs::remove_dir_all(dir));
        }
        result
    }

    fn reserve_in(&self, id: &str, spec: &ArtifactSpec) -> io::Result<()> {
        let partial = File::create(self.path(id, PARTIAL))?;
        let size = i64::try_from(spec.size).map_err(io::Error::other)?;
        fallocate(&partial, FallocateFlags::FALLOC_FL_KEEP_SIZE, 0, size)?;
        self.write(id, SPEC, &serde_json::to_vec(spec)?)?;
        sync_dir(&self.dir)
    }

    /// Whole or not at all.
    fn write(&self, id: &str, name: &str, content: &[u8]) -> io::Result<()> {
        let aside = self.path(id, "new");
        let mut file = File::create(&aside)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(aside, self.path(id, name))?;
        sync_dir(&self.dir.join(id))
    }

    /// It is in use from elsewhere; the content stays only if it still is.
    pub fn publish(&self, id: &str, published: &Published, keep: bool) -> io::Result<()> {
        self.write(id, PUBLISHED, &serde_json::to_vec(published)?)?;
        if keep {
            return Ok(());
        }
        fs::remove_file(self.content(id))
    }

    /// The upload as it is, ready for its byte `offset`, with the digest of those before.
    pub fn resume(&self, id: &str, offset: u64) -> io::Result<(Partial, Sha256)> {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(self.path(id, PARTIAL))?;
        let mut digest = Sha256::new();
        let mut left = offset;
        let mut piece = vec![0; PIECE];
        while left > 0 {
            let wanted = usize::try_from(left).map_or(PIECE, |left| left.min(PIECE));
            file.read_exact(&mut piece[..wanted])?;
            digest.update(&piece[..wanted]);
            left -= wanted as u64;
        }
        file.seek(SeekFrom::Start(offset))?;
        Ok((
            Partial {
                file,
                unflushed: 0,
                at: offset,
            },
            digest,
        ))
    }

    /// From here on it is an artifact.
    pub fn complete(&self, id: &str) -> io::Result<()> {
        fs::rename(self.path(id, PARTIAL), self.content(id))?;
        sync_dir(&self.dir.join(id))
    }

    /// The mark comes first, and goes last: what is left of a removal that was cut is thrown away at the next start.
    pub fn remove(&self, id: &str) -> Result<(), NotRemoved> {
        let dir = self.dir.join(id);
        let mark = self.path(id, REMOVED);
        let marked = File::create(&mark).and_then(|mark| mark.sync_all());
        if let Err(error) = marked.and_then(|()| sync_dir(&dir)) {
            let unmarked = fs::remove_file(mark).and_then(|()| sync_dir(&dir));
            let intact = unmarked.is_ok();
            return Err(NotRemoved { error, intact });
        }
        if let Err(error) = sweep(&dir) {
            tracing::warn!(id, %error, "what is left of a deleted upload goes at the next start");
        }
        Ok(())
    }
}

/// Why an upload was not deleted.
#[derive(Debug)]
pub struct NotRemoved {
    pub error: io::Error,
    /// It is as it was; otherwise a power cut decides whether it is there.
    pub intact: bool,
}

fn sweep(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_name() != REMOVED {
            fs::remove_file(entry.path())?;
        }
    }
    sync_dir(dir)?;
    fs::remove_dir_all(dir)
}

fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

#[derive(Debug)]
pub struct Partial {
    file: File,
    at: u64,
    unflushed: u64,
}

impl Partial {
    pub fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.at += bytes.len() as u64;
        self.unflushed += bytes.len() as u64;
        if self.unflushed >= FLUSH {
            self.begin_flush();
        }
        Ok(())
    }

    /// Not waited for: [`Self::sync`] does that, and reports what went wrong.
    #[allow(unsafe_code, reason = "nix does not wrap sync_file_range")]
    fn begin_flush(&mut self) {
        let (from, length) = (self.at - self.unflushed, self.unflushed);
        if let (Ok(from), Ok(length)) = (i64::try_from(from), i64::try_from(length)) {
            // SAFETY: the descriptor is open, and the call touches no memory of ours.
            unsafe {
                nix::libc::sync_file_range(
                    self.file.as_raw_fd(),
                    from,
                    length,
                    nix::libc::SYNC_FILE_RANGE_WRITE,
                );
            }
        }
        self.unflushed = 0;
    }

    pub fn sync(&mut self) -> io::Result<()> {
        self.file.sync_data()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeMap;

    use super::*;

    const ID: &str = "0123456789ab";

    fn shelf(files: &[(&str, &[u8])]) -> (tempfile::TempDir, Shelf) {
        let dir = tempfile::tempdir().unwrap();
        let shelf = Shelf::open(dir.path()).unwrap();
        fs::create_dir(dir.path().join(ID)).unwrap();
        for (name, content) in files {
            fs::write(shelf.path(ID, name), content).unwrap();
        }
        (dir, shelf)
    }

    fn snapshot(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
        let files = fs::read_dir(dir.join(ID)).into_iter().flatten();
        let files = files.map(|file| file.unwrap().path());
        files
            .map(|path| (path.clone(), fs::read(path).unwrap()))
            .collect()
    }

    const SPEC_TEXT: &str = r#"{"kind":"image","name":"debian","version":"13","arch":"amd64","size":7,
        "sha256":"abababababababababababababababababababababababababababababababab"}"#;
    const PUBLISHED_TEXT: &str = r#"{"reference":"/images/debian-13.raw.zst","checksum":"ab"}"#;

    #[test]
    fn what_cannot_be_read_is_left_alone_with_what_was_made_of_it() {
        let spec = SPEC_TEXT.as_bytes();
        let published = PUBLISHED_TEXT.as_bytes();
        let newer = SPEC_TEXT.replace("\"size\"", "\"colour\": \"red\", \"size\"");
        for (files, told) in [
            (&[(SPEC, &b"garbage"[..]), (PUBLISHED, published)][..], true),
            (
                &[(SPEC, b""), (PUBLISHED, published), (CONTENT, b"x")],
                true,
            ),
            (&[(SPEC, newer.as_bytes()), (PUBLISHED, published)], true),
            (&[(SPEC, spec), (PUBLISHED, b"{")], false),
            (&[(CONTENT, b"all of it")], false),
            (&[(PUBLISHED, published)], true),
        ] {
            let (dir, shelf) = shelf(files);
            let before = snapshot(dir.path());
            let (found, aside) = shelf.scan().unwrap();
            assert!(found.is_empty(), "{files:?}");
            let [aside] = &aside[..] else {
                panic!("{files:?}")
            };
            assert_eq!(aside.published.is_some(), told, "{files:?}");
            assert_eq!(snapshot(dir.path()), before);
        }
    }

    #[test]
    fn a_disk_that_fails_costs_no_upload() {
        let (dir, shelf) = shelf(&[
            (SPEC, SPEC_TEXT.as_bytes()),
            (PUBLISHED, PUBLISHED_TEXT.as_bytes()),
        ]);
        let before = snapshot(dir.path());
        for kind in [io::ErrorKind::Other, io::ErrorKind::PermissionDenied] {
            for name in [SPEC, PUBLISHED] {
                let broken = shelf.path(ID, name);
                let reader: Reader = &|path| {
                    if path == broken {
                        Err(kind.into())
                    } else {
                        fs::read(path)
                    }
                };
                let (found, aside) = shelf.scan_with(reader).unwrap();
                assert_eq!((found.len(), aside.len()), (0, 1), "{name} {kind}");
            }
        }
        assert_eq!(snapshot(dir.path()), before);
        assert_eq!(shelf.scan().unwrap().0.len(), 1);
    }

    #[test]
    fn a_removal_that_was_cut_ends_at_the_next_start() {
        let (dir, shelf) = shelf(&[
            (REMOVED, b""),
            (CONTENT, b"all"),
            (SPEC, SPEC_TEXT.as_bytes()),
        ]);
        let (found, aside) = shelf.scan().unwrap();
        assert_eq!((found.len(), aside.len()), (0, 0));
        assert!(!dir.path().join(ID).exists());
    }

    proptest::proptest! {
        #[test]
        fn no_file_in_it_breaks_a_start(name in 0..4_usize, content: Vec<u8>, cut in 0..200_usize) {
            let (_dir, shelf) = shelf(&[(SPEC, SPEC_TEXT.as_bytes()), (CONTENT, b"1234567")]);
            fs::write(shelf.path(ID, [SPEC, PARTIAL, PUBLISHED, "other"][name]), &content).unwrap();
            let (found, aside) = shelf.scan().unwrap();
            proptest::prop_assert_eq!(found.len() + aside.len(), 1);
            fs::write(shelf.path(ID, SPEC), &SPEC_TEXT.as_bytes()[..cut.min(SPEC_TEXT.len())]).unwrap();
            let (found, aside) = shelf.scan().unwrap();
            proptest::prop_assert_eq!(found.len() + aside.len(), 1);
        }
    }
}
