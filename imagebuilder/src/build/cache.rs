//! Steps that run only when something they depend on has changed.
//!
//! The output of a step is a folder named after the hash of the step's inputs ([`Key`]). A later step takes the digest of
//! an earlier one's *output* into its key, so a step that ran again and made the same bytes does not wake the others.
//! Must not: know what a step does. To add an input: a method of [`Key`].

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use firstlight_artifacts::hex;
use nix::fcntl::{Flock, FlockArg};
use sha2::{Digest, Sha256};

use super::command::Log;
use super::progress::Progress;

/// Outputs of one step that are kept: going back to the last state of a working tree costs nothing.
const KEPT: usize = 2;

/// Folder names that never count as input.
const NOT_INPUT: [&str; 2] = ["target", "__pycache__"];

/// Hash over everything that decides what a step makes.
#[derive(Clone, Debug)]
pub struct Key(Sha256);

impl Key {
    /// `version` is the recipe's own: raise it when the code of the step changes what it makes.
    pub fn new(step: &str, version: u32) -> Self {
        Self(Sha256::new())
            .text("step", step)
            .text("version", &version.to_string())
    }

    #[must_use]
    pub fn text(mut self, name: &str, value: &str) -> Self {
        self.field(name.as_bytes());
        self.field(value.as_bytes());
        self
    }

    /// What an earlier step made.
    #[must_use]
    pub fn output(self, output: &Output) -> Self {
        self.text("output", &output.digest)
    }

    /// Content of a file or of everything below a folder: paths, executable bits, link targets, bytes.
    pub fn path(mut self, path: &Path) -> Result<Self> {
        hash_tree(&mut self.0, path, &NOT_INPUT)
            .with_context(|| format!("reading the input {}", path.display()))?;
        Ok(self)
    }

    pub fn paths<'a>(mut self, paths: impl IntoIterator<Item = &'a Path>) -> Result<Self> {
        for path in paths {
            self = self.path(path)?;
        }
        Ok(self)
    }

    fn field(&mut self, bytes: &[u8]) {
        self.0.update((bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
    }

    fn finish(self) -> String {
        hex(&self.0.finalize())
    }
}

/// What a step made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    dir: PathBuf,
    digest: String,
}

impl Output {
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn digest(&self) -> &str {
        &self.digest
    }
}

/// Where a running step works.
#[derive(Debug)]
pub struct Work {
    /// The output folder, empty at first.
    pub dir: PathBuf,
    pub log: Log,
}

impl Work {
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }
}

/// Whether an output that is there is good enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reuse {
    Cached,
    /// Make it again: the world outside has changed (`--refresh`).
    Never,
}

/// The step cache. Only one build at a time uses it.
#[derive(Debug)]
pub struct Steps {
    root: PathBuf,
    logs: PathBuf,
    progress: Progress,
    environment: Vec<(&'static str, String)>,
    _lock: Flock<File>,
}

impl Steps {
    /// Opens the cache below `cache`, and waits for another build to end.
    pub fn open(cache: &Path, progress: Progress) -> Result<Self> {
        let (root, logs) = (cache.join("steps"), cache.join("logs"));
        for dir in [&root, &logs] {
            fs::create_dir_all(dir).with_context(|| format!("creating {}", dir.display()))?;
        }
        let lock = File::create(cache.join("build.lock")).context("opening the build lock")?;
        let lock = match Flock::lock(lock, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => lock,
            Err((file, _)) => {
                progress.say("another build uses this cache: waiting for it to end");
                Flock::lock(file, FlockArg::LockExclusive)
                    .map_err(|(_, error)| error)
                    .context("waiting for the build lock")?
            }
        };
        Ok(Self {
            root,
            logs,
            progress,
            environment: Vec::new(),
            _lock: lock,
        })
    }

