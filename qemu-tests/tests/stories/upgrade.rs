//! A running cluster goes to the next minor version of Kubernetes, which somebody pushes to the box, while somebody outside asks a service of it
//! twice a second.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use imagebuilder::build::build_for_push;
use imagebuilder::build::cache::Reuse;
use imagebuilder::build::progress::Progress;
use imagebuilder::build::settings::{Settings, find_cache, find_source};
use qemu_tests::cluster::{Cluster, two_nodes};
use qemu_tests::pods::{find_image, steady_web};
use qemu_tests::scene::Scene;
use qemu_tests::site::NAME;
use qemu_tests::ssh::Ssh;
use qemu_tests::store;
use qemu_tests::typed::Desk;
use serde_json::json;

const MINOR: &str = "1.37";
/// Of the requests, in vain.
const MOST_LOST: f64 = 0.01;
const VISITS: &str = "/tmp/visits";

pub fn tell(scene: &mut Scene<'_>) -> Result<()> {
    two_nodes(scene)?;
    let cluster = Cluster::connect(scene)?;
    let nodes = cluster.node_ids()?;
    let address = serve(scene, &cluster)?;
    let version = push(scene)?;
    let desk = Desk::new(scene)?;
    let plan = desk.types(&["upgrade", NAME, &version, "--plan"])?;
    scene.tell(plan);
    let visitor = Visitor::begin(scene.box_ssh(), &address)?;
    scene.tell(desk.types(&["upgrade", NAME, &version])?);
    let (all, lost) = visitor.end()?;
    scene.tell(format_args!("{lost} of {all} requests were lost"));
    #[allow(clippy::cast_precision_loss, reason = "some thousands")]
    let share = lost as f64 / all as f64;
    ensure!(share <= MOST_LOST, "{lost} of {all} requests were lost");
    ensure!(
        cluster.node_ids()? == nodes,
        "nodes were made anew: {nodes:?}"
    );
    let kubelets =
        cluster.kubectl("get nodes -o jsonpath='{.items[*].status.nodeInfo.kubeletVersion}'")?;
    ensure!(
        kubelets.split(' ').all(|kubelet| kubelet == version),
        "kubelets are {kubelets}"
    );
    let machines = scene
        .box_ssh()
        .run("sudo kubectl get machines -o jsonpath='{.items[*].spec.version}'")?;
    ensure!(
        machines.split(' ').all(|machine| machine == version),
        "Cluster API knows of {machines}"
    );
    scene.nothing_leaked()
}

/// Two pods behind an address of the site's.
fn serve(scene: &mut Scene<'_>, cluster: &Cluster) -> Result<String> {
    // This site has none of them by itself, so that its nodes are Ready soon.
    scene.box_ssh().run(&format!(
        "sudo kubectl apply -f - <<'EOF'\n{}\nEOF",
        json!({
            "apiVersion": "firstlight.internal/v1alpha1", "kind": "Addon",
            "metadata": {"name": "loadbalancer", "namespace": "default"},
            "spec": {"cluster": NAME, "builtin": "loadbalancer", "values": {"addresses": ["172.22.0.80-172.22.0.95"]}},
        })
    ))?;
    let images =
        cluster.kubectl("get nodes -o jsonpath='{.items[0].status.images[*].names[*]}'")?;
    for object in steady_web(find_image(&images)?) {
        cluster.apply(&object)?;
    }
    let address = "get service web -o jsonpath='{.status.loadBalancer.ingress[0].ip}'";
    let address = scene.wait(
        "the service has an address",
        Duration::from_mins(20),
        |_| Ok(Some(cluster.kubectl(address)?).filter(|address| !address.is_empty())),
    )?;
    scene.wait("it is there twice", Duration::from_mins(5), |_| {
        Ok(cluster
            .kubectl("rollout status deployment/web --timeout=1m")
            .ok())
    })?;
    Ok(address)
}

/// The version that the box has then.
fn push(scene: &Scene<'_>) -> Result<String> {
    let folder = scene.lab.dir().join("kubernetes");
    let settings = Settings {
        source: find_source()?,
        cache: find_cache()?,
        output: folder.clone(),
        mirror: None,
        site: None,
        kubernetes: vec![MINOR.to_owned()],
        sign: None,
        trust: None,
        debian: Reuse::Cached,
    };
    build_for_push(&settings, &folder, Progress::detect())?;
    let version = version(&folder)?;
    store::push(scene, &folder, &[])?;
    scene.tell(format_args!("{version} was pushed"));
    Ok(version)
}

/// As the archive of its images is called.
fn version(folder: &Path) -> Result<String> {
    let names = folder.read_dir()?.flatten().map(|entry| entry.file_name());
    let found = names.into_iter().find_map(|name| {
        let version = name.to_str()?.strip_prefix("kubernetes-")?;
        Some(version.strip_suffix(".tar")?.to_owned())
    });
    found.context("no archive of images")
}

/// On the box, which is nobody in the cluster.
struct Visitor {
    ssh: Ssh,
}

impl Visitor {
    fn begin(ssh: Ssh, address: &str) -> Result<Self> {
        let ask = format!(
            "exec 3<>/dev/tcp/{address}/80; printf \"GET / HTTP/1.0\\r\\n\\r\\n\" >&3; read -r line <&3; [[ $line == *200* ]]"
        );
        ssh.run(&format!(
            "cat >{VISITS}.sh <<'EOF'\nwhile :; do if timeout 3 bash -c '{ask}'; then echo served; else echo lost; fi; sleep 0.5; done >{VISITS} 2>{VISITS}.errors\nEOF\n\
             sudo systemd-run --quiet --unit=visitor bash {VISITS}.sh"
        ))?;
        Ok(Self { ssh })
    }

    /// How often they asked, and how often in vain.
    fn end(self) -> Result<(u64, u64)> {
        let count = format!(
            "sudo systemctl stop visitor; grep -c . {VISITS}; grep -c lost {VISITS} || true"
        );
        let said = self.ssh.run(&count)?;
        let mut counts = said.lines().map(str::parse);
        let mut next = || counts.next().context("a count")?.context("a count");
        Ok((next()?, next()?))
    }
}
