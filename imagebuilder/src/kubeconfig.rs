//! `firstlight kubeconfig`: the administrator's access to a cluster, fetched from the box over SSH. The box keeps it in the
//! Secret `CLUSTER-kubeconfig`, which whoever may log in as `admin` may read; there is no other door. People get one that asks the box for a
//! token when it is used ([`token`]). Who came to the box by its uplink gets the uplink's address in it.

pub mod token;

use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use clap::Args;
use firstlight_api::{site::HostName, status::SiteStatus};

use crate::UsageError;
use crate::ssh::BoxArgs;

#[derive(Debug, Args)]
pub struct KubeconfigArgs {
    /// Name of the cluster; without it, the only one that the box has
    cluster: Option<String>,
    /// With a certificate of its own that lasts a year and needs neither this program nor the box, for other machines
    #[arg(long)]
    permanent: bool,
    /// Print a token for half a day instead, as kubectl wants it of a credential plugin
    #[arg(long, hide = true, conflicts_with = "permanent")]
    token: bool,
    #[command(flatten)]
    the_box: BoxArgs,
}

/// The kubeconfig as text.
pub fn fetch(args: &KubeconfigArgs) -> Result<String> {
    let cluster = match &args.cluster {
        Some(name) => name.clone(),
        None => only(
            &args
                .the_box
                .ask("kubectl get clusters.cluster.x-k8s.io --namespace default --output name")?,
        )?,
    };
    // A name goes into a shell on the box: only what can be a cluster's is let through.
    let name = HostName::parse(&cluster).map_err(|error| UsageError(error.to_string()))?;
    if args.token {
        return token::credential(&args.the_box.ask(&token::command(&name))?);
    }
    let text = args.the_box.ask(&secret_command(&name))?;
    ensure!(
        text.contains("kind: Config"),
        "the box's answer is no kubeconfig; is {cluster} still coming up? `ssh {} kubectl get clusters,machines` tells",
        args.the_box.host
    );
    let text = by_uplink(&text, &cluster, &args.seen()?).unwrap_or(text);
    if args.permanent {
        return Ok(text);
    }
    let words = ["kubeconfig", &cluster, "--token"].map(str::to_owned);
    token::with_plugin(&text, &[&words[..], &args.the_box.words()?].concat())
}

/// By which address of the box the login came, and what its page says; the box has no program for HTTP but its shell.
const SEEN: &str = r#"bash -c 'echo "$SSH_CONNECTION"; exec 3<>/dev/tcp/127.0.0.1/80; printf "GET /api/v1/status HTTP/1.0\r\nHost: box\r\n\r\n" >&3; cat <&3'"#;

/// The kubeconfig for who comes by the uplink: the box passes on to the API, whose certificate names its own address. `None`: as it is.
fn by_uplink(text: &str, cluster: &str, seen: &str) -> Option<String> {
    let (head, page) = seen.split_once("\r\n\r\n")?;
    let came_to = head.lines().next()?.split_whitespace().nth(2)?;
    let status: SiteStatus = serde_json::from_str(page).ok()?;
    let uplink = status.network.uplink?;
    let port = uplink.clusters.get(cluster)?;
    let address = uplink.address?;
    let address = address.split('/').next().filter(|it| *it == came_to)?;
    let line = text
        .lines()
        .find(|line| line.contains("server: https://"))?;
    let (before, server) = line.split_once("server: https://")?;
    let (name, _) = server.rsplit_once(':')?;
    let new = format!("{before}server: https://{address}:{port}\n{before}tls-server-name: {name}");
    Some(text.replacen(line, &new, 1))
}

fn secret_command(cluster: &HostName) -> String {
    format!(
        "kubectl get secret {cluster}-kubeconfig --namespace default --output 'go-template={{{{.data.value | base64decode}}}}'"
    )
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
    /// Empty where an older box, or another system, has nothing to say.
    fn seen(&self) -> Result<String> {
        let mut way = self.the_box.way();
        let output = way
            .arg(SEEN)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .output();
        let output = output.context("running ssh; install openssh-client")?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use firstlight_api::status::UplinkStatus;

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
    fn who_comes_by_the_uplink_gets_its_address() {
        let text = "apiVersion: v1\nclusters:\n- cluster:\n    certificate-authority-data: QQ==\n    server: https://172.22.0.254:6443\n  name: lab\n";
        let mut status = SiteStatus::default();
        status.network.uplink = Some(UplinkStatus {
            interface: Some("enp2s0".to_owned()),
            address: Some("192.0.2.10/24".to_owned()),
            clusters: [("lab".to_owned(), 6444)].into(),
        });
        let seen = |to: &str| {
            let page = serde_json::to_string(&status).unwrap();
            format!(
                "198.51.100.7 55555 {to} 22\nHTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n{page}"
            )
        };
        let there = by_uplink(text, "lab", &seen("192.0.2.10")).unwrap();
        assert_eq!(
            there,
            text.replace(
                "    server: https://172.22.0.254:6443\n",
                "    server: https://192.0.2.10:6444\n    tls-server-name: 172.22.0.254\n"
            )
        );
        for (cluster, seen) in [
            ("lab", seen("172.22.0.1")),
            ("other", seen("192.0.2.10")),
            ("lab", String::new()),
            ("lab", "\nHTTP/1.0 404\r\n\r\nnothing".to_owned()),
        ] {
            assert_eq!(by_uplink(text, cluster, &seen), None, "{cluster} {seen}");
        }
    }

    #[test]
    fn a_name_cannot_carry_a_command() {
        assert!(HostName::parse("lab; reboot").is_err());
        assert_eq!(
            secret_command(&HostName::parse("lab").unwrap()),
            "kubectl get secret lab-kubeconfig --namespace default --output 'go-template={{.data.value | base64decode}}'"
        );
    }
}
