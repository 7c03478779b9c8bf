//! The box gets another version of its system: a good one, which stays over a power cut, and one whose agent does not start, from which
//! it goes back by itself.

use std::fs::{self, File, Permissions};
use std::net::SocketAddr;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use firstlight_api::boot_choice::TRIAL_WORD;
use firstlight_api::digest::Sha256Digest;
use firstlight_api::slot::{Layer, LayerContent, SystemContent, format_table};
use firstlight_api::status::SiteStatus;
use imagebuilder::build::cache::digest_file;
use imagebuilder::build::squashfs::add_tree;
use imagebuilder::disk::{gpt, place_file};
use imagebuilder::inspect::load_slot;
use imagebuilder::signing::Signer;
use imagebuilder::unpack;
use lab::{BoxSpec, Firmware};
use qemu_tests::figures;
use qemu_tests::scene::Scene;
use qemu_tests::typed::Desk;

const AGENT: &str = "agent";
const GOOD: &str = "0.9.1";
const BAD: &str = "0.9.2";

/// A good one, under Secure Boot, with its state sealed to what it starts.
pub fn stays(scene: &mut Scene<'_>) -> Result<()> {
    let image = other_image(scene, GOOD, |_| Ok(()))?;
    let spec = BoxSpec {
        firmware: Firmware::SecureBoot,
        tpm: true,
        ..BoxSpec::default()
    };
    scene.switch_box_on(&spec)?;
    ready(scene, "the box is ready")?;
    let desk = Desk::new(scene)?;
    create(scene, "of-before")?;
    // From here on the TPM opens nothing to a system that it does not expect.
    desk.types(&["seal"])?;
    let said = desk.types(&["update", "--status"])?;
    ensure!(
        said.starts_with("runs from system-a\nthere is room"),
        "{said}"
    );

    // With the signature of the one before: refused before a byte of it is sent, from here or from a browser.
    let refused = why_not(desk.types(&["update", &image]))?;
    ensure!(
        refused.contains("changed after it was signed") && refused.contains("SHA256:"),
        "{refused}"
    );
    let tunnel = scene.box_ssh().tunnel(80)?;
    let refused = scene.wait(
        "a browser is refused",
        Duration::from_mins(3),
        |_| match send_form(tunnel.address, &image) {
            Ok(None) => Ok(None),
            answer => why_not(answer).map(Some),
        },
    )?;
    ensure!(refused.contains("changed after it was signed"), "{refused}");
    sign(Path::new(&image), scene)?;

    // As the page's form does; the program finds it there.
    scene.wait("a browser writes it", Duration::from_mins(3), |_| {
        send_form(tunnel.address, &image)
    })?;
    let said = desk.types(&["update", "--status"])?;
    ensure!(
        said.contains(&format!("beside it is Firstlight {GOOD}")),
        "{said}"
    );

    let ordered = Instant::now();
    let said = desk.types(&["update", &image])?;
    figures::YEARS_UPDATE.record_time(ordered.elapsed())?;
    let seconds = ordered.elapsed().as_secs();
    scene.tell(format_args!("{} after {seconds} s", said.trim()));
    let said = desk.types(&["update", "--status"])?;
    ensure!(
        said.starts_with("runs from system-b") && said.contains(&format!("to {GOOD}, stayed")),
        "{said}"
    );
    ensure!(
        desk.types(&["update", &image])?.contains("already"),
        "once is enough"
    );
    create(scene, "of-the-new-one")?;

    scene.cut_box_power()?;
    scene.switch_box_on(&spec)?;
    ready(scene, "the box is ready again")?;
    let line = scene.box_ssh().run("cat /proc/cmdline")?;
    ensure!(!line.contains(TRIAL_WORD), "{line}");
    let said = Desk::new(scene)?.types(&["update", "--status"])?;
    ensure!(said.starts_with("runs from system-b\n"), "{said}");
    let said = Desk::new(scene)?.types(&["seal", "--status"])?;
    ensure!(
        said.contains(r#""bound":"start""#) && !said.contains("problem"),
        "{said}"
    );
    scene
        .box_ssh()
        .run("sudo kubectl get configmap of-before of-the-new-one")?;
    scene.nothing_leaked()
}

/// One whose agent does not start.
pub fn goes_back(scene: &mut Scene<'_>) -> Result<()> {
    let image = other_image(scene, BAD, |tree| {
        let agent = tree.join("usr/bin/firstlight-agent");
        fs::write(&agent, "#!/bin/sh\nexit 1\n")?;
        Ok(fs::set_permissions(&agent, Permissions::from_mode(0o755))?)
    })?;
    sign(Path::new(&image), scene)?;
    scene.ready_box()?;
    create(scene, "of-before")?;
    let said = match Desk::new(scene)?.types(&["update", &image]) {
        Ok(said) => said,
        Err(error) => format!("{error:#}"),
    };
    scene.tell(said.trim());
    ensure!(
        said.contains("the box went back") && said.contains("did not come up"),
        "{said}"
    );
    ready(scene, "the box is ready as before")?;
    let told = |status: &SiteStatus| {
        let problem = status
            .problems
            .iter()
            .find(|problem| problem.what.contains(BAD))?;
        Some(problem.what.clone())
    };
    let told = scene.wait_status("the page says why", Duration::from_mins(1), told)?;
    scene.tell(told);
    let said = Desk::new(scene)?.types(&["update", "--status"])?;
    ensure!(said.starts_with("runs from system-a\n"), "{said}");
    scene
        .box_ssh()
        .run("sudo kubectl get configmap of-before")?;
    scene.nothing_leaked()
}

fn why_not<T>(answer: Result<T>) -> Result<String> {
    match answer {
        Ok(_) => bail!("it was taken"),
        Err(error) => Ok(format!("{error:#}")),
    }
}

/// `None`: nobody listens yet.
fn send_form(address: SocketAddr, image: &str) -> Result<Option<()>> {
    let output = Command::new("curl")
        .args([
            "--silent",
            "--show-error",
            "--max-time",
            "170",
            "--form",
            &format!("image=@{image}"),
        ])
        .args(["--write-out", "%{http_code} %{redirect_url}"])
        .arg(format!("http://{address}/api/v1/update/image"))
        .output()
        .context("starting curl")?;
    let said = String::from_utf8_lossy(&output.stdout);
    match output.status.code() {
        Some(0) => {
            ensure!(said.contains("303 ") && said.ends_with("/update"), "{said}");
            Ok(Some(()))
        }
        // No connection.
        Some(7) => Ok(None),
        code => bail!(
            "curl ended with {code:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        ),
    }
}

fn create(scene: &Scene<'_>, name: &str) -> Result<()> {
    let command = format!("sudo kubectl create configmap {name} --from-literal=is=kept");
    scene.box_ssh().run(&command).map(drop)
}

fn ready(scene: &mut Scene<'_>, what: &str) -> Result<()> {
    scene.wait_status(what, Duration::from_mins(5), |status| {
        status.ready.then_some(())
    })
}

/// The image with another version in its layer `agent`, which `change` changes, too.
fn other_image(
    scene: &Scene<'_>,
    version: &str,
    change: impl Fn(&Path) -> Result<()>,
) -> Result<String> {
    let image = scene.image();
    let folder = scene.lab.dir().join(version);
    let tree = folder.join("tree");
    fs::create_dir_all(&folder)?;
    unpack::layer(image, AGENT, &tree)?;
    let versions = tree.join("usr/share/firstlight/versions.json");
    let mut all: serde_json::Value = serde_json::from_slice(&fs::read(&versions)?)?;
    all["firstlight"] = version.into();
    fs::write(&versions, all.to_string())?;
    change(&tree)?;
    let layer = folder.join("agent.sqfs");
    let packed = Command::new("mksquashfs")
        .args([&tree, &layer])
        .args([
            "-noappend",
            "-no-progress",
            "-quiet",
            "-all-root",
            "-no-xattrs",
            "-comp",
            "zstd",
        ])
        .status()
        .context("starting mksquashfs")?;
    ensure!(packed.success(), "mksquashfs: {packed}");
    let root = add_tree(&layer)?;
    let path = folder.join("firstlight.img");
    put_in(image, &layer, root, &path)?;
    Ok(path.to_str().context("the path is not text")?.to_owned())
}

/// As whoever built the box's own image.
fn sign(image: &Path, scene: &Scene<'_>) -> Result<()> {
    let table = gpt::load_table(image)?;
    let part = table.partition("system-a")?;
    let slot = load_slot(image, part)?.context("the image has no system")?;
    let mut system = slot.content();
    Signer::load(scene.key())?.sign(&mut system)?;
    let block = format_table(&system.plan(), part.bytes())?;
    let file = File::options().write(true).open(image)?;
    Ok(file.write_all_at(&block, part.offset())?)
}

/// An image of nothing but a system: what an update reads.
fn put_in(image: &Path, agent: &Path, root: Sha256Digest, path: &PathBuf) -> Result<()> {
    let table = gpt::load_table(image)?;
    let part = table.partition("system-a")?;
    let old = load_slot(image, part)?.context("the image has no system")?;
    let content = |layer: &Layer| -> Result<LayerContent> {
        if layer.name != AGENT {
            return Ok(layer.content());
        }
        let sha256 = digest_file(agent)?;
        Ok(LayerContent {
            length: fs::metadata(agent)?.len(),
            sha256: Sha256Digest::parse(&sha256).context("no digest")?,
            root,
            ..layer.content()
        })
    };
    let layers = old.layers.iter().map(content).collect::<Result<Vec<_>>>()?;
    let system = SystemContent {
        layers,
        ..old.content()
    };
    let new = system.plan();
    let bytes = new.bytes();
    let head = format_table(&new, bytes)?;
    let plan = gpt::plan_stick(std::str::from_utf8(&head)?, bytes);
    let mut file = File::options()
        .create(true)
        .truncate(true)
        .read(true)
        .write(true)
        .open(path)?;
    file.set_len(plan.bytes())?;
    gpt::write_table(&mut file, &plan)?;
    let start = plan.partition("system-a")?.offset();
    file.write_all_at(&head, start)?;
    let from = File::open(image)?;
    for (layer, old) in new.layers.iter().zip(&old.layers) {
        if layer.name == AGENT {
            place_file(agent, &mut file, start + layer.offset, layer.length)?;
            continue;
        }
        let (mut at, mut piece) = (0, vec![0; 4 << 20]);
        while at < layer.length {
            let step = usize::try_from(layer.length - at)
                .map_or(piece.len(), |left| left.min(piece.len()));
            from.read_exact_at(&mut piece[..step], part.offset() + old.offset + at)?;
            file.write_all_at(&piece[..step], start + layer.offset + at)?;
            at += step as u64;
        }
    }
    Ok(())
}
