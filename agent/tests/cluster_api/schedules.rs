//! Seeded schedules of machines and hosts against a real API server: people and Cluster API make and delete machines, servers come,
//! die and come back, while the agent's controllers lose their power between any two writes, or lose an answer. No host ever has two
//! machines, no machine two hosts, and in the end everything is where it belongs.
//!
//! `FIRSTLIGHT_SEED=7` plays the batch that begins with seed 7 alone.

use std::{
    collections::BTreeMap,
    fs,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use faults::Random;
use firstlight_agent::{provider, status};
use firstlight_api::site::parse_site;
use futures_util::{StreamExt as _, future::join_all};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams},
    client::Body,
    runtime::watcher,
};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    condition, find_condition, is_free,
    objects::Objects,
    programs::program,
    site::{documents, kubeconfig, kubernetes_alone, stick},
    text,
};

const SCHEDULES: u64 = 260;
/// Schedules that share the lives of one agent, each in a namespace of its own.
const BATCH: usize = 26;
/// Of two hundred writes: those whose answer is lost, those which never arrive, and those which arrive when nobody waits for
/// them any more.
const LOST: u64 = 4;
const LATEST: Duration = Duration::from_secs(3);

pub async fn machines_and_hosts_find_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let (paths, _daemons, objects) = kubernetes_alone(dir.path()).await;
    for mut definition in documents(&program("cluster-api.yaml")) {
        if definition["kind"] == "CustomResourceDefinition" {
            // There are no managers, who would convert.
            definition["spec"]["conversion"] = json!({"strategy": "None"});
            objects.apply(&definition).await;
        }
    }
    let kubeconfig = fs::read_to_string(kubeconfig(&paths)).unwrap();
    let only: Option<u64> = std::env::var("FIRSTLIGHT_SEED")
        .ok()
        .map(|seed| seed.parse().unwrap());
    let batches = only.map_or_else(
        || (0..SCHEDULES).step_by(BATCH).collect(),
        |seed| vec![seed],
    );
    for first in batches {
        play_batch(&objects, &kubeconfig, first).await;
    }
}

async fn play_batch(objects: &Objects, kubeconfig: &str, first: u64) {
    let stop = CancellationToken::new();
    let quiet = CancellationToken::new();
    let lives = tokio::spawn(stop.clone().run_until_cancelled_owned(lives(
        kubeconfig.to_owned(),
        first,
        quiet.clone(),
    )));
    let dead = Dead::default();
    let servers = tokio::spawn(
        stop.clone()
            .run_until_cancelled_owned(servers(objects.clone(), dead.clone())),
    );
    let checked = tokio::spawn(
        stop.clone()
            .run_until_cancelled_owned(check_always(objects.client.clone(), first)),
    );
    let schedules = (first..)
        .take(BATCH)
        .map(|seed| async move { Schedule::begin(objects, seed).await });
    let mut schedules = join_all(schedules).await;
    join_all(schedules.iter_mut().map(|one| one.play(&dead))).await;
    quiet.cancel();
    join_all(schedules.iter_mut().map(Schedule::settle)).await;
    join_all(schedules.iter_mut().map(Schedule::end)).await;
    stop.cancel();
    for task in [lives, servers, checked] {
        task.await.unwrap();
    }
    eprintln!("{BATCH} schedules from seed {first}: passed");
}

/// Namespace and name of servers that do nothing for now.
type Dead = Arc<Mutex<Vec<(String, String)>>>;

