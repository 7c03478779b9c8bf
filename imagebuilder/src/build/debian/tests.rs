#![allow(clippy::unwrap_used)]
use super::*;

#[test]
fn installed_packages_are_those_that_are_held_too() {
    let status = "Package: a\nStatus: install ok installed\nVersion: 1:2-3\n\nPackage: b\nStatus: deinstall ok config-files\nVersion: 1\n\n\
                  Package: c\nStatus: hold ok installed\nVersion: 2\n";
    let found: Vec<_> = installed(status).collect();
    assert_eq!(found, [("a", "1:2-3"), ("c", "2")]);
}

#[test]
fn the_security_archive_lies_beside_the_main_one() {
    assert_eq!(
        security_mirror("http://mirror.example/debian"),
        "http://mirror.example/debian-security"
    );
    assert_eq!(
        security_mirror("http://snapshot.example/archive/debian/20261101T000000Z"),
        "http://snapshot.example/archive/debian-security/20261101T000000Z"
    );
}

#[test]
fn overlays_are_packed_the_same_way_every_time_and_belong_to_root() {
    let dir = tempfile::tempdir().unwrap();
    let tree = dir.path().join("tree");
    fs::create_dir_all(tree.join("etc/wants")).unwrap();
    fs::write(tree.join("etc/fstab"), "x").unwrap();
    std::os::unix::fs::symlink("../fstab", tree.join("etc/wants/link")).unwrap();
    let (first, second) = (dir.path().join("1.tar"), dir.path().join("2.tar"));
    pack_overlay(&tree, ".", &first).unwrap();
    fs::write(tree.join("etc/fstab"), "x").unwrap();
    pack_overlay(&tree, ".", &second).unwrap();
    assert_eq!(fs::read(&first).unwrap(), fs::read(&second).unwrap());
    assert_eq!(read_member(&first, "etc/fstab").unwrap(), b"x");
    let mut archive = tar::Archive::new(File::open(&first).unwrap());
    assert!(
        archive
            .entries()
            .unwrap()
            .all(|entry| entry.unwrap().header().uid().unwrap() == 0)
    );
}

#[test]
fn files_are_added_behind_the_entries_of_a_tree() {
    let dir = tempfile::tempdir().unwrap();
    let (first, second) = (dir.path().join("first"), dir.path().join("second"));
    for (tree, name) in [(&first, "a"), (&second, "b")] {
        fs::create_dir_all(tree.join("usr/bin")).unwrap();
        fs::write(tree.join("usr/bin").join(name), "x".repeat(700)).unwrap();
    }
    std::os::unix::fs::symlink("b", second.join("usr/bin/link")).unwrap();
    let archive = dir.path().join("tree.tar");
    pack_overlay(&first, ".", &archive).unwrap();
    add_to_tree(&archive, &second).unwrap();
    for name in ["a", "b"] {
        let member = read_member(&archive, &format!("usr/bin/{name}")).unwrap();
        assert_eq!(member.len(), 700, "{name}");
    }
    let link = unpack(&archive, &["usr"], &first).map(|()| first.join("usr/bin/link"));
    assert_eq!(fs::read_link(link.unwrap()).unwrap(), Path::new("b"));
}

#[test]
fn only_the_wanted_part_of_a_tree_is_unpacked() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("tree/usr/lib")).unwrap();
    fs::create_dir_all(dir.path().join("tree/etc")).unwrap();
    fs::write(dir.path().join("tree/usr/lib/x"), "x").unwrap();
    fs::write(dir.path().join("tree/etc/y"), "y").unwrap();
    pack_overlay(&dir.path().join("tree"), ".", &dir.path().join("tree.tar")).unwrap();
    unpack(
        &dir.path().join("tree.tar"),
        &["usr"],
        &dir.path().join("out"),
    )
    .unwrap_err();
    fs::create_dir(dir.path().join("out")).unwrap();
    unpack(
        &dir.path().join("tree.tar"),
        &["usr"],
        &dir.path().join("out"),
    )
    .unwrap();
    assert!(dir.path().join("out/usr/lib/x").exists() && !dir.path().join("out/etc").exists());
}
