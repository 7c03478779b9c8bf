//! Starts and stops what the files of a box describe.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use nix::mount::{MntFlags, umount2};

use super::checks::MODULES;
use super::layout::Files;
use super::system::run;

/// All units of a box, with the end of their names.
fn units(files: &Files, end: &str) -> Vec<String> {
    let units = files.keys().filter_map(|path| {
        let name = path.strip_prefix("etc/systemd/system").ok()?.to_str()?;
        (!name.contains('/') && name.ends_with(end)).then(|| name.to_owned())
    });
    units.collect()
}

/// Units that an image's files ask systemd to start at each boot.
fn wanted_units(files: &Files) -> Vec<String> {
    let units = files.keys().filter_map(|path| {
        let below = path.strip_prefix("etc/systemd/system").ok()?;
        let folder = below.parent()?.to_str()?;
        folder.ends_with(".target.wants").then_some(())?;
        Some(below.file_name()?.to_str()?.to_owned())
    });
    units.collect()
}

/// Any of them has a process.
pub fn is_running(files: &Files) -> bool {
    let groups = Path::new("/sys/fs/cgroup/system.slice");
    let services = units(files, ".service");
    services.iter().any(|unit| groups.join(unit).exists())
}

/// Does once what each boot does for the files of a box.
pub fn prepare(files: &Files) -> Result<()> {
    let below = |folder: &str| -> Vec<String> {
        let paths = files.keys().filter(|path| path.starts_with(folder));
        paths.map(|path| format!("/{}", path.display())).collect()
    };
    run("systemd-sysusers", below("usr/lib/sysusers.d"))?;
    run("modprobe", ["--all"].iter().chain(&MODULES))?;
    run("/usr/lib/systemd/systemd-sysctl", below("etc/sysctl.d"))?;
    run("systemctl", ["daemon-reload"])?;
    let tmpfiles = below("usr/lib/tmpfiles.d");
    run(
        "systemd-tmpfiles",
        [vec!["--create".to_owned()], tmpfiles].concat(),
    )?;
    run("systemctl", ["restart", "chrony.service"])
}

/// Whatever does not run yet. The services come up in their own order, and [`super::ready`] sees how far they are.
pub fn start(files: &Files) -> Result<()> {
    let start = ["start", "--no-block"].map(str::to_owned);
    run("systemctl", [start.to_vec(), wanted_units(files)].concat())
}

/// The agent reads its settings once.
pub fn restart_agent() -> Result<()> {
    run("systemctl", ["restart", "firstlight-agent.service"])
}

/// Stops everything that runs: services, then pods, whose processes outlive their runtime, then mounts.
pub fn stop(files: &Files) -> Result<()> {
    let stop = |end| [vec!["stop".to_owned()], units(files, end)].concat();
    run("systemctl", stop(".service"))?;
    // Both are gone already when nothing was running.
    let _ = run("systemctl", ["stop", "kubepods.slice"]);
    let _ = run("systemctl", ["kill", "--signal=KILL", "containerd.service"]);
    let mounts =
        fs::read_to_string("/proc/self/mountinfo").context("reading the list of mounts")?;
    for place in pod_mounts(&mounts) {
        umount2(place, MntFlags::MNT_DETACH).with_context(|| format!("unmounting {place}"))?;
    }
    let _ = run("ip", ["link", "delete", "cni0"]);
    let _ = run("ip", ["link", "delete", "box0"]);
    let _ = run("nft", ["delete", "table", "inet", "firstlight"]);
    run("systemctl", stop(".mount"))
}

/// What a runtime that was killed leaves behind, and what keeps layers in use; the last one mounted comes first.
fn pod_mounts(mountinfo: &str) -> Vec<&str> {
    let places = mountinfo.lines().filter_map(|line| line.split(' ').nth(4));
    let ours = |place: &&str| {
        place.starts_with("/run/containerd/") || place.starts_with("/run/netns/cni-")
    };
    places.rev().filter(ours).collect()
}

/// After the files are gone: nobody remembers them.
pub fn forget() -> Result<()> {
    run("systemctl", ["daemon-reload"])?;
    run("systemctl", ["try-restart", "chrony.service"])
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn mounts_of_pods_are_found_the_last_one_first() {
        let mountinfo = "24 1 0:22 / / rw - ext4 /dev/vda rw\n\
            90 24 0:50 / /run/containerd/io.containerd.grpc.v1.cri/sandboxes/a/shm rw - tmpfs shm rw\n\
            91 24 0:51 / /run/containerd/io.containerd.runtime.v2.task/k8s.io/a/rootfs rw - overlay overlay rw\n\
            92 24 0:4 net:[1] /run/netns/cni-1 rw - nsfs nsfs rw\n\
            93 24 0:4 net:[2] /run/netns/somebodys rw - nsfs nsfs rw\n";
        assert_eq!(
            pod_mounts(mountinfo),
            [
                "/run/netns/cni-1",
                "/run/containerd/io.containerd.runtime.v2.task/k8s.io/a/rootfs",
                "/run/containerd/io.containerd.grpc.v1.cri/sandboxes/a/shm"
            ]
        );
    }

    #[test]
    fn units_to_start_are_those_that_targets_want_and_all_are_stopped() {
        let paths = [
            "etc/systemd/system/etcd.service",
            "etc/systemd/system/multi-user.target.wants/etcd.service",
            "etc/systemd/system/local-fs.target.wants/firstlight-site.mount",
            "etc/systemd/system/firstlight-agent.service.d/installed.conf",
            "usr/bin/etcd",
        ];
        let files: Files = paths
            .iter()
            .map(|path| (path.into(), BTreeSet::new()))
            .collect();
        assert_eq!(
            wanted_units(&files),
            ["firstlight-site.mount", "etcd.service"]
        );
        assert_eq!(units(&files, ".service"), ["etcd.service"]);
    }
}
