//! A real cluster without virtual machines: each node is the file system that servers are installed with, in namespaces of its own on
//! this machine, with its containerd and kubelet; kubeadm makes the cluster, as on a server. What a node's kernel, firmware and
//! systemd do is not in it.
//!
//! All of it is in one network, PID and mount namespace, which ends with whoever made it ([`isolated`]): this machine keeps nothing but
//! cgroups, which the next run takes away. The namespace itself has an address on the cable, and so is the box and whoever is outside.

use std::env;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use imagebuilder::build::nodes::Nodes;
use serde_json::{Value, json};

/// Set in the namespaces that have everything; what was made for them.
const INSIDE: &str = "FIRSTLIGHT_NODES_INSIDE";
const NODE: &str = include_str!("nodes/node.sh");
const CGROUP: &str = "firstlight-node";
const REGISTRY: &str = "172.22.0.1:5000";
const TOKEN: &str = "abcdef.0123456789abcdef";
const PODS: &str = "10.244.0.0/16";
const SERVICES: &str = "10.96.0.0/12";

/// Runs `story` in namespaces of this program's own, with what is made outside of them.
pub fn isolated(
    make: impl FnOnce() -> Result<Nodes>,
    story: impl FnOnce(&Nodes) -> Result<()>,
) -> Result<()> {
    if let Ok(told) = env::var(INSIDE) {
        return story(&serde_json::from_str(&told)?);
    }
    let parts = serde_json::to_string(&make()?)?;
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
        .env(INSIDE, parts)
        .status()
        .context("starting unshare")?;
    remove_cgroups();
    ensure!(status.success(), "see above");
    Ok(())
}

/// The first node is a control plane; the others are workers.
pub struct Cluster {
    place: PathBuf,
    programs: PathBuf,
    nodes: Vec<Node>,
    _registry: Running,
}

struct Node {
    machine: Machine,
    running: Running,
}

/// What is the same before and after a restart.
struct Machine {
    number: u8,
    folder: PathBuf,
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

impl Cluster {
    /// So many nodes, all Ready; `place` is an empty folder.
    pub fn start(parts: &Nodes, place: &Path, count: u8) -> Result<Self> {
        remove_cgroups();
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
        let registry = start_registry(parts, place)?;
        let nodes = (1..=count).map(|number| {
            let machine = Machine::make(place, number)?;
            let running = machine.start()?;
            Ok(Node { machine, running })
        });
        let cluster = Self {
            place: place.to_owned(),
            programs: parts.programs.clone(),
            nodes: nodes.collect::<Result<_>>()?,
            _registry: registry,
        };
        cluster.form()?;
        Ok(cluster)
    }

    fn form(&self) -> Result<()> {
        let (first, others) = self.nodes.split_first().context("no nodes")?;
        first.kubeadm("init", &first.machine.init())?;
        let config = first.run("cat /etc/kubernetes/admin.conf")?;
        fs::write(self.place.join("kubeconfig"), config)?;
        let flannel = imagebuilder::build::settings::find_source()?
            .join("overlays/box/usr/share/firstlight/manifests/workload/flannel.yaml");
        let flannel = fs::read_to_string(&flannel)?;
        self.apply(&flannel.replace("@POD_CIDR@", PODS).replace("@IPV6@", ""))?;
        let authority = first.run(AUTHORITY)?;
        for node in others {
            let wish = node.machine.join(&first.machine, authority.trim());
            node.kubeadm("join", &wish)?;
        }
        self.kubectl("wait --for=condition=Ready nodes --all --timeout=120s")?;
        Ok(())
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
            .env("KUBECONFIG", self.place.join("kubeconfig"))
            .env("HOME", &self.place)
            .args(arguments))
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
        drop(node.running.0.kill());
        drop(node.running.0.wait());
        node.running = node.machine.start()?;
        Ok(())
    }

    /// A command on a node, by `sh`.
    pub fn on_node(&mut self, name: &str, script: &str) -> Result<String> {
        self.node(name)?.run(script)
    }

