//! `firstlight install` on somebody's Debian machine: what it refuses, that the box is ready by the same check as a stick's,
//! that nothing changes the second time, a power cut, and the way back.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use firstlight_api::status::HostState;
use imagebuilder::build::cache::Reuse;
use imagebuilder::build::machine::{Machine, MachineSpec, make_machine};
use imagebuilder::build::progress::Progress;
use imagebuilder::build::settings::{Settings, find_cache, find_source};
use lab::wire::format_mac;
use lab::{BOX_MAC, Firmware, ServerSpec};
use qemu_tests::scene::{Scene, host_in, step_done};
use qemu_tests::ssh::Ssh;

const INSTALL: &str = "sudo /srv/firstlight install";
const IMAGE: &str = "/srv/firstlight.img";
/// All that is a machine's own and might be touched.
const OWN: &str = "sudo sha256sum /etc/hostname /etc/hosts /etc/fstab /etc/passwd /etc/chrony/chrony.conf /etc/ssh/sshd_config; ls /etc/systemd/system /usr/bin";

pub fn tell(scene: &mut Scene<'_>) -> Result<()> {
    let machine = make(scene)?;
    scene.switch_machine_on(&machine)?;
    let ssh = scene.box_ssh();
    scene.wait("a login on the machine", Duration::from_mins(2), |_| {
        Ok(ssh.run("true").ok())
    })?;
    let before = ssh.run(OWN)?;

    refusals(scene, &ssh)?;
    ensure!(ssh.run(OWN)? == before, "a refusal changed the machine");
    ssh.run("! test -e /var/lib/firstlight")?;

    become_a_box(scene, &ssh)?;
    second_run(scene, &ssh)?;
    serves(scene)?;

    scene.cut_box_power()?;
    scene.switch_machine_on(&machine)?;
    ready(scene, "the box is ready again")?;

    let said = ssh.run(&format!("{INSTALL} --remove"))?;
    scene.tell(&said);
    ensure!(
        ssh.run(OWN)? == before_with_users(&before, &ssh)?,
        "the machine is not what it was"
    );
    ensure!(
        ssh.run("sudo ls /var/lib/firstlight/pki")?
            .contains("ca.key"),
        "the state is gone"
    );
    ssh.run("! grep firstlight /proc/mounts && ! pgrep --list-name 'containerd|kube|firstlight'")
        .context("something of the box is still there")?;
    scene.nothing_leaked()
}

/// The users stay, because files of the state are theirs; everything else is as it was.
fn before_with_users(before: &str, ssh: &Ssh) -> Result<String> {
    let passwd = ssh.run("sudo sha256sum /etc/passwd")?;
    let lines = before.lines().map(|line| {
        if line.ends_with(" /etc/passwd") {
            &passwd
        } else {
            line
        }
    });
    Ok(lines.collect::<Vec<_>>().join("\n"))
}

/// Debian, with the image and our program in `/srv`.
fn make(scene: &Scene<'_>) -> Result<Machine> {
    let dir = scene.lab.dir();
    let files = dir.join("files");
    let (srv, keys) = (files.join("srv"), files.join("etc/ssh/authorized_keys"));
    for folder in [&srv, &keys] {
        fs::create_dir_all(folder)?;
    }
    let site = scene.site();
    let public = fs::read_to_string(site.key.with_extension("pub"))?;
    fs::write(keys.join("admin"), &public)?;
    let text = format!(
        "name: tests\ncluster: none\nprovisioning:\n  interface: {}\nsshKeys:\n  - {}\n",
        format_mac(BOX_MAC),
        public.trim()
    );
    fs::write(srv.join("site.yaml"), text)?;
    place(&site.image, &srv.join("firstlight.img"))?;
    place(&program()?, &srv.join("firstlight"))?;
    let source = find_source()?;
    let settings = Settings {
        cache: find_cache()?,
        output: site.image.clone(),
        mirror: None,
        site: None,
        kubernetes: Vec::new(),
        sign: None,
        trust: None,
        debian: Reuse::Cached,
        source: source.clone(),
    };
    let spec = MachineSpec {
        recipe: &source.join("qemu-tests/debian"),
        files: &files,
        gib: 12,
    };
    make_machine(&settings, Progress::detect(), &spec, dir)
}

fn place(from: &Path, to: &Path) -> Result<()> {
    fs::hard_link(from, to)
        .or_else(|_| fs::copy(from, to).map(drop))
        .with_context(|| format!("placing {}", from.display()))
}

