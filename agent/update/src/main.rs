//! `firstlight-update`: run by systemd, with root's rights, on the box.
//!
//! - `start`: once a start, before anything looks at the state partition;
//! - `serve`: an order of the agent's on standard input, answered on standard output;
//! - `give-up`: ten minutes after the start of a system that is tried;
//! - `is-state`: for udev, which partition is this box's;
//! - `seal prepare`, `seal open`: before and after the partitions are made, at each start; `seal renew` for `firstlight seal`;
//! - `scrub`: once a week, what is damaged on the stick, for the agent;
//! - `wipe`: for `firstlight wipe-site`;
//! - `backup`, `restore`: for `firstlight backup` and `firstlight restore`, a stream on standard output or input.

use std::fs;
use std::io::{self, Read, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use firstlight_api::bounded;
use firstlight_api::seal::RecoveryKey;
use firstlight_update::boot::Esp;
use firstlight_update::refusal::refuse;
use firstlight_update::scrub::{Parts, Scrub, System};
use firstlight_update::state::{Start, State};
use firstlight_update::stick::{Access, Mounted, Stick, is_trial, restart};
use firstlight_update::{backup, orders, seal, wipe};

const STATE: &str = "/var/lib/firstlight";
/// The agent waits for it before it looks at the state partition.
const READY: &str = "/run/firstlight-update/ready";
/// What the agent says that it waits for.
const WHY: &str = "/run/firstlight/trial";
/// Where the agent looks for it.
const DAMAGED: &str = "/run/firstlight-scrub/damaged";
/// Between two pieces that the scrub reads: others want the stick, too.
const PAUSE: Duration = Duration::from_millis(250);
const LONGEST: u64 = 4096;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let order = std::env::args().nth(1).unwrap_or_default();
    let state = State(Path::new(STATE));
    let root = Path::new("/");
    match order.as_str() {
        "start" => start(root, state),
        "serve" => {
            let stick = Stick::find(root)?;
            orders::serve(
                stick.as_ref(),
                state,
                &mut io::stdin().lock(),
                &mut io::stdout().lock(),
            )
        }
        "give-up" => match Stick::find(root)? {
            Some(stick) => orders::give_up(&stick, state, &why()),
            None => Ok(()),
        },
        "seal" => seal(root),
        "is-state" => is_state(root),
        "scrub" => scrub(&the_stick(root)?),
        "wipe" => {
            let _alone = orders::alone()?;
            wipe::begin(&the_stick(root)?)
        }
        "backup" => {
            backup::copy_etcd(state)?;
            backup::write(state, &orders::versions_of_box()?, io::stdout().lock())
        }
        "restore" => {
            if Stick::find(root)?.is_none() {
                bail!("this box does not run from a stick: restore its backup on one that does");
            }
            let _alone = orders::alone()?;
            backup::unpack(state, &orders::versions_of_box()?, io::stdin().lock())?;
            restart()
        }
        other => bail!(
            "{other}: start, serve, give-up, is-state, seal, scrub, wipe, backup or restore; systemd and `firstlight` call this"
        ),
    }
}

fn the_stick(root: &Path) -> Result<Stick> {
    Stick::find(root)?.ok_or_else(|| {
        refuse(
            "this box does not run from a stick, and its state is on its own disk",
            "encrypt that disk, or clear it, as its system does",
        )
    })
}

/// For udev: whether this partition, as the kernel names it, is the state of the stick that the box runs from.
fn is_state(root: &Path) -> Result<()> {
    let name = std::env::args().nth(2).unwrap_or_default();
    let state = Stick::find(root)?.and_then(|stick| stick.state);
    match state.as_ref().and_then(|state| state.device.file_name()) {
        Some(own) if own == name.as_str() => Ok(()),
        _ => bail!("{name} is not this box's"),
    }
}

/// What is wrong goes into a file for the agent, a line each.
fn scrub(stick: &Stick) -> Result<()> {
    let esp = Mounted::esp(&stick.esp, Access::Read)?;
    let parts = Parts {
        disk: &stick.disk,
        bios: &stick.bios.device,
        esp: Esp(esp.path()),
    };
    let running = System::of(stick.running, &stick.system);
    let other = stick.other.as_ref();
    let other = other.map(|other| System::of(stick.running.other(), other));
    let scrub = Scrub::start(parts, running, other)?;
    // While it is mounted to be read nobody can mount it to write.
    drop(esp);
    let damaged = scrub.finish(&mut || sleep(PAUSE))?;
    let new = Path::new(DAMAGED).with_extension("new");
    fs::write(&new, damaged.join("\n")).context("telling the agent")?;
    fs::rename(new, DAMAGED).context("telling the agent")
}

fn seal(root: &Path) -> Result<()> {
    let order = std::env::args().nth(2).unwrap_or_default();
    let stick = the_stick(root)?;
    match order.as_str() {
        "prepare" => {
            // A stick that is to be given away raises no site again.
            wipe::finish(&stick)?;
            seal::prepare(root, &stick)
        }
        "open" => seal::open(root, &stick),
        "renew" => {
            let _alone = orders::alone()?;
            let mut old = String::new();
            io::stdin().take(LONGEST).read_to_string(&mut old)?;
            let old = Some(old.trim()).filter(|old| !old.is_empty());
            let RecoveryKey(key) = orders::seal(&stick, State(Path::new(STATE)), old)?;
            writeln!(io::stdout(), "{key}").context("telling the recovery key")
        }
        other => bail!("seal {other}: prepare, open or renew"),
    }
}

fn start(root: &Path, state: State<'_>) -> Result<()> {
    let started = Stick::find(root).and_then(|stick| match stick {
        Some(stick) => state.start(stick.running, stick.trial),
        None => Ok(Start::Plain),
    });
    match started {
        Ok(Start::Plain) => {}
        Ok(start) => {
            eprintln!("update: {start:?}");
            if matches!(start, Start::Kept | Start::Back) {
                Stick::find(root)?.as_ref().map(orders::settle);
            }
        }
        // Without a way back nothing may be changed.
        Err(error) if is_trial(root)? == Some(true) => {
            state.note_why(&format!("{error:#}"))?;
            return restart();
        }
        // What is there is better than a box that does not come up.
        Err(error) => eprintln!("{error:#}"),
    }
    fs::write(READY, "").context("telling the agent")
}

fn why() -> String {
    let mut text = Vec::new();
    let read = fs::File::open(WHY).and_then(|file| file.take(LONGEST).read_to_end(&mut text));
    match read {
        Ok(_) => bounded::sentence(String::from_utf8_lossy(&text).trim()),
        Err(_) => "the agent of the new system did not come up within ten minutes".to_owned(),
    }
}
