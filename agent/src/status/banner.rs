//! The status value as a few lines for the console, and when to print them again.

use std::fmt::Write as _;

use firstlight_api::status::{BoxNic, DhcpMode, Problem, SiteStatus, StepState};

/// Problems on a screen, two lines each; the page has all.
const MOST_PROBLEMS: usize = 3;
/// Network cards.
const MOST_NICS: usize = 4;
/// Characters of one line's text. Some of it comes from servers that nobody knows.
const LONGEST: usize = 200;

/// The banner; two values with the same banner need no new print. It holds no time and no percentage for that reason.
pub fn render(status: &SiteStatus) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let mut line = |args: std::fmt::Arguments<'_>| {
        writeln!(text, "{}", plain(&args.to_string())).expect("a String takes every text");
    };
    let site = if status.site.is_empty() {
        String::new()
    } else {
        format!(" - site {}", status.site)
    };
    line(format_args!("Firstlight {}{site}", status.version));
    match address(status) {
        Some(address) => line(format_args!(
            "  page      http://{address}/  ({} {})",
            status.network.interface, status.network.mac
        )),
        None => line(format_args!(
            "  page      waiting for the provisioning network"
        )),
    }
    if let Some(uplink) = &status.network.uplink {
        let address = uplink.address.as_deref();
        let address = address.and_then(|address| address.split('/').next());
        match address {
            Some(address) => line(format_args!("  uplink    http://{address}/")),
            None => line(format_args!("  uplink    no address yet")),
        }
    }
    let machine = &status.machine;
    if !machine.product.is_empty() {
        let serial = match machine.serial.as_str() {
            "" => String::new(),
            serial => format!(", serial number {serial}"),
        };
        line(format_args!("  machine   {}{serial}", machine.product));
    }
    for nic in machine.nics.iter().take(MOST_NICS) {
        let cable = match (nic.link, nic.speed) {
            (false, _) => "no link".to_owned(),
            (true, 0) => "link".to_owned(),
            (true, speed) => format!("link, {speed} Mbit/s"),
        };
        let used = match used(status, nic) {
            used if used.is_empty() => used,
            used => format!(": {used}"),
        };
        line(format_args!("  {:<9} {} {cable}{used}", nic.name, nic.mac));
    }
    if let more @ 1.. = machine.nics.len().saturating_sub(MOST_NICS) {
        line(format_args!(
            "            {more} more network cards on the page"
        ));
    }
    line(format_args!("  state     {}", state(status)));
    if let DhcpMode::Silent { server } = &status.network.dhcp {
        line(format_args!(
            "  dhcp      {server} leases addresses here; this box is silent"
        ));
    }
    if !status.hosts.is_empty() {
        line(format_args!("  servers   {}", servers(status)));
    }
    let problems = problems(status);
    for (what, next) in problems.iter().take(MOST_PROBLEMS) {
        line(format_args!("  PROBLEM   {what}"));
        line(format_args!("            -> {next}"));
    }
    if let more @ 1.. = problems.len().saturating_sub(MOST_PROBLEMS) {
        line(format_args!("  PROBLEM   {more} more on the page"));
    }
    text
}

/// What the box does with a network card, and what it heard there.
pub fn used(status: &SiteStatus, nic: &BoxNic) -> String {
    let network = &status.network;
    let uplink = network.uplink.as_ref();
    if nic.name == network.interface {
        return match &network.dhcp {
            DhcpMode::Silent { server } => {
                format!("provisioning network, where {server} leases addresses, too")
            }
            DhcpMode::Proxy {
                server: Some(server),
            } => {
                format!("provisioning network, where {server} leases addresses")
            }
            _ if status.hosts.is_empty() => "provisioning network, no server heard yet".to_owned(),
            _ => "provisioning network, servers were heard".to_owned(),
        };
    }
    let is_uplink = uplink.and_then(|uplink| uplink.interface.as_ref()) == Some(&nic.name);
    if is_uplink {
        return "uplink".to_owned();
    }
    String::new()
}

/// What a terminal shows as it is, on one line: no escape sequences, and no text that turns the writing round.
fn plain(text: &str) -> String {
    let steers = |c: char| {
        c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
    };
    let mut plain: String = text
        .chars()
        .take(LONGEST)
        .map(|c| if steers(c) { '?' } else { c })
        .collect();
    if text.chars().nth(LONGEST).is_some() {
        plain.push('…');
    }
    plain
}

fn address(status: &SiteStatus) -> Option<&str> {
    status
        .network
        .address
        .split('/')
        .next()
        .filter(|address| !address.is_empty())
}

fn state(status: &SiteStatus) -> String {
    if status.ready {
        return "ready".to_owned();
    }
    let open: Vec<_> = status
        .bring_up
        .iter()
        .filter(|step| !matches!(step.state, StepState::Done { .. } | StepState::Waiting))
        .map(|step| step.title.as_str())
        .collect();
    if open.is_empty() {
        "starting".to_owned()
    } else {
        format!("starting: {}", open.join(", "))
    }
}

/// How many there are in each state.
fn servers(status: &SiteStatus) -> String {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for host in &status.hosts {
        let state = host.state.as_str();
        match counts.iter_mut().find(|(known, _)| *known == state) {
            Some((_, count)) => *count += 1,
            None => counts.push((state, 1)),
        }
    }
    counts.sort_by_key(|(state, count)| (std::cmp::Reverse(*count), *state));
    let counts: Vec<_> = counts
        .into_iter()
        .map(|(state, count)| format!("{count} {state}"))
        .collect();
    format!("{} seen: {}", status.hosts.len(), counts.join(", "))
}

