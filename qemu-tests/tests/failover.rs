//! The node that holds a cluster's address dies, and with it a third of etcd: how long nobody gets an answer of the API, for somebody who asks ten
//! times a second. Three control planes with the real keepalived, kubeadm and etcd, without virtual machines: `scripts/test-failover`.

use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use imagebuilder::build::nodes::Nodes;
use qemu_tests::figures;
use qemu_tests::nodes::{Cluster, ENDPOINT, isolated, make_parts, wait};
use qemu_tests::pods::curl;

const ASK: Duration = Duration::from_millis(100);
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
    let visitor = Visitor::begin(&cluster, place)?;
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

fn longest_silence(answers: &[Instant]) -> Option<Duration> {
    let pairs = answers.windows(2);
    pairs.map(|pair| pair[1].duration_since(pair[0])).max()
}

/// Asks for what etcd has to agree on, each time by a connection of its own, and waits for no answer before it asks again.
struct Visitor {
    stop: Arc<AtomicBool>,
    answers: Arc<Mutex<Vec<Instant>>>,
    asking: JoinHandle<()>,
}

impl Visitor {
    fn begin(cluster: &Cluster, place: &Path) -> Result<Self> {
        for (field, file) in [
            ("users[0].user.client-certificate-data", "client.crt"),
            ("users[0].user.client-key-data", "client.key"),
            ("clusters[0].cluster.certificate-authority-data", "ca.crt"),
        ] {
            cluster.shell(&format!(
                "kubectl config view --raw -o 'jsonpath={{.{field}}}' | base64 -d >\"$HOME/{file}\""
            ))?;
        }
        let path = |name: &str| place.join(name).display().to_string();
        let words = [
            "--cacert".to_owned(),
            path("ca.crt"),
            "--cert".to_owned(),
            path("client.crt"),
            "--key".to_owned(),
            path("client.key"),
            format!("https://{ENDPOINT}:6443/api/v1/namespaces/default"),
        ];
        let stop = Arc::new(AtomicBool::new(false));
        let answers: Arc<Mutex<Vec<Instant>>> = Arc::default();
        let (told, heard) = (stop.clone(), answers.clone());
        let asking = thread::spawn(move || {
            while !told.load(Ordering::Relaxed) {
                let (words, heard) = (words.clone(), heard.clone());
                thread::spawn(move || {
                    let words: Vec<&str> = words.iter().map(String::as_str).collect();
                    if curl(&words).is_ok() {
                        heard
                            .lock()
                            .unwrap_or_else(PoisonError::into_inner)
                            .push(Instant::now());
                    }
                });
                thread::sleep(ASK);
            }
        });
        Ok(Self {
            stop,
            answers,
            asking,
        })
    }

    /// When they came, in order.
    fn answers(&self) -> Vec<Instant> {
        let mut answers = self
            .answers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        answers.sort();
        answers
    }

    fn end(self) -> Vec<Instant> {
        self.stop.store(true, Ordering::Relaxed);
        let answers = self.answers();
        drop(self.asking.join());
        answers
    }
}
