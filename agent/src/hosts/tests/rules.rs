//! The rules of site.yaml: what a server is given that the box has not met before.

use firstlight_api::{
    bmh::{INSTALL_ANNOTATION, RootDeviceHints},
    capm3::FAILURE_DOMAIN_LABEL,
    site::{SiteConfig, parse_site},
};

use super::*;
use crate::hosts::{made, who::Patience};

/// With a site.yaml that says this.
pub async fn site(rules: &str) -> Site {
    let mut site = Site::start(SitePolicy::Plain).await;
    let file = parse_site(format!("cluster: none\nrules:\n{rules}")).unwrap();
    site.settings.site = Arc::new(file);
    site.hands.secrets = reader(site.settings.site.clone(), &site.store);
    site.restart_controller();
    site.come_up();
    site
}

/// A second server that says the same of itself as `server`.
async fn reports(site: &mut Site, server: &Server, number: u8) {
    let mut report = server.report();
    report.boot_mac = format!("52:54:00:00:00:{number:02x}");
    report.address = format!("127.0.0.{number}");
    let from = Speaker {
        peer: [127, 0, 0, number].into(),
        key: PublicKey::new([number; 32]),
        ..server.speaker()
    };
    site.report(from, report).await;
}

fn object(site: &Site, name: &str) -> Option<BareMetalHost> {
    let objects = site.store.objects.lock().unwrap();
    let mut objects = objects.iter();
    let found = objects.find(|it| it.metadata.name == name);
    found.map(|object| (**object).clone())
}

const GIVEN: &str = "
- match: {vendor: nobody}
  name: wrong
- match: {vendor: 'QEMU*', cpus: 1+}
  name: 'node-{mac}'
  labels: {rack: r1}
  failureDomain: west
  rootDisk: {minSizeGigabytes: 4}
";
const NODE: &str = "node-525400000001";

#[tokio::test]
async fn a_new_server_gets_what_the_first_rule_that_fits_says_and_is_installed() {
    let mut site = site(GIVEN).await;
    site.is_kubernetes_up = false;
    let mut server = Server::new(site.ironic.client());
    for _ in 0..20 {
        server.step(&mut site).await;
        site.pass(ROUND).await;
    }
    assert_eq!(site.ironic.deploys(&node()), 0, "its object comes first");
    assert_eq!(site.host().unwrap().rule, Some(2));
    site.come_up();
    server
        .until("made", &mut site, |site| object(site, NODE).is_some())
        .await;
    let made = object(&site, NODE).unwrap();
    assert_eq!(made.metadata.labels["rack"], "r1");
    assert_eq!(made.metadata.labels[FAILURE_DOMAIN_LABEL], "west");
    let hints = Some(RootDeviceHints {
        min_size_gigabytes: Some(4),
        ..RootDeviceHints::default()
    });
    assert_eq!(made.spec.root_device_hints, hints);
    assert!(made::is_as_made(&made));
    server
        .until_ironic(&mut site, ProvisionState::DeployWait)
        .await;
    let known = site.ironic.client().node(&node()).await.unwrap();
    // Its record names the disk that was chosen by them.
    assert_eq!(known.instance_info["root_device"]["name"], "s== /dev/vda");
    let order = ordered(&site).await.unwrap();
    assert_eq!(order.scope, firstlight_api::order::DiskScope::Root);
}

/// Its first report comes from somebody who says that the server is of `vendor`, and falls silent.
async fn is_played(site: &mut Site, server: &Server, vendor: &str) {
    let mut report = server.report();
    let hardware = Arc::make_mut(&mut report.inventory.hardware);
    vendor.clone_into(&mut hardware.system_vendor.manufacturer);
    let from = Speaker {
        key: PublicKey::new([9; 32]),
        ..server.speaker()
    };
    site.report(from, report).await;
    for _ in 0..5 {
        site.pass(ROUND).await;
    }
}

const LIE: &str = "
- match: {vendor: Liar}
  labels: {rack: evil, other: evil}
  rootDisk: {minSizeGigabytes: 4, model: evil}
  image: evil
- match: {vendor: Lost}
  labels: {rack: evil}
- match: {vendor: 'QEMU*'}
  labels: {rack: r1}
  rootDisk: {minSizeGigabytes: 5}
";

