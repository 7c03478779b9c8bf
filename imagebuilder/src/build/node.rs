//! The node image: a Debian 13 disk that starts under BIOS, UEFI and UEFI Secure Boot, and grows on its first boot.
//!
//! mke2fs fills the root file system from a tar, so nothing is mounted and nobody needs to be root.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::thread;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::cache::{Work, digest_file};
use super::debian::{installed, read_member};
use super::settings::SOURCE_DATE_EPOCH;
use super::tools::Tools;
use crate::disk::fat::{Content, FatSpec, format_fat};
use crate::disk::grub::{self, BiosLoader};
use crate::disk::{self, gpt};

/// Named in `overlays/node/etc/fstab`. It is on every disk with this image: what boots is found by its partition's GUID.
const ROOT_ID: &str = "5f1a57e0-0b0c-4a5e-8d1e-f1257116a7d0";
const HASH_SEED: &str = "5f1a57e0-0b0c-4a5e-8d1e-f1257116a7d1";
const ESP_VOLUME: u32 = 0x5f1a_57e0;
const ESP_BYTES: u64 = 36 << 20;
const MIB: u64 = 1 << 20;

/// Room for the journal, inode tables and what the first minutes of a node write before the file system grows.
const ROOM: u64 = 128 * MIB;

const LEVEL: i32 = 12;
/// log2 of what a decompressor has to keep: 8 MiB, so that a ramdisk in little memory can unpack it.
const WINDOW_LOG: u32 = 23;

/// What the served file is called, beside `node.json`.
pub const IMAGE: &str = "node.raw.zst";

/// Makes `node.raw.zst` and `node.json` from the tar of a tree.
pub fn make_image(work: &Work, tools: &Tools, tree: &Path, esp_config: &Path) -> Result<()> {
    let root = work.path("root.ext4");
    format_root(work, tools, tree, &root)?;
    let esp = format_fat(&esp_spec(tools, esp_config)?)?;
    let core = work.path("core.img");
    make_core(work, tools, "(,gpt2)/EFI/debian", &core)?;

    let raw = work.path("node.raw");
    let plan = gpt::plan_node(ROOT_ID, ESP_BYTES, fs::metadata(&root)?.len());
    let mut disk = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&raw)
        .context("creating the disk image")?;
    disk.set_len(plan.bytes())?;
    gpt::write_table(&mut disk, &plan)?;
    let boot =
        fs::read(tools.path("usr/lib/grub/i386-pc/boot.img")).context("reading GRUB's boot.img")?;
    let reserved = plan.partition("bios-boot")?.bytes();
    BiosLoader::new(&boot, &fs::read(&core)?, reserved)?.write(&mut disk)?;
    disk::copy_sparse(
        &mut esp.as_slice(),
        &mut disk,
        plan.partition("ESP")?.offset(),
    )?;
    let part = plan.partition("root")?;
    disk::place_file(&root, &mut disk, part.offset(), part.bytes())?;
    drop(disk);

    compress(&raw, &work.path(IMAGE))?;
    let status = read_member(tree, "var/lib/dpkg/status")?;
    let description = describe(&raw, &work.path(IMAGE), &String::from_utf8_lossy(&status))?;
    let json = work.path("node.json");
    fs::write(&json, format!("{description:#}\n"))
        .with_context(|| format!("writing {}", json.display()))?;
    for scratch in [raw, root, core] {
        fs::remove_file(&scratch).with_context(|| format!("removing {}", scratch.display()))?;
    }
    Ok(())
}

