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
fn what_does_not_fit_is_refused() {
    let error = format_fat(&FatSpec {
        bytes: 16 << 20,
        ..spec()
    })
    .unwrap_err();
    let said = format!("{error:#}");
    assert_eq!(
        said,
        "making the file system FIRSTLIGHT: it is too small for FAT32"
    );
    let files = vec![("a".to_owned(), Content::Text("x".repeat(65 << 20)))];
    let error = format_fat(&FatSpec { files, ..spec() }).unwrap_err();
    assert!(format!("{error:#}").contains("do not fit"), "{error:#}");
    let files = vec![
        ("a".to_owned(), Content::Text(String::new())),
        ("a/b".to_owned(), Content::Text(String::new())),
    ];
    assert!(format_fat(&FatSpec { files, ..spec() }).is_err());
}
