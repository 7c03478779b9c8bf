//! What arrives changed starts no server: under Secure Boot GRUB refuses another kernel, and another initramfs is measured, so that the box
//! does not believe whoever was started with it.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use firstlight_api::status::{HostState, MeasuredBootStatus};
use lab::wire::format_mac;
use lab::{Firmware, ServerSpec};
use qemu_tests::scene::{Scene, find_host};

const FOLDER: &str = "/usr/share/firstlight/netboot";

pub fn tell(scene: &mut Scene<'_>) -> Result<()> {
    let [whole, without, measured] = [2, 3, 4].map(|number| ServerSpec {
        tpm: true,
        ..ServerSpec::blank(number, Firmware::SecureBoot)
    });
    scene.ready_box()?;
    // From here on the box knows what it serves.
    is_measured(scene, &whole)?;

    change(
        scene,
        "vmlinuz",
        "printf XXXXXXXXXXXXXXXX | dd of=/run/changed bs=1 seek=4000000 conv=notrunc status=none",
    )?;
    scene.switch_server_on(&without)?;
    let what = "the page tells of a kernel that is refused";
    scene.wait_status(what, Duration::from_mins(4), |status| {
        let mut problems = status.problems.iter();
        let told = problems.find(|problem| problem.what.contains("loads the kernel again"))?;
        told.next.contains("bad shim signature").then_some(())
    })?;
    never_spoke(scene, &without)?;
    scene.switch_server_off(&without)?;
    restore(scene, "vmlinuz")?;

    // The kernel passes over zeros behind an archive.
    change(
        scene,
        "initrd",
        "dd if=/dev/zero bs=512 count=1 status=none >>/run/changed",
    )?;
    scene.switch_server_on(&measured)?;
    let mac = format_mac(measured.mac());
    let what = "a server that another initramfs has started is not believed";
    scene.wait_status(what, Duration::from_mins(5), |status| {
        let problem = find_host(status, &mac)?.problem.as_ref()?;
        let altered = "was started by something else than what this box serves";
        problem.what.contains(altered).then_some(())
    })?;
    let host = find_host(scene.status(), &mac).context("the host is gone")?;
    ensure!(
        host.state == HostState::Discovered,
        "it went on: {:?}",
        host.state
    );
    scene.switch_server_off(&measured)?;
    restore(scene, "initrd")?;
    is_measured(scene, &measured)?;
    scene.nothing_leaked()
}

/// It comes up, and its TPM vouches for how it did.
fn is_measured(scene: &mut Scene<'_>, server: &ServerSpec) -> Result<()> {
    let mac = format_mac(server.mac());
    scene.switch_server_on(server)?;
    let what = "a server that was started by what the box serves is believed";
    scene.wait_status(what, Duration::from_mins(5), |status| {
        let hardware = find_host(status, &mac)?.hardware.as_ref()?;
        let measured = MeasuredBootStatus::Measured { secure_boot: true };
        (hardware.measured_boot == measured).then_some(())
    })?;
    scene.switch_server_off(server)
}

fn never_spoke(scene: &Scene<'_>, server: &ServerSpec) -> Result<()> {
    let host = find_host(scene.status(), &format_mac(server.mac()));
    ensure!(
        host.is_none_or(|host| host.hardware.is_none()),
        "a ramdisk has reported"
    );
    Ok(())
}

/// `how`: changes `/run/changed`, which takes the file's place.
fn change(scene: &Scene<'_>, name: &str, how: &str) -> Result<()> {
    let script = format!(
        "sudo sh -euc '
            cp {FOLDER}/{name} /run/changed
            {how}
            chmod 644 /run/changed
            mount --bind /run/changed {FOLDER}/{name}'"
    );
    scene.box_ssh().run(&script).map(drop)
}

/// The box may still hold the file open for the server that it gave it to.
fn restore(scene: &Scene<'_>, name: &str) -> Result<()> {
    let script = format!("sudo sh -euc 'umount --lazy {FOLDER}/{name}; rm /run/changed'");
    scene.box_ssh().run(&script).map(drop)
}
