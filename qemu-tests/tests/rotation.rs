//! A cluster gets other certificate authorities, with the orders that the box gives and what it does to the cluster's objects, while somebody
//! outside asks. Without a virtual machine: `scripts/test-rotation`.

use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use firstlight_agent::pki::{self, AuthorityName};
use firstlight_agent::workload;
use firstlight_agent::workload::authorities::{published, renew_pods, settles_in, tell_newcomers};
use firstlight_api::authorities::{
    AuthoritiesOrder, AuthoritiesStep as Step, Authority, PrivateKey, with_data,
};
use firstlight_api::packages::Order;
use imagebuilder::build::nodes::Nodes;
use qemu_tests::figures;
use qemu_tests::nodes::{ApiVisitor, Cluster, isolated, longest_silence, make_parts, timed, wait};
use qemu_tests::pods::{Pod, STAYS, Visitor, find_image};
use tokio::runtime::Runtime;

const PKI: &str = "/etc/kubernetes/pki";
/// Files of a control plane, and the name of ours.
const AUTHORITIES: [(&str, AuthorityName); 3] = [
    ("ca", AuthorityName::Kube),
    ("etcd/ca", AuthorityName::Etcd),
    ("front-proxy-ca", AuthorityName::FrontProxy),
];
const EMBEDDED: &str = "certificate-authority-data";
const LIMIT: Duration = Duration::from_mins(5);

