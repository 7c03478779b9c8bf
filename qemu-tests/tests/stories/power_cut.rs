//! A Secure Boot box and a BIOS server that is there before Kubernetes is; the box's power goes while the server's disk is
//! written.

use std::time::Duration;

use anyhow::{Result, ensure};
use firstlight_api::status::HostState;
use lab::wire::format_mac;
use lab::{BoxSpec, Firmware, ServerSpec};
use qemu_tests::figures;
use qemu_tests::scene::{Scene, find_host, host_in, installs};
use qemu_tests::site::{SERVER_ADDRESS, SERVER_NAME};

/// What the smallest server has.
const SMALLEST_MIB: u32 = 512;

pub fn tell(scene: &mut Scene<'_>) -> Result<()> {
    let spec = BoxSpec {
        firmware: Firmware::SecureBoot,
        ..BoxSpec::default()
    };
    let server = ServerSpec {
        memory_mib: SMALLEST_MIB,
        ..ServerSpec::blank(1, Firmware::Bios)
    };
    let mac = format_mac(server.mac());

    let power_on = scene.switch_box_on(&spec)?;
    scene.wait_status("the page answers", Duration::from_mins(1), |_| Some(()))?;
    scene.switch_server_on(&server)?;
    let first = scene.wait("a DHCP answer", Duration::from_mins(1), |scene| {
        Ok(scene.lab.wire().report().first_dhcp_answer)
    })?;
    figures::BOX_DHCP.record_time(first.duration_since(power_on))?;
    scene.wait_for_write(&mac, Duration::from_mins(5))?;
    scene.cut_box_power()?;

    scene.switch_box_on(&spec)?;
    scene.wait_status("the box is ready again", Duration::from_mins(4), |status| {
        status.ready.then_some(())
    })?;
    let lockdown = scene.box_ssh().run("cat /sys/kernel/security/lockdown")?;
    ensure!(
        lockdown.contains("[integrity]"),
        "the box does not run under Secure Boot: {lockdown}"
    );
    scene.wait_status(
        "the server runs its own system",
        Duration::from_mins(7),
        |status| host_in(status, &mac, HostState::Running),
    )?;
    let ssh = scene.host_ssh(&mac)?;
    let name = scene.wait("a login on the server", Duration::from_mins(1), |_| {
        Ok(ssh.run("hostname").ok())
    })?;
    ensure!(
        name == SERVER_NAME,
        "the server calls itself {name}, planned was {SERVER_NAME}"
    );
    let booted = ssh.run("test -e /sys/firmware/efi && echo uefi || echo bios")?;
    ensure!(booted == "bios", "the server booted by {booted}");
    let host = find_host(scene.status(), &mac).filter(|host| host.address == SERVER_ADDRESS);
    ensure!(
        host.is_some_and(|host| installs(host) == 1),
        "not installed once as planned: {host:#?}"
    );
    figures::SMALLEST_MEMORY.record(f64::from(SMALLEST_MIB))?;
    scene.nothing_leaked()
}
