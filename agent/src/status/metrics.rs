//! The status value in Prometheus' text format (exposition format 0.0.4).

use std::{collections::BTreeSet, fmt::Write as _};

use firstlight_api::{
    backup::BackupStatus,
    bounded,
    health::health,
    status::{
        CertificateEnd, ClusterStatus, ControllerRound, DhcpMode, HostState, HostStatus,
        SiteStatus, StepState,
    },
};

use super::counters::{Counter, FAILURES, ODD_OBJECTS, PHASES, REFUSED};

pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Of `firstlight_problem`: strangers choose what some of them say.
const MOST_FINDINGS: usize = 100;

/// Labels in braces, and a value.
type Samples = Vec<(String, f64)>;
/// Name, help and samples of a gauge.
type Family = (&'static str, &'static str, fn(&SiteStatus) -> Samples);

const FAMILIES: [Family; 21] = [
    ("firstlight_info", "Version and site.", info),
    (
        "firstlight_uptime_seconds",
        "Since the kernel of the box started.",
        |status| one(status.uptime),
    ),
    (
        "firstlight_ready",
        "1 when every step of the bring-up is done.",
        |status| one(flag(status.ready)),
    ),
    ("firstlight_dhcp_leases", "Leases held.", |status| {
        one(count(status.network.leases))
    }),
    (
        "firstlight_dhcp_addresses",
        "Addresses that may be leased to servers without one of their own.",
        |status| one(large(status.network.addresses)),
    ),
    (
        "firstlight_refused_requests",
        "Requests beyond the limits, since the start.",
        refused,
    ),
    (
        "firstlight_dhcp_other_server",
        "1 while another DHCP server leases addresses here.",
        |status| one(flag(has_other_server(&status.network.dhcp))),
    ),
    (
        "firstlight_problems",
        "Problems that a person should look at.",
        |status| one(count(super::banner::problems(status).len())),
    ),
    (
        "firstlight_problem",
        "1 for each thing that needs a person; alarms of these metrics are not among them.",
        findings,
    ),
    (
        "firstlight_step_state",
        "0 waiting, 1 running, 2 done, 3 failed.",
        steps,
    ),
    (
        "firstlight_step_done_seconds",
        "Uptime at which a step was done.",
        ends_of_steps,
    ),
    (
        "firstlight_cluster_certificates_end_timestamp_seconds",
        "When the first certificate of a cluster ends.",
        certificates,
    ),
    (
        "firstlight_cluster_nodes_ready",
        "Nodes that are Ready.",
        |status| {
            nodes(status, |cluster| {
                [cluster.control_planes_ready, cluster.workers_ready]
            })
        },
    ),
    (
        "firstlight_cluster_nodes_wanted",
        "Nodes that are asked for.",
        |status| {
            nodes(status, |cluster| {
                [cluster.control_planes_wanted, cluster.workers_wanted]
            })
        },
    ),
    (
        "firstlight_backup_made_timestamp_seconds",
        "When the last backup was made that the box made by itself.",
        backup,
    ),
    ("firstlight_hosts", "Servers by state.", hosts),
    (
        "firstlight_host_state",
        "1 for each server, with the state that it is in.",
        host_states,
    ),
    (
        "firstlight_reconcile_started_seconds",
        "Uptime at which a controller began its last round.",
        |status| rounds(status, |round| round.started),
    ),
    (
        "firstlight_reconcile_seconds",
        "How long a controller's last round took.",
        |status| rounds(status, |round| round.took),
    ),
    (
        "firstlight_reconcile_failures",
        "Objects that could not be read and steps that failed in a controller's last round.",
        |status| rounds(status, |round| count(round.failed)),
    ),
    (
        "firstlight_alarms",
        "Rules that hold of these metrics.",
        |status| one(count(status.alarms.len())),
    ),
];

