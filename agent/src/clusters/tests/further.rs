//! More than one cluster on a site, and what the box does about lost servers.

use firstlight_api::capm3::FOR_CLUSTER_LABEL;

use super::*;
use crate::capi::MARKER_LABEL;

const TWO: &str = "name: lab\nclusters: {edge: {}}\n";

/// Objects that are made, in order.
fn made(steps: &[Steps]) -> Vec<&Value> {
    let actions = steps.iter().flatten();
    let object = |action| match action {
        &Action::Create(ref object) | &Action::Put(ref object) => Some(object),
        _ => None,
    };
    actions.filter_map(object).collect()
}

fn label(world: &mut World, host: &str, cluster: &str) {
    let host = world.hosts.get_mut(&Key::new(NAMESPACE, host)).unwrap();
    let labels = &mut host.metadata.labels;
    labels.insert(FOR_CLUSTER_LABEL.to_owned(), cluster.to_owned());
}

#[test]
fn each_cluster_is_made_once_with_addresses_and_a_marker_of_its_own() {
    let mut world = world(site(TWO), &[]);
    let (steps, problems) = plan(&world, Some(&stick()));
    assert!(problems.is_empty());
    let all = made(&steps);
    let of = |kind: &str| -> Vec<&Value> {
        let found = all.iter().filter(|object| object["kind"] == kind);
        found.copied().collect()
    };
    let endpoints: Vec<_> = of("Metal3Cluster")
        .iter()
        .map(|it| {
            let host = &it["spec"]["controlPlaneEndpoint"]["host"];
            (it["metadata"]["name"].clone(), host.clone())
        })
        .collect();
    assert_eq!(
        endpoints,
        [
            (json!("lab"), json!("172.22.0.254")),
            (json!("edge"), json!("172.22.0.253"))
        ]
    );
    let keepalived: Vec<String> = of("KubeadmControlPlane")
        .iter()
        .map(ToString::to_string)
        .collect();
    assert!(keepalived[0].contains("virtual_router_id 254"));
    assert!(keepalived[1].contains("virtual_router_id 253"));
    let markers = of("ConfigMap");
    let markers = markers.iter().filter(|it| it["data"]["state"] == "created");
    let markers: Vec<&Value> = markers.copied().collect();
    assert_eq!(markers[1]["metadata"]["name"], "firstlight-cluster-edge");
    assert_eq!(markers[1]["metadata"]["labels"][MARKER_LABEL], "");
    assert!(markers[0]["metadata"]["labels"].is_null());

    for marker in markers {
        mark(&mut world, marker);
        let cluster =
            json!({"metadata": {"name": marker["data"]["cluster"], "namespace": NAMESPACE}});
        let cluster: firstlight_api::capi::Cluster = serde_json::from_value(cluster).unwrap();
        world.clusters.insert(Key::of(&cluster.metadata), cluster);
    }
    let (steps, problems) = plan(&world, Some(&stick()));
    assert!(problems.is_empty(), "{problems:?}");
    let addons: Vec<_> = made(&steps)
        .into_iter()
        .filter(|it| it["kind"] == "Addon")
        .map(|it| {
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            (text(&it["metadata"]["name"]), text(&it["spec"]["cluster"]))
        })
        .collect();
    assert_eq!(addons.len(), 12);
    assert_eq!(addons[2], ("loadbalancer".to_owned(), "lab".to_owned()));
    assert_eq!(
        addons[8],
        ("edge-loadbalancer".to_owned(), "edge".to_owned())
    );

    world.clusters.remove(&Key::new(NAMESPACE, "edge"));
    let (_, problems) = plan(&world, Some(&stick()));
    assert_eq!(
        problems[0].what,
        "the cluster edge was deleted; it is not made again by itself"
    );
    assert!(
        problems[0]
            .next
            .contains("configmap firstlight-cluster-edge")
    );
}