fn format_root(work: &Work, tools: &Tools, tree: &Path, root: &Path) -> Result<()> {
    let content = fs::metadata(tree)
        .with_context(|| format!("reading {}", tree.display()))?
        .len();
    let kib = (content + content / 16 + ROOM).next_multiple_of(MIB) / 1024;
    tools
        .program("usr/sbin/mke2fs", &work.log)
        .env("SOURCE_DATE_EPOCH", SOURCE_DATE_EPOCH.to_string())
        .args([
            "-q", "-t", "ext4", "-b", "4096", "-i", "16384", "-m", "1", "-J", "size=32", "-L",
            "root", "-U", ROOT_ID,
        ])
        .args(["-O", "project"])
        .arg("-E")
        .arg(format!(
            "hash_seed={HASH_SEED},lazy_itable_init=0,lazy_journal_init=0,root_owner=0:0"
        ))
        .arg("-d")
        .arg(tree)
        .arg(root)
        .arg(format!("{kib}k"))
        .run()?;
    // A folder can be held to a size: volumes of pods are (agent/volumes). mke2fs would count before it copies.
    tools
        .program("usr/sbin/tune2fs", &work.log)
        .env("SOURCE_DATE_EPOCH", SOURCE_DATE_EPOCH.to_string())
        .args(["-Q", "prjquota"])
        .arg(root)
        .run()
}

/// Both names that firmware and boot entries use: the removable path, and Debian's own folder.
fn esp_spec(tools: &Tools, config: &Path) -> Result<FatSpec> {
    let shim = |name: &str| Content::File(tools.path("usr/lib/shim").join(name));
    let grub = || Content::File(tools.path("usr/lib/grub/x86_64-efi-signed/grubx64.efi.signed"));
    let config =
        fs::read_to_string(config).with_context(|| format!("reading {}", config.display()))?;
    let files = vec![
        ("EFI/BOOT/BOOTX64.EFI", shim("shimx64.efi.signed")),
        ("EFI/BOOT/grubx64.efi", grub()),
        ("EFI/BOOT/mmx64.efi", shim("mmx64.efi.signed")),
        ("EFI/debian/shimx64.efi", shim("shimx64.efi.signed")),
        ("EFI/debian/grubx64.efi", grub()),
        ("EFI/debian/mmx64.efi", shim("mmx64.efi.signed")),
        ("EFI/debian/BOOTX64.CSV", shim("BOOTX64.CSV")),
        ("EFI/debian/grub.cfg", Content::Text(config)),
    ];
    let files = files
        .into_iter()
        .map(|(path, content)| (path.to_owned(), content))
        .collect();
    Ok(FatSpec {
        bytes: ESP_BYTES,
        cluster: 512,
        label: "ESP".to_owned(),
        volume_id: ESP_VOLUME,
        files,
    })
}

/// GRUB's core image for BIOS, which reads `grub.cfg` in the folder `prefix`.
pub fn make_core(work: &Work, tools: &Tools, prefix: &str, core: &Path) -> Result<()> {
    tools
        .program("usr/bin/grub-mkimage", &work.log)
        .args(["-O", "i386-pc", "-p", prefix, "-d"])
        .arg(tools.path("usr/lib/grub/i386-pc"))
        .arg("-o")
        .arg(core)
        .args(grub::BIOS_MODULES)
        .run()
}

fn compress(raw: &Path, packed: &Path) -> Result<()> {
    let mut from = File::open(raw).with_context(|| format!("opening {}", raw.display()))?;
    let to = File::create(packed).with_context(|| format!("creating {}", packed.display()))?;
    let mut encoder = zstd::Encoder::new(to, LEVEL)?;
    encoder.window_log(WINDOW_LOG)?;
    encoder.include_checksum(true)?;
    encoder.include_contentsize(true)?;
    encoder.set_pledged_src_size(Some(from.metadata()?.len()))?;
    // The bytes do not depend on the number of workers, only on there being any.
    encoder.multithread(u32::try_from(
        thread::available_parallelism().map_or(1, usize::from),
    )?)?;
    std::io::copy(&mut from, &mut encoder).context("compressing the node image")?;
    encoder
        .finish()?
        .flush()
        .context("writing the compressed node image")
}

fn describe(raw: &Path, packed: &Path, status: &str) -> Result<Value> {
    let packages: BTreeMap<&str, &str> = installed(status).collect();
    Ok(json!({
        "name": "node",
        "format": "raw.zst",
        "rawBytes": fs::metadata(raw)?.len(),
        "bytes": fs::metadata(packed)?.len(),
        "sha256": digest_file(packed)?,
        "packages": packages,
    }))
}
