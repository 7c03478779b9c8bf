//! Zero touch from a BIOS box to a server under Secure Boot; a server with data; the box's second boot.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use firstlight_api::report::{Directive, LookupState};
use firstlight_api::status::{HostState, MeasuredBootStatus, TpmStatus};
use imagebuilder::build::cache::digest_file;
use lab::wire::format_mac;
use lab::{BoxSpec, DiskBus, Firmware, ServerDisk, ServerSpec, data_disk};
use qemu_tests::figures;
use qemu_tests::forger::Forger;
use qemu_tests::scene::{Scene, find_host, host_in, installs, step_done};
use qemu_tests::site::{RULE_LABEL, SERVER_ADDRESS, SERVER_NAME};
use qemu_tests::ssh::Ssh;

const MARK: &str = "/var/lib/marked-by-the-test";
/// Large enough to be chosen.
const DATA_DISK: u64 = 8 << 30;

pub fn tell(scene: &mut Scene<'_>) -> Result<()> {
    let server = ServerSpec {
        tpm: true,
        ..ServerSpec::blank(1, Firmware::SecureBoot)
    };
    let mac = format_mac(server.mac());

    let power_on = scene.switch_box_on(&BoxSpec {
        firmware: Firmware::Bios,
        ..BoxSpec::default()
    })?;
    scene.wait_status("the page answers", Duration::from_mins(1), |_| Some(()))?;
    figures::BOX_PAGE.record_time(power_on.elapsed())?;

    bring_up(scene, power_on)?;
    let server_on = scene.switch_server_on(&server)?;
    let installed = install(scene, &mac, server_on)?;
    // On the disk: the next thing that this server meets is its power cord.
    installed.run(&format!("sudo touch {MARK} && sudo sync"))?;
    kubernetes_view(scene)?;

    scene.switch_servers_off()?;
    leave_data_alone(scene)?;
    second_boot(scene, &server, &mac)?;
    scene.nothing_leaked()
}

fn bring_up(scene: &mut Scene<'_>, power_on: Instant) -> Result<()> {
    for (step, title, figure) in [
        ("node", "the node is Ready", figures::BOX_NODE),
        ("ironic", "Ironic answers", figures::BOX_IRONIC),
    ] {
        scene.wait_status(title, Duration::from_mins(2), |status| {
            step_done(status, step).then_some(())
        })?;
        figure.record_time(power_on.elapsed())?;
    }
    scene.wait_status("the box is ready", Duration::from_mins(1), |status| {
        status.ready.then_some(())
    })?;
    figures::BOX_MEMORY.record(scene.box_memory()?)
}

/// From power-on to a login on the installed system, and what that system must be like.
fn install(scene: &mut Scene<'_>, mac: &str, power_on: Instant) -> Result<Ssh> {
    let host = scene.wait_status(
        "the server runs its own system",
        Duration::from_mins(5),
        |status| host_in(status, mac, HostState::Running),
    )?;
    ensure!(
        host.address == SERVER_ADDRESS,
        "the server has {}, planned was {SERVER_ADDRESS}",
        host.address
    );
    ensure!(
        installs(&host) == 1,
        "installed {} times: {:#?}",
        installs(&host),
        host.history
    );
    let hardware = host.hardware.context("nothing is known of its hardware")?;
    ensure!(
        hardware.tpm == TpmStatus::Bound,
        "its TPM is {:?}: only who shows it should be believed",
        hardware.tpm
    );
    let measured = MeasuredBootStatus::Measured { secure_boot: true };
    ensure!(
        hardware.measured_boot == measured,
        "its start is {:?}: it should be by the box, under Secure Boot",
        hardware.measured_boot
    );
    let ssh = scene.host_ssh(mac)?;
    let name = scene.wait("a login on the server", Duration::from_mins(1), |_| {
        Ok(ssh.run("hostname").ok())
    })?;
    figures::SERVER_SSH.record_time(power_on.elapsed())?;
    ensure!(
        name == SERVER_NAME,
        "the server calls itself {name}, planned was {SERVER_NAME}"
    );
    // By which a ramdisk knows that it was started by another kernel, and not by what its firmware's log tells.
    let loader = ssh.run("cat /proc/sys/kernel/bootloader_type")?;
    ensure!(
        loader.trim() == "208",
        "its kernel was started by the loader {loader}, and not by kexec"
    );
    let addresses = ssh.run("ip -4 -o address")?;
    ensure!(
        addresses.contains(&format!("{SERVER_ADDRESS}/24")),
        "addresses of the server: {addresses}"
    );
    scene.wait(
        "the server's root fills its disk",
        Duration::from_mins(1),
        |_| {
            let bytes: u64 = ssh
                .run("df --output=size -B1 / | tail -1")?
                .trim()
                .parse()?;
            Ok((bytes > 6 << 30).then_some(()))
        },
    )?;
    Ok(ssh)
}

