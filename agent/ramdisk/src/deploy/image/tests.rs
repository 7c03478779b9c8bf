#![allow(clippy::unwrap_used)]

use std::io::{Cursor, Read};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use firstlight_api::order::DeploymentId;
use firstlight_client::key::Key;
use proptest::prelude::*;
use sha2::{Digest as _, Sha256};

use super::download::Ask;
use super::*;
use crate::deploy::device::FileDisk;
use crate::deploy::testing::{disk_of_sectors, disk_with, read};

const MIB: u64 = 1 << 20;
const DISK: u64 = 24 * MIB;

/// A server that breaks each connection after the next number of bytes, and then behaves.
struct Flaky {
    files: Vec<Vec<u8>>,
    cuts: Mutex<Vec<usize>>,
    /// Connections after which the next file is served.
    change_at: Option<usize>,
    ranges: bool,
    opened: AtomicUsize,
}

impl Flaky {
    fn new(file: &[u8], cuts: &[usize]) -> Self {
        Self {
            files: vec![file.to_vec()],
            cuts: Mutex::new(cuts.iter().rev().copied().collect()),
            change_at: None,
            ranges: true,
            opened: AtomicUsize::new(0),
        }
    }
}

struct Broken(Cursor<Vec<u8>>);

impl Read for Broken {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        match self.0.read(buffer)? {
            0 => Err(std::io::ErrorKind::ConnectionReset.into()),
            read => Ok(read),
        }
    }
}

impl Fetch for Flaky {
    fn open(&self, ask: &Ask) -> Result<Opened, String> {
        let count = self.opened.fetch_add(1, Ordering::Relaxed);
        let cut = self.cuts.lock().unwrap().pop();
        if cut == Some(0) {
            return Err("connection refused".into());
        }
        let version = usize::from(self.change_at.is_some_and(|at| count >= at));
        let file = &self.files[version];
        let validator = format!("\"v{version}\"");
        let same = ask.validator.is_none_or(|v| v == validator);
        let from = if same && self.ranges {
            usize::try_from(ask.from).unwrap()
        } else {
            0
        };
        let rest = file[from..].to_vec();
        let body: Box<dyn Read + Send> = match cut {
            Some(cut) => Box::new(Broken(Cursor::new(rest[..cut.min(rest.len())].to_vec()))),
            None => Box::new(Cursor::new(rest)),
        };
        Ok(Opened {
            status: if from > 0 { 206 } else { 200 },
            from: from as u64,
            total: Some(file.len() as u64),
            validator: Some(validator),
            relay: None,
            body,
        })
    }

    fn describe(&self, _: &Ask) -> Result<Described, String> {
        Ok(described(&self.files[0], 0))
    }
}

/// What `file` is, as the server of it says.
fn described(file: &[u8], version: usize) -> Described {
    Described {
        total: Some(file.len() as u64),
        validator: Some(format!("\"v{version}\"")),
    }
}

fn request(file: &[u8], url: &str) -> ImageRequest {
    let digest = Sha256::digest(file);
    let hex = digest
        .iter()
        .fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
    ImageRequest {
        urls: vec![url.into()],
        format: Some("raw".into()),
        digest: Digest::parse("sha256", &hex, false).unwrap(),
        authorization: None,
    }
}

const QUICK: Patience = Patience {
    first_pause: Duration::from_micros(10),
    longest_pause: Duration::from_micros(20),
    in_all: Duration::from_secs(20),
    relayed: Duration::from_secs(20),
};

fn write(
    disk: &FileDisk,
    fetch: &dyn Fetch,
    request: &ImageRequest,
) -> Result<(Held, Vec<Progress>), ImageError> {
    let said = Mutex::new(Vec::new());
    let context = Context {
        device: disk,
        fetch,
        patience: QUICK,
        cancel: &Cancel::default(),
        maker: None,
        share: None,
        progress: &|progress| said.lock().unwrap().push(progress),
    };
    let held = write_image(&context, request)?;
    Ok((held, said.into_inner().unwrap()))
}

