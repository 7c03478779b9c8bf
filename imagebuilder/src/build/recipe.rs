//! Steps that get things: trees of Debian packages, compiled programs, wheels. [`super::layers`] puts them together.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::cache::{Key, Output, Reuse, Steps, Work, remove_tree};
use super::command::Log;
use super::debian::{Initramfs, Overlay, TreeSpec, Variant};
use super::programs::GoProgram;
use super::releases::Release;
use super::rust::Workspace;
use super::settings::Settings;
use super::tools::Tools;
use super::{debian, debs, ironic, programs, releases, repository, rust, tree, wheels, workload};

/// Where users of the box are listed, in its overlay and in its tree.
const SYSUSERS: &str = "usr/lib/sysusers.d";

/// Names of the archives of an unpacked tree: it has no list of packages, and the bill of materials wants one.
const LIST_ARCHIVES: &str =
    r#"ls "$1/var/cache/apt/archives" | grep '[.]deb$' >"$1/usr/share/firstlight-packages""#;
const LISTED: &str = "usr/share/firstlight-packages";

/// Names that kube-proxy calls; Debian makes them with scripts that do not run in an unpacked tree.
const LINK_IPTABLES: &str = r#"for name in iptables ip6tables; do for form in "" -save -restore; do ln -sf xtables-nft-multi "$1/usr/sbin/$name$form"; done; done"#;

/// The steps, with what they share.
pub struct Recipe<'a> {
    pub settings: &'a Settings,
    pub steps: Steps,
}

