//! A whole image, as a browser or `curl` sends it: its system is passed on, everything else is passed over.

use std::io::Cursor;

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use firstlight_api::{
    boot_choice::SystemSlot,
    slot::{Layer, SlotTable, TABLE_BYTES, parse_slot_table},
};
use gpt::GptConfig;
use hyper::body::Body;
use tokio::sync::mpsc;

use super::source::Source;

const SECTOR: u64 = 512;
/// The protective MBR, the header and 128 entries.
const HEAD: usize = 34 * 512;
/// Of a form with a file in it, up to the file.
const LONGEST_FORM: usize = 4096;
/// The library looks at the end of a disk, too.
const PRETENDED: usize = 64 * 1024;

/// Reads up to the first layer. `is_form`: it is the file of a form.
pub async fn begin<B: Body<Data = Bytes> + Unpin>(
    source: &mut Source<B>,
    is_form: bool,
) -> Result<SlotTable> {
    if is_form {
        source
            .until(b"\r\n\r\n", LONGEST_FORM)
            .await
            .context("this is no form with a file")?;
    }
    let head = source
        .exactly(HEAD)
        .await
        .context("this is no image of a stick")?;
    let (first, bytes) = find_system(&head)?;
    source
        .skip(first - HEAD as u64)
        .await
        .context("the image ends before its system")?;
    let table = source
        .exactly(TABLE_BYTES)
        .await
        .context("the image ends before its system")?;
    Ok(parse_slot_table(&table, bytes)?)
}

/// Where the system begins, and the bytes of its partition.
fn find_system(head: &[u8]) -> Result<(u64, u64)> {
    let mut disk = head.to_vec();
    disk.resize(PRETENDED, 0);
    let table = GptConfig::new()
        .writable(false)
        .open_from_device(Cursor::new(disk))
        .ok()
        .context("this is no image that `firstlight build` made: it has no partition table")?;
    let name = SystemSlot::A.partition();
    let mut entries = table.partitions().values().filter(|entry| entry.is_used());
    let entry = entries.find(|entry| entry.name == name);
    let entry = entry.with_context(|| format!("the image has no partition {name}"))?;
    let sectors = entry
        .last_lba
        .checked_sub(entry.first_lba)
        .and_then(|less| less.checked_add(1));
    let (Some(first), Some(bytes)) = (
        entry.first_lba.checked_mul(SECTOR),
        sectors.and_then(|sectors| sectors.checked_mul(SECTOR)),
    ) else {
        bail!("the partition {name} lies outside of every disk");
    };
    ensure!(
        first >= HEAD as u64,
        "the partition {name} lies in the partition table"
    );
    Ok((first, bytes))
}

