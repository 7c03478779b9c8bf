//! A story's stage: the lab, the box that is on, and waiting with a name, a limit and everything written down when it
//! fails.

mod failure;
mod start;
mod status;

use std::fmt;
use std::fs;
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use firstlight_api::status::{HostState, SiteStatus};
use imagebuilder::build::machine::Machine;
use imagebuilder::page::{changes, get, read_status};
use imagebuilder::stick::set_up_lab;
use lab::wire::format_mac;
use lab::{
    BOX_MAC, BootFirst, BoxSpec, Console, DirectKernel, Disk, DiskBus, DiskFormat, Firmware, Lab,
    LabSpec, NicModel, ServerSpec, Vm, VmSpec,
};

use failure::{failures, slug};
use status::fail_on_failed;
pub use status::{find_host, host_in, installs, step_done};

use crate::site::TestSite;
use crate::ssh::Ssh;

const LOOK: Duration = Duration::from_secs(1);
const ANSWER: Duration = Duration::from_mins(1);
/// Percent of an image.
const UNDER_WAY: std::ops::RangeInclusive<u8> = 5..=85;

pub struct Scene<'a> {
    site: &'a TestSite,
    story: &'static str,
    began: Instant,
    pub lab: Arc<Lab>,
    /// Forwarded port of the box's page, the same over all boots of the box.
    page: SocketAddr,
    box_door: SocketAddr,
    the_box: Option<Vm>,
    servers: Vec<Vm>,
    seen: SiteStatus,
}

impl<'a> Scene<'a> {
    pub fn set(site: &'a TestSite, story: &'static str) -> Result<Self> {
        let capture = failures()?.join(format!("{}.pcap", slug(story)));
        let spec = LabSpec {
            capture: Some(capture),
            clock: site.clock,
            ..LabSpec::default()
        };
        let lab = Arc::new(set_up_lab(&site.image, spec)?);
        let page = lab.forward_page(0)?;
        let box_door = lab.forward(0, SocketAddrV4::new(lab.box_address(), 22))?;
        let (began, seen) = (Instant::now(), SiteStatus::default());
        Ok(Self {
            site,
            story,
            began,
            lab,
            page,
            box_door,
            the_box: None,
            servers: Vec::new(),
            seen,
        })
    }

    /// A line of the story.
    pub fn tell(&self, line: impl fmt::Display) {
        let _ = writeln!(
            std::io::stdout(),
            "{:7.1} s  {line}",
            self.began.elapsed().as_secs_f64()
        );
    }

    /// Switches the box on; returns when that was.
    pub fn switch_box_on(&mut self, spec: &BoxSpec) -> Result<Instant> {
        self.tell(format_args!("box: power on, {} firmware", spec.firmware));
        let vm = self.lab.start_box(spec)?;
        let started = vm.started();
        self.the_box = Some(vm);
        self.seen = SiteStatus::default();
        Ok(started)
    }

    /// Switches somebody's own machine on in the place of the box: on the same port of the wire, with the same MAC.
    pub fn switch_machine_on(&mut self, machine: &Machine) -> Result<()> {
        self.tell("somebody's Debian machine: power on");
        self.the_box = Some(self.lab.start(&VmSpec {
            name: "box".to_owned(),
            firmware: Firmware::Bios,
            cpus: 2,
            memory_mib: BoxSpec::default().memory_mib,
            mac: BOX_MAC,
            nic: NicModel::Virtio,
            second_nic: None,
            disks: vec![Disk {
                file: machine.disk.clone(),
                format: DiskFormat::Raw,
                bus: DiskBus::Virtio,
                large_sectors: false,
            }],
            cd: None,
            boot: BootFirst::Disk,
            direct: Some(DirectKernel {
                kernel: machine.kernel.clone(),
                initrd: Some(machine.initrd.clone()),
                command_line: "root=/dev/vda rw console=ttyS0,115200 quiet panic=30".to_owned(),
            }),
            tpm: false,
            self_test: Duration::ZERO,
            kcs: None,
        })?);
        self.seen = SiteStatus::default();
        Ok(())
    }

    /// Whether there is a page at all.
    pub fn page_answers(&self) -> bool {
        read_status(self.page).is_ok()
    }

    pub fn site(&self) -> &TestSite {
        self.site
    }

    pub fn switch_server_on(&mut self, spec: &ServerSpec) -> Result<Instant> {
        let server = self.lab.start_server(spec)?;
        self.tell(format_args!(
            "{}: power on, {} firmware",
            server.name(),
            spec.firmware
        ));
        let started = server.started();
        self.servers.push(server);
        Ok(started)
    }

