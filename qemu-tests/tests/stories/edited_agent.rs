//! Somebody edits the agent and tries it: a box that goes on from its snapshot gets it in seconds, and is the same box.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, ensure};
use imagebuilder::build::settings::{find_cache, find_source};
use qemu_tests::figures;
use qemu_tests::scene::Scene;

/// A person's file of the crate.
const EDITED: &str = "agent/src/web/page.rs";

pub fn tell(scene: &mut Scene<'_>) -> Result<()> {
    // So that what is measured is the edit.
    compile()?;
    scene.ready_box()?;
    let boot = "cat /proc/sys/kernel/random/boot_id";
    let before = scene.box_ssh().run(boot)?;

    let edited = Instant::now();
    let file = find_source()?.join(EDITED);
    File::options()
        .append(true)
        .open(&file)
        .and_then(|file| file.set_modified(SystemTime::now()))
        .with_context(|| format!("editing {}", file.display()))?;
    let program = compile()?;
    figures::BASE_EDIT_COMPILED.record_time(edited.elapsed())?;
    scene.put_agent(&program)?;
    figures::BASE_EDIT.record_time(edited.elapsed())?;
    scene.tell(format_args!(
        "from the edit to an answer: {:.1} s",
        edited.elapsed().as_secs_f64()
    ));

    scene.wait_status("the box is ready", Duration::from_mins(2), |status| {
        status.ready.then_some(())
    })?;
    let ssh = scene.box_ssh();
    ensure!(ssh.run(boot)? == before, "the box started again");
    ssh.run("sudo kubectl create configmap kept --from-literal=after=snapshot")
        .context("Kubernetes of the box takes nothing")?;
    let ironic = ssh.run("sudo kubectl get pods -A --no-headers | grep ironic")?;
    ensure!(ironic.contains("1/1"), "Ironic: {ironic}");
    scene.nothing_leaked()
}

/// As a person does who works on it.
fn compile() -> Result<PathBuf> {
    let target = match std::env::var_os("CARGO_TARGET_DIR") {
        Some(folder) => PathBuf::from(folder),
        None => find_cache()?.join("target"),
    };
    let compiled = Command::new("cargo")
        .args(["build", "--quiet", "--locked", "-p", "firstlight-agent"])
        .current_dir(find_source()?)
        .env("CARGO_TARGET_DIR", &target)
        .status()
        .context("starting cargo")?;
    ensure!(compiled.success(), "cargo build: {compiled}");
    let program = target.join("debug/firstlight-agent");
    fs::metadata(&program).with_context(|| format!("looking at {}", program.display()))?;
    Ok(program)
}
