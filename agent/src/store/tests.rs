#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use firstlight_api::artifact::{Arch, ArtifactSpec, ArtifactState, Kind};
use proptest::prelude::*;
use sha2::{Digest, Sha256};

use super::*;

fn spec(name: &str, content: &[u8]) -> ArtifactSpec {
    ArtifactSpec {
        kind: Kind::Package,
        name: name.into(),
        version: "1".into(),
        arch: Arch::Amd64,
        size: content.len() as u64,
        sha256: firstlight_artifacts::hex(&Sha256::digest(content)),
    }
}

fn store() -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::load(dir.path()).unwrap();
    (dir, store)
}

fn offset(store: &Store, id: &str) -> Option<u64> {
    match store.get(id).unwrap().state {
        ArtifactState::Uploading { offset } => Some(offset),
        _ => None,
    }
}

#[test]
fn an_upload_becomes_an_artifact_with_its_last_byte() {
    let (dir, store) = store();
    let id = store.begin(spec("hello", b"hello world")).unwrap().id;
    let mut writer = store.write(&id, 0).unwrap();
    writer.write(b"hello ").unwrap();
    assert_eq!(offset(&store, &id), Some(6), "progress is seen");
    let artifact = writer.finish().unwrap();
    assert_eq!(artifact.state, ArtifactState::Uploading { offset: 6 });
    assert!(matches!(store.content(&id), Err(Refusal::Conflict(_))));

    let mut writer = store.write(&id, 6).unwrap();
    writer.write(b"world").unwrap();
    assert_eq!(writer.finish().unwrap().state, ArtifactState::Publishing);
    assert_eq!(
        std::fs::read(store.content(&id).unwrap()).unwrap(),
        b"hello world"
    );
    let again = Store::load(dir.path()).unwrap();
    assert_eq!(again.get(&id).unwrap().state, ArtifactState::Publishing);
}

#[test]
fn who_begins_again_goes_on_where_it_was() {
    let (_dir, store) = store();
    let wanted = spec("hello", b"hello world");
    let id = store.begin(wanted.clone()).unwrap().id;
    let mut writer = store.write(&id, 0).unwrap();
    writer.write(b"hello").unwrap();
    drop(writer);
    let again = store.begin(wanted).unwrap();
    assert_eq!(
        (again.id, again.state),
        (id.clone(), ArtifactState::Uploading { offset: 5 })
    );
    assert_eq!(
        store.write(&id, 4).unwrap_err(),
        Refusal::Offset {
            wanted: 5,
            given: 4
        }
    );
    assert!(store.write(&id, 5).is_ok(), "a wrong offset breaks nothing");
}

#[test]
fn two_writers_of_one_upload_are_kept_apart() {
    let (_dir, store) = store();
    let id = store.begin(spec("hello", b"hello")).unwrap().id;
    let first = store.write(&id, 0).unwrap();
    assert!(matches!(store.write(&id, 0), Err(Refusal::Conflict(_))));
    assert!(matches!(store.remove(&id), Err(Refusal::Conflict(_))));
    drop(first);
    assert!(store.write(&id, 0).is_ok());
}

#[test]
fn a_package_that_a_software_names_stays() {
    let (_dir, store) = store();
    let id = store.begin(spec("hello", b"hello")).unwrap().id;
    let mut writer = store.write(&id, 0).unwrap();
    writer.write(b"hello").unwrap();
    writer.finish().unwrap();
    let refused = || store.remove(&id).unwrap_err().to_string();
    assert!(refused().contains("nobody has looked yet"), "{}", refused());
    let names = |version: &str| {
        let to = Target::Version {
            name: "hello".to_owned(),
            version: version.to_owned(),
        };
        let by = "Software tools".to_owned();
        store.note(User::Software, vec![Reference { by, to }]);
    };
    names("1");
    assert_eq!(refused(), "it is used by Software tools; change that first");
    names("2");
    store.remove(&id).unwrap();
}

