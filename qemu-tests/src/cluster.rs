//! The workload cluster as its user sees it: `kubectl` with the kubeconfig that Cluster API wrote, run on the box.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use firstlight_api::status::{ClusterStatus, SiteStatus};
use lab::{DiskBus, Firmware, NODE_MEMORY_MIB, NicModel, ServerDisk, ServerSpec};
use serde_json::Value;

use crate::scene::Scene;
use crate::site::NAME;
use crate::ssh::Ssh;

const KUBECONFIG: &str = "/run/workload.kubeconfig";
const PORT: u16 = 8080;

/// A blank server with enough memory for a node. Its devices are those that cost an emulator least; the others have their own
/// stories.
pub fn node_server(number: u8, firmware: Firmware) -> ServerSpec {
    ServerSpec {
        memory_mib: NODE_MEMORY_MIB,
        nic: NicModel::Virtio,
        disks: vec![ServerDisk::blank(DiskBus::Virtio, 8)],
        ..ServerSpec::blank(number, firmware)
    }
}

/// Switches servers on beside a box that is ready; returns when that was.
pub fn switch_on(scene: &mut Scene<'_>, servers: &[ServerSpec]) -> Result<Instant> {
    scene.ready_box()?;
    let power_on = Instant::now();
    for server in servers {
        scene.switch_server_on(server)?;
    }
    Ok(power_on)
}

/// A control plane and a worker, both Ready.
pub fn two_nodes(scene: &mut Scene<'_>) -> Result<()> {
    let servers = [
        node_server(1, Firmware::Uefi),
        node_server(2, Firmware::Bios),
    ];
    scene.begin_from("two nodes are Ready", &servers, |scene| {
        switch_on(scene, &servers)?;
        nodes_ready(scene, 1, |_| ()).map(drop)
    })?;
    // Those that went on from a snapshot may look dead to each other for a moment.
    nodes_ready(scene, 1, |_| ()).map(drop)
}

/// Waits until one control plane and so many workers are Ready, and no other is wanted; `look` sees what happens until then.
pub fn nodes_ready(
    scene: &mut Scene<'_>,
    workers: u32,
    look: impl Fn(&SiteStatus),
) -> Result<ClusterStatus> {
    let what = format!("a control plane and {workers} workers are Ready");
    scene.wait_status(&what, Duration::from_mins(12), |status| {
        look(status);
        let cluster = status.clusters.first()?;
        let ready = cluster.control_planes_ready == 1
            && cluster.workers_ready == workers
            && cluster.workers_wanted == workers;
        ready.then(|| cluster.clone())
    })
}

pub struct Cluster {
    ssh: Ssh,
}

impl Cluster {
    pub fn connect(scene: &Scene<'_>) -> Result<Self> {
        let ssh = scene.box_ssh();
        ssh.run(&format!(
            "sudo sh -c \"umask 077; kubectl get secret {NAME}-kubeconfig -o jsonpath='{{.data.value}}' | base64 -d >{KUBECONFIG}\""
        ))?;
        Ok(Self { ssh })
    }

    pub fn kubectl(&self, arguments: &str) -> Result<String> {
        self.ssh.run(&format!(
            "sudo kubectl --kubeconfig {KUBECONFIG} {arguments}"
        ))
    }

    /// The certificate of its authority, in PEM.
    pub fn authority(&self) -> Result<String> {
        self.kubectl("config view --raw -o jsonpath='{.clusters[0].cluster.certificate-authority-data}' | base64 -d")
    }

    pub fn apply(&self, object: &Value) -> Result<()> {
        self.kubectl(&format!("apply -f - <<'EOF'\n{object}\nEOF"))
            .map(drop)
    }

    /// UIDs of its nodes: a node that was installed again has another one.
    pub fn node_ids(&self) -> Result<BTreeSet<String>> {
        self.of_nodes("metadata.uid")
    }

    /// One for each start of a node's operating system.
    pub fn boots(&self) -> Result<BTreeSet<String>> {
        self.of_nodes("status.nodeInfo.bootID")
    }

    /// By which its nodes are known to each other.
    pub fn addresses(&self) -> Result<BTreeSet<String>> {
        self.of_nodes("status.addresses[?(@.type==\"InternalIP\")].address")
    }

    fn of_nodes(&self, field: &str) -> Result<BTreeSet<String>> {
        let values = self.kubectl(&format!("get nodes -o jsonpath='{{.items[*].{field}}}'"))?;
        Ok(values.split_whitespace().map(str::to_owned).collect())
    }

    /// MAC of the server that has the endpoint's address, as the box sees it.
    pub fn endpoint_holder(&self, scene: &Scene<'_>) -> Result<String> {
        let cluster = scene.status().clusters.first().context("no cluster")?;
        let (address, _port) = cluster.endpoint.split_once(':').context("no endpoint")?;
        let neighbour = self.ssh.run(&format!("ip neigh show {address}"))?;
        let mut words = neighbour.split_whitespace();
        words
            .find(|word| *word == "lladdr")
            .and_then(|_| words.next())
            .map(str::to_owned)
            .with_context(|| format!("who has {address}? `{neighbour}`"))
    }

