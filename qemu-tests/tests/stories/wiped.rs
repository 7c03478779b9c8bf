//! A site ends: its box is told so by name, switches its machine off, and has nothing of the site on its stick, which then raises another
//! one. Without a TPM, so that all of the state has to be written over.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use imagebuilder::UsageError;
use lab::BoxSpec;
use qemu_tests::scene::Scene;
use qemu_tests::typed::Desk;

use super::sealed::{KEYS, not_on_stick};

const CANARY: &str = "a-canary-of-c01e55d7";

pub fn tell(scene: &mut Scene<'_>) -> Result<()> {
    // The state is what is left of it, and written once.
    let spec = BoxSpec {
        stick_gib: 6,
        ..BoxSpec::default()
    };
    scene.switch_box_on(&spec)?;
    let name = scene.wait_status("the box is ready", Duration::from_mins(5), |status| {
        status.ready.then(|| status.site.clone())
    })?;
    scene.box_ssh().run(&format!(
        "sudo kubectl create configmap kept --from-literal=of={CANARY} && sync"
    ))?;
    let certificate = scene
        .box_ssh()
        .run("sudo sed -n 3p /var/lib/firstlight/pki/ca.crt")?;
    ensure!(
        not_on_stick(scene, &[CANARY]).is_err(),
        "what is looked for would not be found"
    );

    let desk = Desk::new(scene)?;
    let refused = desk.types(&["wipe-site", "another-site"]).err();
    let refused = refused.context("the box of another site was wiped")?;
    ensure!(refused.is::<UsageError>(), "{refused:#}");
    let said = desk.types(&["wipe-site", &name])?;
    scene.tell(said.trim());
    scene.wait_box_off(Duration::from_mins(8))?;
    not_on_stick(scene, &[&[CANARY, certificate.trim()], &KEYS[..]].concat())?;

    scene.switch_box_on(&spec)?;
    let now = scene.wait_status(
        "another site's box is ready",
        Duration::from_mins(5),
        |status| status.ready.then(|| status.site.clone()),
    )?;
    ensure!(now != name, "its site.yaml is there");
    scene.nothing_leaked()
}
