//! `firstlight build`: the recipe of the stick, from top to bottom, one named call a step.
//!
//! A step is a function of [`Recipe`]: it says what its inputs are ([`cache::Key`]) and how its output is made. Outputs are
//! cached by the hash of the inputs. To add a step: a function below, a line in [`build`]; a layer also needs a place in
//! `layers` there and a word in ARCHITECTURE.md.

pub mod cache;
mod command;
mod debian;
mod image;
mod ironic;
mod node;
mod preflight;
mod programs;
pub mod progress;
mod sbom;
pub mod settings;
mod squashfs;
mod summary;
mod tools;
mod versions;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::json;

use self::cache::{Key, Output, Reuse, Steps};
use self::debian::{Initramfs, Overlay, TreeSpec, Variant};
use self::programs::GoProgram;
use self::progress::Progress;
use self::settings::Settings;
use self::squashfs::{Packing, load_layer};
use self::tools::Tools;
pub use self::{cache::hex, summary::group};
use crate::UsageError;

/// Where users of the box are listed, in its overlay and in its tree.
const SYSUSERS: &str = "usr/lib/sysusers.d";

/// Names of the archives of an unpacked tree: it has no list of packages, and the bill of materials wants one.
const LIST_ARCHIVES: &str =
    r#"ls "$1/var/cache/apt/archives" | grep '[.]deb$' >"$1/usr/share/firstlight-packages""#;

/// Builds the image and returns the table to show.
pub fn build(settings: &Settings, progress: Progress) -> Result<String> {
    preflight::check(settings)?;
    let site = load_site(settings)?;
    let recipe = Recipe {
        settings,
        steps: Steps::open(&settings.cache, progress)?,
    };

    let tools = recipe.tools()?;
    let base_tree = recipe.base_tree()?;
    let base = recipe.base_layer(&tools, &base_tree)?;
    let kernel = recipe.kernel(&base_tree)?;
    let ramdisk = recipe.rust_program("ramdisk", "firstlight-ramdisk", "firstlight-ramdisk")?;
    let initrd = recipe.initramfs(&kernel, &ramdisk)?;

    let kube_programs = recipe.go_programs("kube-bin", programs::KUBE_PROGRAMS)?;
    let kube = recipe.kube_layer(&tools, &kube_programs)?;
    let image_programs = recipe.go_programs("image-bin", programs::IMAGE_PROGRAMS)?;
    let seed = recipe.go_programs("seed", &[programs::SEED])?;
    let wheels = recipe.ironic_wheels()?;
    let ironic_tree = recipe.ironic_tree(&wheels)?;
    let images = recipe.images_layer(&tools, &seed, &image_programs, &ironic_tree)?;

    let node_tree = recipe.node_tree()?;
    let node = recipe.node_image(&tools, &node_tree)?;
    let payload = recipe.payload_layer(&tools, &kernel, &initrd, &node)?;

    let agent_program = recipe.rust_program("agent-bin", "firstlight-agent", "firstlight-agent")?;
    let versions = versions::collect(settings, &kernel, &base_tree)?;
    let agent = recipe.agent_layer(&tools, &agent_program, &versions)?;

    let core = recipe.bios_core(&tools)?;
    let layers = [
        load_layer("agent", &agent)?,
        load_layer("payload", &payload)?,
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
        site,
        readme: read_text(&settings.rootfs("box").join("README.txt"))?.replace('\n', "\r\n"),
        manifest: summary::manifest(&versions, &layers, &items)?,
    };
    progress.say("  image        writing");
    let written = image::write_image(&parts, &tools, &settings.output)?;
    let sbom = sbom::Sources {
        settings,
        base: &base_tree,
        node: &node_tree,
        tools: &tools,
        versions: &versions,
    };
    sbom::write_sbom(&sbom, &settings.output)?;
    summary::table(&settings.output, &written, &items)
}

/// The given `site.yaml`, checked, or the commented default.
fn load_site(settings: &Settings) -> Result<String> {
    let path = settings
        .site
        .clone()
        .unwrap_or_else(|| settings.rootfs("box").join("site.yaml"));
    let text = fs::read_to_string(&path)
        .map_err(|error| UsageError(format!("{} cannot be read: {error}", path.display())))?;
    match firstlight_api::site::parse_site(&text) {
        Ok(_) => Ok(text),
        Err(problems) => Err(UsageError(crate::check::describe(&path, &problems)).into()),
    }
}

fn read_text(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))
}

/// The steps, with what they share.
struct Recipe<'a> {
    settings: &'a Settings,
    steps: Steps,
}

