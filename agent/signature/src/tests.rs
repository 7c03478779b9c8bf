//! With signatures that the real `ssh-keygen` makes.
#![allow(clippy::unwrap_used)]

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use firstlight_api::slot::{BootFile, LayerContent};
use proptest::prelude::*;
use tempfile::TempDir;

use super::*;

struct Signer {
    folder: TempDir,
}

impl Signer {
    fn new(kind: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let made = Command::new("ssh-keygen")
            .args(["-q", "-N", "", "-C", "release@example", "-f"])
            .arg(folder.path().join("key"))
            .arg("-t")
            .args(kind)
            .status();
        assert!(made.unwrap().success());
        Self { folder }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn public(&self) -> String {
        std::fs::read_to_string(self.path().join("key.pub")).unwrap()
    }

    fn keys(&self) -> Keys {
        Keys::parse(&self.public()).unwrap()
    }

    fn sign(&self, namespace: &str, text: &str) -> String {
        let mut keygen = Command::new("ssh-keygen")
            .args(["-q", "-Y", "sign", "-n", namespace, "-f"])
            .arg(self.path().join("key"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = keygen.stdin.take().unwrap();
        input.write_all(text.as_bytes()).unwrap();
        drop(input);
        let signed = keygen.wait_with_output().unwrap();
        assert!(signed.status.success());
        without_armour(std::str::from_utf8(&signed.stdout).unwrap()).unwrap()
    }

    fn signed(&self) -> SystemContent {
        let signature = self.sign(NAMESPACE, &system().statement());
        SystemContent {
            signature: Some(signature),
            ..system()
        }
    }
}

fn system() -> SystemContent {
    SystemContent {
        layers: vec![LayerContent {
            name: "agent".to_owned(),
            length: 512,
            sha256: [1; 32].into(),
            root: [2; 32].into(),
        }],
        boot: vec![BootFile {
            name: "vmlinuz".to_owned(),
            sha256: [3; 32].into(),
        }],
        signature: None,
    }
}

#[test]
fn a_system_is_believed_that_one_of_the_keys_signed() {
    let (ours, theirs) = (Signer::new(&["ed25519"]), Signer::new(&["ecdsa"]));
    for signer in [&ours, &theirs] {
        let signed = signer.signed();
        let name = signer.keys().check(&signed).unwrap();
        assert!(
            name.starts_with("SHA256:") && name.ends_with(" (release@example)"),
            "{name}"
        );
        let both = ours.keys().and(theirs.keys()).and(ours.keys());
        assert_eq!(both.names().len(), 2);
        assert_eq!(both.check(&signed), Ok(name.clone()));
        assert_eq!(Keys::parse(&both.to_text()).unwrap(), both);
        let bare = super::signer(&signed).unwrap();
        assert!(name.starts_with(&bare), "{bare}");
    }
    let unknown = theirs.keys().check(&ours.signed()).unwrap_err();
    assert!(matches!(unknown, Unbelieved::Unknown(_)), "{unknown}");
    assert_eq!(ours.keys().check(&system()), Err(Unbelieved::Unsigned));
    assert!(Keys::default().check(&ours.signed()).is_err());
}

#[test]
fn a_signature_is_for_one_system_and_one_purpose() {
    let signer = Signer::new(&["ed25519"]);
    let whole = signer.signed();
    let mut changed = [whole.clone(), whole.clone(), whole.clone(), whole.clone()];
    changed[0].layers[0].root = [9; 32].into();
    changed[1].layers[0].length += 512;
    changed[2].boot[0].sha256 = [9; 32].into();
    changed[3].boot.clear();
    for system in changed {
        let why = signer.keys().check(&system).unwrap_err();
        assert!(matches!(why, Unbelieved::Changed(_)), "{why}");
        assert!(super::signer(&system).is_err());
    }
    let of_a_file = SystemContent {
        signature: Some(signer.sign("file", &system().statement())),
        ..system()
    };
    let why = signer.keys().check(&of_a_file).unwrap_err();
    assert!(matches!(why, Unbelieved::Changed(_)), "{why}");
}

#[test]
fn a_line_that_is_no_key_is_told() {
    let rsa = Signer::new(&["rsa", "-b", "2048"]);
    let ours = Signer::new(&["ed25519"]);
    for (text, line, why) in [
        ("ssh-ed25519 AAAA\n".to_owned(), 1, "no public key"),
        (format!("# ours\n\n{}", rsa.public()), 3, "neither"),
        (format!("{}nonsense", ours.public()), 2, "no public key"),
        (format!("restrict {}", ours.public()), 1, "no public key"),
        (ours.public().repeat(65), 65, "too many"),
    ] {
        let error = Keys::parse(&text).unwrap_err();
        assert_eq!(error.line, line, "{text}");
        assert!(error.to_string().contains(why), "{error}");
    }
    let named = ours.public().replace("release@example", "a\u{1b}[2J");
    assert!(!Keys::parse(&named).unwrap().names()[0].contains('\u{1b}'));
    assert!(Keys::parse("# nobody\n").unwrap().is_empty());
}

proptest! {
    #[test]
    fn any_signature_is_an_answer(noise: Vec<u8>, text in "\\PC{0,80}") {
        for signature in [STANDARD.encode(&noise), text.clone()] {
            let system = SystemContent { signature: Some(signature), ..system() };
            prop_assert!(signer(&system).is_err());
        }
        drop(Keys::parse(&text));
        prop_assert_eq!(without_armour(&text), None);
    }
}
