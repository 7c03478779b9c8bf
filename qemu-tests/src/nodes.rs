//! A real cluster without virtual machines: each node is the file system that servers are installed with, in namespaces of its own on
//! this machine, with its containerd and kubelet; kubeadm makes the cluster, as on a server. What a node's kernel, firmware and
//! systemd do is not in it.
//!
//! All of it is in one network, PID and mount namespace, which ends with whoever made it ([`isolated`]): this machine keeps nothing but
//! cgroups, which the next run takes away if this one is ended. The namespace itself has an address on the cable: it is the box,
//! and whoever is outside.

mod cgroups;
mod control_planes;
mod machine;
mod packages;
mod service;
mod visitor;

use std::env;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use imagebuilder::build::cache::Reuse;
use imagebuilder::build::nodes::{Nodes, make_nodes};
use imagebuilder::build::progress::Progress;
use imagebuilder::build::settings::{Settings, find_cache, find_source};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

pub use control_planes::ENDPOINT;
use machine::{AUTHORITY, Machine, Node, Running};
pub use visitor::{ApiVisitor, longest_silence};

/// Set in the namespaces that have everything; what was made for them.
const INSIDE: &str = "FIRSTLIGHT_NODES_INSIDE";
const REGISTRY: &str = "172.22.0.1:5000";
const PODS: &str = "10.244.0.0/16";
const SERVICES: &str = "10.96.0.0/12";

/// Runs `story` in namespaces of this program's own, with what is made outside of them, and an empty folder that goes when they are gone.
pub fn isolated<Parts: Serialize + DeserializeOwned>(
    make: impl FnOnce() -> Result<Parts>,
    story: impl FnOnce(&Parts, &Path) -> Result<()>,
) -> Result<()> {
    if let Ok(told) = env::var(INSIDE) {
        let (parts, place): (Parts, PathBuf) = serde_json::from_str(&told)?;
        return story(&parts, &place);
    }
    let cache = find_cache()?;
    let place = tempfile::tempdir_in(&cache)?;
    let told = serde_json::to_string(&(make()?, place.path()))?;
    let status = Command::new("unshare")
        .args([
            "--net",
            "--mount",
            "--pid",
            "--mount-proc",
            "--fork",
            "--kill-child",
        ])
        .arg(env::current_exe()?)
        .args(env::args_os().skip(1))
        .env(INSIDE, told)
        .status()
        .context("starting unshare")?;
    drop(place);
    cgroups::remove_left(&cache);
    ensure!(status.success(), "see above");
    Ok(())
}

/// What nodes are made of, as an image of this source would have it; `kubernetes`: further minor versions.
pub fn make_parts(kubernetes: &[&str]) -> Result<Nodes> {
    let settings = Settings {
        source: find_source()?,
        cache: find_cache()?,
        output: PathBuf::new(),
        mirror: None,
        site: None,
        kubernetes: kubernetes.iter().map(|&minor| minor.to_owned()).collect(),
        sign: None,
        trust: None,
        debian: Reuse::Cached,
    };
    make_nodes(&settings, Progress::detect())
}

/// What containerd and the kubelet of nodes are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setup {
    /// What is in the node image.
    Ours,
    /// Nothing but where images are.
    Plain,
}

/// The first node is a control plane; the others are workers, or control planes as well ([`Cluster::start_three`]).
pub struct Cluster {
    place: PathBuf,
    programs: PathBuf,
    nodes: Vec<Node>,
    _registry: Running,
    _repository: Running,
}

impl Cluster {
    /// So many nodes, all Ready; `place` is an empty folder, `images`: storage of a registry that is served with that of the stick.
    pub fn start(parts: &Nodes, images: Option<&Path>, place: &Path, count: u8) -> Result<Self> {
        let cluster = Self::make(parts, images, place, count, Setup::Ours)?;
        cluster.form()?;
        Ok(cluster)
    }

    /// Two nodes.
    pub fn start_with(parts: &Nodes, place: &Path, setup: Setup) -> Result<Self> {
        let cluster = Self::make(parts, None, place, 2, setup)?;
        cluster.form()?;
        Ok(cluster)
    }

