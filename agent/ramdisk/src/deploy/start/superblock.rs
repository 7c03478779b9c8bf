//! What file system a partition holds, and what it is called, from its first blocks.

use uuid::Uuid;

/// Bytes of a partition that tell it.
pub const LENGTH: usize = 68 << 10;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSystem {
    pub kind: Kind,
    /// As `blkid` writes it.
    pub uuid: String,
    pub label: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Ext {
        /// Its journal has to be played back first.
        is_dirty: bool,
    },
    Fat,
    Xfs,
    Btrfs,
}

impl Kind {
    /// The kernel's name for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ext { .. } => "ext4",
            Self::Fat => "vfat",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
        }
    }
}

/// `None`: none of those that boot loaders read.
pub fn identify(head: &[u8]) -> Option<FileSystem> {
    let at = |offset: usize, length: usize| head.get(offset..offset + length);
    if at(0, 4)? == b"XFSB" {
        return Some(FileSystem {
            kind: Kind::Xfs,
            uuid: uuid(at(32, 16)?),
            label: text(at(108, 12)?),
        });
    }
    if at(1024 + 0x38, 2)? == [0x53, 0xEF] {
        let incompatible = at(1024 + 0x60, 1)?[0];
        return Some(FileSystem {
            kind: Kind::Ext {
                is_dirty: incompatible & 4 != 0,
            },
            uuid: uuid(at(1024 + 0x68, 16)?),
            label: text(at(1024 + 0x78, 16)?),
        });
    }
    let fat = [(82, 67, 71), (54, 39, 43)];
    for (name, serial, label) in fat {
        if at(510, 2)? == [0x55, 0xAA] && at(name, 3)? == b"FAT" {
            let serial = at(serial, 4)?;
            let [a, b, c, d] = [serial[3], serial[2], serial[1], serial[0]];
            return Some(FileSystem {
                kind: Kind::Fat,
                uuid: format!("{a:02X}{b:02X}-{c:02X}{d:02X}"),
                label: text(at(label, 11)?),
            });
        }
    }
    if at(0x10040, 8)? == b"_BHRfS_M" {
        return Some(FileSystem {
            kind: Kind::Btrfs,
            uuid: uuid(at(0x10020, 16)?),
            label: text(at(0x1012B, 64)?),
        });
    }
    None
}

fn uuid(bytes: &[u8]) -> String {
    Uuid::from_slice(bytes).unwrap_or_default().to_string()
}

fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0);
    let bytes = &bytes[..end.unwrap_or(bytes.len())];
    String::from_utf8_lossy(bytes).trim_end().to_owned()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn head(places: &[(usize, &[u8])]) -> Vec<u8> {
        let mut head = vec![0; LENGTH];
        for (at, bytes) in places {
            head[*at..*at + bytes.len()].copy_from_slice(bytes);
        }
        head
    }

    #[test]
    fn each_kind_is_known_by_its_superblock() {
        let id: Vec<u8> = (1..=16).collect();
        let named = "01020304-0506-0708-090a-0b0c0d0e0f10";
        let ext = head(&[(1080, &[0x53, 0xEF]), (1128, &id), (1144, b"root")]);
        let found = identify(&ext).unwrap();
        assert_eq!((found.uuid.as_str(), found.label.as_str()), (named, "root"));
        assert_eq!(found.kind, Kind::Ext { is_dirty: false });
        let mut dirty = ext;
        dirty[1024 + 0x60] = 4;
        let kind = identify(&dirty).unwrap().kind;
        assert_eq!(kind, Kind::Ext { is_dirty: true });

        let fat = head(&[
            (82, b"FAT32   "),
            (67, &[0xD0, 0xC0, 0xB0, 0xA0]),
            (71, b"UEFI       "),
            (510, &[0x55, 0xAA]),
        ]);
        let found = identify(&fat).unwrap();
        assert_eq!(
            (found.uuid.as_str(), found.label.as_str()),
            ("A0B0-C0D0", "UEFI")
        );

        let xfs = head(&[(0, b"XFSB"), (32, &id), (108, b"boot")]);
        let found = identify(&xfs).unwrap();
        assert_eq!((found.kind, found.uuid.as_str()), (Kind::Xfs, named));

        let btrfs = head(&[(0x10040, b"_BHRfS_M"), (0x10020, &id)]);
        assert_eq!(identify(&btrfs).unwrap().kind, Kind::Btrfs);
        assert_eq!(identify(&head(&[])), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_file_system_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..3000), at in 0_usize..70_000, kind in 0_usize..4) {
            let magics: [(usize, &[u8]); 4] = [(1080, &[0x53, 0xEF]), (0, b"XFSB"), (0x10040, b"_BHRfS_M"), (510, &[0x55, 0xAA])];
            let (place, magic) = magics[kind];
            let mut all = vec![0x46; 70_000];
            all[place..place + magic.len()].copy_from_slice(magic);
            let end = at + bytes.len().min(70_000 - at);
            all[at..end].copy_from_slice(&bytes[..end - at]);
            drop(identify(&all));
            drop(identify(&all[..at]));
            drop(identify(&bytes));
        }
    }
}
