#![allow(clippy::unwrap_used)]

use firstlight_api::bmh::{BareMetalHostSpec, ChecksumType, ObjectReference};

use super::{super::ledger::Deployment, *};

fn node_image() -> NodeImage {
    NodeImage {
        name: "node".into(),
        sha256: "ab".repeat(32),
        bytes: 1,
        ..NodeImage::default()
    }
}

fn object(change: impl FnOnce(&mut BareMetalHostSpec)) -> BareMetalHost {
    let mut spec = BareMetalHostSpec {
        online: true,
        ..BareMetalHostSpec::default()
    };
    change(&mut spec);
    BareMetalHost::new("n1", "default", spec)
}

fn of(
    object: Option<&BareMetalHost>,
    unclaimed: SitePolicy,
    ledger: &Ledger,
) -> Result<DesiredState, Problem> {
    let image = node_image();
    let source = Source {
        is_given: false,
        is_overdue: false,
        object,
        ledger,
        unclaimed,
        image: Some(&image),
        uploads: &uploads(),
        box_http: "http://box",
    };
    wanted(&source).desired
}

fn uploads() -> Vec<ServedImage> {
    let upload = |name: &str, version: &str| ServedImage {
        id: "1".into(),
        name: name.into(),
        version: version.into(),
        path: format!("/images/{name}-{version}.raw.zst"),
        sha256: "cd".repeat(32),
    };
    vec![
        upload("debian", "13.1"),
        upload("debian", "13.2"),
        upload("rocky", "10"),
    ]
}

#[test]
fn an_image_can_be_named_instead_of_given_by_address_and_digest() {
    let named = |url: &str, checksum: &str| {
        let object = object(|spec| {
            spec.image = Some(Image {
                url: url.into(),
                checksum: checksum.into(),
                ..Image::default()
            });
        });
        of(Some(&object), SitePolicy::Cluster, &Ledger::default())
    };
    for (url, path) in [
        ("rocky", "/images/rocky-10.raw.zst"),
        ("rocky:10", "/images/rocky-10.raw.zst"),
        ("debian:13.2", "/images/debian-13.2.raw.zst"),
    ] {
        let desired = named(url, "").unwrap();
        let install = desired.install().unwrap();
        assert_eq!(install.image.url, format!("http://box{path}"));
        assert_eq!(install.image.checksum, "cd".repeat(32));
        assert_eq!(install.data, Data::Drive);
    }
    let node = named("node", "").unwrap();
    assert!(same_digest(&node.install().unwrap().image, &ours()));
    for (url, checksum, said) in [
        ("debian", "", "several images"),
        ("rocky:9", "", "there is no image `rocky:9`"),
        ("rocky", "ef", "is served with"),
    ] {
        let refused = named(url, checksum).unwrap_err();
        assert!(refused.what.contains(said), "{refused:?}");
    }
    assert!(
        named("rocky:9", "")
            .unwrap_err()
            .next
            .contains("debian:13.1, debian:13.2, rocky:10, node")
    );
}

fn ours() -> Image {
    node_image().published("http://other-address")
}

fn data(desired: Result<DesiredState, Problem>) -> Option<Data> {
    desired
        .unwrap()
        .install()
        .map(|install| install.data.clone())
}

#[test]
fn without_a_word_the_rule_of_the_site_decides_until_an_image_was_taken_away() {
    let (none, free) = (Ledger::default(), object(|_| {}));
    assert_eq!(
        data(of(Some(&free), SitePolicy::Plain, &none)),
        Some(Data::Site)
    );
    assert!(matches!(
        of(Some(&free), SitePolicy::Cluster, &none),
        Ok(DesiredState::Stage(_))
    ));
    let released = Ledger {
        released: true,
        ..Ledger::default()
    };
    assert_eq!(
        of(Some(&free), SitePolicy::Plain, &released),
        Ok(DesiredState::Idle)
    );
    assert!(matches!(
        of(Some(&free), SitePolicy::Cluster, &released),
        Ok(DesiredState::Stage(_))
    ));
    let with = |shown| Ledger {
        deployment: Some(Deployment {
            image: ours(),
            shown,
            ..Deployment::default()
        }),
        ..Ledger::default()
    };
    assert_eq!(
        data(of(Some(&free), SitePolicy::Plain, &with(false))),
        Some(Data::Site),
        "the image has not been written into the spec yet"
    );
    assert_eq!(
        of(Some(&free), SitePolicy::Plain, &with(true)),
        Ok(DesiredState::Idle),
        "somebody took it out"
    );
    let off = object(|spec| spec.online = false);
    assert_eq!(
        of(Some(&off), SitePolicy::Plain, &none),
        Ok(DesiredState::Idle)
    );
    let held = object(|spec| spec.consumer_ref = Some(ObjectReference::default()));
    assert_eq!(
        of(Some(&held), SitePolicy::Cluster, &with(true)),
        Ok(DesiredState::Idle),
        "its machine waits until it is clean"
    );
}

