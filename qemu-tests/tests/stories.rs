//! The stories, one after the other: `cargo test -p qemu-tests --features vm -- [--until UNIX-TIME] [PART-OF-A-NAME]`.

#[path = "stories/addons.rs"]
mod addons;
#[path = "stories/another_worker.rs"]
mod another_worker;
#[path = "stories/bmc.rs"]
mod bmc;
#[path = "stories/bmc_account.rs"]
mod bmc_account;
#[path = "stories/cluster.rs"]
mod cluster;
#[path = "stories/control_planes.rs"]
mod control_planes;
#[path = "stories/cuts.rs"]
mod cuts;
#[path = "stories/edited_agent.rs"]
mod edited_agent;
#[path = "stories/everyday.rs"]
mod everyday;
#[path = "stories/installed.rs"]
mod installed;
#[path = "stories/late_router.rs"]
mod late_router;
#[path = "stories/networks.rs"]
mod networks;
#[path = "stories/people.rs"]
mod people;
#[path = "stories/power_cut.rs"]
mod power_cut;
#[path = "stories/restore.rs"]
mod restore;
#[path = "stories/sealed.rs"]
mod sealed;
#[path = "stories/self_test.rs"]
mod self_test;
#[path = "stories/tampered.rs"]
mod tampered;
#[path = "stories/update.rs"]
mod update;
#[path = "stories/upgrade.rs"]
mod upgrade;
#[path = "stories/uploaded_disk.rs"]
mod uploaded_disk;
#[path = "stories/virtual_media.rs"]
mod virtual_media;
#[path = "stories/way_back.rs"]
mod way_back;
#[path = "stories/wiped.rs"]
mod wiped;

use std::io::Write as _;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use qemu_tests::figures;
use qemu_tests::plan::{Candidate, Cause, Times, changed_files, next, note_passed, touches};
use qemu_tests::scene::Scene;
use qemu_tests::site::{Purpose, TestSite, build_site};

/// Of a machine that has built nothing yet; after that it is seconds.
const COLD_IMAGE: Duration = Duration::from_mins(41);
const WARM_IMAGE: Duration = Duration::from_mins(1);
const IMAGE: &str = "image";

struct Story {
    /// Of the file.
    id: &'static str,
    name: &'static str,
    site: Purpose,
    /// Told with every change, if there is time.
    plain: bool,
    /// Only by its name or with `--all`: not yet seen to pass as it is now.
    asked: bool,
    /// On two processors, before it was measured here.
    minutes: u64,
    /// What it is about: a change below these paths touches it.
    about: &'static [&'static str],
    tell: fn(&mut Scene<'_>) -> Result<()>,
}

