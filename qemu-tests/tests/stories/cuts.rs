//! One server, and every part of its installation dies once at a moment of our choice: the API server, the agent, the ramdisk, Ironic, and
//! at last the box. It comes to its system, and what was whole is not written again.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use firstlight_api::status::{HostState, SiteStatus};
use lab::wire::format_mac;
use lab::{BoxSpec, Firmware, ServerSpec};
use qemu_tests::scene::{Scene, find_host, host_in};

/// The container has no unit of its own; the pattern does not match the shell that looks.
const KILL_IRONIC: &str = "for pid in $(grep -l launch[.]py /proc/[0-9]*/cmdline | cut -d/ -f3); do sudo kill -KILL $pid; done";

pub fn tell(scene: &mut Scene<'_>) -> Result<()> {
    let server = ServerSpec::blank(2, Firmware::Uefi);
    let mac = format_mac(server.mac());
    scene.ready_box()?;
    scene.switch_server_on(&server)?;

    scene.wait_status("it is inspected", Duration::from_mins(3), |status| {
        host_in(status, &mac, HostState::Inspecting)
    })?;
    kill_unit(scene, "kube-apiserver")?;
    scene.wait_for_write(&mac, Duration::from_mins(5))?;
    kill_unit(scene, "firstlight-agent")?;
    let of_first = scene.wait_status("the write goes on", Duration::from_mins(2), |status| {
        find_host(status, &mac)?.percent.filter(|done| *done > 40)
    })?;
    ensure!(of_first < 100, "too fast for a cut");
    scene.cut_server_power(&server)?;
    scene.switch_server_on(&server)?;

    let anew = "it is written from the beginning";
    scene.wait_status(anew, Duration::from_mins(5), |status| {
        find_host(status, &mac)?.percent.filter(|done| *done < 40)
    })?;
    scene.box_ssh().run(KILL_IRONIC).context("killing Ironic")?;
    scene.tell("Ironic: killed");
    scene.wait_status("the image is whole", Duration::from_mins(10), |status| {
        let step = &find_host(status, &mac)?.step;
        step.starts_with("its image is on the disk").then_some(())
    })?;
    scene.cut_box_power()?;

    scene.switch_box_on(&BoxSpec::default())?;
    let again = scene.wait_status("its system runs", Duration::from_mins(8), |status| {
        let runs = host_in(status, &mac, HostState::Running).map(|_| false);
        runs.or_else(|| is_written(status, &mac).then_some(true))
    })?;
    ensure!(!again, "what was whole is written again");
    let ssh = scene.host_ssh(&mac)?;
    scene.wait("a login on the server", Duration::from_mins(1), |_| {
        Ok(ssh.run("true").ok())
    })?;
    scene.nothing_leaked()
}

fn kill_unit(scene: &Scene<'_>, unit: &str) -> Result<()> {
    let kill = format!("sudo systemctl kill --signal=KILL {unit}");
    scene.box_ssh().run(&kill)?;
    scene.tell(format_args!("{unit}: killed"));
    Ok(())
}

fn is_written(status: &SiteStatus, mac: &str) -> bool {
    find_host(status, mac).is_some_and(|host| host.step.starts_with("writing"))
}