#[test]
fn of_many_users_some_are_named() {
    let (_dir, store) = store();
    let spec = ArtifactSpec {
        kind: Kind::Container,
        name: "team/web".into(),
        ..spec("hello", b"hello")
    };
    let id = upload(&store, spec, b"hello");
    let pods = |names: &[&str], to: &Target| {
        let reference = |by: &&str| Reference {
            by: (*by).to_owned(),
            to: to.clone(),
        };
        store.note(User::Pods, names.iter().map(reference).collect());
    };
    let name = "team/web".to_owned();
    for (version, used) in [("1", true), ("2", false)] {
        let (name, version) = (name.clone(), version.to_owned());
        pods(&["a"], &Target::Version { name, version });
        assert_eq!(!store.get(&id).unwrap().used_by.is_empty(), used);
    }
    let names = ["a", "b", "b", "c", "d", "e"];
    pods(&names, &Target::Any { name });
    assert_eq!(store.get(&id).unwrap().used_by, ["a", "b", "c", "2 more"]);
    assert!(store.remove(&id).is_err());
    pods(&[], &Target::Disk(String::new()));
    store.remove(&id).unwrap();
}

fn upload(store: &Store, spec: ArtifactSpec, content: &[u8]) -> String {
    let id = store.begin(spec).unwrap().id;
    let mut writer = store.write(&id, 0).unwrap();
    writer.write(content).unwrap();
    writer.finish().unwrap();
    id
}

#[test]
fn what_was_noted_before_an_upload_came_says_nothing_about_it() {
    let (_dir, store) = store();
    store.note(User::Software, Vec::new());
    let id = upload(&store, spec("hello", b"hello"), b"hello");
    let refused = store.remove(&id).unwrap_err().to_string();
    assert!(refused.contains("nobody has looked yet"), "{refused}");
    store.note(User::Software, Vec::new());
    store.remove(&id).unwrap();
}

/// A partition of so many bytes, with what lies in `dir` on it.
fn room(dir: &Path, size: u64, reserve: u64) -> Room {
    fn used(dir: &Path) -> u64 {
        let files = std::fs::read_dir(dir).into_iter().flatten().flatten();
        let size = |file: std::fs::DirEntry| match file.metadata() {
            Ok(found) if found.is_dir() => used(&file.path()),
            Ok(found) => std::os::unix::fs::MetadataExt::blocks(&found) * 512,
            Err(_) => 0,
        };
        files.map(size).sum()
    }
    let dir = dir.to_owned();
    Room::new(reserve, move || Ok(size.saturating_sub(used(&dir))))
}

#[test]
fn what_publishing_needs_is_counted_before_an_upload_is_accepted() {
    const MB: u64 = 1_000_000;
    let dir = tempfile::tempdir().unwrap();
    let store = Store::load_with(dir.path(), room(dir.path(), 10 * MB, MB)).unwrap();
    let wanted = |kind, name: &str, size| ArtifactSpec {
        kind,
        size,
        ..spec(name, name.as_bytes())
    };
    // Nine are left, and a container is in the registry a second time.
    let refused = store
        .begin(wanted(Kind::Container, "a", 5 * MB))
        .unwrap_err();
    assert!(
        matches!(&refused, Refusal::TooLarge(why) if why.contains("5 MB to put it where it is used")),
        "{refused}"
    );
    let id = store
        .begin(wanted(Kind::Container, "b", 4 * MB))
        .unwrap()
        .id;
    // Its copy is promised, also while nothing is written.
    for kind in [Kind::Container, Kind::Image, Kind::Package] {
        let refused = store.begin(wanted(kind, "c", 2 * MB));
        assert!(matches!(refused, Err(Refusal::TooLarge(_))), "{kind}");
    }
    store.remove(&id).unwrap();
    // A package lies there once.
    store.begin(wanted(Kind::Package, "d", 8 * MB)).unwrap();
}

