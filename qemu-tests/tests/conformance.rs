//! Upstream's conformance tests on a real cluster without virtual machines: `scripts/conformance [FOCUS]`, a regular expression for the
//! names of tests. Says how many passed, and which failed with their reasons; it fails only where nothing could be run.

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;
use std::{env, fs};

use anyhow::{Context, Result};
use imagebuilder::build::nodes::Nodes;
use imagebuilder::build::settings::find_cache;
use qemu_tests::conformance::{State, Suite, make_suite};
use qemu_tests::nodes::{Cluster, isolated, make_parts};

/// A few at a time: most of a test is waiting.
const PROCS: usize = 8;
/// One after the other, because they disturb the others.
const SERIAL: &str = r"\[Serial\]|\[Disruptive\]";
const EXPLAINED: &str = include_str!("../conformance/explained");
const FOCUS: &str = r"\[Conformance\]";

fn main() -> ExitCode {
    match isolated(prepare, tell) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("conformance: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn prepare() -> Result<(Nodes, Suite)> {
    let suite = make_suite(&find_cache()?.join("conformance"))?;
    Ok((make_parts(&[])?, suite))
}

fn tell((parts, suite): &(Nodes, Suite), place: &Path) -> Result<()> {
    let cache = find_cache()?;
    let cluster = Cluster::start(parts, Some(&suite.storage), place, 2)?;
    // There are but two nodes, and most tests want both.
    cluster.kubectl("taint node node-1 node-role.kubernetes.io/control-plane-")?;
    let asked = env::args().nth(1);
    let focus = asked.as_deref().unwrap_or(FOCUS);
    let kubectl = parts.programs.join("kubectl");
    let mut ended = Vec::new();
    for (name, skip, procs) in [("parallel", SERIAL, PROCS), ("serial", "", 1)] {
        let out = cache.join("conformance/out").join(name);
        fs::create_dir_all(&out)?;
        let began = Instant::now();
        let focus = if skip.is_empty() {
            format!("({focus}).*({SERIAL})|({SERIAL}).*({focus})")
        } else {
            focus.to_owned()
        };
        let some = suite.run(&cluster.kubeconfig(), &kubectl, [&focus, skip], procs, &out)?;
        eprintln!(
            "{} tests, {procs} at a time: {} s",
            some.len(),
            began.elapsed().as_secs()
        );
        ended.extend(some);
    }
    let (mut failed, mut explained) = (0, 0);
    for one in ended.iter().filter(|one| one.state == State::Failed) {
        if let Some(why) = explanation(EXPLAINED, &one.name) {
            explained += 1;
            eprintln!("cannot pass: {}: {why}", one.name);
        } else {
            failed += 1;
            eprintln!("failed: {}: {:.300}", one.name, one.message);
        }
    }
    let passed = ended.len() - failed - explained;
    eprintln!("{passed} passed, {failed} failed, {explained} cannot pass here");
    (!ended.is_empty())
        .then_some(())
        .context("no test has this name")
}

/// A line of `list` is a part of a name, and why such a test fails.
fn explanation<'a>(list: &'a str, name: &str) -> Option<&'a str> {
    let lines = list.lines().filter(|line| !line.starts_with('#'));
    let mut parts = lines.filter_map(|line| line.split_once(": "));
    parts.find_map(|(part, why)| name.contains(part).then_some(why))
}
