//! The state of a box with a TPM: it opens by itself over a power cut; where the command line was changed, and in another machine, the
//! console asks for the recovery key and says why; on the stick nothing of it is in clear. A layer of the system that was changed is not used.

use std::fs::File;
use std::io::Read as _;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use lab::{BoxSpec, Firmware};
use qemu_tests::figures;
use qemu_tests::scene::Scene;
use qemu_tests::typed::Desk;

/// In an object of the box's Kubernetes, and so in etcd.
const CANARY: &str = "a-canary-of-7b1d90c2";
/// Of private keys, as the box keeps them.
pub const KEYS: [&str; 2] = ["BEGIN PRIVATE KEY", "BEGIN OPENSSH PRIVATE KEY"];
const EDIT: &str = "sudo mount LABEL=ESP /mnt && sudo sed -i s/panic=30/panic=31/ /mnt/boot/a/boot.cfg && sudo umount /mnt && sudo sync";
/// The first block of the top layer, behind the slot's table.
/// As many bytes as are no accident: one of a layer may be what it is changed to.
const FLIP: &str = "printf XXXXXXXXXXXXXXXX | sudo dd of=/dev/disk/by-partlabel/system-a bs=1 seek=4300 conv=notrunc,fsync status=none";
const RENEW: &str = "sudo /usr/lib/firstlight/firstlight-update seal renew";

pub fn tell(scene: &mut Scene<'_>) -> Result<()> {
    let spec = BoxSpec {
        firmware: Firmware::SecureBoot,
        tpm: true,
        ..BoxSpec::default()
    };
    let sealed = first_boot(scene, &spec)?;
    ensure!(status(scene)?.contains(r#""bound":"machine","recoveryKey":false"#));
    scene.box_ssh().run(&format!(
        "sudo kubectl create configmap kept --from-literal=of={CANARY}"
    ))?;
    let key = Desk::new(scene)?.types(&["seal"])?.trim().to_owned();
    ensure!(key.len() > 64, "no recovery key");

    restart(scene, &spec)?;
    ready(scene, "the TPM has opened the state")?;
    ensure!(status(scene)?.contains(r#""bound":"start","recoveryKey":true"#));

    scene.box_ssh().run(EDIT)?;
    restart(scene, &spec)?;
    asked(scene, "the kernel's command line is another one", &key)?;
    let told = scene.wait_status("the page says why", Duration::from_mins(1), |status| {
        let found = status
            .problems
            .iter()
            .find(|it| it.what.contains("did not open it"));
        found.map(|problem| problem.what.clone())
    })?;
    scene.tell(told);
    let newer = scene.box_ssh().run(&format!("echo {key} | {RENEW}"))?;
    restart(scene, &spec)?;
    ready(scene, "what runs now is what it is sealed to")?;

    scene.cut_box_power()?;
    not_on_stick(scene, &[&[CANARY, key.as_str()], &KEYS[..]].concat())?;
    scene.lab.lose_tpm()?;
    scene.switch_box_on(&spec)?;
    asked(
        scene,
        "it is another machine's, or it was cleared",
        newer.trim(),
    )?;
    scene.box_ssh().run("sudo kubectl get configmap kept")?;

    scene.cut_box_power()?;
    scene.lab.lose_stick()?;
    let spec = BoxSpec { tpm: false, ..spec };
    let plain = first_boot(scene, &spec)?;
    let told = status(scene)?;
    ensure!(
        told.contains(r#""rootOfTrust":"none","reason":"this machine has no TPM""#),
        "{told}"
    );
    let ratio = sealed.as_secs_f64() / plain.as_secs_f64();
    figures::YEARS_SEALED.record(ratio)?;
    scene.tell(format_args!(
        "first boot: {} s, and {} s without a TPM",
        sealed.as_secs(),
        plain.as_secs()
    ));

    scene.box_ssh().run(FLIP)?;
    restart(scene, &spec)?;
    let limit = scene.lab.limit(Duration::from_mins(2));
    scene
        .box_console()?
        .wait_for("mounting layer agent", limit)?;
    scene.nothing_leaked()
}

fn first_boot(scene: &mut Scene<'_>, spec: &BoxSpec) -> Result<Duration> {
    let began = scene.switch_box_on(spec)?;
    ready(scene, "the box is ready")?;
    Ok(began.elapsed())
}

fn restart(scene: &mut Scene<'_>, spec: &BoxSpec) -> Result<()> {
    scene.cut_box_power()?;
    scene.switch_box_on(spec).map(drop)
}

/// For the recovery key, at the console.
fn asked(scene: &mut Scene<'_>, why: &str, key: &str) -> Result<()> {
    let limit = scene.lab.limit(Duration::from_mins(3));
    let console = scene.box_console()?;
    console.wait_for(why, limit)?;
    console.wait_for("(?i)(passphrase|recovery key) for", limit)?;
    console.type_line(key)?;
    ready(scene, "the recovery key has opened the state")
}

fn status(scene: &Scene<'_>) -> Result<String> {
    Desk::new(scene)?.types(&["seal", "--status"])
}

fn ready(scene: &mut Scene<'_>, what: &str) -> Result<()> {
    scene.wait_status(what, Duration::from_mins(5), |status| {
        status.ready.then_some(())
    })
}

/// Whoever reads the stick finds none of them. Its file has the bytes of the disk as they are.
pub fn not_on_stick(scene: &Scene<'_>, words: &[&str]) -> Result<()> {
    let pattern = words.iter().map(|word| regex::escape(word));
    let pattern = regex::bytes::Regex::new(&pattern.collect::<Vec<_>>().join("|"))?;
    let overlap = words
        .iter()
        .map(|word| word.len())
        .max()
        .unwrap_or_default();
    let mut stick = File::open(scene.lab.stick())?;
    let mut window = Vec::new();
    let mut piece = vec![0; 4 << 20];
    loop {
        let count = stick.read(&mut piece)?;
        if count == 0 {
            return Ok(());
        }
        window.extend_from_slice(&piece[..count]);
        if let Some(found) = pattern.find(&window) {
            let what = String::from_utf8_lossy(found.as_bytes());
            bail!("`{what}` is on the stick in clear");
        }
        window.drain(..window.len().saturating_sub(overlap));
    }
}
