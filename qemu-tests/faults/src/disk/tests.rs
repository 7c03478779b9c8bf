#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;
use crate::fault::When;

const SIZE: u64 = 1 << 20;

fn file() -> Node {
    Node {
        what: What::File(Content::default()),
        mode: 0o644,
        owner: (0, 0),
        modified: SystemTime::UNIX_EPOCH,
    }
}

fn dir() -> Node {
    Node {
        what: What::Dir(BTreeMap::new()),
        ..file()
    }
}

fn name(text: &str) -> &OsStr {
    OsStr::new(text)
}

/// Paths with what is there; of a directory nothing.
fn tree(disk: &Disk) -> BTreeMap<String, Option<Vec<u8>>> {
    let mut all = BTreeMap::new();
    let mut waiting = vec![ROOT];
    while let Some(at) = waiting.pop() {
        for (_, ino) in disk.list(at).unwrap() {
            let node = disk.node(ino).unwrap();
            let content = match &node.what {
                What::File(content) => Some(content.read(0, usize::MAX)),
                _ => None,
            };
            if node.dir().is_some() {
                waiting.push(ino);
            }
            all.insert(disk.path(ino), content);
        }
    }
    all
}

/// As the agent's `files::write` replaces a file; without the steps that are left out.
fn replace(disk: &mut Disk, content: &[u8], leave_out: &str) -> Result<()> {
    let (new, old) = (name(".f.new"), name("f"));
    let ino = match disk.lookup(ROOT, new) {
        Ok(ino) => ino,
        Err(_) => disk.create(ROOT, new, file())?,
    };
    disk.resize(ino, 0)?;
    disk.write(ino, 0, content)?;
    if leave_out != "fsync of the file" {
        disk.sync(ino)?;
    }
    disk.rename((ROOT, new), (ROOT, old))?;
    if leave_out != "fsync of the directory" {
        disk.sync(ROOT)?;
    }
    Ok(())
}

/// What of `leave_out` is seen: content that is neither, and an acknowledged one that is gone.
fn cuts_everywhere(names: Names, leave_out: &str) -> (bool, bool) {
    let (old, new) = (vec![1; 9000], vec![2; 10_000]);
    let (mut is_torn, mut is_lost) = (false, false);
    for at in 1..9 {
        for seed in 0..40 {
            let mut disk = Disk::new(SIZE, names);
            replace(&mut disk, &old, "").unwrap();
            disk.add(Fault::new(
                "**",
                Operation::Change,
                When::Nth(at),
                Kind::Cut,
            ));
            let acknowledged = replace(&mut disk, &new, leave_out).is_ok();
            disk.cut();
            disk.survive(seed);
            let found = tree(&disk).remove("/f").flatten();
            is_torn |= found.as_ref() != Some(&old) && found.as_ref() != Some(&new);
            is_lost |= acknowledged && found.as_ref() != Some(&new);
        }
    }
    (is_torn, is_lost)
}

#[test]
fn a_file_that_is_replaced_with_care_is_whole_after_a_power_cut_anywhere_and_without_care_it_is_not()
 {
    for names in [Names::WithDirectory, Names::WithFile] {
        assert_eq!(cuts_everywhere(names, ""), (false, false), "{names:?}");
        assert_eq!(
            cuts_everywhere(names, "fsync of the file"),
            (true, true),
            "{names:?}"
        );
        assert_eq!(
            cuts_everywhere(names, "fsync of the directory"),
            (false, true),
            "{names:?}"
        );
    }
}

#[test]
fn a_new_file_in_a_new_folder_has_its_name_with_itself_or_with_its_folders() {
    for (names, wanted) in [(Names::WithFile, true), (Names::WithDirectory, false)] {
        let mut disk = Disk::new(SIZE, names);
        let folder = disk.create(ROOT, name("d"), dir()).unwrap();
        let ino = disk.create(folder, name("f"), file()).unwrap();
        disk.write(ino, 0, b"here").unwrap();
        disk.sync(ino).unwrap();
        disk.cut();
        let survivors = (0..20).filter(|seed| {
            let mut disk = disk.clone();
            disk.survive(*seed);
            tree(&disk).contains_key("/d/f")
        });
        assert_eq!(survivors.count() == 20, wanted, "{names:?}");
    }
}

