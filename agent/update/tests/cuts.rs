//! An update that is cut at any byte: what GRUB starts afterwards is whole, and its state is the one that it knows.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::Read;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

use firstlight_api::boot_choice::{BootChoice, SystemSlot};
use firstlight_api::digest::Sha256Digest;
use firstlight_api::slot::{LayerContent, SystemContent, format_table, table_digest};
use firstlight_api::status::Problem;
use firstlight_update::backup;
use firstlight_update::boot::{BootFiles, Esp};
use firstlight_update::refusal::describe;
use firstlight_update::slot::{self, Slot};
use firstlight_update::state::{Start, State, Trial};
use proptest::prelude::*;
use sha2::{Digest, Sha256};
use tempfile::TempDir;

const ROOM: u64 = 1 << 20;

/// Layers of a system, top first.
type System = Vec<(&'static str, Vec<u8>)>;

fn system(agent: u8) -> System {
    vec![
        ("agent", vec![agent; 3 * 4096]),
        ("payload", vec![2; 9 * 4096]),
        ("base", vec![3; 4096]),
    ]
}

fn content(system: &System) -> SystemContent {
    let layers = system.iter().map(|(name, bytes)| LayerContent {
        name: (*name).to_owned(),
        length: bytes.len() as u64,
        sha256: Sha256Digest::from(<[u8; 32]>::from(Sha256::digest(bytes))),
        root: [bytes[0]; 32].into(),
    });
    SystemContent {
        layers: layers.collect(),
        ..SystemContent::default()
    }
}

struct Media {
    dir: TempDir,
}

impl Media {
    /// System A is there; B is what `left` says.
    fn new(left: u8) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let media = Self { dir };
        let (old, plan) = (system(1), content(&system(1)).plan());
        let a = fs::File::create(media.path("a")).unwrap();
        a.set_len(ROOM).unwrap();
        for (layer, (_, bytes)) in plan.layers.iter().zip(&old) {
            a.write_all_at(bytes, layer.offset).unwrap();
        }
        a.write_all_at(&format_table(&plan, ROOM).unwrap(), 0)
            .unwrap();
        fs::write(media.path("b"), vec![left; usize::try_from(ROOM).unwrap()]).unwrap();
        fs::create_dir_all(media.path("esp/boot/a")).unwrap();
        fs::write(media.path("esp/boot/a/vmlinuz"), "old").unwrap();
        media
            .esp()
            .choose(BootChoice {
                slot: SystemSlot::A,
                trial: None,
            })
            .unwrap();
        media
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn esp(&self) -> EspOf {
        EspOf(self.path("esp"))
    }

    fn update(&self, new: &System, sent: &[&str], input: &mut dyn Read) -> anyhow::Result<()> {
        let (a, b) = (self.path("a"), self.path("b"));
        let slot = |device| Slot { device, room: ROOM };
        let esp = self.esp();
        esp.get().take_away(SystemSlot::B)?;
        let sent: Vec<String> = sent.iter().map(|&name| name.to_owned()).collect();
        let mut quiet = |_, _| Ok(());
        slot::write(slot(&a), slot(&b), &content(new), &sent, input, &mut quiet)?;
        let files = self.files();
        let table = slot(&b).table_digest()?;
        esp.get().bring(SystemSlot::B, &files, "0-1", table)
    }

    fn files(&self) -> BootFiles {
        let file = |name: &str, text: &str| {
            let path = self.path(name);
            fs::write(&path, text).unwrap();
            path
        };
        BootFiles {
            kernel: file("kernel", "new"),
            initrd: file("initrd", "initrd"),
            start: file(
                "boot.cfg",
                "linux /boot/@SLOT@/vmlinuz firstlight.slot=PARTUUID=@SYSTEM@ firstlight.table=@TABLE@ $word\n",
            ),
        }
    }

    fn missing(&self, new: &System) -> Vec<String> {
        let (a, b) = (self.path("a"), self.path("b"));
        let slot = |device| Slot { device, room: ROOM };
        slot::missing(slot(&a), slot(&b), &content(new)).unwrap()
    }

    fn holds(&self, slot: &str, system: &System) -> bool {
        let path = self.path(slot);
        let slot = Slot {
            device: &path,
            room: ROOM,
        };
        let Some(table) = slot.system().unwrap() else {
            return false;
        };
        let is_whole = |layer| slot.holds(layer).unwrap();
        table.content() == content(system) && table.layers.iter().all(is_whole)
    }
}

struct EspOf(PathBuf);

impl EspOf {
    fn get(&self) -> Esp<'_> {
        Esp(&self.0)
    }

    fn choose(&self, choice: BootChoice) -> anyhow::Result<()> {
        self.get().choose(choice)
    }
}

