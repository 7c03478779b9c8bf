//! Steps that put things together: the initramfs, the node image, and the layers of the system slot.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use firstlight_signature::{KEYS, Keys};

use super::addons::{Addon, AddonProgram};
use super::cache::{Key, Output, Reuse, remove_tree};
use super::recipe::Recipe;
use super::releases::Release;
use super::repository::SUITE;
use super::squashfs::{Owner, Packing};
use super::tools::Tools;
use super::{addons, debian, images, manifests, node, programs, squashfs, versions, workload};

/// Where containerd's store is in its layer (docs/reference.md).
const STORE: &str = "usr/lib/firstlight/images";

impl Recipe<'_> {
    pub fn base_layer(&self, tools: &Tools, tree: &Output) -> Result<Output> {
        let key = Key::new("base", 3).output(tools.output()).output(tree);
        self.steps.run("base", key, Reuse::Cached, |work| {
            // The kernel is on the ESP; what is left of dpkg's database is its list of packages.
            let without = [
                "boot",
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

    /// The one initramfs, for the box and for hosts.
    pub fn initramfs(&self, kernel: &Output, ramdisk: &Output) -> Result<Output> {
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

    pub fn kube_layer(&self, tools: &Tools, programs: &Output) -> Result<Output> {
        let key = Key::new("kube", 2).output(tools.output()).output(programs);
        self.steps.run("kube", key, Reuse::Cached, |work| {
            squashfs::pack_folder(work, tools, programs.dir(), Packing::Zstd, Owner::Root)
        })
    }

    /// containerd's store with the images of all pods in it.
    pub fn images_layer(
        &self,
        tools: &Tools,
        seed: &Output,
        programs: &Output,
        ironic: &Output,
    ) -> Result<Output> {
        let references = versions::image_references(self.settings)?;
        let key = Key::new("images", 2)
            .output(tools.output())
            .output(seed)
            .output(programs)
            .output(ironic);
        let key = key.text("references", &format!("{references:?}"));
        self.steps.run("images", key, Reuse::Cached, |work| {
            let scratch = work.path("root");
            let images = images::plan_images(&references, programs, ironic)?;
            images::lay_out(work, &seed.path("seed"), &images, &scratch.join(STORE))?;
            squashfs::pack_folder(work, tools, &scratch, Packing::Zstd, Owner::Root)?;
            remove_tree(&work.path("root"))
        })
    }

    /// The disk image that hosts get.
    pub fn node_image(&self, tools: &Tools, root: &Output, bootstrap: &Output) -> Result<Output> {
        let config = self.settings.rootfs("node").join("grub.cfg");
        let exporter = self.go_programs("exporter-bin", programs::SERVER_PROGRAMS)?;
        let key = Key::new("node", 7)
            .output(tools.output())
            .output(root)
            .output(bootstrap)
            .output(&exporter)
            .path(&config)?;
        self.steps.run("node", key, Reuse::Cached, |work| {
            let (archive, ours) = (work.path("node.tar"), work.path("ours"));
            fs::copy(root.path("node.tar"), &archive).context("copying the node's tree")?;
            let program = "firstlight-bootstrap";
            let to = ours.join("usr/bin").join(program);
            copy_into(&bootstrap.path(program), &to, 0o755)?;
            for program in programs::SERVER_PROGRAMS {
                let to = ours.join(program.name);
                copy_into(&exporter.path(program.name), &to, 0o755)?;
            }
            debian::add_to_tree(&archive, &ours)?;
            remove_tree(&ours)?;
            node::make_image(work, tools, &archive, &config)?;
            Ok(fs::remove_file(archive)?)
        })
    }

    /// The registry's storage with the images of the workload cluster and of its addons; `programs`: of Kubernetes, and of its other
    /// images.
    pub fn site_registry(
        &self,
        tools: &Tools,
        [kube, programs]: [&Output; 2],
        releases: &[Release],
        addons: &[Addon],
    ) -> Result<Output> {
        let list: Vec<_> = addons
            .iter()
            .flat_map(|addon| &addon.images)
            .flat_map(|image| &image.programs)
            .filter_map(AddonProgram::go_program)
            .collect();
        let wheels: Vec<_> = addons
            .iter()
            .filter_map(|addon| Some((addon.name.as_str(), addon.wheels()?)))
            .collect();
        let trees = self.addon_trees(addons)?;
        let ours = addons
            .iter()
            .flat_map(|addon| &addon.images)
            .flat_map(|image| &image.programs)
            .filter_map(AddonProgram::ours)
            .map(|package| Ok((package.to_owned(), self.addon_program(package)?)))
            .collect::<Result<Vec<_>>>()?;
        let parts = workload::Parts {
            kube,
            programs,
            nettools: &self.nettools()?,
            addons: &self.go_programs("addon-bin", &list)?,
            wheels: &self.addon_wheels(&wheels)?,
            trees: &trees,
            ours: &ours,
            releases,
        };
        self.registry_layer(tools, parts, addons)
    }

    /// Packages of addons, by the addon.
    pub fn addon_trees(&self, addons: &[Addon]) -> Result<Vec<(String, Output)>> {
        let recipes = addons
            .iter()
            .filter_map(|addon| Some((&addon.name, addon.debian()?)));
        recipes
            .map(|(name, recipe)| Ok((name.clone(), self.addon_tree(name, &recipe)?)))
            .collect()
    }

    fn registry_layer(
        &self,
        tools: &Tools,
        parts: workload::Parts<'_>,
        addons: &[Addon],
    ) -> Result<Output> {
        let versions = versions::workload_versions(self.settings)?;
        workload::check_pause(&self.settings.overlay("node"), &versions)?;
        let images: Vec<_> = addons.iter().map(|addon| &addon.images).collect();
        let mut key = Key::new("registry", 2)
            .output(tools.output())
            .output(parts.kube)
            .output(parts.programs)
            .output(parts.nettools)
            .output(parts.addons)
            .output(parts.wheels)
            .text("versions", &format!("{versions:?}"))
            .text("addons", &format!("{images:?}"));
        for (_, output) in parts.trees.iter().chain(parts.ours) {
            key = key.output(output);
        }
        for release in parts.releases {
            key = key
                .output(&release.programs)
                .text("release", &format!("{:?}", release.versions));
        }
        self.steps.run("registry", key, Reuse::Cached, |work| {
            let root = work.path("root");
            workload::fill(&root.join(workload::STORAGE), parts, &versions, addons)?;
            squashfs::pack_folder(work, tools, &root, Packing::Stored, Owner::Registry)?;
            remove_tree(&root)
        })
    }

    /// What hosts fetch from the box.
    pub fn payload_layer(
        &self,
        tools: &Tools,
        kernel: &Output,
        initrd: &Output,
        node: &Output,
        repository: &Output,
    ) -> Result<Output> {
        let key = Key::new("payload", 3)
            .output(tools.output())
            .output(kernel)
            .output(initrd)
            .output(node)
            .output(repository);
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
            let apt = work.path("root").join(share).join("apt").join(SUITE);
            addons::copy_folder(repository.dir(), &apt, &[])?;
            squashfs::pack_folder(
                work,
                tools,
                &work.path("root"),
                Packing::Stored,
                Owner::Root,
            )?;
            remove_tree(&work.path("root"))
        })
    }

    /// Cluster API's manifests, as the agent applies them.
    pub fn cluster_api_manifests(&self, kube: &Output) -> Result<Output> {
        let module = self.settings.rootfs("go").join("cluster-api");
        let key = Key::new("manifests", 1)
            .output(kube)
            .path(&self.settings.rootfs("cluster-api"))?
            .path(&module)?;
        self.steps.run("manifests", key, Reuse::Cached, |work| {
            manifests::render_cluster_api(work, self.settings, &kube.path("usr/bin/kubectl"))
        })
    }

    /// The charts of the addons that the stick brings.
    pub fn addon_charts(&self, kube: &Output, list: &[Addon]) -> Result<Output> {
        // Named, too: a folder that somebody makes while this runs is in the next build.
        let names: Vec<&str> = list.iter().map(|addon| addon.name.as_str()).collect();
        let key = Key::new("addons", 5)
            .output(kube)
            .text("names", &names.join(" "))
            .path(&self.settings.rootfs("addons"))?;
        self.steps.run("addons", key, Reuse::Cached, |work| {
            addons::lay_out(work, &kube.path("usr/bin"), list)
        })
    }

    /// The agent, what updates it, and the files of the box: the small layer that changes most.
    pub fn agent_layer(
        &self,
        tools: &Tools,
        [agent, update]: [&Output; 2],
        manifests: &Output,
        charts: &Output,
        versions: &serde_json::Value,
        keys: &Keys,
    ) -> Result<Output> {
        let overlay = self.settings.overlay("box");
        ensure!(
            overlay.join("etc").is_dir(),
            "{} has no etc: the box could not start",
            overlay.display()
        );
        let key = Key::new("agent", 2)
            .output(tools.output())
            .output(agent)
            .output(update)
            .output(manifests)
            .output(charts)
            .path(&overlay)?
            .text("versions", &versions.to_string())
            .text("keys", &keys.to_text());
        self.steps.run("agent", key, Reuse::Cached, |work| {
            let root = work.path("root");
            fs::create_dir(&root)?;
            debian::pack_overlay(&overlay, ".", &work.path("overlay.tar"))?;
            debian::unpack(&work.path("overlay.tar"), &[""], &root)?;
            fs::remove_file(work.path("overlay.tar"))?;
            let programs = [
                (agent, "firstlight-agent", "usr/bin"),
                (update, "firstlight-update", "usr/lib/firstlight"),
            ];
            for (output, name, folder) in programs {
                copy_into(&output.path(name), &root.join(folder).join(name), 0o755)?;
            }
            let share = root.join("usr/share/firstlight");
            fs::create_dir_all(&share)?;
            fs::write(share.join("versions.json"), format!("{versions:#}\n"))?;
            if !keys.is_empty() {
                fs::write(root.join(KEYS), keys.to_text())?;
            }
            let folder = share.join("manifests");
            let name = manifests::CLUSTER_API;
            copy_into(&manifests.path(name), &folder.join(name), 0o644)?;
            addons::copy_chart(charts.dir(), &root.join(addons::FOLDER))?;
            let references = versions::image_references(self.settings)?;
            manifests::check_images(&folder, references.values())?;
            let workload = workload::references(&versions::workload_versions(self.settings)?);
            manifests::check_images(&folder.join("workload"), &workload)?;
            squashfs::pack_folder(work, tools, &root, Packing::Zstd, Owner::Root)?;
            remove_tree(&root)
        })
    }

    /// GRUB's core image for the stick under BIOS.
    pub fn bios_core(&self, tools: &Tools) -> Result<Output> {
        let key = Key::new("bios-core", 1).output(tools.output());
        self.steps.run("bios-core", key, Reuse::Cached, |work| {
            node::make_core(work, tools, "(,gpt2)/EFI/debian", &work.path("core.img"))
        })
    }
}

fn copy_into(from: &Path, to: &Path, mode: u32) -> Result<()> {
    fs::create_dir_all(to.parent().context("a file needs a folder")?)?;
    fs::copy(from, to)
        .with_context(|| format!("copying {} to {}", from.display(), to.display()))?;
    Ok(fs::set_permissions(to, fs::Permissions::from_mode(mode))?)
}