    fn node(&mut self, name: &str) -> Result<&mut Node> {
        let mut nodes = self.nodes.iter_mut();
        let node = nodes.find(|node| node.machine.name() == name);
        node.with_context(|| format!("no node {name}"))
    }
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

/// What kubeadm of another node wants to know of the first one.
const AUTHORITY: &str = "openssl x509 -pubkey -in /etc/kubernetes/pki/ca.crt | openssl pkey -pubin -outform der | sha256sum | cut -d' ' -f1";

impl Machine {
    fn make(place: &Path, number: u8) -> Result<Self> {
        let machine = Self {
            number,
            folder: place.join(format!("node-{number}")),
        };
        fs::create_dir(&machine.folder)?;
        std::os::unix::fs::symlink(place.join("tree"), machine.folder.join("tree"))?;
        let containerd = fs::read_to_string(place.join("tree/etc/containerd/config.toml"))?;
        // There is no systemd, and perhaps no right to be spared when memory is short.
        let containerd = containerd
            .replace("SystemdCgroup = true", "SystemdCgroup = false")
            .replace(
                "  enable_criu = false",
                "  enable_criu = false\n  restrict_oom_score_adj = true",
            );
        let registry = format!(
            "server = \"http://{REGISTRY}\"\n[host.\"http://{REGISTRY}\"]\n  capabilities = [\"pull\", \"resolve\"]\n"
        );
        for (path, text) in [
            ("etc/containerd/config.toml", containerd),
            (
                "etc/containerd/certs.d/registry.firstlight.internal/hosts.toml",
                registry,
            ),
            ("etc/hostname", machine.name()),
            ("etc/hosts", "127.0.0.1 localhost\n".to_owned()),
            ("etc/resolv.conf", "nameserver 172.22.0.1\n".to_owned()),
        ] {
            let path = machine.folder.join("files").join(path);
            fs::create_dir_all(path.parent().context("a file is in a folder")?)?;
            fs::write(path, text)?;
        }
        fs::write(machine.folder.join("node.sh"), NODE)?;
        Ok(machine)
    }

    fn name(&self) -> String {
        format!("node-{}", self.number)
    }

    fn address(&self) -> String {
        format!("172.22.0.{}", 10 + self.number)
    }

    fn cgroup(&self) -> String {
        format!("{CGROUP}-{}", self.number)
    }

    fn start(&self) -> Result<Running> {
        for parent in cgroup_folders()? {
            make_cgroup(&parent.join(self.cgroup()))?;
        }
        let log = File::create(self.folder.join("log"))?;
        let namespaces = [
            "--net",
            "--mount",
            "--pid",
            "--uts",
            "--ipc",
            "--fork",
            "--kill-child",
        ];
        let running = Command::new("unshare")
            .args(namespaces)
            .args(["sh", "-eu"])
            .arg(self.folder.join("node.sh"))
            .arg(&self.folder)
            .arg(self.name())
            .arg(self.address())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("starting unshare")?;
        let running = Running(running);
        let pid = running.0.id();
        let network = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/net")).ok();
        wait("a node has its network", Duration::from_secs(10), || {
            let own = network(&pid.to_string()).filter(|own| Some(own) != network("self").as_ref());
            own.context("it is still in this one")
        })?;
        let nic = format!("to-{}", self.number);
        let peer = format!("link add {nic} master cable type veth peer name eth0 netns {pid}");
        run(Command::new("ip").args(peer.split(' ')))?;
        run(Command::new("ip").args(["link", "set", &nic, "up"]))?;
        Ok(running)
    }

    fn registration(&self) -> Value {
        json!({
            "name": self.name(),
            "criSocket": "unix:///run/containerd/containerd.sock",
            "kubeletExtraArgs": [
                {"name": "node-ip", "value": self.address()},
                {"name": "cgroup-root", "value": format!("/{}", self.cgroup())},
            ],
            // Of the kernel, whose modules and settings are this machine's.
            "ignorePreflightErrors": ["all"],
        })
    }

    fn init(&self) -> Vec<Value> {
        let kubeadm = |kind: &str, more: Value| object("kubeadm.k8s.io/v1beta4", kind, more);
        vec![
            kubeadm(
                "InitConfiguration",
                json!({
                    "bootstrapTokens": [{"token": TOKEN}],
                    "localAPIEndpoint": {"advertiseAddress": self.address()},
                    "nodeRegistration": self.registration(),
                }),
            ),
            kubeadm(
                "ClusterConfiguration",
                json!({
                    "imageRepository": firstlight_api::names::kubernetes_images(),
                    "encryptionAlgorithm": "ECDSA-P256",
                    "controlPlaneEndpoint": format!("{}:6443", self.address()),
                    "networking": {"podSubnet": PODS, "serviceSubnet": SERVICES},
                }),
            ),
            object(
                "kubelet.config.k8s.io/v1beta1",
                "KubeletConfiguration",
                json!({
                    "cgroupDriver": "cgroupfs",
                    "failCgroupV1": false,
                    "failSwapOn": false,
                    "oomScoreAdj": 0,
                    "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
                }),
            ),
            object(
                "kubeproxy.config.k8s.io/v1alpha1",
                "KubeProxyConfiguration",
                json!({
                    // Of the kernel, which is not the node's own.
                    "conntrack": {"maxPerCore": 0},
                    "oomScoreAdj": 0,
                }),
            ),
        ]
    }