    /// A web server on each node, from the box's registry; every one of them reaches all of them, by the name of the service and
    /// by address, of each family of IP that they have. The image has no shell: its client is the node's `curl`, in the pod's network.
    /// Returns those addresses.
    ///
    /// Each call is one that waits by itself: a login and a `kubectl` a second would keep an emulated box busy.
    pub fn run_web(&self, scene: &mut Scene<'_>, image: &str, count: usize) -> Result<Vec<IpAddr>> {
        let manifest = web(image, count);
        self.kubectl(&format!("apply -f - <<'EOF'\n{manifest}EOF"))?;
        scene.wait("the Deployment is there", Duration::from_mins(4), |_| {
            let rollout = self.kubectl("rollout status deployment/web --timeout=1m");
            Ok(rollout.ok())
        })?;
        let pods = self.kubectl(
            "get pods -l app=web --field-selector status.phase=Running -o \
             jsonpath='{range .items[*]}{.metadata.name} {.spec.nodeName} {.status.containerStatuses[0].ready} {.status.podIPs[*].ip}{\"\\n\"}{end}'",
        )?;
        let pods: Vec<Pod> = pods.lines().filter_map(Pod::ready).collect();
        let nodes: BTreeSet<_> = pods.iter().map(|pod| &pod.node).collect();
        ensure!(
            pods.len() == count && nodes.len() == count,
            "not one pod of the Deployment on each of {count} nodes: {pods:?}"
        );
        let mut targets = vec!["web.default.svc.cluster.local".to_owned(), "web".to_owned()];
        let service = self.kubectl("get service web -o jsonpath='{.spec.clusterIPs[*]}'")?;
        let service = service.split(' ').map(str::parse);
        let mut addresses = service.collect::<Result<Vec<IpAddr>, _>>()?;
        addresses.extend(pods.iter().flat_map(|pod| &pod.addresses));
        targets.extend(addresses.iter().map(|address| match address {
            IpAddr::V4(address) => address.to_string(),
            IpAddr::V6(address) => format!("[{address}]"),
        }));
        let urls: Vec<String> = targets
            .iter()
            .map(|target| format!("http://{target}:{PORT}/health"))
            .collect();
        let quoted: Vec<String> = urls.iter().map(|url| format!("'{url}'")).collect();
        for pod in &pods {
            let what = format!("{} reaches {}", pod.name, targets.join(", "));
            let said = scene.wait(&what, Duration::from_mins(1), |_| {
                let said = self.kubectl(&format!(
                    "exec {} -- /usr/bin/curl --silent --fail --globoff --max-time 30 {}",
                    pod.name,
                    quoted.join(" ")
                ));
                Ok(said.ok())
            })?;
            ensure!(
                said == "OK".repeat(urls.len()),
                "{urls:?} said `{said}` to {}",
                pod.name
            );
        }
        Ok(addresses)
    }
}

#[derive(Debug)]
struct Pod {
    name: String,
    node: String,
    addresses: Vec<IpAddr>,
}

impl Pod {
    fn ready(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split(' ').collect();
        let [name, node, "true", addresses @ ..] = words.as_slice() else {
            return None;
        };
        Some(Self {
            name: (*name).to_owned(),
            node: (*node).to_owned(),
            addresses: addresses.iter().flat_map(|it| it.parse()).collect(),
        })
    }
}

fn web(image: &str, count: usize) -> String {
    format!(
        "apiVersion: v1
kind: ConfigMap
metadata: {{name: web}}
data:
  Corefile: |
    .:1053 {{
        health :{PORT} {{
            lameduck 1s
        }}
    }}
---
apiVersion: v1
kind: Service
metadata: {{name: web}}
spec:
  ipFamilyPolicy: PreferDualStack
  selector: {{app: web}}
  ports: [{{port: {PORT}}}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {{name: web}}
spec:
  replicas: {count}
  selector: {{matchLabels: {{app: web}}}}
  strategy: {{rollingUpdate: {{maxSurge: 0, maxUnavailable: 1}}}}
  template:
    metadata: {{labels: {{app: web}}}}
    spec:
      # Not all taints: a pod that bears a cordoned node comes back to it while it is drained.
      tolerations: [{{key: node-role.kubernetes.io/control-plane, operator: Exists}}]
      affinity:
        podAntiAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
          - labelSelector: {{matchLabels: {{app: web}}}}
            topologyKey: kubernetes.io/hostname
      terminationGracePeriodSeconds: 5
      containers:
      - name: web
        image: registry.firstlight.internal/{image}
        args: [-conf, /etc/web/Corefile]
        readinessProbe: {{httpGet: {{path: /health, port: {PORT}}}}}
        volumeMounts:
        - {{name: config, mountPath: /etc/web}}
        - {{name: usr, mountPath: /usr, readOnly: true}}
        - {{name: lib, mountPath: /lib, readOnly: true}}
        - {{name: lib64, mountPath: /lib64, readOnly: true}}
      volumes:
      - {{name: config, configMap: {{name: web}}}}
      - {{name: usr, hostPath: {{path: /usr}}}}
      - {{name: lib, hostPath: {{path: /usr/lib}}}}
      - {{name: lib64, hostPath: {{path: /usr/lib64}}}}
"
    )
}
