//! Read back by the crate `fatfs`, and judged by `fsck.fat`.
#![allow(clippy::unwrap_used)]

use std::io::{Cursor, Read as _};
use std::process::Command;

use proptest::prelude::*;

use super::*;

const MIB: u64 = 1 << 20;

fn volume(bytes: u64, sector: SectorSize) -> Volume {
    Volume {
        bytes,
        sector,
        cluster: sector.bytes().into(),
        align: 1,
        label: Label::new("FIRSTLIGHT").unwrap(),
        id: 0x5f1a_57e0,
    }
}

fn write(volume: &Volume, tree: &Tree<'_>) -> (Kind, Vec<u8>) {
    let layout = Layout::plan(volume, tree).unwrap();
    // What a disk held before must not show through.
    let mut made = Cursor::new(vec![0xa5; usize::try_from(volume.bytes).unwrap()]);
    layout.write(&mut made).unwrap();
    (layout.kind(), made.into_inner())
}

fn open(image: Vec<u8>) -> fatfs::FileSystem<Cursor<Vec<u8>>> {
    fatfs::FileSystem::new(Cursor::new(image), fatfs::FsOptions::new()).unwrap()
}

fn content(system: &fatfs::FileSystem<Cursor<Vec<u8>>>, path: &str) -> Vec<u8> {
    let mut content = Vec::new();
    let mut file = system.root_dir().open_file(path).unwrap();
    file.read_to_end(&mut content).unwrap();
    content
}

/// Nothing that a repair tool would change.
fn sound(image: &[u8]) {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::io::Write::write_all(&mut file.as_file(), image).unwrap();
    let found = Command::new("fsck.fat")
        .args(["-n", "-v", "-V"])
        .arg(file.path())
        .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin")
        .output()
        .expect("fsck.fat is there: scripts/bootstrap installs dosfstools");
    let said = String::from_utf8_lossy(&found.stdout);
    assert!(
        found.status.success(),
        "{said}{}",
        String::from_utf8_lossy(&found.stderr)
    );
    for word in [
        "wrong",
        "differ",
        "not valid",
        "removed",
        "Bad",
        "bad",
        "orphan",
    ] {
        assert!(!said.contains(word), "{said}");
    }
}

fn tree(big: &[u8]) -> Tree<'_> {
    let mut tree = Tree::default();
    tree.file("site.yaml", b"name: a\n").unwrap();
    tree.file("empty", b"").unwrap();
    tree.file("EFI/BOOT/BOOTX64.EFI", big).unwrap();
    tree.file("EFI/debian/a-rather-long-name.cfg", b"exactly")
        .unwrap();
    tree.file("größe/日本 +.txt", b"unit").unwrap();
    tree.folder("nothing/in/it").unwrap();
    tree
}

#[test]
fn every_kind_is_sound_and_read_back_by_another_implementation() {
    let big = b"0123456789".repeat(10_000);
    let (small, large) = (SectorSize::Bytes512, SectorSize::Bytes4096);
    for (bytes, sector, expected) in [
        (MIB, small, Kind::Fat12),
        (MIB, large, Kind::Fat12),
        (16 * MIB, small, Kind::Fat16),
        (64 * MIB, large, Kind::Fat16),
        (40 * MIB, small, Kind::Fat32),
        (300 * MIB, large, Kind::Fat32),
    ] {
        let tree = tree(&big);
        let (kind, image) = write(&volume(bytes, sector), &tree);
        assert_eq!(kind, expected, "{bytes} {sector:?}");
        sound(&image);
        let system = open(image);
        assert!(content(&system, "EFI/BOOT/BOOTX64.EFI") == big);
        assert_eq!(content(&system, "empty"), b"");
        assert_eq!(
            content(&system, "EFI/debian/A-RATHER-LONG-NAME.CFG"),
            b"exactly"
        );
        assert_eq!(content(&system, "größe/日本 +.txt"), b"unit");
        let root = system.root_dir();
        let names = |path: &str| -> Vec<String> {
            let folder = root.open_dir(path).unwrap();
            folder
                .iter()
                .map(|entry| entry.unwrap().file_name())
                .collect()
        };
        assert_eq!(names("EFI"), [".", "..", "BOOT", "debian"]);
        assert_eq!(names("nothing/in"), [".", "..", "it"]);
        assert_eq!(names("nothing/in/it"), [".", ".."]);
        assert_eq!(system.volume_label(), "FIRSTLIGHT");
        let in_root = system.read_volume_label_from_root_dir().unwrap();
        assert_eq!(in_root.as_deref(), Some("FIRSTLIGHT"));
        assert_eq!(system.volume_id(), 0x5f1a_57e0);
    }
}

#[test]
fn free_room_is_counted() {
    let big = vec![b'x'; 100_000];
    let (_, image) = write(&volume(64 * MIB, SectorSize::Bytes512), &tree(&big));
    let free = u32::from_le_bytes(image[512 + 488..512 + 492].try_into().unwrap());
    let stats = open(image).stats().unwrap();
    // The root and seven folders have a cluster each, the small files three together, the big one 196.
    assert_eq!(stats.total_clusters() - free, 8 + 3 + 196);
}

