//! One node: its files, its namespaces, its cable, and what kubeadm is told on it.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::{PODS, REGISTRY, SERVICES, Setup, cgroups, run, wait};

const NODE: &str = include_str!("node.sh");
/// What orders find before the programs of these names.
const IN_PLACE: [(&str, &str); 2] = [
    ("kubeadm", include_str!("kubeadm.sh")),
    ("systemctl", include_str!("systemctl.sh")),
];
const NO_RESERVATIONS: &str =
    "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";
const TOKEN: &str = "abcdef.0123456789abcdef";

pub struct Node {
    pub machine: Machine,
    pub running: Running,
}

/// What is the same before and after a restart.
pub struct Machine {
    number: u8,
    folder: PathBuf,
    cgroup: String,
}

pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// What kubeadm of another node wants to know of the first one.
pub const AUTHORITY: &str = "openssl x509 -pubkey -in /etc/kubernetes/pki/ca.crt | openssl pkey -pubin -outform der | sha256sum | cut -d' ' -f1";

/// A configuration of containerd that says where images are and nothing else.
fn plain(ours: &str) -> Result<String> {
    let mut lines = ours.lines();
    let sandbox = lines.find(|line| line.trim().starts_with("sandbox = "));
    let sandbox = sandbox.context("our configuration names the sandbox's image")?;
    Ok(format!(
        "version = 4
[plugins.'io.containerd.cri.v1.images'.pinned_images]
{sandbox}
[plugins.'io.containerd.cri.v1.images'.registry]
config_path = '/etc/containerd/certs.d'
[plugins.'io.containerd.cri.v1.runtime']
restrict_oom_score_adj = true
"
    ))
}

impl Machine {
    pub fn make(place: &Path, number: u8, setup: Setup) -> Result<Self> {
        let machine = Self {
            number,
            folder: place.join(format!("node-{number}")),
            cgroup: cgroups::name(place, number),
        };
        fs::create_dir(&machine.folder)?;
        symlink(place.join("tree"), machine.folder.join("tree"))?;
        let containerd = fs::read_to_string(place.join("tree/etc/containerd/config.toml"))?;
        // There is no systemd, and perhaps no right to be spared when memory is short.
        let containerd = containerd
            .replace("SystemdCgroup = true", "SystemdCgroup = false")
            .replace(
                "  enable_criu = false",
                "  enable_criu = false\n  restrict_oom_score_adj = true",
            );
        let (containerd, reservations) = match setup {
            Setup::Ours => (containerd, None),
            Setup::Plain => (plain(&containerd)?, Some(NO_RESERVATIONS.to_owned())),
        };
        let registry = format!(
            "server = \"http://{REGISTRY}\"\n[host.\"http://{REGISTRY}\"]\n  capabilities = [\"pull\", \"resolve\"]\n"
        );
        let reservations =
            reservations.map(|text| ("etc/kubernetes/kubelet.conf.d/10-reservations.conf", text));
        let files = [
            ("etc/containerd/config.toml", containerd),
            (
                "etc/containerd/certs.d/registry.firstlight.internal/hosts.toml",
                registry,
            ),
            ("etc/hostname", machine.name()),
            ("etc/hosts", "127.0.0.1 localhost\n".to_owned()),
            ("etc/resolv.conf", "nameserver 172.22.0.1\n".to_owned()),
        ];
        for (path, text) in files.into_iter().chain(reservations) {
            let path = machine.folder.join("files").join(path);
            fs::create_dir_all(path.parent().context("a file is in a folder")?)?;
            fs::write(path, text)?;
        }
        let programs = machine.folder.join("files/usr/local/sbin");
        fs::create_dir_all(&programs)?;
        for (name, script) in IN_PLACE {
            fs::write(programs.join(name), script)?;
            fs::set_permissions(programs.join(name), Permissions::from_mode(0o755))?;
        }
        fs::write(machine.folder.join("node.sh"), NODE)?;
        Ok(machine)
    }

