//! Addons from the stick with nothing typed, each used as its users do; then an image, a chart
//! and packages that somebody pushes.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use firstlight_api::addon::AddonState;
use lab::wire::format_mac;
use lab::{Firmware, ServerSpec};
use qemu_tests::cluster::{Cluster, node_server, nodes_ready, switch_on};
use qemu_tests::pods::{Pod, SERVES, STAYS, find_image};
use qemu_tests::registry;
use qemu_tests::scene::Scene;
use qemu_tests::site::NAME;
use qemu_tests::store;
use serde_json::{Value, json};

/// How many the site names.
const OF_THE_STICK: usize = 7;
const GOODS: &str = "kept";
const PUSHED: (&str, &str) = ("apps/pushed", "1");
const PACKAGE: &str = "site-tool";
/// Of the second interface.
const SUBNET: &str = "10.99.7.";

pub fn tell(scene: &mut Scene<'_>) -> Result<()> {
    let servers = [
        node_server(1, Firmware::Uefi),
        node_server(2, Firmware::Bios),
    ];
    switch_on(scene, &servers)?;
    nodes_ready(scene, 1, |_| ())?;
    addons_ready(scene, OF_THE_STICK)?;
    let cluster = Cluster::connect(scene)?;
    metrics_are_served(scene, &cluster)?;
    a_pod_has_a_second_interface(scene, &cluster)?;
    a_pod_finds_a_feature(scene, &cluster)?;
    let shop = a_shop_keeps_its_goods(scene, &cluster)?;
    its_room_ends_where_its_claim_does(&cluster)?;
    who_comes_in_is_said_by_a_policy(scene, &cluster, &shop)?;
    the_shop_is_reached_by_name(scene, &cluster, &servers[0])?;
    what_people_push_is_used(scene, &cluster)?;
    packages_follow(scene, &cluster, &servers)?;
    scene.wait("the shop has its goods", Duration::from_mins(5), |scene| {
        Ok(visit(scene, &shop).ok().filter(|goods| goods == GOODS))
    })?;
    an_image_goes_when_nobody_runs_it(scene, &cluster)?;
    scene.nothing_leaked()
}

fn addons_ready(scene: &mut Scene<'_>, count: usize) -> Result<()> {
    let what = format!("{count} addons are Ready");
    scene.wait_status(&what, Duration::from_mins(5), |status| {
        let ready = status
            .addons
            .iter()
            .filter(|addon| addon.state == AddonState::Ready);
        (ready.count() == count).then_some(())
    })
}

fn metrics_are_served(scene: &mut Scene<'_>, cluster: &Cluster) -> Result<()> {
    let top = scene.wait("kubectl top nodes", Duration::from_mins(2), |_| {
        Ok(cluster.kubectl("top nodes --no-headers").ok())
    })?;
    ensure!(top.lines().count() == 2, "not both nodes are there: {top}");
    scene.tell(top);
    Ok(())
}

fn a_pod_has_a_second_interface(scene: &mut Scene<'_>, cluster: &Cluster) -> Result<()> {
    let network = json!({
        "cniVersion": "1.0.0", "type": "bridge", "bridge": "second0",
        "ipam": {"type": "host-local", "subnet": format!("{SUBNET}0/24")},
    });
    cluster.apply(&json!({
        "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
        "metadata": {"name": "second"}, "spec": {"config": network.to_string()},
    }))?;
    run_pod(
        scene,
        cluster,
        "connected",
        &json!({"metadata": {"annotations": {"k8s.v1.cni.cncf.io/networks": "second"}}}),
    )?;
    // Asked of the pod's own network, not of what Multus says of it.
    let said = cluster.kubectl("exec connected -- /usr/bin/ip -json address show dev net1")?;
    let said: Value = serde_json::from_str(&said).with_context(|| format!("ip said {said}"))?;
    let address = said[0]["addr_info"][0]["local"]
        .as_str()
        .context("net1 has no address")?;
    ensure!(
        address.starts_with(SUBNET),
        "net1 has {address}, which is not in {SUBNET}0/24"
    );
    scene.tell(format_args!("net1 has {address}"));
    Ok(())
}

fn a_pod_finds_a_feature(scene: &mut Scene<'_>, cluster: &Cluster) -> Result<()> {
    let label = "feature.node.kubernetes.io/system-os_release.ID";
    run_pod(
        scene,
        cluster,
        "chosen",
        &json!({"spec": {"nodeSelector": {label: "debian"}}}),
    )
}

