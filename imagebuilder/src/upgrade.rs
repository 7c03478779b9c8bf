//! `firstlight upgrade`: a cluster goes to another version of Kubernetes. The box does it, as a `ClusterUpgrade` of its Kubernetes says
//! (docs/upgrades.md); this plans it there first, shows the plan, begins it and follows it. Whoever ends this program ends nothing.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use firstlight_api::packages::is_release;
use firstlight_api::site::HostName;
use firstlight_api::upgrade::{
    ClusterUpgrade, ClusterUpgradeStatus, GROUP, KIND, NodeUpgrade, NodeUpgradeState, PLURAL,
    UpgradeState, VERSION,
};
use serde_json::{Value, json};

use crate::UsageError;
use crate::ssh::BoxArgs;

const AGAIN: Duration = Duration::from_secs(3);

pub const UPGRADING: &str = "The box must have that version: `firstlight build --kubernetes 1.N` makes a stick that brings it, with `--for-push FOLDER` a folder for
`firstlight push FOLDER`. One minor version after the other;
there is no way back to an older one.

  firstlight upgrade lab v1.37.2 --plan     which nodes, in which order, or why not; nothing changes
  firstlight upgrade lab v1.37.2            plan, begin, and follow it to its end

Control planes go first, then workers, one node at a time: kubeadm changes its programs while its pods run on, then they are moved away and its
kubelet starts as the new version. Disks, volumes and etcd stay. A node that fails stops it. Ending this command does not: say it again to follow, and
`kubectl patch clusterupgrade NAME --type merge -p '{\"spec\":{\"paused\":true}}'` on the box to stop before the next node.";

#[derive(Debug, Args)]
#[command(after_help = UPGRADING)]
pub struct UpgradeArgs {
    /// Name of the cluster
    cluster: String,
    /// Version of Kubernetes, like v1.37.2
    version: String,
    /// Say what would be done, and do nothing
    #[arg(long)]
    plan: bool,
    /// Also where somebody asks the cluster for APIs that the version no longer serves
    #[arg(long)]
    allow_removed_apis: bool,
    #[command(flatten)]
    the_box: BoxArgs,
}

/// The end of it as text; on the way it tells on standard error.
pub fn run(args: &UpgradeArgs) -> Result<String> {
    let upgrade = Upgrade::new(args)?;
    let before = upgrade.look()?;
    let is_begun = before.is_some_and(|status| {
        use UpgradeState as S;
        matches!(status.state, S::Upgrading | S::Stopped | S::Done)
    });
    if !is_begun {
        eprintln!("the box asks the cluster, and plans");
        upgrade.apply(true)?;
        let planned = upgrade.planned()?;
        if planned.state == UpgradeState::Refused {
            upgrade.delete()?;
            bail!("nothing was begun: {}", planned.message);
        }
        let text = show_plan(&args.cluster, &args.version, &planned.nodes)?;
        if args.plan {
            upgrade.delete()?;
            return Ok(text);
        }
        eprint!("{text}");
    } else if args.plan {
        bail!("it has begun: say the same without --plan to follow it");
    }
    upgrade.apply(false)?;
    upgrade.follow()
}

struct Upgrade<'a> {
    args: &'a UpgradeArgs,
    name: String,
}

impl<'a> Upgrade<'a> {
    fn new(args: &'a UpgradeArgs) -> Result<Self> {
        // Both go into a shell on the box.
        let cluster =
            HostName::parse(&args.cluster).map_err(|error| UsageError(error.to_string()))?;
        if !is_release(&args.version) {
            let said = &args.version;
            return Err(UsageError(format!("{said}: write the version like v1.37.2")).into());
        }
        let name = format!("{cluster}-{}", args.version);
        Ok(Self { args, name })
    }

    fn ssh(&self, command: &str, input: Option<&Value>) -> Result<String> {
        let mut way = self.args.the_box.way();
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

    fn object(&self) -> String {
        format!("{PLURAL}.{GROUP} {} --namespace default", self.name)
    }

    fn apply(&self, paused: bool) -> Result<()> {
        let object = json!({
            "apiVersion": format!("{GROUP}/{VERSION}"), "kind": KIND,
            "metadata": {"name": self.name, "namespace": "default"},
            "spec": {
                "cluster": self.args.cluster, "version": self.args.version, "paused": paused,
                "allowRemovedApis": self.args.allow_removed_apis,
            },
        });
        self.ssh("kubectl apply --filename -", Some(&object))
            .map(drop)
    }

    fn delete(&self) -> Result<()> {
        let command = format!("kubectl delete {} --ignore-not-found", self.object());
        self.ssh(&command, None).map(drop)
    }

    /// `None`: it is not there, or nobody has looked at what it says now.
    fn look(&self) -> Result<Option<ClusterUpgradeStatus>> {
        let command = format!(
            "kubectl get {} --ignore-not-found --output json",
            self.object()
        );
        let text = self.ssh(&command, None)?;
        if text.trim().is_empty() {
            return Ok(None);
        }
        let upgrade: ClusterUpgrade =
            serde_json::from_str(&text).context("what the box says of the upgrade")?;
        let is_new = upgrade.status.observed_generation == upgrade.metadata.generation;
        Ok(is_new.then_some(upgrade.status))
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
                    return Ok(format!(
                        "{} is at {}\n",
                        self.args.cluster, self.args.version
                    ));
                }
                told = status;
            }
            thread::sleep(AGAIN);
        }
    }
}

const fn role(node: &NodeUpgrade) -> &'static str {
    if node.control_plane {
        "control plane"
    } else {
        "worker"
    }
}

fn show_plan(cluster: &str, version: &str, nodes: &[NodeUpgrade]) -> Result<String> {
    let mut text = format!("{cluster} goes to {version}, in this order:\n");
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

    fn args(cluster: &str, version: &str) -> UpgradeArgs {
        UpgradeArgs {
            cluster: cluster.to_owned(),
            version: version.to_owned(),
            plan: true,
            allow_removed_apis: false,
            the_box: BoxArgs::at("admin@box"),
        }
    }

    #[test]
    fn only_a_name_and_a_version_get_into_a_shell() {
        assert_eq!(
            Upgrade::new(&args("lab", "v1.37.2")).unwrap().name,
            "lab-v1.37.2"
        );
        for (cluster, version) in [
            ("lab; id", "v1.37.2"),
            ("lab", "1.37.2"),
            ("lab", "v1.37"),
            ("lab", "v1.37.2 --force"),
            ("lab", "v1.37.$(id)"),
        ] {
            assert!(
                Upgrade::new(&args(cluster, version)).is_err(),
                "{cluster} {version}"
            );
        }
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
            show_plan("lab", "v1.37.2", &nodes).unwrap(),
            "lab goes to v1.37.2, in this order:\n  n1                       control plane v1.36.3\n  n2                       worker        v1.36.3, and is there\n"
        );
    }
}
