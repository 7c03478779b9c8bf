//! One server of the rack: firmware that boots from the network first, the deploy ramdisk, and the installed system's first
//! program. The firmware's requests are made by `udhcpc`, `atftp` and `curl`; the rest is the stick's own code.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, mpsc::Sender},
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::Result;
use firstlight_bootstrap::{
    drive::{Drive, read_drive},
    follow::follow,
    invitation::parse_invitation,
    link::Link,
    machine::Machine as Installed,
    seed::Seed,
};
use firstlight_client::net::{
    dhcp::Lease,
    interface::{Nic, clear_address, parse_mac},
    session::Session,
};
use firstlight_ramdisk::{
    cmdline::parse_cmdline,
    context::Context,
    deploy::gpt::Gpt,
    ipa::{self, machine::Machine},
};
use nix::sched::{CloneFlags, unshare};
use serde_json::{Map, Value};

use super::hardware::Hardware;
use crate::{
    VERSION,
    programs::{ip, run},
    workload::Node,
};

const NIC: &str = "eth0";
const SECTOR: usize = 512;

pub struct Server {
    pub number: u8,
    pub dir: PathBuf,
    /// Root of Ironic's image, whose xorriso reads config drives.
    pub ironic: PathBuf,
}

/// It has its bootstrap data.
pub struct Joined {
    pub number: u8,
    pub switched_on: Instant,
    /// When each ended.
    pub phases: Vec<(&'static str, Instant)>,
}

impl Joined {
    pub fn end(&self) -> Instant {
        self.phases.last().map_or(self.switched_on, |phase| phase.1)
    }
}

/// What the boot script of the box says.
pub enum Boot {
    Ramdisk {
        kernel: String,
        initrd: String,
        cmdline: String,
    },
    Disk,
    Again(Duration),
}

impl Server {
    /// A thread's namespaces are its own, and those of all that it starts.
    pub fn switch_on(self, tell: Sender<Joined>) {
        thread::spawn(move || {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            self.plug_in();
            self.run(&tell);
            // A server that went would be a dead one.
            loop {
                thread::park();
            }
        });
    }

    fn mac(&self) -> String {
        format!("52:54:00:00:01:{:02x}", self.number)
    }

    /// To the switch, which is in the namespace of process 1.
    fn plug_in(&self) {
        let port = format!("s{}", self.number);
        ip("link set lo up");
        ip(&format!(
            "link add name {NIC} address {} type veth peer name {port} netns 1",
            self.mac()
        ));
        ip(&format!("link set {NIC} up"));
        for change in ["master rack", "up"] {
            let change = format!("--net=/proc/1/ns/net ip link set {port} {change}");
            run(Command::new("nsenter").args(change.split(' ')));
        }
    }

    fn run(&self, tell: &Sender<Joined>) {
        let machine = Arc::new(Hardware::new(&self.mac()));
        let mut joined = Joined {
            number: self.number,
            switched_on: Instant::now(),
            phases: Vec::new(),
        };
        loop {
            match self.boot_from_network() {
                Boot::Ramdisk {
                    kernel,
                    initrd,
                    cmdline,
                } => {
                    for url in [kernel, initrd] {
                        self.download(&url);
                    }
                    joined.phases.push(("loaded", Instant::now()));
                    self.run_ramdisk(&cmdline, &machine);
                    joined.phases.push(("installed", Instant::now()));
                }
                Boot::Disk => break,
                Boot::Again(pause) => thread::sleep(pause),
            }
        }
        let (user_data, meta_data) = self.run_installed(&machine);
        joined.phases.push(("bootstrapped", Instant::now()));
        // Nobody may be there to hear it any more.
        drop(tell.send(joined));
        if user_data.contains("/run/kubeadm/kubeadm.yaml") {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            let dir = self.dir.join("node");
            let booted = runtime.block_on(Node::boot(&user_data, &meta_data, &dir, None, VERSION));
            std::mem::forget(booted);
        }
    }

    /// A BIOS fetches iPXE, which fetches its script.
    fn boot_from_network(&self) -> Boot {
        let offer =
            self.ask_for_address(&["-V", "PXEClient:Arch:00000:UNDI:002001", "-x", "0x5d:0000"]);
        let (server, file) = (&offer["serverid"], &offer["boot_file"]);
        let options = format!("--option|blksize 1428|--get|-r|{file}|-l|/dev/null|{server}");
        run(Command::new("atftp").args(options.split('|')));
        let offer = self.ask_for_address(&["-x", "0x5d:0000", "-x", "0x4d:69505845"]);
        let script = run(Command::new("curl").args(["-sf", &offer["boot_file"]]));
        clear_address(NIC).unwrap();
        parse_script(&script)
    }

