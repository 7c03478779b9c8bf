//! What this ramdisk leaves on a disk to know its own work again: which deployment an image belongs to.
//!
//! While an image is written, the first MiB of the disk is zero except for one mark. Whatever else puts a system on the
//! disk writes into that MiB, and then the mark counts for nothing. When the image is complete, a second mark is behind
//! the config drive, in a partition that nobody keeps who partitions the disk anew. With it is the key of the ramdisk that wrote
//! the image: a later ramdisk shows by it that it runs on the same machine.

use std::io;

use firstlight_api::order::{DeploymentId, Mark};
use firstlight_client::key::Key;

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
const KEY: &str = "key ";
/// Partitions that are looked at; images have a handful.
const PARTITIONS: usize = 32;
/// Of an ISO 9660 volume within its partition.
const ISO: u64 = 32768;

/// Who writes an image.
#[derive(Clone, Debug)]
pub struct Maker {
    pub deployment: DeploymentId,
    pub key: Key,
}

/// A mark, and the private key with it; an older ramdisk left none.
type Found = (Mark, Option<Key>);

impl Maker {
    fn mark(&self, magic: &str) -> [u8; LENGTH] {
        let text = format!("{magic}{}\n{KEY}{}\n", self.deployment, self.key.private());
        let mut bytes = [0; LENGTH];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        bytes
    }
}

/// Marks a disk whose first MiB is zero. Not durable before the next flush.
pub fn begin(device: &dyn BlockDevice, maker: &Maker) -> io::Result<()> {
    device.write_at(PLACE, &maker.mark(UNFINISHED))
}

/// Takes away what [`begin`] has written.
pub fn end(device: &dyn BlockDevice) -> io::Result<()> {
    device.write_at(PLACE, &[0; LENGTH])
}

/// Marks a complete config drive in the last bytes of its partition, which ends at `end`.
pub fn complete(device: &dyn BlockDevice, end: u64, maker: &Maker) -> io::Result<()> {
    device.write_at(end - LENGTH as u64, &maker.mark(INSTALLED))
}

/// The mark of an image that is half written, if the disk's first MiB has it and nothing else, and the key that was left with it.
pub fn unfinished(head: &[u8]) -> Option<Found> {
    let start = usize::try_from(PLACE).ok()?;
    let mark = head.get(start..start + LENGTH)?;
    let (deployment, key) = parse(UNFINISHED, mark)?;
    let alone = is_zero(&head[..start]) && is_zero(&head[start + LENGTH..]);
    alone.then_some((Mark::Unfinished { deployment }, key))
}

/// The mark of a complete image, or a config drive without one, and the key that was left with it. `None` too if the disk
/// cannot be read.
pub fn installed(device: &dyn BlockDevice, head: &[u8]) -> Option<Found> {
    let mut drive = None;
    for (start, end) in partitions(head, device.sector()) {
        let within = end <= device.size() && end - start > ISO + LENGTH as u64;
        if !within {
            continue;
        }
        let mut last = [0; LENGTH];
        if device.read_at(end - LENGTH as u64, &mut last).is_ok()
            && let Some((deployment, key)) = parse(INSTALLED, &last)
        {
            let deployment = Some(deployment);
            return Some((Mark::Installed { deployment }, key));
        }
        let mut volume = [0; 72];
        if device.read_at(start + ISO, &mut volume).is_ok()
            && &volume[1..6] == b"CD001"
            && volume[40..72].trim_ascii_end() == b"config-2"
        {
            drive = Some((Mark::Installed { deployment: None }, None));
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

fn parse(magic: &str, bytes: &[u8]) -> Option<(DeploymentId, Option<Key>)> {
    let rest = bytes.strip_prefix(magic.as_bytes())?;
    let (digits, rest) = rest.split_at_checked(32)?;
    let rest = rest.strip_prefix(b"\n")?;
    let deployment = DeploymentId::parse(std::str::from_utf8(digits).ok()?)?;
    if is_zero(rest) {
        return Some((deployment, None));
    }
    let rest = rest.strip_prefix(KEY.as_bytes())?;
    let end = rest.iter().position(|byte| *byte == b'\n')?;
    let key = Key::parse(std::str::from_utf8(&rest[..end]).ok()?).ok()?;
    is_zero(&rest[end + 1..]).then_some((deployment, Some(key)))
}
