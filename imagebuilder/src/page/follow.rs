//! What changed between two looks at the box, as lines for a person. Pure.

use firstlight_api::status::{
    DhcpMode, HostState, HostStatus, Problem, SiteStatus, Step, StepState,
};

/// One line of progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// `box`, or the name of a host.
    pub who: String,
    pub what: String,
}

impl Line {
    fn of_box(what: String) -> Self {
        Self {
            who: "box".to_owned(),
            what,
        }
    }
}

/// Progress within one state is told in steps of this many percent.
const PERCENT: u8 = 20;

/// The lines to print after `before` became `now`.
pub fn changes(before: &SiteStatus, now: &SiteStatus) -> Vec<Line> {
    let mut lines = Vec::new();
    for step in &now.bring_up {
        let known = before.bring_up.iter().find(|old| old.name == step.name);
        if known.is_none_or(|old| !same_state(&old.state, &step.state)) {
            lines.extend(step_line(step));
        }
    }
    if before.network.dhcp != now.network.dhcp {
        lines.extend(dhcp_line(now));
    }
    if now.ready && !before.ready {
        lines.push(Line::of_box("ready".to_owned()));
    }
    for problem in now
        .problems
        .iter()
        .filter(|problem| !before.problems.contains(problem))
    {
        lines.push(Line::of_box(problem_text(problem)));
    }
    for host in &now.hosts {
        let known = before.hosts.iter().find(|old| old.mac == host.mac);
        lines.extend(host_line(known, host));
    }
    lines
}

fn same_state(a: &StepState, b: &StepState) -> bool {
    std::mem::discriminant(a) == std::mem::discriminant(b)
}

fn step_line(step: &Step) -> Option<Line> {
    let what = match &step.state {
        StepState::Waiting => return None,
        StepState::Running { .. } => format!("{} ...", step.title),
        StepState::Done { started, ended } => {
            format!("{}: done in {:.1} s", step.title, ended - started)
        }
        StepState::Failed { problem, .. } => {
            format!("{}: FAILED: {}", step.title, problem_text(problem))
        }
    };
    Some(Line::of_box(what))
}

fn dhcp_line(now: &SiteStatus) -> Option<Line> {
    let network = &now.network;
    let place = format!("{} on {}", network.address, network.interface);
    let what = match &network.dhcp {
        DhcpMode::Off => return None,
        DhcpMode::Probing => format!(
            "asking whether another DHCP server is on {}",
            network.interface
        ),
        DhcpMode::Serving => format!("answers DHCP as {place}"),
        DhcpMode::Silent { server } => {
            format!("{server} leases addresses here; silent, as {place}")
        }
        DhcpMode::Proxy { server: None } => {
            format!("nobody leases addresses here; gives boot information, as {place}")
        }
        DhcpMode::Proxy {
            server: Some(server),
        } => format!("gives boot information beside {server}, as {place}"),
        DhcpMode::Relay => format!("answers relay agents, as {place}"),
    };
    Some(Line::of_box(what))
}

fn host_line(before: Option<&HostStatus>, now: &HostStatus) -> Option<Line> {
    let tenth = |host: &HostStatus| host.percent.map(|percent| percent / PERCENT);
    let told = before.is_some_and(|old| {
        old.state == now.state
            && old.problem == now.problem
            && tenth(old) == tenth(now)
            && same_sentence(&old.step, &now.step)
    });
    if told {
        return None;
    }
    let name = if now.name.is_empty() {
        &now.mac
    } else {
        &now.name
    };
    let mut what = state_word(now.state).to_owned();
    if !now.step.is_empty() {
        what = format!("{what}: {}", now.step);
    }
    if let Some(problem) = &now.problem {
        what = format!("{what}: {}", problem_text(problem));
    }
    Some(Line {
        who: name.clone(),
        what,
    })
}

/// Sentences that differ in their numbers only say the same.
fn same_sentence(a: &str, b: &str) -> bool {
    let words = |text: &str| {
        text.chars()
            .filter(|c| !c.is_ascii_digit() && *c != '.')
            .collect::<String>()
    };
    words(a) == words(b)
}

fn problem_text(problem: &Problem) -> String {
    if problem.next.is_empty() {
        problem.what.clone()
    } else {
        format!("{} (next: {})", problem.what, problem.next)
    }
}

fn state_word(state: HostState) -> &'static str {
    match state {
        HostState::Failed => "FAILED",
        other => other.as_str(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(state: HostState, step: &str, percent: Option<u8>) -> HostStatus {
        let (name, mac) = ("server-1".to_owned(), "52:54:00:f1:00:01".to_owned());
        HostStatus {
            name,
            mac,
            state,
            step: step.to_owned(),
            percent,
            ..HostStatus::default()
        }
    }

    fn with_host(host: HostStatus) -> SiteStatus {
        SiteStatus {
            hosts: vec![host],
            ..SiteStatus::default()
        }
    }

    fn with_step(state: StepState) -> SiteStatus {
        let step = Step {
            name: "etcd".to_owned(),
            title: "Database".to_owned(),
            state,
        };
        SiteStatus {
            bring_up: vec![step],
            ..SiteStatus::default()
        }
    }

    fn texts(before: &SiteStatus, now: &SiteStatus) -> Vec<String> {
        changes(before, now)
            .into_iter()
            .map(|line| format!("{} {}", line.who, line.what))
            .collect()
    }

    #[test]
    fn a_step_is_told_when_it_begins_and_when_it_ends() {
        let (waiting, running) = (
            with_step(StepState::Waiting),
            with_step(StepState::Running { started: 3.0 }),
        );
        let done = with_step(StepState::Done {
            started: 3.0,
            ended: 5.25,
        });
        assert!(texts(&SiteStatus::default(), &waiting).is_empty());
        assert_eq!(texts(&waiting, &running), ["box Database ..."]);
        assert_eq!(texts(&running, &done), ["box Database: done in 2.2 s"]);
        assert!(texts(&done, &done).is_empty());
    }

    #[test]
    fn a_failure_is_told_with_what_to_do() {
        let problem = Problem {
            what: "disk full".to_owned(),
            next: "use a larger stick".to_owned(),
        };
        let failed = with_step(StepState::Failed {
            started: 1.0,
            ended: 2.0,
            problem,
        });
        assert_eq!(
            texts(&SiteStatus::default(), &failed),
            ["box Database: FAILED: disk full (next: use a larger stick)"]
        );
    }

    #[test]
    fn a_hosts_percent_is_told_now_and_then() {
        let at = |percent: u8| {
            with_host(host(
                HostState::Provisioning,
                &format!("writing, {percent} %"),
                Some(percent),
            ))
        };
        assert_eq!(
            texts(&SiteStatus::default(), &at(0)),
            ["server-1 provisioning: writing, 0 %"]
        );
        assert!(texts(&at(0), &at(19)).is_empty());
        assert_eq!(
            texts(&at(19), &at(20)),
            ["server-1 provisioning: writing, 20 %"]
        );
    }

    #[test]
    fn a_hosts_new_state_is_told_once() {
        let (a, b) = (
            with_host(host(HostState::Provisioned, "", None)),
            with_host(host(HostState::Running, "", None)),
        );
        assert_eq!(texts(&a, &b), ["server-1 running"]);
        assert!(texts(&b, &b).is_empty());
    }
}
