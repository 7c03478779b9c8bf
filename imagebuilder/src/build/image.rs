//! The last step: partitions, boot loaders and layers become one file, under its final name only when it is complete.

use std::fs::{self, File};
use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::Path;

use anyhow::{Context, Result};
use firstlight_api::boot_choice::{
    BIOS_BOOT, BOOT_CHOICE, BootChoice, INITRD, KERNEL, MBR, START, SystemSlot, boot_config,
};
use firstlight_api::digest::Sha256Digest;
use firstlight_api::slot::{
    BootFile, LayerContent, SlotTable, SystemContent, format_table, table_digest,
};

use super::cache::digest_file;
use super::squashfs::Layer;
use super::tools::Tools;
use crate::disk;
use crate::disk::fat::{Content, FatSpec, format_fat};
use crate::disk::gpt::{self, DiskPlan};
use crate::disk::grub::BiosLoader;
use crate::signing::Signer;

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
    pub signer: Option<&'a Signer>,
}

/// What was written.
#[derive(Clone, Debug)]
pub struct Written {
    pub plan: DiskPlan,
    pub slot: SlotTable,
    /// Who has signed it.
    pub signer: Option<String>,
}

/// What is read before any layer, but for what is in each system's own folder.
struct Loaders {
    bios: BiosLoader,
    esp: Vec<(&'static str, Content)>,
}

impl Loaders {
    fn load(parts: &Parts<'_>, tools: &Tools) -> Result<Self> {
        let read =
            |path: &Path| fs::read(path).with_context(|| format!("reading {}", path.display()));
        let boot = read(&tools.path("usr/lib/grub/i386-pc/boot.img"))?;
        let bios = BiosLoader::new(&boot, &read(parts.core)?, gpt::BIOS_BOOT_BYTES)?;
        let signed = |name: &str| Content::File(tools.path(name));
        let grub = signed("usr/lib/grub/x86_64-efi-signed/grubx64.efi.signed");
        let config = Content::Text(parts.grub_config.clone());
        let esp = vec![
            (
                "EFI/BOOT/BOOTX64.EFI",
                signed("usr/lib/shim/shimx64.efi.signed"),
            ),
            ("EFI/BOOT/grubx64.efi", grub),
            (
                "EFI/BOOT/mmx64.efi",
                signed("usr/lib/shim/mmx64.efi.signed"),
            ),
            ("EFI/debian/grub.cfg", config),
        ];
        Ok(Self { bios, esp })
    }

    /// Digests of them and of the system's own files.
    fn list(&self, parts: &Parts<'_>) -> Result<Vec<BootFile>> {
        let of_file = |path: &Path| -> Result<Sha256Digest> {
            let text = digest_file(path).with_context(|| format!("reading {}", path.display()))?;
            Sha256Digest::parse(&text).context("a digest is none")
        };
        let mut partition = self.bios.core.clone();
        partition.resize(usize::try_from(gpt::BIOS_BOOT_BYTES)?, 0);
        let mut list = vec![
            (MBR, Sha256Digest::of(&self.bios.code)),
            (BIOS_BOOT, Sha256Digest::of(&partition)),
        ];
        for (path, content) in &self.esp {
            let digest = match content {
                Content::Text(text) => Sha256Digest::of(text.as_bytes()),
                Content::File(path) => of_file(path)?,
            };
            list.push((path, digest));
        }
        list.push((KERNEL, of_file(parts.kernel)?));
        list.push((INITRD, of_file(parts.initrd)?));
        list.push((START, Sha256Digest::of(parts.boot_config.as_bytes())));
        let files = list.into_iter().map(|(name, sha256)| BootFile {
            name: name.to_owned(),
            sha256,
        });
        Ok(files.collect())
    }
}

/// Writes the image to a temporary name beside `output` and renames it at the end.
pub fn write_image(parts: &Parts<'_>, tools: &Tools, output: &Path) -> Result<Written> {
    let layers = parts.layers.iter().map(|layer| LayerContent {
        name: layer.name.to_owned(),
        length: layer.bytes,
        sha256: layer.sha256,
        root: layer.root,
    });
    let loaders = Loaders::load(parts, tools)?;
    let mut system = SystemContent {
        layers: layers.collect(),
        boot: loaders.list(parts)?,
        signature: None,
    };
    let signer = parts.signer.map(|signer| signer.sign(&mut system));
    let signer = signer.transpose()?;
    let slot = system.plan();
    let table = format_table(&slot, slot.bytes())?;
    let plan = gpt::plan_stick(std::str::from_utf8(&table)?, slot.bytes());

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
    write_boot(disk, parts, &loaders, &plan, &table)?;
    write_slot(disk, parts.layers, &slot, &table, &plan)?;
    disk.sync_all().context("writing the image to disk")?;
    set_mode(disk)?;
    temporary
        .persist(output)
        .with_context(|| format!("moving the image to {}", output.display()))?;
    File::open(folder)
        .and_then(|folder| folder.sync_all())
        .with_context(|| format!("writing the folder {} to disk", folder.display()))?;
    Ok(Written { plan, slot, signer })
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
    loaders: &Loaders,
    plan: &DiskPlan,
    table: &[u8],
) -> Result<()> {
    loaders.bios.write(disk)?;
    let part = plan.partition("ESP")?;
    let slot = SystemSlot::A;
    let system = plan.partition(slot.partition())?.id.to_string();
    let start = boot_config(&parts.boot_config, slot, &system, table_digest(table));
    let choice = BootChoice { slot, trial: None }.to_file();
    let [kernel, initrd, config] = [KERNEL, INITRD, START].map(|name| slot.boot_file(name));
    let own = [
        (BOOT_CHOICE, Content::Text(String::from_utf8(choice)?)),
        (config.as_str(), Content::Text(start)),
        (&kernel, Content::File(parts.kernel.to_owned())),
        (&initrd, Content::File(parts.initrd.to_owned())),
    ];
    let esp: Vec<_> = loaders.esp.iter().cloned().chain(own).collect();
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
    slot: &SlotTable,
    table: &[u8],
    plan: &DiskPlan,
) -> Result<()> {
    let part = plan.partition("system-a")?;
    disk.seek(SeekFrom::Start(part.offset()))?;
    disk.write_all(table).context("writing the slot table")?;
    for (layer, place) in layers.iter().zip(&slot.layers) {
        disk::place_file(
            &layer.path,
            disk,
            part.offset() + place.offset,
            part.bytes() - place.offset,
        )?;
    }
    Ok(())
}
