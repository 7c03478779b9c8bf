//! No PXE reaches this server: its BMC starts it from a CD that the box makes.

use std::num::NonZeroU16;
use std::time::Duration;

use anyhow::{Result, ensure};
use firstlight_api::status::HostState;
use lab::wire::format_mac;
use lab::{Firmware, ServerSpec};
use qemu_tests::bmc::{Bmc, Means, PASSWORD};
use qemu_tests::scene::{Scene, host_in, installs};
use serde_json::json;

use crate::bmc::{apply, give_password};

const HOST: &str = "edge-2";
const REDFISH: NonZeroU16 = NonZeroU16::new(8000).expect("not zero");

pub fn tell(scene: &mut Scene<'_>) -> Result<()> {
    let server = ServerSpec::blank(2, Firmware::SecureBoot);
    let mac = format_mac(server.mac());
    scene.ready_box()?;
    let bmc = Bmc::connect(&scene.lab, server, REDFISH, Means::Cd)?;
    let ssh = scene.box_ssh();
    give_password(&ssh, HOST, PASSWORD)?;
    let host = json!({
        "apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
        "metadata": {"name": HOST, "namespace": "default"},
        "spec": {"bootMACAddress": mac, "online": true,
            "bmc": {"address": bmc.address(), "credentialsName": HOST}},
    });
    apply(&ssh, &host)?;
    scene.wait("its BMC has the CD", Duration::from_mins(3), |_| {
        Ok((bmc.is_on() && bmc.has_cd()).then_some(()))
    })?;
    let host = scene.wait_status(
        "the server runs its own system",
        Duration::from_mins(6),
        |status| host_in(status, &mac, HostState::Running),
    )?;
    ensure!(host.name == HOST, "the host is called {}", host.name);
    ensure!(installs(&host) == 1, "its history: {:#?}", host.history);
    scene.wait("the CD is taken out", Duration::from_mins(1), |_| {
        Ok((!bmc.has_cd()).then_some(()))
    })?;
    scene.nothing_leaked()
}
