//! `firstlight kubeconfig`: the administrator's access to a cluster, fetched from the box over SSH. The box keeps it in the
//! Secret `CLUSTER-kubeconfig`, which whoever may log in as `admin` may read; there is no other door.

use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use clap::Args;
use firstlight_api::site::HostName;

use crate::UsageError;
use crate::ssh::BoxArgs;

#[derive(Debug, Args)]
pub struct KubeconfigArgs {
    /// Name of the cluster; without it, the only one that the box has
    cluster: Option<String>,
    #[command(flatten)]
    the_box: BoxArgs,
}

/// The kubeconfig as text.
pub fn fetch(args: &KubeconfigArgs) -> Result<String> {
    let cluster = match &args.cluster {
        Some(name) => name.clone(),
        None => only(
            &args.ask("kubectl get clusters.cluster.x-k8s.io --namespace default --output name")?,
        )?,
    };
    let secret = secret_command(&cluster)?;
    let text = args.ask(&secret)?;
    ensure!(
        text.contains("kind: Config"),
        "the box's answer is no kubeconfig; is {cluster} still coming up? `ssh {} kubectl get clusters,machines` tells",
        args.the_box.host
    );
    Ok(text)
}

/// A name goes into a shell on the box: only what can be a cluster's is let through.
fn secret_command(cluster: &str) -> Result<String> {
    let cluster = HostName::parse(cluster).map_err(|error| UsageError(error.to_string()))?;
    Ok(format!(
        "kubectl get secret {cluster}-kubeconfig --namespace default --output 'go-template={{{{.data.value | base64decode}}}}'"
    ))
}

/// Out of `kubectl get --output name`.
fn only(names: &str) -> Result<String> {
    let names: Vec<&str> = names
        .lines()
        .filter_map(|line| line.trim().rsplit('/').next())
        .filter(|name| !name.is_empty())
        .collect();
    match names[..] {
        [name] => Ok(name.to_owned()),
        [] => Err(UsageError("the box has no cluster (`cluster:` in site.yaml)".to_owned()).into()),
        _ => Err(UsageError(format!(
            "the box has several clusters; name one of {}",
            names.join(", ")
        ))
        .into()),
    }
}

impl KubeconfigArgs {
    fn ask(&self, command: &str) -> Result<String> {
        // What SSH has to say goes to the person as it is.
        let mut way = self.the_box.way();
        let output = way
            .arg(command)
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .context("running ssh; install openssh-client")?;
        ensure!(
            output.status.success(),
            "`{command}` on {} failed, see above; `sshKeys` in site.yaml says who may log in",
            self.the_box.host
        );
        String::from_utf8(output.stdout).context("the box's answer is not text")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_only_cluster_is_found_and_several_are_named() {
        assert_eq!(only("cluster.cluster.x-k8s.io/lab\n").unwrap(), "lab");
        assert!(only("\n").unwrap_err().to_string().contains("no cluster"));
        let several = only("cluster.cluster.x-k8s.io/a\ncluster.cluster.x-k8s.io/b\n");
        assert!(
            several
                .unwrap_err()
                .to_string()
                .contains("name one of a, b")
        );
    }

    #[test]
    fn a_name_cannot_carry_a_command() {
        assert!(secret_command("lab; reboot").is_err());
        assert_eq!(
            secret_command("lab").unwrap(),
            "kubectl get secret lab-kubeconfig --namespace default --output 'go-template={{.data.value | base64decode}}'"
        );
    }
}