fn next(error: &anyhow::Error) -> String {
    assert!(error.downcast_ref::<Problem>().is_some(), "{error:#}");
    describe(error).next
}

#[test]
fn what_changed_is_sent_and_the_rest_is_there() {
    let media = Media::new(0xff);
    let new = system(9);
    assert_eq!(media.missing(&new), ["agent"]);
    let mut agent = new[0].1.as_slice();
    media.update(&new, &["agent"], &mut agent).unwrap();
    assert!(media.holds("b", &new) && media.holds("a", &system(1)));
    let start = fs::read_to_string(media.path("esp/boot/b/boot.cfg")).unwrap();
    let table = format_table(&content(&new).plan(), ROOM).unwrap();
    assert_eq!(
        start,
        format!(
            "linux /boot/b/vmlinuz firstlight.slot=PARTUUID=0-1 firstlight.table={} $word\n",
            table_digest(&table)
        )
    );
    assert!(media.esp().get().is_whole(SystemSlot::B));
    // Once more: all of it is there.
    assert!(media.missing(&new).is_empty());
    media.update(&new, &[], &mut std::io::empty()).unwrap();
    assert!(media.holds("b", &new));
}

#[test]
fn what_is_not_right_is_refused_and_cannot_be_started() {
    let new = system(9);
    let refused = |sent: &[&str], input: &[u8], new: &System| {
        let media = Media::new(0);
        let error = media.update(new, sent, &mut &*input).unwrap_err();
        assert!(!media.esp().get().is_whole(SystemSlot::B));
        assert!(media.holds("a", &system(1)));
        assert!(!media.holds("b", new));
        error
    };
    let mut changed = new[0].1.clone();
    changed[5000] ^= 1;
    assert!(next(&refused(&["agent"], &changed, &new)).contains("send it again"));
    assert!(next(&refused(&[], &[], &new)).contains("which layers are missing"));
    assert!(next(&refused(&["other"], &[], &new)).contains("in its table"));
    let huge = vec![("agent", vec![0; 2 << 20])];
    assert!(next(&refused(&["agent"], &[], &huge)).contains("larger stick"));
    let wrong = vec![("../agent", vec![0; 4096])];
    assert!(next(&refused(&["../agent"], &[], &wrong)).contains("firstlight build"));
    refused(&["agent"], &new[0].1[..4096], &new);
}

#[test]
fn a_damaged_running_system_is_not_copied_on() {
    let media = Media::new(0);
    let a = fs::File::options()
        .write(true)
        .open(media.path("a"))
        .unwrap();
    let payload = content(&system(1)).plan().layers[1].offset;
    a.write_all_at(&[0x55], payload + 77).unwrap();
    let new = system(9);
    let error = media
        .update(&new, &["agent"], &mut new[0].1.as_slice())
        .unwrap_err();
    assert!(next(&error).contains("--whole"));
    let whole: Vec<u8> = new.iter().flat_map(|(_, bytes)| bytes.clone()).collect();
    media
        .update(&new, &["agent", "payload", "base"], &mut whole.as_slice())
        .unwrap();
    assert!(media.holds("b", &new));
}

/// The state partition of a box, whose files say which version wrote them.
fn state(dir: &Path, version: &str) {
    for file in [
        "pki/ca.crt",
        "kube/agent.conf",
        "etcd/member/db",
        "ironic/ironic.sqlite",
        "agent/leases.log",
        "agent/hosts/n1.json",
    ] {
        let path = dir.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, version).unwrap();
    }
    fs::create_dir_all(dir.join("agent/store")).unwrap();
    fs::write(dir.join("agent/store/upload"), version).unwrap();
}

fn says(dir: &Path, file: &str) -> String {
    fs::read_to_string(dir.join(file)).unwrap()
}