#[tokio::test]
async fn who_spoke_first_in_the_name_of_a_server_chooses_nothing_for_it() {
    let mut site = site(LIE).await;
    let mut server = Server::new(site.ironic.client());
    is_played(&mut site, &server, "Liar").await;
    let first = object(&site, NAME).unwrap();
    assert_eq!(first.metadata.labels["rack"], "evil");
    site.pass(Patience::default().silent).await;
    server
        .until_ironic(&mut site, ProvisionState::DeployWait)
        .await;
    let object = object(&site, NAME).unwrap();
    assert_eq!(
        object.metadata.labels,
        BTreeMap::from([("rack".to_owned(), "r1".to_owned())])
    );
    let hints = object.spec.root_device_hints.unwrap();
    assert_eq!(
        (hints.min_size_gigabytes, hints.model.as_str()),
        (Some(5), "")
    );
    assert_eq!(site.ironic.deploys(&node()), 1);
    let known = site.ironic.client().node(&node()).await.unwrap();
    assert_eq!(known.instance_info["root_device"]["name"], "s== /dev/vda");
}

#[tokio::test]
async fn what_was_made_by_a_lie_stays_where_a_person_has_written_into_it() {
    let mut site = site(LIE).await;
    let mut server = Server::new(site.ironic.client());
    is_played(&mut site, &server, "Lost").await;
    site.store.change(NAME, |object| {
        let labels = &mut object.metadata.labels;
        labels.insert("mine".into(), "yes".into());
    });
    site.pass(Patience::default().silent).await;
    server
        .until_ironic(&mut site, ProvisionState::DeployWait)
        .await;
    let labels = object(&site, NAME).unwrap().metadata.labels;
    assert_eq!(
        (labels["rack"].as_str(), labels["mine"].as_str()),
        ("evil", "yes")
    );
}

#[tokio::test]
async fn what_a_person_changes_is_theirs() {
    let mut site = site(GIVEN).await;
    let mut server = Server::new(site.ironic.client());
    server
        .until("made", &mut site, |site| object(site, NODE).is_some())
        .await;
    for change in [
        |object: &mut BareMetalHost| object.spec.online = false,
        |object: &mut BareMetalHost| drop(object.metadata.labels.remove("rack")),
        |object: &mut BareMetalHost| {
            object.metadata.annotations.insert("a".into(), "b".into());
        },
    ] {
        let mut changed = object(&site, NODE).unwrap();
        change(&mut changed);
        assert!(!made::is_as_made(&changed));
    }
}

#[tokio::test]
async fn a_server_that_no_rule_fits_is_listed_until_a_person_says_more() {
    let mut site = site("- match: {product: nothing}\n").await;
    let mut server = Server::new(site.ironic.client());
    for _ in 0..20 {
        server.step(&mut site).await;
        site.pass(ROUND).await;
    }
    assert_eq!(site.ironic.state(&node()), None, "nothing was begun");
    assert!(
        site.problem().contains("no rule of site.yaml fits"),
        "{}",
        site.told()
    );
    let none = "no rule of site.yaml fits this server";
    assert_eq!(site.host().unwrap().no_rule, none);
    site.store.change(NAME, |object| {
        let said = &mut object.metadata.annotations;
        said.insert(INSTALL_ANNOTATION.into(), "blank".into());
    });
    server
        .until_ironic(&mut site, ProvisionState::DeployWait)
        .await;
    let host = site.host().unwrap();
    assert_eq!((host.no_rule.as_str(), host.rule), (none, None));
}

#[tokio::test]
async fn two_servers_that_a_rule_calls_the_same_are_both_named_and_the_second_waits() {
    let mut site = site("- {match: any, name: gateway}\n").await;
    let server = Server::new(site.ironic.client());
    for number in [1, 2] {
        reports(&mut site, &server, number).await;
        site.pass(ROUND).await;
    }
    let second: MacAddr = "52:54:00:00:00:02".parse().unwrap();
    let first = site.host().unwrap();
    let second = site.shown[&second].status.clone();
    assert_eq!((first.name.as_str(), first.problem), ("gateway", None));
    assert_eq!(
        (second.name.as_str(), second.rule),
        ("host-525400000002", None)
    );
    let why = second.problem.clone().unwrap().what;
    assert!(
        why.contains(MAC) && why.contains("52:54:00:00:00:02"),
        "{why}"
    );
    // It is the same after a restart, whoever speaks first.
    site.restart_controller();
    site.come_up();
    site.pass(ROUND).await;
    for number in [2, 1] {
        reports(&mut site, &server, number).await;
        site.pass(ROUND).await;
    }
    assert_eq!(site.host().unwrap().name, "gateway");
    assert!(object(&site, "host-525400000002").is_some());
}

