//! `firstlight install`: turns a Debian 13 machine that is there already into a box.
//!
//! Observe (`observe`, `source`), plan (`checks`, `layout`: pure), refuse or apply (`apply`, `services`), wait (`ready`).
//! Nothing is changed before all checks have passed, and nothing is overwritten that an earlier installation did not lay
//! down (`manifest`). The files come from the image: two of its layers are laid over the machine, the others are kept as
//! they are and mounted; `/usr/share/firstlight/install` in the image says what is left out and what is added.
//! To add a check: a case in `checks`, a row in its tests.

mod apply;
mod checks;
mod finding;
mod layout;
mod manifest;
mod nics;
mod observe;
mod packages;
mod ports;
mod ready;
mod services;
mod source;
mod system;
#[cfg(test)]
mod tests;

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use firstlight_api::site::{SiteConfig, parse_site};

use self::checks::{Machine, Need, STATE_ROOM, State};
use self::finding::Finding;
use self::layout::{Item, LayoutPlan, LeaveOut, plan_layout};
use self::manifest::Manifest;
use self::source::{KEPT, Source};
use crate::build::group;
use crate::initramfs::recipe::parse_list;
use crate::signing::SignedBy;
use crate::{UsageError, check, inspect};

/// Where an image says how it is installed, in its layer `agent`.
const RECIPE: &str = "usr/share/firstlight/install";
/// Where the payload is on a stick, and where its layer is mounted.
const SHARE: &str = "usr/share/firstlight";
const PAYLOAD: &str = "/run/firstlight/layers/payload";
const SITE: &str = "etc/firstlight/site/site.yaml";
/// Where the agent reads it; systemd makes the folder for the mount.
const SITE_MOUNT: &str = "firstlight/site";
const LAYERS: &str = "var/lib/firstlight/layers";

const EXAMPLES: &str = "The machine needs a NIC that leads to the servers only. Name it in site.yaml:
  provisioning:
    interface: enp2s0

Examples:
  firstlight install --dry-run --site site.yaml firstlight.img   what would be done, and all that is in the way
  firstlight install --site site.yaml firstlight.img             do it, and wait until the box is ready
  firstlight install newer.img                                   bring a newer image; restart the machine afterwards
  firstlight install --remove                                    take it away again

Files of the machine are never overwritten: what is in the way is listed, and nothing is changed.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct InstallArgs {
    /// Image made by `firstlight build`, or the stick that it was written to
    #[arg(required_unless_present = "remove")]
    image: Option<PathBuf>,
    /// Settings of the site; without it those of the earlier installation, or else the image's
    #[arg(long, value_name = "FILE")]
    site: Option<PathBuf>,
    /// Say what would be done, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Stop the box and take its files away; its state and its site.yaml stay
    #[arg(long, conflicts_with_all = ["image", "site", "dry_run"])]
    remove: bool,
    #[command(flatten)]
    signed_by: SignedBy,
}

/// What an installation will do.
#[derive(Clone, Debug, PartialEq, Eq)]
struct InstallPlan {
    /// Debian packages to install first.
    packages: Vec<String>,
    /// Names and bytes of layers to copy.
    layers: Vec<(String, u64)>,
    layout: LayoutPlan,
    /// `site.yaml`, when it is another than there is.
    site: Option<Vec<u8>>,
}

impl InstallPlan {
    fn changes_programs(&self) -> bool {
        !(self.layers.is_empty() && self.layout.write.is_empty() && self.layout.remove.is_empty())
    }
}