/// Data with runs of zeros, none of it repeating.
fn image(length: u64, seed: u64) -> Vec<u8> {
    let mut state = seed;
    let mut bytes = vec![0; usize::try_from(length).unwrap()];
    for (index, block) in bytes.chunks_mut(64 << 10).enumerate() {
        if index % 5 == 3 || index % 7 > 4 {
            continue;
        }
        for byte in block {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            *byte = state.to_be_bytes()[0];
        }
    }
    bytes
}

/// The disk as it is once the held parts are written.
fn whole(disk: &FileDisk, held: &Held, length: u64) -> Vec<u8> {
    let mut bytes = read(disk, 0, DISK);
    assert!(
        bytes[..held.head.len()].iter().all(|b| *b == 0),
        "the head must not be on the disk yet"
    );
    let tail = bytes.len() - held.tail.len();
    assert!(
        bytes[tail..].iter().all(|b| *b == 0),
        "the tail must not be on the disk yet"
    );
    bytes[..held.head.len()].copy_from_slice(&held.head);
    bytes[tail..].copy_from_slice(&held.tail);
    bytes.truncate(usize::try_from(length).unwrap());
    bytes
}

/// A disk full of an older system: where the image has zeros, nothing of it may shine through.
fn used_disk() -> (tempfile::NamedTempFile, FileDisk) {
    disk_with(DISK, &[(0, &vec![0xAA; usize::try_from(DISK).unwrap()])])
}

#[test]
fn raw_and_zstd_images_arrive_whole_on_a_disk_that_was_in_use() {
    for length in [5 * MIB, 4 * MIB + 512, 9 * MIB + 1536, DISK] {
        let image = image(length, length);
        let packed = zstd::encode_all(image.as_slice(), 3).unwrap();
        for (file, url) in [
            (&image, "http://box/n.raw"),
            (&packed, "http://box/n.raw.zst?x=1"),
            (&packed, "http://box/n"),
        ] {
            let (_file, disk) = used_disk();
            let (held, said) = write(&disk, &Flaky::new(file, &[]), &request(file, url)).unwrap();
            assert_eq!(held.length, length);
            assert!(whole(&disk, &held, length) == image, "{url} of {length}");
            let total = file.len() as u64;
            assert_eq!(said.last(), Some(&Progress::Bytes { done: total, total }));
        }
    }
}

#[test]
fn an_image_that_is_no_whole_number_of_sectors_is_filled_up() {
    let image = image(5 * MIB + 100, 1);
    let (_file, disk) = disk_of_sectors(4096, DISK, &[]);
    let (held, _) = write(
        &disk,
        &Flaky::new(&image, &[]),
        &request(&image, "http://box/n"),
    )
    .unwrap();
    assert!(whole(&disk, &held, 5 * MIB + 100) == image);
}

#[test]
fn a_wrong_digest_leaves_a_disk_that_cannot_boot() {
    let image = image(DISK, 2);
    let (_file, disk) = used_disk();
    let mut wanted = request(&image, "http://box/n");
    wanted.digest = Digest::parse("sha256", &"00".repeat(32), false).unwrap();
    let error = write(&disk, &Flaky::new(&image, &[]), &wanted).unwrap_err();
    assert!(matches!(error, ImageError::Digest { .. }), "{error}");
    assert!(is_zero(&read(&disk, 0, MIB)) && is_zero(&read(&disk, DISK - MIB, MIB)));
}

