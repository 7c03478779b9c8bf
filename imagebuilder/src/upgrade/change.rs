//! A `ClusterUpgrade` of the box, planned, begun and followed.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use firstlight_api::upgrade::{
    ClusterUpgrade, ClusterUpgradeStatus, GROUP, KIND, NodeUpgrade, NodeUpgradeState, PLURAL,
    UpgradeState, VERSION,
};
use serde_json::{Value, json};

use crate::ssh::BoxArgs;

const AGAIN: Duration = Duration::from_secs(3);

/// What is asked of the box.
pub struct Change<'a> {
    pub the_box: &'a BoxArgs,
    /// Of the object.
    pub name: String,
    /// Without `paused`.
    pub spec: Value,
    /// `lab goes to v1.37.2`
    pub goal: String,
    /// `lab is at v1.37.2`
    pub end: String,
}

impl Change<'_> {
    /// The end of it as text; on the way it tells on standard error.
    pub fn run(&self, only_plan: bool) -> Result<String> {
        let before = self.get()?;
        if !before.as_ref().is_some_and(is_begun) {
            eprintln!("the box asks the cluster, and plans");
            self.apply(true)?;
            let planned = self.planned()?;
            if only_plan || planned.state == UpgradeState::Refused {
                // One that was there may have begun: nobody deletes it by asking for its plan.
                if before.is_none() {
                    self.delete()?;
                }
            }
            if planned.state == UpgradeState::Refused {
                bail!("nothing was begun: {}", planned.message);
            }
            let text = show_plan(&self.goal, &planned.nodes)?;
            if only_plan {
                return Ok(text);
            }
            eprint!("{text}");
        } else if only_plan {
            bail!("it has begun: say the same without --plan to follow it");
        }
        self.apply(false)?;
        self.follow()
    }

    fn object(&self) -> String {
        format!("{PLURAL}.{GROUP} {} --namespace default", self.name)
    }

    fn apply(&self, paused: bool) -> Result<()> {
        let mut object = json!({
            "apiVersion": format!("{GROUP}/{VERSION}"), "kind": KIND,
            "metadata": {"name": self.name, "namespace": "default"},
            "spec": self.spec,
        });
        object["spec"]["paused"] = json!(paused);
        ask(self.the_box, "kubectl apply --filename -", Some(&object)).map(drop)
    }

    fn delete(&self) -> Result<()> {
        let command = format!("kubectl delete {} --ignore-not-found", self.object());
        ask(self.the_box, &command, None).map(drop)
    }

    fn get(&self) -> Result<Option<ClusterUpgrade>> {
        let command = format!(
            "kubectl get {} --ignore-not-found --output json",
            self.object()
        );
        let text = ask(self.the_box, &command, None)?;
        if text.trim().is_empty() {
            return Ok(None);
        }
        serde_json::from_str(&text).context("what the box says of the upgrade")
    }

    /// `None`: it is not there, or nobody has looked at what it says now.
    fn look(&self) -> Result<Option<ClusterUpgradeStatus>> {
        let upgrade = self.get()?;
        let new = upgrade.filter(|it| it.status.observed_generation == it.metadata.generation);
        Ok(new.map(|upgrade| upgrade.status))
    }

    fn planned(&self) -> Result<ClusterUpgradeStatus> {
        loop {
            use UpgradeState as S;
            let status = self.look()?;
            let planned = status.filter(|status| matches!(status.state, S::Paused | S::Refused));
            if let Some(status) = planned {
                return Ok(status);
            }
            thread::sleep(AGAIN);
        }
    }

    fn follow(&self) -> Result<String> {
        let mut told = ClusterUpgradeStatus::default();
        loop {
            if let Some(status) = self.look()? {
                tell(&told, &status);
                if status.state == UpgradeState::Done {
                    return Ok(format!("{}\n", self.end));
                }
                told = status;
            }
            thread::sleep(AGAIN);
        }
    }
}

/// Also one that cannot go on at the moment: before it could begin, it names no nodes.
fn is_begun(upgrade: &ClusterUpgrade) -> bool {
    use UpgradeState as S;
    let status = &upgrade.status;
    match status.state {
        S::Upgrading | S::Stopped | S::Done => true,
        S::Refused => !status.nodes.is_empty(),
        S::Pending | S::Paused => false,
    }
}

/// What a command on the box says.
pub fn ask(the_box: &BoxArgs, command: &str, input: Option<&Value>) -> Result<String> {
    let mut way = the_box.way();
    let mut child = way
        .arg(command)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("running ssh; install openssh-client")?;
    let mut stdin = child.stdin.take().context("ssh has no input")?;
    if let Some(value) = input {
        // Why it took nothing is in its own words.
        drop(stdin.write_all(value.to_string().as_bytes()));
    }
    drop(stdin);
    let output = child.wait_with_output().context("running ssh")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "the box says: {}", said.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

const fn role(node: &NodeUpgrade) -> &'static str {
    if node.control_plane {
        "control plane"
    } else {
        "worker"
    }
}

fn show_plan(goal: &str, nodes: &[NodeUpgrade]) -> Result<String> {
    let mut text = format!("{goal}, in this order:\n");
    for node in nodes {
        let (name, role, from) = (&node.name, role(node), &node.version);
        let there = match node.state {
            NodeUpgradeState::Ready => ", and is there",
            _ => "",
        };
        writeln!(text, "  {name:<24} {role:<13} {from}{there}")?;
    }
    Ok(text)
}

/// What has changed.
fn tell(before: &ClusterUpgradeStatus, now: &ClusterUpgradeStatus) {
    for node in &now.nodes {
        if !before.nodes.contains(node) && node.state != NodeUpgradeState::Waiting {
            eprintln!("{}: {:?} {}", node.name, node.state, node.message);
        }
    }
    let is_news = (before.state, &before.message) != (now.state, &now.message);
    if is_news && matches!(now.state, UpgradeState::Refused | UpgradeState::Stopped) {
        eprintln!("{}: {}", now.state.as_str(), now.message);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_cannot_go_on_has_begun_all_the_same() {
        let begun = |state: UpgradeState, nodes: usize| {
            is_begun(&ClusterUpgrade {
                status: ClusterUpgradeStatus {
                    state,
                    nodes: vec![NodeUpgrade::default(); nodes],
                    ..ClusterUpgradeStatus::default()
                },
                ..ClusterUpgrade::default()
            })
        };
        assert!(begun(UpgradeState::Refused, 2) && begun(UpgradeState::Stopped, 2));
        assert!(!begun(UpgradeState::Refused, 0) && !begun(UpgradeState::Paused, 2));
    }

    #[test]
    fn a_plan_says_who_goes_when() {
        let node = |name: &str, control_plane: bool, state: NodeUpgradeState| NodeUpgrade {
            name: name.to_owned(),
            control_plane,
            version: "v1.36.3".to_owned(),
            state,
            ..NodeUpgrade::default()
        };
        let nodes = [
            node("n1", true, NodeUpgradeState::Waiting),
            node("n2", false, NodeUpgradeState::Ready),
        ];
        assert_eq!(
            show_plan("lab goes to v1.37.2", &nodes).unwrap(),
            "lab goes to v1.37.2, in this order:\n  n1                       control plane v1.36.3\n  n2                       worker        v1.36.3, and is there\n"
        );
    }
}
