//! Waiting for the partitions that systemd mounts while the agent is already up.

pub mod seal;

use std::{fs, path::Path, time::Duration};

use firstlight_api::status::Problem;
use tokio_util::sync::CancellationToken;

use crate::{
    paths::Paths,
    start_line::StartedFrom,
    status::{StatusSender, StepName},
};

/// A read of `/proc/self/mountinfo` is cheap enough to be the whole mechanism.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// After this the step says what may be wrong; it waits on all the same.
const PATIENCE: Duration = Duration::from_mins(2);

/// Returns when the state partition is mounted and the agent's directory on it may be written to.
pub async fn wait_for_state(paths: &Paths, status: &StatusSender, stop: &CancellationToken) {
    status.running(StepName::State);
    let usable = || is_usable(paths);
    let decided = || usable() || seal::problem(paths).is_some();
    wait_until(decided, PATIENCE, stop).await;
    if !usable() && !stop.is_cancelled() {
        let Problem { what, next } = seal::problem(paths).unwrap_or_else(|| Problem {
            what: format!("the state partition is not usable after {} s", PATIENCE.as_secs()),
            next: "the stick may be too small (4 GB at least), write-protected or worn out: write the image to another stick; on an installed machine, look at `systemctl status var-lib-firstlight.mount`".to_owned(),
        });
        status.failed(StepName::State, what, next);
        wait_until(usable, Duration::MAX, stop).await;
    }
    if !stop.is_cancelled() {
        status.done(StepName::State);
    }
}

/// Whether the state partition is mounted and the one that this system knows, and the agent may write to its directory on it.
pub fn is_usable(paths: &Paths) -> bool {
    let is_prepared =
        || StartedFrom::read(paths) == StartedFrom::Elsewhere || paths.state_prepared().exists();
    is_mounted(paths, &paths.state()) && is_prepared() && is_writable(&paths.agent_state())
}

/// Whether `condition` held before `patience` ran out.
pub async fn wait_until(
    condition: impl Fn() -> bool,
    patience: Duration,
    stop: &CancellationToken,
) -> bool {
    let waited = async {
        while !condition() {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    tokio::select! {
        result = tokio::time::timeout(patience, waited) => result.is_ok(),
        () = stop.cancelled() => false,
    }
}

/// Below another root, for tests and developers, a directory stands for the mount point.
pub fn is_mounted(paths: &Paths, directory: &Path) -> bool {
    if paths.root() != Path::new("/") {
        return directory.is_dir();
    }
    fs::read_to_string(paths.mountinfo())
        .is_ok_and(|info| mount_points(&info).any(|point| Path::new(point) == directory))
}

/// The fifth field of each line (`proc_pid_mountinfo(5)`). Our mount points need no unescaping.
fn mount_points(mountinfo: &str) -> impl Iterator<Item = &str> {
    mountinfo.lines().filter_map(|line| line.split(' ').nth(4))
}

fn is_writable(directory: &Path) -> bool {
    nix::unistd::access(directory, nix::unistd::AccessFlags::W_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_are_found_in_mountinfo() {
        let info = "24 1 0:22 / / rw,relatime - overlay overlay rw\n\
                    31 24 8:6 / /var/lib/firstlight rw,noatime shared:12 - ext4 /dev/sda6 rw\n";
        assert_eq!(
            mount_points(info).collect::<Vec<_>>(),
            ["/", "/var/lib/firstlight"]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_condition_that_never_holds_ends_with_the_patience_or_the_stop() {
        let stop = CancellationToken::new();
        assert!(!wait_until(|| false, Duration::from_secs(5), &stop).await);
        assert!(wait_until(|| true, Duration::from_secs(5), &stop).await);
        stop.cancel();
        assert!(!wait_until(|| false, Duration::MAX, &stop).await);
    }
}
