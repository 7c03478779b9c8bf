//! Makes or removes the folder of one volume. What was cut is done again, and changes nothing that is done.

use std::{
    fs::{self, Permissions},
    io::ErrorKind,
    os::unix::fs::PermissionsExt as _,
};

use anyhow::{Context as _, Result, ensure};

use crate::{
    disk::{Disk, Share, Space, is_held_to},
    event::{self, Reason},
    order::{Action, Order},
    quota,
};

/// Whatever user a pod runs as.
const FOR_ALL: u32 = 0o777;

pub async fn run(words: &[String]) -> Result<()> {
    let order = Order::parse(words)?;
    let disk = Disk::new(&order.base, Share::load()?);
    let done = match order.action {
        Action::Create => create(&disk, &order.name, order.bytes),
        Action::Delete => return delete(&disk, &order.name),
    };
    let (reason, sentence) = match &done {
        Ok(Held::ToItsSize) => return Ok(()),
        Ok(Held::ToNothing(why)) => (Reason::SizeNotEnforced, why.clone()),
        Err(error) => (Reason::Refused, format!("{error:#}")),
    };
    if let Some(claim) = order.claim() {
        event::tell(&claim, reason, &sentence).await;
    }
    tracing::warn!("{sentence}");
    done.map(drop)
}

/// What a volume that was made is held to.
#[derive(Debug, PartialEq, Eq)]
enum Held {
    ToItsSize,
    /// With a reason.
    ToNothing(String),
}

fn create(disk: &Disk, volume: &str, bytes: u64) -> Result<Held> {
    let folder = disk.folder(volume);
    let lock = disk.lock()?;
    if !disk.promises()?.contains_key(volume) {
        let left = disk.left()?;
        ensure!(
            bytes <= left,
            "{} do not fit on the disk of this node, which has {} left for volumes; `kubectl get csistoragecapacities -n kube-system` shows those of others",
            mebibytes(bytes),
            mebibytes(left)
        );
        disk.promise(volume, bytes)?;
    }
    match fs::create_dir(&folder) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        made => made.with_context(|| format!("making {}", folder.display()))?,
    }
    let limited = quota::limit(&folder, bytes);
    let is_held = is_held_to(Space::load(&folder)?, bytes);
    drop(lock);
    fs::set_permissions(&folder, Permissions::from_mode(FOR_ALL))
        .with_context(|| format!("opening {} to all users", folder.display()))?;
    Ok(match limited {
        Ok(()) if is_held => Held::ToItsSize,
        Ok(()) => Held::ToNothing(not_enforced(
            "its file system is not mounted with `prjquota`",
        )),
        Err(error) => Held::ToNothing(not_enforced(&format!("{error:#}"))),
    })
}

fn not_enforced(why: &str) -> String {
    format!("the volume may grow beyond its size: {why}")
}

fn delete(disk: &Disk, volume: &str) -> Result<()> {
    let folder = disk.folder(volume);
    if folder.exists() {
        if let Err(error) = quota::lift(&folder) {
            tracing::info!("no limit is taken from {}: {error:#}", folder.display());
        }
        fs::remove_dir_all(&folder).with_context(|| format!("removing {}", folder.display()))?;
    }
    let _lock = disk.lock()?;
    disk.take_back(volume)
}

fn mebibytes(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_volume_is_made_once_and_removed_with_its_promise() {
        let base = tempfile::tempdir().unwrap();
        let disk = Disk::new(base.path(), Share::parse("100").unwrap());
        for _ in 0..2 {
            // The file systems of machines that run this have no quotas, or the test is not root.
            let held = create(&disk, "a", 4096).unwrap();
            assert!(matches!(held, Held::ToNothing(_)), "{held:?}");
        }
        let folder = disk.folder("a");
        let mode = fs::metadata(&folder).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, FOR_ALL);
        fs::write(folder.join("file"), "x").unwrap();
        for _ in 0..2 {
            delete(&disk, "a").unwrap();
            assert!(!folder.exists() && disk.promises().unwrap().is_empty());
        }
    }

    #[test]
    fn what_does_not_fit_is_refused_and_leaves_nothing() {
        let base = tempfile::tempdir().unwrap();
        let disk = Disk::new(base.path(), Share::parse("1").unwrap());
        let refused = create(&disk, "a", 1 << 60).unwrap_err().to_string();
        assert!(
            refused.starts_with("1099511627776 MiB do not fit"),
            "{refused}"
        );
        assert!(!disk.folder("a").exists() && disk.promises().unwrap().is_empty());
    }
}