const NUMBERED: &str = "- {match: any, name: 'worker-{n}'}\n";

fn name_of(site: &Site, number: u8) -> String {
    let mac = format!("52:54:00:00:00:{number:02x}").parse().unwrap();
    site.shown
        .get(&mac)
        .map(|shown| shown.status.name.clone())
        .unwrap_or_default()
}

async fn rounds(site: &mut Site) {
    for _ in 0..3 {
        site.pass(ROUND).await;
    }
}

#[tokio::test]
async fn numbers_are_given_once_and_not_where_somebodys_object_has_the_name() {
    let mut site = site(NUMBERED).await;
    // One is no host at all, and the other one is another server's.
    site.store.change("worker-2", |object| {
        object.spec.boot_mac_address = String::new();
    });
    site.store.change("worker-4", |object| {
        object.spec.boot_mac_address = "52:54:00:00:00:77".into();
    });
    rounds(&mut site).await;
    let server = Server::new(site.ironic.client());
    for number in [1, 2, 3] {
        reports(&mut site, &server, number).await;
    }
    rounds(&mut site).await;
    let names = |site: &Site| [1, 2, 3].map(|number| name_of(site, number));
    let given = ["worker-1", "worker-3", "worker-5"].map(str::to_owned);
    assert_eq!(names(&site), given);
    assert!(given.iter().all(|name| object(&site, name).is_some()));
    // Whoever speaks first after a restart.
    site.restart_controller();
    site.come_up();
    for number in [3, 2, 1] {
        reports(&mut site, &server, number).await;
        rounds(&mut site).await;
    }
    assert_eq!(names(&site), given);
}

#[tokio::test]
async fn a_number_waits_until_all_names_are_known_and_outlives_the_objects() {
    let mut site = site(NUMBERED).await;
    site.is_kubernetes_up = false;
    site.restart_controller();
    let server = Server::new(site.ironic.client());
    for number in [1, 2] {
        reports(&mut site, &server, number).await;
    }
    rounds(&mut site).await;
    assert_eq!(name_of(&site, 1), NAME, "no number yet");
    site.store.change("worker-1", |object| {
        object.spec.boot_mac_address = "52:54:00:00:00:77".into();
    });
    site.come_up();
    rounds(&mut site).await;
    let names = |site: &Site| [1, 2].map(|number| name_of(site, number));
    let given = ["worker-2", "worker-3"].map(str::to_owned);
    assert_eq!(names(&site), given);
    assert!(object(&site, NAME).is_none(), "never under another name");
    // The box's Kubernetes is lost, and the one that speaks first keeps its name.
    site.store.objects.lock().unwrap().clear();
    site.restart_controller();
    site.come_up();
    rounds(&mut site).await;
    for number in [2, 3, 1] {
        reports(&mut site, &server, number).await;
        rounds(&mut site).await;
    }
    assert_eq!(names(&site), given);
    assert_eq!(name_of(&site, 3), "worker-1", "the lowest that is free now");
    // Somebody takes the name of one whose object is lost and that has not reported yet.
    site.store.objects.lock().unwrap().clear();
    site.restart_controller();
    site.store.change("worker-2", |object| {
        object.spec.boot_mac_address = "52:54:00:00:00:77".into();
    });
    site.come_up();
    rounds(&mut site).await;
    let theirs = object(&site, "worker-2").unwrap();
    assert_eq!(theirs.spec.boot_mac_address, "52:54:00:00:00:77");
    for number in [1, 2] {
        reports(&mut site, &server, number).await;
        rounds(&mut site).await;
    }
    assert_eq!(name_of(&site, 2), "worker-3");
    assert_ne!(name_of(&site, 1), "worker-2");
}