#[test]
fn a_disk_says_whose_image_it_gets_before_its_first_byte_and_not_after_its_last() {
    use crate::deploy::signatures::{self, UNFINISHED};
    use firstlight_api::order::Mark;
    let image = image(DISK, 2);
    let deployment = DeploymentId::new([7; 16]);
    let maker = Maker {
        deployment,
        key: Key::new().unwrap(),
    };
    let (_file, disk) = used_disk();
    let marked = |disk: &FileDisk| {
        let found = signatures::look(disk).unwrap();
        assert_eq!(found.mark, Some(Mark::Unfinished { deployment }));
        assert_eq!(found.signatures, [UNFINISHED]);
    };
    let first = Mutex::new(true);
    let context = Context {
        device: &disk,
        fetch: &Flaky::new(&image, &[0]),
        patience: QUICK,
        cancel: &Cancel::default(),
        maker: Some(&maker),
        share: None,
        progress: &|progress| {
            if matches!(progress, Progress::Retry { .. }) {
                marked(&disk);
                *first.lock().unwrap() = false;
            }
        },
    };
    let held = write_image(&context, &request(&image, "http://box/n")).unwrap();
    assert!(!*first.lock().unwrap(), "it was looked at in the middle");
    marked(&disk);
    disk.write_at(0, &held.head).unwrap();
    assert_ne!(signatures::find(&disk).unwrap(), [UNFINISHED]);
}

#[test]
fn an_image_that_changes_on_the_server_starts_over() {
    let (old, new) = (image(6 * MIB, 3), image(7 * MIB, 4));
    let (_file, disk) = used_disk();
    let mut fetch = Flaky::new(&old, &[3 << 20, 1000]);
    fetch.files.push(new.clone());
    fetch.change_at = Some(1);
    let (held, _) = write(&disk, &fetch, &request(&new, "http://box/n")).unwrap();
    assert!(whole(&disk, &held, 7 * MIB) == new);
}

#[test]
fn a_server_without_ranges_is_asked_for_everything_again() {
    let image = image(6 * MIB, 5);
    let (_file, disk) = used_disk();
    let mut fetch = Flaky::new(&image, &[3 << 20]);
    fetch.ranges = false;
    let (held, _) = write(&disk, &fetch, &request(&image, "http://box/n")).unwrap();
    assert!(whole(&disk, &held, 6 * MIB) == image);
}

#[test]
fn a_box_that_stays_away_is_given_up_in_the_end() {
    let image = image(5 * MIB, 6);
    let (_file, disk) = used_disk();
    let context = Context {
        device: &disk,
        fetch: &Flaky::new(&image, &vec![0; 100_000]),
        patience: Patience {
            in_all: Duration::from_millis(30),
            ..QUICK
        },
        cancel: &Cancel::default(),
        maker: None,
        share: None,
        progress: &|_| (),
    };
    let error = write_image(&context, &request(&image, "http://box/n")).unwrap_err();
    assert!(
        matches!(&error, ImageError::GaveUp { reason, .. } if reason == "connection refused"),
        "{error}"
    );
}

#[test]
fn work_can_be_called_off() {
    let image = image(5 * MIB, 7);
    let (_file, disk) = used_disk();
    let cancel = Cancel::default();
    let context = Context {
        device: &disk,
        fetch: &Flaky::new(&image, &[0; 1000]),
        patience: Patience {
            first_pause: Duration::from_mins(10),
            ..QUICK
        },
        cancel: &cancel,
        maker: None,
        share: None,
        progress: &|progress| {
            if matches!(progress, Progress::Retry { .. }) {
                cancel.raise();
            }
        },
    };
    let error = write_image(&context, &request(&image, "http://box/n")).unwrap_err();
    assert!(matches!(error, ImageError::Cancelled), "{error}");
}

