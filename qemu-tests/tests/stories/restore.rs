//! The stick of a box with an installed server dies. Another one, in the same place, goes on with a backup: the same box by name, address,
//! CA and keys, and the server was installed once.

use std::fs;
use std::time::{Duration, Instant};

use age::secrecy::ExposeSecret as _;
use anyhow::{Context, Result, ensure};
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

    let key = age::x25519::Identity::generate();
    let folder = scene.lab.dir().to_owned();
    let (key_file, backup) = (folder.join("key.txt"), folder.join("site.backup"));
    fs::write(&key_file, key.to_string().expose_secret())?;
    let [key_file, backup] =
        [&key_file, &backup].map(|path| path.to_str().context("the path is not text"));
    let (key_file, backup) = (key_file?, backup?);
    let recipient = key.to_public().to_string();
    let said =
        Desk::new(scene)?.types(&["backup", "--recipient", &recipient, "--output", backup])?;
    scene.tell(said.trim());
    ensure!(
        !fs::read(backup)?
            .windows(10)
            .any(|bytes| bytes == b"BEGIN CERT"),
        "the backup is in clear"
    );

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