fn main() -> ExitCode {
    let told = match std::env::args().nth(1).as_deref() {
        Some("three") => isolated(|| make_parts(&[]), three),
        _ => isolated(|| make_parts(&[]), two),
    };
    match told {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rotation: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// A control plane and a worker, with a service that goes on.
fn two(parts: &Nodes, place: &Path) -> Result<()> {
    let mut cluster = Cluster::start(parts, None, place, 2)?;
    let address = cluster.serve_web(parts, place)?;
    cluster.kubectl("create configmap before --from-literal=kept=yes")?;
    let visitor = Visitor::begin(format!("http://{address}/"));
    let rotation = Rotation::begin(&mut cluster, &[("node-1", true), ("node-2", false)])?;
    rotation.go(&mut cluster, place)?;
    let (all, lost) = visitor.end();
    eprintln!("{lost} of {all} requests were lost");
    figures::ROTATION_LOST.record_thousandths(lost, all)?;
    ensure!(lost * 100 <= all, "{lost} of {all} requests were lost");
    rotation.is_over(&mut cluster, place)
}

/// Three control planes, whose API goes on.
fn three(parts: &Nodes, place: &Path) -> Result<()> {
    let mut cluster = Cluster::start_three(parts, place)?;
    cluster.kubectl("create configmap before --from-literal=kept=yes")?;
    cluster.kubectl("-n kube-system rollout status deployment/coredns --timeout=3m")?;
    let visitor = ApiVisitor::begin(&cluster, place)?;
    let nodes = [("node-1", true), ("node-2", true), ("node-3", true)];
    let rotation = Rotation::begin(&mut cluster, &nodes)?;
    rotation.go(&mut cluster, place)?;
    let silence = longest_silence(&visitor.end()).context("nobody asked")?;
    eprintln!("{:.2} s without an answer at most", silence.as_secs_f64());
    figures::ROTATION_SILENCE.record_time(silence)?;
    rotation.is_over(&mut cluster, place)
}

struct Rotation {
    nodes: Vec<(String, bool)>,
    old: Vec<String>,
    new: Vec<pki::Authority>,
    /// As a person had it before.
    kubeconfig: String,
    runtime: Runtime,
}

impl Rotation {
    fn begin(cluster: &mut Cluster, nodes: &[(&str, bool)]) -> Result<Self> {
        let mut old = Vec::new();
        let mut new = Vec::new();
        for (file, name) in AUTHORITIES {
            let read = cluster.on_node("node-1", &format!("cat {PKI}/{file}.crt"))?;
            old.push(format!("{}\n", read.trim()));
            new.push(pki::Authority::make(name, 0)?);
        }
        Ok(Self {
            nodes: nodes
                .iter()
                .map(|(name, is)| ((*name).to_owned(), *is))
                .collect(),
            old,
            new,
            kubeconfig: fs::read_to_string(cluster.kubeconfig())?,
            runtime: Runtime::new()?,
        })
    }

    fn rotation(&self) -> &str {
        &self.new[0].fingerprint[..16]
    }

    /// As the box gives it.
    fn order(&self, step: Step, node: &str, is_control_plane: bool) -> AuthoritiesOrder {
        let of = |place: usize| {
            let (old, new) = (&self.old[place], &self.new[place]);
            let certificates = match step {
                Step::Trust => format!("{old}{}", new.certificate),
                Step::Issue => format!("{}{old}", new.certificate),
                Step::Kubelet | Step::Forget => new.certificate.clone(),
            };
            let key = (step == Step::Issue).then(|| PrivateKey::new(new.key_pem()));
            Authority { certificates, key }
        };
        AuthoritiesOrder {
            step,
            rotation: self.rotation().to_owned(),
            node: node.to_owned(),
            hands_over: self.nodes.iter().filter(|(_, is)| *is).count() > 1
                && step != Step::Kubelet,
            cluster: of(0),
            etcd: is_control_plane.then(|| of(1)),
            front_proxy: is_control_plane.then(|| of(2)),
        }
    }

    fn go(&self, cluster: &mut Cluster, place: &Path) -> Result<()> {
        for step in Step::ALL {
            match step {
                Step::Issue => self.all_believe_both(cluster, place)?,
                Step::Forget => self.people_have_new(cluster, place)?,
                Step::Trust | Step::Kubelet => {}
            }
            for (node, is_control_plane) in &self.nodes {
                if step == Step::Issue && !is_control_plane {
                    continue;
                }
                let order = self.order(step, node, *is_control_plane);
                let order = serde_json::to_value(Order::Authorities(order))?;
                timed(&format!("{node}: {}", step.as_str()), || {
                    cluster.order(node, &order)
                })?;
                // Nothing is done twice.
                cluster.order(node, &order)?;
                let ready = format!("wait --for=condition=Ready node/{node} --timeout=2m");
                wait("the node is Ready", LIMIT, || cluster.kubectl(&ready))?;
            }
        }
        let client = self.client(cluster)?;
        self.runtime
            .block_on(tell_newcomers(&client, &self.new[0].certificate))
    }

    fn client(&self, cluster: &Cluster) -> Result<kube::Client> {
        let kubeconfig = fs::read_to_string(cluster.kubeconfig())?;
        self.runtime.block_on(workload::client(&kubeconfig))
    }

    fn all_believe_both(&self, cluster: &Cluster, place: &Path) -> Result<()> {
        let both = format!("{}{}", self.old[0], self.new[0].certificate);
        let kubeconfig = with_data(&self.kubeconfig, EMBEDDED, &both).context("no authority")?;
        fs::write(cluster.kubeconfig(), kubeconfig)?;
        fs::write(place.join("ca.crt"), &both)?;
        let client = self.client(cluster)?;
        self.runtime.block_on(tell_newcomers(&client, &both))?;
        let published = wait("all namespaces have both", LIMIT, || {
            let found = self.runtime.block_on(published(&client, &both))?;
            found.map_err(|namespace| anyhow::anyhow!("{namespace} has not"))
        })?;
        ensure!(published.len() > 3, "{published:?}");
        std::thread::sleep(settles_in(&published));
        wait("all pods believe both", LIMIT, || {
            let renewed = renew_pods(&client, &published, self.rotation());
            match self.runtime.block_on(renewed)? {
                left if left.is_empty() => Ok(()),
                left => bail!("{}", left.join(" ")),
            }
        })
    }

    fn people_have_new(&self, cluster: &mut Cluster, place: &Path) -> Result<()> {
        let new = cluster.on_node("node-1", "cat /etc/kubernetes/admin.conf")?;
        let alone = with_data(&new, EMBEDDED, &self.new[0].certificate).context("no authority")?;
        fs::write(cluster.kubeconfig(), alone)?;
        // Whoever asks as before has the other file for a moment.
        for (field, file) in [
            ("client-certificate", "client.crt"),
            ("client-key", "client.key"),
        ] {
            cluster.shell(&format!(
                "kubectl config view --raw -o 'jsonpath={{.users[0].user.{field}-data}}' | base64 -d >\"$HOME/{file}\""
            ))?;
        }
        fs::write(place.join("ca.crt"), &self.new[0].certificate)?;
        Ok(())
    }

    /// Nothing of the old ones is left, nobody is let in by them, and the cluster works.
    fn is_over(&self, cluster: &mut Cluster, place: &Path) -> Result<()> {
        ensure!(
            cluster.kubectl("get configmap before -o jsonpath={.data.kept}")? == "yes",
            "etcd has lost what was in it"
        );
        let marker = self.old[0].lines().nth(2).context("a short certificate")?;
        for (node, _) in self.nodes.clone() {
            let found = cluster.on_node(
                &node,
                &format!("grep -rlF '{marker}' /etc/kubernetes /var/lib/kubelet/pki || true"),
            )?;
            ensure!(found.is_empty(), "{node} has the old authority in {found}");
            let left = "ls /etc/kubernetes/pki/signing/* /etc/kubernetes/bootstrap-kubelet.conf /var/lib/kubelet/pki/kubelet-client-before.pem 2>/dev/null || true";
            let left = cluster.on_node(&node, left)?;
            ensure!(left.trim().is_empty(), "{node} has {left}");
        }
        // The server is who the old file expects no more, and its person nobody.
        let before = place.join("before");
        for (believes, why) in [
            (
                self.old[0].as_str(),
                "certificate signed by unknown authority",
            ),
            (&self.new[0].certificate, "Unauthorized"),
        ] {
            let old = with_data(&self.kubeconfig, EMBEDDED, believes).context("no authority")?;
            fs::write(&before, old)?;
            let ask = format!(
                "kubectl --kubeconfig {} get nodes 2>&1 && exit 1; true",
                before.display()
            );
            let said = cluster.shell(&ask)?;
            ensure!(
                said.contains(why) || said.contains("must be logged in"),
                "{said}"
            );
        }
        let told = cluster.kubectl("-n kube-public get configmap cluster-info -o yaml")?;
        ensure!(!told.contains(marker), "{told}");
        cluster.kubectl("create deployment after --image none --replicas 1")?;
        wait("a controller works", LIMIT, || {
            let pods = cluster.kubectl("get pods -l app=after -o name")?;
            ensure!(!pods.is_empty(), "no pod");
            Ok(())
        })?;
        let images =
            cluster.kubectl("get nodes -o jsonpath={.items[0].status.images[*].names[*]}")?;
        let pod = Pod {
            name: "later",
            script: STAYS,
            claim: None,
        };
        cluster.apply(&pod.manifest(find_image(&images)?).to_string())?;
        cluster.kubectl("wait --for=condition=Ready pod/later --timeout=3m")?;
        wait("all that runs is well", LIMIT, || {
            let pods = "-n kube-system wait --for=condition=Ready pods --all --timeout=1s";
            cluster.kubectl(pods)?;
            // By the front proxy's certificate, and by those of kubelets.
            cluster.kubectl("-n kube-system logs --tail=1 daemonset/kube-proxy")
        })?;
        Ok(())
    }
}
