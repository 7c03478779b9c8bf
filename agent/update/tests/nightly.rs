//! A backup that the box makes by itself can be read with the key that is kept elsewhere, and with no other; old ones go.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::Read as _;
use std::path::Path;

use age::secrecy::ExposeSecret as _;
use age::x25519::Identity;
use firstlight_api::backup::AgeRecipient;
use firstlight_update::backup;
use firstlight_update::nightly::{NewBackup, write};
use firstlight_update::state::State;
use serde_json::json;

fn state(folder: &Path) -> State<'_> {
    for name in ["pki", "kube", "ssh", "agent", "etcd/copy-1"] {
        fs::create_dir_all(folder.join(name)).unwrap();
    }
    fs::write(folder.join("pki/site.key"), "a canary").unwrap();
    fs::write(folder.join("etcd/copy-1/db"), vec![7; 100_000]).unwrap();
    State(folder)
}

fn recipient(key: &Identity) -> AgeRecipient {
    AgeRecipient::parse(&key.to_public().to_string()).unwrap()
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder.join("backups")).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn whoever_has_a_key_reads_it_and_goes_on_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let keys = [Identity::generate(), Identity::generate()];
    let recipients = keys.iter().map(recipient).collect::<Vec<_>>();
    let versions = json!({"firstlight": "0.1.0"});
    let wanted = NewBackup {
        name: "lab-1.backup",
        recipients: &recipients,
        count: 3,
    };
    let file = write(state(dir.path()), &versions, wanted).unwrap();
    let bytes = fs::read(dir.path().join("backups/lab-1.backup")).unwrap();
    assert_eq!(file.bytes, bytes.len() as u64);
    assert!(!bytes.windows(8).any(|bytes| bytes == b"a canary"));
    for key in &keys {
        let decryptor = age::Decryptor::new(bytes.as_slice()).unwrap();
        let identity = std::iter::once(key as &dyn age::Identity);
        let mut content = Vec::new();
        let mut reader = decryptor.decrypt(identity).unwrap();
        reader.read_to_end(&mut content).unwrap();
        let new = tempfile::tempdir().unwrap();
        backup::unpack(state(new.path()), &versions, content.as_slice()).unwrap();
        let restored = new.path().join("update/restore/pki/site.key");
        assert_eq!(fs::read_to_string(restored).unwrap(), "a canary");
    }
    let stranger = Identity::generate();
    assert!(!stranger.to_string().expose_secret().is_empty());
    let decryptor = age::Decryptor::new(bytes.as_slice()).unwrap();
    let identity = std::iter::once(&stranger as &dyn age::Identity);
    assert!(decryptor.decrypt(identity).is_err());
}

#[test]
fn as_many_stay_as_are_wanted_and_the_new_one_always() {
    let dir = tempfile::tempdir().unwrap();
    let recipients = [recipient(&Identity::generate())];
    let make = |name| {
        let wanted = NewBackup {
            name,
            recipients: &recipients,
            count: 2,
        };
        write(state(dir.path()), &json!({}), wanted)
    };
    fs::create_dir_all(dir.path().join("backups")).unwrap();
    fs::write(dir.path().join("backups/notes"), "mine").unwrap();
    for name in ["lab-3.backup", "lab-4.backup", "lab-5.backup"] {
        make(name).unwrap();
    }
    assert_eq!(names(dir.path()), ["lab-4.backup", "lab-5.backup", "notes"]);
    // The clock went back.
    make("lab-1.backup").unwrap();
    assert_eq!(names(dir.path()), ["lab-1.backup", "lab-5.backup", "notes"]);
    assert!(make("../x.backup").is_err());
    // One that cannot be finished leaves nothing.
    fs::remove_dir_all(dir.path().join("pki")).unwrap();
    let wanted = NewBackup {
        name: "lab-6.backup",
        recipients: &recipients,
        count: 2,
    };
    assert!(write(State(dir.path()), &json!({}), wanted).is_err());
    assert_eq!(names(dir.path()), ["lab-1.backup", "lab-5.backup", "notes"]);
}
