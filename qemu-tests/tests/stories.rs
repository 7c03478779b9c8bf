//! The stories, one after the other: `cargo test -p qemu-tests --features vm [-- PART-OF-A-NAME]`.

#[path = "stories/addons.rs"]
mod addons;
#[path = "stories/another_worker.rs"]
mod another_worker;
#[path = "stories/cluster.rs"]
mod cluster;
#[path = "stories/control_planes.rs"]
mod control_planes;
#[path = "stories/everyday.rs"]
mod everyday;
#[path = "stories/installed.rs"]
mod installed;
#[path = "stories/power_cut.rs"]
mod power_cut;
#[path = "stories/uploaded_disk.rs"]
mod uploaded_disk;

use std::io::Write as _;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Result;
use qemu_tests::scene::Scene;
use qemu_tests::site::{Purpose, TestSite, build_site};

struct Story {
    name: &'static str,
    site: Purpose,
    /// Only when a part of its name is given: it takes too long for every run, or has not passed yet.
    asked: bool,
    tell: fn(&mut Scene<'_>) -> Result<()>,
}

impl Story {
    fn is_wanted(&self, part: &str) -> bool {
        self.name.contains(part) && !(part.is_empty() && self.asked)
    }
}

const STORIES: [Story; 8] = [
    Story {
        name: "BIOS box installs a UEFI server, leaves a server with data alone, and knows both after a reboot",
        site: Purpose::Plain,
        asked: false,
        tell: everyday::tell,
    },
    Story {
        name: "Secure Boot box loses power while it installs a BIOS server, and installs it once",
        site: Purpose::Plain,
        asked: false,
        tell: power_cut::tell,
    },
    Story {
        name: "A plain Debian 13 machine becomes a box, stays one after a power cut, and is itself again",
        site: Purpose::Plain,
        asked: true,
        tell: installed::tell,
    },
    Story {
        name: "Two blank servers become a cluster, whose worker leaves and comes back through a power cut of the box",
        site: Purpose::Cluster,
        asked: true,
        tell: cluster::tell,
    },
    Story {
        name: "A third blank server becomes the second worker of a running cluster",
        site: Purpose::Cluster,
        asked: true,
        tell: another_worker::tell,
    },
    Story {
        name: "Three control planes, one of which loses its power",
        site: Purpose::ThreeControlPlanes,
        asked: true,
        tell: control_planes::tell,
    },
    Story {
        name: "A cluster gets its addons from the stick and what people push",
        site: Purpose::Addons,
        asked: true,
        tell: addons::tell,
    },
    Story {
        name: "A server is installed from a disk that somebody pushed, by its name",
        site: Purpose::Plain,
        asked: true,
        tell: uploaded_disk::tell,
    },
];

fn main() -> ExitCode {
    let wanted = std::env::args()
        .skip(1)
        .find(|argument| !argument.starts_with('-'))
        .unwrap_or_default();
    match run(&wanted) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            say(&format!("not started: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(wanted: &str) -> Result<bool> {
    let mut passed = true;
    for story in STORIES.iter().filter(|story| story.is_wanted(wanted)) {
        say(&format!("\n{}", story.name));
        let site = build_site(story.site)?;
        let began = Instant::now();
        match tell(story, &site) {
            Ok(()) => say(&format!("passed in {} s", began.elapsed().as_secs())),
            Err(error) => {
                passed = false;
                say(&format!(
                    "FAILED after {} s: {error:#}",
                    began.elapsed().as_secs()
                ));
            }
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