#[test]
fn what_cannot_become_a_disk_is_refused_with_its_reason() {
    let qcow2 = [b"QFI\xfb".to_vec(), vec![1; 100]].concat();
    let xz = b"\xfd7zXZ\0 and more".to_vec();
    let large = vec![1; usize::try_from(DISK).unwrap() + 1];
    let cut = zstd::encode_all(image(6 * MIB, 8).as_slice(), 3).unwrap()[..5000].to_vec();
    for (file, url, text) in [
        (&qcow2, "http://box/n", "format qcow2"),
        (&xz, "http://box/n", "format xz"),
        (&large, "http://box/n", "choose a larger disk"),
        (&qcow2, "http://box/n.zst", "decompressing the image"),
        (&cut, "http://box/n.zst", "decompressing the image"),
    ] {
        let (_file, disk) = used_disk();
        let error = write(&disk, &Flaky::new(file, &[]), &request(file, url)).unwrap_err();
        assert!(error.to_string().contains(text), "{text}: {error}");
        assert!(is_zero(&read(&disk, 0, MIB)));
    }
    let (_file, disk) = used_disk();
    let mut wanted = request(&qcow2, "http://box/n");
    wanted.format = Some("qcow2".into());
    assert!(matches!(
        write(&disk, &Flaky::new(&qcow2, &[]), &wanted),
        Err(ImageError::Format(_))
    ));
    assert!(
        !is_zero(&read(&disk, 0, MIB)),
        "a request that is refused at once costs nothing"
    );
}

/// A box that names another server for as long as it may.
struct Rack {
    the_box: Flaky,
    neighbour: Flaky,
}

impl Fetch for Rack {
    fn open(&self, ask: &Ask) -> Result<Opened, String> {
        if !ask.relay {
            return self.the_box.open(ask);
        }
        let mut opened = self.neighbour.open(ask)?;
        opened.relay = Some("172.22.0.101:40000".into());
        Ok(opened)
    }

    fn describe(&self, ask: &Ask) -> Result<Described, String> {
        self.the_box.describe(ask)
    }
}

/// A neighbour with its own idea of the file, or an endless one.
struct Liar {
    rack: Rack,
    lie: fn(&mut Opened),
}

impl Fetch for Liar {
    fn open(&self, ask: &Ask) -> Result<Opened, String> {
        let mut opened = self.rack.open(ask)?;
        if opened.relay.is_some() {
            (self.lie)(&mut opened);
        }
        Ok(opened)
    }

    fn describe(&self, ask: &Ask) -> Result<Described, String> {
        self.rack.describe(ask)
    }
}

/// Noise without an end.
struct Noise(u64);

impl Read for Noise {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        std::thread::sleep(Duration::from_micros(100));
        for byte in buffer.iter_mut() {
            self.0 = self
                .0
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            *byte = self.0.to_be_bytes()[0];
        }
        Ok(buffer.len())
    }
}

#[test]
fn a_relay_that_says_something_else_than_the_box_costs_one_question_and_no_byte() {
    let image = image(9 * MIB, 10);
    for lie in [
        (|opened| opened.validator = Some("\"x\"".into())) as fn(&mut Opened),
        |opened| opened.validator = None,
        |opened| opened.total = Some(1 << 40),
        |opened| opened.total = None,
    ] {
        let (_file, disk) = used_disk();
        let rack = Rack {
            the_box: Flaky::new(&image, &[]),
            neighbour: Flaky::new(&image, &[8]),
        };
        let liar = Liar { rack, lie };
        let (held, said) = write(&disk, &liar, &request(&image, "http://box/n")).unwrap();
        assert!(whole(&disk, &held, 9 * MIB) == image);
        let other = |p: &Progress| matches!(p, Progress::Retry { reason } if reason.contains("another file"));
        assert_eq!(said.iter().filter(|p| other(p)).count(), 1);
        let count = |server: &Flaky| server.opened.load(Ordering::Relaxed);
        assert_eq!(
            (count(&liar.rack.neighbour), count(&liar.rack.the_box)),
            (1, 1)
        );
    }
}