    /// What the server said, by the names of udhcpc.
    fn ask_for_address(&self, options: &[&str]) -> BTreeMap<String, String> {
        fs::create_dir_all(&self.dir).unwrap();
        let script = self.dir.join("udhcpc");
        fs::write(
            &script,
            format!("#!/bin/sh\n[ \"$1\" = bound ] && ip address replace \"$ip/$mask\" dev {NIC} && env\nexit 0\n"),
        )
        .unwrap();
        run(Command::new("chmod").arg("0755").arg(&script));
        let said = run(Command::new("busybox")
            .args([
                "udhcpc", "-i", NIC, "-f", "-q", "-n", "-t", "10", "-T", "1", "-O", "bootfile",
            ])
            .args(options)
            .arg("-s")
            .arg(&script));
        let pairs = said.lines().filter_map(|line| line.split_once('='));
        pairs
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect()
    }

    fn download(&self, url: &str) {
        let _lease = self.address();
        run(Command::new("curl").args(["-sf", "-o", "/dev/null", url]));
        clear_address(NIC).unwrap();
    }

    /// As the ramdisk and the bootstrap program get it; the lease outlives what they do here.
    fn address(&self) -> Lease {
        let nic = Nic {
            name: NIC.to_owned(),
            mac: parse_mac(&self.mac()).unwrap(),
            carrier: true,
        };
        let mut session = Session::open(nic, u32::from(self.number)).unwrap();
        session.acquire(None).unwrap().unwrap()
    }

    fn run_ramdisk(&self, cmdline: &str, machine: &Arc<Hardware>) {
        let lease = self.address();
        let context = Context {
            cmdline: parse_cmdline(cmdline),
            boot_mac: self.mac(),
            interface: NIC.to_owned(),
            address: lease.address,
            prefix: lease.prefix,
        };
        let machine: Arc<dyn Machine> = machine.clone();
        ipa::run(&context, &machine);
        clear_address(NIC).unwrap();
    }

    /// Until its disk holds confirmed bootstrap data: user data and metadata.
    fn run_installed(&self, machine: &Hardware) -> (String, serde_json::Value) {
        let drive = self.config_drive(machine);
        let _lease = self.address();
        let invitation = parse_invitation(&drive.meta_data).unwrap().unwrap();
        let mut link = Link::new(&invitation).unwrap();
        let seed = Seed::new(&self.dir);
        follow(&mut link, &mut Os, &seed, &drive).unwrap();
        let latest = self
            .dir
            .join("var/lib/cloud/seed/config_drive/openstack/latest");
        let meta_data = fs::read(latest.join("meta_data.json")).unwrap();
        (
            fs::read_to_string(latest.join("user_data")).unwrap(),
            serde_json::from_slice(&meta_data).unwrap(),
        )
    }

    /// What Ironic has written behind the system.
    fn config_drive(&self, machine: &Hardware) -> Drive {
        let gpt = Gpt::parse(&machine.read(0, 1 << 20), SECTOR as u64)
            .unwrap()
            .unwrap();
        let partition = gpt.partitions().pop().unwrap();
        let sectors = partition.last_lba + 1 - partition.first_lba;
        let length = usize::try_from(sectors).unwrap() * SECTOR;
        let name = format!("/tmp/drive-{}", self.number);
        let inside = |path: &str| self.ironic.join(Path::new(path).strip_prefix("/").unwrap());
        let image = machine.read(partition.first_lba * SECTOR as u64, length);
        fs::write(inside(&format!("{name}.iso")), image).unwrap();
        run(Command::new("chroot").arg(&self.ironic).args([
            "xorriso",
            "-osirrox",
            "on",
            "-indev",
            &format!("{name}.iso"),
            "-extract",
            "/",
            &name,
        ]));
        read_drive(&inside(&name)).unwrap()
    }
}

pub fn parse_script(script: &str) -> Boot {
    let line = |word: &str| script.lines().find_map(|line| line.strip_prefix(word));
    let url = |line: &str| {
        line.split(' ')
            .find(|word| word.starts_with("http://"))
            .unwrap()
            .to_owned()
    };
    if let (Some(kernel), Some(initrd)) = (line("kernel "), line("initrd ")) {
        return Boot::Ramdisk {
            kernel: url(kernel),
            initrd: url(initrd),
            cmdline: kernel.to_owned(),
        };
    }
    if line("sanboot ").is_some() {
        return Boot::Disk;
    }
    let seconds = line("sleep ").unwrap_or_else(|| panic!("a script that ends: {script}"));
    Boot::Again(Duration::from_secs(seconds.parse().unwrap()))
}

/// The installed system below the bootstrap program.
struct Os;

impl Installed for Os {
    fn prepare(&mut self, _: &Map<String, Value>) -> Result<()> {
        Ok(())
    }

    fn pause(&mut self, length: Duration) {
        thread::sleep(length);
    }

    fn time(&self) -> u64 {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap()
            .as_secs()
    }

    fn set_time(&mut self, _: u64) {
        panic!("the clocks of box and server are one");
    }

    fn restart(&mut self) {
        panic!("nobody sends this server into the network");
    }
}