/// Every problem of the value with its next action: of the site, of steps, of hosts.
pub fn problems(status: &SiteStatus) -> Vec<(String, String)> {
    let site = status
        .problems
        .iter()
        .map(|problem| (problem.what.clone(), problem.next.clone()));
    let alarms = status.alarms.iter().map(|alarm| {
        let Problem { what, next } = alarm.problem.clone();
        (what, next)
    });
    let steps = status.bring_up.iter().filter_map(|step| match &step.state {
        StepState::Failed { problem, .. } => Some((
            format!("{}: {}", step.title, problem.what),
            problem.next.clone(),
        )),
        _ => None,
    });
    let hosts = status.hosts.iter().filter_map(|host| {
        host.problem.as_ref().map(|problem| {
            (
                format!("{}: {}", host.name, problem.what),
                problem.next.clone(),
            )
        })
    });
    site.chain(alarms).chain(steps).chain(hosts).collect()
}

#[cfg(test)]
mod tests {
    /// Whatever the size of the site: a screen has 25, and people stand before it.
    const MOST_LINES: usize = 20;

    use firstlight_api::status::{HostState, HostStatus, MachineStatus, NetworkStatus, Step};

    use super::*;

    fn status() -> SiteStatus {
        SiteStatus {
            site: "lab".into(),
            version: "0.1.0".into(),
            uptime: 12.0,
            network: NetworkStatus {
                interface: "enp1s0".into(),
                mac: "52:54:00:00:00:01".into(),
                address: "172.22.0.1/24".into(),
                ..NetworkStatus::default()
            },
            bring_up: vec![
                Step {
                    name: "site".into(),
                    title: "Read site.yaml".into(),
                    state: StepState::Done {
                        started: 1.0,
                        ended: 2.0,
                    },
                },
                Step {
                    name: "etcd".into(),
                    title: "etcd".into(),
                    state: StepState::Running { started: 2.0 },
                },
            ],
            ..SiteStatus::default()
        }
    }

    #[test]
    fn it_tells_address_state_and_problems() {
        let mut status = status();
        status.problems = vec![Problem {
            what: "site.yaml line 1 is wrong".into(),
            next: "mend it".into(),
        }];
        status.hosts = vec![HostStatus {
            name: "n1".into(),
            state: HostState::Running,
            ..HostStatus::default()
        }];
        assert_eq!(
            render(&status),
            "Firstlight 0.1.0 - site lab\n  page      http://172.22.0.1/  (enp1s0 52:54:00:00:00:01)\n  \
             state     starting: etcd\n  servers   1 seen: 1 running\n  PROBLEM   site.yaml line 1 is wrong\n            -> mend it\n"
        );
    }

    #[test]
    fn what_servers_say_of_themselves_steers_no_terminal_and_fills_no_screen() {
        let mut status = status();
        let host = |index: usize| HostStatus {
            name: format!("n{index}"),
            problem: Some(Problem {
                what: format!(
                    "disk \u{1b}]0;title\u{7}\r\n  PROBLEM   run this\u{9b}6n\u{202e}{}",
                    "x".repeat(1 << 20)
                ),
                next: "\u{1b}[2J".into(),
            }),
            ..HostStatus::default()
        };
        status.hosts = (0..100).map(host).collect();
        let nic = |index: usize| BoxNic {
            name: format!("eno{index}"),
            mac: "52:54:00:00:00:01".into(),
            link: index.is_multiple_of(2),
            speed: 25000,
        };
        status.machine = MachineStatus {
            product: "Dell Inc. PowerEdge R660".into(),
            serial: "7XK2".into(),
            nics: (0..40).map(nic).collect(),
            state: None,
        };
        status.network.interface = "eno2".into();
        status.network.dhcp = DhcpMode::Silent {
            server: "10.0.0.1".into(),
        };
        let banner = render(&status);
        for said in [
            "  machine   Dell Inc. PowerEdge R660, serial number 7XK2\n",
            "  eno1      52:54:00:00:00:01 no link\n",
            "  eno2      52:54:00:00:00:01 link, 25000 Mbit/s: provisioning network, where 10.0.0.1 leases addresses, too\n",
            "            36 more network cards on the page\n",
        ] {
            assert!(banner.contains(said), "{said}: {banner}");
        }
        assert!(
            banner.chars().all(|c| c == '\n' || !c.is_control()),
            "{banner:?}"
        );
        assert!(!banner.contains('\u{202e}'));
        assert!(banner.contains("PROBLEM   n0: disk ?]0;title???  PROBLEM   run this?6n?xx"));
        assert!(
            banner
                .lines()
                .all(|line| line.chars().count() <= LONGEST + 1)
        );
        assert!(banner.lines().count() <= MOST_LINES, "{banner}");
        assert!(banner.ends_with("  PROBLEM   97 more on the page\n"));
    }

    proptest::proptest! {
        #[test]
        fn whatever_a_name_holds_the_banner_keeps_its_lines(name in ".{0,300}") {
            let mut status = status();
            status.site.clone_from(&name);
            status.problems = vec![Problem { what: name.clone(), next: name }];
            let banner = render(&status);
            proptest::prop_assert_eq!(banner.lines().count(), 5);
            proptest::prop_assert!(banner.chars().all(|c| c == '\n' || !c.is_control()));
        }
    }

    #[test]
    fn time_and_percentages_do_not_change_it() {
        let (first, mut second) = (status(), status());
        second.uptime = 99.0;
        second.network.leases = 7;
        assert_eq!(render(&first), render(&second));
        second.ready = true;
        assert_ne!(render(&first), render(&second));
    }
}