#[test]
fn no_count_of_clusters_is_near_a_boundary_of_the_kinds() {
    for (bytes, kind, clusters) in [
        (4070 * 512, Kind::Fat12, 4013),
        (4085 * 512 + 60 * 512, Kind::Fat12, 4069),
        (4101 * 512 + 68 * 512, Kind::Fat16, 4102),
        (65_525 * 512 + 544 * 512, Kind::Fat16, 65_509),
        (65_525 * 512 + (32 + 2 * 521) * 512, Kind::Fat32, 65_525),
    ] {
        let volume = volume(bytes, SectorSize::Bytes512);
        let layout = Layout::plan(&volume, &Tree::default()).unwrap();
        let (_, image) = write(&volume, &Tree::default());
        let found = open(image).stats().unwrap().total_clusters();
        assert_eq!((layout.kind(), found), (kind, clusters), "{bytes}");
    }
}

#[test]
fn files_begin_where_they_were_told_to() {
    let big = vec![7; 3000];
    let tree = tree(&big);
    let volume = Volume {
        align: 2048,
        ..volume(4 * MIB, SectorSize::Bytes512)
    };
    let layout = Layout::plan(&volume, &tree).unwrap();
    let (_, image) = write(&volume, &tree);
    sound(&image);
    for (path, expected) in [
        ("EFI/BOOT/BOOTX64.EFI", &big[..]),
        ("site.yaml", b"name: a\n"),
    ] {
        let place = layout.place(path).unwrap();
        assert!(place.start.is_multiple_of(2048), "{place:?}");
        let range = usize::try_from(place.start).unwrap()..usize::try_from(place.end).unwrap();
        assert!(&image[range] == expected);
    }
    assert_eq!((layout.place("empty"), layout.place("other")), (None, None));
}

#[test]
fn a_root_with_many_names_has_room_for_them_and_no_label_is_none() {
    let names: Vec<String> = (0..700)
        .map(|number| format!("a name of its own {number}"))
        .collect();
    let mut tree = Tree::default();
    for name in &names {
        tree.file(name, name.as_bytes()).unwrap();
    }
    for sector in [SectorSize::Bytes512, SectorSize::Bytes4096] {
        let plain = Volume {
            label: Label::default(),
            ..volume(8 * MIB, sector)
        };
        let (kind, image) = write(&plain, &tree);
        assert_ne!(kind, Kind::Fat32);
        sound(&image);
        let system = open(image);
        for name in &names {
            assert_eq!(content(&system, name), name.as_bytes());
        }
        assert_eq!(system.read_volume_label_from_root_dir().unwrap(), None);
    }
}

#[test]
fn what_cannot_be_is_refused() {
    let volume = volume(MIB, SectorSize::Bytes4096);
    let big = vec![0; 2 << 20];
    let mut full = Tree::default();
    full.file("a", &big).unwrap();
    let refused = Layout::plan(&volume, &full).unwrap_err();
    assert_eq!(
        refused,
        FatError::Full {
            needed: 512,
            clusters: 249
        }
    );
    let none = Volume {
        bytes: 100,
        ..volume.clone()
    };
    assert!(matches!(
        Layout::plan(&none, &full),
        Err(FatError::Full { clusters: 0, .. })
    ));
    let huge = Volume {
        bytes: 1 << 60,
        ..volume.clone()
    };
    assert_eq!(Layout::plan(&huge, &full), Err(FatError::TooLarge(1 << 60)));
    for cluster in [0, 512, 5000, 1 << 20] {
        let odd = Volume {
            cluster,
            ..volume.clone()
        };
        assert_eq!(Layout::plan(&odd, &full), Err(FatError::Cluster(cluster)));
    }
    let mut tree = Tree::default();
    tree.file("a", b"").unwrap();
    assert_eq!(tree.file("a", b""), Err(FatError::Twice("a".to_owned())));
    assert_eq!(
        tree.folder("a"),
        Err(FatError::FileAndFolder("a".to_owned()))
    );
    assert_eq!(
        tree.file("a/b", b""),
        Err(FatError::FileAndFolder("a".to_owned()))
    );
    let deep = "a/".repeat(40);
    assert_eq!(Tree::default().folder(&deep), Err(FatError::Deep(deep)));
    let mut odd = Tree::default();
    odd.file("a//b", b"").unwrap();
    assert_eq!(
        Layout::plan(&volume, &odd),
        Err(FatError::Name(String::new()))
    );
    for label in ["more than eleven", "a/b", "ä", " a"] {
        assert_eq!(Label::new(label), Err(FatError::Label(label.to_owned())));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn whatever_the_names_each_file_is_found_or_the_tree_is_refused(
        names in proptest::collection::btree_set("[a-cA-C~1. ä+]{1,14}", 1..40), folder in "[a-z]{1,20}",
    ) {
        let mut tree = Tree::default();
        for name in &names {
            tree.file(&format!("{folder}/{name}"), name.as_bytes()).unwrap();
        }
        let volume = volume(MIB, SectorSize::Bytes512);
        match Layout::plan(&volume, &tree) {
            Err(FatError::Name(_) | FatError::Twice(_)) => {}
            Err(other) => prop_assert!(false, "{other}"),
            Ok(_) => {
                let (_, image) = write(&volume, &tree);
                sound(&image);
                let system = open(image);
                for name in &names {
                    prop_assert_eq!(content(&system, &format!("{folder}/{name}")), name.as_bytes());
                }
            }
        }
    }
}
