//! Whether the system of an image can start from a mirror.

use crate::deploy::start::System;

/// Where a system has its description (`os-release(5)`).
const RELEASES: [&str; 2] = ["/etc/os-release", "/usr/lib/os-release"];
/// With it initramfs-tools and dracut bring what puts a mirror together.
const MDADM: [&str; 3] = ["/usr/sbin/mdadm", "/sbin/mdadm", "/usr/bin/mdadm"];

/// Why not; a sentence each, for whoever chose the image.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    #[error(
        "no root file system was found in this image{unread}, so that nobody can say whether it starts from a mirror; use an image with ext4 or XFS, or one disk"
    )]
    NoRoot { unread: String },
    #[error(
        "the image has several systems, in partitions {0}, and only one can have its root on a mirror; use another image, or one disk"
    )]
    Several(String),
    #[error(
        "the image has no mdadm, so that its system would not start from a mirror; install mdadm in the image, or use one disk"
    )]
    NoMdadm,
}

/// The number of the partition with the root file system.
pub fn root(system: &System) -> Result<u32, Unfit> {
    let has =
        |tree: &crate::deploy::start::Tree, names: &[&str]| names.iter().any(|name| tree.has(name));
    let roots: Vec<_> = system
        .volumes
        .iter()
        .filter(|volume| has(&volume.tree, &RELEASES))
        .collect();
    match roots.as_slice() {
        [root] if has(&root.tree, &MDADM) => Ok(root.number),
        [_] => Err(Unfit::NoMdadm),
        [] if system.unread.is_empty() => Err(Unfit::NoRoot {
            unread: String::new(),
        }),
        [] => Err(Unfit::NoRoot {
            unread: format!(", and {} cannot be read", system.unread.join(", ")),
        }),
        several => {
            let numbers = several.iter().map(|volume| volume.number.to_string());
            Err(Unfit::Several(numbers.collect::<Vec<_>>().join(" and ")))
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs;

    use crate::deploy::start::{Tree, Volume};

    use super::*;

    /// One folder for each partition, with these files.
    fn found(partitions: &[(u32, &[&str])], unread: &[&str]) -> Result<u32, String> {
        let top = tempfile::tempdir().unwrap();
        let mut system = System {
            unread: unread.iter().map(|what| (*what).to_owned()).collect(),
            ..System::default()
        };
        for (number, files) in partitions {
            let folder = top.path().join(number.to_string());
            fs::create_dir_all(&folder).unwrap();
            for file in *files {
                let path = folder.join(file);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, "").unwrap();
            }
            system.volumes.push(Volume {
                number: *number,
                uuid: String::new(),
                label: String::new(),
                part_uuid: String::new(),
                tree: Tree::open(&folder).unwrap(),
            });
        }
        root(&system).map_err(|why| why.to_string())
    }

    #[test]
    fn an_image_has_one_system_and_that_has_mdadm_or_no_mirror_is_made_of_it() {
        let esp: (u32, &[&str]) = (2, &["EFI/BOOT/BOOTX64.EFI"]);
        let whole: &[&str] = &["etc/os-release", "usr/sbin/mdadm"];
        assert_eq!(found(&[esp, (3, whole)], &[]), Ok(3));
        assert_eq!(
            found(&[(1, &["usr/lib/os-release", "usr/bin/mdadm"]), esp], &[]),
            Ok(1)
        );
        for (partitions, unread, why) in [
            (
                vec![esp, (3, &["etc/os-release"] as &[&str])],
                vec![],
                "has no mdadm",
            ),
            (
                vec![esp],
                vec!["btrfs in partition 3"],
                "btrfs in partition 3 cannot be read",
            ),
            (
                vec![],
                vec![],
                "no root file system was found in this image, so",
            ),
            (
                vec![(3, whole), (4, whole)],
                vec![],
                "in partitions 3 and 4",
            ),
        ] {
            let said = found(&partitions, &unread).unwrap_err();
            assert!(said.contains(why), "{said}");
        }
    }
}