#[test]
fn what_waited_for_an_fsync_that_failed_is_lost_and_the_next_one_says_nothing() {
    let mut disk = Disk::new(SIZE, Names::WithFile);
    let ino = disk.create(ROOT, name("f"), file()).unwrap();
    disk.write(ino, 0, b"lost").unwrap();
    disk.add(Fault::new(
        "/f",
        Operation::Sync,
        When::Nth(1),
        Kind::Broken,
    ));
    assert_eq!(disk.sync(ino), Err(Errno::EIO));
    assert_eq!(disk.sync(ino), Ok(()));
    assert_eq!(disk.read(ino, 0, 4).unwrap(), b"lost");
    disk.cut();
    assert_eq!(disk.read(ino, 0, 4), Err(Errno::EIO));
    disk.survive(1);
    assert_eq!(disk.read(ino, 0, 4).unwrap(), b"\0\0\0\0");
}

#[test]
fn a_full_disk_says_so_and_has_room_again_after_a_removal() {
    let mut disk = Disk::new(3 * 4096, Names::WithFile);
    let ino = disk.create(ROOT, name("f"), file()).unwrap();
    disk.reserve(ino, 2 * 4096, None).unwrap();
    assert_eq!(
        (disk.usage(), disk.node(ino).unwrap().bare()),
        ((3 * 4096, 2 * 4096), disk.node(ino).unwrap().bare())
    );
    disk.write(ino, 0, &[1; 3 * 4096]).unwrap();
    assert_eq!(disk.write(ino, 3 * 4096, &[1]), Err(Errno::ENOSPC));
    disk.open(ino).unwrap();
    disk.unlink(ROOT, name("f")).unwrap();
    assert_eq!(disk.usage().1, 3 * 4096);
    disk.close(ino);
    assert_eq!(disk.usage().1, 0);
}

#[test]
fn a_torn_write_is_there_in_part_and_fails() {
    let mut disk = Disk::new(SIZE, Names::WithFile);
    let ino = disk.create(ROOT, name("f"), file()).unwrap();
    disk.sync(ino).unwrap();
    disk.add(Fault::new(
        "/f",
        Operation::Write,
        When::Always,
        Kind::Torn(3),
    ));
    assert_eq!(disk.write(ino, 0, b"123456"), Err(Errno::EIO));
    disk.cut();
    disk.survive(0);
    assert_eq!(disk.read(ino, 0, 9).unwrap(), b"123");
}

proptest! {
    /// Whatever happened before, and whatever is begun afterwards elsewhere: what was synchronised is there.
    #[test]
    fn what_was_synchronised_survives(
        steps in prop::collection::vec((0..5_u8, 0..4_u8, 0..4_u8, 0..20_000_u16), 1..60),
        seed: u64,
        names in prop_oneof![Just(Names::WithDirectory), Just(Names::WithFile)],
    ) {
        let mut disk = Disk::new(SIZE, names);
        let kept = disk.create(ROOT, name("kept"), dir()).unwrap();
        let other = disk.create(ROOT, name("other"), dir()).unwrap();
        for (half, folder) in [kept, other].into_iter().enumerate() {
            for (what, one, two, length) in steps.iter().skip(half) {
                let [one, two] = [one, two].map(|number| OsString::from(number.to_string()));
                let ino = disk.lookup(folder, &one).or_else(|_| disk.create(folder, &one, file())).unwrap();
                let _: Result<()> = match what {
                    0 => disk.write(ino, u64::from(length / 2), &vec![7; usize::from(*length)]).map(drop),
                    1 => disk.resize(ino, u64::from(*length)),
                    2 => disk.rename((folder, &one), (folder, &two)),
                    3 => disk.unlink(folder, &one),
                    _ => disk.sync(ino),
                };
            }
            if half == 0 {
                disk.sync_all().unwrap();
            }
        }
        let under = |disk: &Disk| -> Vec<_> {
            tree(disk).into_iter().filter(|(path, _)| path.starts_with("/kept")).collect()
        };
        let before = under(&disk);
        disk.cut();
        disk.survive(seed);
        prop_assert_eq!(under(&disk), before);
        for ino in disk.live.keys() {
            prop_assert!(*ino == ROOT || disk.links(*ino) > 0);
        }
    }
}
