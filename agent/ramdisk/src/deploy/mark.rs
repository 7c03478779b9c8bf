//! What this ramdisk leaves on a disk to know its own work again: which deployment an image belongs to.
//!
//! While an image is written, the first MiB of the disk is zero except for one mark. Whatever else puts a system on the
//! disk writes into that MiB, and then the mark counts for nothing. When the image is complete, a second mark is behind
//! the config drive, in a partition that nobody keeps who partitions the disk anew.

use std::io;

use firstlight_api::order::{DeploymentId, Mark};

use super::device::BlockDevice;
use super::gpt::Gpt;
use super::image::is_zero;
use super::mbr::Mbr;

/// The first mark's place: not in the first sector, which some firmware runs without a look at it.
pub const PLACE: u64 = 512 << 10;
/// Bytes of a mark: the smallest sector.
pub const LENGTH: usize = 512;
/// For a person with a hex dump, too.
const UNFINISHED: &str = "firstlight: an image is being written by deployment ";
const INSTALLED: &str = "firstlight: installed by deployment ";
/// Partitions that are looked at; images have a handful.
const PARTITIONS: usize = 32;
/// Of an ISO 9660 volume within its partition.
const ISO: u64 = 32768;

/// Marks a disk whose first MiB is zero. Not durable before the next flush.
pub fn begin(device: &dyn BlockDevice, deployment: DeploymentId) -> io::Result<()> {
    device.write_at(PLACE, &bytes(UNFINISHED, deployment))
}

/// Takes away what [`begin`] has written.
pub fn end(device: &dyn BlockDevice) -> io::Result<()> {
    device.write_at(PLACE, &[0; LENGTH])
}

/// Marks a complete config drive in the last bytes of its partition, which ends at `end`.
pub fn complete(device: &dyn BlockDevice, end: u64, deployment: DeploymentId) -> io::Result<()> {
    device.write_at(end - LENGTH as u64, &bytes(INSTALLED, deployment))
}

/// The deployment whose image is half written, if the disk's first MiB has its mark and nothing else.
pub fn unfinished(head: &[u8]) -> Option<DeploymentId> {
    let start = usize::try_from(PLACE).ok()?;
    let mark = head.get(start..start + LENGTH)?;
    let deployment = parse(UNFINISHED, mark)?;
    let alone = is_zero(&head[..start]) && is_zero(&head[start + LENGTH..]);
    alone.then_some(deployment)
}

/// The mark of a complete image, or a config drive without one. `None` too if the disk cannot be read.
pub fn installed(device: &dyn BlockDevice, head: &[u8]) -> Option<Mark> {
    let mut drive = None;
    for (start, end) in partitions(head, device.sector()) {
        let within = end <= device.size() && end - start > ISO + LENGTH as u64;
        if !within {
            continue;
        }
        let mut last = [0; LENGTH];
        if device.read_at(end - LENGTH as u64, &mut last).is_ok()
            && let Some(deployment) = parse(INSTALLED, &last)
        {
            let deployment = Some(deployment);
            return Some(Mark::Installed { deployment });
        }
        let mut volume = [0; 72];
        if device.read_at(start + ISO, &mut volume).is_ok()
            && &volume[1..6] == b"CD001"
            && volume[40..72].trim_ascii_end() == b"config-2"
        {
            drive = Some(Mark::Installed { deployment: None });
        }
    }
    drive
}

/// Partitions as ranges of bytes, first byte and the one after the last; what a damaged table says may be outside.
pub fn partitions(head: &[u8], sector: u64) -> Vec<(u64, u64)> {
    let range = |first: u64, count: u64| {
        let end = first.saturating_add(count);
        (first.saturating_mul(sector), end.saturating_mul(sector))
    };
    let mut ranges: Vec<(u64, u64)> = match Gpt::parse(head, sector) {
        Ok(Some(gpt)) => gpt
            .partitions()
            .iter()
            .map(|p| range(p.first_lba, p.last_lba - p.first_lba + 1))
            .collect(),
        _ => Mbr::parse(head)
            .map(|mbr| mbr.entries)
            .unwrap_or_default()
            .iter()
            .map(|e| range(e.first_lba.into(), e.sectors.into()))
            .collect(),
    };
    ranges.retain(|(start, end)| start < end);
    ranges.truncate(PARTITIONS);
    ranges
}

fn bytes(magic: &str, deployment: DeploymentId) -> [u8; LENGTH] {
    let text = format!("{magic}{deployment}\n");
    let mut bytes = [0; LENGTH];
    bytes[..text.len()].copy_from_slice(text.as_bytes());
    bytes
}

fn parse(magic: &str, bytes: &[u8]) -> Option<DeploymentId> {
    let rest = bytes.strip_prefix(magic.as_bytes())?;
    let (digits, rest) = rest.split_at_checked(32)?;
    let rest = rest.strip_prefix(b"\n")?;
    let deployment = DeploymentId::parse(std::str::from_utf8(digits).ok()?)?;
    is_zero(rest).then_some(deployment)
}