    fn join(&self, first: &Self, authority: &str) -> Vec<Value> {
        let found = json!({"bootstrapToken": {
            "token": TOKEN,
            "apiServerEndpoint": format!("{}:6443", first.address()),
            "caCertHashes": [format!("sha256:{authority}")],
        }});
        vec![object(
            "kubeadm.k8s.io/v1beta4",
            "JoinConfiguration",
            json!({
                "discovery": found,
                "nodeRegistration": self.registration(),
            }),
        )]
    }
}

fn object(version: &str, kind: &str, mut more: Value) -> Value {
    more["apiVersion"] = json!(version);
    more["kind"] = json!(kind);
    more
}

impl Node {
    /// In its namespaces, by `sh`.
    fn run(&self, script: &str) -> Result<String> {
        let parent = self.running.0.id();
        let children = format!("/proc/{parent}/task/{parent}/children");
        let children = fs::read_to_string(children).unwrap_or_default();
        let first = children.split_whitespace().next().with_context(|| {
            let log = fs::read_to_string(self.machine.folder.join("log"));
            format!(
                "{} is off: {}",
                self.machine.name(),
                log.unwrap_or_default()
            )
        })?;
        run(Command::new("nsenter")
            .args([
                "--target", first, "--mount", "--uts", "--ipc", "--net", "--pid", "--root",
                "--wdns=/",
            ])
            .args([
                "/usr/bin/env",
                "-i",
                "PATH=/usr/sbin:/usr/bin",
                "HOME=/root",
                "/bin/sh",
                "-euc",
                script,
            ]))
    }

    /// With its containerd, which may have started just now.
    fn kubeadm(&self, verb: &str, wish: &[Value]) -> Result<()> {
        let wish: Vec<String> = wish.iter().map(Value::to_string).collect();
        let file = "/root/kubeadm.yaml";
        let version = "crictl --runtime-endpoint unix:///run/containerd/containerd.sock version";
        wait("containerd answers", Duration::from_secs(30), || {
            self.run(version)
        })?;
        self.run(&format!(
            "cat >{file} <<'WISH'\n{}\nWISH\nkubeadm {verb} --config {file}",
            wish.join("\n---\n")
        ))?;
        Ok(())
    }
}

fn start_registry(parts: &Nodes, place: &Path) -> Result<Running> {
    let layer = place.join("registry");
    fs::create_dir(&layer)?;
    run(Command::new("mount")
        .args(["-t", "squashfs", "-o", "loop,ro"])
        .arg(&parts.registry)
        .arg(&layer))?;
    let config = json!({
        "version": 0.1,
        "log": {"level": "warn", "accesslog": {"disabled": true}},
        "storage": {
            "filesystem": {"rootdirectory": layer.join(&parts.storage)},
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

/// Roots of all hierarchies, of either version.
fn cgroup_folders() -> Result<Vec<PathBuf>> {
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    let folders = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        let (folder, kind) = (words.next()?, words.next()?);
        kind.starts_with("cgroup").then(|| PathBuf::from(folder))
    });
    Ok(folders.collect())
}

fn make_cgroup(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    let parent = folder.parent().context("a cgroup is in a hierarchy")?;
    // Of the first version: a new one has none, and takes no process.
    for file in ["cpuset.cpus", "cpuset.mems"] {
        if parent.join(file).exists() && parent.join("cgroup.clone_children").exists() {
            fs::write(folder.join(file), fs::read(parent.join(file))?)?;
        }
    }
    Ok(())
}

/// Those of an earlier run too, whose processes are gone.
fn remove_cgroups() {
    for parent in cgroup_folders().unwrap_or_default() {
        for folder in fs::read_dir(parent).into_iter().flatten().flatten() {
            if folder.file_name().to_string_lossy().starts_with(CGROUP) {
                remove_below(&folder.path());
            }
        }
    }
}

fn remove_below(folder: &Path) {
    for inner in fs::read_dir(folder).into_iter().flatten().flatten() {
        if inner.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_below(&inner.path());
        }
    }
    drop(fs::remove_dir(folder));
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
