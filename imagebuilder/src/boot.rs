//! `firstlight boot`: the image in virtual machines, for looking at it.

use std::collections::BTreeSet;
use std::fmt;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use firstlight_api::status::{ClusterStatus, DhcpMode, HostState, SiteStatus};
use lab::{
    Accel, BoxSpec, Clock, DiskContent, Firmware, Lab, LabSpec, NODE_MEMORY_MIB, ServerSpec, Vm,
};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::SignalFd;

use crate::UsageError;
use crate::page::{changes, read_status};
use crate::stick::set_up_lab;

/// How often the status is read at most.
const LOOK: Duration = Duration::from_secs(1);

#[derive(Debug, clap::Args)]
pub struct BootArgs {
    /// Image made by `firstlight build`; it is not changed
    image: PathBuf,
    /// Firmware of the box
    #[arg(long, value_enum, default_value_t)]
    firmware: Firmware,
    /// Give the box a TPM 2
    #[arg(long)]
    tpm: bool,
    /// Blank servers on the box's network, as N[:bios|uefi|secureboot][,disk=GIB]; may be given again for another kind
    #[arg(long, value_name = "SERVERS")]
    servers: Vec<Servers>,
    /// Memory of the box in MiB
    #[arg(long, value_name = "MIB", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1024..))]
    memory: u32,
    /// Memory of each server in MiB; kubeadm makes no control plane in less than 1700
    #[arg(long, value_name = "MIB", default_value_t = NODE_MEMORY_MIB, value_parser = clap::value_parser!(u32).range(256..))]
    server_memory: u32,
    /// Print what the box and the servers do, until all servers run and are nodes of the site's cluster, if it has one
    #[arg(long)]
    follow: bool,
    /// Port of 127.0.0.1 for the box's page; without it any free one
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    port: u16,
    /// Folder for the disks of all machines; with the same folder the next run goes on where this one ended
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// Write what passes on the network to this capture file
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
}

impl BootArgs {
    fn clock(&self) -> Clock {
        let servers: u32 = self.servers.iter().map(|kind| u32::from(kind.count)).sum();
        if servers > 1 {
            Clock::CLUSTER
        } else {
            Clock::Real
        }
    }
}

/// Some servers of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Servers {
    count: u8,
    firmware: Firmware,
    disk_gib: u32,
}

impl FromStr for Servers {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (head, disk) = text
            .split_once(',')
            .map_or((text, None), |(head, rest)| (head, Some(rest)));
        let (count, firmware) = head.split_once(':').unwrap_or((head, "uefi"));
        let count = count
            .parse()
            .map_err(|_| format!("`{count}` is no number of servers from 0 to 255"))?;
        let disk_gib = match disk {
            None => 8,
            Some(disk) => {
                let size = disk
                    .strip_prefix("disk=")
                    .and_then(|size| size.parse().ok());
                size.filter(|gib| (1..=4096).contains(gib))
                    .ok_or(format!("`{disk}`: write it like disk=8 (GiB)"))?
            }
        };
        Ok(Self {
            count,
            firmware: firmware.parse()?,
            disk_gib,
        })
    }
}

/// Runs until Ctrl-C, or until the box ends by itself.
pub fn run(args: &BootArgs) -> Result<()> {
    if !args.image.is_file() {
        let what = format!(
            "{}: no such image; `firstlight build -o {}` makes one",
            args.image.display(),
            args.image.display()
        );
        return Err(UsageError(what).into());
    }
    let signals = Signals::catch()?;
    let spec = LabSpec {
        keep: args.keep.clone(),
        capture: args.pcap.clone(),
        clock: args.clock(),
        ..LabSpec::default()
    };
    let lab = set_up_lab(&args.image, spec)?;
    let box_spec = BoxSpec {
        firmware: args.firmware,
        memory_mib: args.memory,
        tpm: args.tpm,
        ..BoxSpec::default()
    };
    let vm = lab.start_box(&box_spec)?;
    let page = lab.forward_page(args.port)?;
    let mut session = Session::new(args, &lab, vm, page);
    session.introduce();
    while !signals.wait_a_second()? {
        session.look()?;
    }
    session.say("", "ending");
    Ok(())
}

struct Session<'a> {
    args: &'a BootArgs,
    lab: &'a Lab,
    started: Instant,
    page: SocketAddr,
    news: Receiver<SiteStatus>,
    vm: Vm,
    waiting: Vec<ServerSpec>,
    servers: Vec<Vm>,
    seen: SiteStatus,
    /// Host names that have a forwarded SSH port.
    doors: BTreeSet<String>,
    leaks: usize,
    done: bool,
}

impl<'a> Session<'a> {
    fn new(args: &'a BootArgs, lab: &'a Lab, vm: Vm, page: SocketAddr) -> Self {
        let kinds = args
            .servers
            .iter()
            .flat_map(|servers| std::iter::repeat_n(servers, usize::from(servers.count)));
        let waiting = kinds.zip(1_u8..).map(|(kind, number)| {
            let mut server = ServerSpec::blank(number, kind.firmware);
            server.memory_mib = args.server_memory;
            for disk in &mut server.disks {
                disk.content = DiskContent::Blank { gib: kind.disk_gib };
            }
            server
        });
        Self {
            args,
            lab,
            started: vm.started(),
            page,
            news: spawn_reader(page),
            vm,
            waiting: waiting.collect(),
            servers: Vec::new(),
            seen: SiteStatus::default(),
            doors: BTreeSet::new(),
            leaks: 0,
            done: false,
        }
    }

