//! Many servers at once beside a box, from their first packet to `provisioned`, in one process. Real are the agent's program,
//! Ironic, etcd and API server, and of a ramdisk all that it decides ([`ramdisk`]); what a machine and its disk need no
//! time for here is: firmware, kernel, and the image, of which nothing is sent.
//!
//! `scripts/bench hosts` runs it; a line `figure ID VALUE` is for its table. Three servers are a test of
//! `scripts/test-cluster-api`.

mod alone;
mod calls;
mod command_api;
mod people;
mod ramdisk;
mod server;
mod talk;
mod the_box;
mod wire;

use std::{
    collections::BTreeMap,
    sync::mpsc::channel,
    time::{Duration, Instant},
};

use firstlight_agent::capi::HOSTS;
use futures_util::TryStreamExt;
use kube::{
    Api,
    api::{DynamicObject, ListParams, Patch, PatchParams},
    runtime::{
        wait::await_condition,
        watcher::{self, watcher},
    },
};
use nix::sched::{CloneFlags, unshare};
use serde_json::json;

use crate::programs::ip;
use calls::Calls;
use server::{MARKS, Marks};
use the_box::TheBox;
use wire::{NIC, Wire};

/// How many there are; three without it.
pub const COUNT: &str = "FIRSTLIGHT_HOSTS";

/// For anything at all to happen to any server, on a busy machine.
const PATIENCE: Duration = Duration::from_mins(4);
const QUIET: Duration = Duration::from_secs(20);

pub async fn simulated_servers_become_provisioned() {
    let bench = std::env::var(COUNT);
    let bench = bench.map(|count| count.parse().expect("a number of servers"));
    let count = bench.clone().unwrap_or(3);
    let dir = std::env::temp_dir();
    // In memory, as this machine's disk is nobody's figure.
    crate::rack::mount(&["-t", "tmpfs", "-o", "size=80%", "many"], &dir);
    let (marks, switch) = plug_in(count);
    let the_box = TheBox::start(&dir).await;
    eprintln!("the box is up");
    let before = calls::of_kubernetes(&the_box.audit);
    let began = Instant::now();
    switch.send(()).unwrap();
    let provisioned = all_provisioned(&the_box, count, &marks).await;
    let took = began.elapsed().as_secs_f64();
    report(began, &marks, &provisioned);
    figure("count", count.into());
    figure("seconds", took);
    let asked = count_calls(&the_box, &before, count);
    let quiet = calls_of_nothing(&the_box).await;
    let acts = edits(&the_box).await;
    figure("memory", the_box.agent.most_memory());
    if bench.is_err() {
        assert!(asked < 60.0, "{asked} calls for each server");
        assert!(quiet.is_empty(), "while nothing changes: {quiet:#?}");
        assert!(acts < PATIENCE, "an edit was seen after {acts:?}");
        let mac = provisioned.keys().next().expect("three servers");
        people::log_in_and_act(&the_box, &format!("host-{}", mac.replace(':', "")));
        return;
    }
    let paths = the_box.stop();
    let alone = alone::seconds(&dir, &paths, count).await;
    figure("alone", alone);
    figure("ratio", alone / took);
}

/// What the agent has asked of Kubernetes and of Ironic since `before`, for each server. The result is without Ironic's part: a list of
/// all nodes each second is more for each of three servers the longer they take.
fn count_calls(the_box: &TheBox, before: &Calls, count: u16) -> f64 {
    let kubernetes = calls::since(before, &calls::of_kubernetes(&the_box.audit));
    let is_agent = |peer: &str| peer == "172.22.0.1";
    let (ironic, times) = calls::of_ironic(&the_box.ironic.log, is_agent);
    eprintln!("of Kubernetes: {kubernetes:#?}\nof Ironic: {ironic:#?} in milliseconds: {times:#?}");
    let (theirs, times) = calls::of_ironic(&the_box.ironic.log, |peer| !is_agent(peer));
    eprintln!("the servers of Ironic: {theirs:#?} in milliseconds: {times:#?}");
    let each = |calls: &Calls| calls::count(calls) / f64::from(count);
    let (kubernetes, ironic) = (each(&kubernetes), each(&ironic));
    figure("kubernetes-calls", kubernetes);
    figure("ironic-calls", ironic);
    figure("calls", kubernetes + ironic);
    kubernetes
}

/// In a time in which no server does anything: all of Kubernetes but the question whether it is there.
async fn calls_of_nothing(the_box: &TheBox) -> Calls {
    const SETTLES: u32 = 12;
    let mut calls = Calls::new();
    // What the servers did last is still written down, and their logins are still looked for.
    for _ in 0..SETTLES {
        let before = calls::of_kubernetes(&the_box.audit);
        // A measurement's length.
        tokio::time::sleep(QUIET).await;
        calls = calls::since(&before, &calls::of_kubernetes(&the_box.audit));
        calls.retain(|kind, _| kind != calls::ALIVE && !kind.starts_with("watch "));
        if calls.is_empty() {
            break;
        }
    }
    figure("quiet", calls::count(&calls));
    calls
}

