//! From an upload to where it is used: a container and a chart in the real registry, a package in the apt repository, a disk
//! below `/images`. `scripts/test-store` builds the registry and says where it is.

#![allow(clippy::unwrap_used)]

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
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

const REGISTRY: &str = "FIRSTLIGHT_REGISTRY";
const PATIENCE: Duration = Duration::from_secs(30);

struct Registry {
    child: Child,
    address: SocketAddr,
}

impl Drop for Registry {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn free_port() -> SocketAddr {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .unwrap()
        .local_addr()
        .unwrap()
}

impl Registry {
    fn start(program: &Path, dir: &Path, address: SocketAddr) -> Self {
        let config = dir.join("registry.yaml");
        let content = json!({
            "version": 0.1,
            "log": {"level": "error"},
            "storage": {"filesystem": {"rootdirectory": dir.join("registry")}},
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
        Self { child, address }
    }

    fn get(&self, path: &str) -> Vec<u8> {
        let output = Command::new("curl")
            .args([
                "-sf",
                "-H",
                "Accept: application/vnd.oci.image.manifest.v1+json",
            ])
            .arg(format!("http://{}/v2/{path}", self.address))
            .output()
            .unwrap();
        assert!(output.status.success(), "{path}: {output:?}");
        output.stdout
    }
}

struct Site {
    dir: tempfile::TempDir,
    store: Store,
    _stop: tokio_util::sync::DropGuard,
}

impl Site {
    async fn open(registry: SocketAddr) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let dirs = Dirs {
            store: at("store"),
            apt: at("apt"),
            apt_key: at("key.asc"),
            images: at("images"),
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

    fn upload(&self, kind: Kind, name: &str, version: &str, content: &[u8]) -> String {
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

    async fn settled(&self, id: &str) -> Artifact {
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

fn tar(files: &[(&str, &[u8])]) -> Vec<u8> {
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
fn container() -> Vec<u8> {
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

fn chart(name: &str) -> Vec<u8> {
    let metadata = format!("apiVersion: v2\nname: {name}\nversion: 0.1.0+build\n");
    let tar = tar(&[(&format!("{name}/Chart.yaml"), metadata.as_bytes())]);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&tar).unwrap();
    gzip.finish().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn containers_and_charts_are_in_the_registry_once_it_answers() {
    let Some(program) = std::env::var_os(REGISTRY).map(PathBuf::from) else {
        eprintln!("skipped: scripts/test-store sets {REGISTRY}");
        return;
    };
    let address = free_port();
    let site = Site::open(address).await;
    let image = site.upload(Kind::Container, "apps/web", "1.2", &container());
    let content = chart("web");
    let chart = site.upload(Kind::Chart, "web", "0.1.0+build", &content);
    let lying = site.upload(Kind::Chart, "db", "0.1.0+build", &self::chart("other"));
    let broken = site.upload(
        Kind::Container,
        "apps/broken",
        "1",
        &tar(&[("hello", b"world")]),
    );
    // The box's registry comes up later than its store.
    assert_eq!(
        site.store.get(&image).unwrap().state,
        ArtifactState::Publishing
    );
    let registry = Registry::start(&program, site.dir.path(), address);

    let image = site.settled(&image).await;
    assert_eq!(
        (image.state, image.reference.as_str()),
        (
            ArtifactState::Ready,
            "registry.firstlight.internal/apps/web:1.2"
        )
    );
    let manifest: Value = serde_json::from_slice(&registry.get("apps/web/manifests/1.2")).unwrap();
    for blob in [&manifest["config"], &manifest["layers"][0]] {
        let digest = blob["digest"].as_str().unwrap();
        let content = registry.get(&format!("apps/web/blobs/{digest}"));
        assert_eq!(format!("sha256:{}", hex(&Sha256::digest(&content))), digest);
    }
    let chart = site.settled(&chart).await;
    assert_eq!(
        (chart.state, chart.reference.as_str()),
        (
            ArtifactState::Ready,
            "oci://registry.firstlight.internal/charts/web:0.1.0_build"
        )
    );
    let manifest: Value =
        serde_json::from_slice(&registry.get("charts/web/manifests/0.1.0_build")).unwrap();
    let layer = manifest["layers"][0]["digest"].as_str().unwrap();
    assert_eq!(registry.get(&format!("charts/web/blobs/{layer}")), content);

    for (id, why) in [
        (lying, "Chart.yaml says other"),
        (broken, "neither index.json"),
    ] {
        let state = site.settled(&id).await.state;
        assert!(
            matches!(&state, ArtifactState::Failed { reason, .. } if reason.contains(why)),
            "{state:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_is_served_until_it_is_deleted_and_what_is_none_says_why() {
    let site = Site::open(free_port()).await;
    let disk = zstd::encode_all(&[0_u8; 4096][..], 1).unwrap();
    let id = site.upload(Kind::Image, "debian", "13.2", &disk);
    let artifact = site.settled(&id).await;
    assert_eq!(
        (artifact.state, artifact.reference.as_str()),
        (ArtifactState::Ready, "/images/debian-13.2.raw.zst")
    );
    let served = site.dir.path().join("images/debian-13.2.raw.zst");
    assert_eq!(fs::read(&served).unwrap(), disk);
    site.store.hosts_want(&[]);
    site.store.remove(&id).unwrap();
    let since = Instant::now();
    while served.exists() {
        assert!(since.elapsed() < PATIENCE);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }

    let garbage = site.upload(Kind::Image, "debian", "13", b"no disk at all");
    let state = site.settled(&garbage).await.state;
    assert!(
        matches!(&state, ArtifactState::Failed { reason, .. } if reason.contains("no disk")),
        "{state:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_raw_or_a_qcow2_disk_is_converted_once() {
    let site = Site::open(free_port()).await;
    let mut raw = vec![7; 3_000_320];
    raw[510..512].copy_from_slice(&[0x55, 0xaa]);
    let at = |name: &str| site.dir.path().join(name);
    fs::write(at("disk"), &raw).unwrap();
    let made = Command::new("qemu-img")
        .args([
            "convert",
            "-c",
            "-f",
            "raw",
            "-O",
            "qcow2",
            "disk",
            "disk.qcow2",
        ])
        .current_dir(site.dir.path())
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    for (version, file) in [("1", "disk"), ("2", "disk.qcow2")] {
        let content = fs::read(at(file)).unwrap();
        let id = site.upload(Kind::Image, "debian", version, &content);
        let artifact = site.settled(&id).await;
        assert_eq!(artifact.state, ArtifactState::Ready);
        let served = fs::read(at(&artifact.reference[1..])).unwrap();
        assert!(zstd::decode_all(&*served).unwrap() == raw, "{file}");
        assert_eq!(artifact.checksum, hex(&Sha256::digest(&served)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_a_host_refers_to_stays() {
    let site = Site::open(free_port()).await;
    let mut disk = vec![7; 3_000_320];
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    let id = site.upload(Kind::Image, "debian", "13", &disk);
    let served = site.settled(&id).await.reference;
    let refused = || site.store.remove(&id).unwrap_err().to_string();
    assert!(refused().contains("nobody has looked yet"), "{}", refused());
    let named = format!("http://172.22.0.1{served}");
    for url in ["debian", "debian:13", &named] {
        site.store.hosts_want(&[("n1".into(), url.into())]);
        assert_eq!(
            refused(),
            "it is used by BareMetalHost n1; change that first"
        );
        assert_eq!(site.store.get(&id).unwrap().used_by, ["BareMetalHost n1"]);
    }
    let other = "http://172.22.0.1/images/node.raw.zst".to_owned();
    site.store
        .hosts_want(&[("n1".into(), other), ("n2".into(), "debian:12".into())]);
    site.store.remove(&id).unwrap();
}