fn image(cluster: &Cluster) -> Result<String> {
    let images =
        cluster.kubectl("get nodes -o jsonpath='{.items[0].status.images[*].names[*]}'")?;
    find_image(&images).map(str::to_owned)
}

/// A claim, a pod that serves what is in it, and an address of the site's for it, which is asked for from outside the cluster.
fn a_shop_keeps_its_goods(scene: &mut Scene<'_>, cluster: &Cluster) -> Result<String> {
    let claim = json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "64Mi"}}}});
    let shop = Pod {
        name: "shop",
        script: SERVES,
        claim: Some("goods"),
    };
    let deployment = json!({
        "selector": {"matchLabels": {"app": "shop"}},
        "template": {"metadata": {"labels": {"app": "shop"}}, "spec": shop.manifest(&image(cluster)?)["spec"]},
    });
    let service = json!({"spec": {"type": "LoadBalancer", "selector": {"app": "shop"}, "ports": [{"port": 80, "targetPort": 8080}]}});
    for (kind, version, name, body) in [
        ("PersistentVolumeClaim", "v1", "goods", claim),
        ("Deployment", "apps/v1", "shop", json!({"spec": deployment})),
        ("Service", "v1", "shop", service),
    ] {
        let mut object = body;
        object["apiVersion"] = json!(version);
        object["kind"] = json!(kind);
        object["metadata"] = json!({"name": name});
        cluster.apply(&object)?;
    }
    scene.wait("the shop is there", Duration::from_mins(5), |_| {
        Ok(cluster
            .kubectl("rollout status deployment/shop --timeout=1m")
            .ok())
    })?;
    cluster.kubectl(&format!(
        "exec deployment/shop -- /bin/sh -euc 'echo {GOODS} >/data/index.html; sync'"
    ))?;
    let address = "get service shop -o jsonpath='{.status.loadBalancer.ingress[0].ip}'";
    let address = scene.wait("the shop has an address", Duration::from_mins(4), |_| {
        Ok(Some(cluster.kubectl(address)?).filter(|address| !address.is_empty()))
    })?;
    scene.wait("the shop is open", Duration::from_mins(2), |scene| {
        Ok(visit(scene, &address).ok().filter(|goods| goods == GOODS))
    })?;
    scene.tell(format_args!("the shop is at {address}"));
    Ok(address)
}

/// By the quota of the node's file system; `df` says the same.
fn its_room_ends_where_its_claim_does(cluster: &Cluster) -> Result<()> {
    let fill = "dd if=/dev/zero of=/data/fill bs=1M count=80";
    let said = cluster.kubectl(&format!(
        "exec deployment/shop -- /bin/sh -euc 'df --output=size /data; {fill} 2>&1 || rm /data/fill'"
    ))?;
    ensure!(
        said.contains("65536") && said.contains("Disk quota exceeded"),
        "of 64 MiB 80 were taken: {said}"
    );
    Ok(())
}

/// The box is nobody in the cluster, and has no program for this.
fn visit(scene: &Scene<'_>, address: &str) -> Result<String> {
    let ask = r#"printf "GET / HTTP/1.0\r\n\r\n" >&3; tail -n 1 <&3"#;
    scene.box_ssh().run(&format!(
        "timeout 10 bash -euc 'exec 3<>/dev/tcp/{address}/80; {ask}'"
    ))
}

fn who_comes_in_is_said_by_a_policy(
    scene: &mut Scene<'_>,
    cluster: &Cluster,
    shop: &str,
) -> Result<()> {
    cluster.apply(&json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "closed"},
        "spec": {"podSelector": {"matchLabels": {"app": "shop"}}, "policyTypes": ["Ingress"]},
    }))?;
    scene.wait("the shop is closed", Duration::from_mins(2), |scene| {
        Ok(visit(scene, shop).is_err().then_some(()))
    })?;
    cluster.kubectl("delete networkpolicy closed")?;
    scene.wait("the shop is open again", Duration::from_mins(2), |scene| {
        Ok(visit(scene, shop).ok())
    })?;
    Ok(())
}

