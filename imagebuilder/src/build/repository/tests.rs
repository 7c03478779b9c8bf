//! Both suites as a server sees them: the real packages' control files and scripts around stand-ins for programs, the real
//! dpkg-deb and apt-get, over HTTP.
#![allow(clippy::unwrap_used)]

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::symlink;
use std::process::{Child, Command, Stdio};

use firstlight_api::repository::Repository;

use super::super::cache::{Key, Output, Reuse, Steps};
use super::super::debs::{Made, build_debs, list_debs, variables};
use super::super::progress::Progress;
use super::super::settings::Settings;
use super::super::tools::Tools;
use super::*;

/// Programs that the packages are made from, and what they depend on in Debian.
const PROGRAMS: [&str; 15] = [
    "usr/bin/kube",
    "usr/bin/crictl",
    "usr/bin/containerd",
    "usr/bin/containerd-shim-runc-v2",
    "usr/bin/ctr",
    "usr/lib/cni/bridge",
    "usr/lib/cni/host-device",
    "usr/lib/cni/host-local",
    "usr/lib/cni/ipvlan",
    "usr/lib/cni/loopback",
    "usr/lib/cni/macvlan",
    "usr/lib/cni/portmap",
    "usr/lib/cni/static",
    "usr/lib/cni/tuning",
    "usr/lib/cni/vlan",
];
const DEBIAN: [&str; 8] = [
    "conntrack",
    "ethtool",
    "iproute2",
    "iptables",
    "mount",
    "runc",
    "socat",
    "util-linux",
];

fn settings(cache: &Path) -> Settings {
    Settings {
        source: Path::new("..").canonicalize().unwrap(),
        cache: cache.to_owned(),
        output: PathBuf::new(),
        mirror: None,
        site: None,
        kubernetes: Vec::new(),
        sign: None,
        trust: None,
        debian: Reuse::Cached,
    }
}

/// This machine's dpkg-deb in the place of Debian 13's.
fn tools(steps: &Steps) -> Tools {
    let key = Key::new("tools", 1);
    let made = steps.run("tools", key, Reuse::Cached, |work| {
        Ok(symlink("/", work.path("tree"))?)
    });
    Tools::new(made.unwrap())
}

fn debs(steps: &Steps, settings: &Settings, run: &str) -> Output {
    let tools = tools(steps);
    let key = Key::new("programs", 1);
    let programs = steps.run("programs", key, Reuse::Cached, |work| {
        for name in PROGRAMS {
            let path = work.path(name);
            fs::create_dir_all(path.parent().unwrap())?;
            fs::write(path, name)?;
        }
        Ok(())
    });
    let key = Key::new("debs", 1).text("run", run);
    let made = steps.run("debs", key, Reuse::Cached, |work| {
        let made = Made {
            programs: &[programs.as_ref().unwrap()],
            variables: &variables(settings)?,
            of: "",
        };
        build_debs(work, &tools, &settings.rootfs("debs"), &made)
    });
    made.unwrap()
}

/// Serves a folder until it is dropped.
struct Server {
    child: Child,
    port: String,
}