/// From an edit of a host to what the agent says of it in its status: the longest of a hundred, or of as many as there are.
async fn edits(the_box: &TheBox) -> Duration {
    let api: Api<DynamicObject> =
        Api::namespaced_with(the_box.objects.client.clone(), "default", &HOSTS.api());
    let mut took = Vec::new();
    let hosts = api.list(&ListParams::default()).await.unwrap();
    let params = PatchParams::default();
    let edit = Patch::Merge(json!({"spec": {"architecture": "aarch64"}}));
    for host in hosts.items.iter().take(100) {
        let name = host.metadata.name.clone().unwrap();
        let is_told = |host: Option<&DynamicObject>| {
            let told = host.map(|host| host.data["status"]["conditions"].to_string());
            told.is_some_and(|told| told.contains("spec.architecture"))
        };
        let told = await_condition(api.clone(), &name, is_told);
        let began = Instant::now();
        let edited = api.patch(&name, &params, &edit);
        let (edited, told) = tokio::join!(edited, tokio::time::timeout(PATIENCE, told));
        edited.unwrap();
        let told = told.unwrap_or_else(|_| panic!("{name}: {}", the_box.agent.tail()));
        told.unwrap();
        took.push(began.elapsed());
    }
    took.sort();
    let (half, last) = (took[took.len() / 2], *took.last().unwrap());
    eprintln!("an edit is answered after {half:?} in the middle, {last:?} at most");
    figure("edit", last.as_secs_f64());
    last
}

fn figure(name: &str, value: f64) {
    eprintln!("figure hosts-{name} {value:.3}");
}

/// In a network namespace of their own, on one cable; the servers are on once they are told.
fn plug_in(count: u16) -> (Vec<Marks>, std::sync::mpsc::Sender<()>) {
    let marks: Vec<Marks> = (0..count).map(|_| Marks::default()).collect();
    let (switch, on) = channel();
    let (plugged, is_plugged) = channel();
    let theirs = marks.clone();
    std::thread::spawn(move || {
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        ip("link set lo up");
        ip(&format!(
            "link add name {NIC} type veth peer name fl-box netns 1"
        ));
        ip(&format!("link set {NIC} up"));
        ip(&format!("address add 172.22.15.254/20 dev {NIC}"));
        plugged.send(()).unwrap();
        // Its threads are in the namespace of the one that starts them.
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        if on.recv().is_err() {
            return;
        }
        runtime.block_on(async {
            let wire = Wire::open().await;
            let servers = (1..).zip(theirs);
            let lives = servers.map(|(number, marks)| server::live(number, wire.clone(), marks));
            let lives: Vec<_> = lives.map(tokio::spawn).collect();
            for life in lives {
                life.await.unwrap();
            }
        });
    });
    is_plugged.recv().unwrap();
    (marks, switch)
}

/// When each object said so, by its MAC.
async fn all_provisioned(
    the_box: &TheBox,
    count: u16,
    marks: &[Marks],
) -> BTreeMap<String, Instant> {
    let api: Api<DynamicObject> = Api::all_with(the_box.objects.client.clone(), &HOSTS.api());
    let mut events = std::pin::pin!(watcher(api, watcher::Config::default()));
    let mut reached = BTreeMap::new();
    let mut told = 0;
    while reached.len() < usize::from(count) {
        let next = tokio::time::timeout(PATIENCE, events.try_next()).await;
        let Ok(next) = next else {
            panic!("{}", state(the_box, marks))
        };
        // It begins again by itself.
        let Ok(Some(event)) = next else { continue };
        let (watcher::Event::Apply(host) | watcher::Event::InitApply(host)) = event else {
            continue;
        };
        if host.data["status"]["provisioning"]["state"] == "provisioned" {
            let mac = host.data["spec"]["bootMACAddress"].as_str().unwrap();
            reached.entry(mac.to_owned()).or_insert_with(Instant::now);
        }
        if reached.len() >= told + usize::from(count).div_ceil(10) {
            told = reached.len();
            eprintln!("{told} of {count} are provisioned");
        }
    }
    reached
}

/// Why it goes no further.
fn state(the_box: &TheBox, marks: &[Marks]) -> String {
    let counts: Vec<String> = MARKS
        .iter()
        .map(|mark| {
            let there = marks.iter().filter(|one| one.get(*mark).is_some()).count();
            format!("{mark:?} {there}")
        })
        .collect();
    format!(
        "no news; {}\nthe agent:\n{}\nIronic:\n{}",
        counts.join(", "),
        the_box.agent.tail(),
        the_box.ironic.daemon.tail()
    )
}

fn report(began: Instant, marks: &[Marks], provisioned: &BTreeMap<String, Instant>) {
    let seconds = |at: Instant| at.duration_since(began).as_secs_f64();
    let line = |what: &str, mut times: Vec<f64>| {
        times.sort_by(f64::total_cmp);
        // A system starts a moment after Ironic is done with its server.
        let Some(last) = times.len().checked_sub(1) else {
            return eprintln!("{what:12} none yet");
        };
        let at = |part: usize| times[last * part / 100];
        eprintln!(
            "{what:12} first {:7.1} s, half {:7.1} s, nine in ten {:7.1} s, last {:7.1} s",
            at(0),
            at(50),
            at(90),
            at(100)
        );
    };
    for mark in MARKS {
        let times = marks.iter().filter_map(|marks| marks.get(mark));
        line(&format!("{mark:?}"), times.map(seconds).collect());
    }
    line(
        "provisioned",
        provisioned.values().copied().map(seconds).collect(),
    );
}
