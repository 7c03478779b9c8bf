//! The workload cluster as its user sees it: `kubectl` with the kubeconfig that Cluster API wrote, run on the box.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::scene::Scene;
use crate::site::NAME;
use crate::ssh::Ssh;

const KUBECONFIG: &str = "/run/workload.kubeconfig";
const PORT: u16 = 8080;

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

    /// UIDs of its nodes: a node that was installed again has another one.
    pub fn node_ids(&self) -> Result<BTreeSet<String>> {
        let ids = self.kubectl("get nodes -o jsonpath='{.items[*].metadata.uid}'")?;
        Ok(ids.split_whitespace().map(str::to_owned).collect())
    }

    /// A web server on each node, from the box's registry; every one of them reaches all of them, by the name of the service and
    /// by address. The image has no shell: its client is the node's `curl`, in the pod's network.
    pub fn run_web(&self, scene: &mut Scene<'_>, image: &str, count: usize) -> Result<()> {
        let manifest = web(image, count);
        self.kubectl(&format!("apply -f - <<'EOF'\n{manifest}EOF"))?;
        let pods = scene.wait(
            "a pod of the Deployment runs on each node",
            Duration::from_mins(4),
            |_| {
                let line = self.kubectl(
                    "get pods -l app=web --field-selector status.phase=Running -o \
                     jsonpath='{range .items[*]}{.metadata.name} {.status.podIP} {.spec.nodeName} {.status.containerStatuses[0].ready}{\"\\n\"}{end}'",
                )?;
                let pods: Vec<Pod> = line.lines().filter_map(Pod::ready).collect();
                let nodes: BTreeSet<_> = pods.iter().map(|pod| &pod.node).collect();
                Ok((pods.len() == count && nodes.len() == count).then_some(pods))
            },
        )?;
        for pod in &pods {
            let mut targets = vec![
                format!("web.default.svc.cluster.local:{PORT}"),
                format!("web:{PORT}"),
            ];
            targets.extend(pods.iter().map(|other| format!("{}:{PORT}", other.address)));
            for target in targets {
                let said = scene.wait(
                    &format!("{} reaches {target}", pod.name),
                    Duration::from_mins(1),
                    |_| {
                        let curl = format!(
                            "exec {} -- /usr/bin/curl --silent --max-time 30 http://{target}/health",
                            pod.name
                        );
                        Ok(self.kubectl(&curl).ok())
                    },
                )?;
                ensure!(said == "OK", "{target} said `{said}` to {}", pod.name);
            }
        }
        Ok(())
    }
}

struct Pod {
    name: String,
    address: String,
    node: String,
}

impl Pod {
    fn ready(line: &str) -> Option<Self> {
        let [name, address, node, "true"] = line.split(' ').collect::<Vec<_>>()[..] else {
            return None;
        };
        Some(Self {
            name: name.to_owned(),
            address: address.to_owned(),
            node: node.to_owned(),
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
      tolerations: [{{operator: Exists}}]
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
