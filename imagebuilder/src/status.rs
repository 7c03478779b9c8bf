//! `firstlight status` and `firstlight wait`: how a site is, for people and for scripts.

use std::fmt::Write as _;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use firstlight_api::health::{Finding, Health, Work, box_health, health};
use firstlight_api::status::SiteStatus;
use serde_json::json;

use crate::box_client::BoxClient;
use crate::ssh::BoxArgs;

const AGAIN: Duration = Duration::from_secs(3);

pub const WAITING: &str = "Ends with 0 as soon as it is so, with 1 after --timeout, saying what is missing; a box that does not answer yet is asked again. `ready` is:
every step of the box is done, no server is on its way, every node of each cluster is Ready, so are addons and software, and nothing needs a person; alarms of metrics speak of what comes, and are not waited for.

  firstlight wait --for box                              the box is up
  firstlight wait --for ready --nodes 2 --timeout 40m    two blank servers have become a cluster";

#[derive(Debug, Args)]
pub struct StatusArgs {
    #[command(flatten)]
    the_box: BoxArgs,
    /// For people, or all that the box says of itself
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    Text,
    Json,
    Yaml,
}

#[derive(Debug, Args)]
#[command(after_help = WAITING)]
pub struct WaitArgs {
    /// What is waited for
    #[arg(long = "for", value_name = "WHAT")]
    what: Aim,
    /// And so many nodes, in all clusters together, are Ready
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    nodes: u32,
    /// Give up after this time: 90s, 20m, 2h
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = duration)]
    timeout: Duration,
    #[command(flatten)]
    the_box: BoxArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Aim {
    /// The box itself
    Box,
    /// The whole site
    Ready,
}

fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text}: write a time like 90s, 20m or 2h");
    let at = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
    let (number, unit) = text.split_at(at);
    let number: u32 = number.parse().map_err(|_| wrong())?;
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return Err(wrong()),
    };
    Ok(Duration::from_secs(u64::from(number) * seconds))
}

pub fn show(args: &StatusArgs) -> Result<String> {
    let site = BoxClient::new(&args.the_box)?.status()?;
    let health = health(&site);
    if args.output == Output::Text {
        return Ok(text(&site, &health));
    }
    let all = json!({"health": health, "status": site});
    Ok(match args.output {
        Output::Yaml => serde_saphyr::to_string(&all)?,
        Output::Text | Output::Json => format!("{all:#}\n"),
    })
}

pub fn wait(args: &WaitArgs) -> Result<String> {
    let began = Instant::now();
    let mut told = String::new();
    let mut the_box = BoxClient::new(&args.the_box)?;
    loop {
        let missing = match the_box.status() {
            Ok(site) => match missing(&site, args.what, args.nodes) {
                Some(missing) => missing,
                None => return Ok(String::new()),
            },
            Err(error) => format!("the box does not answer: {error:#}\n"),
        };
        if missing != told {
            eprint!("{missing}");
            told = missing;
        }
        if began.elapsed() + AGAIN > args.timeout {
            bail!("it is not so after {} s", began.elapsed().as_secs());
        }
        thread::sleep(AGAIN);
    }
}

/// `None`: it is so.
fn missing(site: &SiteStatus, aim: Aim, nodes: u32) -> Option<String> {
    let all = health(site);
    let own = match aim {
        Aim::Box => box_health(site),
        Aim::Ready => all.clone(),
    };
    let enough = all.nodes_ready >= nodes;
    if own.is_well() && site.ready && enough {
        return None;
    }
    let mut text = lines(own.problems.iter(), &own.work);
    if !enough {
        let _ = writeln!(text, "{} of {nodes} nodes are Ready", all.nodes_ready);
    }
    if text.is_empty() {
        text.push_str("the box comes up\n");
    }
    Some(text)
}