    /// So many nodes that belong to no cluster.
    fn make(
        parts: &Nodes,
        images: Option<&Path>,
        place: &Path,
        count: u8,
        setup: Setup,
    ) -> Result<Self> {
        let tree = place.join("tree");
        fs::create_dir(&tree)?;
        run(Command::new("tar")
            .arg("-xpf")
            .arg(&parts.root)
            .arg("-C")
            .arg(&tree))?;
        for command in [
            "link set lo up",
            "link add cable type bridge",
            "address add 172.22.0.1/24 dev cable",
            "link set cable up",
        ] {
            run(Command::new("ip").args(command.split(' ')))?;
        }
        let registry = start_registry(parts, images, place)?;
        let repository = packages::serve(parts, &tree, place)?;
        let nodes = (1..=count).map(|number| {
            let machine = Machine::make(place, number, setup)?;
            let running = machine.start()?;
            Ok(Node { machine, running })
        });
        Ok(Self {
            place: place.to_owned(),
            programs: parts.programs.clone(),
            nodes: nodes.collect::<Result<_>>()?,
            _registry: registry,
            _repository: repository,
        })
    }

    fn form(&self) -> Result<()> {
        let (first, others) = self.nodes.split_first().context("no nodes")?;
        first.answers()?;
        // Without a word kubeadm asks the Internet which version is the newest.
        let version = first.run("kubeadm version --output=short")?;
        first.kubeadm("init", &first.machine.init(&version))?;
        self.take_over(first)?;
        let authority = first.run(AUTHORITY)?;
        for node in others {
            let wish = node.machine.join(&first.machine.address(), &authority);
            node.kubeadm("join", &wish)?;
        }
        self.kubectl("wait --for=condition=Ready nodes --all --timeout=120s")?;
        Ok(())
    }

    /// Once kubeadm has made a cluster of the first node: the way to it, and its pod network.
    fn take_over(&self, first: &Node) -> Result<()> {
        let config = first.run("cat /etc/kubernetes/admin.conf")?;
        fs::write(self.kubeconfig(), config)?;
        let flannel = find_source()?
            .join("overlays/box/usr/share/firstlight/manifests/workload/flannel.yaml");
        let flannel = fs::read_to_string(&flannel)?;
        self.apply(&flannel.replace("@POD_CIDR@", PODS).replace("@IPV6@", ""))
    }

    pub fn kubeconfig(&self) -> PathBuf {
        self.place.join("kubeconfig")
    }

    /// Its words, without quotes.
    pub fn kubectl(&self, words: &str) -> Result<String> {
        self.command("kubectl", words.split_whitespace())
    }

    pub fn command<S: AsRef<OsStr>>(
        &self,
        program: &str,
        arguments: impl IntoIterator<Item = S>,
    ) -> Result<String> {
        run(Command::new(self.programs.join(program))
            .env("KUBECONFIG", self.kubeconfig())
            .env("HOME", &self.place)
            .args(arguments))
    }

    /// A script for `sh`, which has these programs first.
    pub fn shell(&self, script: &str) -> Result<String> {
        let path = format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", self.programs.display());
        run(Command::new("sh")
            .args(["-euc", script])
            .env("KUBECONFIG", self.kubeconfig())
            .env("HOME", &self.place)
            .env("PATH", path))
    }

    /// YAML or JSON.
    pub fn apply(&self, manifest: &str) -> Result<()> {
        let file = self.place.join("manifest");
        fs::write(&file, manifest)?;
        let words = format!("apply --server-side -f {}", file.display());
        self.kubectl(&words).map(drop)
    }

    pub fn get(&self, words: &str) -> Result<Value> {
        let text = self.kubectl(&format!("get {words} -o json"))?;
        Ok(serde_json::from_str(&text)?)
    }

    /// Runs a command in a container, by `sh`.
    pub fn exec(&self, target: &str, script: &str) -> Result<String> {
        self.command("kubectl", ["exec", target, "--", "/bin/sh", "-euc", script])
    }

    /// Everything of a node ends, as with its power, and the node starts again.
    pub fn restart(&mut self, name: &str) -> Result<()> {
        let node = self.node(name)?;
        node.stop()?;
        node.running = node.machine.start()?;
        node.answers()
    }

    /// A command on a node, by `sh`.
    pub fn on_node(&mut self, name: &str, script: &str) -> Result<String> {
        self.node(name)?.run(script)
    }

