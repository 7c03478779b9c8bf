//! The last step: partitions, boot loaders and layers become one file, under its final name only when it is complete.

use std::fs::{self, File};
use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::Path;

use anyhow::{Context, Result};
use firstlight_api::boot_choice::{
    BOOT_CHOICE, BootChoice, INITRD, KERNEL, START, SystemSlot, boot_config,
};
use firstlight_api::slot::{self, LayerContent, table_digest};

use super::squashfs::Layer;
use super::tools::Tools;
use crate::disk::fat::{Content, FatSpec, format_fat};
use crate::disk::gpt::{self, DiskPlan};
use crate::disk::{self, grub};

const ESP_VOLUME: u32 = 0x5f1a_57e1;
const SITE_VOLUME: u32 = 0x5f1a_57e2;

/// Everything that goes onto the stick.
#[derive(Clone, Debug)]
pub struct Parts<'a> {
    /// Top layer first.
    pub layers: &'a [Layer],
    pub kernel: &'a Path,
    pub initrd: &'a Path,
    /// GRUB's core image for BIOS.
    pub core: &'a Path,
    /// Chooses the system.
    pub grub_config: String,
    /// Starts it: a template ([`boot_config`]).
    pub boot_config: String,
    pub site: String,
    pub readme: String,
    pub manifest: String,
}

/// What was written.
#[derive(Clone, Debug)]
pub struct Written {
    pub plan: DiskPlan,
    pub slot: Vec<slot::Layer>,
}

/// Writes the image to a temporary name beside `output` and renames it at the end.
pub fn write_image(parts: &Parts<'_>, tools: &Tools, output: &Path) -> Result<Written> {
    let layers = parts.layers.iter().map(|layer| LayerContent {
        name: layer.name.to_owned(),
        length: layer.bytes,
        sha256: layer.sha256,
        root: layer.root,
    });
    let slot = slot::plan_slot(layers);
    let table = slot::format_table(&slot, slot::slot_bytes(&slot))?;
    let plan = gpt::plan_stick(std::str::from_utf8(&table)?, slot::slot_bytes(&slot));

    let folder = super::preflight::output_folder(output);
    let temporary = tempfile::Builder::new()
        .prefix(".firstlight-")
        .suffix(".part")
        .tempfile_in(folder);
    let mut temporary =
        temporary.with_context(|| format!("creating a file in {}", folder.display()))?;
    let disk = temporary.as_file_mut();
    disk.set_len(plan.bytes())
        .context("setting the size of the image")?;
    gpt::write_table(disk, &plan)?;
    write_boot(disk, parts, tools, &plan, &table)?;
    write_slot(disk, parts.layers, &slot, &table, &plan)?;
    disk.sync_all().context("writing the image to disk")?;
    set_mode(disk)?;
    temporary
        .persist(output)
        .with_context(|| format!("moving the image to {}", output.display()))?;
    File::open(folder)
        .and_then(|folder| folder.sync_all())
        .with_context(|| format!("writing the folder {} to disk", folder.display()))?;
    Ok(Written { plan, slot })
}

/// Temporary files are private; an image is as readable as any other file the user makes.
fn set_mode(disk: &File) -> Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    let mask = nix::sys::stat::umask(nix::sys::stat::Mode::empty());
    nix::sys::stat::umask(mask);
    disk.set_permissions(fs::Permissions::from_mode(0o666 & !mask.bits()))
        .context("setting the permissions of the image")
}

fn write_boot(
    disk: &mut File,
    parts: &Parts<'_>,
    tools: &Tools,
    plan: &DiskPlan,
    table: &[u8],
) -> Result<()> {
    let boot =
        fs::read(tools.path("usr/lib/grub/i386-pc/boot.img")).context("reading GRUB's boot.img")?;
    let core = fs::read(parts.core).with_context(|| format!("reading {}", parts.core.display()))?;
    grub::install_bios(disk, &boot, &core, plan.partition("bios-boot")?.bytes())?;

    let part = plan.partition("ESP")?;
    let slot = SystemSlot::A;
    let system = plan.partition(slot.partition())?.id.to_string();
    let start = boot_config(&parts.boot_config, slot, &system, table_digest(table));
    let choice = BootChoice { slot, trial: None }.to_file();
    let [kernel, initrd, config] = [KERNEL, INITRD, START].map(|name| slot.boot_file(name));
    let signed = |name: &str| Content::File(tools.path(name));
    let esp = [
        (
            "EFI/BOOT/BOOTX64.EFI",
            signed("usr/lib/shim/shimx64.efi.signed"),
        ),
        (
            "EFI/BOOT/grubx64.efi",
            signed("usr/lib/grub/x86_64-efi-signed/grubx64.efi.signed"),
        ),
        (
            "EFI/BOOT/mmx64.efi",
            signed("usr/lib/shim/mmx64.efi.signed"),
        ),
        (
            "EFI/debian/grub.cfg",
            Content::Text(parts.grub_config.clone()),
        ),
        (BOOT_CHOICE, Content::Text(String::from_utf8(choice)?)),
        (&config, Content::Text(start)),
        (&kernel, Content::File(parts.kernel.to_owned())),
        (&initrd, Content::File(parts.initrd.to_owned())),
    ];
    write_fat(disk, part, 1024, ESP_VOLUME, &esp)?;
    let site = [
        ("site.yaml", Content::Text(parts.site.clone())),
        ("README.txt", Content::Text(parts.readme.clone())),
        ("manifest.json", Content::Text(parts.manifest.clone())),
    ];
    write_fat(disk, plan.partition("FIRSTLIGHT")?, 512, SITE_VOLUME, &site)
}

fn write_fat(
    disk: &mut File,
    part: &gpt::PartitionPlan,
    cluster: u32,
    volume_id: u32,
    files: &[(&str, Content)],
) -> Result<()> {
    let files = files
        .iter()
        .map(|(path, content)| ((*path).to_owned(), content.clone()))
        .collect();
    let image = format_fat(&FatSpec {
        bytes: part.bytes(),
        cluster,
        label: part.name.clone(),
        volume_id,
        files,
    })?;
    disk::copy_sparse(&mut image.as_slice(), disk, part.offset())
        .with_context(|| format!("writing partition {}", part.name))?;
    Ok(())
}

fn write_slot(
    disk: &mut File,
    layers: &[Layer],
    slot: &[slot::Layer],
    table: &[u8],
    plan: &DiskPlan,
) -> Result<()> {
    let part = plan.partition("system-a")?;
    disk.seek(SeekFrom::Start(part.offset()))?;
    disk.write_all(table).context("writing the slot table")?;
    for (layer, place) in layers.iter().zip(slot) {
        disk::place_file(
            &layer.path,
            disk,
            part.offset() + place.offset,
            part.bytes() - place.offset,
        )?;
    }
    Ok(())
}
