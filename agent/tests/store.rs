//! From an upload to where it is used: a container and a chart in the real registry, a package in the apt repository, a disk
//! below `/images`. `scripts/test-store` builds the registry and says where it is.

#![allow(clippy::unwrap_used)]

mod common;
#[path = "common/store.rs"]
mod site;

use std::{
    fs,
    path::PathBuf,
    process::{Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use common::isolated;
use firstlight_agent::{
    doors::Known,
    status,
    store::{REGISTRY as BEHIND, Reference, Target, User},
    web,
};
use firstlight_api::artifact::{ArtifactState, Kind};
use firstlight_artifacts::hex;
use serde_json::Value;
use sha2::{Digest, Sha256};
use site::{PATIENCE, Registry, Site, free_port, tar};

const REGISTRY: &str = "FIRSTLIGHT_REGISTRY";

fn host(name: &str, url: &str) -> Reference {
    Reference {
        by: format!("BareMetalHost {name}"),
        to: Target::Disk(url.to_owned()),
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs FIRSTLIGHT_REGISTRY: scripts/test-store"]
async fn containers_and_charts_are_in_the_registry_once_it_answers() {
    let program = PathBuf::from(std::env::var_os(REGISTRY).unwrap());
    let address = free_port();
    let site = Site::open(address).await;
    let image = site.upload(Kind::Container, "apps/web", "1.2", &site::container());
    let content = site::chart("web", "0.1.0+build", &[]);
    let chart = site.upload(Kind::Chart, "web", "0.1.0+build", &content);
    let lying = site.upload(
        Kind::Chart,
        "db",
        "0.1.0+build",
        &site::chart("other", "0.1.0+build", &[]),
    );
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
#[ignore = "needs FIRSTLIGHT_REGISTRY: scripts/test-store"]
async fn what_is_deleted_leaves_the_registry_and_the_disk_but_nothing_of_others() {
    let program = PathBuf::from(std::env::var_os(REGISTRY).unwrap());
    let address = free_port();
    let site = Site::open(address).await;
    let registry = Registry::start(&program, site.dir.path(), address);
    let push = async |version: &str, content: &[u8]| {
        let id = site.upload(Kind::Container, "apps/web", version, content);
        (site.settled(&id).await.state, id)
    };
    let delete = |id: &str| {
        site.store.note(User::Pods, Vec::new());
        site.store.remove(id).unwrap();
    };
    let gone = async |path: &str| {
        let since = Instant::now();
        while registry.find(path).is_some() {
            assert!(since.elapsed() < PATIENCE, "{path}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let (_, first) = push("1", &site::container()).await;
    let (_, second) = push("2", &site::container()).await;
    let manifest = registry.get("apps/web/manifests/1");
    let digest = format!("sha256:{}", hex(&Sha256::digest(&manifest)));
    let parsed: Value = serde_json::from_slice(&manifest).unwrap();
    let layer = parsed["layers"][0]["digest"].as_str().unwrap();

    delete(&first);
    gone("apps/web/manifests/1").await;
    assert_eq!(registry.get("apps/web/manifests/2"), manifest);

    // Somebody calls it by a name of theirs: neither the name nor what is behind it is the store's.
    registry.tag("apps/web/manifests/theirs", &manifest);
    let other = tar(&[
        ("config.json", b"{}"),
        (
            "manifest.json",
            br#"[{"Config": "config.json", "RepoTags": ["web:theirs"], "Layers": []}]"#,
        ),
    ]);
    let (state, refused) = push("theirs", &other).await;
    assert!(
        matches!(&state, ArtifactState::Failed { reason, .. } if reason.contains("another apps/web:theirs")),
        "{state:?}"
    );
    delete(&refused);
    let (state, same) = push("theirs", &site::container()).await;
    assert_eq!(state, ArtifactState::Ready);
    delete(&same);
    delete(&second);
    gone("apps/web/manifests/2").await;
    registry.collect_garbage();
    assert_eq!(registry.get("apps/web/manifests/theirs"), manifest);
    registry.get(&format!("apps/web/blobs/{layer}"));

    let (_, last) = push("3", &site::container()).await;
    registry.untag("apps/web/manifests/theirs");
    delete(&last);
    gone(&format!("apps/web/manifests/{digest}")).await;
    registry.collect_garbage();
    assert!(registry.find(&format!("apps/web/blobs/{layer}")).is_none());
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
    site.store.note(User::Hosts, Vec::new());
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
        site.store.note(User::Hosts, vec![host("n1", url)]);
        assert_eq!(
            refused(),
            "it is used by BareMetalHost n1; change that first"
        );
        assert_eq!(site.store.get(&id).unwrap().used_by, ["BareMetalHost n1"]);
    }
    let other = host("n1", "http://172.22.0.1/images/node.raw.zst");
    site.store
        .note(User::Hosts, vec![other, host("n2", "debian:12")]);
    site.store.remove(&id).unwrap();
}

fn shell(script: &str) -> String {
    let mut sh = Command::new("sh");
    let output = sh.args(["-euc", script]).stderr(Stdio::inherit()).output();
    String::from_utf8(output.unwrap().stdout).unwrap()
}

/// The tree of the registry is on the disk of etcd, too.
#[test]
#[ignore = "needs FIRSTLIGHT_REGISTRY: scripts/test-store"]
fn a_push_ends_where_the_reserve_begins() {
    isolated("a_push_ends_where_the_reserve_begins", || {
        let program = PathBuf::from(std::env::var_os(REGISTRY).unwrap());
        let dir = tempfile::tempdir().unwrap();
        let disk = dir.path().display();
        shell(&format!(
            "ip link set lo up; mount -t tmpfs -o size=1100m none {disk}"
        ));
        let _registry = Registry::start(&program, dir.path(), BEHIND);
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let known = Known::new(tokio::sync::watch::channel(Arc::default()).1);
        let (told, ..) = status::channel("0.1.0");
        let stop = tokio_util::sync::CancellationToken::new();
        runtime.spawn(web::serve_pushes(dir.path().to_owned(), known, told, stop));
        // An upload of so many MiB: the answer's status.
        let push = |mib: u32| {
            let door = "http://localhost:5001/v2/apps/big/blobs/uploads/";
            shell(&format!(
                "place=$(curl -s -X POST -D - {door} | tr -d '\\r' | sed -n 's/^[Ll]ocation: //p')
                head -c {mib}M /dev/zero | curl -s -o /dev/null -w '%{{http_code}}' -X PATCH -T - \"$place\" || true"
            ))
        };
        let start = Instant::now();
        while push(1) != "202" {
            assert!(start.elapsed() < PATIENCE, "the registry starts");
        }
        assert_ne!(push(200), "202");
        let free = nix::sys::statvfs::statvfs(dir.path()).unwrap();
        let free = free.blocks_available() * free.fragment_size();
        let reserve = 1 << 30;
        // What is under way in the kernel's buffers comes on top.
        assert!((reserve - (16 << 20)..reserve).contains(&free), "{free}");
        let refused = shell("curl -s -X POST http://localhost:5001/v2/apps/big/blobs/uploads/");
        assert!(refused.contains("no room for this"), "{refused}");
        shell(&format!("umount -l {disk}"));
    });
}