fn trial() -> Trial {
    Trial {
        from: SystemSlot::A,
        to: SystemSlot::B,
        version: "0.2.0".to_owned(),
    }
}

#[test]
fn who_goes_back_has_the_state_of_before_and_who_stays_the_new_one() {
    for kept in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let of = State(dir.path());
        state(dir.path(), "old");
        assert_eq!(of.start(SystemSlot::A, false).unwrap(), Start::Plain);
        of.begin(&trial()).unwrap();
        assert_eq!(of.start(SystemSlot::B, true).unwrap(), Start::Tried);
        let before = fs::metadata(dir.path().join("update/before")).unwrap();
        assert_eq!(
            before.permissions().mode() & 0o777,
            0o700,
            "keys are in there"
        );
        state(dir.path(), "new");
        // The agent, or all of it, starts again in the same start of the box.
        assert_eq!(of.start(SystemSlot::B, true).unwrap(), Start::Tried);
        if kept {
            of.keep(&trial()).unwrap();
            assert_eq!(of.start(SystemSlot::B, false).unwrap(), Start::Plain);
        } else {
            of.note_why("n1 does not answer").unwrap();
            assert_eq!(of.start(SystemSlot::A, false).unwrap(), Start::Back);
            assert_eq!(of.start(SystemSlot::A, false).unwrap(), Start::Plain);
        }
        assert!(of.outcome().exists());
        for file in [
            "pki/ca.crt",
            "etcd/member/db",
            "ironic/ironic.sqlite",
            "agent/hosts/n1.json",
        ] {
            assert_eq!(says(dir.path(), file), if kept { "new" } else { "old" });
        }
        assert_eq!(says(dir.path(), "agent/store/upload"), "new");
        let outcome = says(dir.path(), "update/outcome.json");
        assert_eq!(outcome.contains(r#""kept":true"#), kept, "{outcome}");
        assert_eq!(outcome.contains("n1 does not answer"), !kept, "{outcome}");
        let left: Vec<_> = fs::read_dir(dir.path().join("update")).unwrap().collect();
        assert_eq!(left.len(), 1, "{left:?}");
        of.begin(&trial()).unwrap();
        assert!(!of.outcome().exists(), "the last one's");
    }
}

#[test]
fn a_trial_that_never_ran_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let of = State(dir.path());
    state(dir.path(), "old");
    of.begin(&trial()).unwrap();
    // Cut while it copied.
    fs::create_dir_all(dir.path().join("update/before/agent")).unwrap();
    fs::write(dir.path().join("update/before/agent/leases.log"), "half").unwrap();
    assert_eq!(of.start(SystemSlot::A, false).unwrap(), Start::Back);
    assert_eq!(says(dir.path(), "agent/leases.log"), "old");
    assert!(says(dir.path(), "update/outcome.json").contains("did not come as far"));
}

