//! `firstlight upgrade`: a cluster goes to another version of Kubernetes. The box does it, as a `ClusterUpgrade` of its Kubernetes says
//! (docs/upgrades.md); this plans it there first, shows the plan, begins it and follows it. Whoever ends this program ends nothing.

mod change;
pub mod rotate;

use anyhow::Result;
use clap::Args;
use firstlight_api::packages::is_release;
use firstlight_api::site::HostName;
use serde_json::json;

use crate::UsageError;
use crate::ssh::BoxArgs;
use change::Change;

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

pub fn run(args: &UpgradeArgs) -> Result<String> {
    change(args)?.run(args.plan)
}

fn change(args: &UpgradeArgs) -> Result<Change<'_>> {
    // Both go into a shell on the box.
    let cluster = HostName::parse(&args.cluster).map_err(|error| UsageError(error.to_string()))?;
    let version = &args.version;
    if !is_release(version) {
        return Err(UsageError(format!("{version}: write the version like v1.37.2")).into());
    }
    Ok(Change {
        the_box: &args.the_box,
        name: format!("{cluster}-{version}"),
        spec: json!({
            "cluster": args.cluster, "version": version, "allowRemovedApis": args.allow_removed_apis,
        }),
        goal: format!("{cluster} goes to {version}"),
        end: format!("{cluster} is at {version}"),
    })
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
        assert_eq!(change(&args("lab", "v1.37.2")).unwrap().name, "lab-v1.37.2");
        for (cluster, version) in [
            ("lab; id", "v1.37.2"),
            ("lab", "1.37.2"),
            ("lab", "v1.37"),
            ("lab", "v1.37.2 --force"),
            ("lab", "v1.37.$(id)"),
        ] {
            assert!(
                change(&args(cluster, version)).is_err(),
                "{cluster} {version}"
            );
        }
    }
}
