//! The status value in Prometheus' text format (exposition format 0.0.4).

use std::fmt::Write as _;

use firstlight_api::{
    backup::BackupStatus,
    status::{CertificateEnd, ControllerRound, DhcpMode, HostState, SiteStatus, StepState},
};

use super::counters::{Counter, ODD_OBJECTS, REFUSED};

pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Of the last round of each controller: name, help and value of a family.
type Round = (&'static str, &'static str, fn(&ControllerRound) -> f64);
const ROUNDS: [Round; 3] = [
    (
        "firstlight_reconcile_started_seconds",
        "Uptime at which a controller began its last round.",
        |round| round.started,
    ),
    (
        "firstlight_reconcile_seconds",
        "How long a controller's last round took.",
        |round| round.took,
    ),
    (
        "firstlight_reconcile_failures",
        "Objects that could not be read and steps that failed in a controller's last round.",
        |round| count(round.failed),
    ),
];

/// One line a sample; label values are escaped, because names of hosts come from outside.
pub fn render(status: &SiteStatus) -> String {
    let mut text = String::new();
    let mut family = |name: &str, help: &str, samples: &[(String, f64)]| {
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge");
        for (labels, value) in samples {
            let _ = writeln!(text, "{name}{labels} {value}");
        }
    };
    let build = format!(
        "{{version=\"{}\",site=\"{}\"}}",
        escape(&status.version),
        escape(&status.site)
    );
    family("firstlight_info", "Version and site.", &[(build, 1.0)]);
    family(
        "firstlight_uptime_seconds",
        "Since the kernel of the box started.",
        &[(String::new(), status.uptime)],
    );
    family(
        "firstlight_ready",
        "1 when every step of the bring-up is done.",
        &[(String::new(), flag(status.ready))],
    );
    family(
        "firstlight_dhcp_leases",
        "Leases held.",
        &[(String::new(), count(status.network.leases))],
    );
    family(
        "firstlight_refused_requests",
        "Requests beyond the limits, since the start.",
        &refused(status),
    );
    let other = matches!(
        status.network.dhcp,
        DhcpMode::Silent { .. } | DhcpMode::Proxy { server: Some(_) }
    );
    family(
        "firstlight_dhcp_other_server",
        "1 while another DHCP server leases addresses here.",
        &[(String::new(), flag(other))],
    );
    family(
        "firstlight_problems",
        "Problems that a person should look at.",
        &[(String::new(), count(super::banner::problems(status).len()))],
    );
    let label = |name: &str| format!("{{step=\"{}\"}}", escape(name));
    let steps: Vec<_> = status
        .bring_up
        .iter()
        .map(|step| (label(&step.name), step_value(&step.state)))
        .collect();
    family(
        "firstlight_step_state",
        "0 waiting, 1 running, 2 done, 3 failed.",
        &steps,
    );
    let ends: Vec<_> = status
        .bring_up
        .iter()
        .filter_map(|step| match step.state {
            StepState::Done { ended, .. } => Some((label(&step.name), ended)),
            _ => None,
        })
        .collect();
    family(
        "firstlight_step_done_seconds",
        "Uptime at which a step was done.",
        &ends,
    );
    family(
        "firstlight_cluster_certificates_end_timestamp_seconds",
        "When the first certificate of a cluster ends.",
        &certificates(status),
    );
    family(
        "firstlight_backup_made_timestamp_seconds",
        "When the last backup was made that the box made by itself.",
        &backup(status),
    );
    family("firstlight_hosts", "Servers by state.", &hosts(status));
    for (name, help, value) in ROUNDS {
        family(name, help, &rounds(status, value));
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
    text
}

fn rounds(status: &SiteStatus, value: fn(&ControllerRound) -> f64) -> Vec<(String, f64)> {
    let name = |round: &ControllerRound| format!("{{loop=\"{}\"}}", escape(&round.name));
    let rounds = status.controllers.iter();
    rounds.map(|round| (name(round), value(round))).collect()
}

fn certificates(status: &SiteStatus) -> Vec<(String, f64)> {
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
fn backup(status: &SiteStatus) -> Vec<(String, f64)> {
    #[expect(clippy::cast_precision_loss, reason = "a time in seconds")]
    let made = |backup: &BackupStatus| (String::new(), backup.made as f64);
    status.backup.iter().map(made).collect()
}

fn refused(status: &SiteStatus) -> Vec<(String, f64)> {
    let refused = status.network.refused.iter();
    refused
        .map(|(what, n)| {
            let n = count(usize::try_from(*n).unwrap_or(usize::MAX));
            (format!("{{protocol=\"{}\"}}", escape(what)), n)
        })
        .collect()
}

fn hosts(status: &SiteStatus) -> Vec<(String, f64)> {
    let all = [
        HostState::Discovered,
        HostState::Registering,
        HostState::Inspecting,
        HostState::Available,
        HostState::Staged,
        HostState::Provisioning,
        HostState::Provisioned,
        HostState::Running,
        HostState::Deprovisioning,
        HostState::Deleting,
        HostState::External,
        HostState::Detached,
        HostState::Failed,
    ];
    let of = |state| {
        status
            .hosts
            .iter()
            .filter(|host| host.state == state)
            .count()
    };
    all.iter()
        .map(|state| {
            (
                format!("{{state=\"{}\"}}", state_name(*state)),
                count(of(*state)),
            )
        })
        .collect()
}

/// The name of a state in the API.
pub fn state_name(state: HostState) -> &'static str {
    match state {
        HostState::Discovered => "discovered",
        HostState::Registering => "registering",
        HostState::Inspecting => "inspecting",
        HostState::Available => "available",
        HostState::Staged => "staged",
        HostState::Provisioning => "provisioning",
        HostState::Provisioned => "provisioned",
        HostState::Running => "running",
        HostState::Deprovisioning => "deprovisioning",
        HostState::Deleting => "deleting",
        HostState::External => "external",
        HostState::Detached => "detached",
        HostState::Failed => "failed",
    }
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

    #[test]
    fn states_have_the_names_of_the_api() {
        for state in [
            HostState::Discovered,
            HostState::Provisioned,
            HostState::Failed,
            HostState::Running,
            HostState::Staged,
            HostState::Deprovisioning,
            HostState::Deleting,
            HostState::External,
            HostState::Detached,
        ] {
            assert_eq!(
                serde_json::to_value(state).ok(),
                Some(state_name(state).into())
            );
        }
    }
}
