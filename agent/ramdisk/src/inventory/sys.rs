//! Files of `/sys` and `/proc` below a root directory, so that tests read fixture trees.

use std::fs;
use std::path::{Path, PathBuf};

#[derive(Clone, Debug)]
pub struct SysTree {
    root: PathBuf,
}

impl SysTree {
    /// `/` on a machine, a fixture directory in a test.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    pub fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// A file's trimmed text; `None` when it is missing, unreadable or empty (a NIC that is down refuses `carrier`).
    pub fn text(&self, path: &str) -> Option<String> {
        let bytes = fs::read(self.path(path)).ok()?;
        let text = String::from_utf8_lossy(&bytes);
        let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\0');
        (!text.is_empty()).then(|| text.to_owned())
    }

    pub fn bytes(&self, path: &str) -> Option<Vec<u8>> {
        fs::read(self.path(path)).ok()
    }

    pub fn number(&self, path: &str) -> Option<u64> {
        self.text(path)?.parse().ok()
    }

    pub fn exists(&self, path: &str) -> bool {
        self.path(path).exists()
    }

    /// Names in a directory, sorted; empty when it is missing.
    pub fn names(&self, path: &str) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.path(path)) else {
            return Vec::new();
        };
        let mut names: Vec<String> = entries
            .flatten()
            .filter_map(|e| e.file_name().into_string().ok())
            .collect();
        names.sort();
        names
    }

    /// Last part of what a symbolic link points to.
    pub fn link_name(&self, path: &str) -> Option<String> {
        let target = fs::read_link(self.path(path)).ok()?;
        Some(target.file_name()?.to_str()?.to_owned())
    }

    /// Parts of the canonical path of `path`, below the root.
    pub fn canonical(&self, path: &str) -> Vec<String> {
        let root = fs::canonicalize(&self.root).unwrap_or_else(|_| self.root.clone());
        let Ok(full) = fs::canonicalize(self.path(path)) else {
            return Vec::new();
        };
        let below: &Path = full.strip_prefix(&root).unwrap_or(&full);
        below
            .components()
            .filter_map(|c| c.as_os_str().to_str().map(str::to_owned))
            .collect()
    }
}
