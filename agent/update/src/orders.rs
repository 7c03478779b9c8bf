//! One order of the agent: a line in, what belongs to it, lines out.

use std::fs::{self, File};
use std::io::{self, BufRead, Read, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use firstlight_api::boot_choice::{BootChoice, INITRD, KERNEL, START};
use firstlight_api::seal::RecoveryKey;
use firstlight_api::slot::{Layer, LayerContent, SystemContent};
use firstlight_api::update::{HelperOrder, HelperReply, LONGEST_LINE, StickSystems};
use firstlight_signature::{KEYS, Keys, Unbelieved};
use nix::fcntl::{Flock, FlockArg};

use crate::boot::{BootFiles, Esp};
use crate::nightly::{self, NewBackup};
use crate::refusal::{describe, refuse};
use crate::seal;
use crate::slot::{self, Slot};
use crate::state::{State, Trial};
use crate::stick::{Access, Mounted, Partition, Stick, restart};

const LOCK: &str = "/run/firstlight-update/lock";
const TELL_EVERY: Duration = Duration::from_millis(500);
/// Layers in which the files of a system are.
const PAYLOAD: &str = "payload";
const AGENT: &str = "agent";
const SHARE: &str = "usr/share/firstlight";
const VERSIONS: &str = "versions.json";

/// Reads the order and answers it; an error is an answer, too.
pub fn serve(
    stick: Option<&Stick>,
    state: State<'_>,
    input: &mut dyn BufRead,
    output: &mut dyn Write,
) -> Result<()> {
    let answer = match carry_out(stick, state, input, output) {
        Ok(reply) => reply,
        Err(error) => {
            eprintln!("refused: {error:#}");
            HelperReply::Refused(describe(&error))
        }
    };
    send(output, &answer)
}

fn send(output: &mut dyn Write, reply: &HelperReply) -> Result<()> {
    let mut text = serde_json::to_vec(reply)?;
    text.push(b'\n');
    output.write_all(&text)?;
    Ok(output.flush()?)
}

/// One line of JSON, not longer than the agent sends.
pub fn read_order(input: &mut dyn BufRead) -> Result<HelperOrder> {
    let mut line = Vec::new();
    input
        .take(LONGEST_LINE as u64)
        .read_until(b'\n', &mut line)
        .context("reading the order")?;
    serde_json::from_slice(&line).context("the order cannot be read")
}

fn carry_out(
    stick: Option<&Stick>,
    state: State<'_>,
    input: &mut dyn BufRead,
    output: &mut dyn Write,
) -> Result<HelperReply> {
    let order = read_order(input)?;
    if let HelperOrder::Backup {
        name,
        recipients,
        count,
    } = &order
    {
        let _alone = alone()?;
        let wanted = NewBackup {
            name,
            recipients,
            count: *count,
        };
        return nightly::make(state, &versions_of_box()?, wanted).map(HelperReply::Backup);
    }
    let stick = stick.ok_or_else(|| {
        refuse(
            "this box does not run from a stick",
            "run `firstlight install` with the new image on it",
        )
    })?;
    if order == HelperOrder::Look {
        return look(stick).map(HelperReply::Seen);
    }
    let _alone = alone()?;
    if matches!(order, HelperOrder::Write { .. } | HelperOrder::Try) && state.trial().is_some() {
        return Err(refuse(
            "an update is on its way, and the other system is the way back",
            "wait until the page says that the running system stays",
        ));
    }
    match order {
        HelperOrder::Look | HelperOrder::Backup { .. } => unreachable!("answered above"),
        HelperOrder::Plan { system } => {
            believe(&believed(Path::new("/"))?, &system)?;
            let layers = slot::missing(Slot::of(&stick.system), Slot::of(stick.other()?), &system)?;
            Ok(HelperReply::Send { layers })
        }
        HelperOrder::Write { system, sent } => {
            believe(&believed(Path::new("/"))?, &system)?;
            write(stick, &system, &sent, input, output)
        }
        HelperOrder::Try => {
            start_other(stick, state)?;
            Ok(HelperReply::Done)
        }
        HelperOrder::Keep => {
            keep(stick, state)?;
            Ok(HelperReply::Done)
        }
        HelperOrder::Seal => seal(stick, state, None).map(HelperReply::RecoveryKey),
    }
}

/// Of what runs.
pub fn versions_of_box() -> Result<serde_json::Value> {
    let path = Path::new("/").join(SHARE).join(VERSIONS);
    let text = fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
    serde_json::from_slice(&text).with_context(|| format!("reading {}", path.display()))
}

/// Whose systems the running one takes.
fn believed(root: &Path) -> Result<Keys> {
    let path = root.join(KEYS);
    match fs::read_to_string(&path) {
        Ok(text) => Keys::parse(&text).with_context(|| format!("reading {}", path.display())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Keys::default()),
        Err(error) => Err(error).with_context(|| format!("reading {}", path.display())),
    }
}

/// Refuses a system of somebody else, before a byte of it is written.
pub fn believe(keys: &Keys, system: &SystemContent) -> Result<()> {
    if keys.is_empty() {
        return Ok(());
    }
    let names = keys.names().join(", ");
    let signer = keys.check(system).map_err(|why| {
        let next = match why {
            Unbelieved::Changed(_) | Unbelieved::Unreadable => {
                "take the image from whoever made it again".to_owned()
            }
            Unbelieved::Unsigned | Unbelieved::Unknown(_) => format!(
                "have it built with `firstlight build --sign KEY` by one of those whom this box believes: {names}"
            ),
        };
        refuse(why.to_string(), next)
    })?;
    eprintln!("a system signed by {signer}");
    Ok(())
}

/// Nobody else changes what is on the stick, until it is dropped.
pub fn alone() -> Result<Flock<File>> {
    let file = File::create(LOCK).context("opening the lock of updates")?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|_| {
        refuse(
            "another update or restore is being written",
            "wait for it: the page says how far it is",
        )
    })
}