/// `firstlight`, as this workspace builds it.
fn program() -> Result<PathBuf> {
    let built = Command::new(env!("CARGO"))
        .args([
            "build",
            "--quiet",
            "--package",
            "imagebuilder",
            "--bin",
            "firstlight",
        ])
        .current_dir(find_source()?)
        .status()
        .context("starting cargo")?;
    ensure!(built.success(), "cargo build: {built}");
    let me = std::env::current_exe()?;
    let folder = me.ancestors().nth(2).context("the folder of programs")?;
    Ok(folder.join("firstlight"))
}

fn refusals(scene: &Scene<'_>, ssh: &Ssh) -> Result<()> {
    refused(scene, ssh, "/etc/hostname", &["no readable GPT"])?;
    // The image's own site.yaml leaves the choice of the NIC to the box.
    refused(scene, ssh, IMAGE, &["does not say which NIC"])?;
    ssh.run("sudo touch /usr/bin/kubectl")?;
    ssh.run("sudo systemd-run --quiet --unit=somebody systemd-socket-activate --listen=80 cat")?;
    let both = [
        "/usr/bin/kubectl: is there already",
        "port tcp/80: systemd-",
    ];
    refused(scene, ssh, &format!("--site /srv/site.yaml {IMAGE}"), &both)?;
    ssh.run("sudo systemctl stop somebody; sudo rm /usr/bin/kubectl")
        .map(drop)
}

fn refused(scene: &Scene<'_>, ssh: &Ssh, arguments: &str, reasons: &[&str]) -> Result<()> {
    let said = ssh.run(&format!("{INSTALL} {arguments} 2>&1; echo exit code $?"))?;
    for reason in reasons.iter().chain(&["exit code 1"]) {
        ensure!(
            said.contains(reason),
            "`{reason}` was expected, it said:\n{said}"
        );
    }
    scene.tell(format_args!("refused: {}", reasons.join(", ")));
    Ok(())
}

/// In the background, because it takes minutes; its last line is for the person who waits.
fn become_a_box(scene: &mut Scene<'_>, ssh: &Ssh) -> Result<()> {
    let arguments = format!("install --site /srv/site.yaml {IMAGE}");
    ssh.run(&format!("sudo systemd-run --quiet --unit=install --property=RemainAfterExit=yes /srv/firstlight {arguments}"))?;
    let failed = |ssh: &Ssh| ssh.run("systemctl is-failed install.service").is_ok();
    scene.wait("the page answers", Duration::from_mins(3), |scene| {
        if failed(ssh) {
            bail!(
                "{}",
                ssh.run("sudo journalctl --unit=install --output=cat")?
            );
        }
        Ok(scene.page_answers().then_some(()))
    })?;
    ready(scene, "the box is ready")?;
    scene.wait("the program says so", Duration::from_secs(20), |_| {
        let said = ssh.run("sudo journalctl --unit=install --output=cat")?;
        Ok(said
            .contains("The box is ready. Its page: http://172.22.0.1/")
            .then_some(()))
    })?;
    let nodes = ssh.run("sudo kubectl get nodes --no-headers")?;
    ensure!(
        nodes.lines().count() == 1 && nodes.contains(" Ready "),
        "kubectl get nodes: {nodes}"
    );
    ensure!(
        ssh.run("hostname")? == "somebodys-server",
        "the machine has another name"
    );
    Ok(())
}

/// What a stick's box is measured by.
fn ready(scene: &mut Scene<'_>, title: &str) -> Result<()> {
    for (step, title) in [("node", "the node is Ready"), ("ironic", "Ironic answers")] {
        scene.wait_status(title, Duration::from_mins(3), |status| {
            step_done(status, step).then_some(())
        })?;
    }
    scene.wait_status(title, Duration::from_mins(1), |status| {
        status.ready.then_some(())
    })
}

fn second_run(scene: &Scene<'_>, ssh: &Ssh) -> Result<()> {
    let changed =
        "sudo find /etc /usr /firstlight /var/lib/firstlight/layers -newer /tmp/mark | head";
    ssh.run("touch /tmp/mark")?;
    let said = ssh.run(&format!("{INSTALL} {IMAGE}"))?;
    ensure!(said.contains("The box is ready"), "it said: {said}");
    let changed = ssh.run(changed)?;
    ensure!(changed.is_empty(), "the second run changed\n{changed}");
    scene.tell("the second run changed nothing");
    Ok(())
}

/// A server finds the box as it finds one from a stick.
fn serves(scene: &mut Scene<'_>) -> Result<()> {
    let server = ServerSpec::blank(1, Firmware::Bios);
    scene.switch_server_on(&server)?;
    let mac = format_mac(server.mac());
    scene.wait_status(
        "the server runs its own system",
        Duration::from_mins(5),
        |status| host_in(status, &mac, HostState::Running),
    )?;
    scene.switch_servers_off()
}
