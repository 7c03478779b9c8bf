#![allow(clippy::unwrap_used)]

use std::io::Cursor;

use super::*;

fn spec() -> FatSpec {
    let text = |path: &str, text: &str| (path.to_owned(), Content::Text(text.to_owned()));
    FatSpec {
        bytes: 64 << 20,
        cluster: 512,
        label: "FIRSTLIGHT".to_owned(),
        volume_id: 0x5f1a_57e0,
        files: vec![
            text("site.yaml", "name: a\n"),
            text("empty", ""),
            text("EFI/BOOT/BOOTX64.EFI", &"x".repeat(100_000)),
            text("EFI/debian/a-rather-long-name.cfg", "exactly"),
        ],
    }
}

#[test]
fn another_implementation_reads_every_file_back() {
    let image = format_fat(&spec()).unwrap();
    for (path, content) in spec().files {
        let Content::Text(text) = content else {
            unreachable!()
        };
        assert_eq!(
            read_file(Cursor::new(image.clone()), &path).unwrap(),
            Some(text.into_bytes()),
            "{path}"
        );
    }
    assert_eq!(read_file(Cursor::new(image), "nothing").unwrap(), None);
}

#[test]
fn directories_begin_with_themselves_and_their_parent() {
    let system = |image: Vec<u8>| {
        fatfs::FileSystem::new(Cursor::new(image), fatfs::FsOptions::new()).unwrap()
    };
    let system = system(format_fat(&spec()).unwrap());
    let names = |path: &str| -> Vec<String> {
        system
            .root_dir()
            .open_dir(path)
            .unwrap()
            .iter()
            .map(|entry| entry.unwrap().file_name())
            .collect()
    };
    assert_eq!(names("EFI"), [".", "..", "BOOT", "debian"]);
    assert_eq!(names("EFI/BOOT"), [".", "..", "BOOTX64.EFI"]);
    assert_eq!(system.volume_label(), "FIRSTLIGHT");
    assert_eq!(
        system.read_volume_label_from_root_dir().unwrap(),
        Some("FIRSTLIGHT".to_owned())
    );
}

#[test]
fn free_room_is_counted() {
    let image = format_fat(&spec()).unwrap();
    let free = u32::from_le_bytes(image[512 + 488..512 + 492].try_into().unwrap());
    let system = fatfs::FileSystem::new(Cursor::new(image), fatfs::FsOptions::new()).unwrap();
    let stats = system.stats().unwrap();
    // Root, EFI, BOOT and debian have a cluster each, the small files two together, the big one 196.
    assert_eq!(stats.total_clusters() - free, 4 + 2 + 196);
}

#[test]
fn what_does_not_fit_is_refused() {
    let error = format_fat(&FatSpec {
        bytes: 16 << 20,
        ..spec()
    })
    .unwrap_err();
    assert!(error.to_string().contains("too small"), "{error}");
    let files = vec![("a".to_owned(), Content::Text("x".repeat(65 << 20)))];
    let error = format_fat(&FatSpec { files, ..spec() }).unwrap_err();
    assert!(format!("{error:#}").contains("do not fit"), "{error:#}");
    let files = vec![
        ("a".to_owned(), Content::Text(String::new())),
        ("a/b".to_owned(), Content::Text(String::new())),
    ];
    assert!(format_fat(&FatSpec { files, ..spec() }).is_err());
}
