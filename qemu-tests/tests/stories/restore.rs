//! The stick of a box with an installed server dies. Another one, in the same place, goes on with the backup that the server has kept for it: the same box by name, address,
//! CA and keys, and the server was installed once.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use firstlight_api::status::HostState;
use lab::wire::format_mac;
use lab::{BoxSpec, Firmware, ServerSpec};
use qemu_tests::figures;
use qemu_tests::scene::{Scene, host_in, installs};
use qemu_tests::site::SERVER_NAME;
use qemu_tests::typed::Desk;

/// The box's authority, and its own key.
const KEYS: &str =
    "sudo cat /var/lib/firstlight/pki/ca.crt /var/lib/firstlight/ssh/ssh_host_ed25519_key.pub";

pub fn tell(scene: &mut Scene<'_>) -> Result<()> {
    scene.ready_box()?;
    let server = ServerSpec::blank(1, Firmware::Uefi);
    let mac = format_mac(server.mac());
    scene.switch_server_on(&server)?;
    scene.wait_status(
        "the server runs its own system",
        Duration::from_mins(8),
        |status| host_in(status, &mac, HostState::Running),
    )?;
    scene
        .box_ssh()
        .run("sudo kubectl create configmap kept --from-literal=of=before")?;
    let identity = scene.box_ssh().run(KEYS)?;

    let said = Desk::new(scene)?.types(&["backup", "--now"])?;
    scene.tell(said.trim());
    let name = scene.wait_status("the server keeps it", Duration::from_mins(3), |status| {
        let backup = status.backup.as_ref()?;
        let is_there = backup.copies == [format!("server {SERVER_NAME}")];
        Some(backup.last.clone()?.name).filter(|_| is_there)
    })?;
    let list = Desk::new(scene)?.types(&["backup", "--list"])?;
    ensure!(list.starts_with(&name), "{list}");
    // The stick is lost with what is on it: what the server has is enough, and tells whoever finds it nothing.
    let kept = format!("/var/lib/firstlight/backups/{name}");
    let ssh = scene.host_ssh(&mac)?;
    let canary = "sudo grep -c 'BEGIN CERT\\|kubernetes' ";
    ensure!(
        ssh.run(&format!("{canary}{kept} || true"))?.trim() == "0",
        "the backup is in clear"
    );
    let encoded = ssh.run(&format!("sudo base64 --wrap 0 {kept}"))?;
    let backup = scene.lab.dir().join(&name);
    fs::write(&backup, STANDARD.decode(encoded.trim())?)?;
    let key_file = scene.backup_key().to_owned();
    let [key_file, backup] =
        [&key_file, &backup].map(|path| path.to_str().context("the path is not text"));
    let (key_file, backup) = (key_file?, backup?);

    scene.cut_box_power()?;
    scene.lab.lose_stick()?;
    scene.tell("another stick");
    let began = scene.switch_box_on(&BoxSpec::default())?;
    scene.wait_status("the new box is ready", Duration::from_mins(5), |status| {
        status.ready.then_some(())
    })?;
    ensure!(
        scene.box_ssh().run(KEYS)? != identity,
        "the stick is the old one"
    );
    let desk = Desk::new(scene)?;
    let said = desk.types(&["restore", backup, "--key", key_file])?;
    scene.tell(said.trim());
    scene.wait(
        "the box has its keys again",
        Duration::from_mins(3),
        |scene| {
            Ok(scene
                .box_ssh()
                .run(KEYS)
                .is_ok_and(|now| now == identity)
                .then_some(()))
        },
    )?;
    let host = scene.wait_status("all is as before", Duration::from_mins(6), |status| {
        host_in(status, &mac, HostState::Running).filter(|_| status.ready)
    })?;
    figures::YEARS_RESTORE.record_time(began.elapsed())?;
    scene.tell(format_args!(
        "{} s after the new stick's power-on",
        began.elapsed().as_secs()
    ));
    ensure!(
        host.name == SERVER_NAME && installs(&host) == 1,
        "{host:#?}"
    );
    scene.box_ssh().run("sudo kubectl get configmap kept")?;
    let ssh = scene.host_ssh(&mac)?;
    ensure!(ssh.run("hostname")? == SERVER_NAME, "another server");
    let settled = Instant::now();
    scene.wait("Ironic knows it again", Duration::from_mins(3), |scene| {
        let said = scene.box_ssh().run("sudo kubectl get baremetalhosts -A -o jsonpath='{.items[*].status.provisioning.state}'")?;
        Ok((said == "provisioned").then_some(()))
    })?;
    scene.tell(format_args!("{} s more", settled.elapsed().as_secs()));
    scene.nothing_leaked()
}