pub fn text(site: &SiteStatus, health: &Health) -> String {
    let found = || health.problems.iter().chain(&health.alarms);
    let word = if found().next().is_some() {
        "needs somebody"
    } else if health.work.is_empty() && site.ready {
        "is well"
    } else {
        "is at work"
    };
    let mut text = format!(
        "{} {word}: {} servers, {} clusters, {} nodes Ready (Firstlight {})\n",
        site.site,
        site.hosts.len(),
        site.clusters.len(),
        health.nodes_ready,
        site.version
    );
    text.push_str(&lines(found(), &health.work));
    if let Some(seal) = &site.seal {
        let _ = writeln!(text, "  {}", seal.sentence());
    }
    if let Some(backup) = &site.backup {
        let _ = writeln!(text, "  {}", backup.sentence());
    }
    text
}

fn lines<'a>(findings: impl Iterator<Item = &'a Finding>, work: &[Work]) -> String {
    let mut text = String::new();
    for finding in findings {
        let problem = &finding.problem;
        let _ = writeln!(
            text,
            "! {}: {}; {}",
            finding.about, problem.what, problem.next
        );
    }
    for work in work {
        let _ = writeln!(text, "  {}: {}", work.about, work.what);
    }
    // What servers say of themselves reaches a terminal.
    let shown = |c: char| if c.is_control() && c != '\n' { ' ' } else { c };
    text.chars().map(shown).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use firstlight_api::seal::SealStatus;
    use firstlight_api::status::{ClusterStatus, Problem, Step, StepState};

    use super::*;

    fn site() -> SiteStatus {
        SiteStatus {
            site: "lab".to_owned(),
            ready: true,
            bring_up: vec![Step {
                name: "ironic".to_owned(),
                title: "Ironic".to_owned(),
                state: StepState::Done {
                    started: 0.0,
                    ended: 1.0,
                },
            }],
            clusters: vec![ClusterStatus {
                name: "lab".to_owned(),
                phase: "Provisioned".to_owned(),
                control_planes_ready: 1,
                control_planes_wanted: 1,
                workers_wanted: 1,
                message: "a worker is on its way".to_owned(),
                ..ClusterStatus::default()
            }],
            ..SiteStatus::default()
        }
    }

    #[test]
    fn what_is_missing_is_said_until_it_is_there() {
        let mut site = site();
        assert_eq!(missing(&site, Aim::Box, 0), None);
        let few = missing(&site, Aim::Box, 2).unwrap();
        assert_eq!(few, "1 of 2 nodes are Ready\n");
        let why = missing(&site, Aim::Ready, 0).unwrap();
        assert_eq!(why, "  cluster lab: a worker is on its way\n");
        site.clusters[0].workers_ready = 1;
        site.clusters[0].message.clear();
        assert_eq!(missing(&site, Aim::Ready, 2), None);
        site.ready = false;
        assert_eq!(missing(&site, Aim::Box, 0).unwrap(), "the box comes up\n");
    }

    #[test]
    fn a_site_that_needs_somebody_says_so_first() {
        let mut site = site();
        assert!(text(&site, &health(&site)).starts_with("lab is at work: 0 servers"));
        site.seal = Some(SealStatus {
            reason: "this machine has no TPM".to_owned(),
            ..SealStatus::default()
        });
        assert!(text(&site, &health(&site)).contains(
            "this machine has no TPM. Whoever has the stick can read it (rootOfTrust: none)."
        ));
        site.problems = vec![Problem {
            what: "site.yaml\u{1b}[2J is wrong".to_owned(),
            next: "correct it".to_owned(),
        }];
        let shown = text(&site, &health(&site));
        assert!(shown.starts_with("lab needs somebody"), "{shown}");
        assert!(
            shown.contains("! site: site.yaml [2J is wrong; correct it\n"),
            "{shown}"
        );
    }

    #[test]
    fn a_time_has_a_unit() {
        assert_eq!(duration("20m").unwrap(), Duration::from_mins(20));
        assert_eq!(duration("90s").unwrap(), Duration::from_secs(90));
        for wrong in ["", "20", "m", "1d", "-1s", "99999999999h"] {
            let refused = duration(wrong).unwrap_err();
            assert!(refused.contains("like 90s"), "{wrong}");
        }
    }
}
