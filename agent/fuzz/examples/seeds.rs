//! The names of the targets, or the seeds of one into a folder: for `scripts/fuzz`.
#![allow(clippy::print_stdout, reason = "the script reads it")]

use std::{fs, io, path::Path};

use firstlight_fuzz::TARGETS;

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [name, folder] = arguments.as_slice() else {
        for target in TARGETS {
            println!("{}", target.name);
        }
        return Ok(());
    };
    let target = TARGETS.iter().find(|target| target.name == name);
    let target = target.ok_or_else(|| io::Error::other(format!("there is no target {name}")))?;
    for (number, seed) in (target.seeds)().into_iter().enumerate() {
        fs::write(Path::new(folder).join(format!("seed-{number}")), seed)?;
    }
    Ok(())
}