    pub fn name(&self) -> String {
        format!("node-{}", self.number)
    }

    pub fn address(&self) -> String {
        format!("172.22.0.{}", 10 + self.number)
    }

    pub fn start(&self) -> Result<Running> {
        cgroups::make(&self.cgroup)?;
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
        self.plug("cable", "eth0", &running)?;
        Ok(running)
    }

    /// A NIC of the node on a bridge of this machine.
    pub fn plug(&self, bridge: &str, nic: &str, running: &Running) -> Result<()> {
        let (port, pid) = (format!("{bridge}-{}", self.number), running.0.id());
        // That of before a restart would go with its namespace, some time after its processes.
        drop(run(Command::new("ip").args(["link", "delete", &port])));
        let pair = format!("link add {port} master {bridge} type veth peer name {nic} netns {pid}");
        run(Command::new("ip").args(pair.split(' ')))?;
        run(Command::new("ip").args(["link", "set", &port, "up"])).map(drop)
    }

    fn registration(&self) -> Value {
        json!({
            "name": self.name(),
            "criSocket": "unix:///run/containerd/containerd.sock",
            "kubeletExtraArgs": [
                {"name": "node-ip", "value": self.address()},
                {"name": "cgroup-root", "value": format!("/{}", self.cgroup)},
            ],
            // Of the kernel, whose modules and settings are this machine's.
            "ignorePreflightErrors": ["all"],
        })
    }

    pub fn init(&self, kubernetes: &str) -> Vec<Value> {
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
                    "kubernetesVersion": kubernetes,
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

    /// `api`: where the cluster's is.
    pub fn join(&self, api: &str, authority: &str) -> Vec<Value> {
        let found = json!({"bootstrapToken": {
            "token": TOKEN,
            "apiServerEndpoint": format!("{api}:6443"),
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
    /// Number of the process that its namespaces end with.
    pub fn first_process(&self) -> Result<String> {
        let parent = self.running.0.id();
        let children = format!("/proc/{parent}/task/{parent}/children");
        let children = fs::read_to_string(children).unwrap_or_default();
        let first = children.split_whitespace().next().with_context(|| {
            let log = fs::read_to_string(self.machine.folder.join("log"));
            let (name, log) = (self.machine.name(), log.unwrap_or_default());
            format!("{name} is off: {log}")
        });
        first.map(str::to_owned)
    }

    /// Until nothing of it is left that the next start would meet.
    pub fn stop(&mut self) -> Result<()> {
        let stat = format!("/proc/{}/stat", self.first_process()?);
        drop(self.running.0.kill());
        drop(self.running.0.wait());
        wait("a node is off", Duration::from_mins(1), || {
            // Nobody asks how it ended: it stays in the table of processes.
            let stat = fs::read_to_string(&stat).unwrap_or_default();
            let is_gone = stat.is_empty() || stat.contains(") Z ");
            is_gone.then_some(()).context("it ends")
        })?;
        cgroups::remove(&self.machine.cgroup)
    }

    /// In its namespaces, by `sh`.
    pub fn run(&self, script: &str) -> Result<String> {
        let first = self.first_process()?;
        run(Command::new("nsenter")
            .args([
                "--target", &first, "--mount", "--uts", "--ipc", "--net", "--pid", "--root",
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

    /// It may have started just now.
    pub fn answers(&self) -> Result<()> {
        let version = "crictl --runtime-endpoint unix:///run/containerd/containerd.sock version";
        wait("containerd answers", Duration::from_secs(30), || {
            self.run(version).map(drop)
        })
    }

    /// With its containerd.
    pub fn kubeadm(&self, verb: &str, wish: &[Value]) -> Result<()> {
        let wish: Vec<String> = wish.iter().map(Value::to_string).collect();
        let file = "/root/kubeadm.yaml";
        self.answers()?;
        self.run(&format!(
            "cat >{file} <<'WISH'\n{}\nWISH\nkubeadm {verb} --config {file}",
            wish.join("\n---\n")
        ))?;
        Ok(())
    }
}