#[test]
fn before_kubernetes_is_up_only_a_host_that_it_never_knew_is_installed() {
    let new = Ledger::default();
    assert_eq!(data(of(None, SitePolicy::Plain, &new)), Some(Data::Site));
    assert_eq!(
        of(None, SitePolicy::Cluster, &new),
        Ok(DesiredState::Unknown)
    );
    let known = Ledger {
        has_object: true,
        ..Ledger::default()
    };
    assert_eq!(
        of(None, SitePolicy::Plain, &known),
        Ok(DesiredState::Unknown)
    );
    assert_eq!(
        of(None, SitePolicy::Cluster, &known),
        Ok(DesiredState::Unknown)
    );
}

#[test]
fn our_image_gets_its_data_from_the_endpoint_and_any_other_from_the_drive() {
    let ledger = Ledger::default();
    let desired = |change: &dyn Fn(&mut BareMetalHostSpec)| {
        data(of(Some(&object(change)), SitePolicy::Plain, &ledger)).unwrap()
    };
    let user = || {
        Some(SecretReference {
            name: "u".into(),
            ..SecretReference::default()
        })
    };
    assert_eq!(desired(&|spec| spec.image = Some(ours())), Data::Site);
    assert_eq!(
        desired(&|spec| (spec.image, spec.user_data) = (Some(ours()), user())),
        Data::Endpoint
    );
    assert_eq!(
        desired(&|spec| {
            (spec.image, spec.consumer_ref) = (Some(ours()), Some(ObjectReference::default()));
        }),
        Data::Endpoint
    );
    let foreign = Image {
        checksum: "cd".repeat(32),
        ..ours()
    };
    assert_eq!(
        desired(&|spec| (spec.image, spec.user_data) = (Some(foreign.clone()), user())),
        Data::Drive
    );
}

#[test]
fn an_image_that_cannot_be_checked_or_written_is_refused_with_the_way_out() {
    let foreign = Image {
        checksum: "cd".repeat(32),
        ..ours()
    };
    let cases: [(Image, &str); 5] = [
        (
            Image {
                checksum: String::new(),
                ..foreign.clone()
            },
            "no digest",
        ),
        (
            Image {
                checksum: "http://sums".into(),
                ..foreign.clone()
            },
            "is no MD5",
        ),
        (
            Image {
                checksum_type: Some(ChecksumType::Md5),
                ..foreign.clone()
            },
            "is no MD5",
        ),
        (
            Image {
                format: Some("qcow2".into()),
                ..foreign.clone()
            },
            "qcow2",
        ),
        (
            Image {
                url: "oci://x/y".into(),
                ..foreign
            },
            "cannot be fetched",
        ),
    ];
    for (image, text) in cases {
        let host = object(|spec| spec.image = Some(image));
        let problem = of(Some(&host), SitePolicy::Plain, &Ledger::default()).unwrap_err();
        assert!(
            problem.what.contains(text) && !problem.next.is_empty(),
            "{problem:?}"
        );
    }
}

#[test]
fn deleted_comes_before_external_and_external_before_an_image() {
    let ledger = Ledger::default();
    let mut host = object(|spec| {
        (spec.image, spec.externally_provisioned) = (Some(ours()), true);
    });
    assert_eq!(
        of(Some(&host), SitePolicy::Plain, &ledger),
        Ok(DesiredState::External)
    );
    host.metadata.deletion_timestamp = Some("2026-11-21T00:00:00Z".into());
    assert_eq!(
        of(Some(&host), SitePolicy::Plain, &ledger),
        Ok(DesiredState::Gone)
    );
}

#[test]
fn what_is_left_of_an_object_that_cannot_be_read_asks_for_nothing() {
    let mut left = object(|spec| spec.online = false);
    let paused = annotations::PAUSED.to_owned();
    left.metadata
        .annotations
        .insert(paused, UNREADABLE.to_owned());
    for unclaimed in [SitePolicy::Plain, SitePolicy::Cluster] {
        let desired = of(Some(&left), unclaimed, &Ledger::default());
        assert_eq!(desired, Ok(DesiredState::Unknown));
    }
}