    /// Switches a server on in the ramdisk, without its firmware's network boot: kernel and command line are those that
    /// the box gives iPXE.
    pub fn switch_server_on_in_ramdisk(&mut self, spec: &ServerSpec) -> Result<Instant> {
        let script = get(
            self.page,
            &format!("/boot/ipxe?mac={}", format_mac(spec.mac())),
            ANSWER,
        )?;
        let script = String::from_utf8(script).context("the iPXE script")?;
        let command_line = kernel_arguments(&script)
            .with_context(|| format!("no kernel in the script:\n{script}"))?;
        let mut files = Vec::new();
        for name in ["kernel", "initrd"] {
            let file = self.lab.dir().join(name);
            let bytes = get(self.page, &format!("/boot/{name}"), ANSWER)?;
            fs::write(&file, bytes).with_context(|| format!("writing {}", file.display()))?;
            files.push(file);
        }
        let initrd = files.pop();
        let kernel = files.pop().context("two files were read")?;
        let server = self.lab.start_server_with(
            spec,
            DirectKernel {
                kernel,
                initrd,
                command_line,
            },
        )?;
        self.tell(format_args!(
            "{}: power on, straight into the ramdisk",
            server.name()
        ));
        let started = server.started();
        self.servers.push(server);
        Ok(started)
    }

    /// Ends all servers; their disk files are complete afterwards.
    pub fn switch_servers_off(&mut self) -> Result<()> {
        for server in std::mem::take(&mut self.servers) {
            self.tell(format_args!("{}: power off", server.name()));
            server.switch_off()?;
        }
        Ok(())
    }

    /// Ends one server; its disk file is complete afterwards.
    pub fn switch_server_off(&mut self, spec: &ServerSpec) -> Result<()> {
        self.tell(format_args!("{}: power off", spec.name()));
        self.take_server(spec)?.switch_off()
    }

    /// The power cord of a server.
    pub fn cut_server_power(&mut self, spec: &ServerSpec) -> Result<()> {
        self.tell(format_args!("{}: power cut", spec.name()));
        self.take_server(spec)?.cut_power()
    }

    fn take_server(&mut self, spec: &ServerSpec) -> Result<Vm> {
        let name = spec.name();
        let at = self.servers.iter().position(|server| server.name() == name);
        let at = at.with_context(|| format!("{name} is off already"))?;
        Ok(self.servers.remove(at))
    }

    /// The power cord of the box.
    pub fn cut_box_power(&mut self) -> Result<()> {
        self.tell("box: power cut");
        self.the_box
            .take()
            .context("the box is off already")?
            .cut_power()
    }

    /// Shuts the box down as its operator does.
    pub fn shut_box_down(&mut self) -> Result<()> {
        self.tell("box: poweroff");
        // The connection may end before the answer.
        let _ = self.box_ssh().run("sudo systemctl poweroff");
        self.wait_box_off(Duration::from_secs(40))
    }