#[test]
fn a_power_cut_after_the_choice_is_a_system_that_stays() {
    let dir = tempfile::tempdir().unwrap();
    let of = State(dir.path());
    state(dir.path(), "old");
    of.begin(&trial()).unwrap();
    of.start(SystemSlot::B, true).unwrap();
    state(dir.path(), "new");
    assert_eq!(of.start(SystemSlot::B, false).unwrap(), Start::Kept);
    assert_eq!(says(dir.path(), "etcd/member/db"), "new");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whoever sends stops somewhere, and begins again.
    #[test]
    fn a_transfer_that_is_cut_anywhere_starts_nothing_and_goes_on(cut in 0..13_usize * 4096, left in 0..0x40_u8) {
        let media = Media::new(left);
        let new: System = system(9).into_iter().map(|(name, bytes)| (name, bytes.iter().map(|byte| byte ^ 0x40).collect())).collect();
        let whole: Vec<u8> = new.iter().flat_map(|(_, bytes)| bytes.clone()).collect();
        let all = ["agent", "payload", "base"];
        prop_assert!(media.update(&new, &all, &mut &whole[..cut]).is_err());
        prop_assert!(!media.esp().get().is_whole(SystemSlot::B) && !media.holds("b", &new));
        prop_assert!(media.holds("a", &system(1)));
        let missing = media.missing(&new);
        prop_assert_eq!(missing.contains(&"agent".to_owned()), cut < 3 * 4096);
        prop_assert_eq!(missing.contains(&"payload".to_owned()), cut < 12 * 4096);
        let rest: Vec<u8> = new.iter().filter(|(name, _)| missing.iter().any(|one| one == name)).flat_map(|(_, bytes)| bytes.clone()).collect();
        let names: Vec<&str> = missing.iter().map(String::as_str).collect();
        media.update(&new, &names, &mut rest.as_slice()).unwrap();
        prop_assert!(media.holds("b", &new));
    }

    /// A way back that is cut between any two of its steps ends the same way.
    #[test]
    fn a_way_back_that_is_cut_is_taken_up(moved in proptest::collection::vec(any::<bool>(), 6), aside in proptest::collection::vec(any::<bool>(), 6)) {
        let dir = tempfile::tempdir().unwrap();
        let of = State(dir.path());
        state(dir.path(), "old");
        of.begin(&trial()).unwrap();
        of.start(SystemSlot::B, true).unwrap();
        state(dir.path(), "new");
        let items = ["pki", "kube", "etcd/member", "ironic", "agent/leases.log", "agent/hosts"];
        for (item, (moved, aside)) in items.iter().zip(moved.into_iter().zip(aside)) {
            let (before, newer, place) = (dir.path().join("update/before").join(item), dir.path().join("update/newer").join(item), dir.path().join(item));
            if moved || aside {
                fs::create_dir_all(newer.parent().unwrap()).unwrap();
                fs::rename(&place, &newer).unwrap();
            }
            if moved {
                fs::rename(&before, &place).unwrap();
            }
        }
        prop_assert_eq!(of.start(SystemSlot::A, false).unwrap(), Start::Back);
        for file in ["pki/ca.crt", "kube/agent.conf", "etcd/member/db", "ironic/ironic.sqlite", "agent/leases.log", "agent/hosts/n1.json"] {
            prop_assert_eq!(says(dir.path(), file), "old");
        }
    }
}

/// A box of its own, with what belongs to the machine.
fn whole_state(dir: &Path, version: &str) {
    state(dir, version);
    for file in [
        "ssh/ssh_host_ed25519_key",
        "etcd/copy-1/db",
        "agent/provisioning-nic",
    ] {
        let path = dir.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, version).unwrap();
    }
}

fn versions(kubernetes: &str) -> serde_json::Value {
    serde_json::json!({"firstlight": "0.1.0", "kubernetes": kubernetes})
}

fn backup(dir: &Path) -> Vec<u8> {
    let mut stream = Vec::new();
    backup::write(State(dir), &versions("v1.36.1"), &mut stream).unwrap();
    stream
}

#[test]
fn a_new_box_goes_on_where_the_one_of_the_backup_was() {
    let (old, new) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    whole_state(old.path(), "old");
    // As etcd's copy of itself is.
    let holes = fs::File::options()
        .write(true)
        .open(old.path().join("etcd/copy-1/db"))
        .unwrap();
    holes.set_len(8 << 20).unwrap();
    let stream = backup(old.path());
    assert!(stream.len() < 100_000);
    whole_state(new.path(), "new");
    fs::write(new.path().join("agent/of-the-new-one"), "").unwrap();
    let of = State(new.path());
    backup::unpack(of, &versions("v1.37.0"), stream.as_slice()).unwrap();
    assert_eq!(
        says(new.path(), "pki/ca.crt"),
        "new",
        "not before it starts again"
    );
    assert_eq!(of.start(SystemSlot::A, false).unwrap(), Start::Restored);
    assert_eq!(of.start(SystemSlot::A, false).unwrap(), Start::Plain);
    for file in [
        "pki/ca.crt",
        "kube/agent.conf",
        "etcd/member/db",
        "ssh/ssh_host_ed25519_key",
        "agent/leases.log",
        "agent/hosts/n1.json",
    ] {
        assert_eq!(
            says(new.path(), file).trim_end_matches('\0'),
            "old",
            "{file}"
        );
    }
    assert_eq!(
        fs::metadata(new.path().join("etcd/member/db"))
            .unwrap()
            .len(),
        8 << 20
    );
    // Made anew out of the hosts; the machine's own; uploads.
    for gone in [
        "ironic/ironic.sqlite",
        "agent/provisioning-nic",
        "agent/of-the-new-one",
        "etcd/copy-1",
        "update/newer",
        "update/restore",
    ] {
        assert!(!new.path().join(gone).exists(), "{gone}");
    }
    assert_eq!(says(new.path(), "agent/store/upload"), "new");
}