/// Passes on what was begun; returns early where nobody takes it any more.
pub async fn pass_on<B: Body<Data = Bytes> + Unpin>(
    source: &mut Source<B>,
    layers: &[Layer],
    to: mpsc::Sender<Bytes>,
) -> Result<()> {
    let mut at = TABLE_BYTES as u64;
    for layer in layers {
        let gap = layer
            .offset
            .checked_sub(at)
            .context("the layers are not in the order of their table")?;
        source.skip(gap).await?;
        if !source.forward(layer.length, &to).await? {
            return Ok(());
        }
        at = layer.offset + layer.length;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeMap;

    use firstlight_api::slot::{LayerContent, SystemContent, format_table};
    use gpt::{
        partition::Partition,
        partition_types::{OperatingSystem, Type},
    };
    use http_body_util::Full;
    use proptest::prelude::*;

    use super::*;

    const FIRST: u64 = 2048;
    const ROOM: u64 = 1 << 20;

    /// With two layers, of ones and of twos.
    fn image() -> Vec<u8> {
        let layers = [("agent", 512), ("base", 8192)].map(|(name, length)| LayerContent {
            name: name.to_owned(),
            length,
            sha256: [7; 32].into(),
            root: [8; 32].into(),
        });
        let system = SystemContent {
            layers: layers.to_vec(),
            ..SystemContent::default()
        };
        let plan = system.plan();
        let mut slot = format_table(&plan, ROOM).unwrap();
        for (layer, byte) in plan.layers.iter().zip([1, 2]) {
            slot.resize(usize::try_from(layer.offset).unwrap(), 0);
            slot.extend(vec![byte; usize::try_from(layer.length).unwrap()]);
        }
        let mut disk = Cursor::new(vec![0; 4 << 20]);
        let mut table = GptConfig::new()
            .writable(true)
            .create_from_device(&mut disk, None)
            .unwrap();
        let entry = Partition {
            part_type_guid: Type {
                guid: table.guid().to_owned(),
                os: OperatingSystem::None,
            },
            part_guid: table.guid().to_owned(),
            first_lba: FIRST,
            last_lba: FIRST + ROOM / SECTOR - 1,
            flags: 0,
            name: "system-a".to_owned(),
        };
        table
            .update_partitions(BTreeMap::from([(4, entry)]))
            .unwrap();
        table.write().unwrap();
        let mut image = disk.into_inner();
        let at = usize::try_from(FIRST * SECTOR).unwrap();
        image[at..at + slot.len()].copy_from_slice(&slot);
        image
    }

    /// Names, and the bytes that are passed on.
    fn sent(body: Vec<u8>, is_form: bool) -> Result<(Vec<String>, Vec<u8>)> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let mut source = Source::new(Full::new(Bytes::from(body)));
            let layers = begin(&mut source, is_form).await?.layers;
            let (pieces, mut inbox) = mpsc::channel::<Bytes>(64);
            let taking = async {
                let mut all = Vec::new();
                while let Some(piece) = inbox.recv().await {
                    all.extend_from_slice(&piece);
                }
                all
            };
            let (passed, all) = tokio::join!(pass_on(&mut source, &layers, pieces), taking);
            passed?;
            Ok((layers.into_iter().map(|layer| layer.name).collect(), all))
        })
    }

    #[test]
    fn the_system_of_an_image_is_passed_on_and_nothing_else() {
        let expected = [vec![1; 512], vec![2; 8192]].concat();
        let (names, bytes) = sent(image(), false).unwrap();
        assert_eq!(
            (names, bytes),
            (
                vec!["agent".to_owned(), "base".to_owned()],
                expected.clone()
            )
        );
        let head =
            b"--x\r\nContent-Disposition: form-data; name=\"image\"; filename=\"a.img\"\r\n\r\n"
                .to_vec();
        let form = [head, image(), b"\r\n--x--\r\n".to_vec()].concat();
        assert_eq!(sent(form, true).unwrap().1, expected);
    }

    #[test]
    fn what_is_no_image_is_told() {
        for (body, why) in [
            (vec![0; 1 << 20], "no partition table"),
            (vec![0; 10], "no image of a stick"),
            (image()[..1 << 20].to_vec(), "ends before its system"),
            (
                image()[..(1 << 20) + 4096 + 600].to_vec(),
                "ended before its end",
            ),
        ] {
            let said = format!("{:#}", sent(body, false).unwrap_err());
            assert!(said.contains(why), "{said}");
        }
        assert!(format!("{:#}", sent(image(), true).unwrap_err()).contains("no form"));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn whatever_image_is_sent_is_passed_on_or_refused(
            changes in proptest::collection::vec((0..18_000_usize, any::<u8>()), 0..4),
            table in proptest::collection::vec((0..200_usize, any::<u8>()), 0..4),
            noise: Vec<u8>, is_form: bool,
        ) {
            let mut body = image();
            for (at, value) in changes {
                body[at] = value;
            }
            for (at, value) in table {
                body[(1 << 20) + at] = value;
            }
            for body in [body, noise] {
                if let Ok((names, bytes)) = sent(body, is_form) {
                    prop_assert!(!names.is_empty() && bytes.len() <= 4 << 20);
                }
            }
        }
    }
}