#[test]
fn after_a_relay_with_other_bytes_the_box_alone_is_asked() {
    let (image, other) = (image(9 * MIB, 10), image(9 * MIB, 11));
    let (_file, disk) = used_disk();
    let mut the_box = Flaky::new(&image, &[]);
    // It was the first version that the box described; when the rest is asked for, it has the second.
    the_box.files.push(image.clone());
    the_box.change_at = Some(0);
    let rack = Rack {
        the_box,
        neighbour: Flaky::new(&other, &[8]),
    };
    let (held, _) = write(&disk, &rack, &request(&image, "http://box/n")).unwrap();
    assert!(whole(&disk, &held, 9 * MIB) == image);
    let count = |server: &Flaky| server.opened.load(Ordering::Relaxed);
    assert_eq!(count(&rack.neighbour), 1, "it is not asked a second time");
}

#[test]
fn a_relay_that_never_ends_is_left_when_its_time_is_over() {
    let image = image(9 * MIB, 10);
    let (_file, disk) = disk_with(DISK, &[]);
    let rack = Rack {
        the_box: Flaky::new(&image, &[]),
        neighbour: Flaky::new(&image, &[]),
    };
    let liar = Liar {
        rack,
        lie: |opened| opened.body = Box::new(Noise(1)),
    };
    let said = Mutex::new(Vec::new());
    let context = Context {
        device: &disk,
        fetch: &liar,
        patience: Patience {
            relayed: Duration::from_millis(5),
            ..QUICK
        },
        cancel: &Cancel::default(),
        maker: None,
        share: None,
        progress: &|progress| said.lock().unwrap().push(progress),
    };
    let held = write_image(&context, &request(&image, "http://box/n")).unwrap();
    assert!(whole(&disk, &held, 9 * MIB) == image);
    let long =
        |p: &Progress| matches!(p, Progress::Retry { reason } if reason.contains("too long"));
    assert!(said.into_inner().unwrap().iter().any(long));
}

#[test]
fn whatever_another_server_passes_on_the_disk_has_the_right_image() {
    let image = image(9 * MIB, 10);
    let file = zstd::encode_all(image.as_slice(), 1).unwrap();
    let mut corrupt = file.clone();
    corrupt[4 << 20] ^= 1;
    let no_image = b"QFI\xfb and more".to_vec();
    let too_much = vec![1; usize::try_from(DISK).unwrap() + 1];
    for (neighbour, asked) in [
        (Flaky::new(&file, &[]), 0),
        (Flaky::new(&file, &[3 << 20]), 1),
        (Flaky::new(&file, &[0]), 1),
        (Flaky::new(&corrupt, &[]), 1),
        (Flaky::new(&corrupt, &[5 << 20]), 2),
        (Flaky::new(&no_image, &[]), 1),
        (Flaky::new(&too_much, &[]), 1),
    ] {
        let (_file, disk) = used_disk();
        let rack = Rack {
            the_box: Flaky::new(&file, &[]),
            neighbour,
        };
        let (held, _) = write(&disk, &rack, &request(&file, "http://box/n.raw.zst")).unwrap();
        assert!(whole(&disk, &held, 9 * MIB) == image);
        let count = |server: &Flaky| server.opened.load(Ordering::Relaxed);
        assert_eq!((count(&rack.neighbour), count(&rack.the_box)), (1, asked));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Wherever and however often the connection breaks, the disk is that of one clean download.
    #[test]
    fn cuts_anywhere_do_not_matter(
        cuts in proptest::collection::vec(prop_oneof![Just(0), 1..2_000_000_usize], 0..12),
        packed in any::<bool>(),
    ) {
        let image = image(9 * MIB, 9);
        let file = if packed { zstd::encode_all(image.as_slice(), 1).unwrap() } else { image.clone() };
        let (_file, disk) = used_disk();
        let (held, said) = write(&disk, &Flaky::new(&file, &cuts), &request(&file, "http://box/n")).unwrap();
        prop_assert!(whole(&disk, &held, 9 * MIB) == image);
        let received: Vec<u64> = said.iter().filter_map(|p| match p {
            Progress::Bytes { done, .. } => Some(*done),
            Progress::Retry { .. } => None,
        }).collect();
        prop_assert!(received.is_sorted(), "nothing is downloaded twice");
    }
}
