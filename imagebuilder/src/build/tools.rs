//! Programs of Debian 13 that the build runs from an unpacked tree, whatever the build host has: the same version of
//! squashfs-tools, e2fsprogs and GRUB makes the same bytes on Debian 12 and 13.

use std::path::PathBuf;

use super::cache::Output;
use super::command::{Log, Program};

/// The tree of the step `tools`.
#[derive(Clone, Debug)]
pub struct Tools {
    output: Output,
}

impl Tools {
    pub fn new(output: Output) -> Self {
        Self { output }
    }

    pub fn output(&self) -> &Output {
        &self.output
    }

    /// A file of the tree, for example `usr/lib/shim/shimx64.efi.signed`.
    pub fn path(&self, name: &str) -> PathBuf {
        self.output.path("tree").join(name)
    }

    /// A program of the tree, started by the tree's own loader with the tree's own libraries.
    pub fn program(&self, name: &str, log: &Log) -> Program {
        Program::new(
            self.path("usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"),
            log,
        )
        .named(name.rsplit('/').next().unwrap_or(name))
        // Names in archives are UTF-8; this locale is built into the tree's C library, whatever the host has.
        .env("LC_ALL", "C.UTF-8")
        .arg("--library-path")
        .arg(self.path("usr/lib/x86_64-linux-gnu"))
        .arg(self.path(name))
    }
}