impl Server {
    fn start(folder: &Path) -> Self {
        let mut child = Command::new("python3")
            .args([
                "-u",
                "-m",
                "http.server",
                "--bind",
                "127.0.0.1",
                "--directory",
            ])
            .arg(folder)
            .arg("0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        // Serving HTTP on 127.0.0.1 port 40123 (...
        let port = line.split(' ').nth(5).unwrap().to_owned();
        Self { child, port }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A root of its own for apt, which touches nothing of this machine.
struct Node {
    root: PathBuf,
}

impl Node {
    fn new(root: PathBuf, repository: &Repository) -> Self {
        for folder in [
            "etc/apt/preferences.d",
            "state/lists/partial",
            "cache/archives/partial",
        ] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        let stanza = |name: &&str| {
            format!(
                "Package: {name}\nStatus: install ok installed\nArchitecture: amd64\nVersion: 9\nMaintainer: x\nDescription: x\n\n"
            )
        };
        let status: String = DEBIAN.iter().map(stanza).collect();
        fs::write(root.join("state/status"), status).unwrap();
        for (path, content) in repository.files() {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            // On a server the root is /.
            let signed_by = format!("Signed-By: {}/", root.display());
            fs::write(path, content.replace("Signed-By: /", &signed_by)).unwrap();
        }
        Self { root }
    }

    fn apt(&self, program: &str, arguments: &[&str]) -> Result<String, String> {
        let at = |path: &str| self.root.join(path).display().to_string();
        let output = Command::new(program)
            .env("LC_ALL", "C")
            .env_remove("http_proxy")
            .arg("-oDir::Etc=".to_owned() + &at("etc/apt"))
            .arg("-oDir::State=".to_owned() + &at("state"))
            .arg("-oDir::State::status=".to_owned() + &at("state/status"))
            .arg("-oDir::Cache=".to_owned() + &at("cache"))
            .args([
                "-oAPT::Architecture=amd64",
                "-oAPT::Sandbox::User=root",
                "-oAcquire::http::Proxy=false",
            ])
            .args(arguments)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        if output.status.success() {
            Ok(text)
        } else {
            Err(text)
        }
    }

    fn update(&self) -> Result<String, String> {
        self.apt("apt-get", &["update", "-oAPT::Update::Error-Mode=any"])
    }
}

/// Both suites below `apt`, and what a server is told of them.
fn site(apt: &Path, debs: &[PathBuf], port: &str) -> Repository {
    lay_out(&apt.join("base"), debs).unwrap();
    let key = SigningKey::make(rand::rngs::OsRng, "the box", 1_790_000_000).unwrap();
    let suite = Suite {
        name: "uploads",
        architectures: &["amd64"],
        date: "Sun, 01 Nov 2026 00:00:00 +0000",
    };
    for (path, content) in apt::files(&suite, &[], &key, 1_790_000_001).unwrap() {
        let path = apt.join("uploads").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    let key =
        |suite: &str| fs::read_to_string(apt.join(suite).join(format!("{suite}.asc"))).unwrap();
    Repository {
        host: format!("127.0.0.1:{port}"),
        base: key("base"),
        uploads: key("uploads"),
    }
}

#[test]
fn a_server_installs_kubernetes_from_the_box_and_believes_only_the_key_of_each_suite() {
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(dir.path());
    let steps = Steps::open(dir.path(), Progress::detect()).unwrap();
    let made = debs(&steps, &settings, "one");
    let debs = list_debs(made.dir()).unwrap();
    let server = Server::start(dir.path());
    let repository = site(&dir.path().join("apt"), &debs, &server.port);

    let node = Node::new(dir.path().join("node"), &repository);
    let said = node.update().unwrap();
    assert!(!said.contains("W:") && !said.contains("E:"), "{said}");
    let known = variables(&settings).unwrap();
    let version = format!("{}-{}", known["kubernetes"], known["revision"]);
    let wanted = format!("kubeadm={version}");
    let said = node
        .apt("apt-get", &["-s", "install", &wanted, "containerd"])
        .unwrap();
    for (package, version) in [
        (format!("kube-{}", known["kubernetes"]), &version),
        ("kubelet".to_owned(), &version),
        ("kubectl".to_owned(), &version),
        (
            "kubernetes-cni".to_owned(),
            &format!("{}-{}", known["cni"], known["revision"]),
        ),
        (
            "containerd".to_owned(),
            &format!("{}-{}", known["containerd"], known["revision"]),
        ),
    ] {
        assert!(
            said.contains(&format!("Inst {package} ({version} ")),
            "{package}: {said}"
        );
    }
    let unknown = node.apt("apt-get", &["-s", "install", "kubelet=1.0.0-1.1"]);
    assert!(unknown.unwrap_err().contains("was not found"));

    // Who has the key of uploads cannot speak for the base.
    let swapped = Repository {
        base: repository.uploads.clone(),
        ..repository.clone()
    };
    let other = Node::new(dir.path().join("other"), &swapped);
    let said = other.update().unwrap_err();
    assert!(
        said.contains("NO_PUBKEY") || said.contains("Missing key"),
        "{said}"
    );

    let signed = dir.path().join("apt/base/dists/base/InRelease");
    let text = fs::read_to_string(&signed).unwrap();
    fs::write(
        &signed,
        text.replace("Origin: Firstlight", "Origin: Elsewhere"),
    )
    .unwrap();
    let third = Node::new(dir.path().join("third"), &repository);
    let said = third.update().unwrap_err();
    assert!(
        said.contains("BADSIG") || said.contains("signature"),
        "{said}"
    );
}

#[test]
fn packages_have_the_same_bytes_every_time() {
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(dir.path());
    let steps = Steps::open(dir.path(), Progress::detect()).unwrap();
    let (one, two) = (
        debs(&steps, &settings, "one"),
        debs(&steps, &settings, "two"),
    );
    assert_ne!(one.dir(), two.dir());
    assert_eq!(one.digest(), two.digest());
}

/// A source whose Kubernetes is another one.
fn with_kubernetes(settings: &Settings, source: PathBuf, version: &str) -> Settings {
    for module in ["kubernetes", "cri-tools", "containers"] {
        let at = format!("rootfs/go/{module}/go.mod");
        let text = fs::read_to_string(settings.source.join(&at)).unwrap();
        let own = variables(settings).unwrap()["kubernetes"].clone();
        let changed = text.replace(
            &format!("k8s.io/kubernetes v{own}"),
            &format!("k8s.io/kubernetes v{version}"),
        );
        fs::create_dir_all(source.join(&at).parent().unwrap()).unwrap();
        fs::write(source.join(at), changed).unwrap();
    }
    symlink(settings.rootfs("debs"), source.join("rootfs/debs")).unwrap();
    Settings {
        source,
        ..settings.clone()
    }
}

/// Kubernetes is upgraded with kubeadm first: kubelet must stay what it is until its turn, although both are one program.
#[test]
fn another_version_of_kubeadm_leaves_kubelet_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(dir.path());
    let steps = Steps::open(dir.path(), Progress::detect()).unwrap();
    let newer = with_kubernetes(&settings, dir.path().join("newer"), "1.99.0");
    let (old, new) = (
        debs(&steps, &settings, "one"),
        debs(&steps, &newer, "newer"),
    );
    let mut all = list_debs(old.dir()).unwrap();
    let installed: String = all.iter().map(|deb| stanza(deb)).collect();
    let is_new = |deb: &PathBuf| deb.to_string_lossy().contains("1.99.0");
    all.extend(list_debs(new.dir()).unwrap().into_iter().filter(is_new));
    let server = Server::start(dir.path());
    let repository = site(&dir.path().join("apt"), &all, &server.port);
    let node = Node::new(dir.path().join("node"), &repository);
    let status = node.root.join("state/status");
    let before = fs::read_to_string(&status).unwrap();
    fs::write(&status, before + &installed).unwrap();
    node.update().unwrap();
    let version = format!("1.99.0-{}", variables(&newer).unwrap()["revision"]);
    let kubeadm = format!("kubeadm={version}");
    let said = node.apt("apt-get", &["-s", "install", &kubeadm]).unwrap();
    let mut changed: Vec<&str> = said
        .lines()
        .filter_map(|line| {
            line.strip_prefix("Inst ")
                .or_else(|| line.strip_prefix("Remv "))
        })
        .filter_map(|line| line.split(' ').next())
        .collect();
    changed.sort_unstable();
    assert_eq!(changed, ["kube-1.99.0", "kubeadm"], "{said}");
}

/// How dpkg's status speaks of an installed package.
fn stanza(deb: &Path) -> String {
    let control = read_control(File::open(deb).unwrap()).unwrap();
    let fields = control.fields().fold(String::new(), |text, (name, value)| {
        text + name + ": " + value + "\n"
    });
    fields + "Status: install ok installed\n\n"
}
