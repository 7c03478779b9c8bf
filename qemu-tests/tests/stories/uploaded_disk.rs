//! Somebody pushes a disk of their own, in QCOW2; a `BareMetalHost` names it, and its server, which boots by UEFI HTTP boot under
//! Secure Boot, starts from it.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use firstlight_api::status::HostState;
use imagebuilder::disk::gpt;
use lab::wire::format_mac;
use lab::{BootFirst, Firmware, ServerSpec};
use qemu_tests::scene::{Scene, host_in};
use qemu_tests::store;
use qemu_tests::typed::firstlight;
use serde_json::json;

const HOST: &str = "own-disk";
const NAME: &str = "own";
const VERSION: &str = "1.0";
/// A file that is in no other image.
const MARK: &str = "made-by-the-test";

pub fn tell(scene: &mut Scene<'_>) -> Result<()> {
    let server = ServerSpec {
        boot: BootFirst::Http,
        ..ServerSpec::blank(2, Firmware::SecureBoot)
    };
    let mac = format_mac(server.mac());
    let disk = make_disk(scene)?;

    scene.ready_box()?;
    store::push(scene, &disk, &["--name", NAME, "--version", VERSION])?;
    scene.tell("the disk is in the store");
    let ssh = scene.box_ssh();
    // A system of somebody's own gets what its host says, and nothing of ours.
    let key = fs::read_to_string(scene.site().key.with_extension("pub"))?;
    let cloud_config = json!({"users": [{"name": "admin", "ssh_authorized_keys": [key.trim()]}]});
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": HOST, "namespace": "default"},
        "stringData": {"value": format!("#cloud-config\n{cloud_config}\n")},
    });
    let host = json!({
        "apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
        "metadata": {"name": HOST, "namespace": "default"},
        "spec": {"bootMACAddress": mac, "online": true, "userData": {"name": HOST},
            "image": {"url": format!("{NAME}:{VERSION}")}},
    });
    for object in [secret, host] {
        ssh.run(&format!("sudo kubectl apply -f - <<'EOF'\n{object}\nEOF"))?;
    }

    scene.switch_server_on(&server)?;
    scene.wait_status(
        "the server runs its own system",
        Duration::from_mins(6),
        |status| host_in(status, &mac, HostState::Running),
    )?;
    let system = scene.host_ssh(&mac)?;
    scene.wait(
        "a login on the server, from the pushed disk",
        Duration::from_mins(1),
        |_| Ok(system.run(&format!("test -e /{MARK}")).ok()),
    )?;
    let lockdown = system.run("cat /sys/kernel/security/lockdown")?;
    ensure!(lockdown.contains("[integrity]"), "lockdown: {lockdown}");
    let by_tftp = scene.lab.wire().report().tftp_requests;
    ensure!(by_tftp == 0, "{by_tftp} requests by TFTP");
    let artifacts = &scene.status().artifacts;
    ensure!(
        artifacts
            .iter()
            .any(|artifact| artifact.used_by.iter().any(|user| user.contains(HOST))),
        "the store does not say who uses the disk: {artifacts:#?}"
    );
    scene.nothing_leaked()
}

/// The stick's own node image with one more file.
fn make_disk(scene: &Scene<'_>) -> Result<PathBuf> {
    let folder = scene.lab.dir().join("own");
    let image = scene.image().to_str().context("the path is not text")?;
    let payload = folder.join("payload");
    fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
    let to = payload.to_str().context("the path is not text")?;
    firstlight(["unpack", "--layer", "payload", image, to])?;
    let raw = folder.join("own.raw");
    let packed = File::open(payload.join("usr/share/firstlight/images/node.raw.zst"))
        .context("opening the node image")?;
    zstd::stream::copy_decode(packed, File::create(&raw)?).context("unpacking the node image")?;

    let root = gpt::load_table(&raw)?.partition("root")?.offset();
    program(
        "debugfs",
        &[
            "-w",
            "-R",
            &format!("write /dev/null {MARK}"),
            &format!("{}?offset={root}", raw.display()),
        ],
    )?;
    let disk = folder.join("own.qcow2");
    let [from, to] = [&raw, &disk].map(|path| path.display().to_string());
    program("qemu-img", &["convert", "-O", "qcow2", &from, &to])?;
    fs::remove_file(&raw).context("removing the raw disk")?;
    Ok(disk)
}

fn program(name: &str, arguments: &[&str]) -> Result<()> {
    let output = Command::new(name)
        .args(arguments)
        .output()
        .with_context(|| format!("starting {name}"))?;
    ensure!(
        output.status.success(),
        "{name} {arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}
