//! Programs of the machine that an installation calls: apt, systemd, mount.

use std::ffi::OsStr;
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, bail};

use super::packages::{Simulation, parse_simulation};

/// Runs a program; what it says goes into the error.
pub fn run(program: &str, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Result<()> {
    let output = ask(program, arguments)?;
    if !output.status.success() {
        bail!("{program}: {}", said(&output));
    }
    Ok(())
}

/// Whether a program that answers by its exit code says yes.
pub fn is_true(program: &str, arguments: &[&str]) -> bool {
    ask(program, arguments).is_ok_and(|output| output.status.success())
}

fn ask(program: &str, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Result<Output> {
    Command::new(program)
        .args(arguments)
        .env("LC_ALL", "C.UTF-8")
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("starting {program}"))
}

fn said(output: &Output) -> String {
    let error = String::from_utf8_lossy(&output.stderr);
    let lines = error.lines().map(str::trim);
    let lines: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
    match lines.last() {
        Some(last) => (*last).to_owned(),
        None => output.status.to_string(),
    }
}

/// What apt would do for these packages.
pub fn simulate(packages: &[String]) -> Result<Simulation> {
    let options = ["--simulate", "--no-install-recommends", "install"].map(str::to_owned);
    let output = ask("apt-get", options.iter().chain(packages))?;
    if !output.status.success() {
        return Ok(Simulation::Refused(said(&output)));
    }
    Ok(parse_simulation(&String::from_utf8_lossy(&output.stdout)))
}

/// apt shows its own progress.
pub fn install(packages: &[String]) -> Result<()> {
    let status = Command::new("apt-get")
        .args(["install", "--yes", "--no-remove", "--no-install-recommends"])
        .args(packages)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .status()
        .context("starting apt-get")?;
    if !status.success() {
        bail!("apt-get did not install {}, see above", packages.join(" "));
    }
    Ok(())
}

/// The package that each of these files belongs to.
pub fn owners(paths: &[String]) -> Vec<(String, String)> {
    // It says no when a single one of them belongs to nobody, and names the others all the same.
    let said = ask("dpkg-query", [&["--search".to_owned()], paths].concat());
    let text = said.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    parse_owners(&text.unwrap_or_default())
}

fn parse_owners(text: &str) -> Vec<(String, String)> {
    let pairs = text.lines().filter_map(|line| line.split_once(": "));
    pairs
        .map(|(package, path)| (path.to_owned(), package.to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_read_from_dpkgs_answer() {
        let text = "containerd: /usr/bin/containerd\nruncx, runcy: /usr/bin/shared\n";
        let pair = |path: &str, package: &str| (path.to_owned(), package.to_owned());
        assert_eq!(
            parse_owners(text),
            [
                pair("/usr/bin/containerd", "containerd"),
                pair("/usr/bin/shared", "runcx, runcy")
            ]
        );
    }
}
