#![allow(clippy::unwrap_used)]
use std::fs;
use std::io::Cursor;
use std::os::unix::fs::FileExt as _;

use tempfile::TempDir;

use super::*;
use crate::disk::fat::{self, Content, FatSpec, format_fat};

/// A stick is a file here: what makes it a device is the business of `disks`, and of the kernel.
struct Bench {
    folder: TempDir,
    place: gpt::PartitionPlan,
}

fn open(path: &Path) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    options.open(path).unwrap()
}

impl Bench {
    /// With an image whose settings are those of a site that is called `lab`.
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let plan = gpt::plan_stick("test", 8 << 20);
        let mut image = open(&folder.path().join("a.img"));
        image.set_len(plan.bytes()).unwrap();
        gpt::write_table(&mut image, &plan).unwrap();
        let place = plan.partition("FIRSTLIGHT").unwrap().clone();
        let spec = FatSpec {
            bytes: place.bytes(),
            cluster: 512,
            label: "FIRSTLIGHT".to_owned(),
            volume_id: 1,
            files: vec![(
                "site.yaml".to_owned(),
                Content::Text("name: lab\n".to_owned()),
            )],
        };
        let fat = format_fat(&spec).unwrap();
        image.write_all_at(&fat, place.offset()).unwrap();
        Self { folder, place }
    }

    fn image(&self) -> PathBuf {
        self.folder.path().join("a.img")
    }

    fn stick(&self) -> File {
        let stick = open(&self.folder.path().join("stick"));
        let bytes = fs::metadata(self.image()).unwrap().len();
        stick.set_len(bytes + (64 << 20)).unwrap();
        stick
    }

    fn flash(&self, source: &mut Source) -> Written {
        let (mut stick, device) = (self.stick(), Path::new("stick"));
        let written = write(source, &mut stick, device).unwrap();
        verify(source, &mut stick, device, &written).unwrap();
        written
    }

    /// Of the stick.
    fn site(&self) -> String {
        let mut content = vec![0; usize::try_from(self.place.bytes()).unwrap()];
        let stick = self.stick();
        stick
            .read_exact_at(&mut content, self.place.offset())
            .unwrap();
        let found = fat::read_file(Cursor::new(&mut content[..]), "site.yaml");
        String::from_utf8(found.unwrap().unwrap()).unwrap()
    }
}

#[test]
fn only_what_differs_is_written_and_all_of_it_is_there_then() {
    let bench = Bench::new();
    let mut source = Source::open(&bench.image()).unwrap();
    let bytes = source.bytes();
    // A stick of zeros has what is zero in the image.
    let first = bench.flash(&mut source);
    assert!(first.bytes > 0 && first.bytes < bytes, "{first:?}");
    assert_eq!(bench.flash(&mut source), Written::default());
    // One byte of another image is one block.
    let image = open(&bench.image());
    let at = 3 * BLOCK as u64 + 5;
    image.write_all_at(b"x", at).unwrap();
    let mut other = Source::open(&bench.image()).unwrap();
    let written = bench.flash(&mut other);
    assert_eq!(written.offsets, [3 * BLOCK as u64]);
    let length = usize::try_from(bytes).unwrap();
    let (mut wanted, mut found) = (vec![0; length], vec![0; length]);
    other.read(0, &mut wanted).unwrap();
    bench.stick().read_exact_at(&mut found, 0).unwrap();
    assert!(wanted == found);
}

#[test]
fn settings_of_a_site_come_onto_the_stick_and_nothing_else_changes() {
    let bench = Bench::new();
    let site = bench.folder.path().join("site.yaml");
    fs::write(&site, "name: rack7\n# a word\n").unwrap();
    let key = bench.folder.path().join("key.pub");
    let line =
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJKnMsDQbTMUlMvSn7Cb5mS1nP7oGV9hCZLJj9XVIBYF ada";
    fs::write(&key, format!("{line}\n")).unwrap();
    for (site, begins) in [
        (None, "name: lab\n"),
        (Some(site.as_path()), "name: rack7\n# a word\n"),
    ] {
        let settings = Settings::load(site, std::slice::from_ref(&key))
            .unwrap()
            .unwrap();
        let mut source = Source::open(&bench.image()).unwrap();
        source.lay_over(settings.on(&source).unwrap());
        bench.flash(&mut source);
        let text = bench.site();
        assert!(text.starts_with(begins) && text.contains(line), "{text}");
    }
    // The image itself is as it was.
    let mut plain = Source::open(&bench.image()).unwrap();
    bench.flash(&mut plain);
    assert_eq!(bench.site(), "name: lab\n");
}

#[test]
fn a_block_that_reads_back_differently_is_noticed() {
    let bench = Bench::new();
    let mut source = Source::open(&bench.image()).unwrap();
    let (mut stick, device) = (bench.stick(), Path::new("stick"));
    let written = write(&mut source, &mut stick, device).unwrap();
    let at = written.offsets[0] + 7;
    stick.write_all_at(b"\xaa\xbb", at).unwrap();
    let error = verify(&mut source, &mut stick, device, &written).unwrap_err();
    assert!(error.to_string().contains("the stick is broken"), "{error}");
    stick.set_len(1).unwrap();
    assert!(verify(&mut source, &mut stick, device, &written).is_err());
}

#[test]
fn a_person_reads_how_much_was_written_and_how_fast_the_stick_is() {
    let written = |bytes| Written {
        offsets: vec![0],
        bytes,
    };
    let device = Path::new("/dev/sdx");
    let text = summary(
        device,
        1_200_000_000,
        &written(200_000_000),
        Duration::from_secs(2),
    );
    assert!(
        text.contains("200,000,000 of 1,200,000,000 bytes were written"),
        "{text}"
    );
    assert!(
        text.contains("reads 100 MB/s") && text.contains("takes it 12 s"),
        "{text}"
    );
    let few = summary(
        device,
        1_200_000_000,
        &written(4096),
        Duration::from_secs(1),
    );
    assert!(!few.contains("MB/s"), "{few}");
}
