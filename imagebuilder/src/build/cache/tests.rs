#![allow(clippy::unwrap_used)]

use std::cell::Cell;

use super::*;

fn steps(dir: &Path) -> Steps {
    Steps::open(dir, Progress::silent()).unwrap()
}

#[test]
fn a_step_runs_once_for_the_same_inputs_and_again_for_others() {
    let dir = tempfile::tempdir().unwrap();
    let steps = steps(dir.path());
    let runs = Cell::new(0);
    let run = |input: &str, reuse| {
        steps
            .run(
                "demo",
                Key::new("demo", 1).text("input", input),
                reuse,
                |work| {
                    runs.set(runs.get() + 1);
                    Ok(fs::write(work.path("file"), input)?)
                },
            )
            .unwrap()
    };
    let first = run("a", Reuse::Cached);
    assert_eq!(fs::read_to_string(first.path("file")).unwrap(), "a");
    assert_eq!(run("a", Reuse::Cached), first);
    assert_eq!(runs.get(), 1);
    assert_ne!(run("b", Reuse::Cached).digest(), first.digest());
    run("a", Reuse::Never);
    assert_eq!(runs.get(), 3);
}

#[test]
fn a_failed_step_leaves_nothing_that_looks_finished() {
    let dir = tempfile::tempdir().unwrap();
    let steps = steps(dir.path());
    let key = || Key::new("demo", 1);
    let error = steps
        .run("demo", key(), Reuse::Cached, |work| {
            fs::write(work.path("half"), "written")?;
            bail!("the disk is full")
        })
        .unwrap_err();
    assert!(format!("{error:#}").contains("step demo failed: the disk is full"));
    let output = steps.run("demo", key(), Reuse::Cached, |_| Ok(())).unwrap();
    assert!(!output.path("half").exists());
}

#[test]
fn the_key_sees_names_bits_links_and_bytes_but_not_build_folders() {
    let dir = tempfile::tempdir().unwrap();
    let tree = dir.path().join("tree");
    fs::create_dir_all(tree.join("target")).unwrap();
    fs::write(tree.join("a"), "1").unwrap();
    let key = || Key::new("k", 1).path(&tree).unwrap().finish();
    let mut seen = vec![key()];
    let mut differs = |what: &str| {
        let now = key();
        assert!(!seen.contains(&now), "{what} is not part of the key");
        seen.push(now);
    };
    fs::write(tree.join("a"), "2").unwrap();
    differs("content");
    fs::set_permissions(tree.join("a"), fs::Permissions::from_mode(0o755)).unwrap();
    differs("the executable bit");
    fs::rename(tree.join("a"), tree.join("b")).unwrap();
    differs("a name");
    std::os::unix::fs::symlink("b", tree.join("c")).unwrap();
    differs("a link");
    fs::write(tree.join("target/object"), "x").unwrap();
    assert_eq!(key(), *seen.last().unwrap());
}

#[test]
fn only_the_newest_outputs_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let steps = steps(dir.path());
    let mut outputs: Vec<Output> = (0..KEPT + 2)
        .map(|number| {
            steps
                .run(
                    "demo",
                    Key::new("demo", 1).text("n", &number.to_string()),
                    Reuse::Cached,
                    |_| Ok(()),
                )
                .unwrap()
        })
        .collect();
    let last = outputs.pop().unwrap();
    let kept = fs::read_dir(dir.path().join("steps/demo"))
        .unwrap()
        .filter(|entry| entry.as_ref().unwrap().path().is_dir())
        .count();
    assert_eq!(kept, KEPT);
    assert!(last.dir().exists());
}
