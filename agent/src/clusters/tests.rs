#![allow(clippy::unwrap_used)]

use firstlight_api::site::{ClusterChoice, Heal, SiteConfig, parse_site};
use serde_json::{Value, json};

use super::{replicas::Counts, *};
use crate::capi::Kind;

mod further;

const KEY: &str =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ1pLbFSTpHvJ0hSWRnUGMvKxQ2g1YMxPvvqj5vJXc0f ann@desk";

fn stick() -> Stick {
    Stick {
        kubernetes: "v1.36.3".into(),
        flannel: "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: flannel}\ndata: {network: @POD_CIDR@}\n".into(),
        image: "node".into(),
        image_sha256: "ab".repeat(32),
        address: "172.22.0.1".parse().unwrap(),
    }
}

fn site(text: &str) -> SiteConfig {
    parse_site(text).unwrap()
}

fn config(site: &SiteConfig) -> ClusterConfig {
    match &site.cluster {
        ClusterChoice::Generated(config) => config.clone(),
        other => panic!("{other:?}"),
    }
}

/// `UPDATE_GOLDEN=1 cargo test -p firstlight-agent --lib clusters` renews the files; read the difference then.
#[test]
fn the_objects_of_a_cluster_are_as_they_were() {
    for (name, text, counts) in [
        (
            "one",
            "name: lab\ncluster: {}\n".to_owned(),
            Counts {
                control_planes: 1,
                workers: 2,
            },
        ),
        (
            "three",
            format!(
                "name: rack-7\nprovisioning: {{address: 10.0.0.1/16}}\nsshKeys: ['{KEY}']\n\
                 cluster: {{controlPlanes: 3, endpoint: 10.0.9.9, podCidr: 10.128.0.0/14, serviceCidr: 10.96.0.0/16}}\n"
            ),
            Counts {
                control_planes: 3,
                workers: 0,
            },
        ),
    ] {
        let site = site(&text);
        let objects = render(&site, site.name.as_str(), &config(&site), &stick(), counts);
        let mut found = String::new();
        for object in &objects {
            found.push_str(&serde_json::to_string_pretty(object).unwrap());
            found.push('\n');
        }
        let path = format!("src/clusters/golden/{name}.json");
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::create_dir_all(std::path::Path::new(&path).parent().unwrap()).unwrap();
            std::fs::write(&path, &found).unwrap();
        }
        let golden = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            found == golden,
            "{path} changed; renew it with UPDATE_GOLDEN=1 and read the difference"
        );
    }
}

#[test]
fn nothing_of_a_cluster_comes_from_outside_the_site() {
    let site = site("cluster: {}");
    let text = json!(render(
        &site,
        site.name.as_str(),
        &config(&site),
        &stick(),
        Counts {
            control_planes: 1,
            workers: 1
        }
    ))
    .to_string();
    for name in [
        "registry.k8s.io",
        "docker.io",
        "ghcr.io",
        "quay.io",
        "@POD_CIDR@",
    ] {
        assert!(!text.contains(name), "{name}");
    }
}

#[test]
fn the_pod_network_is_told_its_addresses() {
    let site = site("cluster: {podCidr: 10.200.0.0/16}");
    let counts = Counts {
        control_planes: 1,
        workers: 1,
    };
    let objects = render(&site, site.name.as_str(), &config(&site), &stick(), counts);
    let mut texts = objects
        .iter()
        .filter_map(|object| object["data"]["flannel.yaml"].as_str());
    assert!(texts.next().unwrap().contains("network: 10.200.0.0/16"));
}

