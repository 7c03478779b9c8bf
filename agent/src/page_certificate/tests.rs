#![allow(clippy::unwrap_used)]
use proptest::prelude::*;
use rcgen::{CertificateParams, KeyPair};
use time::{Duration as Days, OffsetDateTime};

use super::*;

/// Certificate and key, PEM.
fn pair(names: &[&str], days: i64) -> [String; 2] {
    let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    let mut params = CertificateParams::new(names).unwrap();
    params.not_after = OffsetDateTime::now_utc() + Days::days(days);
    let key = KeyPair::generate().unwrap();
    [params.self_signed(&key).unwrap().pem(), key.serialize_pem()]
}

fn refused(pem: &str) -> String {
    format!("{:#}", OwnCertificate::parse(pem.as_bytes()).unwrap_err())
}

#[test]
fn what_no_browser_would_take_is_refused_with_what_is_wrong() {
    let [certificate, key] = pair(&["box.example", "*.lab.example"], 90);
    let own = OwnCertificate::parse(format!("{certificate}{key}").as_bytes()).unwrap();
    assert_eq!(own.view().names, ["box.example", "*.lab.example"]);
    assert!(own.for_name("box.example").is_some() && own.for_name("a.lab.example").is_some());
    for other in ["other.example", "a.b.lab.example", "172.22.0.1", "", "bo x"] {
        assert!(own.for_name(other).is_none(), "{other}");
    }
    let [other, other_key] = pair(&["box.example"], 90);
    assert!(refused(&format!("{certificate}{other_key}")).contains("do not belong together"));
    assert!(refused(&certificate).contains("no private key"));
    assert!(refused(&key).contains("there are 0 certificates"));
    assert!(refused(&other.repeat(11)).contains("there are 11"));
    let [nameless, key] = pair(&[], 90);
    assert!(refused(&format!("{nameless}{key}")).contains("no name"));
    let [ended, key] = pair(&["box.example"], -1);
    assert!(refused(&format!("{ended}{key}")).contains("has ended"));
    assert!(refused(&" ".repeat(LARGEST + 1)).contains("64 KiB"));
}

#[test]
fn it_is_kept_over_a_restart_and_its_end_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let paths = Paths::new(dir.path());
    fs::create_dir_all(paths.site_pki()).unwrap();
    let page = PageCertificate::new(&paths);
    assert_eq!(page.view(), None);
    let [certificate, key] = pair(&["box.example"], 20);
    let view = page.put(format!("{certificate}{key}").as_bytes()).unwrap();
    let told = page.problem(clock::wall_seconds()).unwrap().what;
    assert!(
        told.contains("ends in 19 days") || told.contains("ends in 20 days"),
        "{told}"
    );
    assert!(
        page.problem(view.end + 1)
            .unwrap()
            .what
            .contains("has ended")
    );
    assert!(page.problem(view.end - 40 * DAY).is_none());

    let again = PageCertificate::new(&paths);
    again.load().unwrap();
    assert_eq!(again.view(), Some(view));
    page.put(b"no certificate").unwrap_err();
    again.load().unwrap();
    again.remove().unwrap();
    again.remove().unwrap();
    assert!(again.view().is_none() && !paths.page_certificate().exists());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn whatever_is_put_there_is_a_certificate_or_refused(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4), noise: Vec<u8>) {
        let [certificate, key] = pair(&["box.example"], 20);
        let mut pem = format!("{certificate}{key}").into_bytes();
        for (at, value) in changes {
            let at = at.index(pem.len());
            pem[at] = value;
        }
        for pem in [pem, noise] {
            match OwnCertificate::parse(&pem) {
                Ok(own) => prop_assert!(!own.names.is_empty()),
                Err(error) => {
                    let said = format!("{error:#}");
                    prop_assert!(!said.contains("PRIVATE KEY"));
                }
            }
        }
    }
}
