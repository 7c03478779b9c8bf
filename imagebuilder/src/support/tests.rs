#![allow(clippy::unwrap_used)]
use base64::{Engine as _, engine::general_purpose::STANDARD};
use proptest::prelude::*;
use serde_json::json;

use super::*;

const BMC: &str = "S3cr3t-of-the-BMC";
const KEY: &str = "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEEIBsecretsecretsecretsecretsecret\nAAAAsecondlineofthekeysecondline\n-----END EC PRIVATE KEY-----\n";

fn secrets() -> String {
    let data = |value: &str| STANDARD.encode(value);
    json!({"items": [
        {"metadata": {"name": "bmc"}, "data": {"username": data("root"), "password": data(BMC)}},
        {"metadata": {"name": "ca"}, "data": {"tls.key": data(KEY), "tls.crt": data("-----BEGIN CERTIFICATE-----\npublic\n")}},
        {"metadata": {"name": "empty"}},
    ]})
    .to_string()
}

fn tar_of(parts: &[(&str, &str)]) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    for (name, text) in parts {
        let mut header = Header::new_ustar();
        header.set_size(text.len() as u64);
        builder
            .append_data(&mut header, name, text.as_bytes())
            .unwrap();
    }
    builder.into_inner().unwrap()
}

#[test]
fn no_secret_of_the_box_is_in_the_file_however_it_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let output = dir.path().join("support.tar.zst");
    let encoded = STANDARD.encode(BMC);
    let journal = format!(
        "agent: BMC says {BMC}\nirony: {encoded}\nkubeadm join --token abcdef.0123456789abcdef\n{KEY}authorization: Bearer firstlight_{}\n\
         hash $argon2id$v=19$m=19456,t=2,p=1$c29tZXNhbHQ$Sd8fM3Hr6aFy1x0Q\n\"password\":\"hunter2hunter2\",\nroot logs in\nAAAAsecondlineofthekeysecondline\nalarms: {{webhook: 'https://hooks.example/T0/hooksecret'}}\n",
        "x".repeat(43)
    );
    let tar = tar_of(&[
        (SECRETS, &secrets()),
        (STATUS, "{}"),
        ("journal.txt", &journal),
    ]);
    let count = write(&collect(&tar[..]).unwrap(), &output).unwrap();
    assert_eq!(count, 2);
    let parts = collect(zstd::Decoder::new(File::open(&output).unwrap()).unwrap()).unwrap();
    let all: String = parts.iter().map(|(_, text)| text.as_str()).collect();
    for secret in [
        BMC,
        &encoded,
        "0123456789abcdef",
        "MHcCAQ",
        "secondline",
        "xxxxx",
        "Sd8fM3",
        "hunter2",
        "hooksecret",
    ] {
        assert!(!all.contains(secret), "{secret} is in {all}");
    }
    for kept in [
        "agent: BMC says (removed)",
        "root logs in",
        "kubeadm join --token (removed)",
    ] {
        assert!(all.contains(kept), "{kept} is not in {all}");
    }
    assert!(parts.iter().all(|(name, _)| name != SECRETS));
    let told = read(&output).unwrap();
    assert!(told.contains("journal.txt"), "{told}");
}

#[test]
fn without_the_list_of_secrets_nothing_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let output = dir.path().join("support.tar.zst");
    for secrets in [
        None,
        Some("The connection to the server was refused\n(ended with 1)\n"),
        Some("{}"),
    ] {
        let mut parts = vec![("journal.txt", "a")];
        parts.extend(secrets.map(|text| (SECRETS, text)));
        let refused = write(&collect(&tar_of(&parts)[..]).unwrap(), &output).unwrap_err();
        assert!(
            format!("{refused:#}").contains("nothing was written"),
            "{refused:#}"
        );
        assert!(!output.exists());
    }
}

#[test]
fn what_is_no_part_is_refused() {
    for name in ["../../etc/passwd", "evil", "journal.txt/x"] {
        let mut header = Header::new_gnu();
        header.set_size(0);
        let bytes = header.as_gnu_mut().unwrap();
        bytes.name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_cksum();
        let mut builder = Builder::new(Vec::new());
        builder.append(&header, &[][..]).unwrap();
        let tar = builder.into_inner().unwrap();
        assert!(collect(&tar[..]).is_err(), "{name}");
    }
    let command = command();
    assert!(command.starts_with("sudo sh -c '") && command.ends_with('\''));
}

/// The script runs in a shell as it is written, whatever the programs are that this machine has.
#[test]
fn the_script_makes_a_tar_of_all_parts() {
    let script = command();
    let dir = tempfile::tempdir().unwrap();
    let sudo = dir.path().join("sudo");
    std::fs::write(&sudo, "#!/bin/sh\nexec \"$@\"\n").unwrap();
    std::fs::set_permissions(&sudo, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let path = format!(
        "{}:{}",
        dir.path().display(),
        std::env::var("PATH").unwrap()
    );
    let output = std::process::Command::new("sh")
        .args(["-c", &script])
        .env("PATH", path)
        .env("TMPDIR", dir.path())
        .output()
        .unwrap();
    let parts = collect(&output.stdout[..]).unwrap();
    assert_eq!(
        parts.len(),
        PARTS.len(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let kernel = parts.iter().find(|(name, _)| name == "kernel.txt").unwrap();
    assert!(kernel.1.contains("Linux"), "{kernel:?}");
    // Its folder is gone.
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}

proptest! {
    #[test]
    fn whatever_a_box_sends_is_parts_or_refused(bytes: Vec<u8>, list in "\\PC{0,40}", text in "\\PC{0,80}|(-----BEGIN PRIVATE KEY-----|password: |\\$6\\$|[a-z.]{1,20}){0,6}") {
        let _ = collect(&bytes[..]);
        let _ = Secrets::parse(&list);
        let known = Secrets::parse(&secrets()).unwrap();
        let text = format!("{text}{BMC}{text}");
        prop_assert!(!known.scrub(&text).contains(BMC));
    }
}