#[tokio::test]
async fn a_disk_that_finds_no_room_waits_and_leaves_nothing() {
    use std::io::Write as _;
    const MB: u64 = 1 << 20;
    let dir = tempfile::tempdir().unwrap();
    let images = dir.path().join("images");
    let mut raw = vec![0; 100 << 20];
    // What does not get smaller.
    let mut state = 1_u64;
    for byte in &mut raw {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        *byte = state.to_be_bytes()[0];
    }
    raw[510..512].copy_from_slice(&[0x55, 0xaa]);
    let content = dir.path().join("content");
    std::fs::File::create(&content)
        .unwrap()
        .write_all(&raw)
        .unwrap();
    let spec = ArtifactSpec {
        kind: Kind::Image,
        size: raw.len() as u64,
        ..spec("debian", b"")
    };
    let destinations = |room| publish::Destinations {
        registry: registry::Registry(run::REGISTRY),
        apt: apt::Repository {
            dir: dir.path().join("apt"),
            key: dir.path().join("key"),
        },
        images: images.clone(),
        pushed: pushed::Notes::at(dir.path().join("pushed.json")),
        room,
    };
    // Enough for the first part of it.
    let short = destinations(room(&images, 110 * MB, 20 * MB));
    let refused = publish::publish(&short, &spec, &content).await.unwrap_err();
    assert!(
        matches!(&refused, publish_error::PublishError::Later { reason, next }
            if reason.contains("no room") && next.contains("delete what is not used")),
        "{refused:?}"
    );
    assert_eq!(std::fs::read_dir(&images).unwrap().count(), 0);
    let enough = destinations(room(&images, 300 * MB, 20 * MB));
    let published = publish::publish(&enough, &spec, &content).await.unwrap();
    assert!(!published.keep);
    assert_eq!(std::fs::read_dir(&images).unwrap().count(), 1);
}

#[test]
fn an_upload_that_cannot_be_opened_is_nobodys() {
    let (dir, store) = store();
    let content = b"hello";
    let id = store.begin(spec("hello", content)).unwrap().id;
    let partial = dir.path().join(&id).join("partial");
    // All bytes came, and the power went before they were looked at.
    std::fs::write(&partial, content).unwrap();
    let again = Store::load(dir.path()).unwrap();
    std::fs::remove_file(&partial).unwrap();
    for _ in 0..2 {
        assert!(matches!(again.write(&id, 5), Err(Refusal::Broken(_))));
    }
}

#[test]
fn one_name_has_one_content() {
    let (_dir, store) = store();
    store.begin(spec("hello", b"one")).unwrap();
    let refused = store.begin(spec("hello", b"two")).unwrap_err();
    assert!(
        matches!(&refused, Refusal::Conflict(what) if what.contains("other content")),
        "{refused}"
    );
    store.begin(spec("other", b"two")).unwrap();
}

#[test]
fn a_wrong_digest_leaves_nothing() {
    let (dir, store) = store();
    let id = store.begin(spec("hello", b"hello")).unwrap().id;
    let mut writer = store.write(&id, 0).unwrap();
    writer.write(b"hellO").unwrap();
    assert!(matches!(writer.finish(), Err(Refusal::Unfit(what)) if what.contains("SHA-256")));
    assert!(matches!(store.get(&id), Err(Refusal::NotFound(_))));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    assert!(
        store.begin(spec("hello", b"hello")).is_ok(),
        "it can be tried again"
    );
}

#[test]
fn what_a_power_cut_spoiled_is_sent_again_and_the_upload_stays() {
    let (dir, store) = store();
    let id = store.begin(spec("hello", b"hello world")).unwrap().id;
    let mut writer = store.write(&id, 0).unwrap();
    writer.write(b"hello ").unwrap();
    writer.finish().unwrap();
    drop(store);
    let partial = dir.path().join(&id).join("partial");
    std::fs::write(&partial, b"he\0\0\0 ").unwrap();

    let store = Store::load(dir.path()).unwrap();
    let mut writer = store.write(&id, 6).unwrap();
    writer.write(b"world").unwrap();
    let anew = Refusal::Offset {
        wanted: 0,
        given: 11,
    };
    assert_eq!(writer.finish().unwrap_err(), anew);
    let mut writer = store.write(&id, 0).unwrap();
    writer.write(b"hello world").unwrap();
    assert_eq!(writer.finish().unwrap().state, ArtifactState::Publishing);
}

#[test]
fn too_many_bytes_are_refused_and_change_nothing() {
    let (_dir, store) = store();
    let id = store.begin(spec("hello", b"hello")).unwrap().id;
    let mut writer = store.write(&id, 0).unwrap();
    assert!(matches!(writer.write(b"hello!"), Err(Refusal::Unfit(_))));
    drop(writer);
    assert_eq!(offset(&store, &id), Some(0));
}

