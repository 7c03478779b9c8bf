//! Software on servers with the real sshd, apt and dpkg, by the controller on a real API server. `scripts/node-root` makes the
//! servers' file system; one `apt` repository, signed by the box's key, is served over HTTP.

pub mod gate;
mod server;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use firstlight_agent::{
    paths::Paths,
    pki,
    software::{self, OverSsh},
    sources::Sources,
    ssh::Keys,
    status,
    store::apt::{Deb, Repository},
};
use firstlight_api::site::parse_site;
use firstlight_artifacts::hex;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

use crate::{
    objects::Objects,
    programs::{Daemon, ip},
    root::{Running, Tree, with_root},
    site,
};
use server::Server;

/// A failed package is left alone for minutes; everything else comes sooner.
const TIME: Duration = Duration::from_mins(4);
/// Servers here are processes: whoever says nothing for so long has lost its power.
const SILENCE: Duration = Duration::from_secs(20);
const POSTINST: &str = "#!/bin/sh\nset -e\n";

/// Plays `story` where the programs of the box and a file system of servers are there.
pub fn on_real_servers(name: &str, story: impl AsyncFnOnce(&Tree)) {
    with_root(
        name,
        |_| {},
        |tree| {
            drop(rustls::crypto::ring::default_provider().install_default());
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(story(tree));
        },
    );
}

struct Site {
    objects: Objects,
    hands: OverSsh,
    servers: Vec<Server>,
    controller: AbortHandle,
    _dir: tempfile::TempDir,
    _web: Running,
    _daemons: Vec<Daemon>,
}

impl Site {
    async fn start(tree: &Tree, count: u8, debs: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        ip("addr add 172.22.0.1/32 dev lo");
        ip("addr add 100.64.0.1/32 dev lo");
        let web = serve(dir.path(), debs);
        let paths = Paths::new(dir.path().join("box"));
        pki::load_or_make(&paths, site::NOW).unwrap();
        let logs = dir.path().join("logs");
        fs::create_dir_all(&logs).unwrap();
        let (daemons, objects) = site::kubernetes(&paths, &logs).await;
        for crd in ["crd-software.yaml", "crd-baremetalhost.yaml"] {
            let path = Path::new("../overlays/box/usr/share/firstlight/manifests").join(crd);
            for object in site::documents(&path) {
                objects.apply(&object).await;
            }
        }
        let base = tree.unpack("base");
        server::prepare(&base);
        let keys = Keys::new(dir.path().join("keys"), server::PORT).with_silence(SILENCE);
        let mut servers = Vec::new();
        for number in 1..=count {
            servers.push(Server::install(&base, &keys, number).await);
        }
        let apt = dir.path().join("www/apt");
        let hands = OverSsh {
            keys: keys.clone(),
            sources: Sources {
                address: "172.22.0.1".parse().unwrap(),
                base: apt.join("base/uploads.asc"),
                uploads: apt.join("uploads/uploads.asc"),
            },
        };
        let controller = control(hands.clone(), &objects);
        let site = Self {
            objects,
            hands,
            servers,
            controller,
            _dir: dir,
            _web: web,
            _daemons: daemons,
        };
        for server in &site.servers {
            site.objects.apply(&server.object()).await;
            site.objects.status(&server.status()).await;
        }
        site
    }

    async fn wants(&self, name: &str, spec: Value) {
        let mut spec = spec;
        spec["selector"] = spec
            .get("selector")
            .cloned()
            .unwrap_or(json!({"matchLabels": {"rack": "7"}}));
        self.objects
            .apply(&json!({
                "apiVersion": "firstlight.internal/v1alpha1", "kind": "Software",
                "metadata": {"name": name, "namespace": "default"}, "spec": spec,
            }))
            .await;
    }

    async fn tool(&self, version: &str, most: Value) {
        self.wants(
            "tools",
            json!({"packages": [{"name": "tool", "version": version}], "maxUnavailable": most}),
        )
        .await;
    }