/// With TLS, by somebody who trusts the site's CA and no other.
fn the_shop_is_reached_by_name(
    scene: &mut Scene<'_>,
    cluster: &Cluster,
    server: &ServerSpec,
) -> Result<()> {
    let name = format!("shop.apps.{NAME}.internal");
    cluster.apply(&json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": {"name": "shop"},
        "spec": {
            "parentRefs": [{"name": "site", "namespace": "projectcontour"}],
            "hostnames": [name],
            "rules": [{"backendRefs": [{"name": "shop", "port": 80}]}],
        },
    }))?;
    let address = "get gateway site -n projectcontour -o jsonpath='{.status.addresses[0].value}'";
    let address = scene.wait("the gateway has an address", Duration::from_mins(4), |_| {
        Ok(Some(cluster.kubectl(address)?).filter(|address| !address.is_empty()))
    })?;
    let ssh = scene.host_ssh(&format_mac(server.mac()))?;
    let trust = "curl -sS --fail --max-time 10 --output ca.pem http://172.22.0.1/boot/ca.pem";
    let ask = format!(
        "curl -sS --fail --max-time 10 --cacert ca.pem --resolve {name}:443:{address} https://{name}/"
    );
    scene.wait(
        "the shop is reached by name",
        Duration::from_mins(4),
        |_| {
            let said = ssh.run(&format!("{trust} && {ask}")).ok();
            Ok(said.filter(|goods| goods == GOODS))
        },
    )?;
    Ok(())
}

/// A pod that stays; `more` is laid over it.
fn run_pod(scene: &mut Scene<'_>, cluster: &Cluster, name: &str, more: &Value) -> Result<()> {
    let mut pod = Pod {
        name,
        script: STAYS,
        claim: None,
    }
    .manifest(&image(cluster)?);
    for part in ["metadata", "spec"] {
        for (key, value) in more[part].as_object().into_iter().flatten() {
            pod[part][key] = value.clone();
        }
    }
    cluster.apply(&pod)?;
    scene.wait(&format!("pod {name} runs"), Duration::from_mins(3), |_| {
        let ready = format!("wait --for=condition=Ready pod/{name} --timeout=1m");
        Ok(cluster.kubectl(&ready).ok())
    })?;
    Ok(())
}

fn what_people_push_is_used(scene: &mut Scene<'_>, cluster: &Cluster) -> Result<()> {
    let folder = scene.lab.dir().join("pushed");
    let chart = folder.join("web");
    fs::create_dir_all(chart.join("templates"))?;
    let archive = folder.join("image.tar");
    registry::save(&scene.box_ssh(), "kubernetes/coredns", &archive)?;
    for (file, text) in [
        (
            "Chart.yaml",
            "apiVersion: v2\nname: web\nversion: 1.2.3\n".to_owned(),
        ),
        (
            "templates/greeting.yaml",
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "greeting"}, "data": {"text": "hello"}})
                .to_string(),
        ),
    ] {
        fs::write(chart.join(file), text)?;
    }
    let packed = folder.join("web-1.2.3.tgz");
    let tar = Command::new("tar")
        .arg("-czf")
        .arg(&packed)
        .arg("-C")
        .args([&folder, Path::new("web")])
        .status()
        .context("starting tar")?;
    ensure!(tar.success(), "tar: {tar}");

    let (name, tag) = PUSHED;
    store::push(scene, &archive, &["--name", name, "--version", tag])?;
    store::push(scene, &packed, &[])?;
    scene.tell("an image and a chart were pushed");
    cluster.run_web(scene, &format!("{name}:{tag}"), 2)?;

    let ssh = scene.box_ssh();
    ssh.run(&format!(
        "sudo kubectl apply -f - <<'EOF'\n{}\nEOF",
        json!({
            "apiVersion": "firstlight.internal/v1alpha1", "kind": "Addon",
            "metadata": {"name": "greeting", "namespace": "default"},
            "spec": {"cluster": NAME, "chart": {"name": "web", "version": "1.2.3"}},
        })
    ))?;
    addons_ready(scene, OF_THE_STICK + 1)?;
    let greeting = "get configmap greeting -o jsonpath='{.data.text}'";
    let text = cluster.kubectl(greeting)?;
    ensure!(text == "hello", "the chart's object says `{text}`");
    ssh.run("sudo kubectl delete addon greeting --wait=false")?;
    scene.wait_status("the Addon is gone", Duration::from_mins(3), |status| {
        (status.addons.len() == OF_THE_STICK).then_some(())
    })?;
    ensure!(
        cluster.kubectl(greeting).is_err(),
        "the object is there without its addon"
    );
    Ok(())
}