impl Recipe<'_> {
    /// Programs and boot files of Debian 13 that later steps use.
    pub fn tools(&self) -> Result<Tools> {
        let spec = self.tree_spec("tools", Variant::Extract);
        let key = self.tree_key("tools", &spec)?;
        let output = self.steps.run("tools", key, self.settings.debian, |work| {
            self.extract(work, &spec, "tools", &[])?;
            fs::create_dir(work.path("tree"))?;
            debian::unpack(&work.path("tools.tar"), &["usr"], &work.path("tree"))?;
            Ok(fs::remove_file(work.path("tools.tar"))?)
        })?;
        Ok(Tools::new(output))
    }

    /// Debian as it runs on the box, with the kernel.
    pub fn base_tree(&self) -> Result<Output> {
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

    /// The kernel, and its modules and firmware for the initramfs.
    pub fn kernel(&self, tree: &Output) -> Result<Output> {
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

    /// PID 1 of the initramfs.
    pub fn ramdisk_program(&self) -> Result<Output> {
        self.rust_program("ramdisk", "firstlight-ramdisk")
    }

    /// The agent of the box.
    pub fn agent_program(&self) -> Result<Output> {
        self.rust_program("agent-bin", "firstlight-agent")
    }

    /// What writes another system beside the running one.
    pub fn update_program(&self) -> Result<Output> {
        self.rust_program("update-bin", "firstlight-update")
    }

    /// One of our own programs.
    fn rust_program(&self, step: &str, package: &str) -> Result<Output> {
        let source = &self.settings.source;
        let log = Log::create(self.settings.cache.join("logs/rustc.log"))?;
        let mut inputs = Workspace::load(source, &log)?.sources(package);
        inputs.extend(["Cargo.toml", "Cargo.lock"].map(|name| source.join(name)));
        let key = Key::new(step, 1)
            .text("rustc", &rust::rust_version(&log)?)
            .paths(inputs.iter().map(PathBuf::as_path))?;
        self.steps.run(step, key, Reuse::Cached, |work| {
            rust::build_rust(work, self.settings, package, &work.path(package))
        })
    }

    /// Upstream's Go programs.
    pub fn go_programs(&self, step: &str, list: &[GoProgram<'_>]) -> Result<Output> {
        let log = Log::create(self.settings.cache.join("logs/go.log"))?;
        let mut key = Key::new(step, 1)
            .text("go", &programs::go_version(&log)?)
            .text("programs", &format!("{list:?}"));
        for program in list {
            let module = self.settings.rootfs("go").join(program.module);
            key = key.path(&module)?;
            // Several modules may build one source.
            let main = module.join(program.package).join("main.go");
            if main.is_symlink() {
                key = key.path(&main.canonicalize()?)?;
            }
        }
        self.steps.run(step, key, Reuse::Cached, |work| {
            programs::build_go(work, self.settings, list, &work.dir)
        })
    }

    /// Ironic and what it needs from the Python package index.
    pub fn ironic_wheels(&self) -> Result<Output> {
        let list = self.settings.rootfs("ironic").join(wheels::LIST);
        let key = Key::new("wheels", 2).path(&list)?;
        self.steps.run("wheels", key, Reuse::Cached, |work| {
            ironic::install_wheels(work, &list)
        })
    }

    /// Those that addons take files from; `lists` by the name of the addon.
    pub fn addon_wheels(&self, lists: &[(&str, PathBuf)]) -> Result<Output> {
        let files = lists.iter().map(|(_, list)| list.as_path());
        let key = Key::new("addon-wheels", 1).paths(files)?;
        self.steps.run("addon-wheels", key, Reuse::Cached, |work| {
            for (name, list) in lists {
                wheels::install(work, list, &work.path(name))?;
            }
            Ok(())
        })
    }

    /// The root file system of Ironic's container.
    pub fn ironic_tree(&self, wheels: &Output) -> Result<Output> {
        let spec = self.tree_spec("ironic", Variant::Extract);
        let ours = ["launch.py", "finish.py"].map(|name| spec.recipe.join(name));
        let key = self.tree_key("ironic-tree", &spec)?.output(wheels);
        let key = key.paths(ours.iter().map(PathBuf::as_path))?;
        self.steps
            .run("ironic-tree", key, self.settings.debian, |work| {
                ironic::make_tree(work, self.settings, &spec, wheels)
            })
    }

    /// Packet filter programs for the images of kube-proxy and flannel.
    pub fn nettools(&self) -> Result<Output> {
        let spec = self.tree_spec("nettools", Variant::Extract);
        let key = self
            .tree_key("nettools", &spec)?
            .text("links", LINK_IPTABLES)
            .text("list", LISTED);
        self.steps
            .run("nettools", key, self.settings.debian, |work| {
                self.extract(work, &spec, "nettools", &[LINK_IPTABLES])
            })
    }

    /// The packages of an addon, of which `recipe` is a folder.
    pub fn addon_tree(&self, addon: &str, recipe: &Path) -> Result<Output> {
        let spec = TreeSpec {
            recipe: recipe.to_owned(),
            ..self.tree_spec("", Variant::Extract)
        };
        let step = format!("{addon}-tree");
        let key = self.tree_key(&step, &spec)?.text("list", LISTED);
        self.steps.run(&step, key, self.settings.debian, |work| {
            self.extract(work, &spec, "packages", &[])
        })
    }

    /// `NAME.tar` with packages that are unpacked only, and the list of their archives.
    fn extract(&self, work: &Work, spec: &TreeSpec, name: &str, hooks: &[&str]) -> Result<()> {
        let mut hooks: Vec<String> = hooks.iter().map(|&hook| hook.to_owned()).collect();
        hooks.push(LIST_ARCHIVES.to_owned());
        debian::bootstrap_with(work, self.settings, spec, name, &hooks)?;
        let list = debian::read_member(&work.path(&format!("{name}.tar")), LISTED)?;
        Ok(fs::write(work.path(repository::LIST), list)?)
    }

    /// One of our programs for an addon.
    pub fn addon_program(&self, package: &str) -> Result<Output> {
        self.rust_program(&format!("{package}-bin"), package)
    }

    /// What an installed server runs before cloud-init.
    pub fn bootstrap_program(&self) -> Result<Output> {
        self.rust_program("bootstrap-bin", "firstlight-bootstrap")
    }

    /// Debian as it is installed on hosts.
    pub fn node_tree(&self) -> Result<Output> {
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

    /// Debian packages of the programs that nodes run.
    pub fn debs(&self, tools: &Tools, programs: &[&Output]) -> Result<Output> {
        let variables = debs::variables(self.settings)?;
        self.packages("debs", tools, programs, &variables, "")
    }

    /// With the packages of further versions of Kubernetes.
    pub fn all_debs(
        &self,
        tools: &Tools,
        debs: Output,
        releases: &[Release],
    ) -> Result<Vec<Output>> {
        let mut all = vec![debs];
        for release in releases {
            all.push(self.release_debs(tools, release)?);
        }
        Ok(all)
    }

    /// An archive of the images that kubeadm of this version asks for.
    pub fn release_images(&self, release: &Release) -> Result<Output> {
        let nettools = self.nettools()?;
        let step = format!("images-{}", release.version());
        let key = Key::new(&step, 1)
            .output(&nettools)
            .output(&release.programs)
            .text("versions", &format!("{:?}", release.versions));
        self.steps.run(&step, key, Reuse::Cached, |work| {
            let scratch = work.path("registry");
            let archive = work.path(releases::IMAGES);
            workload::archive_release(&archive, &scratch, release, &nettools)?;
            remove_tree(&scratch)
        })
    }

    pub fn release_debs(&self, tools: &Tools, release: &Release) -> Result<Output> {
        let mut variables = debs::variables(self.settings)?;
        variables.insert(debs::KUBERNETES, release.version().to_owned());
        let step = format!("debs-{}", release.version());
        let of = format!("${{{}}}", debs::KUBERNETES);
        self.packages(&step, tools, &[&release.programs], &variables, &of)
    }

    /// `of` is in the control file of each package that is made.
    fn packages(
        &self,
        step: &str,
        tools: &Tools,
        programs: &[&Output],
        variables: &debs::Variables,
        of: &str,
    ) -> Result<Output> {
        let mut key = Key::new(step, 1)
            .output(tools.output())
            .path(&self.settings.rootfs("debs"))?
            .text("variables", &format!("{variables:?}"));
        for output in programs {
            key = key.output(output);
        }
        self.steps.run(step, key, Reuse::Cached, |work| {
            let made = debs::Made {
                programs,
                variables,
                of,
            };
            debs::build_debs(work, tools, &self.settings.rootfs("debs"), &made)
        })
    }

    /// The tree of nodes with those packages installed.
    pub fn node_root(&self, tree: &Output, debs: &Output) -> Result<Output> {
        let script = self.settings.rootfs("node").join("install");
        let key = Key::new("node-root", 1)
            .output(tree)
            .output(debs)
            .path(&script)?;
        self.steps.run("node-root", key, Reuse::Cached, |work| {
            let debs = debs::list_debs(debs.dir())?;
            tree::install(work, &tree.path("node.tar"), &debs, &script, "node")
        })
    }

    /// Suite `base`: those packages, and what the settings name from Debian. Its signature is new whenever it is made, so it is
    /// made only when something in it may have changed.
    pub fn repository(
        &self,
        node_root: &Output,
        debs: &[Output],
        packages: &[String],
    ) -> Result<Output> {
        let mut key = debs.iter().fold(Key::new("repository", 2), Key::output);
        let mut reuse = Reuse::Cached;
        if !packages.is_empty() {
            key = key
                .output(node_root)
                .text("packages", &packages.join(" "))
                .text("mirror", self.mirror());
            reuse = self.settings.debian;
        }
        self.steps.run("repository", key, reuse, |work| {
            let mut all = Vec::new();
            for debs in debs {
                all.extend(debs::list_debs(debs.dir())?);
            }
            let downloads = work.path("downloads");
            if !packages.is_empty() {
                fs::create_dir(&downloads)?;
                let root = node_root.path("node.tar");
                tree::download(work, self.settings, &root, packages, &downloads)?;
                all.extend(debs::list_debs(&downloads)?);
            }
            repository::lay_out(&work.dir, &all)?;
            remove_tree(&downloads)
        })
    }

    fn mirror(&self) -> &str {
        self.settings.mirror.as_deref().unwrap_or_default()
    }

    /// Debian as somebody has it who knows nothing of Firstlight; `recipe` is a folder like those below `rootfs`.
    pub fn machine_tree(&self, recipe: &Path) -> Result<Output> {
        let spec = TreeSpec {
            recipe: recipe.to_owned(),
            ..self.tree_spec("", Variant::Minbase)
        };
        let key = self.tree_key("machine-tree", &spec)?;
        self.steps
            .run("machine-tree", key, self.settings.debian, |work| {
                debian::bootstrap(work, self.settings, &spec, "machine")
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
            .text("mirror", self.mirror())
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
