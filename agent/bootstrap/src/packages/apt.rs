//! apt and dpkg at work. What they refuse is told by their words, not by their exit codes.

use anyhow::Result;
use firstlight_api::{
    packages::{PackageOrder, PackageReport},
    software::NONE,
};

use super::{
    reason::Refused,
    server::{CommandOutput, Server},
};
use crate::sources::files;

/// A file that the administrator changed stays; and whoever else has apt at work is waited for.
const OPTIONS: [&str; 7] = [
    "-y",
    "-o",
    "Dpkg::Options::=--force-confold",
    "-o",
    "Dpkg::Options::=--force-confdef",
    "-o",
    "DPkg::Lock::Timeout=300",
];
const UPDATE: [&str; 3] = ["update", "-o", "DPkg::Lock::Timeout=300"];
/// An exact version may be an older one, and a package on hold is one that nobody else should change. But nothing that the
/// order does not name goes away for it.
const INSTALL: [&str; 5] = [
    "install",
    "--no-install-recommends",
    "--allow-downgrades",
    "--allow-change-held-packages",
    "--no-remove",
];

/// What a power cut interrupted; apt refuses everything before that is done. A package that fails again says so below.
pub fn repair(server: &mut impl Server) -> Result<()> {
    let arguments = ["--configure", "-a", "--force-confold", "--force-confdef"];
    server.run("dpkg", &arguments).map(drop)
}

/// The newest of what fits these patterns, `NAME=VERSION*`.
pub fn install_newest(server: &mut impl Server, patterns: &[&str]) -> Result<CommandOutput> {
    server.run("apt-get", &UPDATE)?;
    server.run("apt-get", &[&OPTIONS[..], &INSTALL, patterns].concat())
}

pub fn install(server: &mut impl Server, order: &PackageOrder) -> Result<Refused> {
    if let Some(repository) = &order.repository {
        server.write(&files(repository))?;
    }
    let updated = server.run("apt-get", &UPDATE)?;
    let exact: Vec<String> = order
        .packages
        .iter()
        .map(|package| format!("{}={}", package.name, package.version))
        .collect();
    let exact: Vec<&str> = exact.iter().map(String::as_str).collect();
    let said = server.run("apt-get", &[&OPTIONS[..], &INSTALL, &exact].concat())?;
    let mut refused = Refused::new(&said.text);
    for name in refused.without_version() {
        let known = server.run("apt-cache", &["madison", &name])?;
        refused.there_are(&name, &known.text);
    }
    if !updated.is_success || updated.text.contains("Failed to fetch") {
        refused.not_updated(&updated.text);
    }
    Ok(refused)
}

/// Asked first what else would go: a base library takes the whole system with it.
pub fn remove(server: &mut impl Server, found: &[PackageReport]) -> Result<Refused> {
    let there = found.iter().filter(|package| package.have != NONE);
    let names: Vec<&str> = there.map(|package| package.name.as_str()).collect();
    let arguments = [&OPTIONS[..], &["remove"], &names].concat();
    let tried = server.run("apt-get", &[&["-s"], &arguments[..]].concat())?;
    let others: Vec<&str> = tried
        .text
        .lines()
        .filter_map(|line| line.strip_prefix("Remv ")?.split(' ').next())
        .filter(|name| !names.contains(name))
        .collect();
    if !others.is_empty() {
        return Ok(Refused::because(format!(
            "this would also remove {}; name them too if they are to go",
            others.join(", ")
        )));
    }
    let said = server.run("apt-get", &arguments)?;
    Ok(Refused::new(&said.text))
}