/// One agent after the other: each has its power cut before or after one of its writes, until `quiet`.
async fn lives(kubeconfig: String, seed: u64, quiet: CancellationToken) {
    let site = Arc::new(parse_site("name: lab\ncluster: none\n").unwrap());
    let (sender, _reader, owner) = status::channel("test");
    tokio::spawn(status::own(owner, CancellationToken::new()));
    let mut random = Random::new(seed);
    loop {
        let stick = watch::Sender::new(Some(Arc::new(stick()))).subscribe();
        let client = Objects::of(&kubeconfig).await.client;
        let line = Arc::new(Line::new(&mut random));
        let faulty = if quiet.is_cancelled() {
            client
        } else {
            line.clone().between(client)
        };
        let agent = provider::reconcile(faulty, site.clone(), stick, sender.clone());
        let mut agent = std::pin::pin!(agent);
        let mut told = quiet.is_cancelled();
        loop {
            tokio::select! {
                ended = &mut agent => ended.unwrap(),
                () = line.cut.cancelled() => break,
                // The last cut is at its next write, too.
                () = quiet.cancelled(), if !told => {
                    told = true;
                    line.left.store(1, Ordering::Relaxed);
                }
            }
        }
    }
}

/// Between the agent and its API server.
struct Line {
    random: Mutex<Random>,
    /// Writes until the power is cut.
    left: AtomicU64,
    last: Last,
    cut: CancellationToken,
}

impl Line {
    fn new(random: &mut Random) -> Self {
        Self {
            left: AtomicU64::new(1 + random.below(60)),
            last: [Last::IsLost, Last::Arrives, Last::IsLate]
                [usize::try_from(random.below(3)).unwrap()],
            random: Mutex::new(Random::new(random.number())),
            cut: CancellationToken::new(),
        }
    }

    fn between(self: Arc<Self>, client: Client) -> Client {
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let (line, client) = (self.clone(), client.clone());
            async move { line.send(client, request).await }
        });
        Client::new(service, "default")
    }

    /// Nobody waits for the answer.
    fn send_late(&self, client: Client, request: http::Request<Body>) {
        let most = u64::try_from(LATEST.as_millis()).unwrap();
        let late = Duration::from_millis(self.random.lock().unwrap().below(most));
        tokio::spawn(async move {
            tokio::time::sleep(late).await;
            client.send(request).await
        });
    }

    async fn send(
        &self,
        client: Client,
        request: http::Request<Body>,
    ) -> Result<http::Response<Body>, tower::BoxError> {
        if request.method() == http::Method::GET {
            return Ok(client.send(request).await?);
        }
        if self.cut.is_cancelled() || self.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            let last = (!self.cut.is_cancelled()).then_some(self.last);
            match last {
                Some(Last::Arrives) => drop(client.send(request).await?),
                Some(Last::IsLate) => self.send_late(client, request),
                Some(Last::IsLost) | None => {}
            }
            self.cut.cancel();
            return std::future::pending().await;
        }
        let luck = self.random.lock().unwrap().below(200);
        if luck < LOST {
            return Err("the request was lost".into());
        }
        if luck < 2 * LOST {
            self.send_late(client, request);
            return Err("the request is late".into());
        }
        let answer = client.send(request).await?;
        if luck < 3 * LOST {
            return Err("the answer was lost".into());
        }
        Ok(answer)
    }
}

/// What becomes of the write at which the power is cut.
#[derive(Clone, Copy)]
enum Last {
    IsLost,
    Arrives,
    /// The next agent has looked meanwhile, or not.
    IsLate,
}

fn hosts(client: &Client) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("metal3.io", "v1alpha1", "BareMetalHost");
    Api::all_with(client.clone(), &ApiResource::from_gvk(&kind))
}

