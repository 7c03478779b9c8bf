//! Nobody types a password: a server makes the box an account in its own BMC, and from then on the box switches it.

use std::num::NonZeroU16;
use std::time::Duration;

use anyhow::{Result, ensure};
use firstlight_api::status::HostState;
use lab::wire::format_mac;
use lab::{Firmware, ServerSpec};
use qemu_tests::bmc::{Bmc, Means};
use qemu_tests::scene::{Scene, host_in};
use serde_json::json;

use crate::bmc::{field, patch};

const REDFISH: NonZeroU16 = NonZeroU16::new(8000).expect("not zero");
/// Where every BMC speaks IPMI.
const IPMI: NonZeroU16 = NonZeroU16::new(623).expect("not zero");
const USER: &str = "firstlight";

pub fn tell(scene: &mut Scene<'_>) -> Result<()> {
    let server = ServerSpec::blank(2, Firmware::Uefi);
    let mac = format_mac(server.mac());
    scene.ready_box()?;
    let bmc = Bmc::connect(&scene.lab, server, REDFISH, Means::Network)?;
    let ipmi = bmc.speak_ipmi(IPMI)?;
    let ssh = scene.box_ssh();
    bmc.press_button()?;
    let host = scene.wait_status("the server shows up", Duration::from_mins(3), |status| {
        status.hosts.iter().find(|host| host.mac == mac).cloned()
    })?;
    let name = host.name;
    scene.wait("its object is there", Duration::from_mins(1), |_| {
        let word = "firstlight.internal/bmc-account=create";
        let said = ssh.run(&format!(
            "sudo kubectl annotate --overwrite bmh {name} {word}"
        ));
        Ok(said.ok())
    })?;
    let address = format!("ipmi://{}", scene.lab.desk_address());
    scene.wait("its BMC is named", Duration::from_mins(2), |_| {
        let said = field(&ssh, &name, "spec.bmc.address")?;
        Ok((said == address).then_some(()))
    })?;
    let secret = field(&ssh, &name, "spec.bmc.credentialsName")?;
    let password = ssh.run(&format!(
        "sudo kubectl get secret {secret} -o 'jsonpath={{.data.password}}' | base64 -d"
    ))?;
    ensure!(
        ipmi.lets_in(USER, &password)?,
        "its BMC does not know the account"
    );
    ensure!(!ipmi.lets_in(USER, "wrong")?, "its BMC lets anybody in");
    let logged = ssh.run(&format!(
        "sudo journalctl --no-pager | grep -cF -e '{password}' || true"
    ))?;
    ensure!(
        logged.trim() == "0",
        "the password is in the journal: {logged} lines"
    );

    scene.wait_status(
        "the server runs its own system",
        Duration::from_mins(6),
        |status| host_in(status, &mac, HostState::Running),
    )?;
    let starts = bmc.starts();
    // By somebody who can switch it on again.
    patch(
        &ssh,
        &name,
        &json!({"online": false, "disablePowerOff": false}),
    )?;
    scene.wait("it is off", Duration::from_mins(4), |_| {
        let said = field(&ssh, &name, "status.poweredOn")?;
        Ok((!bmc.is_on() && said == "false").then_some(()))
    })?;
    patch(&ssh, &name, &json!({"online": true}))?;
    scene.wait("it is on again", Duration::from_mins(3), |_| {
        Ok(bmc.is_on().then_some(()))
    })?;
    ensure!(bmc.starts() == starts + 1, "started {} times", bmc.starts());
    scene.nothing_leaked()
}