/// Installs, or takes away; returns what to say at the end.
pub fn install(args: &InstallArgs) -> Result<String> {
    ensure!(
        nix::unistd::geteuid().is_root(),
        "this is not root: give the same command with sudo"
    );
    let root = Path::new("/");
    let Some(image) = &args.image else {
        return remove(root);
    };
    say("reading the image");
    if let Some(keys) = args.signed_by.keys()? {
        inspect::verify(image, &keys)?;
    }
    let source = Source::open(image)?;
    let mut manifest = Manifest::load(root)?;
    let text = choose_site(root, args.site.as_deref(), &source)?;
    let site = parse_site(&text).map_err(|problems| {
        let path = args.site.as_deref().unwrap_or(Path::new("site.yaml"));
        UsageError(check::describe(path, &problems))
    })?;
    let trees = source.mount()?;
    let machine = observe::observe_machine(manifest.as_ref())?;
    let earlier = manifest.clone().unwrap_or_default();
    let items = collect_items(|layer| trees.path(layer))?;
    let found = observe::observe_files(root, &items, &earlier.files)?;
    let recipe = fs::read_to_string(trees.path("agent").join(RECIPE).join("packages"))
        .context("the image does not say what it needs: it is older than `firstlight install`")?;
    let plan = InstallPlan {
        packages: missing_packages(&recipe, &machine),
        layers: missing_layers(root, &source, &earlier)?,
        layout: plan_layout(items, &found, &earlier.files),
        site: (fs::read(root.join(SITE)).ok().as_ref() != Some(&text)).then_some(text),
    };
    let findings = find_all(&machine, &site, &plan)?;
    if !findings.is_empty() {
        bail!("{}", finding::describe(&findings));
    }
    if args.dry_run {
        return Ok(describe_plan(&plan));
    }
    let manifest = manifest.get_or_insert_default();
    manifest.machine = observe::machine_id();
    apply(root, &source, &plan, manifest)?;
    drop(trees);
    finish(&machine, &plan, &manifest.files)
}

/// What `--site` names, what is there, or what the image has.
fn choose_site(root: &Path, given: Option<&Path>, source: &Source) -> Result<Vec<u8>> {
    let there = root.join(SITE);
    match given {
        Some(path) => fs::read(path)
            .map_err(|error| UsageError(format!("{}: {error}", path.display())).into()),
        None if there.exists() => {
            fs::read(&there).with_context(|| format!("reading {}", there.display()))
        }
        None => Ok(source.site().to_owned()),
    }
}

/// The files of two layers but for what only a stick needs, those that the image has for installed machines, and links to
/// what is served out of the payload; `tree` is a layer's folder.
fn collect_items(tree: impl Fn(&str) -> PathBuf) -> Result<Vec<Item>> {
    let agent = tree("agent");
    let recipe = agent.join(RECIPE);
    let list = fs::read_to_string(recipe.join("leave-out")).context(
        "the image does not say what it leaves out: it is older than `firstlight install`",
    )?;
    let mut items = observe::collect(&agent, &LeaveOut::parse(&list))?;
    for whole in [tree("kube"), recipe.join("root")] {
        items.extend(observe::collect(&whole, &LeaveOut::parse(""))?);
    }
    items.extend(observe::link_to(&tree("payload"), SHARE, PAYLOAD)?);
    Ok(items)
}

fn missing_packages(list: &str, machine: &Machine) -> Vec<String> {
    let mut names = parse_list(list);
    names.retain(|name| !machine.packages.contains(name));
    names
}

fn missing_layers(root: &Path, source: &Source, earlier: &Manifest) -> Result<Vec<(String, u64)>> {
    let mut missing = Vec::new();
    for name in KEPT {
        let layer = source.layer(name)?;
        let there = fs::metadata(layer_file(root, name));
        let same = there.is_ok_and(|data| data.len() == layer.length)
            && earlier.layers.get(name) == Some(&layer.sha256.to_string());
        if !same {
            missing.push((name.to_owned(), layer.length));
        }
    }
    Ok(missing)
}

fn layer_file(root: &Path, name: &str) -> PathBuf {
    root.join(LAYERS).join(format!("{name}.squashfs"))
}

fn find_all(machine: &Machine, site: &SiteConfig, plan: &InstallPlan) -> Result<Vec<Finding>> {
    let layers: u64 = plan.layers.iter().map(|(_, bytes)| bytes).sum();
    let room = match machine.state {
        State::Absent => STATE_ROOM,
        _ => 0,
    };
    let need = Need {
        state: layers + room,
        programs: plan.layout.write.iter().map(|item| item.bytes).sum(),
    };
    let mut findings = checks::check(machine, site, need);
    if !plan.packages.is_empty() {
        let simulation = system::simulate(&plan.packages)?;
        findings.extend(packages::check_missing(&plan.packages, &simulation));
    }
    findings.extend(plan.layout.findings.iter().cloned());
    Ok(findings)
}

