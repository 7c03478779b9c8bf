//! A large file by HTTP from the agent's program and from nginx, and what the agent needs in memory.

use std::{fs, path::Path, process::Child, time::Duration};

use firstlight_netboot::{LeaseChange, LeaseTable, MacAddr, Now, compact};

use super::{
    median, row,
    space::{Served, Space, wait_for},
};

const GIB: u64 = 1 << 30;
const ROUNDS: usize = 5;
const CLIENTS: u8 = 64;
/// Of the file, for each of many clients.
const PART: u64 = GIB / 8;
const LEASES: u32 = 1000;
const MOST_MEMORY: f64 = 32.0;

const NGINX: &str = "daemon off; master_process on; worker_processes 2; error_log stderr; pid FOLDER/pid;
events { worker_connections 1024; }
http { access_log off; sendfile on; tcp_nopush on; client_body_temp_path FOLDER/a; proxy_temp_path FOLDER/b;
 fastcgi_temp_path FOLDER/c; uwsgi_temp_path FOLDER/d; scgi_temp_path FOLDER/e;
 server { listen 10.55.0.1:80; root FOLDER; } }";

pub fn measure(agent: &str) {
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    let file = large_file(folder.path());
    let ours = Ours::start(agent, folder.path(), &file);
    let nginx = nginx(folder.path(), &file);
    let both = [(&ours.space, &ours.server), (&nginx.0, &nginx.1)];
    for (what, clients, bytes) in [
        ("1 GiB to 1 client", 1, GIB),
        ("128 MiB to each of 64 clients", CLIENTS, PART),
    ] {
        let mut used = [(); 2].map(|()| Vec::new());
        for _ in 0..ROUNDS {
            for ((space, server), used) in both.iter().zip(&mut used) {
                let before = server.processor_time();
                let loads = (0..clients).map(|at| fetch(space, at, bytes, None));
                let loads: Vec<Child> = loads.collect();
                for mut load in loads {
                    assert!(load.wait().unwrap().success(), "{}: curl", space.name);
                }
                let spent = server.processor_time().saturating_sub(before).as_secs_f64();
                used.push(spent * 1e9 / (bytes as f64 * f64::from(clients)));
            }
        }
        let [ours, theirs] = used.map(median);
        let what = format!("HTTP, {what}: s of processor for each GB");
        row(&what, ours, ("nginx", theirs), theirs / ours, 1.0 / 1.05);
    }
    // Slow enough that all are there at once.
    let mut loads: Vec<Child> = (0..CLIENTS)
        .map(|at| fetch(&ours.space, at, GIB, Some("4M")))
        .collect();
    std::thread::sleep(Duration::from_secs(5));
    let is_there = |load: &mut Child| load.try_wait().unwrap().is_none();
    let there = loads.iter_mut().map(is_there).filter(|there| *there);
    assert_eq!(there.count(), usize::from(CLIENTS), "transfers");
    let memory = ours.server.memory();
    for mut load in loads {
        drop(load.kill());
        drop(load.wait());
    }
    let verdict = if memory <= MOST_MEMORY {
        "ok"
    } else {
        "misses"
    };
    println!(
        "| the agent's memory with {LEASES} leases and {CLIENTS} transfers: MB | {memory:.1} | | | <= {MOST_MEMORY} | {verdict} |"
    );
}

fn large_file(folder: &Path) -> std::path::PathBuf {
    let file = folder.join("large");
    let block: Vec<u8> = (0_u32..)
        .flat_map(|n| n.wrapping_mul(0x9e37_79b9).to_le_bytes())
        .take(1 << 20)
        .collect();
    fs::write(&file, block.repeat(1024)).unwrap();
    file
}

/// Each client has its own address, as servers have.
fn fetch(space: &Space, at: u8, bytes: u64, rate: Option<&str>) -> Child {
    let from = format!("10.55.9.{}", at + 1);
    let range = format!("0-{}", bytes - 1);
    let mut curl = space.load("curl");
    curl.args(["-sf", "-o", "/dev/null", "--interface", &from, "-r", &range]);
    if let Some(rate) = rate {
        curl.args(["--limit-rate", rate]);
    }
    let path = if space.name == "web" {
        "boot/kernel"
    } else {
        "large"
    };
    curl.arg(format!("http://10.55.0.1/{path}"))
        .spawn()
        .unwrap()
}

fn space(name: &'static str) -> Space {
    let space = Space::make(name);
    for at in 1..=CLIENTS {
        let address = format!("10.55.9.{at}/16");
        let added = space
            .load("ip")
            .args(["address", "add", &address, "dev", "load"])
            .status();
        assert!(added.unwrap().success());
    }
    space
}

fn answers(space: &Space) {
    wait_for(space.name, || {
        fetch(space, 0, 1, None).wait().unwrap().success()
    });
}

struct Ours {
    space: Space,
    server: Served,
}

impl Ours {
    fn start(agent: &str, folder: &Path, file: &Path) -> Self {
        let space = space("web");
        let root = folder.join("root");
        for below in [
            "firstlight/site",
            "usr/share/firstlight/netboot",
            "var/lib/firstlight/agent",
            "run/firstlight",
        ] {
            fs::create_dir_all(root.join(below)).unwrap();
        }
        fs::hard_link(file, root.join("usr/share/firstlight/netboot/vmlinuz")).unwrap();
        let site = "name: bench\ncluster: none\nprovisioning: {interface: fl-box, address: 10.55.0.1/16, range: 10.55.1.0-10.55.8.255}\n";
        fs::write(root.join("firstlight/site/site.yaml"), site).unwrap();
        fs::write(root.join("var/lib/firstlight/agent/leases.log"), leases()).unwrap();
        let prepare = "ip link add box0 type bridge && mount -t sysfs sysfs /sys && exec";
        let script = format!("{prepare} {agent} --root {}", root.display());
        let server = space.serve("unshare", &["--mount", "sh", "-c", &script]);
        answers(&space);
        Self { space, server }
    }
}

fn leases() -> Vec<u8> {
    let now = u64::try_from(firstlight_agent::clock::wall_seconds()).unwrap();
    let now = Now::from_unix_seconds(now);
    let mut table = LeaseTable::default();
    for number in 0..LEASES {
        let [_, _, high, low] = number.to_be_bytes();
        table.apply(&LeaseChange::Leased {
            mac: MacAddr::new([2, 0, 0, 0, high, low]).unwrap(),
            address: [10, 55, 1 + high, low].into(),
            expires: now.plus(Duration::from_hours(4)),
        });
    }
    compact(&table, now)
}

fn nginx(folder: &Path, file: &Path) -> (Space, Served) {
    let space = space("nginx");
    let folder = folder.join("nginx");
    fs::create_dir_all(&folder).unwrap();
    fs::hard_link(file, folder.join("large")).unwrap();
    let name = folder.to_str().unwrap();
    // The workers give root up.
    super::space::run(
        "chmod",
        &["-R", "a+rX", folder.parent().unwrap().to_str().unwrap()],
    );
    let config = folder.join("nginx.conf");
    fs::write(
        &config,
        format!("user root; {}", NGINX.replace("FOLDER", name)),
    )
    .unwrap();
    let server = space.serve("nginx", &["-c", config.to_str().unwrap(), "-p", name]);
    answers(&space);
    (space, server)
}
