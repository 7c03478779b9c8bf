//! Ten servers at once beside a box, and none of them a machine. The box is the stick's own agent and Ironic, with Kubernetes
//! and Cluster API as processes; kubelet's part alone is played. A server ([`server`]) is a thread in a network namespace of
//! its own that runs the ramdisk's and the bootstrap program's code. The box's cable carries 1 Gb/s.
//!
//! `scripts/bench hosts` runs it; a line `figure ID VALUE` is for its table.

mod hardware;
pub mod server;

use std::{
    fs,
    ops::RangeInclusive,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
    sync::mpsc,
    time::{Duration, Instant},
};

use firstlight_agent::{paths::Paths, pki};
use serde_json::{Value, json};

use crate::{
    PATIENCE,
    objects::Objects,
    programs::{Daemon, ip, listens, run},
    site,
};
use server::{Joined, Server};

/// The folder that `firstlight unpack` has made of a stick.
pub const STICK: &str = "FIRSTLIGHT_STICK";
const SITE: &str = "name: lab\nprovisioning: {interface: fl-box}\ncluster: {}\n";
const SHARE: &str = "usr/share/firstlight";
const MANIFEST: &str = "cluster-api.yaml";

pub async fn ten_cost_little_more_than_one(stick: &Path) {
    let rack = Rack::start(stick).await;
    rack.join(1..=1);
    let running = |machine: &Value| machine["status"]["phase"] == "Running";
    let up = async || rack.objects.list("Machine").await.iter().any(running);
    rack.objects.wait_until("the control plane runs", up).await;
    eprintln!("the control plane runs");
    let one = rack.join(2..=2);
    let ten = rack.join(3..=12);
    let (alone, together) = (one.wall.as_secs_f64(), ten.wall.as_secs_f64());
    figure("one", alone);
    figure("ten", together);
    figure("ratio", together / alone);
    figure("bytes", ten.megabytes_each);
    figure("box-bytes", ten.of_them_from_the_box);
}

fn figure(name: &str, value: f64) {
    eprintln!("figure hosts-rack-{name} {value:.2}");
}

struct Rack {
    objects: Objects,
    dir: PathBuf,
    ironic: PathBuf,
    _daemons: Vec<Daemon>,
}

/// How long some servers took together, what each of them got over its cable, and how much of that over the box's.
struct Joining {
    wall: Duration,
    megabytes_each: f64,
    of_them_from_the_box: f64,
}

impl Rack {
    async fn start(stick: &Path) -> Self {
        // Temporary files, the servers' disks among them, are in memory: they would measure this machine's disk.
        let dir = std::env::temp_dir();
        mount(&["-t", "tmpfs", "-o", "size=80%", "rack"], &dir);
        let (root, logs) = (dir.join("box"), dir.join("logs"));
        fs::create_dir_all(&logs).unwrap();
        lay_out(stick, &root);
        lay_cable();
        let mut agent = Daemon::start(
            "firstlight-agent",
            &logs,
            Command::new(stick.join("usr/bin/firstlight-agent"))
                .arg("--root")
                .arg(&root),
        );
        let paths = Paths::new(&root);
        let pod = paths.run_manifests().join("ironic.yaml");
        agent.wait(async || pod.exists()).await;
        let pki = pki::load_or_make(&paths, 0).unwrap();
        let (mut daemons, objects) = site::kubernetes(&paths, &logs).await;
        let (image, ironic) = start_ironic(stick, &paths, &logs).await;
        become_available(&objects, &paths).await;
        daemons.extend(site::cluster_api(&paths, &pki, &logs).await);
        daemons.extend([agent, ironic]);
        eprintln!("the box is up");
        Self {
            objects,
            dir,
            ironic: image,
            _daemons: daemons,
        }
    }

    /// Switches these servers on together, until each of them has its bootstrap data.
    fn join(&self, numbers: RangeInclusive<u8>) -> Joining {
        let (tell, news) = mpsc::channel();
        let count = numbers.clone().count();
        let sent_before = from_box();
        for number in numbers.clone() {
            let server = Server {
                number,
                dir: self.dir.join(format!("server-{number}")),
                ironic: self.ironic.clone(),
            };
            server.switch_on(tell.clone());
        }
        drop(tell);
        let end = Instant::now() + PATIENCE;
        let joined: Vec<Joined> = (0..count)
            .map(|_| {
                let left = end.saturating_duration_since(Instant::now());
                news.recv_timeout(left).unwrap_or_else(|error| {
                    let log = fs::read_to_string(self.dir.join("logs/firstlight-agent.log"));
                    panic!(
                        "a server did not join ({error}); the agent said:\n{}",
                        log.unwrap()
                    )
                })
            })
            .collect();
        let first = joined.iter().map(|one| one.switched_on).min().unwrap();
        for one in &joined {
            let times: Vec<String> = one
                .phases
                .iter()
                .map(|(phase, at)| format!("{phase} {:.1}", (*at - first).as_secs_f64()))
                .collect();
            eprintln!("server {:2}: {} s", one.number, times.join(", "));
        }
        let last = joined.iter().map(Joined::end).max().unwrap();
        let received: u64 = numbers.map(to_server).sum();
        #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
        let megabytes = |bytes: u64| bytes as f64 / 1e6 / count as f64;
        Joining {
            wall: last - first,
            megabytes_each: megabytes(received),
            of_them_from_the_box: megabytes(from_box() - sent_before),
        }
    }
}