    /// With variables for the programs of all steps: nothing that a step makes depends on them.
    #[must_use]
    pub fn with_environment(self, environment: Vec<(&'static str, String)>) -> Self {
        Self {
            environment,
            ..self
        }
    }

    /// Runs `make` unless its output for this key is there.
    pub fn run(
        &self,
        name: &str,
        key: Key,
        reuse: Reuse,
        make: impl FnOnce(&Work) -> Result<()>,
    ) -> Result<Output> {
        let folder = self.root.join(name);
        let dir = folder.join(&key.finish()[..32]);
        if reuse == Reuse::Cached && dir.join("digest").exists() {
            self.progress.cached(name);
            return load_output(&dir);
        }
        let log = Log::create(self.logs.join(format!("{name}.log")))?;
        let log = log.with_environment(&self.environment);
        let expected = load_duration(&folder);
        let running = self.progress.start(name, log.path(), expected);
        let started = Instant::now();
        let temporary = folder.join("unfinished");
        if let Err(error) = make_output(&temporary, &dir, log, make) {
            running.failed();
            remove_tree(&temporary)?;
            return Err(error.context(format!("step {name} failed")));
        }
        running.done();
        fs::write(
            folder.join("seconds"),
            started.elapsed().as_secs().to_string(),
        )?;
        prune(&folder, &dir)?;
        load_output(&dir)
    }
}

fn make_output(
    temporary: &Path,
    dir: &Path,
    log: Log,
    make: impl FnOnce(&Work) -> Result<()>,
) -> Result<()> {
    remove_tree(temporary)?;
    let out = temporary.join("out");
    fs::create_dir_all(&out).with_context(|| format!("creating {}", out.display()))?;
    make(&Work {
        dir: out.clone(),
        log,
    })?;
    let mut hasher = Sha256::new();
    hash_tree(&mut hasher, &out, &[])?;
    fs::write(temporary.join("digest"), hex(&hasher.finalize()))?;
    remove_tree(dir)?;
    fs::rename(temporary, dir).with_context(|| format!("moving {} into place", dir.display()))
}

fn load_output(dir: &Path) -> Result<Output> {
    let digest = fs::read_to_string(dir.join("digest"))
        .with_context(|| format!("reading {}/digest", dir.display()))?;
    // The newest use is remembered, for `prune`.
    File::open(dir.join("digest"))?.set_modified(std::time::SystemTime::now())?;
    Ok(Output {
        dir: dir.join("out"),
        digest,
    })
}

fn load_duration(folder: &Path) -> Option<Duration> {
    let seconds = fs::read_to_string(folder.join("seconds")).ok()?;
    seconds.trim().parse().ok().map(Duration::from_secs)
}

fn prune(folder: &Path, keep: &Path) -> Result<()> {
    let mut outputs = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if let Ok(used) = fs::metadata(path.join("digest")).and_then(|data| data.modified()) {
            outputs.push((path != keep, std::cmp::Reverse(used), path));
        }
    }
    outputs.sort();
    for (_, _, path) in outputs.into_iter().skip(KEPT) {
        remove_tree(&path)?;
    }
    Ok(())
}

/// Removes a tree that may hold folders without write permission (Go's and Debian's do).
pub fn remove_tree(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            make_writable(path)?;
            fs::remove_dir_all(path).with_context(|| format!("removing {}", path.display()))
        }
        Err(error) => Err(error).with_context(|| format!("removing {}", path.display())),
    }
}

fn make_writable(dir: &Path) -> io::Result<()> {
    fs::set_permissions(dir, fs::Permissions::from_mode(0o700))?;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            make_writable(&entry.path())?;
        }
    }
    Ok(())
}

/// Hashes a file, or a folder with everything below it in the order of the names.
fn hash_tree(hasher: &mut Sha256, path: &Path, skip: &[&str]) -> Result<()> {
    let data =
        fs::symlink_metadata(path).with_context(|| format!("{} is missing", path.display()))?;
    let kind = data.file_type();
    if kind.is_symlink() {
        hasher.update(b"l");
        hasher.update(fs::read_link(path)?.as_os_str().as_bytes());
    } else if kind.is_file() {
        hasher.update(if data.permissions().mode() & 0o111 == 0 {
            b"f"
        } else {
            b"x"
        });
        hasher.update(data.len().to_le_bytes());
        hash_file(hasher, path)?;
    } else if kind.is_dir() {
        let mut names: Vec<_> = fs::read_dir(path)?
            .map(|entry| entry.map(|entry| entry.file_name()))
            .collect::<io::Result<_>>()?;
        names.sort();
        names.retain(|name| !skip.iter().any(|skip| name == skip));
        hasher.update(b"d");
        hasher.update((names.len() as u64).to_le_bytes());
        for name in names {
            hasher.update((name.len() as u64).to_le_bytes());
            hasher.update(name.as_bytes());
            hash_tree(hasher, &path.join(&name), skip)?;
        }
    } else {
        bail!("{} is neither a file, a folder nor a link", path.display());
    }
    Ok(())
}

fn hash_file(hasher: &mut Sha256, path: &Path) -> Result<()> {
    let mut file = File::open(path).with_context(|| format!("opening {}", path.display()))?;
    hash_all(hasher, &mut file).with_context(|| format!("reading {}", path.display()))
}

fn hash_all(hasher: &mut Sha256, from: &mut impl Read) -> io::Result<()> {
    let mut block = vec![0; 1 << 20];
    loop {
        let count = from.read(&mut block)?;
        if count == 0 {
            return Ok(());
        }
        hasher.update(&block[..count]);
    }
}

/// SHA-256 of all that is read, in hex.
pub fn digest_all(from: &mut impl Read) -> io::Result<String> {
    let mut hasher = Sha256::new();
    hash_all(&mut hasher, from)?;
    Ok(hex(&hasher.finalize()))
}

/// SHA-256 of a file, in hex.
pub fn digest_file(path: &Path) -> Result<String> {
    let mut hasher = Sha256::new();
    hash_file(&mut hasher, path)?;
    Ok(hex(&hasher.finalize()))
}

#[cfg(test)]
#[path = "cache/tests.rs"]
mod tests;