/// What the hosts controller, Ironic and a machine do together, one step at each look.
async fn servers(objects: Objects, dead: Dead) {
    loop {
        let found = hosts(&objects.client)
            .list(&ListParams::default())
            .await
            .unwrap();
        let found = found
            .items
            .iter()
            .map(|host| serde_json::to_value(host).unwrap());
        let (objects, dead) = (&objects, &dead);
        join_all(found.map(|host| async move { step(objects, dead, &host).await })).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn step(objects: &Objects, dead: &Dead, host: &Value) {
    let name = text(&host["metadata"]["name"]);
    let namespace = text(&host["metadata"]["namespace"]);
    let is_it = |one: &(String, String)| one.0 == namespace && one.1 == name;
    if dead.lock().unwrap().iter().any(is_it) || !find_paused(host).is_null() {
        return;
    }
    let state = text(&host["status"]["provisioning"]["state"]);
    let next = match (state, !host["spec"]["image"].is_null()) {
        ("available", true) => "provisioning",
        ("provisioning", true) => "provisioned",
        ("provisioning" | "provisioned", false) => "deprovisioning",
        ("deprovisioning", false) => "available",
        _ => return,
    };
    let change = json!({
        "apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
        // As the hosts controller writes it: what it saw still holds.
        "metadata": {"name": name, "namespace": namespace, "resourceVersion": host["metadata"]["resourceVersion"]},
        "status": {"provisioning": {"state": next}},
    });
    drop(objects.try_status(&change).await);
}

fn find_paused(host: &Value) -> &Value {
    &host["metadata"]["annotations"]["baremetalhost.metal3.io/paused"]
}

/// Each version of each host, as it comes: a host goes from one machine to another only free and clean, and no machine has two.
async fn check_always(client: Client, first: u64) {
    let mut consumers: BTreeMap<(String, String), Option<String>> = BTreeMap::new();
    let mut events = watcher(hosts(&client), watcher::Config::default()).boxed();
    while let Some(event) = events.next().await {
        // A watch that lost its way begins with a list of what is there.
        let Ok(event) = event else { continue };
        let (host, gone) = match event {
            watcher::Event::Apply(host) | watcher::Event::InitApply(host) => (host, false),
            watcher::Event::Delete(host) => (host, true),
            watcher::Event::Init => {
                consumers.clear();
                continue;
            }
            watcher::Event::InitDone => continue,
        };
        let host = serde_json::to_value(&host).unwrap();
        let namespace = text(&host["metadata"]["namespace"]).to_owned();
        let key = (
            namespace.clone(),
            text(&host["metadata"]["name"]).to_owned(),
        );
        if gone {
            consumers.remove(&key);
            continue;
        }
        let consumer = host["spec"]["consumerRef"]["name"]
            .as_str()
            .map(str::to_owned);
        // A new server is nobody's.
        let before = consumers.insert(key.clone(), consumer.clone());
        let (Some(before), Some(consumer)) = (before, consumer) else {
            continue;
        };
        let what = format!("seeds from {first}: {key:?} {consumer}, before {before:?}");
        match before {
            Some(before) => assert_eq!(before, consumer, "{what}: taken away"),
            None => assert_eq!(
                host["status"]["provisioning"]["state"], "available",
                "{what}: claimed before it was clean"
            ),
        }
        let same = consumers
            .iter()
            .filter(|(one, of)| one.0 == namespace && of.as_ref() == Some(&consumer));
        assert_eq!(same.count(), 1, "{what}: two hosts");
    }
}

/// What happens in one namespace.
struct Schedule {
    seed: u64,
    random: Random,
    objects: Objects,
    namespace: String,
    /// Of all machines that are wanted.
    machines: Vec<String>,
    /// Of all servers that are there.
    servers: Vec<String>,
    made: u64,
}

impl Schedule {
    async fn begin(objects: &Objects, seed: u64) -> Self {
        let namespace = format!("seed-{seed}");
        let mut schedule = Self {
            seed,
            random: Random::new(seed),
            objects: objects.within(&namespace),
            namespace,
            machines: Vec::new(),
            servers: Vec::new(),
            made: 0,
        };
        let metadata = json!({"name": schedule.namespace});
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata});
        objects.apply(&namespace).await;
        let mut cluster = schedule.object("cluster.x-k8s.io/v1beta2", "Cluster", "lab");
        cluster["spec"] =
            json!({"paused": false, "infrastructureRef": reference("Metal3Cluster", "lab")});
        schedule.objects.create(cluster).await.unwrap();
        let provisioned =
            json!({"status": {"initialization": {"infrastructureProvisioned": true}}});
        schedule
            .objects
            .patch_status("Cluster", "lab", provisioned)
            .await;
        for _ in 0..=schedule.random.below(4) {
            schedule.add_server().await;
        }
        for _ in 0..=schedule.random.below(4) {
            schedule.add_machine().await;
        }
        schedule
    }

    fn object(&self, version: &str, kind: &str, name: &str) -> Value {
        json!({"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": self.namespace}})
    }

    fn one_of(&mut self, all: fn(&Self) -> &Vec<String>) -> Option<String> {
        let count = u64::try_from(all(self).len()).unwrap();
        let at = usize::try_from(self.random.below(count.max(1))).unwrap();
        all(self).get(at).cloned()
    }

    async fn add_server(&mut self) {
        self.made += 1;
        let name = format!("n{}", self.made);
        let mac = format!(
            "52:54:00:{:02x}:{:02x}:{:02x}",
            self.seed / 256,
            self.seed % 256,
            self.made
        );
        let mut host = self.object("metal3.io/v1alpha1", "BareMetalHost", &name);
        host["spec"] = json!({"online": true, "bootMACAddress": mac});
        self.objects.create(host).await.unwrap();
        let status = json!({"status": {
            "operationalStatus": "OK", "errorMessage": "", "errorCount": 0, "poweredOn": true, "operationHistory": {},
            "provisioning": {"state": "available", "ID": name},
            "conditions": [{
                "type": "Trusted", "status": "True", "reason": "Approved", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }],
        }});
        self.objects
            .patch_status("BareMetalHost", &name, status)
            .await;
        self.servers.push(name);
    }

    /// As Cluster API leaves one whose data is made.
    async fn add_machine(&mut self) {
        self.made += 1;
        let name = format!("m{}", self.made);
        let mut secret = self.object("v1", "Secret", &name);
        secret["stringData"] = json!({"value": "#cloud-config", "format": "cloud-config"});
        self.objects.create(secret).await.unwrap();
        let mut machine = self.object("cluster.x-k8s.io/v1beta2", "Machine", &name);
        machine["spec"] = json!({
            "clusterName": "lab", "bootstrap": {"dataSecretName": name},
            "infrastructureRef": reference("Metal3Machine", &name),
        });
        self.objects.create(machine).await.unwrap();
        let uid = self.objects.get("Machine", &name).await["metadata"]["uid"].clone();
        let mut infra = self.object(
            "infrastructure.cluster.x-k8s.io/v1beta2",
            "Metal3Machine",
            &name,
        );
        infra["metadata"]["labels"] = json!({"cluster.x-k8s.io/cluster-name": "lab"});
        if self.random.below(3) == 0 {
            infra["metadata"]["labels"]["cluster.x-k8s.io/control-plane"] = json!("");
        }
        infra["metadata"]["ownerReferences"] = json!([
            {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "name": name, "uid": uid}
        ]);
        infra["spec"] = json!({"image": {
            "url": "http://172.22.0.1/images/node", "checksum": "ab".repeat(32), "checksumType": "sha256", "diskFormat": "raw",
        }});
        self.objects.create(infra).await.unwrap();
        self.machines.push(name);
    }

    /// What a person, Cluster API and bad luck do, while the agent lives and dies.
    async fn play(&mut self, dead: &Dead) {
        for _ in 0..3 + self.random.below(6) {
            match self.random.below(10) {
                0 | 1 => self.add_machine().await,
                2..=4 => self.delete_machine().await,
                5 => self.add_server().await,
                6 => self.remove_server().await,
                7 => self.pause(true).await,
                8 => self.pause(false).await,
                _ => {
                    let server = self.one_of(|this| &this.servers);
                    let namespace = self.namespace.clone();
                    dead.lock()
                        .unwrap()
                        .extend(server.map(|name| (namespace, name)));
                }
            }
            // The schedule's own time: when something happens is what it is about.
            tokio::time::sleep(Duration::from_millis(self.random.below(1500))).await;
        }
        self.pause(false).await;
        dead.lock().unwrap().retain(|one| one.0 != self.namespace);
    }

    async fn pause(&self, paused: bool) {
        self.objects
            .patch("Cluster", "lab", json!({"spec": {"paused": paused}}))
            .await;
    }

    async fn delete_machine(&mut self) {
        let Some(name) = self.one_of(|this| &this.machines) else {
            return;
        };
        self.machines.retain(|one| *one != name);
        if self.random.below(6) == 0 {
            let forget =
                json!({"metadata": {"annotations": {"firstlight.internal/forget-host": ""}}});
            self.objects.patch("Machine", &name, forget).await;
        }
        self.objects.delete("Metal3Machine", &name).await;
    }

    /// Its object is deleted, whoever has it.
    async fn remove_server(&mut self) {
        let Some(name) = self.one_of(|this| &this.servers) else {
            return;
        };
        self.servers.retain(|one| *one != name);
        self.objects.delete("BareMetalHost", &name).await;
    }

    /// Every machine has its host, or there is none for it, or it says that it lost its host.
    async fn settle(&mut self) {
        let what = format!("seed {}: everything where it belongs", self.seed);
        self.objects
            .wait_until(&what, async || self.is_settled().await)
            .await;
    }

    async fn is_settled(&self) -> bool {
        let hosts = self.objects.list("BareMetalHost").await;
        let machines = self.objects.list("Metal3Machine").await;
        let free = hosts
            .iter()
            .any(|host| is_free(host) && !is_unhealthy(host));
        let has = |machine: &Value| {
            let name = &machine["metadata"]["name"];
            let host = hosts
                .iter()
                .find(|host| host["spec"]["consumerRef"]["name"] == *name);
            if let Some(host) = host {
                let host_name = text(&host["metadata"]["name"]);
                let id = format!("metal3://{}/{host_name}/{}", self.namespace, text(name));
                return machine["spec"]["providerID"] == id
                    && host["status"]["provisioning"]["state"] == "provisioned"
                    && machine["status"]["initialization"]["provisioned"] == true
                    && condition(machine, "Ready") == "True";
            }
            let why = text(&find_condition(machine, "AssociateBareMetalHost")["message"]);
            why.contains("delete the Machine") || (!free && why.contains("no matching free host"))
        };
        let known = |host: &Value| {
            let consumer = &host["spec"]["consumerRef"]["name"];
            consumer.is_null()
                || machines
                    .iter()
                    .any(|machine| machine["metadata"]["name"] == *consumer)
        };
        machines.len() == self.machines.len() && machines.iter().all(has) && hosts.iter().all(known)
    }

    /// Everything is given back.
    async fn end(&mut self) {
        for name in std::mem::take(&mut self.machines) {
            self.objects.delete("Metal3Machine", &name).await;
        }
        let what = format!(
            "seed {}: all hosts clean and free, no machine left",
            self.seed
        );
        let all_free = async || {
            let hosts = self.objects.list("BareMetalHost").await;
            let left = |host: &Value| {
                let meta = &host["metadata"];
                !is_free(host)
                    || !meta["labels"]["cluster.x-k8s.io/cluster-name"].is_null()
                    || !meta["annotations"]["clusterctl.cluster.x-k8s.io/block-move"].is_null()
                    || !find_paused(host).is_null()
            };
            self.objects.list("Metal3Machine").await.is_empty() && !hosts.iter().any(left)
        };
        self.objects.wait_until(&what, all_free).await;
        for kind in ["Machine", "BareMetalHost", "Cluster", "Secret"] {
            self.objects.delete_all(kind).await;
        }
    }
}

/// A person forgot it when it was dead, and has not looked after it since.
fn is_unhealthy(host: &Value) -> bool {
    !host["metadata"]["annotations"]["capm3.metal3.io/unhealthy"].is_null()
}

fn reference(kind: &str, name: &str) -> Value {
    json!({"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": kind, "name": name})
}
