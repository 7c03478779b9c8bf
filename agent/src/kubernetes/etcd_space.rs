//! Room in etcd's database. At its quota etcd raises an alarm and takes no more writes until somebody lowers it: that is done
//! here, once what nobody needs any more has been given back and the rest fits again.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use firstlight_api::status::Problem;
use kube::Client;
use serde::Deserialize;
use tokio::process::Command;

use super::{LOOK_AGAIN, probe};
use crate::{child, paths::Paths, status::StatusSender};

/// After room could not be made: while it tries, etcd answers nobody.
const AGAIN: Duration = Duration::from_mins(1);
/// For one order; to defragment half a gigabyte takes a slow stick a while.
const TIME: Duration = Duration::from_mins(5);
/// What etcd's health says while the alarm is raised.
const ALARM: &str = "NOSPACE";

/// Upstream's tool, and how it reaches etcd.
#[derive(Clone, Debug)]
pub struct Etcdctl {
    pub program: PathBuf,
    /// As etcdctl reads it, e.g. `ETCDCTL_ENDPOINTS`.
    pub environment: Vec<(&'static str, OsString)>,
}

/// How large the database is, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    pub used: u64,
    pub quota: u64,
    revision: u64,
}

/// What came of making room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relief {
    Disarmed(Space),
    /// The objects themselves fill it.
    Full(Space),
}

/// Of `endpoint status`, what matters here; zeros are left out.
#[derive(Deserialize)]
struct Endpoint {
    #[serde(rename = "Status")]
    status: EndpointStatus,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct EndpointStatus {
    header: Header,
    #[serde(default)]
    db_size: u64,
    #[serde(default)]
    db_size_quota: u64,
}

#[derive(Deserialize)]
struct Header {
    #[serde(default)]
    revision: u64,
}

/// Looks for ever.
pub async fn keep(etcd: &Client, paths: &Paths, status: &StatusSender) {
    let etcdctl = Etcdctl::of_the_box(paths);
    let mut told = Vec::new();
    loop {
        let health = probe::healthy(etcd, "/health").await;
        let problems = match health {
            Err(error) if format!("{error:#}").contains(ALARM) => {
                Vec::from_iter(problem(etcdctl.relieve().await))
            }
            _ => Vec::new(),
        };
        if problems != told {
            status.problems("etcd-space", problems.clone());
            told = problems;
        }
        let pause = if told.is_empty() { LOOK_AGAIN } else { AGAIN };
        tokio::time::sleep(pause).await;
    }
}

fn problem(relief: Result<Relief>) -> Option<Problem> {
    let (why, next) = match relief {
        Ok(Relief::Disarmed(space)) => {
            tracing::warn!(bytes = space.used, "etcd was full and takes writes again");
            return None;
        }
        Ok(Relief::Full(Space { used, quota, .. })) => (
            format!("its objects take {} of {} MiB", used >> 20, quota >> 20),
            "delete what is not needed, large Secrets and ConfigMaps first (`kubectl get secrets,configmaps -A`); the box goes on by itself",
        ),
        Err(error) => (
            format!("no room could be made: {error:#}"),
            "the box tries again; if it stays, log in as admin and read `journalctl -u etcd`",
        ),
    };
    Some(Problem {
        what: format!("etcd is full, so the box's Kubernetes takes no writes: {why}"),
        next: next.to_owned(),
    })
}

impl Etcdctl {
    fn of_the_box(paths: &Paths) -> Self {
        let file = |name: &str| paths.kube_pki().join(name).into_os_string();
        Self {
            program: "/usr/bin/etcdctl".into(),
            environment: vec![
                ("ETCDCTL_ENDPOINTS", probe::ETCD.into()),
                ("ETCDCTL_CACERT", file("etcd-ca.crt")),
                ("ETCDCTL_CERT", file("apiserver-etcd-client.crt")),
                ("ETCDCTL_KEY", file("apiserver-etcd-client.key")),
            ],
        }
    }

    /// Gives back what is not the newest state of an object, and lowers the alarm if that leaves some room. Without room the
    /// next write would raise it again; deleting works in any case.
    pub async fn relieve(&self) -> Result<Relief> {
        let before = self.space().await?;
        let revision = before.revision.to_string();
        match self.run(&["compact", "--physical", &revision]).await {
            // The API server was faster.
            Err(error) if error.to_string().contains("has been compacted") => {}
            compacted => drop(compacted?),
        }
        self.run(&["defrag"]).await?;
        let after = self.space().await?;
        if after.used > after.quota / 10 * 9 {
            return Ok(Relief::Full(after));
        }
        self.run(&["alarm", "disarm"]).await?;
        Ok(Relief::Disarmed(after))
    }

    pub async fn space(&self) -> Result<Space> {
        let text = self
            .run(&["endpoint", "status", "--write-out=json"])
            .await?;
        let read: Vec<Endpoint> = serde_json::from_slice(&text).context("reading etcd's status")?;
        let [endpoint] = &read[..] else {
            bail!("etcd's status is of {} members", read.len());
        };
        Ok(Space {
            used: endpoint.status.db_size,
            quota: endpoint.status.db_size_quota,
            revision: endpoint.status.header.revision,
        })
    }

    async fn run(&self, arguments: &[&str]) -> Result<Vec<u8>> {
        let mut command = Command::new(&self.program);
        command
            .args(arguments)
            .arg(format!("--command-timeout={}s", TIME.as_secs()))
            .env_clear()
            .envs(self.environment.iter().cloned());
        let output = child::output(&mut command, b"", TIME * 2)
            .await
            .with_context(|| format!("running etcdctl {}", arguments[0]))?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success(),
            "etcdctl {}: {}",
            arguments[0],
            said.lines().last().unwrap_or_default()
        );
        Ok(output.stdout)
    }
}
