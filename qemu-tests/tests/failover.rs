//! The node that holds a cluster's address dies, and with it a third of etcd: how long nobody gets an answer of the API, for somebody who asks ten
//! times a second. Three control planes with the real keepalived, kubeadm and etcd, without virtual machines: `scripts/test-failover`.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use imagebuilder::build::nodes::Nodes;
use qemu_tests::figures;
use qemu_tests::nodes::{ApiVisitor, Cluster, isolated, longest_silence, make_parts, wait};

/// As kubeadm has etcd tell its metrics: 1 or 0.
const LEADS: &str = "python3 -c 'import urllib.request as r; print(r.urlopen(\"http://127.0.0.1:2381/metrics\").read().decode())' | sed -n 's/^etcd_server_is_leader //p'";

fn main() -> ExitCode {
    match isolated(|| make_parts(&[]), tell) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("failover: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn tell(parts: &Nodes, place: &Path) -> Result<()> {
    let mut cluster = Cluster::start_three(parts, place)?;
    // What is begun at the start of a node takes the processors for a while.
    cluster.kubectl("-n kube-system rollout status deployment/coredns --timeout=3m")?;
    let holder = cluster.holder()?;
    let leads = cluster.on_node(&holder, LEADS)?;
    eprintln!("{holder} has the address; it leads etcd: {leads}");
    let visitor = ApiVisitor::begin(&cluster, place)?;
    wait("somebody asks", Duration::from_mins(1), || {
        let answers = visitor.answers().len();
        ensure!(answers > 50, "{answers} answers");
        Ok(())
    })?;
    let cut = Instant::now();
    cluster.cut(&holder)?;
    wait("the API answers again", Duration::from_mins(2), || {
        let again = cluster.holder()?;
        ensure!(again != holder, "{holder} has the address still");
        let since = visitor
            .answers()
            .into_iter()
            .filter(|at| *at > cut + Duration::from_secs(2));
        ensure!(since.count() > 50, "it is silent");
        Ok(())
    })?;
    let silence = longest_silence(&visitor.end()).context("nobody asked")?;
    eprintln!("{:.2} s without an answer", silence.as_secs_f64());
    figures::API_BACK.record_time(silence)?;
    // Two of three members are a majority.
    cluster.kubectl("create configmap after --from-literal=kept=yes")?;
    Ok(())
}
