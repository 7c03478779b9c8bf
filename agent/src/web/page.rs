//! The page, rendered from the status value alone: pure, whole without JavaScript, nothing loaded from elsewhere.
//!
//! Every text goes through [`Text`], because names and reasons come from machines on the network.

mod before;
mod clusters;
mod controllers;
mod people;
mod software;
mod store;

use std::fmt::{self, Display, Write as _};

use firstlight_api::{
    people::Role,
    status::{
        DhcpMode, HostState, HostStatus, MeasuredBootStatus, NetworkStatus, Problem, RootDiskState,
        SiteStatus, Step, StepState, TpmStatus, UplinkStatus,
    },
};

pub const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// A text inside an element or a quoted attribute.
pub struct Text<'a>(pub &'a str);

impl Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|letter| match letter {
            '&' => f.write_str("&amp;"),
            '<' => f.write_str("&lt;"),
            '>' => f.write_str("&gt;"),
            '"' => f.write_str("&quot;"),
            '\'' => f.write_str("&#39;"),
            letter => f.write_char(letter),
        })
    }
}

/// A span of time, e.g. `1 min 12 s`; the script in the page writes the same form.
struct Span(f64);

impl Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "whole seconds, and saturating"
        )]
        let seconds = self.0.max(0.0) as u64;
        match seconds {
            0..60 => write!(f, "{seconds} s"),
            60..3600 => write!(f, "{} min {} s", seconds / 60, seconds % 60),
            _ => write!(f, "{} h {} min", seconds / 3600, seconds / 60 % 60),
        }
    }
}

/// Who the page is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// Everybody, while nobody could log in.
    Anybody,
    /// Somebody who may look.
    Viewer,
    /// Somebody who may ask for something.
    Operator,
}

impl Reader {
    pub fn of(role: Option<Role>) -> Self {
        match role {
            None => Self::Anybody,
            Some(Role::Viewer) => Self::Viewer,
            Some(Role::Operator | Role::Admin) => Self::Operator,
        }
    }
}

/// The whole page for each [`Reader`].
pub const RENDERED: [fn(&SiteStatus) -> String; 3] = [
    |status| render(status, Reader::Anybody),
    |status| render(status, Reader::Viewer),
    |status| render(status, Reader::Operator),
];

/// The whole page.
pub fn render(status: &SiteStatus, reader: Reader) -> String {
    let mut out = String::with_capacity(16 * 1024);
    // Writing to a String cannot fail.
    write_page(&mut out, status, reader).expect("a String takes every text");
    out
}

fn write_page(out: &mut String, status: &SiteStatus, reader: Reader) -> fmt::Result {
    // Before site.yaml is read the site has no name.
    let site = Text(if status.site.is_empty() {
        "Firstlight"
    } else {
        &status.site
    });
    let (class, word) = readiness(status);
    write!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{site} · {word}</title>\n<noscript><meta http-equiv=\"refresh\" content=\"5\"></noscript>\n\
         <link rel=\"icon\" href=\"data:,\">\n<style>\n{STYLE}</style>\n</head>\n<body>\n<div id=\"live\" data-uptime=\"{:.1}\">\n",
        status.uptime
    )?;
    write!(
        out,
        "<header><h1>{site}</h1><span class=\"dim\">Firstlight {}</span><span class=\"pill {class}\">{word}</span></header>\n<main>\n",
        Text(&status.version)
    )?;
    people::write_entrance(out, reader)?;
    if !status.problems.is_empty() {
        out.write_str(
            "<section class=\"card\" style=\"margin-top:1.5rem\"><h2>Needs attention</h2>\n",
        )?;
        status
            .problems
            .iter()
            .try_for_each(|problem| write_problem(out, problem, "bad"))?;
        out.write_str("</section>\n")?;
    }
    if let Some(stage) = &status.update {
        writeln!(
            out,
            "<section class=\"card\" style=\"margin-top:1.5rem\"><h2>Update</h2>\n<p>{}</p></section>",
            Text(&stage.sentence())
        )?;
    }
    out.write_str("<div class=\"grid\">\n<div>\n")?;
    write_network(out, &status.network)?;
    write_steps(out, status)?;
    store::write(out, &status.artifacts)?;
    controllers::write(out, &status.controllers)?;
    before::write(out, &status.before_start)?;
    out.write_str("</div>\n<div>\n")?;
    clusters::write(out, status)?;
    software::write(out, &status.software)?;
    write_hosts(out, status, reader)?;
    write!(
        out,
        "</div>\n</div>\n</main>\n<footer>Up for <span data-since=\"0\">{}</span>. For programs: <a href=\"/api/v1/status\">/api/v1/status</a>, \
         <a href=\"/metrics\">/metrics</a>, <a href=\"/readyz\">/readyz</a>.</footer>\n</div>\n\
         <footer id=\"lost\" class=\"bad\" hidden>The box does not answer; this page shows what was last known.</footer>\n\
         <script>\n{SCRIPT}</script>\n</body>\n</html>\n",
        Span(status.uptime)
    )
}

