//! What the box knows of its servers, for people and as JSON.

use std::fmt::Write as _;

use anyhow::Result;
use firstlight_api::status::{DiskUse, HostPower, HostStatus, RootDiskState, SiteStatus};
use firstlight_api::verb::{self, Manner, Owner, Verb};
use serde::Serialize;

/// What a server says of itself cannot look like another line.
fn line(text: &str) -> String {
    let shown = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().map(shown).collect()
}

/// One line a server.
pub fn list(hosts: &[HostStatus]) -> String {
    let head = ["NAME", "MAC", "STATE", "CODE", "WHY"].map(str::to_owned);
    let rows: Vec<[String; 5]> = std::iter::once(head).chain(hosts.iter().map(row)).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: [usize; 4] = std::array::from_fn(|column| width(column).unwrap_or(0));
    let mut text = String::new();
    for row in &rows {
        for (cell, width) in row.iter().zip(widths) {
            let _ = write!(text, "{cell:width$}  ");
        }
        let _ = writeln!(text, "{}", row[4]);
    }
    text
}

fn row(host: &HostStatus) -> [String; 5] {
    let why = match &host.problem {
        Some(problem) => format!("{}; {}", problem.what, problem.next),
        None => host.step.clone(),
    };
    let code = Some(&host.code).filter(|code| !code.is_empty());
    let code = code.map_or("-", String::as_str);
    let state = state(host);
    [host.name.as_str(), &host.mac, &state, code, &why].map(line)
}

fn state(host: &HostStatus) -> String {
    let state = host.state.as_str();
    if host.control.spare {
        format!("{state}, spare")
    } else {
        state.to_owned()
    }
}

/// A host, and what may be asked of it now.
#[derive(Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    host: &'a HostStatus,
    verbs: Vec<VerbLine>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct VerbLine {
    verb: &'static str,
    /// It would be done.
    applies: bool,
    /// Why not, and what to do instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    why_not: Option<String>,
    /// The flag with which it would be done all the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    unless: Option<&'static str>,
}

fn verbs(site: &SiteStatus, host: &HostStatus) -> Vec<VerbLine> {
    let owner = Owner::of(site, host);
    let line = |verb: Verb| {
        let refusal = verb::refusal(verb, Manner::Soft, host, owner.as_ref());
        let unless = refusal.as_ref().and_then(|refusal| refusal.unless);
        VerbLine {
            verb: verb.as_str(),
            applies: refusal.is_none(),
            unless: unless.map(verb::Insistence::flag),
            why_not: refusal.map(|refusal| refusal.why),
        }
    };
    Verb::ALL.map(line).into()
}

pub fn json(value: &impl Serialize) -> Result<String> {
    Ok(format!("{}\n", serde_json::to_string_pretty(value)?))
}

pub fn one_as_json(site: &SiteStatus, host: &HostStatus) -> Result<String> {
    let verbs = verbs(site, host);
    json(&Shown { host, verbs })
}

pub fn one(site: &SiteStatus, host: &HostStatus) -> String {
    let seconds = |from: f64, to: f64| format!("{:.0} s", (to - from).max(0.0));
    let mut text = String::new();
    let mut say = |what: &str, value: &str| {
        if !value.is_empty() {
            let _ = writeln!(text, "{what:10}  {}", line(value));
        }
    };
    say("name", &format!("{} in {}", host.name, host.namespace));
    say("server", &format!("{} {}", host.mac, host.address));
    say(
        "state",
        &format!("{} for {}", state(host), seconds(host.since, site.uptime)),
    );
    say("step", &host.step);
    if let Some(problem) = &host.problem {
        say("problem", &problem.what);
        say("next", &problem.next);
    }
    let control = &host.control;
    say("in use by", &control.consumer);
    say("for", &control.cluster);
    say("paused by", &control.paused);
    let power = match control.power {
        HostPower::Manual => "by hand: its object names no BMC",
        HostPower::Unknown => "its BMC has not said",
        HostPower::On => "on",
        HostPower::Off => "off",
    };
    say("power", power);
    let disk = match control.disk {
        DiskUse::Free => "nothing of the box's",
        DiskUse::Writing => "an image is being written",
        DiskUse::Staged => "an image that waits to be claimed",
        DiskUse::Installed => "its system",
        DiskUse::Erasing => "it is being cleaned",
    };
    say("disk", disk);
    let root = host.root_disk.as_ref();
    let lost = root.filter(|root| root.state == RootDiskState::Wrote);
    if let Some(problem) = lost.and_then(|root| root.problem.as_ref()) {
        say("mirror", &problem.what);
        say("next", &problem.next);
    }
    say("rule", &host.rule_line());
    say("kexec", &host.kexec_line());
    if let Some(failed) = control.failed {
        say("failed", failed.as_str());
    }
    say("code", &host.code);
    for event in &host.history {
        let took = seconds(event.started, event.ended);
        let at = format!("{:.0}", event.started);
        say(
            "history",
            &format!("{} at {at} s, for {took}", event.state.as_str()),
        );
    }
    for verb in verbs(site, host) {
        let why = match (&verb.why_not, verb.unless) {
            (Some(why), Some(flag)) => format!("only with `{flag}`: {why}"),
            (Some(why), None) => format!("not now: {why}"),
            (None, _) => "yes".to_owned(),
        };
        say(verb.verb, &why);
    }
    text
}

#[cfg(test)]
mod tests;
