#![allow(clippy::unwrap_used)]

use std::{collections::BTreeSet, os::unix::fs::PermissionsExt, path::Path};

use x509_parser::{pem::parse_x509_pem, prelude::*};

use super::*;

/// 2026-11-21
const NOW: i64 = 1_795_219_200;
const YEAR: i64 = 365 * 24 * 3600;

fn paths() -> (tempfile::TempDir, Paths) {
    let dir = tempfile::tempdir().unwrap();
    let paths = Paths::new(dir.path());
    (dir, paths)
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn snapshot(paths: &Paths) -> BTreeMap<PathBuf, Vec<u8>> {
    [
        paths.site_pki(),
        paths.kube_pki(),
        paths.kube(),
        paths.agent_state(),
    ]
    .iter()
    .flat_map(|dir| fs::read_dir(dir).unwrap())
    .map(|entry| entry.unwrap().path())
    .filter(|path| path.is_file())
    .map(|path| (path.clone(), fs::read(path).unwrap()))
    .collect()
}

/// Signature by the authority, validity at `when`, and the subject.
fn verify(certificate: &str, authority: &str, when: i64) -> String {
    let (_, pem) = parse_x509_pem(certificate.as_bytes()).unwrap();
    let (_, ca_pem) = parse_x509_pem(authority.as_bytes()).unwrap();
    let (certificate, ca) = (pem.parse_x509().unwrap(), ca_pem.parse_x509().unwrap());
    assert!(ca.is_ca());
    assert_eq!(certificate.issuer(), ca.subject());
    certificate.verify_signature(Some(ca.public_key())).unwrap();
    assert!(
        certificate
            .validity()
            .is_valid_at(ASN1Time::from_timestamp(when).unwrap()),
        "{:?}",
        certificate.validity()
    );
    certificate.subject().to_string()
}

#[test]
fn every_file_of_the_architecture_is_made_with_its_mode() {
    let (_dir, paths) = paths();
    load_or_make(&paths, NOW).unwrap();
    let mut expected = BTreeSet::from([
        "pki/ca.crt".to_owned(),
        "pki/ca.key".to_owned(),
        "agent/issued.json".to_owned(),
    ]);
    for stem in [
        "ca",
        "front-proxy-ca",
        "etcd-ca",
        "apiserver",
        "apiserver-kubelet-client",
        "apiserver-etcd-client",
        "front-proxy-client",
        "etcd-server",
        "kubelet",
    ] {
        expected.extend([
            format!("kube/pki/{stem}.crt"),
            format!("kube/pki/{stem}.key"),
        ]);
    }
    expected.extend(["kube/pki/sa.key".to_owned(), "kube/pki/sa.pub".to_owned()]);
    expected.extend(
        [
            "admin",
            "controller-manager",
            "scheduler",
            "kubelet",
            "kube-proxy",
            "agent",
        ]
        .map(|name| format!("kube/{name}.conf")),
    );
    let found: BTreeSet<_> = snapshot(&paths)
        .keys()
        .map(|path| {
            path.strip_prefix(paths.state())
                .unwrap()
                .to_str()
                .unwrap()
                .to_owned()
        })
        .collect();
    assert_eq!(found, expected);
    for file in &found {
        let mode = fs::metadata(paths.state().join(file))
            .unwrap()
            .permissions()
            .mode()
            & 0o777;
        let public = matches!(file.rsplit_once('.'), Some((_, "crt" | "pub")));
        assert_eq!(mode, if public { 0o644 } else { 0o640 }, "{file}");
    }
    for dir in ["pki", "kube", "kube/pki", "agent"] {
        assert_eq!(
            fs::metadata(paths.state().join(dir))
                .unwrap()
                .permissions()
                .mode()
                & 0o777,
            0o750,
            "{dir}"
        );
    }
}

#[test]
fn chains_verify_and_carry_the_names_that_clients_ask_for() {
    let (_dir, paths) = paths();
    load_or_make(&paths, NOW).unwrap();
    let pem = |name: &str| read(&paths.kube_pki().join(name));
    for (leaf, ca, subject) in [
        ("apiserver", "ca", "CN=kube-apiserver"),
        (
            "apiserver-kubelet-client",
            "ca",
            "O=system:masters, CN=kube-apiserver-kubelet-client",
        ),
        ("kubelet", "ca", "O=system:nodes, CN=system:node:box"),
        (
            "front-proxy-client",
            "front-proxy-ca",
            "CN=front-proxy-client",
        ),
        ("etcd-server", "etcd-ca", "CN=etcd-server"),
        (
            "apiserver-etcd-client",
            "etcd-ca",
            "CN=kube-apiserver-etcd-client",
        ),
    ] {
        let certificate = pem(&format!("{leaf}.crt"));
        assert_eq!(
            verify(&certificate, &pem(&format!("{ca}.crt")), NOW),
            subject
        );
    }
    let certificate = pem("apiserver.crt");
    let (_, parsed) = parse_x509_pem(certificate.as_bytes()).unwrap();
    let parsed = parsed.parse_x509().unwrap();
    let names = format!(
        "{:?}",
        parsed
            .subject_alternative_name()
            .unwrap()
            .unwrap()
            .value
            .general_names
    );
    for name in [
        "kubernetes.default.svc.cluster.local",
        "[100, 64, 0, 1]",
        "[100, 64, 1, 1]",
        "[127, 0, 0, 1]",
    ] {
        assert!(names.contains(name), "{name} in {names}");
    }
}

#[test]
fn kubeconfigs_hold_matching_identities() {
    let (_dir, paths) = paths();
    load_or_make(&paths, NOW).unwrap();
    let config = read(&paths.kube().join("agent.conf"));
    let field = |key: &str| {
        let line = config
            .lines()
            .find_map(|line| line.trim().strip_prefix(key))
            .unwrap();
        String::from_utf8(STANDARD.decode(line.trim()).unwrap()).unwrap()
    };
    let subject = verify(
        &field("client-certificate-data:"),
        &field("certificate-authority-data:"),
        NOW,
    );
    assert_eq!(subject, "O=system:masters, CN=firstlight-agent");
    assert!(field("client-key-data:").contains("PRIVATE KEY"));
    assert!(config.contains("server: https://100.64.0.1:6443\n"));
}

#[test]
fn a_second_boot_changes_nothing() {
    let (_dir, paths) = paths();
    let first = load_or_make(&paths, NOW).unwrap();
    let before = snapshot(&paths);
    let second = load_or_make(&paths, NOW + YEAR).unwrap();
    assert_eq!(snapshot(&paths), before);
    assert_eq!(first.site.fingerprint, second.site.fingerprint);
}

#[test]
fn what_is_damaged_or_lost_is_made_again_and_nothing_else() {
    let (_dir, paths) = paths();
    load_or_make(&paths, NOW).unwrap();
    let before = snapshot(&paths);
    fs::write(paths.kube_pki().join("kubelet.crt"), "torn").unwrap();
    fs::remove_file(paths.kube().join("scheduler.conf")).unwrap();
    load_or_make(&paths, NOW).unwrap();
    let changed: Vec<_> = snapshot(&paths)
        .into_iter()
        .filter(|(path, content)| before.get(path) != Some(content))
        .map(|(path, _)| path.file_name().unwrap().to_str().unwrap().to_owned())
        .collect();
    assert_eq!(
        changed,
        [
            "issued.json",
            "kubelet.crt",
            "kubelet.key",
            "scheduler.conf"
        ]
    );
}

#[test]
fn a_lost_authority_certificate_is_made_from_its_key_and_leaves_follow() {
    let (_dir, paths) = paths();
    load_or_make(&paths, NOW).unwrap();
    let key = read(&paths.kube_pki().join("etcd-ca.key"));
    fs::remove_file(paths.kube_pki().join("etcd-ca.crt")).unwrap();
    load_or_make(&paths, NOW + 1).unwrap();
    assert_eq!(read(&paths.kube_pki().join("etcd-ca.key")), key);
    verify(
        &read(&paths.kube_pki().join("etcd-server.crt")),
        &read(&paths.kube_pki().join("etcd-ca.crt")),
        NOW,
    );
}

#[test]
fn certificates_are_valid_under_a_wrong_clock_and_renewed_before_their_end() {
    for wrong in [0, NOW - 5 * YEAR, NOW + 8 * YEAR] {
        let (_dir, paths) = paths();
        load_or_make(&paths, wrong).unwrap();
        let ca = read(&paths.kube_pki().join("ca.crt"));
        verify(&read(&paths.kube_pki().join("apiserver.crt")), &ca, NOW);
        let before = read(&paths.kube_pki().join("apiserver.crt"));
        load_or_make(&paths, NOW + 19 * YEAR).unwrap();
        assert_ne!(read(&paths.kube_pki().join("apiserver.crt")), before);
        verify(
            &read(&paths.kube_pki().join("apiserver.crt")),
            &ca,
            NOW + 19 * YEAR,
        );
    }
}

#[test]
fn ironics_certificate_is_for_the_address_of_the_box() {
    let (_dir, paths) = paths();
    let pki = load_or_make(&paths, NOW).unwrap();
    let pair = pki
        .site
        .issue(&CertSpec::for_ironic("10.1.2.3".parse().unwrap()), NOW)
        .unwrap();
    assert_eq!(
        verify(&pair.certificate, &read(&paths.site_ca()), NOW),
        "CN=ironic"
    );
    assert_eq!(
        fingerprint(&read(&paths.site_ca())).unwrap(),
        pki.site.fingerprint
    );
    assert_eq!(pki.site.fingerprint.len(), 64);
}
