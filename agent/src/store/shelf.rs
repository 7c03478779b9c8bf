//! The store's folder: `ID/spec.json` and either `ID/partial`, whose length is how far the upload came, or `ID/content`. Once it
//! is where it is used, `ID/published` says where, and the content may be gone.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Seek, SeekFrom, Write},
    os::fd::AsRawFd,
    path::{Path, PathBuf},
};

use firstlight_api::artifact::ArtifactSpec;
use nix::fcntl::{FallocateFlags, fallocate};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

const SPEC: &str = "spec.json";
const PARTIAL: &str = "partial";
const CONTENT: &str = "content";
const PUBLISHED: &str = "published";
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

    /// Everything that can be gone on with; a folder that a power cut left without description is removed.
    pub fn scan(&self) -> io::Result<Vec<Found>> {
        let mut all = Vec::new();
        for entry in fs::read_dir(&self.dir)? {
            let entry = entry?;
            let Ok(id) = entry.file_name().into_string() else {
                continue;
            };
            let spec = fs::read(self.path(&id, SPEC)).ok();
            let spec = spec.and_then(|text| serde_json::from_slice::<ArtifactSpec>(&text).ok());
            let published = fs::read(self.path(&id, PUBLISHED)).ok();
            let published = published.and_then(|text| serde_json::from_slice(&text).ok());
            let partial = fs::metadata(self.path(&id, PARTIAL));
            let progress = match (published, partial) {
                (Some(published), _) => Some(Progress::Published(published)),
                (_, Ok(partial)) => Some(Progress::Partial(partial.len())),
                _ => self.content(&id).exists().then_some(Progress::Whole),
            };
            if let (Some(spec), Some(progress)) = (spec, progress) {
                all.push(Found { id, spec, progress });
            } else {
                tracing::warn!(id, "a half-made upload was thrown away");
                fs::remove_dir_all(entry.path())?;
            }
        }
        Ok(all)
    }

    /// Bytes that may still be written.
    pub fn free(&self) -> io::Result<u64> {
        let found = nix::sys::statvfs::statvfs(&self.dir)?;
        Ok(found.blocks_available() * found.fragment_size())
    }

    /// A place of the full size, empty; a disk that is too full says so now. The description comes last and makes it valid.
    pub fn reserve(&self, id: &str, spec: &ArtifactSpec) -> io::Result<()> {
        fs::create_dir_all(self.dir.join(id))?;
        let result = self.reserve_in(id, spec);
        if result.is_err() {
            // The first error says more than one from here.
            drop(fs::remove_dir_all(self.dir.join(id)));
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

    /// The description goes first: what is left of a removal that was cut is thrown away at the next start.
    pub fn remove(&self, id: &str) -> io::Result<()> {
        fs::remove_file(self.path(id, SPEC))?;
        sync_dir(&self.dir.join(id))?;
        fs::remove_dir_all(self.dir.join(id))
    }
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
