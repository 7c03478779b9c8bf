//! What the box orders of this server's packages: exact versions in, or out, by the real apt and dpkg.
//!
//! One order comes as JSON on standard input and is checked word by word ([`firstlight_api::packages::Order::parse`]): this is
//! the side that runs as root. Then dpkg is asked; if everything is as wanted, nothing is written at all. Otherwise what was
//! interrupted before is repaired, apt does its work ([`apt`]), dpkg is asked again ([`state`], pure), and the report says of
//! each package what is there and, in apt's or dpkg's own words ([`reason`], pure), why not.
//!
//! A node's way to another version of Kubernetes is such packages with the real kubeadm between them ([`kubernetes`]); its way to other certificate
//! authorities is files with the same ([`authorities`]).
//!
//! Must not: run a command of the order's, remove a package that the order does not name, or take the word of apt's exit
//! code for what is installed.

mod apt;
mod authorities;
mod control_plane;
mod kubernetes;
mod reason;
mod server;
mod state;
#[cfg(test)]
mod tests;

use anyhow::Result;
use firstlight_api::{
    packages::{Order, PackageOrder, PackageReport, Report},
    software::{PackageState, Presence},
};

pub use kubernetes::become_release;
pub use server::{CommandOutput, Server, ThisServer};

/// Carries out one order.
pub fn obey(server: &mut impl Server, order: &Order) -> Result<Report> {
    match order {
        Order::Packages(order) => keep(server, order),
        Order::Restart { boot_id } => {
            if server.boot_id()? == *boot_id {
                server.restart()?;
            }
            report(server, Vec::new(), false)
        }
        Order::Kubernetes(order) => kubernetes::step(server, order),
        Order::Authorities(order) => authorities::step(server, order),
    }
}

fn keep(server: &mut impl Server, order: &PackageOrder) -> Result<Report> {
    let found = look(server, order)?;
    if order.dry_run || is_done(&found) {
        return report(server, found, false);
    }
    // Held until the report: a second order, from a box that lost its connection, waits for the first.
    let _lock = server.lock()?;
    let found = look(server, order)?;
    if is_done(&found) {
        return report(server, found, false);
    }
    apt::repair(server)?;
    let refused = match order.state {
        Presence::Present => apt::install(server, order)?,
        Presence::Absent => apt::remove(server, &found)?,
    };
    let mut found = look(server, order)?;
    for package in &mut found {
        if package.state != PackageState::Ready {
            package.state = PackageState::Failed;
            package.reason = refused.of(package);
        }
    }
    report(server, found, true)
}

fn look(server: &mut impl Server, order: &PackageOrder) -> Result<Vec<PackageReport>> {
    let names = order.packages.iter().map(|package| package.name.as_str());
    let arguments: Vec<&str> = ["-W", "-f", state::FORMAT]
        .into_iter()
        .chain(names)
        .collect();
    // It fails where one of the names is unknown, and still says what it knows of the others.
    let said = server.run("dpkg-query", &arguments)?;
    Ok(state::compare(order, &said.text))
}

fn is_done(found: &[PackageReport]) -> bool {
    found
        .iter()
        .all(|package| package.state == PackageState::Ready)
}

fn report(server: &mut impl Server, packages: Vec<PackageReport>, changed: bool) -> Result<Report> {
    Ok(Report {
        packages,
        changed,
        reboot_needed: server.reboot_needed(),
        boot_id: server.boot_id()?,
    })
}
