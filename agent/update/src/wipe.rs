//! Clears a stick of its site, for whoever gets it next. The order takes the keys away, where the state is encrypted, and leaves a mark on
//! the ESP; the next start, before anything is mounted, writes over what is left and switches the machine off. A power cut in between
//! is taken up at the start after it. The stick is then as from the image: its first start raises a new site.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use anyhow::{Context, Result};
use nix::sys::reboot::{RebootMode, reboot};

use crate::boot::Esp;
use crate::seal::luks::{HEADER, Luks};
use crate::stick::{Access, Mounted, Stick, restart};

const PIECE: usize = 4 << 20;
/// Written to the disk, not only to memory, and told.
const STEP: u64 = 256 << 20;
const CONSOLE: &str = "/dev/console";
const SITE: &str = "site.yaml";
const CLEARED: &str = "# This stick was wiped. What is written here is for its next site; empty, the site has the defaults.\n";

/// From now on there is no way back.
pub fn begin(stick: &Stick) -> Result<()> {
    let state = stick
        .state
        .as_ref()
        .context("there is no state partition")?;
    {
        let esp = Mounted::esp(&stick.esp, Access::Write)?;
        Esp(esp.path()).ask_for_wipe()?;
    }
    if let Some(luks) = Luks::on(&state.device)? {
        luks.erase()?;
    }
    restart()
}

/// At the start after it; comes back if nobody has asked.
pub fn finish(stick: &Stick) -> Result<()> {
    {
        let esp = Mounted::esp(&stick.esp, Access::Read)?;
        if !Esp(esp.path()).is_wipe_asked_for() {
            return Ok(());
        }
    }
    if let Some(state) = &stick.state {
        tell("the stick is wiped; the machine switches itself off when that is done");
        clear(&state.device, state.bytes)?;
        stick.drop_state()?;
    }
    if let Some(site) = &stick.site {
        let mounted = Mounted::site(site, Access::Write)?;
        clear_site(&mounted.path().join(SITE))?;
    }
    let esp = Mounted::esp(&stick.esp, Access::Write)?;
    Esp(esp.path()).wiped()?;
    drop(esp);
    tell("nothing of its site is on the stick any more");
    nix::unistd::sync();
    reboot(RebootMode::RB_POWER_OFF).context("switching the machine off")?;
    Ok(())
}

/// All of it, or of an encrypted one, which nobody can read without them, the places where its keys were.
pub fn clear(device: &Path, bytes: u64) -> Result<()> {
    let what = || format!("writing over {}", device.display());
    let sealed = Luks::on(device)?.is_some();
    let end = if sealed { bytes.min(HEADER) } else { bytes };
    let file = OpenOptions::new()
        .write(true)
        .open(device)
        .with_context(what)?;
    let zeros = vec![0; PIECE];
    // An encrypted one is known by its beginning, and goes on to be one over a power cut: that comes last.
    let mut at = PIECE as u64;
    while at < end {
        let step = usize::try_from(end - at).map_or(PIECE, |left| left.min(PIECE));
        file.write_all_at(&zeros[..step], at).with_context(what)?;
        at += step as u64;
        if at.is_multiple_of(STEP) {
            file.sync_data().with_context(what)?;
            tell(&format!("{} of {} MB", at >> 20, end >> 20));
        }
    }
    file.sync_data().with_context(what)?;
    let first = usize::try_from(end).map_or(PIECE, |end| end.min(PIECE));
    file.write_all_at(&zeros[..first], 0)
        .and_then(|()| file.sync_data())
        .with_context(what)
}

/// In place: another file would lie elsewhere, and the old one's bytes where they were.
fn clear_site(path: &Path) -> Result<()> {
    let what = || format!("writing over {}", path.display());
    let length = fs::metadata(path).map_or(0, |found| found.len());
    let length = usize::try_from(length)?.max(CLEARED.len());
    let mut text = CLEARED.as_bytes().to_vec();
    text.resize(length, b'\n');
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .with_context(what)?;
    file.write_all_at(&text, 0)
        .and_then(|()| file.sync_all())
        .with_context(what)
}

fn tell(line: &str) {
    eprintln!("wipe: {line}");
    let console = File::options().write(true).open(CONSOLE);
    if let Ok(mut console) = console {
        drop(console.write_all(format!("\r\nwipe: {line}\r\n").as_bytes()));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_is_not_encrypted_is_written_over_to_its_last_byte() {
        let dir = tempfile::tempdir().unwrap();
        let device = dir.path().join("state");
        for bytes in [1000, PIECE, 3 * PIECE + 512] {
            fs::write(&device, vec![7; bytes]).unwrap();
            clear(&device, bytes as u64).unwrap();
            assert!(fs::read(&device).unwrap() == vec![0; bytes], "{bytes}");
        }
        // Without its keys the rest is noise.
        let header = usize::try_from(HEADER).unwrap();
        let mut sealed = vec![7; header + PIECE];
        sealed[..6].copy_from_slice(b"LUKS\xba\xbe");
        fs::write(&device, &sealed).unwrap();
        clear(&device, sealed.len() as u64).unwrap();
        let left = fs::read(&device).unwrap();
        assert!(left[..header].iter().all(|byte| *byte == 0));
        assert!(left[header..] == sealed[header..]);
    }

    #[test]
    fn no_word_of_a_site_is_left_and_the_file_can_be_used() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(SITE);
        for before in [
            None,
            Some("name: x\n"),
            Some(&"name: secret-site # \n".repeat(300)),
        ] {
            if let Some(before) = before {
                fs::write(&path, before).unwrap();
            }
            clear_site(&path).unwrap();
            let text = fs::read_to_string(&path).unwrap();
            assert!(text.len() >= before.map_or(0, str::len) && !text.contains("secret"));
            assert!(firstlight_api::site::parse_site(&text).is_ok());
        }
    }
}
