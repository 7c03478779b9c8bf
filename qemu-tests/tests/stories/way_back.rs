//! A server is given back under Secure Boot: its running system starts the ramdisk by itself, and its firmware, which takes a minute, runs
//! no second time.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use firstlight_api::status::HostState;
use lab::wire::format_mac;
use lab::{Firmware, ServerSpec};
use qemu_tests::scene::{Scene, find_host, host_in};
use qemu_tests::site::STARTED;
use serde_json::{Value, json};

use crate::bmc::patch;

const SELF_TEST: Duration = Duration::from_mins(1);

pub fn tell(scene: &mut Scene<'_>) -> Result<()> {
    let server = ServerSpec {
        self_test: SELF_TEST,
        ..ServerSpec::blank(STARTED, Firmware::SecureBoot)
    };
    let mac = format_mac(server.mac());
    scene.ready_box()?;
    scene.switch_server_on(&server)?;
    let host = scene.wait_status(
        "the server runs its own system",
        Duration::from_mins(9),
        |status| host_in(status, &mac, HostState::Running),
    )?;
    let ssh = scene.box_ssh();
    patch(&ssh, &host.name, &json!({"image": null}))?;
    let asked = Instant::now();
    // Whether its firmware has run, and which step that was: both are on the box's disk.
    let file = format!(
        "sudo cat /var/lib/firstlight/agent/hosts/{}.json",
        mac.replace(':', "-")
    );
    let ledger = |said: &str| -> Result<Value> { Ok(serde_json::from_str(said)?) };
    scene.wait_status(
        "its system starts the ramdisk",
        Duration::from_mins(4),
        |status| {
            let step = &find_host(status, &mac)?.step;
            step.contains("starts the ramdisk (kexec)").then_some(())
        },
    )?;
    scene.wait("the box waits for it", Duration::from_mins(1), |_| {
        let known = ledger(&ssh.run(&file)?)?;
        Ok((known["returns"] == true).then_some(()))
    })?;
    scene.wait_status(
        "its disks are clean, and it is free",
        Duration::from_mins(6),
        |status| host_in(status, &mac, HostState::Available),
    )?;
    scene.tell(format_args!(
        "from its system to a free server: {:.0} s",
        asked.elapsed().as_secs_f64()
    ));
    let known = ledger(&ssh.run(&file)?)?;
    ensure!(
        known["noKexec"].is_null() && known["returns"].is_null(),
        "its firmware has run, or no ramdisk came by kexec: {known}"
    );
    scene.nothing_leaked()
}
