//! `firstlight update`: another version of the system of a box that runs, out of an image. Only layers that the box does not have are
//! sent; it starts the new system once, and keeps it or goes back by itself.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use firstlight_api::boot_choice::SystemSlot;
use firstlight_api::slot::{Layer, SlotTable, SystemContent};
use firstlight_api::update::{UpdateHeader, UpdateView};
use serde::Deserialize;

use crate::UsageError;
use crate::box_client::BoxClient;
use crate::disk::gpt;
use crate::flash::bar;
use crate::inspect::{check_layer, load_slot};
use crate::ssh::BoxArgs;

const PATH: &str = "/api/v1/update";
const LOOK: Duration = Duration::from_secs(3);
/// The box decides ten minutes after its start; before and after that it starts.
const PATIENCE: Duration = Duration::from_mins(30);

const WAY: &str = "The new system is written beside the running one while everything goes on, read back, and started once. It stays if the site is as well as before
within ten minutes: the box's steps that were done are done, the servers that ran run, the nodes that were Ready are. Else the box goes back by itself, with its state of
before, and says why; so it does after a power cut. Clusters and servers go on all the while; until it is decided, no server is installed.

  firstlight update new.img                     send what changed, start it, and wait for what comes of it
  firstlight update --only-write new.img        have it there for later; `firstlight update new.img` starts it
  firstlight update --status                    what is on the stick

What was interrupted goes on where it was: give the same command again. site.yaml stays as it is on the stick.";

#[derive(Debug, Args)]
#[command(after_help = WAY)]
pub struct UpdateArgs {
    /// Made by `firstlight build`
    #[arg(required_unless_present = "status")]
    image: Option<PathBuf>,
    #[command(flatten)]
    the_box: BoxArgs,
    /// Do not start it yet
    #[arg(long)]
    only_write: bool,
    /// Send every layer, also those that the box has
    #[arg(long)]
    whole: bool,
    /// Only say what is on the stick
    #[arg(long, conflicts_with_all = ["image", "only_write", "whole"])]
    status: bool,
}

pub fn run(args: &UpdateArgs) -> Result<String> {
    let mut client = BoxClient::new(&args.the_box)?;
    let view = view(&mut client)?;
    let Some(image) = &args.image else {
        return Ok(describe(&view));
    };
    let source = Source::open(image.clone())?;
    let layers = source.table.content().layers;
    let systems = &view.systems;
    if systems.layers == layers {
        return Ok("the box runs this system already\n".to_owned());
    }
    if systems.other.as_ref() != Some(&layers) || args.whole {
        let sent = source.send(&mut client, args.whole)?;
        eprintln!(
            "written and read back; {} MB were sent",
            sent.div_ceil(1 << 20)
        );
    }
    if args.only_write {
        return Ok(
            "the new system is on the stick; `firstlight update` with the same image starts it\n"
                .to_owned(),
        );
    }
    client
        .ask("POST", &format!("{PATH}/start"), &[], &[])?
        .check()?;
    eprintln!("the box starts the new system; it decides within ten minutes whether it stays");
    wait(&args.the_box, systems.running.other())
}

fn view(client: &mut BoxClient) -> Result<UpdateView> {
    let answer = client.ask("GET", PATH, &[], &[])?;
    if answer.status == 404 {
        bail!("this box knows no updates: write the image to its stick with `firstlight flash`");
    }
    answer.check()?;
    serde_json::from_slice(&answer.body)
        .context("the box's answer is none; is it of another version?")
}

fn describe(view: &UpdateView) -> String {
    let systems = &view.systems;
    let trial = if systems.trial {
        ", for the first time since an update"
    } else {
        ""
    };
    let beside = match (systems.room, &systems.other) {
        (0, _) => "the stick has no room for a second system".to_owned(),
        (_, Some(_)) => {
            let version = systems
                .versions
                .as_ref()
                .and_then(|all| all.get("firstlight")?.as_str());
            format!(
                "beside it is Firstlight {}",
                version.unwrap_or("of an unknown version")
            )
        }
        (room, None) => format!("there is room for another of {} MB", room >> 20),
    };
    let last = match &view.last {
        None => "no update yet".to_owned(),
        Some(last) if last.kept => format!("the last update, to {}, stayed", last.version),
        Some(last) => format!(
            "the last update, to {}, was taken back: {}",
            last.version, last.why
        ),
    };
    let takes = match systems.keys.as_slice() {
        [] => "takes a system of anybody who may update it".to_owned(),
        keys => format!("takes systems signed by {}", keys.join(", ")),
    };
    format!(
        "runs from {}{trial}\n{beside}\n{last}\n{takes}\n",
        systems.running.partition()
    )
}