fn readiness(status: &SiteStatus) -> (&'static str, &'static str) {
    let failed = status
        .bring_up
        .iter()
        .any(|step| matches!(step.state, StepState::Failed { .. }));
    match (status.ready, failed) {
        (true, _) => ("good", "ready"),
        (false, true) => ("bad", "needs attention"),
        (false, false) => ("busy", "starting"),
    }
}

fn write_problem(out: &mut String, problem: &Problem, class: &str) -> fmt::Result {
    write!(
        out,
        "<div class=\"problem {class}\"><b>{}</b>",
        Text(&problem.what)
    )?;
    if !problem.next.is_empty() {
        write!(out, "<p>{}</p>", Text(&problem.next))?;
    }
    out.write_str("</div>\n")
}

fn write_network(out: &mut String, network: &NetworkStatus) -> fmt::Result {
    out.write_str("<section class=\"card\"><h2>Provisioning network</h2>\n<dl>\n")?;
    if network.interface.is_empty() {
        out.write_str("<dt>Interface</dt><dd class=\"dim\">none chosen yet</dd>\n")?;
    } else {
        writeln!(
            out,
            "<dt>Interface</dt><dd>{} <span class=\"dim\">{}</span></dd>",
            Text(&network.interface),
            Text(&network.mac)
        )?;
        writeln!(out, "<dt>Address</dt><dd>{}</dd>", Text(&network.address))?;
    }
    out.write_str("<dt>DHCP</dt>")?;
    match &network.dhcp {
        DhcpMode::Off => out.write_str("<dd class=\"dim\">not started</dd>\n")?,
        DhcpMode::Probing => out.write_str(
            "<dd class=\"busy\">asking whether another server leases addresses here</dd>\n",
        )?,
        DhcpMode::Serving => writeln!(
            out,
            "<dd><span class=\"good\">serving</span>, {} leased</dd>",
            network.leases
        )?,
        DhcpMode::Silent { server } => writeln!(
            out,
            "<dd><span class=\"warm\">silent</span>: {} leases addresses here</dd>",
            Text(server)
        )?,
        DhcpMode::Proxy { server: None } => out.write_str(
            "<dd><span class=\"warm\">boot information only</span>, and nobody leases addresses here</dd>\n",
        )?,
        DhcpMode::Proxy {
            server: Some(server),
        } => writeln!(
            out,
            "<dd><span class=\"good\">boot information</span> beside {}</dd>",
            Text(server)
        )?,
        DhcpMode::Relay => writeln!(
            out,
            "<dd><span class=\"good\">serving</span> relayed networks, {} leased</dd>",
            network.leases
        )?,
    }
    if let Some(uplink) = &network.uplink {
        write_uplink(out, uplink)?;
    }
    out.write_str("</dl>\n</section>\n")
}