    /// Each node gets a NIC `eth1` on another cable than that of the cluster, on which this machine is, too, as `side`. Restarted nodes lose it.
    pub fn second_cable(&self) -> Result<()> {
        let ip = |words: &str| run(Command::new("ip").args(words.split(' ')));
        ip("link add side type bridge")?;
        ip("link set side up")?;
        for node in &self.nodes {
            node.machine.plug("side", "eth1", &node.running)?;
        }
        Ok(())
    }

    /// A script with this machine's programs, in the network of the pod of a node that has this address.
    pub fn beside_pod(&mut self, node: &str, address: &str, script: &str) -> Result<String> {
        let node = self.node(node)?;
        let find = format!(
            "for name in $(ls /run/netns); do ip -n \"$name\" -o address | grep -q ' {address}/' && echo \"$name\"; done; true"
        );
        let name = node.run(&find)?;
        let file = format!("/proc/{}/root/run/netns/{name}", node.first_process()?);
        run(Command::new("nsenter")
            .arg(format!("--net={file}"))
            .args(["sh", "-euc", script]))
    }

    /// An order of the box, as it comes over SSH: see [`firstlight_api::packages::Order`].
    pub fn order(&mut self, name: &str, order: &Value) -> Result<()> {
        let script = format!("firstlight-bootstrap packages <<'ORDER'\n{order}\nORDER");
        self.on_node(name, &script).map(drop)
    }

    fn node(&mut self, name: &str) -> Result<&mut Node> {
        let mut nodes = self.nodes.iter_mut();
        let node = nodes.find(|node| node.machine.name() == name);
        node.with_context(|| format!("no node {name}"))
    }
}

/// How long it took.
pub fn timed<T>(what: &str, work: impl FnOnce() -> Result<T>) -> Result<Duration> {
    let began = Instant::now();
    work().context(what.to_owned())?;
    eprintln!("  {:5.1} s  {what}", began.elapsed().as_secs_f64());
    Ok(began.elapsed())
}

/// Asks until there is an answer; what was refused last is the reason if there is none.
pub fn wait<T>(what: &str, limit: Duration, mut ask: impl FnMut() -> Result<T>) -> Result<T> {
    let began = Instant::now();
    loop {
        match ask() {
            Ok(answer) => {
                eprintln!("  {:5.1} s  {what}", began.elapsed().as_secs_f64());
                return Ok(answer);
            }
            Err(error) if began.elapsed() > limit => {
                return Err(error.context(format!("not within {} s: {what}", limit.as_secs())));
            }
            Err(_) => thread::sleep(Duration::from_millis(200)),
        }
    }
}

fn start_registry(parts: &Nodes, images: Option<&Path>, place: &Path) -> Result<Running> {
    let layer = place.join("registry");
    fs::create_dir(&layer)?;
    run(Command::new("mount")
        .args(["-t", "squashfs", "-o", "loop,ro"])
        .arg(&parts.registry)
        .arg(&layer))?;
    let mut storage = layer.join(&parts.storage);
    if let Some(images) = images {
        let both = place.join("storage");
        fs::create_dir(&both)?;
        let options = format!("lowerdir={}:{}", images.display(), storage.display());
        run(Command::new("mount")
            .args(["-t", "overlay", "-o", &options, "overlay"])
            .arg(&both))?;
        storage = both;
    }
    let config = json!({
        "version": 0.1,
        "log": {"level": "warn", "accesslog": {"disabled": true}},
        "storage": {
            "filesystem": {"rootdirectory": storage},
            "maintenance": {"uploadpurging": {"enabled": false}, "readonly": {"enabled": true}},
        },
        "http": {"addr": REGISTRY},
    });
    let file = place.join("registry.yaml");
    fs::write(&file, config.to_string())?;
    let log = File::create(place.join("registry.log"))?;
    let registry = Command::new(&parts.serve)
        .arg("serve")
        .arg(&file)
        .env("OTEL_TRACES_EXPORTER", "none")
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .context("starting the registry")?;
    Ok(Running(registry))
}

fn run(command: &mut Command) -> Result<String> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("starting {}", command.get_program().display()))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() {
        return Ok(text(&output.stdout));
    }
    let said = text(&output.stderr);
    let last: Vec<&str> = said.lines().rev().take(5).collect();
    let last: Vec<&str> = last.into_iter().rev().collect();
    bail!(
        "{}: {}: {}",
        command.get_program().display(),
        output.status,
        last.join("\n")
    )
}
