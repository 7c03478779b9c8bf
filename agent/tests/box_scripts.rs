//! The box's small scripts: the clock at the start, and reading the stick for damage.
#![allow(clippy::unwrap_used)]

use std::{
    fmt::Write as _,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use sha2::{Digest, Sha256};

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

/// A slot of two layers, and what `scrub` says of it.
fn scrub(damage: impl FnOnce(&mut Vec<u8>)) -> String {
    let dir = tempfile::tempdir().unwrap();
    let layers = [("agent", vec![1_u8; 5000]), ("base", vec![2; 40 << 20])];
    let mut table = "firstlight-slot 2\n".to_owned();
    let mut slot = vec![0; 4096];
    for (name, content) in &layers {
        let digest = Sha256::digest(content)
            .iter()
            .fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
        writeln!(
            table,
            "{name} {} {} {digest} {digest}",
            slot.len(),
            content.len()
        )
        .unwrap();
        slot.extend(content);
        slot.resize(slot.len().next_multiple_of(4096), 0);
    }
    slot[..table.len()].copy_from_slice(table.as_bytes());
    damage(&mut slot);
    let path: PathBuf = dir.path().join("slot");
    fs::write(&path, slot).unwrap();
    let ended = Command::new("sh")
        .arg(format!("{LIB}/scrub"))
        .args([&path, dir.path()])
        .env("FIRSTLIGHT_SCRUB_PAUSE", "0")
        .status();
    assert!(ended.unwrap().success());
    fs::read_to_string(dir.path().join("damaged")).unwrap()
}

#[test]
fn one_flipped_bit_of_the_stick_is_found() {
    assert_eq!(scrub(|_| {}), "");
    assert_eq!(scrub(|slot| slot[4096 + 17] ^= 1), "layer agent\n");
    assert_eq!(scrub(|slot| slot[30 << 20] ^= 0x80), "layer base\n");
    assert_eq!(scrub(|slot| slot.truncate(20 << 20)), "layer base\n");
    assert_eq!(scrub(|slot| slot[0] = b'F'), "the table of layers\n");
    assert_eq!(
        scrub(|slot| slot[12288] ^= 0),
        "",
        "what no layer holds does not matter"
    );
}
