//! A box's store with the real registry, as far as tests of the agent need them.
#![allow(clippy::unwrap_used, dead_code)]

use std::{
    fs,
    io::Write as _,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use firstlight_agent::{
    paths::Paths,
    pki, status,
    store::{self, Dirs, Store},
};
use firstlight_api::artifact::{Arch, Artifact, ArtifactSpec, ArtifactState, Kind};
use firstlight_artifacts::hex;
use serde_json::json;
use sha2::{Digest, Sha256};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub const PATIENCE: Duration = Duration::from_secs(30);

pub struct Registry {
    child: Child,
    program: PathBuf,
    config: PathBuf,
    address: SocketAddr,
}

impl Drop for Registry {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

pub fn free_port() -> SocketAddr {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .unwrap()
        .local_addr()
        .unwrap()
}

impl Registry {
    pub fn start(program: &Path, dir: &Path, address: SocketAddr) -> Self {
        let config = dir.join("registry.yaml");
        let content = json!({
            "version": 0.1,
            "log": {"level": "error"},
            "storage": {
                "filesystem": {"rootdirectory": dir.join("registry")},
                "delete": {"enabled": true},
            },
            "http": {"addr": address.to_string()},
        });
        fs::write(&config, content.to_string()).unwrap();
        let child = Command::new(program)
            .arg("serve")
            .arg(&config)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self {
            child,
            program: program.to_owned(),
            config,
            address,
        }
    }

    pub fn get(&self, path: &str) -> Vec<u8> {
        self.find(path).unwrap_or_else(|| panic!("no {path}"))
    }

    pub fn find(&self, path: &str) -> Option<Vec<u8>> {
        let accept = format!("Accept: {MANIFEST}");
        self.curl(path, &["-H", &accept])
    }

    /// Calls a manifest, of the same repository, by another name.
    pub fn tag(&self, path: &str, manifest: &[u8]) {
        let kind = format!("Content-Type: {MANIFEST}");
        let content = String::from_utf8(manifest.to_vec()).unwrap();
        let put = ["-X", "PUT", "-H", &kind, "--data-binary", &content];
        self.curl(path, &put).unwrap();
    }

    pub fn untag(&self, path: &str) {
        self.curl(path, &["-X", "DELETE"]).unwrap();
    }

    fn curl(&self, path: &str, arguments: &[&str]) -> Option<Vec<u8>> {
        let output = Command::new("curl")
            .arg("-sf")
            .args(arguments)
            .arg(format!("http://{}/v2/{path}", self.address))
            .output()
            .unwrap();
        output.status.success().then_some(output.stdout)
    }

    /// As the box does it every night.
    pub fn collect_garbage(&self) {
        let collected = Command::new(&self.program)
            .args(["garbage-collect", "--quiet"])
            .arg(&self.config)
            .output()
            .unwrap();
        assert!(collected.status.success(), "{collected:?}");
    }
}

pub struct Site {
    pub dir: tempfile::TempDir,
    pub store: Store,
    _stop: tokio_util::sync::DropGuard,
}

impl Site {
    pub async fn open(registry: SocketAddr) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let dirs = Dirs {
            store: at("store"),
            apt: at("apt"),
            apt_key: at("key.asc"),
            images: at("images"),
            pushed: at("pushed.json"),
        };
        let pki = pki::load_or_make(&Paths::new(dir.path()), 1_790_000_000).unwrap();
        let (_, pki) = watch::channel(Some(Arc::new(pki)));
        let (opened, mut store) = watch::channel(None);
        let (status, _, owner) = status::channel("0.1.0");
        let stop = CancellationToken::new();
        tokio::spawn(status::own(owner, stop.clone()));
        tokio::spawn(store::run(
            dirs,
            registry,
            pki,
            opened,
            status,
            stop.clone(),
        ));
        let store = store
            .wait_for(Option::is_some)
            .await
            .unwrap()
            .clone()
            .unwrap();
        Self {
            dir,
            store,
            _stop: stop.drop_guard(),
        }
    }

    pub fn upload(&self, kind: Kind, name: &str, version: &str, content: &[u8]) -> String {
        let spec = ArtifactSpec {
            kind,
            name: name.into(),
            version: version.into(),
            arch: if kind == Kind::Chart {
                Arch::All
            } else {
                Arch::Amd64
            },
            size: content.len() as u64,
            sha256: hex(&Sha256::digest(content)),
        };
        let id = self.store.begin(spec).unwrap().id;
        let mut writer = self.store.write(&id, 0).unwrap();
        writer.write(content).unwrap();
        writer.finish().unwrap();
        id
    }

    pub async fn settled(&self, id: &str) -> Artifact {
        let since = Instant::now();
        loop {
            let artifact = self.store.get(id).unwrap();
            if artifact.state != ArtifactState::Publishing {
                return artifact;
            }
            assert!(since.elapsed() < PATIENCE, "{artifact:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

pub fn tar(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for (path, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, path, *content).unwrap();
    }
    tar.into_inner().unwrap()
}

/// As `docker save` wrote it for years.
pub fn container() -> Vec<u8> {
    let config =
        br#"{"architecture":"amd64","os":"linux","rootfs":{"type":"layers","diff_ids":[]}}"#;
    let layer = tar(&[("hello", &vec![7; 600_000])]);
    let manifest =
        json!([{"Config": "config.json", "RepoTags": ["web:1.2"], "Layers": ["layer.tar"]}])
            .to_string();
    tar(&[
        ("config.json", config),
        ("layer.tar", &layer),
        ("manifest.json", manifest.as_bytes()),
    ])
}

/// As `helm package` makes it: `files` beside a `Chart.yaml`.
pub fn chart(name: &str, version: &str, files: &[(&str, &str)]) -> Vec<u8> {
    let metadata = format!("apiVersion: v2\nname: {name}\nversion: {version}\n");
    let mut all = vec![(format!("{name}/Chart.yaml"), metadata.as_bytes())];
    all.extend(
        files
            .iter()
            .map(|(path, content)| (format!("{name}/{path}"), content.as_bytes())),
    );
    let all: Vec<(&str, &[u8])> = all
        .iter()
        .map(|(path, content)| (path.as_str(), *content))
        .collect();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&tar(&all)).unwrap();
    gzip.finish().unwrap()
}