fn contents(layers: &[Layer]) -> Vec<LayerContent> {
    layers.iter().map(Layer::content).collect()
}

fn look(stick: &Stick) -> Result<StickSystems> {
    let running = Slot::of(&stick.system).system()?.unwrap_or_default();
    let SystemContent {
        layers,
        boot,
        signature,
    } = running.content();
    let mut seen = StickSystems {
        running: stick.running,
        trial: stick.trial,
        layers,
        boot,
        signature,
        room: stick.other.as_ref().map_or(0, |other| other.bytes),
        other: None,
        versions: None,
        keys: believed(Path::new("/"))?.names(),
    };
    let Some(other) = &stick.other else {
        return Ok(seen);
    };
    let esp = Mounted::esp(&stick.esp, Access::Read)?;
    if !Esp(esp.path()).is_whole(stick.running.other()) {
        return Ok(seen);
    }
    if let Some(table) = Slot::of(other).system()? {
        seen.other = Some(contents(&table.layers));
        seen.versions = versions(other, &table.layers).ok();
    }
    Ok(seen)
}

/// What the other system says of itself.
fn versions(other: &Partition, layers: &[Layer]) -> Result<serde_json::Value> {
    let layer = find(layers, AGENT)?;
    let mounted = Mounted::layer(&other.device, layer)?;
    let text = fs::read(mounted.path().join(SHARE).join(VERSIONS))?;
    Ok(serde_json::from_slice(&text)?)
}

fn find<'a>(layers: &'a [Layer], name: &str) -> Result<&'a Layer> {
    layers
        .iter()
        .find(|layer| layer.name == name)
        .ok_or_else(|| {
            refuse(
                format!("this is no system of a box: it has no layer {name}"),
                "make one with `firstlight build`",
            )
        })
}

fn write(
    stick: &Stick,
    system: &SystemContent,
    sent: &[String],
    input: &mut dyn Read,
    output: &mut dyn Write,
) -> Result<HelperReply> {
    let other = stick.other()?;
    let target = stick.running.other();
    for name in [AGENT, PAYLOAD] {
        find(&Slot::of(other).plan(system)?.layers, name)?;
    }
    {
        let esp = Mounted::esp(&stick.esp, Access::Write)?;
        Esp(esp.path()).keep_loaders(&Slot::of(&stick.system).block()?)?;
        Esp(esp.path()).take_away(target)?;
    }
    let mut told = Instant::now();
    let mut progress = |done, of| {
        if told.elapsed() < TELL_EVERY {
            return Ok(());
        }
        told = Instant::now();
        send(output, &HelperReply::Progress { done, of })
    };
    slot::write(
        Slot::of(&stick.system),
        Slot::of(other),
        system,
        sent,
        input,
        &mut progress,
    )?;
    bring_boot_files(stick, other)?;
    Ok(HelperReply::Done)
}

