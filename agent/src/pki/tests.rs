#![allow(clippy::unwrap_used)]

use std::{collections::BTreeSet, io, os::unix::fs::PermissionsExt, path::Path};

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
        "monitoring",
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
    let keys = ["sa.key", "sa.pub", "secrets.json"];
    expected.extend(keys.map(|name| format!("kube/pki/{name}")));
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

/// The files that are made once.
fn kept(paths: &Paths) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for name in AuthorityName::ALL {
        let (certificate, key) = authority_files(paths, name);
        all.extend([certificate, key]);
    }
    let (private, public) = service_account_files(paths);
    all.extend([private, public]);
    all
}

#[test]
fn what_cannot_be_read_or_is_damaged_is_told_and_never_overwritten() {
    let (_dir, paths) = paths();
    load_or_make(&paths, NOW).unwrap();
    let before = snapshot(&paths);
    let refused = |reader: Reader| {
        let made = Found::read(&paths, reader).map_err(anyhow::Error::from);
        let error = made.and_then(|found| found.complete(NOW)).unwrap_err();
        let kept: Kept = error.downcast().unwrap();
        assert!(kept.next().contains("nothing was overwritten"), "{kept}");
        kept
    };
    for file in kept(&paths) {
        for kind in [io::ErrorKind::PermissionDenied, io::ErrorKind::Other] {
            let kept = refused(&|path| {
                if path == file {
                    Err(kind.into())
                } else {
                    fs::read(path)
                }
            });
            assert!(
                matches!(&kept, Kept::Unreadable { path, .. } if *path == file),
                "{kept}"
            );
        }
        let whole = &before[&file];
        for damaged in [&b""[..], b"garbage", &[0xff; 9], &whole[..whole.len() / 2]] {
            fs::write(&file, damaged).unwrap();
            assert!(load_or_make(&paths, NOW).is_err(), "{}", file.display());
            assert_eq!(fs::read(&file).unwrap(), damaged);
        }
        // For example what `fsck` leaves.
        fs::remove_file(&file).unwrap();
        fs::create_dir(&file).unwrap();
        assert!(load_or_make(&paths, NOW).is_err(), "{}", file.display());
        fs::remove_dir(&file).unwrap();
        fs::write(&file, whole).unwrap();
    }
    for leaf in ["kubelet.key", "apiserver.crt"].map(|name| paths.kube_pki().join(name)) {
        refused(&|path| {
            if path == leaf {
                Err(io::ErrorKind::Other.into())
            } else {
                fs::read(path)
            }
        });
    }
    assert_eq!(snapshot(&paths), before);
}

#[test]
fn a_key_is_not_made_anew_while_something_is_there_that_it_signed() {
    let (_dir, paths) = paths();
    load_or_make(&paths, NOW).unwrap();
    let before = snapshot(&paths);
    let both = |name| <[PathBuf; 2]>::from(authority_files(&paths, name));
    let mut lost: Vec<Vec<PathBuf>> = AuthorityName::ALL.map(|name| both(name).into()).into();
    let (private, public) = service_account_files(&paths);
    lost.extend(kept(&paths).into_iter().filter_map(|file| {
        let is_key = file.extension().is_some_and(|ending| ending == "key");
        is_key.then(|| vec![file])
    }));
    lost.push(vec![private, public]);
    for files in lost {
        for file in &files {
            fs::remove_file(file).unwrap();
        }
        let error = load_or_make(&paths, NOW).unwrap_err();
        assert!(
            matches!(error.downcast_ref(), Some(Kept::Gone { .. })),
            "{error:#}"
        );
        assert!(files.iter().all(|file| !file.exists()));
        for file in files {
            fs::write(&file, &before[&file]).unwrap();
        }
    }
}

#[test]
fn a_first_boot_that_was_cut_after_any_file_is_gone_on_with() {
    let (_dir, first) = paths();
    let order: Vec<PathBuf> = {
        let found = Found::read(&first, &|path| fs::read(path)).unwrap();
        let (_, files) = found.complete(NOW).unwrap();
        let below = |path: &Path| path.strip_prefix(first.root()).unwrap().to_owned();
        files.iter().map(|file| below(&file.path)).collect()
    };
    load_or_make(&first, NOW).unwrap();
    for cut in 0..order.len() {
        let (_dir, second) = paths();
        for path in &order[..cut] {
            let to = second.root().join(path);
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            fs::copy(first.root().join(path), to).unwrap();
        }
        load_or_make(&second, NOW).unwrap_or_else(|error| panic!("{cut}: {error:#}"));
    }
}

#[test]
fn a_lost_public_half_is_made_from_its_key() {
    let (_dir, paths) = paths();
    load_or_make(&paths, NOW).unwrap();
    let before = snapshot(&paths);
    fs::remove_file(paths.kube_pki().join("sa.pub")).unwrap();
    load_or_make(&paths, NOW).unwrap();
    assert_eq!(snapshot(&paths), before);
}

proptest::proptest! {
    #[test]
    fn whatever_is_in_the_record_the_plan_is_made(text in ".{0,200}", fields: (String, i64)) {
        let record = format!(r#"{{"issued": [{{"authority": {:?}, "notAfter": {}}}]}}"#, fields.0, fields.1);
        for text in [text, record] {
            let record: plan::Record = serde_json::from_str(&text).unwrap_or_default();
            let wanted = spec::wanted();
            let planned = plan::plan(&wanted, &record, &BTreeMap::new(), &BTreeMap::new(), NOW);
            proptest::prop_assert_eq!(planned, wanted);
        }
    }
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
