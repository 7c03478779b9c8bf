//! The box that the servers are plugged into: the agent's program, Ironic with the box's launcher and configuration, etcd and
//! API server. Played are kubelet, which starts Ironic here, and the stick, whose files are small ones here.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use firstlight_agent::paths::Paths;

use crate::{
    objects::Objects,
    programs::{Daemon, ip, listens, run},
    site,
};

/// The folder of Ironic and its libraries, as scripts/ironic-programs makes it.
const IRONIC: &str = "FIRSTLIGHT_IRONIC";
/// Another agent than the one that was built with the tests, optimized for example.
const AGENT: &str = "FIRSTLIGHT_AGENT";
const SITE: &str = "name: lab\n\
    provisioning: {interface: fl-box, address: 172.22.0.1/20, range: 172.22.1.0-172.22.9.255}\n\
    cluster: none\n";
const SHARE: &str = "usr/share/firstlight";
const CONFIG: &str = "run/firstlight/ironic";
/// Whatever else runs on the API server is not counted.
const AUDIT: &str = "apiVersion: audit.k8s.io/v1\n\
    kind: Policy\n\
    omitStages: [RequestReceived, ResponseStarted]\n\
    rules: [{level: Metadata, users: [firstlight-agent]}]\n";

pub struct TheBox {
    pub objects: Objects,
    pub paths: Paths,
    pub audit: PathBuf,
    pub agent: Daemon,
    pub ironic: Ironic,
    _kubernetes: Vec<Daemon>,
}

impl TheBox {
    pub async fn start(dir: &Path) -> Self {
        let (root, logs) = (dir.join("box"), dir.join("logs"));
        fs::create_dir_all(&logs).unwrap();
        lay_out(&root);
        let paths = Paths::new(&root);
        let program = std::env::var_os(AGENT)
            .unwrap_or_else(|| env!("CARGO_BIN_EXE_firstlight-agent").into());
        let mut command = Command::new(program);
        let mut agent = Daemon::start("firstlight-agent", &logs, command.arg("--root").arg(&root));
        let pod = paths.run_manifests().join("ironic.yaml");
        agent.wait(async || pod.exists()).await;
        let (policy, audit) = (dir.join("audit.yaml"), logs.join("audit.log"));
        fs::write(&policy, AUDIT).unwrap();
        let audited = [
            format!("--audit-policy-file={}", policy.display()),
            format!("--audit-log-path={}", audit.display()),
        ];
        let (kubernetes, objects) = site::kubernetes_with(&paths, &logs, &audited).await;
        let ironic = Ironic::start(&dir.join("ironic"), &paths, &logs, |config| config).await;
        Self {
            objects,
            paths,
            audit,
            agent,
            ironic,
            _kubernetes: kubernetes,
        }
    }

    /// All that runs of it ends.
    pub fn stop(self) -> Paths {
        self.paths.clone()
    }
}

/// The files of a box as the agent looks for them.
fn lay_out(root: &Path) {
    let share = root.join(SHARE);
    for folder in ["firstlight/site", "var/lib/firstlight/agent"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    for folder in ["netboot", "images"] {
        fs::create_dir_all(share.join(folder)).unwrap();
    }
    fs::write(root.join("firstlight/site/site.yaml"), SITE).unwrap();
    fs::write(share.join("versions.json"), "{}").unwrap();
    for (name, length) in [
        ("netboot/undionly.kpxe", 70_000),
        ("netboot/vmlinuz", 65_536),
        ("netboot/initrd", 65_536),
        ("images/node.raw.zst", 1000),
    ] {
        fs::write(share.join(name), vec![0; length]).unwrap();
    }
    let image = format!(
        r#"{{"name": "node", "bytes": 1000, "rawBytes": 2000, "sha256": "{}"}}"#,
        "ab".repeat(32)
    );
    fs::write(share.join("images/node.json"), image).unwrap();
    run(Command::new("cp")
        .args(["-r", "../overlays/box/usr/share/firstlight/manifests"])
        .arg(&share));
    ip("link set lo up");
    // Stands for the dummy device, which the kernel of a test machine may lack; the agent takes it as it is.
    ip("link add name box0 type bridge");
}

/// One that runs, and where it is.
pub struct Ironic {
    pub daemon: Daemon,
    pub log: PathBuf,
}

impl Ironic {
    /// With what the agent wrote for it, as `change` makes it, and an empty database.
    pub async fn start(
        dir: &Path,
        paths: &Paths,
        logs: &Path,
        change: impl Fn(String) -> String,
    ) -> Self {
        let programs = std::env::var_os(IRONIC).expect("scripts/ironic-programs says where it is");
        let programs = Path::new(&programs).join("ironic/bin");
        let state = dir.join("state");
        fs::create_dir_all(&state).unwrap();
        let (given, own) = (paths.run_ironic(), dir.display());
        let moved = |text: String| {
            text.replace(
                &format!("/{CONFIG}/ironic.conf"),
                &format!("{own}/ironic.conf"),
            )
            .replace(&format!("/{CONFIG}"), &given.display().to_string())
            .replace("/var/lib/ironic", &state.display().to_string())
            .replace("/usr/share/ironic", &own.to_string())
        };
        let config = fs::read_to_string(given.join("ironic.conf")).unwrap();
        fs::write(dir.join("ironic.conf"), change(moved(config))).unwrap();
        let launcher = fs::read_to_string("../rootfs/ironic/launch.py").unwrap();
        fs::write(dir.join("launch.py"), moved(launcher)).unwrap();
        run(Command::new(programs.join("ironic-dbsync"))
            .arg("--config-file")
            .arg(dir.join("ironic.conf"))
            .arg("create_schema"));
        fs::rename(state.join("ironic.sqlite"), dir.join("empty.sqlite")).unwrap();
        let name = dir.file_name().unwrap().to_str().unwrap();
        let mut command = Command::new(programs.join("python"));
        command.arg(dir.join("launch.py")).env("no_proxy", "*");
        for theirs in ["REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"] {
            command.env_remove(theirs);
        }
        let mut daemon = Daemon::start(name, logs, &mut command);
        daemon.wait(async || listens("172.22.0.1:6385").await).await;
        Self {
            daemon,
            log: logs.join(format!("{name}.log")),
        }
    }
}