#[test]
fn what_does_not_fit_is_refused_before_a_byte_comes() {
    let (dir, store) = store();
    let huge = ArtifactSpec {
        size: firstlight_api::artifact::LARGEST,
        ..spec("hello", b"x")
    };
    assert!(matches!(store.begin(huge), Err(Refusal::TooLarge(_))));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn half_made_folders_do_not_survive_a_restart() {
    let (dir, store) = store();
    let id = store.begin(spec("hello", b"hello")).unwrap().id;
    std::fs::remove_file(dir.path().join(&id).join("spec.json")).unwrap();
    std::fs::create_dir(dir.path().join("empty")).unwrap();
    let again = Store::load(dir.path()).unwrap();
    assert!(again.list().is_empty());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

/// What happens to one of three uploads.
#[derive(Clone, Debug)]
enum Event {
    /// So many bytes arrive, and the connection ends in order.
    Send {
        which: usize,
        bytes: usize,
    },
    /// The connection breaks after them.
    Break {
        which: usize,
        bytes: usize,
    },
    /// The box loses its power; of the last write, so many bytes are lost.
    PowerCut {
        which: usize,
        lost: u64,
    },
    Remove {
        which: usize,
    },
}

fn event() -> impl Strategy<Value = Event> {
    let which = 0..3_usize;
    prop_oneof![
        4 => (which.clone(), 0..4000_usize).prop_map(|(which, bytes)| Event::Send { which, bytes }),
        3 => (which.clone(), 0..4000_usize).prop_map(|(which, bytes)| Event::Break { which, bytes }),
        2 => (which.clone(), 0..2000_u64).prop_map(|(which, lost)| Event::PowerCut { which, lost }),
        1 => which.prop_map(|which| Event::Remove { which }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever breaks, each upload ends with exactly its own bytes, and none is visible before.
    #[test]
    fn uploads_survive_whatever_breaks(events in prop::collection::vec(event(), 0..40), seed: u8) {
        let dir = tempfile::tempdir().unwrap();
        let mut store = Store::load(dir.path()).unwrap();
        let contents: BTreeMap<usize, Vec<u8>> = (0..3_usize)
            .map(|which| {
                let length = 3000 + which * 2500;
                let content = (0..length).map(|at| u8::try_from((at * (which + 3) + usize::from(seed)) % 251).unwrap()).collect();
                (which, content)
            })
            .collect();
        let begin = |store: &Store, which: usize| {
            let artifact = store.begin(spec(&format!("file-{which}"), &contents[&which])).unwrap();
            let at = match artifact.state {
                ArtifactState::Uploading { offset } => Some(offset),
                _ => None,
            };
            (artifact.id, at)
        };
        let send = |store: &Store, which: usize, bytes: usize, in_order: bool| {
            let (id, Some(at)) = begin(store, which) else { return };
            let content = &contents[&which];
            let from = usize::try_from(at).unwrap();
            let to = (from + bytes).min(content.len());
            let mut writer = store.write(&id, at).unwrap();
            for piece in content[from..to].chunks(700) {
                writer.write(piece).unwrap();
            }
            if in_order {
                writer.finish().unwrap();
            }
        };
        for event in events {
            match event {
                Event::Send { which, bytes } => send(&store, which, bytes, true),
                Event::Break { which, bytes } => send(&store, which, bytes, false),
                Event::PowerCut { which, lost } => {
                    let (id, at) = begin(&store, which);
                    if let Some(at) = at {
                        let partial = dir.path().join(&id).join("partial");
                        let file = std::fs::OpenOptions::new().write(true).open(partial).unwrap();
                        file.set_len(at.saturating_sub(lost)).unwrap();
                    }
                    store = Store::load(dir.path()).unwrap();
                }
                Event::Remove { which } => {
                    let (id, _) = begin(&store, which);
                    store.note(User::Software, Vec::new());
                    store.remove(&id).unwrap();
                }
            }
        }
        for which in 0..3 {
            send(&store, which, usize::MAX / 2, true);
            let (id, at) = begin(&store, which);
            prop_assert_eq!(at, None);
            prop_assert_eq!(&std::fs::read(store.content(&id).unwrap()).unwrap(), &contents[&which]);
        }
    }
}