    /// Waits until its status says so, and returns that.
    async fn is(&self, name: &str, state: &str, part: &str) -> Value {
        let since = Instant::now();
        loop {
            let object = self.objects.get("Software", name).await;
            let status = &object["status"];
            if status["observedGeneration"] == object["metadata"]["generation"]
                && status["state"] == state
                && status["message"]
                    .as_str()
                    .unwrap_or_default()
                    .contains(part)
            {
                eprintln!(
                    "{:6.1} s: {name} is {state} {part}",
                    since.elapsed().as_secs_f64()
                );
                return status.clone();
            }
            assert!(
                since.elapsed() < TIME,
                "{name} is not {state} with `{part}`: {status:#}"
            );
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    fn all_have(&self, version: &str) {
        for server in &self.servers {
            assert_eq!(
                server.has("tool"),
                format!("{version} installed"),
                "{}",
                server.name
            );
        }
    }
}

fn control(hands: OverSsh, objects: &Objects) -> AbortHandle {
    let site = Arc::new(parse_site("name: lab\n").unwrap());
    let (sender, _, owner) = status::channel("test");
    tokio::spawn(status::own(owner, CancellationToken::new()));
    let client = objects.client.clone();
    let none = tokio::sync::watch::Sender::new(None).subscribe();
    let run = software::reconcile(hands, client, site, none, sender);
    tokio::spawn(run).abort_handle()
}

/// The repository of these packages (version and what its postinst does) as the box serves it.
fn serve(dir: &Path, debs: &[(&str, &str)]) -> Running {
    let repository = Repository {
        dir: dir.join("www/apt/uploads"),
        key: dir.join("key.asc"),
    };
    let debs: Vec<Deb> = debs
        .iter()
        .map(|(version, script)| deb(dir, version, script))
        .collect();
    // A signature from before its key is none, and the key is made at the time that it is.
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs();
    repository.rebuild(&debs, now.try_into().unwrap()).unwrap();
    // The stick's, with the same packages in it.
    let base = dir.join("www/apt/base");
    let copied = Command::new("cp")
        .arg("-r")
        .args([&repository.dir, &base])
        .status();
    assert!(copied.unwrap().success());
    fs::rename(base.join("dists/uploads"), base.join("dists/base")).unwrap();
    let www = dir.join("www");
    let web = Command::new("busybox")
        .args(["httpd", "-f", "-p", "172.22.0.1:80", "-h"])
        .arg(www)
        .stdin(Stdio::null())
        .spawn();
    Running(web.expect("busybox is there"))
}

fn deb(dir: &Path, version: &str, script: &str) -> Deb {
    let tree = dir.join(format!("tree-{version}"));
    fs::create_dir_all(tree.join("DEBIAN")).unwrap();
    fs::create_dir_all(tree.join("usr/share/tool")).unwrap();
    fs::write(tree.join("usr/share/tool/version"), version).unwrap();
    let control = format!(
        "Package: tool\nVersion: {version}\nArchitecture: amd64\nMaintainer: nobody <nobody@example.org>\nDescription: tool\n tool\n"
    );
    fs::write(tree.join("DEBIAN/control"), control).unwrap();
    let postinst = tree.join("DEBIAN/postinst");
    fs::write(&postinst, format!("{POSTINST}{script}\n")).unwrap();
    fs::set_permissions(
        &postinst,
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .unwrap();
    let path: PathBuf = dir.join(format!("tool-{version}.deb"));
    let built = Command::new("dpkg-deb")
        .args(["--build", "--root-owner-group", "-Zgzip"])
        .args([&tree, &path])
        .output()
        .unwrap();
    assert!(built.status.success(), "{built:?}");
    let content = fs::read(&path).unwrap();
    Deb {
        size: content.len() as u64,
        sha256: hex(&Sha256::digest(&content)),
        path,
    }
}

pub async fn software_comes_to_servers_as_it_is_wanted(tree: &Tree) {
    let mut site = Site::start(
        tree,
        3,
        &[
            ("1.0-1", ""),
            ("1.0-2", ""),
            ("2.0", "echo no space in the attic; exit 1"),
            ("3.0", "[ ! -e /slow ] || sleep 600"),
            ("4.0", "/usr/share/update-notifier/notify-reboot-required"),
        ],
    )
    .await;
    exact_versions_come_and_a_second_time_nothing_is_written(&mut site).await;
    a_broken_package_stops_the_rest(&site).await;
    a_version_that_does_not_exist_names_those_that_do(&site).await;
    another_host_key_stops_the_work_on_that_server(&mut site).await;
    a_server_that_loses_its_power_in_the_middle_is_finished_when_it_is_back(&mut site).await;
    a_restart_is_made_where_it_is_needed(&site).await;
    packages_go_again(&site).await;
}

async fn exact_versions_come_and_a_second_time_nothing_is_written(site: &mut Site) {
    site.tool("1.0-1", json!("100%")).await;
    let status = site.is("tools", "Ready", "").await;
    site.all_have("1.0-1");
    let package = &status["nodes"][0]["packages"][0];
    for (key, value) in [
        ("name", "tool"),
        ("wanted", "1.0-1"),
        ("have", "1.0-1"),
        ("state", "Ready"),
        ("reason", ""),
    ] {
        assert_eq!(package[key], value, "{status:#}");
    }
    assert_eq!(status["ready"], "3/3");

    site.tool("1.0-2", json!(1)).await;
    site.is("tools", "Ready", "").await;
    site.all_have("1.0-2");
    let before: Vec<_> = site.servers.iter().map(Server::written).collect();
    // The same wish once more, by another object, and by an agent that was started again.
    site.wants(
        "again",
        json!({"packages": [{"name": "tool", "version": "1.0-2"}]}),
    )
    .await;
    site.is("again", "Ready", "").await;
    site.controller.abort();
    site.controller = control(site.hands.clone(), &site.objects);
    site.objects
        .patch_status("Software", "again", json!({"status": null}))
        .await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    site.is("again", "Ready", "").await;
    let after: Vec<_> = site.servers.iter().map(Server::written).collect();
    assert_eq!(
        before, after,
        "nothing was to be done, and something was written"
    );
    site.objects.delete("Software", "again").await;
    site.objects
        .wait_for("Software", "again", "gone", Value::is_null)
        .await;
}

async fn a_broken_package_stops_the_rest(site: &Site) {
    site.tool("2.0", json!(1)).await;
    let status = site
        .is("tools", "Stopped", "it said: no space in the attic")
        .await;
    assert!(
        status["message"]
            .as_str()
            .unwrap()
            .starts_with("1 of 3 servers failed"),
        "{status:#}"
    );
    let touched = site
        .servers
        .iter()
        .filter(|server| server.has("tool") != "1.0-2 installed")
        .count();
    assert_eq!(touched, 1, "{status:#}");
    site.tool("1.0-1", json!(1)).await;
    site.is("tools", "Ready", "").await;
    site.all_have("1.0-1");
}

async fn a_version_that_does_not_exist_names_those_that_do(site: &Site) {
    site.tool("9", json!(1)).await;
    site.is(
        "tools",
        "Stopped",
        "there is no version 9; there are 4.0, 3.0, 2.0, 1.0-2, 1.0-1",
    )
    .await;
    site.all_have("1.0-1");
}

async fn another_host_key_stops_the_work_on_that_server(site: &mut Site) {
    let key = "etc/ssh/ssh_host_ed25519_key";
    let server = &mut site.servers[0];
    let own = server.root.read(key);
    server.cut();
    let other = format!("rm /{key}; ssh-keygen -q -t ed25519 -N '' -f /{key}");
    server.root.run(&["sh", "-c", &other]);
    server.start();
    site.tool("1.0-2", json!(1)).await;
    let status = site.is("tools", "Failed", "shows the SSH host key").await;
    let servers = |status: &Value| -> Vec<(String, String)> {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let nodes = status["nodes"].as_array().unwrap().iter();
        nodes
            .map(|node| (text(&node["state"]), text(&node["reason"])))
            .collect()
    };
    assert_eq!(
        servers(&status)[0],
        ("Failed".into(), "HostKeyMismatch".into())
    );
    let done = site.is("tools", "Failed", "n01: ").await;
    let since = Instant::now();
    let mut found = servers(&done);
    while found[1..].iter().any(|(state, _)| state != "Ready") {
        assert!(since.elapsed() < TIME, "the others go on: {found:?}");
        tokio::time::sleep(Duration::from_millis(200)).await;
        found = servers(&site.objects.get("Software", "tools").await["status"]);
    }
    assert_eq!(site.servers[0].has("tool"), "1.0-1 installed");
    let server = &mut site.servers[0];
    server.cut();
    server.root.write(key, 0o600, own);
    server.start();
    site.is("tools", "Ready", "").await;
    site.all_have("1.0-2");
}

async fn a_server_that_loses_its_power_in_the_middle_is_finished_when_it_is_back(site: &mut Site) {
    site.servers[1].root.write("slow", 0o644, "");
    site.tool("3.0", json!(2)).await;
    let since = Instant::now();
    while site.servers[1].has("tool") != "3.0 half-configured" {
        assert!(since.elapsed() < TIME, "the slow package is on its way");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    site.servers[1].cut();
    let status = site.is("tools", "Failed", "n02: ").await;
    assert_eq!(status["nodes"][1]["reason"], "Lost", "{status:#}");
    assert_eq!(site.servers[1].has("tool"), "3.0 half-configured");
    let since = Instant::now();
    while site.servers[2].has("tool") != "3.0 installed" {
        assert!(since.elapsed() < TIME, "the others go on");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    fs::remove_file(site.servers[1].root.path("slow")).unwrap();
    site.servers[1].start();
    site.is("tools", "Ready", "").await;
    site.all_have("3.0");
}

async fn a_restart_is_made_where_it_is_needed(site: &Site) {
    let spec = |reboot: &str| json!({"packages": [{"name": "tool", "version": "4.0"}], "maxUnavailable": "100%", "reboot": reboot});
    site.wants("tools", spec("never")).await;
    let status = site.is("tools", "Ready", "").await;
    assert_eq!(status["nodes"][0]["reason"], "RestartNeeded", "{status:#}");
    let first = site.servers[0].root.read("boot_id");
    site.wants("tools", spec("ifNeeded")).await;
    let status = site.is("tools", "Ready", "").await;
    assert_eq!(status["nodes"][0]["reason"], "", "{status:#}");
    for server in &site.servers {
        let boot_id = server.root.read("boot_id");
        assert!(
            boot_id != first && !boot_id.starts_with('2'),
            "restarted once: {boot_id}"
        );
    }
}

async fn packages_go_again(site: &Site) {
    let spec = json!({"packages": [{"name": "tool"}], "state": "absent", "maxUnavailable": 3});
    site.wants("tools", spec).await;
    let status = site.is("tools", "Ready", "").await;
    let package = &status["nodes"][2]["packages"][0];
    assert_eq!(
        (&package["wanted"], &package["have"]),
        (&json!("none"), &json!("none"))
    );
    for server in &site.servers {
        assert!(
            !server.has("tool").ends_with(" installed"),
            "{}",
            server.has("tool")
        );
    }
    site.objects.delete("Software", "tools").await;
    site.objects
        .wait_for("Software", "tools", "gone", Value::is_null)
        .await;
}

/// `scripts/bench payload` reads the figures. The servers share this machine's processors, which is what the first version measures.
/// Whether the box itself does one after the other the second one tells: each server's package takes some seconds that cost no
/// processor, as on a server of its own.
pub async fn software_comes_to_fifty_servers(tree: &Tree) {
    let site = Site::start(tree, 50, &[("1.0-1", ""), ("1.0-2", "sleep 20")]).await;
    for (most, selector) in [
        (
            3,
            json!({"matchExpressions": [{"key": "few", "operator": "Exists"}]}),
        ),
        (
            50,
            json!({"matchExpressions": [{"key": "rack", "operator": "Exists"}]}),
        ),
    ] {
        for server in site.servers.iter().take(3) {
            let mut object = server.object();
            object["metadata"]["labels"]["few"] = json!("");
            site.objects.apply(&object).await;
        }
        for version in ["1.0-1", "1.0-2"] {
            let since = Instant::now();
            let packages = json!([{"name": "tool", "version": version}]);
            site.wants(
                "tools",
                json!({"packages": packages, "maxUnavailable": most, "selector": selector}),
            )
            .await;
            let status = site.is("tools", "Ready", "").await;
            assert_eq!(status["ready"], format!("{most}/{most}"));
            let kind = if version == "1.0-2" { "-own" } else { "" };
            eprintln!(
                "figure payload-software-{most}{kind} {:.1}",
                since.elapsed().as_secs_f64()
            );
        }
    }
}
