//! Files of an installed system, opened so that no link leads out of it: a link to `/etc/shadow` is the system's own.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::dir::Dir;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::Mode;

/// Names in one folder; a folder of boot entries has a handful.
const MOST_NAMES: usize = 512;

/// The top of one file system.
#[derive(Debug)]
pub struct Tree {
    root: OwnedFd,
}

impl Tree {
    pub fn open(top: &Path) -> io::Result<Self> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let root = nix::fcntl::open(top, flags, Mode::empty())?;
        Ok(Self { root })
    }

    /// A regular file, to be read.
    pub fn file(&self, path: &str) -> io::Result<File> {
        self.regular(path, OFlag::O_RDONLY)
    }

    /// All of a small file. What is no UTF-8 in it is replaced.
    ///
    /// # Errors
    /// `InvalidData`: it is longer than `most` bytes.
    pub fn text(&self, path: &str, most: u64) -> io::Result<String> {
        let mut bytes = Vec::new();
        self.file(path)?.take(most + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > most {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("{path} is longer than {most} bytes"),
            ));
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    pub fn has(&self, path: &str) -> bool {
        self.at(path, OFlag::O_PATH, Mode::empty()).is_ok()
    }

    /// Names in a folder that end with `end`, in order; none where there is no such folder.
    pub fn names(&self, folder: &str, end: &str) -> io::Result<Vec<String>> {
        let opened = self.at(folder, OFlag::O_RDONLY | OFlag::O_DIRECTORY, Mode::empty());
        let opened = match opened {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            opened => opened?,
        };
        let mut names = Vec::new();
        for entry in Dir::from_fd(opened)?.iter().take(MOST_NAMES) {
            if let Ok(name) = entry?.file_name().to_str()
                && name.ends_with(end)
            {
                names.push(name.to_owned());
            }
        }
        names.sort();
        Ok(names)
    }

    /// Puts `text` into a file that is there: owner, mode and labels stay.
    pub fn rewrite(&self, path: &str, text: &str) -> io::Result<()> {
        let mut file = self.regular(path, OFlag::O_RDWR)?;
        file.seek(SeekFrom::Start(0))?;
        file.write_all(text.as_bytes())?;
        file.set_len(text.len() as u64)?;
        file.sync_all()
    }

    /// A new file, or all of an old one, that everybody may read.
    pub fn write(&self, path: &str, text: &str) -> io::Result<()> {
        if self.has(path) {
            return self.rewrite(path, text);
        }
        let new = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL;
        let mut file = File::from(self.at(path, new, Mode::from_bits_truncate(0o644))?);
        file.write_all(text.as_bytes())?;
        file.sync_all()
    }

    /// Tells two names of one file from two files.
    pub fn identity(&self, path: &str) -> io::Result<(u64, u64)> {
        let meta = self.file(path)?.metadata()?;
        Ok((meta.dev(), meta.ino()))
    }

    fn regular(&self, path: &str, flags: OFlag) -> io::Result<File> {
        // A pipe would let us wait for its other end.
        let file = File::from(self.at(path, flags | OFlag::O_NONBLOCK, Mode::empty())?);
        if file.metadata()?.is_file() {
            return Ok(file);
        }
        let what = format!("{path} is no file");
        Err(io::Error::new(io::ErrorKind::InvalidInput, what))
    }

    fn at(&self, path: &str, flags: OFlag, mode: Mode) -> io::Result<OwnedFd> {
        let path = CString::new(path.trim_start_matches('/'))?;
        let path = if path.is_empty() { c"." } else { &path };
        let resolve = ResolveFlag::RESOLVE_IN_ROOT
            | ResolveFlag::RESOLVE_NO_MAGICLINKS
            | ResolveFlag::RESOLVE_NO_XDEV;
        let how = OpenHow::new()
            .flags(flags | OFlag::O_CLOEXEC)
            .mode(mode)
            .resolve(resolve);
        Ok(openat2(self.root.as_fd(), path, how)?)
    }
}