/// A person who knows Metal3 has nothing to unlearn.
fn kubernetes_view(scene: &mut Scene<'_>) -> Result<()> {
    let ssh = scene.box_ssh();
    let nodes = ssh.run("sudo kubectl get nodes --no-headers")?;
    ensure!(
        nodes.lines().count() == 1 && nodes.contains(" Ready "),
        "kubectl get nodes: {nodes}"
    );
    let state = "sudo kubectl get bmh -A -o jsonpath='{.items[*].status.provisioning.state}'";
    scene.wait(
        "the BareMetalHost is provisioned",
        Duration::from_secs(30),
        |_| Ok(ssh.run(state)?.contains("provisioned").then_some(())),
    )?;
    let hardware =
        ssh.run("sudo kubectl get bmh -A -o jsonpath='{.items[*].status.hardware.cpu.count}'")?;
    ensure!(
        hardware.trim() == "2",
        "the BareMetalHost's hardware shows {hardware} CPUs"
    );
    Ok(())
}

fn leave_data_alone(scene: &mut Scene<'_>) -> Result<()> {
    let disk = scene.lab.dir().join("old-data.raw");
    data_disk(&disk, DATA_DISK)?;
    let before = digest_file(&disk)?;
    let server = |number| ServerSpec {
        disks: vec![ServerDisk::data(DiskBus::Virtio, disk.clone())],
        ..ServerSpec::blank(number, Firmware::Uefi)
    };
    let mut forger = Forger::new(scene)?;
    // Before the server itself has said anything, nobody can tell.
    scene.wait(
        "a forged report is believed",
        Duration::from_mins(1),
        |_| {
            let answer = forger.says_blank(server(2).mac(), DATA_DISK, LookupState::NotAsked)?;
            Ok(matches!(answer, Directive::Lookup { .. }).then_some(()))
        },
    )?;
    scene.switch_server_on(&server(2))?;
    // By its first own report at the latest; Ironic has met it meanwhile.
    left_alone(scene, &server(2), HostState::Available)?;
    scene.switch_servers_off()?;

    let power_on = scene.switch_server_on_in_ramdisk(&server(3))?;
    left_alone(scene, &server(3), HostState::Discovered)?;
    figures::RAMDISK_LOOKUP.record_time(power_on.elapsed())?;
    for lookup in [LookupState::NotAsked, LookupState::Registered] {
        let answer = forger.says_blank(server(3).mac(), DATA_DISK, lookup)?;
        ensure!(
            matches!(answer, Directive::Wait { .. }),
            "a forged report is believed: {answer:?}"
        );
    }
    let status = forger.says_written(server(3).mac())?;
    ensure!(status == 409, "forged progress is answered with {status}");
    left_alone(scene, &server(3), HostState::Discovered)?;
    scene.switch_servers_off()?;
    ensure!(
        digest_file(&disk)? == before,
        "the disk with data was changed"
    );
    scene.tell("the disk with data is unchanged");
    Ok(())
}

fn left_alone(scene: &mut Scene<'_>, server: &ServerSpec, state: HostState) -> Result<()> {
    let mac = format_mac(server.mac());
    scene.wait_status(
        "the server with data is left alone, and it says why",
        Duration::from_mins(2),
        |status| {
            let host = host_in(status, &mac, state).filter(|host| host.hardware.is_some())?;
            let problem = host.problem.map(|problem| problem.what).unwrap_or_default();
            [host.step, problem]
                .iter()
                .any(|said| said.contains("not blank"))
                .then_some(())
        },
    )
}

fn second_boot(scene: &mut Scene<'_>, server: &ServerSpec, mac: &str) -> Result<()> {
    scene.shut_box_down()?;
    scene.switch_box_on(&BoxSpec {
        firmware: Firmware::Bios,
        ..BoxSpec::default()
    })?;
    scene.wait_status("the box is ready again", Duration::from_mins(3), |status| {
        status.ready.then_some(())
    })?;
    let host = find_host(scene.status(), mac).context("the box forgot its server")?;
    ensure!(installs(host) <= 1, "a second install: {:#?}", host.history);
    scene.switch_server_on(server)?;
    scene.wait_status("the server runs again", Duration::from_mins(3), |status| {
        host_in(status, mac, HostState::Running)
    })?;
    let ssh = scene.host_ssh(mac)?;
    scene.wait("a login on the server", Duration::from_mins(2), |_| {
        Ok(ssh.run("hostname").ok())
    })?;
    ssh.run(&format!("test -e {MARK}"))
        .context("the server was installed a second time")?;
    let ssh = scene.box_ssh();
    let states = ssh.run("sudo kubectl get bmh -A --no-headers")?;
    ensure!(states.lines().count() == 3, "kubectl get bmh: {states}");
    let label = RULE_LABEL.replace(": ", "=");
    let ruled = ssh.run(&format!("sudo kubectl get bmh -l '{label}' -o name"))?;
    ensure!(ruled.contains(SERVER_NAME), "labelled by a rule: {ruled}");
    Ok(())
}