fn bring_boot_files(stick: &Stick, other: &Partition) -> Result<()> {
    let layers = Slot::of(other).layers()?;
    let agent = Mounted::layer(&other.device, find(&layers, AGENT)?)?;
    let payload = Mounted::layer(&other.device, find(&layers, PAYLOAD)?)?;
    let files = boot_files(agent.path(), payload.path());
    let esp = Mounted::esp(&stick.esp, Access::Write)?;
    let table = Slot::of(other).table_digest()?;
    Esp(esp.path()).bring(stick.running.other(), &files, &other.id, table)
}

/// Hosts load the same kernel and initramfs.
fn boot_files(agent: &Path, payload: &Path) -> BootFiles {
    let netboot = payload.join(SHARE).join("netboot");
    BootFiles {
        kernel: netboot.join(KERNEL),
        initrd: netboot.join(INITRD),
        start: agent.join(SHARE).join(START),
    }
}

fn start_other(stick: &Stick, state: State<'_>) -> Result<()> {
    let to = stick.running.other();
    let seen = look(stick)?;
    let version = seen
        .versions
        .as_ref()
        .and_then(|versions| versions.get("firstlight")?.as_str())
        .map(str::to_owned);
    let version = version.ok_or_else(|| {
        refuse(
            "there is no other system that could be started",
            "write one first: `firstlight update IMAGE`",
        )
    })?;
    // Somebody may have written it before the box believed only some.
    let other = Slot::of(stick.other()?).system()?.unwrap_or_default();
    believe(&believed(Path::new("/"))?, &other.content())?;
    seal::expect_other(Path::new("/"), stick)?;
    state.begin(&Trial {
        from: stick.running,
        to,
        version,
    })?;
    let esp = Mounted::esp(&stick.esp, Access::Write)?;
    let choice = BootChoice {
        slot: stick.running,
        trial: Some(to),
    };
    Esp(esp.path()).choose(choice)?;
    drop(esp);
    restart()
}

fn keep(stick: &Stick, state: State<'_>) -> Result<()> {
    let esp = Mounted::esp(&stick.esp, Access::Write)?;
    let choice = BootChoice {
        slot: stick.running,
        trial: None,
    };
    // From here on it stays, whatever is cut.
    Esp(esp.path()).choose(choice)?;
    if let Some(trial) = state.trial() {
        state.keep(&trial)?;
    }
    settle(stick);
    Ok(())
}

/// `old`: the recovery key of before, where the TPM did not open the state. Nobody else changes what is on the stick.
pub fn seal(stick: &Stick, state: State<'_>, old: Option<&str>) -> Result<RecoveryKey> {
    if state.trial().is_some() {
        return Err(refuse(
            "an update is on its way, and the TPM has to open the state for both systems",
            "wait until the page says which one stays",
        ));
    }
    seal::renew(Path::new("/"), stick, old).map(RecoveryKey)
}

/// It opens as it is, and is sealed closer at the next change.
pub fn settle(stick: &Stick) {
    if let Err(error) = seal::settle(Path::new("/"), stick) {
        eprintln!("seal: {error:#}");
    }
}

/// The running system had its time to show that it works. `why` is what the agent says that it waits for.
pub fn give_up(stick: &Stick, state: State<'_>, why: &str) -> Result<()> {
    let esp = Mounted::esp(&stick.esp, Access::Read)?;
    if !stick.trial || Esp(esp.path()).choice().slot == stick.running {
        return Ok(());
    }
    drop(esp);
    // Without the state partition nobody can be told, and all the more reason to go back.
    if let Err(error) = state.note_why(why) {
        eprintln!("{error:#}");
    }
    restart()
}