/// One line a sample; label values are escaped, because names of hosts come from outside.
pub fn render(status: &SiteStatus) -> String {
    let mut text = String::new();
    for (name, help, samples) in FAMILIES {
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge");
        for (labels, value) in samples(status) {
            let _ = writeln!(text, "{name}{labels} {value}");
        }
    }
    let mut counter = |name: &str, help: &str, label: &str, counter: &Counter| {
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} counter");
        for (value, times) in counter.all() {
            let _ = writeln!(text, "{name}{{{label}=\"{value}\"}} {times}");
        }
    };
    let refused = "What was refused from outside.";
    counter("firstlight_refused_total", refused, "why", &REFUSED);
    let odd =
        "Objects of Kubernetes that could not be read or written, each time that a loop met one.";
    counter("firstlight_odd_objects_total", odd, "loop", &ODD_OBJECTS);
    let failed = "Times that a server's step has failed.";
    counter("firstlight_host_failures_total", failed, "step", &FAILURES);
    text.push_str(&PHASES.family(
        "firstlight_host_phase_seconds",
        "How long servers were in a state that they have left.",
        "state",
    ));
    text
}

fn one(value: f64) -> Samples {
    vec![(String::new(), value)]
}

fn info(status: &SiteStatus) -> Samples {
    let (version, site) = (escape(&status.version), escape(&status.site));
    vec![(format!("{{version=\"{version}\",site=\"{site}\"}}"), 1.0)]
}

const fn has_other_server(dhcp: &DhcpMode) -> bool {
    matches!(
        dhcp,
        DhcpMode::Silent { .. } | DhcpMode::Proxy { server: Some(_) }
    )
}

fn of_step(name: &str) -> String {
    format!("{{step=\"{}\"}}", escape(name))
}

fn steps(status: &SiteStatus) -> Samples {
    let steps = status.bring_up.iter();
    steps
        .map(|step| (of_step(&step.name), step_value(&step.state)))
        .collect()
}

fn ends_of_steps(status: &SiteStatus) -> Samples {
    let steps = status.bring_up.iter();
    steps
        .filter_map(|step| match step.state {
            StepState::Done { ended, .. } => Some((of_step(&step.name), ended)),
            _ => None,
        })
        .collect()
}

fn rounds(status: &SiteStatus, value: fn(&ControllerRound) -> f64) -> Samples {
    let name = |round: &ControllerRound| format!("{{loop=\"{}\"}}", escape(&round.name));
    let rounds = status.controllers.iter();
    rounds.map(|round| (name(round), value(round))).collect()
}

fn certificates(status: &SiteStatus) -> Samples {
    let of = |end: &CertificateEnd| {
        let labels = format!("{{cluster=\"{}\"}}", escape(&end.cluster));
        // Exact until the year 285 million.
        #[expect(clippy::cast_precision_loss, reason = "a time in seconds")]
        let seconds = end.end as f64;
        (labels, seconds)
    };
    status.certificates.iter().map(of).collect()
}

/// Nothing where none is wanted; 0 before the first.
fn backup(status: &SiteStatus) -> Samples {
    #[expect(clippy::cast_precision_loss, reason = "a time in seconds")]
    let made = |backup: &BackupStatus| (String::new(), backup.made as f64);
    status.backup.iter().map(made).collect()
}

fn refused(status: &SiteStatus) -> Samples {
    let refused = status.network.refused.iter();
    refused
        .map(|(what, n)| {
            let n = count(usize::try_from(*n).unwrap_or(usize::MAX));
            (format!("{{protocol=\"{}\"}}", escape(what)), n)
        })
        .collect()
}

fn hosts(status: &SiteStatus) -> Samples {
    let of = |state: HostState| {
        let hosts = status.hosts.iter();
        let here = hosts.filter(|host| host.state == state).count();
        (format!("{{state=\"{}\"}}", state.as_str()), count(here))
    };
    HostState::ALL.into_iter().map(of).collect()
}