impl Recipe<'_> {
    /// Programs and boot files of Debian 13 that later steps use.
    fn tools(&self) -> Result<Tools> {
        let spec = self.tree_spec("tools", Variant::Extract);
        let key = self.tree_key("tools", &spec)?;
        let output = self.steps.run("tools", key, self.settings.debian, |work| {
            debian::bootstrap_with(
                work,
                self.settings,
                &spec,
                "tools",
                &[LIST_ARCHIVES.to_owned()],
            )?;
            fs::create_dir(work.path("tree"))?;
            debian::unpack(&work.path("tools.tar"), &["usr"], &work.path("tree"))?;
            fs::write(
                work.path("packages"),
                debian::read_member(&work.path("tools.tar"), "usr/share/firstlight-packages")?,
            )?;
            Ok(fs::remove_file(work.path("tools.tar"))?)
        })?;
        Ok(Tools::new(output))
    }

    /// Debian as it runs on the box, with the kernel.
    fn base_tree(&self) -> Result<Output> {
        // Users are made here, with fixed numbers, so that no boot has to.
        let overlay = Overlay {
            folder: self.settings.overlay("box").join(SYSUSERS),
            at: SYSUSERS,
        };
        let spec = self.tree_spec("box", Variant::Essential);
        let spec = TreeSpec {
            initramfs: Initramfs::Suppress,
            overlay: Some(overlay),
            ..spec
        };
        let key = self.tree_key("base-tree", &spec)?;
        self.steps
            .run("base-tree", key, self.settings.debian, |work| {
                debian::bootstrap(work, self.settings, &spec, "base")
            })
    }

    fn base_layer(&self, tools: &Tools, tree: &Output) -> Result<Output> {
        let key = Key::new("base", 1).output(tools.output()).output(tree);
        self.steps.run("base", key, Reuse::Cached, |work| {
            // The kernel is on the ESP; what is left of dpkg's database is its list of packages.
            let without = [
                "boot",
                "dev",
                "var/lib/dpkg/info",
                "var/lib/dpkg/status-old",
                "vmlinuz",
                "vmlinuz.old",
                "initrd.img",
                "initrd.img.old",
            ];
            squashfs::pack_tar(work, tools, &tree.path("base.tar"), &without)
        })
    }

    /// The kernel, and its modules and firmware for the initramfs.
    fn kernel(&self, tree: &Output) -> Result<Output> {
        let key = Key::new("kernel", 1).output(tree);
        self.steps.run("kernel", key, Reuse::Cached, |work| {
            debian::unpack(
                &tree.path("base.tar"),
                &["boot", "usr/lib/modules", "usr/lib/firmware"],
                &work.dir,
            )?;
            let release = kernel_release(&work.dir)?;
            fs::rename(
                work.path(&format!("boot/vmlinuz-{release}")),
                work.path("vmlinuz"),
            )
            .context("finding the kernel in /boot")?;
            Ok(fs::write(work.path("release"), release)?)
        })
    }

    /// One of our own programs.
    fn rust_program(&self, step: &str, package: &str, binary: &str) -> Result<Output> {
        let source = &self.settings.source;
        let inputs = [
            source.join("Cargo.toml"),
            source.join("Cargo.lock"),
            source.join("agent"),
        ];
        let log = command::Log::create(self.settings.cache.join("logs/rustc.log"))?;
        let key = Key::new(step, 1)
            .text("rustc", &programs::rust_version(&log)?)
            .paths(inputs.iter().map(PathBuf::as_path))?;
        self.steps.run(step, key, Reuse::Cached, |work| {
            programs::build_rust(work, self.settings, package, binary, &work.path(binary))
        })
    }

    /// The one initramfs, for the box and for hosts.
    fn initramfs(&self, kernel: &Output, ramdisk: &Output) -> Result<Output> {
        let lists = self.settings.rootfs("ramdisk");
        let key = Key::new("initramfs", 1)
            .output(kernel)
            .output(ramdisk)
            .path(&lists)?;
        let key = key.path(&self.settings.source.join("imagebuilder/src/initramfs"))?;
        self.steps.run("initramfs", key, Reuse::Cached, |work| {
            let spec = crate::initramfs::InitramfsSpec {
                init: &ramdisk.path("firstlight-ramdisk"),
                kernel: kernel.dir(),
                firmware: &[kernel.dir().to_owned()],
                recipe: &crate::initramfs::load_recipe(&lists)?,
            };
            let summary = crate::initramfs::build_initramfs(spec, &work.path("initrd"))?;
            work.log.note(&format!("{summary:#?}"))
        })
    }

    /// Upstream's Go programs.
    fn go_programs(&self, step: &str, list: &[GoProgram]) -> Result<Output> {
        let log = command::Log::create(self.settings.cache.join("logs/go.log"))?;
        let mut key = Key::new(step, 1)
            .text("go", &programs::go_version(&log)?)
            .text("programs", &format!("{list:?}"));
        for program in list {
            key = key.path(&self.settings.rootfs("go").join(program.module))?;
        }
        self.steps.run(step, key, Reuse::Cached, |work| {
            programs::build_go(work, self.settings, list, &work.dir)
        })
    }

    fn kube_layer(&self, tools: &Tools, programs: &Output) -> Result<Output> {
        let key = Key::new("kube", 1).output(tools.output()).output(programs);
        self.steps.run("kube", key, Reuse::Cached, |work| {
            squashfs::pack_folder(work, tools, programs.dir(), Packing::Zstd)
        })
    }

    /// Ironic and what it needs from PyPI.
    fn ironic_wheels(&self) -> Result<Output> {
        let list = self.settings.rootfs("ironic").join("requirements.txt");
        let key = Key::new("wheels", 1).path(&list)?;
        self.steps.run("wheels", key, Reuse::Cached, |work| {
            ironic::install_wheels(work, &list)
        })
    }

    /// The root file system of Ironic's container.
    fn ironic_tree(&self, wheels: &Output) -> Result<Output> {
        let spec = self.tree_spec("ironic", Variant::Extract);
        let key = self.tree_key("ironic-tree", &spec)?.output(wheels);
        self.steps
            .run("ironic-tree", key, self.settings.debian, |work| {
                ironic::make_tree(work, self.settings, &spec, wheels)
            })
    }

    /// containerd's store with the images of all pods in it.
    fn images_layer(
        &self,
        tools: &Tools,
        seed: &Output,
        programs: &Output,
        ironic: &Output,
    ) -> Result<Output> {
        let references = versions::image_references(self.settings)?;
        let key = Key::new("images", 1)
            .output(tools.output())
            .output(seed)
            .output(programs)
            .output(ironic);
        let key = key.text("references", &format!("{references:?}"));
        self.steps.run("images", key, Reuse::Cached, |work| {
            let configs = [
                (
                    "pause",
                    programs.path("pause"),
                    json!({"Entrypoint": ["/pause"], "User": "65535:65535"}),
                ),
                (
                    "coredns",
                    programs.path("coredns"),
                    json!({"Entrypoint": ["/coredns"]}),
                ),
                (
                    "ironic",
                    ironic.path("ironic.tar"),
                    json!({"Entrypoint": ["/usr/bin/python3", "/usr/share/ironic/launch.py"]}),
                ),
            ];
            let mut files = Vec::new();
            for (name, rootfs, config) in configs {
                let reference = references
                    .get(name)
                    .with_context(|| format!("image {name} has no version"))?;
                let file = work.path(&format!("{name}.json"));
                fs::write(
                    &file,
                    json!({"reference": reference, "rootfs": rootfs, "config": config}).to_string(),
                )?;
                files.push(file);
            }
            let store = work.path("root/usr/lib/firstlight/images");
            fs::create_dir_all(store.parent().context("the store has a folder")?)?;
            command::Program::new(seed.path("seed"), &work.log)
                .env("SOURCE_DATE_EPOCH", settings::SOURCE_DATE_EPOCH.to_string())
                .arg("-o")
                .arg(&store)
                .args(&files)
                .run()?;
            squashfs::pack_folder(work, tools, &work.path("root"), Packing::Zstd)?;
            cache::remove_tree(&work.path("root"))
        })
    }

    /// Debian as it is installed on hosts.
    fn node_tree(&self) -> Result<Output> {
        let overlay = Overlay {
            folder: self.settings.overlay("node"),
            at: ".",
        };
        let spec = TreeSpec {
            overlay: Some(overlay),
            ..self.tree_spec("node", Variant::Minbase)
        };
        let key = self.tree_key("node-tree", &spec)?;
        self.steps
            .run("node-tree", key, self.settings.debian, |work| {
                debian::bootstrap(work, self.settings, &spec, "node")
            })
    }

    fn node_image(&self, tools: &Tools, tree: &Output) -> Result<Output> {
        let config = self.settings.rootfs("node").join("grub.cfg");
        let key = Key::new("node", 1)
            .output(tools.output())
            .output(tree)
            .path(&config)?;
        self.steps.run("node", key, Reuse::Cached, |work| {
            node::make_image(work, tools, &tree.path("node.tar"), &config)
        })
    }

    /// What hosts fetch from the box.
    fn payload_layer(
        &self,
        tools: &Tools,
        kernel: &Output,
        initrd: &Output,
        node: &Output,
    ) -> Result<Output> {
        let key = Key::new("payload", 1)
            .output(tools.output())
            .output(kernel)
            .output(initrd)
            .output(node);
        self.steps.run("payload", key, Reuse::Cached, |work| {
            let share = Path::new("usr/share/firstlight");
            let files = [
                (kernel.path("vmlinuz"), "netboot/vmlinuz"),
                (initrd.path("initrd"), "netboot/initrd"),
                (
                    tools.path("usr/lib/ipxe/undionly.kpxe"),
                    "netboot/undionly.kpxe",
                ),
                (
                    tools.path("usr/lib/ipxe/snponly.efi"),
                    "netboot/snponly.efi",
                ),
                (
                    tools.path("usr/lib/shim/shimx64.efi.signed"),
                    "netboot/shimx64.efi",
                ),
                (
                    tools.path("usr/lib/grub/x86_64-efi-signed/grubnetx64.efi.signed"),
                    "netboot/grubx64.efi",
                ),
                (node.path(node::IMAGE), "images/node.raw.zst"),
                (node.path("node.json"), "images/node.json"),
            ];
            for (from, to) in files {
                copy_into(&from, &work.path("root").join(share).join(to), 0o644)?;
            }
            squashfs::pack_folder(work, tools, &work.path("root"), Packing::Stored)?;
            cache::remove_tree(&work.path("root"))
        })
    }

    /// The agent and the files of the box: the small layer that changes most.
    fn agent_layer(
        &self,
        tools: &Tools,
        agent: &Output,
        versions: &serde_json::Value,
    ) -> Result<Output> {
        let overlay = self.settings.overlay("box");
        ensure!(
            overlay.join("etc").is_dir(),
            "{} has no etc: the box could not start",
            overlay.display()
        );
        let key = Key::new("agent", 1)
            .output(tools.output())
            .output(agent)
            .path(&overlay)?
            .text("versions", &versions.to_string());
        self.steps.run("agent", key, Reuse::Cached, |work| {
            let root = work.path("root");
            fs::create_dir(&root)?;
            debian::pack_overlay(&overlay, ".", &work.path("overlay.tar"))?;
            debian::unpack(&work.path("overlay.tar"), &[""], &root)?;
            fs::remove_file(work.path("overlay.tar"))?;
            copy_into(
                &agent.path("firstlight-agent"),
                &root.join("usr/bin/firstlight-agent"),
                0o755,
            )?;
            let share = root.join("usr/share/firstlight");
            fs::create_dir_all(&share)?;
            fs::write(share.join("versions.json"), format!("{versions:#}\n"))?;
            squashfs::pack_folder(work, tools, &root, Packing::Zstd)?;
            cache::remove_tree(&root)
        })
    }

    /// GRUB's core image for the stick under BIOS.
    fn bios_core(&self, tools: &Tools) -> Result<Output> {
        let key = Key::new("bios-core", 1).output(tools.output());
        self.steps.run("bios-core", key, Reuse::Cached, |work| {
            node::make_core(work, tools, "(,gpt2)/EFI/debian", &work.path("core.img"))
        })
    }

    fn tree_spec(&self, folder: &str, variant: Variant) -> TreeSpec {
        TreeSpec {
            variant,
            recipe: self.settings.rootfs(folder),
            overlay: None,
            initramfs: Initramfs::Make,
        }
    }

    /// The recipe, the overlay and the mirror; what the mirror holds today is not part of it (`--refresh` asks again).
    fn tree_key(&self, step: &str, spec: &TreeSpec) -> Result<Key> {
        let mut key = Key::new(step, 1)
            .text("mirror", &self.settings.mirror)
            .text("variant", &format!("{:?}", spec.variant));
        for name in ["packages", "exclude", "customize"] {
            let path = spec.recipe.join(name);
            if path.exists() {
                key = key.path(&path)?;
            }
        }
        if let Some(overlay) = &spec.overlay {
            key = key.path(&overlay.folder)?;
        }
        Ok(key)
    }
}

/// The one kernel in an unpacked tree.
fn kernel_release(tree: &Path) -> Result<String> {
    let mut names = fs::read_dir(tree.join("usr/lib/modules"))
        .context("the tree has no kernel modules")?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<Result<Vec<_>>>()?;
    ensure!(
        names.len() == 1,
        "one kernel is expected in the tree, found {names:?}"
    );
    Ok(names.remove(0))
}

fn copy_into(from: &Path, to: &Path, mode: u32) -> Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    fs::create_dir_all(to.parent().context("a file needs a folder")?)?;
    fs::copy(from, to)
        .with_context(|| format!("copying {} to {}", from.display(), to.display()))?;
    Ok(fs::set_permissions(to, fs::Permissions::from_mode(mode))?)
}
