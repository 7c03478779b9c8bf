//! Two servers whose firmware takes a minute, under Secure Boot: one is restarted into its system by a rule, the system of the other is
//! started without the firmware.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use firstlight_api::status::{HostState, HostStatus};
use lab::wire::format_mac;
use lab::{Firmware, ServerSpec};
use qemu_tests::figures;
use qemu_tests::scene::{Scene, find_host, host_in};
use qemu_tests::site::{RESTARTED, RESTARTED_ARGUMENT, STARTED};

const SELF_TEST: Duration = Duration::from_mins(1);
/// `type_of_loader` of a kernel that was started by `kexec_file_load(2)`.
const BY_KEXEC: &str = "208";

pub fn tell(scene: &mut Scene<'_>) -> Result<()> {
    scene.ready_box()?;
    let kexec = install(scene, STARTED, true)?;
    figures::HOSTS_START_KEXEC.record_time(kexec)?;
    scene.switch_servers_off()?;
    let restart = install(scene, RESTARTED, false)?;
    figures::HOSTS_START_RESTART.record_time(restart)?;
    let ratio = kexec.as_secs_f64() / restart.as_secs_f64();
    figures::HOSTS_START_RATIO.record(ratio)?;
    scene.tell(format_args!(
        "image written to login: {:.0} s by kexec, {:.0} s by a restart, {ratio:.2} times",
        kexec.as_secs_f64(),
        restart.as_secs_f64()
    ));
    scene.nothing_leaked()
}

/// From the moment in which the image is on the disk to a login.
fn install(scene: &mut Scene<'_>, number: u8, by_kexec: bool) -> Result<Duration> {
    let server = ServerSpec {
        self_test: SELF_TEST,
        ..ServerSpec::blank(number, Firmware::SecureBoot)
    };
    let mac = format_mac(server.mac());
    scene.switch_server_on(&server)?;
    scene.wait_status(
        "the image is on the disk",
        Duration::from_mins(5),
        |status| {
            find_host(status, &mac)
                .filter(|host| is_written(host))
                .map(|_| ())
        },
    )?;
    let written = Instant::now();
    scene.wait_status(
        "the server runs its own system",
        Duration::from_mins(6),
        |status| host_in(status, &mac, HostState::Running),
    )?;
    let ssh = scene.host_ssh(&mac)?;
    let loader = scene.wait("a login on the server", Duration::from_mins(1), |_| {
        Ok(ssh.run("cat /proc/sys/kernel/bootloader_type").ok())
    })?;
    let took = written.elapsed();
    ensure!(
        (loader.trim() == BY_KEXEC) == by_kexec,
        "its kernel was started by a loader of type {loader}"
    );
    let command_line = ssh.run("cat /proc/cmdline").context("its command line")?;
    ensure!(
        command_line.contains(RESTARTED_ARGUMENT) != by_kexec,
        "the argument of the rule: {command_line}"
    );
    Ok(took)
}

fn is_written(host: &HostStatus) -> bool {
    let said = [
        "its image is on the disk",
        "its kernel is started",
        "restarting from its disk",
    ];
    said.iter().any(|said| host.step.starts_with(said))
}