    fn introduce(&self) {
        let how = match self.lab.accel() {
            Accel::Kvm => "with KVM",
            Accel::Tcg => {
                "emulated: an ordinary kernel does not run under this host's KVM, so expect minutes"
            }
        };
        let clock = match (self.lab.accel(), self.args.clock()) {
            (Accel::Tcg, Clock::Slowed { percent }) => {
                format!("; clocks of the machines go at {percent} %, so that none is late")
            }
            _ => String::new(),
        };
        self.say(
            "",
            format!(
                "page: http://{}/  (answers when the box has started)",
                self.page
            ),
        );
        self.say(
            "",
            format!(
                "box: {} firmware, {} MiB, {how}{clock}",
                self.args.firmware, self.args.memory
            ),
        );
        self.say(
            "",
            format!(
                "consoles: {}/*.console  Ctrl-C ends everything",
                self.lab.dir().display()
            ),
        );
    }

    /// One look at the box: prints what changed, switches servers on, opens doors to those that run.
    fn look(&mut self) -> Result<()> {
        self.vm.check_running()?;
        for server in &mut self.servers {
            server.check_running()?;
        }
        self.report_leaks();
        while let Ok(status) = self.news.try_recv() {
            self.tell(status)?;
        }
        Ok(())
    }

    fn tell(&mut self, status: SiteStatus) -> Result<()> {
        if self.seen == SiteStatus::default() {
            self.say("box", format!("the page answers at http://{}/", self.page));
        }
        if self.args.follow {
            for line in changes(&self.seen, &status) {
                self.say(&line.who, &line.what);
            }
        }
        if matches!(
            status.network.dhcp,
            DhcpMode::Serving | DhcpMode::Proxy { .. } | DhcpMode::Relay
        ) {
            for spec in std::mem::take(&mut self.waiting) {
                let server = self.lab.start_server(&spec)?;
                self.say(
                    server.name(),
                    format!("switched on, {} firmware, blank disk", spec.firmware),
                );
                self.servers.push(server);
            }
        }
        self.open_doors(&status)?;
        let running = status
            .hosts
            .iter()
            .filter(|host| host.state == HostState::Running)
            .count();
        let all_run = self.waiting.is_empty() && running >= self.servers.len();
        if !self.done && status.ready && all_run && status.clusters.iter().all(is_complete) {
            self.done = true;
            self.say(
                "",
                format!("the box is ready and {running} servers run; Ctrl-C ends everything"),
            );
        }
        self.seen = status;
        Ok(())
    }

    fn open_doors(&mut self, status: &SiteStatus) -> Result<()> {
        self.open_door("box", self.lab.box_address())?;
        for host in status
            .hosts
            .iter()
            .filter(|host| host.state == HostState::Running)
        {
            if let Ok(address) = host.address.parse() {
                self.open_door(&host.name, address)?;
            }
        }
        Ok(())
    }

    fn open_door(&mut self, name: &str, address: Ipv4Addr) -> Result<()> {
        if self.doors.insert(name.to_owned()) {
            let door = self.lab.forward(0, SocketAddrV4::new(address, 22))?;
            self.say(name, format!("ssh -p {} admin@127.0.0.1", door.port()));
        }
        Ok(())
    }

    fn report_leaks(&mut self) {
        let leaks = self.lab.wire().report().leaks;
        for text in leaks.keys().skip(self.leaks) {
            self.say("wire", format!("leaves the site: {text}"));
        }
        self.leaks = leaks.len();
    }

    fn say(&self, who: &str, what: impl fmt::Display) {
        // A closed terminal must not keep the machines from being ended in order.
        let _ = writeln!(
            std::io::stdout(),
            "{:7.1} s  {who:<10} {what}",
            self.started.elapsed().as_secs_f64()
        );
    }
}

fn is_complete(cluster: &ClusterStatus) -> bool {
    let ready = (cluster.control_planes_ready, cluster.workers_ready);
    ready == (cluster.control_planes_wanted, cluster.workers_wanted)
}

/// Reads the status in the background, because a box that is still booting answers late and Ctrl-C must not wait for it.
fn spawn_reader(page: SocketAddr) -> Receiver<SiteStatus> {
    let (sender, receiver) = sync_channel(1);
    std::thread::spawn(move || {
        loop {
            let began = Instant::now();
            if let Ok(status) = read_status(page)
                && sender.send(status).is_err()
            {
                return;
            }
            std::thread::sleep(LOOK.saturating_sub(began.elapsed()));
        }
    });
    receiver
}

/// SIGINT, SIGTERM and SIGHUP as something to wait for, so that everything is dropped in order.
struct Signals(SignalFd);

impl Signals {
    /// Before any thread is started: threads inherit the mask.
    fn catch() -> Result<Self> {
        let mut set = SigSet::empty();
        for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
            set.add(signal);
        }
        set.thread_block().context("blocking signals")?;
        Ok(Self(SignalFd::new(&set).context("waiting for signals")?))
    }

    /// True when a signal came.
    fn wait_a_second(&self) -> Result<bool> {
        let mut fds = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        Ok(poll(&mut fds, PollTimeout::from(1000_u16)).context("waiting for signals")? > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_written_as_number_firmware_and_disk() {
        let of = |count, firmware, disk_gib| {
            Ok(Servers {
                count,
                firmware,
                disk_gib,
            })
        };
        assert_eq!("1".parse(), of(1, Firmware::Uefi, 8));
        assert_eq!("3:bios".parse(), of(3, Firmware::Bios, 8));
        assert_eq!(
            "2:secureboot,disk=20".parse(),
            of(2, Firmware::SecureBoot, 20)
        );
        for wrong in ["x", "1:efi", "1,disk=", "1,disk=0", "1,size=4"] {
            assert!(wrong.parse::<Servers>().is_err(), "{wrong}");
        }
    }
}
