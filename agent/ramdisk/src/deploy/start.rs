//! The installed system, started by the running kernel instead of by the firmware: what its own boot loader would start is found on the
//! written disk, and loaded by kexec.
//!
//! Who cannot say for sure what the loader would do says why, and the machine restarts. To read another loader: a file beside `grub`
//! and `bls`, and an arm in [`find`].

mod arguments;
mod bls;
mod grub;
mod mounts;
mod superblock;
mod system;
#[cfg(test)]
mod tests;
mod tree;

pub use arguments::write as write_arguments;
pub use mounts::{Mounted, Use};
pub use system::{Entry, EntryError, Location, System, Volume};
pub use tree::Tree;

use firstlight_kexec::Files;

/// What the loader of the installed system would start.
pub fn find(system: &System) -> Result<Entry, EntryError> {
    let mut configs = Vec::new();
    for (volume, known) in system.volumes.iter().enumerate() {
        let mut seen = Vec::new();
        for path in grub::CONFIGS {
            // `/boot` on its own file system is often a link to itself.
            if let Ok(identity) = known.tree.identity(path)
                && !seen.contains(&identity)
            {
                seen.push(identity);
                let path = path.to_owned();
                configs.push(Location { volume, path });
            }
        }
    }
    match configs.as_slice() {
        [config] => grub::choose(system, config),
        [] => by_entries(system),
        [first, second, ..] => Err(EntryError::Unclear(format!(
            "the disk has two configurations of GRUB, {} in partition {} and {} in partition {}",
            first.path,
            system.volumes[first.volume].number,
            second.path,
            system.volumes[second.volume].number
        ))),
    }
}

/// Without GRUB.
fn by_entries(system: &System) -> Result<Entry, EntryError> {
    let mut with_entries = Vec::new();
    for (volume, known) in system.volumes.iter().enumerate() {
        let images = known.tree.names("/EFI/Linux", ".efi");
        if images.is_ok_and(|images| !images.is_empty()) {
            return Err(EntryError::unclear(
                "its kernel is inside an EFI program, which only firmware starts",
            ));
        }
        if !bls::files(system, volume)?.is_empty() {
            with_entries.push(volume);
        }
    }
    match with_entries.as_slice() {
        [volume] => bls::choose(system, *volume),
        [] if system.unread.is_empty() => Err(EntryError::unclear(
            "the disk has no configuration of GRUB and no boot entries where they usually are",
        )),
        [] => Err(EntryError::Unclear(format!(
            "the boot loader's configuration was not found; the ramdisk cannot read {}",
            system.unread.join(", ")
        ))),
        _ => Err(EntryError::unclear(
            "two file systems of the disk have boot entries",
        )),
    }
}

/// Its files, opened.
pub fn open(system: &System, entry: &Entry) -> Result<Files, EntryError> {
    let file = |place: &Location| {
        let tree = system
            .tree(place.volume)
            .ok_or_else(|| EntryError::unclear("a volume is not there"))?;
        tree.file(&place.path).map_err(|source| EntryError::Read {
            path: place.path.clone(),
            source,
        })
    };
    let kernel = entry.kernel.as_ref().ok_or_else(|| {
        EntryError::unclear("the boot loader's configuration starts no Linux kernel")
    })?;
    Ok(Files {
        kernel: file(kernel)?,
        initrds: entry.initrds.iter().map(file).collect::<Result<_, _>>()?,
        options: entry.options.clone(),
    })
}