/// A package on both servers, then another version of it, which counts only after a restart: first one node is emptied and
/// restarts, then the other.
fn packages_follow(scene: &mut Scene<'_>, cluster: &Cluster, servers: &[ServerSpec]) -> Result<()> {
    let boots = cluster.boots()?;
    for (version, postinst, reboot) in [
        ("1.0", "true", "never"),
        (
            "1.1",
            "/usr/share/update-notifier/notify-reboot-required",
            "ifNeeded",
        ),
    ] {
        let package = make_package(scene, version, postinst)?;
        store::push(scene, &package, &[])?;
        let wish = json!({
            "apiVersion": "firstlight.internal/v1alpha1", "kind": "Software",
            "metadata": {"name": PACKAGE, "namespace": "default"},
            "spec": {"selector": {}, "packages": [{"name": PACKAGE, "version": version}], "reboot": reboot},
        });
        let ssh = scene.box_ssh();
        ssh.run(&format!("sudo kubectl apply -f - <<'EOF'\n{wish}\nEOF"))?;
        let what = format!("{PACKAGE} {version} is on both servers");
        scene.wait(&what, Duration::from_mins(20), |_| {
            let ready = format!(
                "sudo kubectl wait --for=condition=PackagesReady software/{PACKAGE} --timeout=1m"
            );
            Ok(ssh.run(&ready).ok())
        })?;
        for server in servers {
            // Asked of the server, not of the box.
            let have = scene
                .host_ssh(&format_mac(server.mac()))?
                .run(&format!("dpkg-query -W -f '${{Version}}' {PACKAGE}"))?;
            ensure!(
                have == version,
                "{} has {PACKAGE} {have}, not {version}",
                server.name()
            );
        }
        let same = cluster.boots()?.intersection(&boots).count();
        let restarted = boots.len() - same;
        let wanted = if reboot == "never" { 0 } else { boots.len() };
        ensure!(
            restarted == wanted,
            "{restarted} nodes restarted for {PACKAGE} {version}, not {wanted}"
        );
    }
    let cordoned = cluster.kubectl("get nodes --field-selector spec.unschedulable=true -o name")?;
    ensure!(cordoned.is_empty(), "still cordoned: {cordoned}");
    let (name, tag) = PUSHED;
    cluster
        .run_web(scene, &format!("{name}:{tag}"), 2)
        .map(drop)
}

fn make_package(scene: &Scene<'_>, version: &str, postinst: &str) -> Result<PathBuf> {
    let folder = scene.lab.dir().join(format!("{PACKAGE}-{version}"));
    let control = folder.join("DEBIAN");
    fs::create_dir_all(&control)?;
    fs::write(
        control.join("control"),
        format!(
            "Package: {PACKAGE}\nVersion: {version}\nArchitecture: all\nMaintainer: The site <site@example.org>\n\
             Description: made for a test\n"
        ),
    )?;
    let script = control.join("postinst");
    fs::write(&script, format!("#!/bin/sh\nset -e\n{postinst}\n"))?;
    fs::set_permissions(&script, Permissions::from_mode(0o755))?;
    let file = scene.lab.dir().join(format!("{PACKAGE}_{version}_all.deb"));
    let built = Command::new("dpkg-deb")
        .args(["--root-owner-group", "--build"])
        .args([&folder, &file])
        .output()
        .context("starting dpkg-deb")?;
    ensure!(built.status.success(), "dpkg-deb: {built:?}");
    Ok(file)
}

/// An image that a pod runs stays; without its pods it goes, and its layers with the next collection of garbage, which leaves
/// those of the stick.
fn an_image_goes_when_nobody_runs_it(scene: &mut Scene<'_>, cluster: &Cluster) -> Result<()> {
    let (name, tag) = PUSHED;
    let said = store::delete(scene, name)?;
    ensure!(said.starts_with("409"), "an image that runs: {said}");
    scene.tell(said);
    cluster.kubectl("delete deployment web")?;
    scene.wait("the image is deleted", Duration::from_mins(3), |scene| {
        Ok(store::delete(scene, name)?.starts_with("204").then_some(()))
    })?;
    let ssh = scene.box_ssh();
    ssh.run("sudo kubectl -n kube-system create job --from=cronjob/registry-garbage now")?;
    let done = "sudo kubectl -n kube-system wait --for=condition=Complete job/now --timeout=1m";
    scene.wait("garbage is collected", Duration::from_mins(3), |_| {
        Ok(ssh.run(done).ok())
    })?;
    let storage = "/var/lib/firstlight/registry/storage/docker/registry/v2";
    let tags = ssh.run(&format!(
        "sudo ls {storage}/repositories/{name}/_manifests/tags"
    ))?;
    ensure!(tags.is_empty(), "{name}:{tag} is there: {tags}");
    let hidden = ssh.run("sudo find /var/lib/firstlight/registry/pushed -type c")?;
    ensure!(hidden.is_empty(), "files of the stick are hidden: {hidden}");
    Ok(())
}
