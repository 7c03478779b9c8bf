//! Nobody goes to the rack: a server that is off is named with its BMC, and the box does the rest.

use std::num::NonZeroU16;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use firstlight_api::status::{HostPower, HostState};
use lab::wire::format_mac;
use lab::{Firmware, ServerSpec};
use qemu_tests::bmc::{Bmc, Means, PASSWORD, USER};
use qemu_tests::scene::{Scene, find_host, host_in, installs};
use qemu_tests::ssh::Ssh;
use qemu_tests::typed::Desk;
use serde_json::json;

const HOST: &str = "rack-2";
const FENCE: &str = "reboot.metal3.io/fence";
const REDFISH: NonZeroU16 = NonZeroU16::new(8000).expect("not zero");
const IPMI: NonZeroU16 = NonZeroU16::new(6230).expect("not zero");

pub fn tell(scene: &mut Scene<'_>) -> Result<()> {
    let server = ServerSpec::blank(2, Firmware::Uefi);
    let mac = format_mac(server.mac());
    scene.ready_box()?;
    let bmc = Bmc::connect(&scene.lab, server, REDFISH, Means::Network)?;
    let ssh = scene.box_ssh();

    give_password(&ssh, HOST, "wrong")?;
    let host = json!({
        "apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
        "metadata": {"name": HOST, "namespace": "default"},
        "spec": {"bootMACAddress": mac, "online": true,
            "bmc": {"address": bmc.address(), "credentialsName": HOST}},
    });
    apply(&ssh, &host)?;
    scene.wait_status(
        "the password is refused",
        Duration::from_mins(1),
        |status| {
            let problem = find_host(status, &mac)?.problem.as_ref()?;
            problem.what.contains("refuses the user").then_some(())
        },
    )?;
    let kind = field(&ssh, HOST, "status.errorType")?;
    ensure!(kind == "registration error", "errorType: {kind}");
    ensure!(!bmc.is_on(), "it was started by one who is refused");

    give_password(&ssh, HOST, PASSWORD)?;
    scene.wait("its BMC starts it", Duration::from_mins(1), |_| {
        Ok(bmc.is_on().then_some(()))
    })?;
    let host = scene.wait_status(
        "the server runs its own system",
        Duration::from_mins(6),
        |status| host_in(status, &mac, HostState::Running),
    )?;
    ensure!(host.name == HOST, "the host is called {}", host.name);
    ensure!(installs(&host) == 1, "its history: {:#?}", host.history);
    let system = scene.host_ssh(&mac)?;
    let first = boot_id(scene, &system)?;

    let desk = Desk::new(scene)?;
    let listed = desk.hosts(&["list"])?;
    ensure!(
        listed.contains(&mac) && listed.contains("running"),
        "{listed}"
    );
    let why = desk.refused(&["retry", HOST])?;
    ensure!(why.contains("no step of it has failed"), "retry: {why}");
    // Its name may be short.
    desk.hosts(&["power", "off", "rack", "--yes"])?;
    is_off(scene, &bmc, &ssh)?;
    let shown = desk.show(HOST)?;
    ensure!(shown.control.power == HostPower::Off, "{shown:#?}");
    let starts = bmc.starts();
    desk.hosts(&["power", "on", HOST])?;
    let second = runs_again(scene, &mac, &system, &first)?;
    ensure!(bmc.starts() == starts + 1, "started {} times", bmc.starts());

    ssh.run(&format!(
        "sudo kubectl annotate bmh {HOST} reboot.metal3.io="
    ))?;
    let third = runs_again(scene, &mac, &system, &second)?;
    ensure!(bmc.starts() == starts + 2, "started {} times", bmc.starts());
    scene.wait("the annotation is gone", Duration::from_secs(30), |_| {
        let said = field(&ssh, HOST, "metadata.annotations")?;
        Ok((!said.contains("reboot.metal3.io")).then_some(()))
    })?;

    // Its owner would rather have it switched by IPMI; hard, so that it is the BMC who does it.
    let ipmi = bmc.speak_ipmi(IPMI)?;
    patch(&ssh, HOST, &json!({"bmc": {"address": ipmi.address()}}))?;
    ssh.run(&format!(
        "sudo kubectl annotate bmh {HOST} '{FENCE}={{\"mode\": \"hard\"}}'"
    ))?;
    is_off(scene, &bmc, &ssh)?;
    ssh.run(&format!("sudo kubectl annotate bmh {HOST} {FENCE}-"))?;
    runs_again(scene, &mac, &system, &third)?;
    ensure!(bmc.starts() == starts + 3, "started {} times", bmc.starts());

    let host = find_host(scene.status(), &mac).context("the status does not list the host")?;
    let history = host.history.iter();
    let writes = history.filter(|event| event.state == HostState::Provisioning);
    ensure!(writes.count() == 1, "its history: {:#?}", host.history);
    scene.nothing_leaked()
}

fn is_off(scene: &mut Scene<'_>, bmc: &Bmc, ssh: &Ssh) -> Result<()> {
    scene.wait("it is off", Duration::from_mins(4), |_| {
        let said = field(ssh, HOST, "status.poweredOn")?;
        Ok((!bmc.is_on() && said == "false").then_some(()))
    })
}

/// Waits for a login on the server after another start than `before`; returns which.
fn runs_again(scene: &mut Scene<'_>, mac: &str, system: &Ssh, before: &str) -> Result<String> {
    let now = scene.wait("it has started again", Duration::from_mins(3), |_| {
        let now = boot_id_of(system).ok();
        Ok(now.filter(|now| now != before))
    })?;
    scene.wait_status("the box sees it run", Duration::from_mins(1), |status| {
        host_in(status, mac, HostState::Running)
    })?;
    Ok(now)
}

fn boot_id(scene: &mut Scene<'_>, system: &Ssh) -> Result<String> {
    scene.wait("a login on the server", Duration::from_mins(1), |_| {
        Ok(boot_id_of(system).ok())
    })
}

fn boot_id_of(system: &Ssh) -> Result<String> {
    system.run("cat /proc/sys/kernel/random/boot_id")
}

/// Of the BMC of `host`.
pub fn give_password(ssh: &Ssh, host: &str, password: &str) -> Result<()> {
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": host, "namespace": "default"},
        "stringData": {"username": USER, "password": password},
    });
    apply(ssh, &secret)
}

pub fn apply(ssh: &Ssh, object: &serde_json::Value) -> Result<()> {
    ssh.run(&format!("sudo kubectl apply -f - <<'EOF'\n{object}\nEOF"))
        .map(drop)
}

pub fn patch(ssh: &Ssh, host: &str, spec: &serde_json::Value) -> Result<()> {
    let patch = json!({"spec": spec});
    ssh.run(&format!(
        "sudo kubectl patch bmh {host} --type merge -p '{patch}'"
    ))
    .map(drop)
}

pub fn field(ssh: &Ssh, host: &str, path: &str) -> Result<String> {
    ssh.run(&format!(
        "sudo kubectl get bmh {host} -o 'jsonpath={{.{path}}}'"
    ))
}
