//! Somebody plugs a router into the site that leases addresses, long after the box has come up: the box tells of it and falls silent, and
//! serves again once it is gone.

use std::time::Duration;

use anyhow::{Result, ensure};
use firstlight_api::status::{DhcpMode, HostState};
use lab::wire::format_mac;
use lab::{Firmware, ServerSpec};
use qemu_tests::scene::{Scene, find_host, host_in};

pub fn tell(scene: &mut Scene<'_>) -> Result<()> {
    let [early, late] = [2, 3].map(|number| ServerSpec::blank(number, Firmware::Bios));
    let [first, second] = [&early, &late].map(|server| format_mac(server.mac()));
    scene.ready_box()?;

    let router = scene.lab.plug_router_in()?;
    // Whoever boots first is answered by both, and the box hears the other one.
    scene.switch_server_on(&early)?;
    let what = "the box tells of the other DHCP server and is silent beside it";
    let problem = scene.wait_status(what, Duration::from_mins(7), |status| {
        let is_silent = matches!(status.network.dhcp, DhcpMode::Silent { .. });
        let leases = "leases addresses on the provisioning network";
        let mut problems = status.problems.iter();
        let told = problems.find(|problem| problem.what.contains(leases))?;
        is_silent.then(|| told.what.clone())
    })?;
    scene.tell(problem);
    scene.switch_server_off(&early)?;

    scene.switch_server_on(&late)?;
    let answers = |scene: &Scene<'_>| {
        let mut answers = scene.lab.wire().report().dhcp_answers;
        answers.remove(&late.mac()).unwrap_or_default()
    };
    let what = "the other DHCP server answers the late server";
    scene.wait(what, Duration::from_mins(2), |scene| {
        let answers = answers(scene);
        Ok((!answers.is_empty()).then_some(()))
    })?;
    scene.switch_server_off(&late)?;

    drop(router);
    let what = "the box serves again once the other server is gone";
    scene.wait_status(what, Duration::from_mins(12), |status| {
        (status.network.dhcp == DhcpMode::Serving).then_some(())
    })?;
    // Whatever was late is there by now.
    let answers = answers(scene);
    ensure!(
        !answers.contains(&scene.lab.box_address()),
        "the box has answered {second} while it was silent: {answers:?}"
    );
    let is_known = find_host(scene.status(), &second).is_some();
    ensure!(!is_known, "the box knows {second}, which it left alone");
    scene.switch_server_on(&early)?;
    scene.wait_status(
        "the early server boots from the box",
        Duration::from_mins(5),
        |status| host_in(status, &first, HostState::Inspecting).map(drop),
    )?;
    scene.nothing_leaked()
}
