//! What a ramdisk and the box's first stage read from disks.

use std::io;
use std::sync::{Mutex, PoisonError};

use firstlight_api::order::DeploymentId;
use firstlight_api::slot;
use firstlight_client::key::Key;
use firstlight_efi::load_option;
use firstlight_ramdisk::boxstage::gpt;
use firstlight_ramdisk::deploy::device::BlockDevice;
use firstlight_ramdisk::deploy::finish::{find_esp, finish};
use firstlight_ramdisk::deploy::image::Held;
use firstlight_ramdisk::deploy::mark::Maker;
use firstlight_ramdisk::deploy::signatures::look;
use firstlight_ramdisk::inventory::dmi;
use uuid::Uuid;

const SECTOR: usize = 512;
const SIZE: usize = 4 << 20;
const HELD: usize = 1 << 20;
const SEED: &str = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";

/// A disk in memory.
struct Memory(Mutex<Vec<u8>>);

impl Memory {
    fn with<T>(
        &self,
        offset: u64,
        length: usize,
        work: impl FnOnce(&mut [u8]) -> T,
    ) -> io::Result<T> {
        let mut bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let range = start
            .checked_add(length)
            .and_then(|end| bytes.get_mut(start..end));
        range.map(work).ok_or(io::ErrorKind::UnexpectedEof.into())
    }
}

impl BlockDevice for Memory {
    fn name(&self) -> &'static str {
        "/dev/vda"
    }

    fn size(&self) -> u64 {
        SIZE as u64
    }

    fn sector(&self) -> u64 {
        SECTOR as u64
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.with(offset, buffer.len(), |bytes| buffer.copy_from_slice(bytes))
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.with(offset, data.len(), |bytes| bytes.copy_from_slice(data))
    }

    fn write_bulk(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.write_at(offset, data)
    }

    fn zero(&self, offset: u64, length: u64) -> io::Result<()> {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        self.with(offset, length, |bytes| bytes.fill(0))
    }

    fn discard(&self) -> io::Result<()> {
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn reread_partitions(&self) -> io::Result<()> {
        Ok(())
    }
}

/// The bytes are the start of the disk, and the last 4 KiB of them its end too.
pub fn run(bytes: &[u8]) {
    let mut head = bytes[..bytes.len().min(HELD)].to_vec();
    seal(&mut head);
    let mut content = head.clone();
    content.resize(SIZE, 0);
    let tail = &bytes[bytes.len().saturating_sub(4096)..];
    content[SIZE - tail.len()..].copy_from_slice(tail);
    let disk = Memory(Mutex::new(content));
    // A disk in memory can always be read.
    let found = look(&disk).expect("a look at it");
    assert_eq!(
        found.signatures.is_empty() && found.mark.is_none(),
        bytes.iter().all(|byte| *byte == 0)
    );
    drop(find_esp(&disk));

    let mut start = head.clone();
    start.resize(HELD, 0);
    let rest = Held {
        head: start,
        tail: vec![0; HELD],
        length: (SIZE / 2) as u64,
    };
    let maker = Maker {
        deployment: DeploymentId::new([7; 16]),
        key: Key::parse(SEED).expect("a seed of 32 bytes"),
    };
    let drive = (bytes.len().is_multiple_of(2)).then_some(&b"config"[..]);
    if finish(&disk, rest, drive, Some(&maker), &mut || Uuid::from_u128(9)).is_ok() {
        drop(look(&disk).expect("a look at it"));
        drop(find_esp(&disk));
    }

    if let Some(table) = head
        .get(SECTOR..2 * SECTOR)
        .and_then(|sector| gpt::parse_header(sector, SECTOR as u64))
    {
        assert!(table.bytes() <= 16 << 20);
        drop(gpt::parse_entries(&table, &head));
    }
    if let Ok(slot::SlotTable { layers, .. }) = slot::parse_slot_table(&head, SIZE as u64) {
        let inside = |layer: &slot::Layer| layer.offset + layer.length <= SIZE as u64;
        assert!(layers.iter().all(inside));
    }
    load_option::description(&head);
    load_option::network_path(&head);
    load_option::boots(&head);
    dmi::installed_memory_mb(&head);
}

/// Puts the checksums of a partition table right, for no change of a byte would come past them.
fn seal(head: &mut [u8]) {
    let number = |head: &[u8], at: usize| {
        let bytes = head.get(SECTOR + at..SECTOR + at + 4)?;
        let number = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        usize::try_from(number).ok()
    };
    if head.get(SECTOR..SECTOR + 8) != Some(b"EFI PART") || head.len() < 2 * SECTOR {
        return;
    }
    let place = || {
        let start = number(head, 72)?.checked_mul(SECTOR)?;
        let length = number(head, 80)?.checked_mul(number(head, 84)?)?;
        head.get(start..start.checked_add(length)?)
    };
    if let Some(sum) = place().map(crc32fast::hash) {
        head[SECTOR + 88..SECTOR + 92].copy_from_slice(&sum.to_le_bytes());
    }
    head[SECTOR + 16..SECTOR + 20].fill(0);
    let sum = crc32fast::hash(&head[SECTOR..SECTOR + 92]);
    head[SECTOR + 16..SECTOR + 20].copy_from_slice(&sum.to_le_bytes());
}

pub fn seeds() -> Vec<Vec<u8>> {
    let mut gpt = vec![0; 3 * SECTOR];
    gpt[450] = 0xEE;
    gpt[510..512].copy_from_slice(&[0x55, 0xAA]);
    let mut put = |at: usize, bytes: &[u8]| gpt[at..at + bytes.len()].copy_from_slice(bytes);
    put(SECTOR, b"EFI PART\0\0\x01\0\x5C\0\0\0");
    for (at, value) in [(24, 1_u64), (32, 8191), (40, 34), (48, 8158), (72, 2)] {
        put(SECTOR + at, &value.to_le_bytes());
    }
    put(SECTOR + 80, &[4, 0, 0, 0, 128, 0, 0, 0]);
    let esp = Uuid::from_u128(0xC12A_7328_F81F_11D2_BA4B_00A0_C93E_C93B);
    put(2 * SECTOR, &esp.to_bytes_le());
    put(2 * SECTOR + 16, &[1; 16]);
    put(2 * SECTOR + 32, &40_u64.to_le_bytes());
    put(2 * SECTOR + 40, &2000_u64.to_le_bytes());
    let mut mbr = vec![0; SECTOR];
    mbr[450] = 0xEF;
    mbr[454..458].copy_from_slice(&2048_u32.to_le_bytes());
    mbr[458..462].copy_from_slice(&100_u32.to_le_bytes());
    mbr[510..].copy_from_slice(&[0x55, 0xAA]);
    let digest = "ab".repeat(32);
    let slot = format!(
        "firstlight-slot 2\nagent 4096 512 {digest} {digest}\nbase 8192 1024 {digest} {digest}\n\0"
    );
    let mut option = vec![1, 0, 0, 0, 41, 0, b'N', 0, 0, 0, 3, 11, 37, 0];
    option.extend([2; 33]);
    option.extend([0x7F, 0xFF, 4, 0]);
    let mut smbios = vec![17, 40, 0, 0];
    smbios.resize(40, 1);
    smbios.extend(b"DIMM 0\0\0");
    vec![gpt, mbr, slot.into_bytes(), option, smbios]
}