const STORIES: [Story; 25] = [
    Story {
        id: "everyday",
        name: "BIOS box installs a UEFI server, leaves servers with data alone, also where somebody lies, and knows all after a reboot",
        site: Purpose::Plain,
        plain: true,
        asked: false,
        minutes: 16,
        about: &[
            "agent/netboot",
            "agent/tftp-server",
            "agent/ramdisk",
            "agent/client",
            "agent/efi",
            "agent/ironic",
            "agent/src/dhcp",
            "agent/src/hosts",
            "agent/src/bring_up",
            "agent/src/network",
        ],
        tell: everyday::tell,
    },
    Story {
        id: "power_cut",
        name: "Secure Boot box loses power while it installs a BIOS server, and installs it once",
        site: Purpose::Plain,
        plain: true,
        asked: false,
        minutes: 12,
        about: &[
            "rootfs/box",
            "rootfs/ramdisk",
            "overlays/box",
            "imagebuilder/src/disk",
            "agent/fat",
            "imagebuilder/src/initramfs",
        ],
        tell: power_cut::tell,
    },
    Story {
        id: "cuts",
        name: "Each part of an installation dies once, and the server is written until it is whole",
        site: Purpose::Plain,
        plain: false,
        asked: false,
        minutes: 7,
        about: &["agent/src/hosts", "agent/ironic", "agent/ramdisk/src/ipa"],
        tell: cuts::tell,
    },
    Story {
        id: "late_router",
        name: "Somebody plugs in a router that leases addresses, and the box is silent until it is gone",
        site: Purpose::Plain,
        plain: false,
        asked: false,
        minutes: 3,
        about: &["agent/netboot/src/mode.rs", "agent/src/dhcp"],
        tell: late_router::tell,
    },
    Story {
        id: "edited_agent",
        name: "An agent that was edited answers from a box that went on from its snapshot",
        site: Purpose::Plain,
        plain: false,
        asked: false,
        minutes: 6,
        about: &[
            "imagebuilder/src/agent",
            "imagebuilder/src/stick",
            "qemu-tests",
        ],
        tell: edited_agent::tell,
    },
    Story {
        id: "people",
        name: "Whoever reads the console becomes the first operator, others log in, and nothing else listens",
        site: Purpose::Plain,
        plain: false,
        asked: false,
        minutes: 4,
        about: &[
            "agent/src/people",
            "agent/src/web",
            "imagebuilder/src/people.rs",
        ],
        tell: people::tell,
    },
    Story {
        id: "sealed",
        name: "A sealed box opens by itself, and asks for its recovery key where something was changed",
        site: Purpose::Plain,
        plain: false,
        asked: false,
        minutes: 14,
        about: &[
            "agent/update/src/seal",
            "agent/src/state",
            "overlays/box/etc/repart.d",
            "overlays/box/etc/udev",
        ],
        tell: sealed::tell,
    },
    Story {
        id: "wiped",
        name: "A box that is wiped goes off, has nothing of its site, and raises another one",
        site: Purpose::Plain,
        plain: false,
        asked: false,
        minutes: 7,
        about: &[
            "agent/update/src/wipe.rs",
            "agent/update/src/stick.rs",
            "imagebuilder/src/wipe.rs",
        ],
        tell: wiped::tell,
    },
    Story {
        id: "update",
        name: "A Secure Boot box gets another system, which stays over a power cut",
        site: Purpose::Plain,
        plain: false,
        asked: false,
        minutes: 6,
        about: &[
            "agent/update",
            "agent/src/update",
            "imagebuilder/src/update.rs",
            "rootfs/box/grub.cfg",
        ],
        tell: update::stays,
    },
    Story {
        id: "update_back",
        name: "The box gets another system, whose agent does not start, and goes back by itself",
        site: Purpose::Plain,
        plain: false,
        asked: true,
        minutes: 17,
        about: &["agent/update"],
        tell: update::goes_back,
    },
    Story {
        id: "restore",
        name: "A stick dies, and a new one goes on with the backup of its box",
        site: Purpose::Plain,
        plain: false,
        asked: false,
        minutes: 8,
        about: &[
            "agent/update/src/backup.rs",
            "agent/update/src/nightly.rs",
            "agent/src/backups",
            "agent/bootstrap/src/backups.rs",
            "imagebuilder/src/backup.rs",
        ],
        tell: restore::tell,
    },
    Story {
        id: "self_test",
        name: "A server whose firmware takes a minute runs it once: its kernel is started by kexec under Secure Boot",
        site: Purpose::Plain,
        plain: false,
        asked: true,
        minutes: 16,
        about: &["agent/ramdisk/src/deploy/start", "agent/src/hosts/host"],
        tell: self_test::tell,
    },
    Story {
        id: "way_back",
        name: "A server that is given back starts the ramdisk by itself, and its firmware runs no second time",
        site: Purpose::Plain,
        plain: false,
        asked: false,
        minutes: 9,
        about: &[
            "agent/kexec",
            "agent/bootstrap/src/ramdisk.rs",
            "agent/src/hosts/ramdisk_files.rs",
            "agent/src/hosts/host/start.rs",
        ],
        tell: way_back::tell,
    },
    Story {
        id: "installed",
        name: "A plain Debian 13 machine becomes a box, stays one after a power cut, and is itself again",
        site: Purpose::Plain,
        plain: false,
        asked: true,
        minutes: 22,
        about: &["imagebuilder/src/install"],
        tell: installed::tell,
    },
    Story {
        id: "cluster",
        name: "Two blank servers become a cluster, whose worker leaves and comes back through a power cut of the box",
        site: Purpose::Cluster,
        plain: false,
        asked: true,
        minutes: 46,
        about: &[
            "agent/src/clusters",
            "agent/src/machines",
            "agent/bootstrap",
            "agent/client",
            "rootfs/debs",
        ],
        tell: cluster::tell,
    },
    Story {
        id: "networks",
        name: "A server with a bond and one with one NIC become a cluster on a VLAN that the box is not on",
        site: Purpose::Networks,
        plain: false,
        asked: true,
        minutes: 35,
        about: &["agent/src/host_networks", "agent/api/src/site/networks.rs"],
        tell: networks::tell,
    },
    Story {
        id: "another_worker",
        name: "A third blank server becomes the second worker of a running cluster",
        site: Purpose::Cluster,
        plain: false,
        asked: true,
        minutes: 27,
        about: &["agent/src/machines", "rootfs/node", "overlays/node"],
        tell: another_worker::tell,
    },
    Story {
        id: "control_planes",
        name: "Three control planes, one of which dies and is replaced",
        site: Purpose::ThreeControlPlanes,
        plain: false,
        asked: true,
        minutes: 60,
        about: &["agent/src/clusters"],
        tell: control_planes::tell,
    },
    Story {
        id: "addons",
        name: "A cluster gets its addons from the stick and what people push",
        site: Purpose::Addons,
        plain: false,
        asked: true,
        minutes: 39,
        about: &["agent/src/addons", "agent/src/software", "rootfs/addons"],
        tell: addons::tell,
    },
    Story {
        id: "upgrade",
        name: "A cluster goes to the next minor version of Kubernetes, which somebody pushes, and its service goes on",
        site: Purpose::Cluster,
        plain: false,
        asked: true,
        minutes: 80,
        about: &["agent/src/upgrades", "agent/bootstrap/src/packages"],
        tell: upgrade::tell,
    },
    Story {
        id: "tampered",
        name: "A kernel and an initramfs that arrive changed start no server under Secure Boot that the box believes",
        site: Purpose::Plain,
        plain: false,
        asked: false,
        minutes: 6,
        about: &[
            "agent/measured",
            "agent/src/boot_files",
            "agent/src/hosts/measured.rs",
            "agent/ramdisk/src/tpm.rs",
        ],
        tell: tampered::tell,
    },
    Story {
        id: "uploaded_disk",
        name: "A server that boots by HTTP under Secure Boot is installed from a disk that somebody pushed, by its name",
        site: Purpose::Plain,
        plain: false,
        asked: false,
        minutes: 7,
        about: &[
            "agent/src/store",
            "agent/artifacts",
            "imagebuilder/src/push",
            "agent/netboot",
        ],
        tell: uploaded_disk::tell,
    },
    Story {
        id: "bmc",
        name: "A server that nobody switches on is started, installed, switched off and restarted by its BMC",
        site: Purpose::Plain,
        plain: false,
        asked: false,
        minutes: 14,
        about: &[
            "agent/src/hosts/plan/power.rs",
            "agent/src/hosts/apply/power.rs",
            "agent/src/hosts/bmc.rs",
            "agent/ironic/src/power.rs",
            "qemu-tests/src/bmc",
        ],
        tell: bmc::tell,
    },
    Story {
        id: "virtual_media",
        name: "A server that knows no network boot is installed from a CD of the box's, by its BMC and under Secure Boot",
        site: Purpose::Plain,
        plain: false,
        asked: false,
        minutes: 8,
        about: &[
            "agent/netboot/src/medium",
            "agent/src/web/media.rs",
            "agent/src/hosts/apply/power.rs",
            "qemu-tests/src/bmc",
        ],
        tell: virtual_media::tell,
    },
    Story {
        id: "bmc_account",
        name: "A server makes the box an account in its BMC that nobody typed, and is switched by it",
        site: Purpose::Plain,
        plain: false,
        asked: false,
        minutes: 9,
        about: &[
            "agent/ipmi",
            "agent/api/src/account.rs",
            "agent/ramdisk/src/ipa/account.rs",
            "agent/src/hosts/account.rs",
            "agent/src/hosts/account_writer.rs",
            "agent/src/hosts/host/account.rs",
            "qemu-tests/src/bmc",
        ],
        tell: bmc_account::tell,
    },
];