/// The files of a box as the agent looks for them; those of the stick stay where they are.
fn lay_out(stick: &Path, root: &Path) {
    for folder in [SHARE, "firstlight/site", "var/lib/firstlight/agent"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    fs::write(root.join("firstlight/site/site.yaml"), SITE).unwrap();
    for name in ["netboot", "images", "versions.json"] {
        let name = Path::new(SHARE).join(name);
        symlink(stick.join(&name), root.join(&name)).unwrap();
    }
    let manifests = Path::new(SHARE).join("manifests");
    run(Command::new("cp")
        .arg("-r")
        .args([stick.join(&manifests), root.join(&manifests)]));
    let path = root.join(&manifests).join(MANIFEST);
    let documents: Vec<String> = site::documents(&path)
        .into_iter()
        .map(|mut object| {
            // The agent fills its CA in.
            site::call_on_loopback(&mut object, "");
            object.to_string()
        })
        .collect();
    fs::write(path, documents.join("\n---\n")).unwrap();
}

/// The box's end `fl-box`, a switch, and 1 Gb/s in both directions.
fn lay_cable() {
    ip("link set lo up");
    // Stands for the dummy device, which the kernel of a test machine may lack; the agent takes it as it is.
    ip("link add name box0 type bridge");
    ip("link add name rack type bridge");
    ip("link add name fl-box type veth peer name rack-box");
    ip("link set rack-box master rack");
    for name in ["rack", "rack-box"] {
        ip(&format!("link set {name} up"));
    }
    for name in ["fl-box", "rack-box"] {
        let shape = format!("qdisc add dev {name} root tbf rate 1gbit burst 512kb latency 100ms");
        run(Command::new("tc").args(shape.split(' ')));
    }
}

pub fn mount(arguments: &[&str], to: &Path) {
    fs::create_dir_all(to).unwrap();
    run(Command::new("mount").args(arguments).arg(to));
}

/// Kubelet's part of Ironic's pod: its image and its volumes.
async fn start_ironic(stick: &Path, paths: &Paths, logs: &Path) -> (PathBuf, Daemon) {
    const PROGRAM: &str = "usr/share/ironic/launch.py";
    let snapshots = stick.join("usr/lib/firstlight/images");
    let found = run(Command::new("find")
        .arg(snapshots)
        .args(["-path", &format!("*/{PROGRAM}")]));
    let image = PathBuf::from(found.trim().strip_suffix(PROGRAM).unwrap());
    mount(&["--rbind", "/dev"], &image.join("dev"));
    mount(&["-t", "proc", "proc"], &image.join("proc"));
    mount(&["-t", "tmpfs", "tmp"], &image.join("tmp"));
    let bind =
        |from: PathBuf, to: &str| mount(&["--bind", from.to_str().unwrap()], &image.join(to));
    bind(paths.run_ironic(), "run/firstlight/ironic");
    bind(paths.state().join("ironic"), "var/lib/ironic");
    let mut ironic = Daemon::start(
        "ironic",
        logs,
        Command::new("chroot")
            .arg(&image)
            .args(["/usr/bin/python3", &format!("/{PROGRAM}")]),
    );
    ironic.wait(async || listens("172.22.0.1:6385").await).await;
    (image, ironic)
}

/// Kubelet's part of Cluster API's pods: they run.
async fn become_available(objects: &Objects, paths: &Paths) {
    let deployments = site::documents(&paths.manifests().join(MANIFEST));
    for mut object in deployments {
        if object["kind"] != "Deployment" {
            continue;
        }
        object["status"] = json!({"replicas": 1, "readyReplicas": 1, "availableReplicas": 1});
        objects
            .wait_until("the agent applies Cluster API", async || {
                objects.try_status(&object).await.is_ok()
            })
            .await;
    }
}

/// Bytes that the switch sent to a server.
fn to_server(number: u8) -> u64 {
    carried(&format!("s{number}"), "tx")
}

/// Bytes that the box sent to the switch.
fn from_box() -> u64 {
    carried("rack-box", "rx")
}

fn carried(port: &str, direction: &str) -> u64 {
    let text = run(Command::new("ip").args(["-s", "-j", "link", "show", "dev", port]));
    let links: Value = serde_json::from_str(&text).unwrap();
    links[0]["stats64"][direction]["bytes"].as_u64().unwrap()
}