#[tokio::test]
async fn the_number_of_a_server_that_was_forgotten_is_free() {
    let mut site = site("- {match: any, name: 'worker-{n}', install: never}\n").await;
    let server = Server::new(site.ironic.client());
    for number in [1, 2] {
        reports(&mut site, &server, number).await;
    }
    rounds(&mut site).await;
    site.store.change("worker-1", |object| {
        object.metadata.deletion_timestamp = Some("2026-11-21T00:00:00Z".to_owned());
    });
    for _ in 0..40 {
        if object(&site, "worker-1").is_none() {
            break;
        }
        site.pass(ROUND).await;
    }
    assert!(object(&site, "worker-1").is_none(), "{}", site.told());
    reports(&mut site, &server, 3).await;
    rounds(&mut site).await;
    assert_eq!(
        (name_of(&site, 3).as_str(), name_of(&site, 2).as_str()),
        ("worker-1", "worker-2")
    );
}

const NAMED: &str = "
- {match: any, labels: {rack: r1}, rootDisk: {minSizeGigabytes: 4000}, clean: all}
hosts:
- {mac: '52:54:00:00:00:01', rootDisk: {deviceName: /dev/vda}, clean: root}
";

#[tokio::test]
async fn a_line_in_hosts_says_which_disk_whatever_a_rule_says() {
    let mut site = site(NAMED).await;
    let mut server = Server::new(site.ironic.client());
    server
        .until_ironic(&mut site, ProvisionState::DeployWait)
        .await;
    let made = site.store.only().unwrap();
    let hints = RootDeviceHints {
        device_name: "/dev/vda".into(),
        ..RootDeviceHints::default()
    };
    assert_eq!(made.spec.root_device_hints, Some(hints));
    assert_eq!(made.metadata.labels["rack"], "r1");
    let order = ordered(&site).await.unwrap();
    assert_eq!(order.scope, firstlight_api::order::DiskScope::Root);
}

#[tokio::test]
async fn so_it_does_without_rules_and_nothing_is_written_before_its_object_says_it() {
    let mut site = site("").await;
    let line = "{mac: '52:54:00:00:00:01', rootDisk: {model: nothing like it}}";
    let file = format!("cluster: none\nhosts: [{line}]\n");
    site.settings.site = Arc::new(parse_site(file).unwrap());
    site.restart_controller();
    site.is_kubernetes_up = false;
    let mut server = Server::new(site.ironic.client());
    for _ in 0..20 {
        server.step(&mut site).await;
        site.pass(ROUND).await;
    }
    assert_eq!(site.ironic.deploys(&node()), 0);
    site.come_up();
    let is_told = |site: &Site| site.problem().contains("what its `rootDeviceHints` say");
    server.until("told", &mut site, is_told).await;
    assert_eq!(site.ironic.deploys(&node()), 0);
    // It is written without a restart of the server once the line is gone.
    site.settings.site = Arc::new(parse_site("cluster: none\n").unwrap());
    site.restart_controller();
    server
        .until_ironic(&mut site, ProvisionState::DeployWait)
        .await;
    assert_eq!(site.store.only().unwrap().spec.root_device_hints, None);
}

#[tokio::test]
async fn while_nobody_knows_the_file_what_it_said_once_stays() {
    let mut site = site(GIVEN).await;
    let mut server = Server::new(site.ironic.client());
    server
        .until("made", &mut site, |site| object(site, NODE).is_some())
        .await;
    let made = object(&site, NODE).unwrap();
    site.settings.site = Arc::new(SiteConfig::for_a_refused_file());
    site.restart_controller();
    site.come_up();
    for _ in 0..5 {
        server.step(&mut site).await;
        site.pass(ROUND).await;
    }
    let kept = object(&site, NODE).unwrap();
    assert_eq!(
        (kept.spec, kept.metadata.labels),
        (made.spec, made.metadata.labels)
    );
}

#[tokio::test]
async fn a_rule_may_wipe_and_makes_nobody_trusted() {
    let mut site = site("- {match: any, install: wipe, role: control-plane}\n").await;
    let mut server = Server::new(site.ironic.client());
    server.signatures = vec!["gpt".into(), "ntfs".into()];
    server
        .until_ironic(&mut site, ProvisionState::DeployWait)
        .await;
    let order = ordered(&site).await.unwrap();
    assert_eq!(order.policy, firstlight_api::order::DiskPolicy::Wipe);
    let made = site.store.only().unwrap();
    assert!(made.metadata.labels.is_empty(), "a role is not written");
}