/// What was asked for.
#[derive(Default)]
struct Arguments {
    /// Of a name.
    part: String,
    until: Option<SystemTime>,
}

fn main() -> ExitCode {
    match parse_arguments(std::env::args().skip(1)).and_then(|arguments| run(&arguments)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            say(&format!("not started: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn parse_arguments(mut words: impl Iterator<Item = String>) -> Result<Arguments> {
    let mut arguments = Arguments::default();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--until" => {
                let seconds = words.next().and_then(|seconds| seconds.parse().ok());
                let seconds = seconds.context("--until: seconds since 1970")?;
                arguments.until = Some(UNIX_EPOCH + Duration::from_secs(seconds));
            }
            // Of cargo's own.
            "--quiet" | "--nocapture" => {}
            option if option.starts_with('-') => bail!("{option}: not known here"),
            part => part.clone_into(&mut arguments.part),
        }
    }
    Ok(arguments)
}

fn run(arguments: &Arguments) -> Result<bool> {
    let times = Times::open()?;
    let changed = changed_files();
    let named = |story: &&Story| story.name.contains(&arguments.part);
    let (mut waiting, asked): (Vec<&Story>, Vec<&Story>) = STORIES
        .iter()
        .filter(named)
        .partition(|story| arguments.until.is_none() || !story.asked);
    for story in asked {
        say(&format!("left out: {} (only on request)", story.name));
    }
    let (mut passed, mut told) = (true, 0_u32);
    let began = Instant::now();
    loop {
        let candidates: Vec<Candidate> = waiting
            .iter()
            .map(|story| candidate(story, &times, &changed))
            .collect();
        let left = arguments.until.map_or(Duration::MAX, |until| {
            until.duration_since(SystemTime::now()).unwrap_or_default()
        });
        let image = times.of(IMAGE).map_or(COLD_IMAGE, |_| WARM_IMAGE);
        let Some(at) = next(&candidates, left.saturating_sub(image)) else {
            return finish(arguments, &waiting, &candidates, left, passed, told, began);
        };
        passed &= tell_one(waiting.remove(at), &times)?;
        told += 1;
    }
}