#[test]
fn each_counts_the_hosts_that_are_kept_for_it() {
    let available = |name| (name, "any", "available", None);
    let hosts = [
        available("n1"),
        available("n2"),
        available("n3"),
        available("n4"),
        available("n5"),
    ];
    let mut world = world(site(TWO), &hosts);
    let workers = |world: &World, cluster: &str| {
        let mut all = world.site.generated_clusters();
        let (_, config) = all.find(|(name, _)| *name == cluster).unwrap();
        replicas::wanted(world, config, cluster).workers
    };
    assert_eq!((workers(&world, "lab"), workers(&world, "edge")), (4, 0));
    for host in ["n1", "n2", "n3"] {
        label(&mut world, host, "edge");
    }
    assert_eq!((workers(&world, "lab"), workers(&world, "edge")), (1, 2));
    // A cluster that somebody else made.
    label(&mut world, "n5", "theirs");
    assert_eq!((workers(&world, "lab"), workers(&world, "edge")), (0, 2));

    // As site.yaml says, where no label does.
    let text = format!(
        "{TWO}hosts:\n- {{mac: 52:54:00:00:00:01, cluster: edge}}\n- {{mac: 52:54:00:00:00:02, cluster: edge}}\n"
    );
    let mut world = super::world(site(&text), &hosts);
    for (name, mac) in [("n1", "52:54:00:00:00:01"), ("n2", "52:54:00:00:00:02")] {
        let host = world.hosts.get_mut(&Key::new(NAMESPACE, name)).unwrap();
        mac.clone_into(&mut host.spec.boot_mac_address);
    }
    assert_eq!((workers(&world, "lab"), workers(&world, "edge")), (2, 1));
    label(&mut world, "n2", "lab");
    assert_eq!((workers(&world, "lab"), workers(&world, "edge")), (3, 0));
}

#[test]
fn a_worker_whose_host_is_kept_for_another_cluster_goes_first() {
    let hosts = [
        ("n1", "any", "provisioned", Some("cp")),
        ("n2", "any", "provisioned", Some("w1")),
        ("n3", "any", "provisioned", Some("w2")),
    ];
    let mut world = world(site("clusters: {edge: {}}"), &hosts);
    let config = config(&world.site);
    assert_eq!(replicas::wanted(&world, &config, "firstlight").workers, 2);
    label(&mut world, "n2", "edge");
    // Its control plane stays until a person replaces it.
    label(&mut world, "n1", "edge");
    assert_eq!(replicas::wanted(&world, &config, "firstlight").workers, 1);
    let plan = replicas::plan(&world, &config, "firstlight");
    assert!(
        matches!(&plan[..], [steps] if matches!(&steps[..], [Action::Patch { kind: Kind::Machine, key, .. }] if key.name == "w1")),
        "{plan:?}"
    );
}

#[test]
fn a_spare_for_a_control_plane_is_one_of_its_own_cluster() {
    let mut world = world(
        site("clusters: {edge: {}}"),
        &[("n1", "any", "available", None)],
    );
    let owner = deployment(1, "1");
    world.control_planes.insert(Key::of(&owner.metadata), owner);
    let told = |world: &World| {
        let steps = marker::keep_spare(world);
        steps.map(|steps| made(&[steps])[0]["data"].clone())
    };
    let said = json!({"controlPlane": "true", "controlPlane.edge": "false"});
    assert_eq!(told(&world), Some(said.clone()));
    world.spare = Some(serde_json::from_value(said).unwrap());
    assert_eq!(told(&world), None);
    label(&mut world, "n1", "edge");
    let said = json!({"controlPlane": "false", "controlPlane.edge": "true"});
    assert_eq!(told(&world), Some(said));
}

#[test]
fn lost_servers_are_healed_if_and_as_the_site_says() {
    let strategy = |steps: &[Steps]| {
        let all = made(steps);
        let template = all
            .iter()
            .find(|it| it["kind"] == "Metal3RemediationTemplate");
        template.map(|it| it["spec"]["template"]["spec"]["strategy"]["retryLimit"].clone())
    };
    for (text, expected) in [
        ("cluster: {}", None),
        ("cluster: {heal: restart}", Some(json!(i32::MAX))),
        ("cluster: {heal: replace}", Some(json!(1))),
    ] {
        let world = world(site(text), &[]);
        let (steps, _) = plan(&world, Some(&stick()));
        assert_eq!(strategy(&steps), expected, "{text}");
        assert_eq!(
            made(&steps)
                .iter()
                .any(|it| it["kind"] == "MachineHealthCheck"),
            expected.is_some()
        );
    }
    // Of a cluster that is there, each change once.
    let mut world = world(site("addons: []\ncluster: {heal: replace}"), &[]);
    there_is_a_cluster(&mut world);
    let before = created(&marker::fixed(&config(&world.site)), Vec::new(), true);
    mark(&mut world, &before);
    let (steps, problems) = plan(&world, Some(&stick()));
    assert!(problems.is_empty());
    assert_eq!(strategy(&steps), Some(json!(1)));
    let all = made(&steps);
    let marker = all.last().unwrap();
    assert_eq!(marker["data"]["heal"], "replace");
    mark(&mut world, &(*marker).clone());
    assert_eq!(plan(&world, Some(&stick())), (vec![], vec![]));
    world.site = site("addons: []\ncluster: {}").into();
    let (steps, problems) = plan(&world, Some(&stick()));
    assert!(steps.is_empty());
    assert_eq!(
        problems[0].next,
        "`kubectl delete machinehealthcheck firstlight-heal` on the box ends it, or say `heal: replace` again"
    );
}