fn describe_plan(plan: &InstallPlan) -> String {
    let mut text = "This machine can become a box. To do:\n".to_owned();
    let mut step = |line: String| {
        let _ = writeln!(text, "  - {line}");
    };
    if !plan.packages.is_empty() {
        step(format!("apt-get install {}", plan.packages.join(" ")));
    }
    for (name, bytes) in &plan.layers {
        step(format!(
            "copy {} bytes to /{LAYERS}/{name}.squashfs",
            group(*bytes)
        ));
    }
    let bytes: u64 = plan.layout.write.iter().map(|item| item.bytes).sum();
    step(format!(
        "write {} files with {} bytes, remove {}",
        plan.layout.write.len(),
        group(bytes),
        plan.layout.remove.len()
    ));
    if plan.site.is_some() {
        step(format!("write /{SITE}"));
    }
    step("start what is not running, and wait until the box is ready".to_owned());
    text
}

fn apply(root: &Path, source: &Source, plan: &InstallPlan, manifest: &mut Manifest) -> Result<()> {
    if !plan.packages.is_empty() {
        say(&format!(
            "installing Debian packages: {}",
            plan.packages.join(" ")
        ));
        system::install(&plan.packages)?;
    }
    fs::create_dir_all(root.join(LAYERS)).with_context(|| format!("making /{LAYERS}"))?;
    manifest.save(root)?;
    for (name, bytes) in &plan.layers {
        say(&format!("copying layer {name}, {} bytes", group(*bytes)));
        source.copy_layer(name, &layer_file(root, name))?;
        let sha256 = source.layer(name)?.sha256;
        manifest.layers.insert(name.clone(), sha256.to_string());
        manifest.save(root)?;
    }
    say(&format!("writing {} files", plan.layout.write.len()));
    apply::lay_out(root, &plan.layout, manifest)?;
    if let Some(text) = &plan.site {
        let path = root.join(SITE);
        fs::create_dir_all(path.parent().context("a file has a folder")?)?;
        fs::write(&path, text).with_context(|| format!("writing /{SITE}"))?;
    }
    Ok(())
}

/// Programs that run are not changed under way: pods live in the layers that were just replaced.
fn finish(machine: &Machine, plan: &InstallPlan, files: &layout::Files) -> Result<String> {
    match machine.state {
        State::Running if plan.changes_programs() => {
            return Ok("The box still runs what it was started with. Restart this machine to use the new image\n".to_owned());
        }
        State::Running if plan.site.is_some() => {
            say("restarting the agent with the new site.yaml");
            services::restart_agent()?;
        }
        State::Running => {}
        _ => services::prepare(files)?,
    }
    say("starting what is not running");
    services::start(files)?;
    let status = ready::wait(say)?;
    let address = status.network.address.split('/').next().unwrap_or_default();
    Ok(format!(
        "The box is ready. Its page: http://{address}/ for the servers' network, http://127.0.0.1/ on this machine\n"
    ))
}

fn remove(root: &Path) -> Result<String> {
    let Some(mut manifest) = Manifest::load(root)? else {
        return Ok(
            "There is no box on this machine that `firstlight install` has made\n".to_owned(),
        );
    };
    say("stopping the box");
    services::stop(&manifest.files)?;
    say("taking its files away");
    let left = apply::take_away(root, &mut manifest)?;
    for name in KEPT {
        let file = layer_file(root, name);
        if manifest.layers.remove(name).is_some() && file.exists() {
            fs::remove_file(&file).with_context(|| format!("removing {}", file.display()))?;
        }
    }
    manifest.save(root)?;
    services::forget()?;
    for folder in [SITE_MOUNT, "firstlight"] {
        // Unless somebody put something there.
        let _ = fs::remove_dir(root.join(folder));
    }
    let mut text = "The box is gone. Its state in /var/lib/firstlight and its settings in /etc/firstlight/site stay, with the users firstlight and firstlight-kube, whose files they are. Restart this machine to end what the kernel still has of it\n".to_owned();
    for path in left {
        let _ = writeln!(text, "left, because it was changed: /{}", path.display());
    }
    Ok(text)
}

/// A line of progress.
fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