fn candidate(story: &Story, times: &Times, changed: &[String]) -> Candidate {
    let cause = if touches(changed, story.about) {
        Cause::Touched
    } else if story.plain {
        Cause::Plain
    } else {
        Cause::Rest
    };
    let takes = times
        .of(story.id)
        .unwrap_or(Duration::from_mins(story.minutes));
    Candidate { cause, takes }
}

fn tell_one(story: &Story, times: &Times) -> Result<bool> {
    say(&format!("\n{}", story.name));
    let built = Instant::now();
    let site = build_site(story.site)?;
    times.note(IMAGE, built.elapsed())?;
    let began = Instant::now();
    match tell(story, &site) {
        Ok(()) => {
            say(&format!("passed in {} s", began.elapsed().as_secs()));
            times.note(story.id, began.elapsed())?;
            Ok(true)
        }
        Err(error) => {
            let seconds = began.elapsed().as_secs();
            say(&format!("FAILED after {seconds} s: {error:#}"));
            Ok(false)
        }
    }
}

/// Says what was left out, and notes what a later run needs not repeat.
fn finish(
    arguments: &Arguments,
    left_out: &[&Story],
    candidates: &[Candidate],
    left: Duration,
    passed: bool,
    told: u32,
    began: Instant,
) -> Result<bool> {
    for (story, candidate) in left_out.iter().zip(candidates) {
        let touched = match candidate.cause {
            Cause::Touched => "; the change touches it",
            Cause::Plain | Cause::Rest => "",
        };
        say(&format!(
            "left out: {} ({} min, {} are left{touched})",
            story.name,
            candidate.takes.as_secs().div_ceil(60),
            left.as_secs() / 60,
        ));
    }
    if arguments.part.is_empty() && passed {
        figures::BASE_STORIES.record(f64::from(told))?;
        figures::BASE_STORIES_TIME.record_time(began.elapsed())?;
        if candidates.iter().all(|one| one.cause != Cause::Touched) {
            note_passed()?;
        }
    }
    Ok(passed)
}

fn tell(story: &Story, site: &TestSite) -> Result<()> {
    let mut scene = Scene::set(site, story.name)?;
    (story.tell)(&mut scene).inspect_err(|error| match scene.write_failure(error) {
        Ok(dir) => say(&format!(
            "consoles, status, journal and screens are in {}",
            dir.display()
        )),
        Err(other) => say(&format!(
            "what happened could not be written down: {other:#}"
        )),
    })
}

fn say(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}
