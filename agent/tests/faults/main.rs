//! The agent, and what it keeps its word with, on a disk that is full, broken, read-only, slow, or loses its power. Needs FUSE:
//! `scripts/test-faults` runs it.
//!
//! [`schedules`] are many and cheap: the parts that write, in this process, with faults and cuts that a seed decides.
//! [`program`] is the agent itself.

#![allow(clippy::unwrap_used, clippy::similar_names)]

#[path = "../common/agent.rs"]
mod agent;
mod program;
mod schedules;

use std::{fs, path::PathBuf, process::Command};

use faults::{Disk, Mount, Names, preload};

/// Set in the process that has the library for `syncfs`; names its path.
const LIBRARY: &str = "FIRSTLIGHT_TEST_SYNCFS";

/// Room for what the store leaves free, and for uploads.
const SIZE: u64 = 4 << 30;

/// A folder with a disk where the state partition is.
struct Site {
    /// Goes first: a folder with something mounted in it is not removed.
    mount: Mount,
    dir: tempfile::TempDir,
}

impl Site {
    fn new(size: u64) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("box/var/lib/firstlight");
        for folder in [
            &state,
            &dir.path().join("box/firstlight/site"),
            &dir.path().join("box/proc"),
        ] {
            fs::create_dir_all(folder).unwrap();
        }
        fs::write(
            dir.path().join("box/firstlight/site/site.yaml"),
            "cluster: none\n",
        )
        .unwrap();
        let mount = Mount::new(Disk::new(size, Names::WithFile), &state).unwrap();
        // As systemd-tmpfiles makes them.
        for folder in ["agent", "kube"] {
            fs::create_dir(state.join(folder)).unwrap();
        }
        mount.disk().sync_all().unwrap();
        Self { mount, dir }
    }

    fn root(&self) -> PathBuf {
        self.dir.path().join("box")
    }

    fn state(&self, path: &str) -> PathBuf {
        self.mount.at().join(path)
    }
}

/// Runs the test `name` in a process of its own in which `syncfs` reaches the disk.
fn with_library(name: &str, story: impl FnOnce()) {
    if std::env::var_os(LIBRARY).is_some() {
        return story();
    }
    let dir = tempfile::tempdir().unwrap();
    let library = preload::library(dir.path()).unwrap();
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture", "--include-ignored"])
        .env("LD_PRELOAD", &library)
        .env(LIBRARY, &library)
        .status();
    assert!(
        status.unwrap().success(),
        "{name} with the library, see above"
    );
}
