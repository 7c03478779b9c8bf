//! The box's small scripts: the clock at the start.
#![allow(clippy::unwrap_used)]

use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command};

const LIB: &str = "../overlays/box/usr/lib/firstlight";
const YEAR: i64 = 365 * 86_400;

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// `set-clock` with a `date` that says `now` and notes what it was set to; the stick was made at `built`.
fn set_clock(now: i64, kept: Option<&str>, built: i64) -> (Option<i64>, Option<i64>) {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let date = format!(
        "#!/bin/sh\ncase $1 in +%s) echo {now};; *) echo \"$3\" | tr -d @ >{};; esac\n",
        path("set").display()
    );
    write(&path("bin/date"), &date);
    fs::set_permissions(path("bin/date"), fs::Permissions::from_mode(0o755)).unwrap();
    write(&path("built"), "");
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(built.cast_unsigned());
    fs::File::open(path("built"))
        .unwrap()
        .set_modified(time)
        .unwrap();
    if let Some(kept) = kept {
        write(&path("kept"), kept);
    }
    let ended = Command::new("sh")
        .arg(format!("{LIB}/set-clock"))
        .args([path("kept"), path("built"), dir.path().to_owned()])
        .env(
            "PATH",
            format!(
                "{}:{}",
                path("bin").display(),
                std::env::var("PATH").unwrap()
            ),
        )
        .status();
    assert!(ended.unwrap().success());
    let number = |name: &str| fs::read_to_string(path(name)).ok()?.trim().parse().ok();
    (number("set"), number("moved"))
}

#[test]
fn the_clock_never_starts_before_the_time_that_was_kept_or_the_day_of_the_stick() {
    let built = 1_780_000_000;
    let later = built + YEAR;
    let kept = later.to_string() + "\n";
    assert_eq!(
        set_clock(1000, Some(&kept), built),
        (Some(later), Some(later - 1000))
    );
    assert_eq!(set_clock(built - 5, None, built), (Some(built), Some(5)));
    assert_eq!(
        set_clock(later + 1, Some(&kept), built),
        (None, None),
        "it is right"
    );
    for damaged in [
        "",
        "\0\0\0\0\0\0\0\0\0\0",
        "99999999999999999999",
        "-5",
        "17x0000000",
        "1",
    ] {
        assert_eq!(
            set_clock(later, Some(damaged), built),
            (None, None),
            "{damaged:?}"
        );
        assert_eq!(
            set_clock(1000, Some(damaged), built).0,
            Some(built),
            "{damaged:?}"
        );
    }
}