fn write_uplink(out: &mut String, uplink: &UplinkStatus) -> fmt::Result {
    match (&uplink.address, &uplink.interface) {
        (Some(address), Some(interface)) => writeln!(
            out,
            "<dt>Uplink</dt><dd>{} <span class=\"dim\">{}</span></dd>",
            Text(address),
            Text(interface)
        )?,
        _ => out.write_str("<dt>Uplink</dt><dd class=\"dim\">no address yet</dd>\n")?,
    }
    for (cluster, port) in &uplink.clusters {
        let name = Text(cluster);
        writeln!(
            out,
            "<dt>API of {name}</dt><dd>port {port} of the uplink</dd>"
        )?;
    }
    Ok(())
}

fn write_steps(out: &mut String, status: &SiteStatus) -> fmt::Result {
    out.write_str("<section class=\"card\"><h2>Bring-up of the box</h2>\n<ol class=\"steps\">\n")?;
    status
        .bring_up
        .iter()
        .try_for_each(|step| write_step(out, step, status.uptime))?;
    out.write_str("</ol>\n")?;
    if let Some(seal) = &status.seal {
        writeln!(out, "<p class=\"dim\">{}</p>", Text(&seal.sentence()))?;
    }
    if let Some(backup) = &status.backup {
        writeln!(out, "<p class=\"dim\">{}</p>", Text(&backup.sentence()))?;
    }
    out.write_str("</section>\n")
}

fn write_step(out: &mut String, step: &Step, now: f64) -> fmt::Result {
    let (class, mark, word) = match &step.state {
        StepState::Waiting => ("wait", "·", "waiting"),
        StepState::Running { .. } => ("busy", "▸", "running"),
        StepState::Done { .. } => ("good", "✓", "done"),
        StepState::Failed { .. } => ("bad", "✗", "failed"),
    };
    write!(
        out,
        "<li><span class=\"mark {class}\" title=\"{word}\">{mark}</span><span>{}</span><span class=\"time\">",
        Text(&step.title)
    )?;
    match &step.state {
        StepState::Waiting => out.write_str("waiting")?,
        StepState::Running { started } => write!(
            out,
            "<span data-since=\"{started:.1}\">{}</span>",
            Span(now - started)
        )?,
        StepState::Done { started, ended } => {
            write!(out, "{:.1} s, at {}", ended - started, Span(*ended))?;
        }
        StepState::Failed { started, ended, .. } => {
            write!(out, "failed after {}", Span(ended - started))?;
        }
    }
    out.write_str("</span>")?;
    if let StepState::Failed { problem, .. } = &step.state {
        write_problem(out, problem, "bad")?;
    }
    out.write_str("</li>\n")
}

fn write_hosts(out: &mut String, status: &SiteStatus, reader: Reader) -> fmt::Result {
    if status.hosts.is_empty() {
        return out.write_str(
            "<section class=\"card\"><h2>Servers</h2>\n<p>No server seen yet.</p>\n<p class=\"dim\">Connect a server to the provisioning \
             network and switch it on with network boot enabled: it appears here by itself.</p></section>\n",
        );
    }
    write!(
        out,
        "<section class=\"card\"><h2>Servers</h2>\n<p class=\"dim\" style=\"margin:0\">{}</p></section>\n",
        Summary(&status.hosts)
    )?;
    status.hosts.iter().try_for_each(|host| {
        write_host(out, host, status.uptime)?;
        if reader == Reader::Operator {
            people::write_verbs(out, status, host)?;
        }
        out.write_str("</section>\n")
    })
}

/// How many servers are in which state.
struct Summary<'a>(&'a [HostStatus]);

impl Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |wanted: HostState| self.0.iter().filter(|host| host.state == wanted).count();
        write!(f, "{} seen", self.0.len())?;
        [HostState::Discovered, HostState::Running, HostState::Failed]
            .iter()
            .filter(|state| count(**state) > 0)
            .try_for_each(|state| write!(f, " · {} {}", count(*state), state.as_str()))
    }
}

