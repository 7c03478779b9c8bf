//! `firstlight rotate ca`: a cluster gets other certificate authorities. The box does it, as a `ClusterUpgrade` of its Kubernetes says
//! (docs/authorities.md). Whoever ends this program ends nothing.

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use firstlight_api::site::HostName;
use firstlight_api::upgrade::{ClusterUpgrade, GROUP, PLURAL, UpgradeState};
use serde::Deserialize;
use serde_json::json;
use time::OffsetDateTime;

use super::change::{Change, ask};
use crate::UsageError;
use crate::ssh::BoxArgs;

const ROTATING: &str = "Those of Kubernetes, of etcd and of the front proxy. Nobody's certificate ends meanwhile: first all nodes believe both, and pods that do not are
made anew as `kubectl rollout restart` does; then control planes and kubelets get certificates of the new ones; at last the old ones are forgotten.

  firstlight rotate ca lab --plan     which nodes, in which order, or why not; nothing changes
  firstlight rotate ca lab            begin, and follow it to its end

Afterwards kubeconfigs of before are refused: `firstlight kubeconfig` gets a new one. The API of a cluster with one control plane is away for about a
minute, three times. Ending this command does not end it: say it again to follow.";

#[derive(Debug, Args)]
pub struct RotateArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// The certificate authorities of a cluster
    #[command(after_help = ROTATING)]
    Ca(CaArgs),
}

#[derive(Debug, Args)]
struct CaArgs {
    /// Name of the cluster
    cluster: String,
    /// Say what would be done, and do nothing
    #[arg(long)]
    plan: bool,
    #[command(flatten)]
    the_box: BoxArgs,
}

pub fn run(args: &RotateArgs) -> Result<String> {
    let What::Ca(args) = &args.what;
    // It goes into a shell on the box.
    let cluster = HostName::parse(&args.cluster).map_err(|error| UsageError(error.to_string()))?;
    let list = format!("kubectl get {PLURAL}.{GROUP} --namespace default --output json");
    let begun = begun(&ask(&args.the_box, &list, None)?, &args.cluster)?;
    let today = OffsetDateTime::now_utc().date();
    let change = Change {
        the_box: &args.the_box,
        name: begun.unwrap_or_else(|| format!("{cluster}-authorities-{today}")),
        spec: json!({"cluster": args.cluster, "rotateAuthorities": true}),
        goal: format!("{cluster} gets other certificate authorities"),
        end: format!("{cluster} has other certificate authorities"),
    };
    change.run(args.plan)
}

/// One of this cluster that has not come to its end is followed.
fn begun(list: &str, cluster: &str) -> Result<Option<String>> {
    #[derive(Deserialize)]
    struct List {
        items: Vec<ClusterUpgrade>,
    }
    let list: List = serde_json::from_str(list).context("what the box says of its upgrades")?;
    let mut open = list.items.into_iter().filter(|upgrade| {
        let (spec, status) = (&upgrade.spec, &upgrade.status);
        spec.rotate_authorities && spec.cluster == cluster && status.state != UpgradeState::Done
    });
    // Its name is Kubernetes' own, so a shell takes it for nothing else.
    Ok(open.next().map(|upgrade| upgrade.metadata.name))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_has_begun_is_followed() {
        let item = |name: &str, cluster: &str, rotates: bool, state: &str| {
            json!({
                "metadata": {"name": name}, "status": {"state": state},
                "spec": {"cluster": cluster, "rotateAuthorities": rotates},
            })
        };
        let list = json!({"items": [
            item("a", "lab", true, "Done"),
            item("b", "edge", true, "Upgrading"),
            item("c", "lab", false, "Upgrading"),
            item("d", "lab", true, "Stopped"),
        ]})
        .to_string();
        assert_eq!(begun(&list, "lab").unwrap().unwrap(), "d");
        assert_eq!(begun(&list, "edge").unwrap().unwrap(), "b");
        assert_eq!(begun(&list, "other").unwrap(), None);
        assert!(begun("kubectl: gone", "lab").is_err());
    }
}