/// The box goes away and comes back, as one or as the other.
fn wait(the_box: &BoxArgs, to: SystemSlot) -> Result<String> {
    let began = Instant::now();
    let mut last_error = None;
    while began.elapsed() < PATIENCE {
        sleep(LOOK);
        let seen = BoxClient::new(the_box).and_then(|client| view(&mut client.quiet()));
        let view = match seen {
            Ok(view) => view,
            Err(error) => {
                last_error = Some(error);
                continue;
            }
        };
        let Some(last) = view.last else { continue };
        if view.systems.running == to && last.kept {
            return Ok(format!(
                "the box runs Firstlight {}, and stays with it\n",
                last.version
            ));
        }
        ensure!(
            last.kept || view.systems.running == to,
            "the box went back, and all is as it was: {}",
            last.why
        );
    }
    let error = last_error.map_or_else(String::new, |error| format!(": {error:#}"));
    bail!(
        "the box has not said within {} minutes what came of it{error}",
        PATIENCE.as_secs() / 60
    )
}

/// The system on an image.
struct Source {
    image: PathBuf,
    part: gpt::PartitionPlan,
    table: SlotTable,
}

impl Source {
    fn open(image: PathBuf) -> Result<Self> {
        let table = gpt::load_table(&image)?;
        let part = table.partition(SystemSlot::A.partition())?.clone();
        let table = load_slot(&image, &part)?
            .ok_or_else(|| UsageError(format!("{} has no system on it", image.display())))?;
        Ok(Self { image, part, table })
    }

    /// Returns how many bytes went over the wire.
    fn send(&self, client: &mut BoxClient, whole: bool) -> Result<u64> {
        let system = self.table.content();
        // Also whether the box takes it at all.
        let missing = missing(client, &system)?;
        let layers = &self.table.layers;
        let sent = if whole {
            layers.iter().map(|layer| layer.name.clone()).collect()
        } else {
            missing
        };
        let chosen: Vec<&Layer> = layers
            .iter()
            .filter(|layer| sent.contains(&layer.name))
            .collect();
        for layer in &chosen {
            check_layer(&self.image, &self.part, layer)?;
        }
        let mut line = serde_json::to_vec(&UpdateHeader { system, sent })?;
        line.push(b'\n');
        let bytes = chosen.iter().map(|layer| layer.length).sum::<u64>();
        let length = line.len() as u64 + bytes;
        let mut body: Box<dyn Read> = Box::new(io::Cursor::new(line));
        for layer in chosen {
            let mut file = File::open(&self.image)?;
            file.seek(SeekFrom::Start(self.part.offset() + layer.offset))?;
            body = Box::new(body.chain(file.take(layer.length)));
        }
        let bar = bar("sending", length);
        let answer = client.send(
            "POST",
            &format!("{PATH}/layers"),
            &[],
            length,
            bar.wrap_read(body),
        );
        bar.finish_and_clear();
        answer?.check()?;
        Ok(bytes)
    }
}

#[derive(Deserialize)]
struct Missing {
    send: Vec<String>,
}

fn missing(client: &mut BoxClient, system: &SystemContent) -> Result<Vec<String>> {
    let plan = serde_json::to_vec(system)?;
    let answer = client.ask("POST", &format!("{PATH}/plan"), &[], &plan)?;
    answer.check()?;
    let missing: Missing =
        serde_json::from_slice(&answer.body).context("the box's answer is no list of layers")?;
    Ok(missing.send)
}

#[cfg(test)]
mod tests {
    use firstlight_api::update::{StickSystems, UpdateOutcome};

    use super::*;

    #[test]
    fn what_is_on_a_stick_is_told() {
        let systems = StickSystems {
            running: SystemSlot::B,
            trial: true,
            layers: Vec::new(),
            boot: Vec::new(),
            signature: None,
            room: 2 << 30,
            other: Some(Vec::new()),
            versions: Some(serde_json::json!({"firstlight": "0.2.0"})),
            keys: vec!["SHA256:x (release)".to_owned()],
        };
        let mut view = UpdateView {
            systems,
            last: Some(UpdateOutcome {
                kept: false,
                version: "0.3.0".to_owned(),
                why: "server n1 ran before".to_owned(),
            }),
        };
        assert_eq!(
            describe(&view),
            "runs from system-b, for the first time since an update\nbeside it is Firstlight 0.2.0\n\
             the last update, to 0.3.0, was taken back: server n1 ran before\n\
             takes systems signed by SHA256:x (release)\n"
        );
        view.systems.trial = false;
        view.systems.other = None;
        view.last = None;
        view.systems.keys.clear();
        assert_eq!(
            describe(&view),
            "runs from system-b\nthere is room for another of 2048 MB\nno update yet\n\
             takes a system of anybody who may update it\n"
        );
        view.systems.room = 0;
        assert!(describe(&view).contains("no room for a second system"));
    }
}