#[test]
fn a_cluster_on_a_network_of_both_families_has_both_everywhere() {
    let network =
        "networks: {nodes: {subnet: [10.20.0.0/24, 'fd00:20::/64']}}\ncluster: {network: nodes}\n";
    let site = site(network);
    let counts = Counts {
        control_planes: 1,
        workers: 1,
    };
    let objects = render(&site, site.name.as_str(), &config(&site), &stick(), counts);
    let of = |kind: &str| {
        let mut all = objects.iter();
        all.find(|object| object["kind"] == kind).unwrap()
    };
    let network = &of("Cluster")["spec"]["clusterNetwork"];
    assert_eq!(
        network["pods"]["cidrBlocks"],
        json!(["10.244.0.0/16", "fd00:10:244::/56"])
    );
    assert_eq!(
        network["services"]["cidrBlocks"],
        json!(["10.96.0.0/12", "fd00:10:96::/112"])
    );
    let nodes = [
        &of("KubeadmControlPlane")["spec"]["kubeadmConfigSpec"],
        &of("KubeadmConfigTemplate")["spec"]["template"]["spec"],
    ];
    for spec in nodes {
        let argument = &spec["joinConfiguration"]["nodeRegistration"]["kubeletExtraArgs"][0];
        assert_eq!(
            argument["value"],
            "{{ ds.meta_data.local_ipv4 }},{{ ds.meta_data.local_ipv6 }}"
        );
        let text = spec.to_string();
        for part in [
            "Destination=fd00:10:96::/112",
            "net.ipv6.conf.all.forwarding = 1",
            "sysctl -q -p /etc/sysctl.d/60-ipv6-forwarding.conf",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}

/// As the box has it.
#[test]
fn the_manifest_of_the_pod_network_is_yaml_with_one_family_and_with_both() {
    let manifest =
        include_str!("../../../overlays/box/usr/share/firstlight/manifests/workload/flannel.yaml");
    let stick = Stick {
        flannel: manifest.into(),
        ..stick()
    };
    let both =
        "networks: {nodes: {subnet: [10.20.0.0/24, 'fd00:20::/64']}}\ncluster: {network: nodes}\n";
    for (text, ipv6) in [("cluster: {}", None), (both, Some("fd00:10:244::/56"))] {
        let site = site(text);
        let [rendered, _] = flannel::render("lab", &config(&site), &stick);
        let rendered = rendered["data"]["flannel.yaml"].as_str().unwrap();
        let documents: Vec<Value> = rendered
            .split("\n---\n")
            .map(|document| serde_saphyr::from_str(document).unwrap())
            .collect();
        assert_eq!(documents.len(), 6);
        let conf = documents[4]["data"]["net-conf.json"].as_str().unwrap();
        let conf: Value = serde_json::from_str(conf).unwrap();
        assert_eq!(conf["Network"], "10.244.0.0/16");
        assert_eq!(conf["IPv6Network"].as_str(), ipv6);
        assert_eq!(conf["EnableIPv6"].as_bool(), ipv6.map(|_| true));
    }
}

/// Hosts by name, role and state; a consumer claims them.
fn world(site: SiteConfig, hosts: &[(&str, &str, &str, Option<&str>)]) -> World {
    let mut world = World {
        site: site.into(),
        ..World::default()
    };
    for (name, role, state, consumer) in hosts {
        let mut host = json!({
            "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"firstlight.internal/role": role}},
            "spec": {"online": true},
            "status": {"provisioning": {"state": state}},
        });
        if let Some(consumer) = consumer {
            host["spec"]["consumerRef"] = json!({
                "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta2", "kind": "Metal3Machine", "name": consumer, "namespace": NAMESPACE,
            });
            let control_plane = consumer.starts_with("cp");
            let mut labels = json!({"cluster.x-k8s.io/cluster-name": "firstlight"});
            if control_plane {
                labels["cluster.x-k8s.io/control-plane"] = json!("");
            }
            let owner = json!([{"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "name": consumer, "uid": "1"}]);
            let machine = json!({"metadata": {"name": consumer, "namespace": NAMESPACE, "labels": labels, "ownerReferences": owner}});
            let machine: firstlight_api::capm3::Metal3Machine =
                serde_json::from_value(machine).unwrap();
            world
                .metal3_machines
                .insert(Key::of(&machine.metadata), machine);
            let owner: firstlight_api::capi::Machine = serde_json::from_value(
                json!({"metadata": {"name": consumer, "namespace": NAMESPACE}}),
            )
            .unwrap();
            world.machines.insert(Key::of(&owner.metadata), owner);
        }
        let host: crate::capi::world::Host = serde_json::from_value(host).unwrap();
        world.hosts.insert(Key::of(&host.metadata), host);
    }
    world
}

#[test]
fn workers_follow_the_hosts() {
    let a = "available";
    let p = "provisioned";
    for (what, text, hosts, workers) in [
        ("no host", "cluster: {}", vec![], 0),
        (
            "the first is the control plane",
            "cluster: {}",
            vec![("n1", "any", a, None)],
            0,
        ),
        (
            "the second is a worker",
            "cluster: {}",
            vec![("n1", "any", a, None), ("n2", "any", a, None)],
            1,
        ),
        (
            "the control plane is there",
            "cluster: {}",
            vec![("n1", "any", p, Some("cp")), ("n2", "any", a, None)],
            1,
        ),
        (
            "all are there",
            "cluster: {}",
            vec![("n1", "any", p, Some("cp")), ("n2", "any", p, Some("w1"))],
            1,
        ),
        (
            "a worker is being cleaned",
            "cluster: {}",
            vec![
                ("n1", "any", p, Some("cp")),
                ("n2", "any", "deprovisioning", Some("w1")),
            ],
            1,
        ),
        (
            "three control planes come first",
            "cluster: {controlPlanes: 3}",
            vec![
                ("n1", "any", a, None),
                ("n2", "any", a, None),
                ("n3", "any", a, None),
                ("n4", "any", a, None),
            ],
            1,
        ),
        (
            "roles",
            "cluster: {}",
            vec![
                ("n1", "control-plane", a, None),
                ("n2", "worker", a, None),
                ("n3", "spare", a, None),
                ("n4", "any", a, None),
            ],
            2,
        ),
        (
            "on their way",
            "cluster: {}",
            vec![
                ("n1", "any", p, Some("cp")),
                ("n2", "any", "registering", None),
                ("n3", "any", "inspecting", None),
                ("n4", "any", "provisioning", None),
                ("n5", "any", "deprovisioning", None),
            ],
            4,
        ),
        (
            "nobody's, or another's",
            "cluster: {}",
            vec![
                ("n1", "any", p, Some("cp")),
                ("n2", "any", "unmanaged", None),
                ("n3", "any", "deleting", None),
                ("n4", "any", "externally provisioned", None),
            ],
            0,
        ),
        (
            "a worker that became a spare",
            "cluster: {}",
            vec![("n1", "any", p, Some("cp")), ("n2", "spare", p, Some("w1"))],
            0,
        ),
        ("a number is a number", "cluster: {workers: 7}", vec![], 7),
    ] {
        let site = site(text);
        let config = config(&site);
        let world = world(site, &hosts);
        assert_eq!(
            replicas::wanted(&world, &config, "firstlight").workers,
            workers,
            "{what}"
        );
    }
}

fn deployment(replicas: u32, written: &str) -> firstlight_api::capi::Replicated {
    serde_json::from_value(json!({
        "metadata": {
            "name": "firstlight-workers", "namespace": NAMESPACE, "resourceVersion": "7",
            "annotations": {replicas::WRITTEN: written},
        },
        "spec": {"replicas": replicas, "clusterName": "firstlight"},
    }))
    .unwrap()
}

#[test]
fn a_count_that_a_person_set_stays_until_the_wish_changes() {
    let hosts = [
        ("n1", "any", "provisioned", Some("cp")),
        ("n2", "any", "available", None),
    ];
    for (replicas, written, changes) in [
        (1, "1", false),
        (0, "1", false),
        (5, "1", false),
        (0, "0", true),
        (1, "", true),
    ] {
        let site = site("cluster: {}");
        let config = config(&site);
        let mut world = world(site, &hosts);
        let found = deployment(replicas, written);
        world.deployments.insert(Key::of(&found.metadata), found);
        let plan = replicas::plan(&world, &config, "firstlight");
        let expected = vec![Action::Patch {
            kind: Kind::Deployment,
            key: Key::new(NAMESPACE, "firstlight-workers"),
            version: Some("7".into()),
            patch: json!({"metadata": {"annotations": {replicas::WRITTEN: "1"}}, "spec": {"replicas": 1}}),
        }];
        assert_eq!(
            plan,
            if changes { vec![expected] } else { vec![] },
            "{replicas} {written}"
        );
    }
}

#[test]
fn the_machine_on_a_host_that_leaves_goes_first() {
    let site = site("cluster: {}");
    let config = config(&site);
    let world = world(
        site,
        &[
            ("n1", "any", "provisioned", Some("cp")),
            ("n2", "spare", "provisioned", Some("w1")),
        ],
    );
    let plan = replicas::plan(&world, &config, "firstlight");
    assert!(
        matches!(&plan[..], [steps] if matches!(&steps[..], [Action::Patch { kind: Kind::Machine, key, .. }] if key.name == "w1")),
        "{plan:?}"
    );
}

#[test]
fn a_machine_without_a_host_goes_first() {
    let site = site("cluster: {}");
    let config = config(&site);
    let mut world = world(
        site,
        &[
            ("n1", "any", "provisioned", Some("cp")),
            ("n2", "any", "provisioning", Some("w1")),
            ("gone", "any", "available", Some("w2")),
        ],
    );
    world.hosts.remove(&Key::new(NAMESPACE, "gone"));
    for machine in world.metal3_machines.values_mut() {
        let labels = &mut machine.metadata.labels;
        labels.insert(
            firstlight_api::capi::DEPLOYMENT_LABEL.into(),
            "firstlight-workers".into(),
        );
    }
    let found = deployment(2, "2");
    world.deployments.insert(Key::of(&found.metadata), found);
    let plan = replicas::plan(&world, &config, "firstlight");
    let kinds: Vec<_> = plan[0]
        .iter()
        .map(|action| match action {
            Action::Patch { kind, key, .. } => (*kind, key.name.as_str()),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(
        kinds,
        [
            (Kind::Machine, "w2"),
            (Kind::Deployment, "firstlight-workers")
        ]
    );
}

fn there_is_a_cluster(world: &mut World) {
    let found: firstlight_api::capi::Cluster =
        serde_json::from_value(json!({"metadata": {"name": "firstlight", "namespace": NAMESPACE}}))
            .unwrap();
    world.clusters.insert(Key::of(&found.metadata), found);
}

/// Of a site that says nothing else.
const SERVICES: &str = "172.22.0.80-172.22.0.95";

fn created(addresses: &str, addons: Vec<String>, usual_addons: bool) -> Value {
    let created = Created {
        cluster: "firstlight".to_owned(),
        addresses: addresses.to_owned(),
        addons,
        usual_addons,
        services: SERVICES.to_owned(),
        heal: Heal::None,
    };
    marker::created(MARKER, &created)
}

/// The API server has it.
fn mark(world: &mut World, marker: &Value) {
    let name = marker["metadata"]["name"].as_str().unwrap().to_owned();
    let data = serde_json::from_value(marker["data"].clone()).unwrap();
    world.markers.insert(name, data);
}

/// Names and values of the addons that a cluster gets for which none were made.
fn first_addons(text: &str, usual_addons: bool) -> Vec<(String, Value)> {
    let site = site(text);
    let fixed = marker::fixed(&config(&site));
    let mut world = world(site, &[]);
    there_is_a_cluster(&mut world);
    let marker = created(&fixed, Vec::new(), usual_addons);
    mark(&mut world, &marker);
    let steps = plan(&world, Some(&stick())).0.into_iter().flatten();
    steps
        .filter_map(|step| match step {
            Action::Create(object) => {
                let name = object["metadata"]["name"].as_str()?.to_owned();
                Some((name, object["spec"]["values"].clone()))
            }
            _ => None,
        })
        .collect()
}

#[test]
fn a_new_cluster_has_what_people_expect_of_one_and_an_older_one_stays_as_it_is() {
    let pool = json!({"addresses": [SERVICES]});
    let usual = [
        ("dns", Value::Null),
        ("gateway", Value::Null),
        ("loadbalancer", pool),
        ("metrics-server", Value::Null),
        ("network-policy", Value::Null),
        ("storage", Value::Null),
    ];
    let usual: Vec<_> = usual.map(|(name, values)| (name.to_owned(), values)).into();
    assert_eq!(first_addons("", true), usual);
    let without = [&usual[..1], &usual[3..]].concat();
    assert_eq!(first_addons("cluster: {loadBalancer: none}", true), without);
    for (text, usual_addons) in [("", false), ("addons: []", true)] {
        assert!(first_addons(text, usual_addons).is_empty(), "{text}");
    }
    let named = first_addons("addons: [storage]\ncluster: {}", false);
    assert_eq!(named, usual[5..]);
}

#[test]
fn an_addon_of_the_site_is_made_once() {
    let site = site("addons: [nfd, web]");
    let fixed = marker::fixed(&config(&site));
    let mut world = world(site, &[]);
    there_is_a_cluster(&mut world);
    let made = |names: &[&str]| {
        let names = names.iter().map(|&name| name.to_owned());
        created(&fixed, names.collect(), true)
    };
    mark(&mut world, &made(&["nfd"]));
    let web = json!({
        "apiVersion": "firstlight.internal/v1alpha1",
        "kind": "Addon",
        "metadata": {"name": "web", "namespace": NAMESPACE},
        "spec": {"cluster": "firstlight", "builtin": "web"},
    });
    let both = made(&["nfd", "web"]);
    let steps = vec![Action::Create(web), Action::Put(both.clone())];
    assert_eq!(plan(&world, Some(&stick())).0, [steps]);
    mark(&mut world, &both);
    assert!(plan(&world, Some(&stick())).0.is_empty());
}

#[test]
fn a_cluster_is_made_once() {
    let site = site("cluster: {}");
    let config = config(&site);
    let mut world = world(site, &[]);
    let (plan_before, problems) = plan(&world, Some(&stick()));
    assert!(problems.is_empty());
    let steps = &plan_before[0];
    assert_eq!(
        steps.first(),
        Some(&Action::Put(marker::creating(
            MARKER,
            "firstlight",
            &config
        )))
    );
    let forget = Action::ForgetKeys(Key::new(NAMESPACE, "firstlight"));
    let cluster = Key::new(NAMESPACE, "firstlight");
    let key = Action::CreateSecretsKey { cluster };
    assert_eq!(steps[1..3], [forget.clone(), key]);
    assert_eq!(
        steps.last(),
        Some(&Action::Put(created(
            &marker::fixed(&config),
            Vec::new(),
            true
        )))
    );
    assert!(
        plan(&world, None).0.is_empty(),
        "without the stick's versions it waits"
    );

    mark(&mut world, &marker::creating(MARKER, "firstlight", &config));
    assert_eq!(
        plan(&world, Some(&stick())).0,
        plan_before,
        "cut in the middle, it goes on"
    );

    mark(
        &mut world,
        &created(&marker::fixed(&config), Vec::new(), false),
    );
    let (after, problems) = plan(&world, Some(&stick()));
    assert!(
        after.is_empty(),
        "a deleted cluster stays deleted: {after:?}"
    );
    assert!(problems[0].what.contains("was deleted"), "{problems:?}");

    there_is_a_cluster(&mut world);
    let made = created(&marker::fixed(&config), Vec::new(), false);
    mark(&mut world, &marker::creating(MARKER, "firstlight", &config));
    let steps = &plan(&world, Some(&stick())).0[0];
    assert!(!steps.contains(&forget), "these keys are its own");
    mark(&mut world, &made);
    assert_eq!(plan(&world, Some(&stick())), (vec![], vec![]));

    let mut other = (*world.site).clone();
    other.cluster = ClusterChoice::Generated(ClusterConfig {
        endpoint: "172.22.0.99".parse().unwrap(),
        ..config
    });
    world.site = other.into();
    let (after, problems) = plan(&world, Some(&stick()));
    assert!(after.is_empty());
    assert!(
        problems[0]
            .what
            .contains("the running cluster keeps endpoint 172.22.0.254"),
        "{problems:?}"
    );
}

#[test]
fn addresses_for_services_follow_site_yaml_where_somebody_has_the_addon() {
    let site = site("cluster: {loadBalancer: 172.22.0.64-172.22.0.71}");
    let config = config(&site);
    let follow = |before: &str, addons: &[&str]| {
        let mut created = Created {
            cluster: "firstlight".to_owned(),
            addresses: String::new(),
            addons: addons.iter().map(|&name| name.to_owned()).collect(),
            usual_addons: true,
            services: before.to_owned(),
            heal: Heal::None,
        };
        let step = addons::follow(&config, MARKER, &mut created);
        assert_eq!(created.services, "172.22.0.64-172.22.0.71");
        step
    };
    let Some(Action::Change(object)) = follow(SERVICES, &["loadbalancer"]) else {
        panic!("nothing is written");
    };
    assert_eq!(
        (&object["metadata"]["name"], &object["spec"]["values"]),
        (
            &json!("loadbalancer"),
            &json!({"addresses": ["172.22.0.64-172.22.0.71"]})
        )
    );
    for (before, addons) in [
        ("172.22.0.64-172.22.0.71", &["loadbalancer"][..]),
        // A stick that noted none made it, or it was never made.
        ("", &["loadbalancer"]),
        (SERVICES, &["storage"]),
    ] {
        assert_eq!(follow(before, addons), None, "{before}");
    }
}