/// Each server in its state.
fn host_states(status: &SiteStatus) -> Samples {
    let of = |host: &HostStatus| {
        let name = escape(&host.name);
        let labels = format!("{{host=\"{name}\",state=\"{}\"}}", host.state.as_str());
        (labels, 1.0)
    };
    status.hosts.iter().map(of).collect()
}

/// What needs a person, without what alarms say: those are made of this.
fn findings(status: &SiteStatus) -> Samples {
    let found = health(status).problems.into_iter();
    let labels = found.take(MOST_FINDINGS).map(|found| {
        let what = bounded::sentence(&found.problem.what);
        let (about, what) = (escape(&found.about), escape(&what));
        format!("{{about=\"{about}\",what=\"{what}\"}}")
    });
    // Two that read alike would be one series twice.
    let labels: BTreeSet<String> = labels.collect();
    labels.into_iter().map(|labels| (labels, 1.0)).collect()
}

/// `of_role`: of control planes and of workers.
fn nodes(status: &SiteStatus, of_role: fn(&ClusterStatus) -> [u32; 2]) -> Samples {
    let of = |cluster: &ClusterStatus| {
        let name = escape(&cluster.name);
        let roles = ["control-plane", "worker"]
            .into_iter()
            .zip(of_role(cluster));
        let samples = roles.map(|(role, nodes)| {
            let labels = format!("{{cluster=\"{name}\",role=\"{role}\"}}");
            (labels, f64::from(nodes))
        });
        samples.collect::<Samples>()
    };
    status.clusters.iter().flat_map(of).collect()
}

fn step_value(state: &StepState) -> f64 {
    match state {
        StepState::Waiting => 0.0,
        StepState::Running { .. } => 1.0,
        StepState::Done { .. } => 2.0,
        StepState::Failed { .. } => 3.0,
    }
}

fn flag(value: bool) -> f64 {
    f64::from(u8::from(value))
}

#[expect(clippy::cast_precision_loss, reason = "65536 for each network")]
const fn large(value: u64) -> f64 {
    value as f64
}

fn count(value: usize) -> f64 {
    f64::from(u32::try_from(value).unwrap_or(u32::MAX))
}

fn escape(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use firstlight_api::status::{HostStatus, Step};

    use super::*;

    #[test]
    fn every_sample_is_one_line_whatever_the_names_hold() {
        let status = SiteStatus {
            site: "a\"b\nc\\".into(),
            bring_up: vec![Step {
                name: "etcd".into(),
                title: String::new(),
                state: StepState::Done {
                    started: 1.0,
                    ended: 2.5,
                },
            }],
            hosts: vec![HostStatus::default()],
            certificates: vec![firstlight_api::status::CertificateEnd {
                cluster: "lab".into(),
                end: 1_900_000_000,
            }],
            controllers: vec![ControllerRound {
                name: "addons".into(),
                took: 0.25,
                failed: 2,
                ..ControllerRound::default()
            }],
            ..SiteStatus::default()
        };
        let text = render(&status);
        assert!(text.contains("site=\"a\\\"b\\nc\\\\\"} 1\n"), "{text}");
        assert!(
            text.contains("firstlight_step_done_seconds{step=\"etcd\"} 2.5\n"),
            "{text}"
        );
        assert!(
            text.contains("firstlight_hosts{state=\"discovered\"} 1\n"),
            "{text}"
        );
        let end =
            "firstlight_cluster_certificates_end_timestamp_seconds{cluster=\"lab\"} 1900000000\n";
        assert!(text.contains(end), "{text}");
        for line in [
            "firstlight_reconcile_seconds{loop=\"addons\"} 0.25\n",
            "firstlight_reconcile_failures{loop=\"addons\"} 2\n",
        ] {
            assert!(text.contains(line), "{text}");
        }
        assert!(
            text.lines()
                .all(|line| line.starts_with('#') || line.starts_with("firstlight_")),
            "{text}"
        );
    }
}
