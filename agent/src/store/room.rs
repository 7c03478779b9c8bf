//! How much may be written. What the box itself lives on, etcd, leases, logs, keeps its reserve whatever people upload.

use std::{
    fmt, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use firstlight_api::artifact::{ArtifactSpec, Kind};

/// What stays free on the state partition for everything else that lives there. Kubelet's own threshold is below it
/// (`overlays/box/etc/kubernetes/kubelet.yaml`).
pub const RESERVE: u64 = 1 << 30;

/// One partition, and what stays free of it.
#[derive(Clone)]
pub struct Room {
    free: Arc<dyn Fn() -> io::Result<u64> + Send + Sync>,
    reserve: u64,
}

impl fmt::Debug for Room {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Room")
            .field("reserve", &self.reserve)
            .finish_non_exhaustive()
    }
}

impl Room {
    /// Of the partition that `dir` is on.
    pub fn on_disk(dir: &Path) -> Self {
        let dir: PathBuf = dir.to_owned();
        Self::new(RESERVE, move || {
            let found = nix::sys::statvfs::statvfs(&dir)?;
            Ok(found.blocks_available() * found.fragment_size())
        })
    }

    pub fn new(reserve: u64, free: impl Fn() -> io::Result<u64> + Send + Sync + 'static) -> Self {
        let free = Arc::new(free);
        Self { free, reserve }
    }

    /// Bytes that uploads and what is made of them may still take.
    pub fn left(&self) -> io::Result<u64> {
        Ok((self.free)()?.saturating_sub(self.reserve))
    }

    /// Whether so many more bytes may be written, and if not how many may.
    pub fn admit(&self, bytes: u64) -> io::Result<Result<(), u64>> {
        let left = self.left()?;
        Ok(if bytes <= left { Ok(()) } else { Err(left) })
    }
}

/// What putting it where it is used takes beside the uploaded file: containers and charts are copied into the registry, disks
/// are written again in the form that servers get. A disk that is in that form already needs nothing, but nobody knows before
/// its bytes are here.
pub fn to_publish(spec: &ArtifactSpec) -> u64 {
    match spec.kind {
        Kind::Container | Kind::Chart | Kind::Image => spec.size,
        // The repository has a second name for the file.
        Kind::Package => 0,
    }
}