/// A folder is not removed in one step: what is left of it must not be taken for a restore that has not begun.
#[test]
fn a_restore_that_is_cut_while_it_tidies_up_is_over() {
    let (old, new) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    whole_state(old.path(), "old");
    whole_state(new.path(), "new");
    let of = State(new.path());
    let stream = backup(old.path());
    backup::unpack(of, &versions("v1.36.1"), stream.as_slice()).unwrap();
    assert_eq!(of.start(SystemSlot::A, false).unwrap(), Start::Restored);
    let names = |folder: &str| fs::read_dir(new.path().join(folder)).unwrap().count();
    assert_eq!(names("update"), 0);
    // As the power leaves it: the note that it was swapped is gone, folders are not.
    fs::create_dir_all(new.path().join("update/restore.done/agent")).unwrap();
    assert_eq!(of.start(SystemSlot::A, false).unwrap(), Start::Plain);
    assert_eq!(says(new.path(), "pki/ca.crt"), "old");
    backup::unpack(of, &versions("v1.36.1"), stream.as_slice()).unwrap();
    assert_eq!(of.start(SystemSlot::A, false).unwrap(), Start::Restored);
    assert_eq!(names("update"), 0);
}

#[test]
fn an_older_box_a_cut_backup_and_what_is_none_are_refused() {
    let (old, new) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    whole_state(old.path(), "old");
    whole_state(new.path(), "new");
    let stream = backup(old.path());
    let of = State(new.path());
    let error = backup::unpack(of, &versions("v1.35.0"), stream.as_slice()).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("kubernetes v1.35.0, and the data are of v1.36.1"),
        "{error}"
    );
    for cut in [0, 10, stream.len() / 2, stream.len() - 5] {
        backup::unpack(of, &versions("v1.36.1"), &stream[..cut]).unwrap_err();
        let left = fs::read_dir(new.path().join("update/restore.new")).unwrap();
        assert_eq!(left.count(), 0, "what was unpacked takes room");
    }
    for name in [
        "agent/../../x",
        "etcd/copy-1/db",
        "/etc/passwd",
        "update/trial.json",
        "pki",
    ] {
        let mut tar = tar::Builder::new(Vec::new());
        for (name, text) in [
            ("backup.json", r#"{"format":1}"#),
            (name, "text"),
            ("end", ""),
        ] {
            let mut header = tar::Header::new_gnu();
            header.set_size(text.len() as u64);
            header.set_mode(0o600);
            header.set_uid(0);
            header.set_gid(0);
            header.set_mtime(0);
            header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name.as_bytes());
            header.set_cksum();
            tar.append(&header, text.as_bytes()).unwrap();
        }
        let stream = zstd::encode_all(tar.into_inner().unwrap().as_slice(), 1).unwrap();
        let unpacked = backup::unpack(of, &versions("v1.36.1"), stream.as_slice());
        assert_eq!(unpacked.is_ok(), name == "pki", "{name}: {unpacked:?}");
    }
    fs::remove_dir_all(new.path().join("update/restore")).unwrap();
    assert_eq!(of.start(SystemSlot::A, false).unwrap(), Start::Plain);
    assert_eq!(says(new.path(), "etcd/member/db"), "new");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn whatever_is_restored_is_a_backup_or_refused(changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6), noise: Vec<u8>, packed: bool) {
        let (old, new) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        whole_state(old.path(), "old");
        let mut plain = zstd::decode_all(backup(old.path()).as_slice()).unwrap();
        for (at, value) in changes {
            let at = at.index(plain.len());
            plain[at] = value;
        }
        let of = State(new.path());
        for bytes in [plain, noise] {
            let bytes = if packed { zstd::encode_all(bytes.as_slice(), 1).unwrap() } else { bytes };
            drop(backup::unpack(of, &versions("v1.36.1"), bytes.as_slice()));
        }
        let beside: Vec<_> = fs::read_dir(new.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        prop_assert_eq!(beside, ["update"]);
    }
}