    /// Its machine switches itself off.
    pub fn wait_box_off(&mut self, limit: Duration) -> Result<()> {
        let mut vm = self.the_box.take().context("the box is off already")?;
        let limit = self.lab.limit(limit);
        let asked = Instant::now();
        while vm.check_running().is_ok() {
            ensure!(
                asked.elapsed() < limit,
                "the box did not power off within {} s",
                limit.as_secs()
            );
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    pub fn box_console(&self) -> Result<&Console> {
        let the_box = self.the_box.as_ref().context("the box is off")?;
        Ok(the_box.console())
    }

    /// Of the stick under test.
    pub fn image(&self) -> &Path {
        &self.site.image
    }

    /// Who may log in as `admin`, and signs what the box runs.
    pub fn key(&self) -> &Path {
        &self.site.key
    }

    /// Who can read the backups that the box makes.
    pub fn backup_key(&self) -> &Path {
        &self.site.backup_key
    }

    pub fn box_ssh(&self) -> Ssh {
        Ssh::new(self.box_door, &self.site.key)
    }

    /// A way to a port of the box by its uplink.
    pub fn by_uplink(&mut self, port: u16) -> Result<SocketAddr> {
        let the_box = self.the_box.as_mut().context("the box is off")?;
        the_box.forward_office(port)
    }

    /// What is in use on the box, in MB.
    pub fn box_memory(&self) -> Result<f64> {
        let used = self
            .box_ssh()
            .run("awk '/^MemTotal/{t=$2} /^MemAvailable/{a=$2} END{print t-a}' /proc/meminfo")?;
        megabytes(&used)
    }

    /// What the agent has in memory, in MB.
    pub fn agent_memory(&self) -> Result<f64> {
        megabytes(&self.box_ssh().run("ps -C firstlight-agent -o rss=")?)
    }

    /// A way to log in to the host with this MAC, which the status must give an address.
    pub fn host_ssh(&self, mac: &str) -> Result<Ssh> {
        let host = find_host(&self.seen, mac).context("the status does not list the host")?;
        let address: Ipv4Addr = host
            .address
            .parse()
            .with_context(|| format!("address of {}", host.name))?;
        let door = self.lab.forward(0, SocketAddrV4::new(address, 22))?;
        Ok(Ssh::new(door, &self.site.key))
    }

    /// Waits until the status value satisfies `found`; `limit` is for real hardware.
    pub fn wait_status<T>(
        &mut self,
        what: &str,
        limit: Duration,
        found: impl Fn(&SiteStatus) -> Option<T>,
    ) -> Result<T> {
        self.wait(what, limit, |scene| match read_status(scene.page) {
            Ok(status) => {
                for line in changes(&scene.seen, &status) {
                    scene.tell(format_args!("    {}: {}", line.who, line.what));
                }
                scene.seen = status;
                fail_on_failed(&scene.seen)?;
                Ok(found(&scene.seen))
            }
            // The page comes after the power; when it never does the wait names its own limit.
            Err(_) => Ok(None),
        })
    }

    /// Waits until the image is being written to the disk of this host: far enough to be under way, early enough not to end
    /// before something happens to it.
    pub fn wait_for_write(&mut self, mac: &str, limit: Duration) -> Result<()> {
        let percent = self.wait_status("the image is being written", limit, |status| {
            let host = host_in(status, mac, HostState::Provisioning)?;
            host.percent.filter(|percent| UNDER_WAY.contains(percent))
        })?;
        self.tell(format_args!("{percent} % of the image is on the disk"));
        Ok(())
    }

    /// Waits until `found` has something; `limit` is for real hardware, emulation gets more.
    pub fn wait<T>(
        &mut self,
        what: &str,
        limit: Duration,
        mut found: impl FnMut(&mut Self) -> Result<Option<T>>,
    ) -> Result<T> {
        let (began, limit) = (Instant::now(), self.lab.limit(limit));
        loop {
            if let Some(value) = found(self).with_context(|| format!("waiting for {what}"))? {
                self.tell(format_args!(
                    "{what}  ({:.1} s)",
                    began.elapsed().as_secs_f64()
                ));
                return Ok(value);
            }
            ensure!(
                began.elapsed() < limit,
                "waited {} s for: {what}",
                limit.as_secs()
            );
            for vm in self.the_box.iter_mut().chain(&mut self.servers) {
                vm.check_running()
                    .with_context(|| format!("waiting for {what}"))?;
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Fails when anything tried to leave the site.
    pub fn nothing_leaked(&self) -> Result<()> {
        let leaks = self.lab.wire().report().leaks;
        ensure!(leaks.is_empty(), "frames left the site: {leaks:#?}");
        self.tell("nothing left the site");
        Ok(())
    }

    pub fn status(&self) -> &SiteStatus {
        &self.seen
    }
}

fn megabytes(kib: &str) -> Result<f64> {
    let kib: f64 = kib
        .parse()
        .with_context(|| format!("memory in use: `{kib}`"))?;
    Ok(kib * 1024.0 / 1e6)
}

/// The arguments on the `kernel` line of an iPXE script.
fn kernel_arguments(script: &str) -> Option<String> {
    let line = script
        .lines()
        .find_map(|line| line.strip_prefix("kernel "))?;
    let command = line.split("||").next()?;
    // First the address of the kernel; iPXE's own `initrd=` names a file that QEMU hands over by itself.
    let arguments = command
        .split_whitespace()
        .skip(1)
        .filter(|word| !word.starts_with("initrd="));
    Some(arguments.collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scripts_kernel_arguments_are_read() {
        let script = "#!ipxe\nkernel http://BOX/boot/kernel initrd=initrd firstlight.box=http://BOX quiet || goto again\nboot";
        assert_eq!(
            kernel_arguments(script).as_deref(),
            Some("firstlight.box=http://BOX quiet")
        );
        assert_eq!(kernel_arguments("#!ipxe\nsleep 5"), None);
    }
}