fn write_host(out: &mut String, host: &HostStatus, now: f64) -> fmt::Result {
    let class = match host.state {
        HostState::Running | HostState::Staged | HostState::External => "good",
        HostState::Failed => "bad",
        HostState::Discovered | HostState::Available | HostState::Detached => "wait",
        _ => "busy",
    };
    let mut pills = String::new();
    if host.control.spare {
        pills.push_str("<span class=\"pill wait\">spare</span>");
    }
    if !host.control.cluster.is_empty() {
        write!(
            pills,
            "<span class=\"pill\">for {}</span>",
            Text(&host.control.cluster)
        )?;
    }
    writeln!(
        out,
        "<section class=\"card\"><div class=\"host-head\"><h3>{}</h3><span class=\"dim\">{} {}</span><span class=\"pill {class}\">{}</span>{pills}</div>",
        Text(&host.name),
        Text(&host.mac),
        Text(&host.address),
        host.state.as_str()
    )?;
    writeln!(
        out,
        "<p>{} <span class=\"time\">for <span data-since=\"{:.1}\">{}</span></span></p>",
        Text(&host.step),
        host.since,
        Span(now - host.since)
    )?;
    if let Some(percent) = host.percent {
        writeln!(
            out,
            "<progress max=\"100\" value=\"{percent}\">{percent} %</progress>"
        )?;
    }
    if let Some(problem) = &host.problem {
        // A server that is left alone is as safe as can be: no alarm.
        write_problem(
            out,
            problem,
            if host.state == HostState::Discovered {
                "warm"
            } else {
                "bad"
            },
        )?;
    }
    if let Some(hardware) = &host.hardware {
        writeln!(
            out,
            "<p class=\"dim\">{} · {} CPUs · {} · {} · {}{}</p>",
            Text(&hardware.product),
            hardware.cpus,
            Memory(hardware.memory_mib),
            Text(&hardware.disks.join(", ")),
            Text(&hardware.boot_mode),
            Text(&(tpm(&hardware.tpm) + &measured_boot(&hardware.measured_boot)))
        )?;
    }
    for line in [host.rule_line(), host.kexec_line()] {
        if !line.is_empty() {
            writeln!(out, "<p class=\"dim\">{}</p>", Text(&line))?;
        }
    }
    if let Some(root) = &host.root_disk {
        writeln!(out, "<p class=\"dim\">{}</p>", Text(&root.says))?;
        // Why nothing is written is said above where it matters.
        if let Some(problem) = root
            .problem
            .as_ref()
            .filter(|_| root.state == RootDiskState::Wrote)
        {
            write_problem(out, problem, "bad")?;
        }
    }
    if !host.code.is_empty() {
        writeln!(
            out,
            "<p class=\"dim\">code <code>{}</code>, as on its screen</p>",
            Text(&host.code)
        )?;
    }
    if !host.history.is_empty() {
        out.write_str("<div class=\"history dim\">")?;
        for event in &host.history {
            write!(
                out,
                "<span>{} {}</span>",
                event.state.as_str(),
                Span(event.ended - event.started)
            )?;
        }
        out.write_str("</div>\n")?;
    }
    Ok(())
}

/// Behind what is said of the hardware.
fn tpm(tpm: &TpmStatus) -> String {
    match tpm {
        TpmStatus::Unknown => String::new(),
        TpmStatus::Absent => " · no TPM".to_owned(),
        TpmStatus::Asked => " · TPM asked".to_owned(),
        TpmStatus::Silent { reason } => format!(" · TPM did not answer ({reason})"),
        TpmStatus::Shown => " · TPM, not bound".to_owned(),
        TpmStatus::Bound => " · TPM bound".to_owned(),
    }
}

/// Behind what is said of its TPM.
fn measured_boot(found: &MeasuredBootStatus) -> String {
    match found {
        MeasuredBootStatus::Unknown => String::new(),
        MeasuredBootStatus::Measured { secure_boot: true } => {
            " · measured boot, Secure Boot".to_owned()
        }
        MeasuredBootStatus::Measured { secure_boot: false } => " · measured boot".to_owned(),
        MeasuredBootStatus::Unmeasured { reason } => format!(" · start not measured: {reason}"),
        MeasuredBootStatus::Altered { what } => format!(" · started by others: {what}"),
    }
}

struct Memory(u64);

impl Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0..2048 => write!(f, "{} MiB", self.0),
            mib => write!(f, "{} GiB", mib / 1024),
        }
    }
}

#[cfg(test)]
mod tests;
