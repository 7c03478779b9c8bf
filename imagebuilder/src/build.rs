//! `firstlight build`: the recipe of the stick, from top to bottom, one named call a step.
//!
//! A step is a method of [`recipe::Recipe`]: it says what its inputs are ([`cache::Key`]) and how its output is made.
//! Outputs are cached by the hash of the inputs. To add a step: a method in [`recipe`] or [`layers`], a line in [`build`];
//! a layer also needs a place in `layers` there and a word in ARCHITECTURE.md.

mod addons;
pub mod cache;
mod command;
mod debian;
mod debs;
mod image;
mod images;
mod ironic;
mod layers;
pub mod machine;
mod manifests;
mod node;
pub mod nodes;
pub mod preflight;
mod programs;
pub mod progress;
mod recipe;
mod releases;
mod repository;
mod rust;
mod sbom;
pub mod settings;
pub mod squashfs;
mod summary;
mod tools;
mod tree;
mod versions;
mod wheels;
mod workload;

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use firstlight_api::site::{SiteConfig, parse_site};
use firstlight_signature::Keys;

pub use self::command::Log;
pub use self::programs::module_folder;
pub use self::releases::build_for_push;

use self::cache::Steps;
use self::progress::Progress;
use self::recipe::Recipe;
use self::settings::Settings;
use self::squashfs::load_layer;
pub use self::summary::group;
use crate::UsageError;
use crate::signing::{self, Signer};

/// Builds the image and returns the table to show.
pub fn build(settings: &Settings, progress: Progress) -> Result<String> {
    preflight::check(settings)?;
    releases::check(settings)?;
    let (site_text, site) = load_site(settings)?;
    let (signer, keys) = load_keys(settings)?;
    let steps = Steps::open(&settings.cache, progress)?.with_environment(site.proxied());
    let recipe = Recipe { settings, steps };

    let tools = recipe.tools()?;
    let base_tree = recipe.base_tree()?;
    let base = recipe.base_layer(&tools, &base_tree)?;
    let kernel = recipe.kernel(&base_tree)?;
    let ramdisk = recipe.ramdisk_program()?;
    let initrd = recipe.initramfs(&kernel, &ramdisk)?;

    let kube_programs = recipe.go_programs("kube-bin", programs::KUBE_PROGRAMS)?;
    let kube = recipe.kube_layer(&tools, &kube_programs)?;
    let image_programs = recipe.go_programs("image-bin", programs::IMAGE_PROGRAMS)?;
    let seed = recipe.go_programs("seed", &[programs::SEED])?;
    let wheels = recipe.ironic_wheels()?;
    let ironic_tree = recipe.ironic_tree(&wheels)?;
    let images = recipe.images_layer(&tools, &seed, &image_programs, &ironic_tree)?;

    let node_programs = recipe.go_programs("node-bin", programs::NODE_PROGRAMS)?;
    let debs = recipe.debs(&tools, &[&kube_programs, &node_programs])?;
    let node_tree = recipe.node_tree()?;
    let node_root = recipe.node_root(&node_tree, &debs)?;
    let releases = recipe.releases()?;
    let all_debs = recipe.all_debs(&tools, debs, &releases)?;
    let repository = recipe.repository(&node_root, &all_debs, &site.packages)?;
    let bootstrap = recipe.bootstrap_program()?;
    let node = recipe.node_image(&tools, &node_root, &bootstrap)?;
    let payload = recipe.payload_layer(&tools, &kernel, &initrd, &node, &repository)?;

    let addons = addons::load(settings)?;
    let registry = recipe.site_registry(
        &tools,
        [&kube_programs, &image_programs],
        &releases,
        &addons,
    )?;

    let (agent_program, update_program) = (recipe.agent_program()?, recipe.update_program()?);
    let versions = versions::collect(settings, &kernel, &base_tree)?;
    let manifests = recipe.cluster_api_manifests(&kube_programs)?;
    let charts = recipe.addon_charts(&kube_programs, &addons)?;
    let agent = recipe.agent_layer(
        &tools,
        [&agent_program, &update_program],
        &manifests,
        &charts,
        &versions,
        &keys,
    )?;

    let core = recipe.bios_core(&tools)?;
    let layers = [
        load_layer("agent", &agent)?,
        load_layer("payload", &payload)?,
        load_layer("registry", &registry)?,
        load_layer("images", &images)?,
        load_layer("kube", &kube)?,
        load_layer("base", &base)?,
    ];
    let items = summary::collect_items(&[
        &kernel.path("vmlinuz"),
        &initrd.path("initrd"),
        &node.path(node::IMAGE),
    ])?;
    let parts = image::Parts {
        layers: &layers,
        kernel: &kernel.path("vmlinuz"),
        initrd: &initrd.path("initrd"),
        core: &core.path("core.img"),
        grub_config: read_text(&settings.rootfs("box").join("grub.cfg"))?,
        boot_config: read_text(
            &settings
                .overlay("box")
                .join("usr/share/firstlight/boot.cfg"),
        )?,
        site: site_text,
        readme: read_text(&settings.rootfs("box").join("README.txt"))?.replace('\n', "\r\n"),
        manifest: summary::manifest(&versions, &layers, &items)?,
        signer: signer.as_ref(),
    };
    progress.say("  image        writing");
    let written = image::write_image(&parts, &tools, &settings.output)?;
    let trees = [base_tree.path("base.tar"), node_root.path("node.tar")];
    let nettools = recipe.nettools()?;
    let addon_trees = recipe.addon_trees(&addons)?;
    let lists = [tools.output(), &repository, &nettools].into_iter();
    let archives: Vec<_> = lists
        .chain(addon_trees.iter().map(|(_, tree)| tree))
        .map(|output| output.path(repository::LIST))
        .collect();
    sbom::write_sbom(settings, &trees, &archives, &addons, &versions)?;
    summary::table(&settings.output, &written, &items)
}

/// The given `site.yaml`, checked, or the commented default; as it was written, and what it means.
fn load_site(settings: &Settings) -> Result<(String, SiteConfig)> {
    let path = settings
        .site
        .clone()
        .unwrap_or_else(|| settings.rootfs("box").join("site.yaml"));
    let text = fs::read_to_string(&path)
        .map_err(|error| UsageError(format!("{} cannot be read: {error}", path.display())))?;
    match parse_site(&text) {
        Ok(site) => Ok((text, site)),
        Err(problems) => Err(UsageError(crate::check::describe(&path, &problems)).into()),
    }
}

/// Who signs the system, and whose the box takes when it is updated.
fn load_keys(settings: &Settings) -> Result<(Option<Signer>, Keys)> {
    let signer = settings.sign.as_deref().map(Signer::load).transpose()?;
    let trusted = settings
        .trust
        .as_deref()
        .map(signing::load_keys)
        .transpose()?;
    let own = signer.as_ref().map(|signer| signer.public().clone());
    let keys = own.unwrap_or_default().and(trusted.unwrap_or_default());
    Ok((signer, keys))
}

fn read_text(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))
}
