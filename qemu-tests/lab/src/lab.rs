//! One site in virtual machines: the wire, the box from its stick, servers, and the directory with their disks.

mod resume;

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use firstlight_api::site::{ClusterChoice, Ipv4Network, SiteConfig};
use time::OffsetDateTime;

use super::accel::choose_accel;
use super::clock::Clock;
use super::disks;
use super::machine::{Setting, Vm, flash_for};
use super::qemu::{
    Accel, Begin, BootFirst, DirectKernel, Disk, DiskBus, DiskFormat, Firmware, NicModel,
    SecondNic, VmSpec,
};
use super::router::Router;
use super::snapshot::Snapshot;
use super::wire::{Mac, Site, Wire, WireSpec};

pub use resume::Resumed;

/// For a server that becomes a node: kubeadm refuses a control plane with less than 1700 MB.
pub const NODE_MEMORY_MIB: u32 = 2560;

pub const BOX_MAC: Mac = [0x52, 0x54, 0x00, 0xf1, 0x00, 0x00];
/// Of its second card, where the site has an uplink.
const BOX_OFFICE_MAC: Mac = [0x52, 0x54, 0x00, 0xf1, 0x01, 0x00];

/// What a lab is made for.
#[derive(Clone, Debug, Default)]
pub struct LabSpec {
    /// Made by `firstlight build`; never written to.
    pub image: PathBuf,
    /// The settings on the image.
    pub site: SiteConfig,
    /// Snapshots, and what is known of this host.
    pub cache: PathBuf,
    /// Where the disks stay after the lab; without it they are removed.
    pub keep: Option<PathBuf>,
    /// Capture file of the wire.
    pub capture: Option<PathBuf>,
    pub clock: Clock,
}

#[derive(Clone, Debug)]
pub struct BoxSpec {
    pub firmware: Firmware,
    pub memory_mib: u32,
    pub stick_gib: u32,
    /// A raw file of somebody's, in a machine with a second network card.
    pub data_disk: Option<PathBuf>,
    pub tpm: bool,
}

impl Default for BoxSpec {
    fn default() -> Self {
        Self {
            firmware: Firmware::Bios,
            memory_mib: 4096,
            stick_gib: 16,
            data_disk: None,
            tpm: false,
        }
    }
}

/// A server beside the box. Its blank disks are made at the first start and kept until the lab ends.
#[derive(Clone, Debug)]
pub struct ServerSpec {
    /// From 1; gives name and MAC.
    pub number: u8,
    pub firmware: Firmware,
    pub memory_mib: u32,
    pub nic: NicModel,
    /// One more on the same switch.
    pub second_nic: bool,
    /// Its firmware starts from the first.
    pub disks: Vec<ServerDisk>,
    /// An ISO in its optical drive.
    pub cd: Option<PathBuf>,
    pub boot: BootFirst,
    pub tpm: bool,
    /// How long its firmware waits at each start.
    pub self_test: Duration,
    /// As in [`VmSpec::kcs`].
    pub kcs: Option<u16>,
}

#[derive(Clone, Debug)]
pub struct ServerDisk {
    pub bus: DiskBus,
    /// Of 4096 bytes.
    pub large_sectors: bool,
    pub content: DiskContent,
}

#[derive(Clone, Debug)]
pub enum DiskContent {
    Blank {
        gib: u32,
    },
    /// A raw file with something in it.
    Data(PathBuf),
    /// Taken out. What was on it stays, until it is put back.
    Absent,
}

impl ServerDisk {
    pub fn blank(bus: DiskBus, gib: u32) -> Self {
        Self {
            bus,
            large_sectors: false,
            content: DiskContent::Blank { gib },
        }
    }

    /// With what is in a raw file.
    pub fn data(bus: DiskBus, file: PathBuf) -> Self {
        Self {
            content: DiskContent::Data(file),
            ..Self::blank(bus, 0)
        }
    }
}

impl ServerSpec {
    /// A blank server; BIOS servers get other hardware than UEFI ones, so that both kinds are met.
    pub fn blank(number: u8, firmware: Firmware) -> Self {
        let (nic, bus) = match firmware {
            Firmware::Bios => (NicModel::E1000e, DiskBus::Sata),
            Firmware::Uefi | Firmware::SecureBoot => (NicModel::Virtio, DiskBus::Virtio),
        };
        Self {
            number,
            firmware,
            memory_mib: 1024,
            nic,
            second_nic: false,
            disks: vec![ServerDisk::blank(bus, 8)],
            cd: None,
            boot: BootFirst::Network,
            tpm: false,
            self_test: Duration::ZERO,
            kcs: None,
        }
    }

    pub fn mac(&self) -> Mac {
        [0x52, 0x54, 0x00, 0xf1, 0x00, self.number]
    }

    pub fn second_mac(&self) -> Mac {
        [0x52, 0x54, 0x00, 0xf1, 0x01, self.number]
    }

    pub fn name(&self) -> String {
        format!("server-{}", self.number)
    }
}

pub struct Lab {
    spec: LabSpec,
    dir: LabDir,
    accel: Accel,
    wire: Wire,
    began: Instant,
    /// What the machines' clocks say at an instant of ours.
    clock: Mutex<(OffsetDateTime, Instant)>,
    /// What the disks here are overlays of.
    below: Mutex<Option<Snapshot>>,
}

impl Lab {
    /// `load_kernel` reads the image's, where it is not known yet what this host can run.
    pub fn set_up(spec: LabSpec, load_kernel: impl FnOnce() -> Result<Vec<u8>>) -> Result<Self> {
        let dir = LabDir::make(spec.keep.as_deref(), &spec.cache)?;
        let accel = choose_accel(&spec.cache, &dir.path, load_kernel)?;
        let wire =
            Wire::lay(&plan_wire(&spec.site, spec.capture.clone())).context("laying the wire")?;
        let began = Instant::now();
        Ok(Self {
            spec,
            dir,
            accel,
            wire,
            began,
            clock: Mutex::new((OffsetDateTime::now_utc(), began)),
            below: Mutex::new(None),
        })
    }

    pub fn accel(&self) -> Accel {
        self.accel
    }

    /// How long to wait for something that real hardware does within `real`.
    pub fn limit(&self, real: Duration) -> Duration {
        let emulated = real * self.accel.patience();
        self.spec.clock.stretch(self.accel, emulated)
    }

    pub fn wire(&self) -> &Wire {
        &self.wire
    }

    /// Disks, consoles and logs of the machines.
    pub fn dir(&self) -> &Path {
        &self.dir.path
    }

    /// The settings on the image.
    pub fn site(&self) -> &SiteConfig {
        &self.spec.site
    }

    pub fn box_address(&self) -> Ipv4Addr {
        self.spec.site.provisioning.address.address()
    }

    /// Switches the box on; a second time it finds its stick as it left it.
    pub fn start_box(&self, spec: &BoxSpec) -> Result<Vm> {
        let vm = self.plan_box(spec);
        let stick = self.stick();
        if !stick.exists() {
            disks::stick(&self.spec.image, &stick, spec.stick_gib)?;
        }
        self.start(&vm)
    }

    /// It has died: the next start is from a new one.
    pub fn lose_stick(&self) -> Result<()> {
        fs::remove_file(self.stick()).context("removing the stick")
    }

    /// What the box runs from, as a qcow2 file.
    pub fn stick(&self) -> PathBuf {
        self.dir.path.join("stick.qcow2")
    }

    /// The box's TPM is another one at its next start: it is another machine.
    pub fn lose_tpm(&self) -> Result<()> {
        fs::remove_dir_all(self.dir.path.join("box.tpm")).context("removing the TPM")
    }

    pub fn plan_box(&self, spec: &BoxSpec) -> VmSpec {
        let stick = Disk {
            file: self.stick(),
            format: DiskFormat::Qcow2,
            bus: DiskBus::Usb,
            large_sectors: false,
        };
        let data = spec.data_disk.clone().map(|file| Disk {
            file,
            format: DiskFormat::Raw,
            bus: DiskBus::Sata,
            large_sectors: false,
        });
        VmSpec {
            name: "box".to_owned(),
            firmware: spec.firmware,
            cpus: 2,
            memory_mib: spec.memory_mib,
            mac: BOX_MAC,
            nic: NicModel::Virtio,
            second_nic: match (&self.spec.site.uplink, &spec.data_disk) {
                (Some(_), _) => Some(SecondNic::Office(BOX_OFFICE_MAC)),
                (None, Some(_)) => Some(SecondNic::Nowhere),
                (None, None) => None,
            },
            disks: std::iter::once(stick).chain(data).collect(),
            cd: None,
            boot: BootFirst::Disk,
            direct: None,
            tpm: spec.tpm,
            self_test: Duration::ZERO,
            kcs: None,
        }
    }

    /// Switches a server on.
    pub fn start_server(&self, spec: &ServerSpec) -> Result<Vm> {
        self.start_server_as(spec, None)
    }

    /// Switches a server on with a kernel that QEMU loads, for measuring what comes after the firmware.
    pub fn start_server_with(&self, spec: &ServerSpec, direct: DirectKernel) -> Result<Vm> {
        self.start_server_as(spec, Some(direct))
    }

    fn start_server_as(&self, spec: &ServerSpec, direct: Option<DirectKernel>) -> Result<Vm> {
        for (number, disk) in spec.disks.iter().enumerate() {
            let file = self.blank_disk(spec, number);
            if let (DiskContent::Blank { gib }, false) = (&disk.content, file.exists()) {
                disks::blank(&file, *gib)?;
            }
        }
        self.start(&VmSpec {
            direct,
            ..self.plan_server(spec)
        })
    }

    pub fn plan_server(&self, spec: &ServerSpec) -> VmSpec {
        let disks = spec.disks.iter().enumerate().filter_map(|(number, disk)| {
            let (file, format) = match &disk.content {
                DiskContent::Data(file) => (file.clone(), DiskFormat::Raw),
                DiskContent::Blank { .. } => (self.blank_disk(spec, number), DiskFormat::Qcow2),
                DiskContent::Absent => return None,
            };
            Some(Disk {
                file,
                format,
                bus: disk.bus,
                large_sectors: disk.large_sectors,
            })
        });
        VmSpec {
            name: spec.name(),
            firmware: spec.firmware,
            cpus: 2,
            memory_mib: spec.memory_mib,
            mac: spec.mac(),
            nic: spec.nic,
            second_nic: spec.second_nic.then(|| SecondNic::Wire(spec.second_mac())),
            disks: disks.collect(),
            cd: spec.cd.clone(),
            boot: spec.boot,
            direct: None,
            tpm: spec.tpm,
            self_test: spec.self_test,
            kcs: spec.kcs,
        }
    }

    fn blank_disk(&self, spec: &ServerSpec, number: usize) -> PathBuf {
        let name = match number {
            0 => format!("{}.qcow2", spec.name()),
            _ => format!("{}-{number}.qcow2", spec.name()),
        };
        self.dir.path.join(name)
    }

    /// A server that is off gets another first disk, which is blank.
    pub fn replace_disk(&self, spec: &ServerSpec) -> Result<()> {
        let old = self.blank_disk(spec, 0);
        fs::remove_file(&old).with_context(|| format!("removing {}", old.display()))
    }

    /// The whole first disk of a server that is off and began blank, as a sparse raw file.
    pub fn copy_disk(&self, spec: &ServerSpec, to: &Path) -> Result<()> {
        disks::to_raw(&self.blank_disk(spec, 0), to)
    }

    /// Any machine, on the lab's wire.
    pub fn start(&self, spec: &VmSpec) -> Result<Vm> {
        self.start_as(spec, Begin::PowerOn(self.now()))
    }

    fn start_as(&self, spec: &VmSpec, begin: Begin) -> Result<Vm> {
        let flash = flash_for(spec, &self.dir.path)?;
        let port = || self.wire.attach().context("a port of the wire");
        let wire = port()?;
        let second = matches!(spec.second_nic, Some(SecondNic::Wire(_)));
        let second_wire = second.then(port).transpose()?;
        let clock = self
            .spec
            .clock
            .environment(self.accel, self.began.elapsed())?;
        let setting = Setting {
            accel: self.accel,
            environment: &clock,
            flash: flash.as_ref(),
            wire,
            second_wire,
            dir: &self.dir.path,
            begin,
        };
        Vm::start(spec, setting)
    }

    /// What the machines' clocks say.
    fn now(&self) -> OffsetDateTime {
        let (then, at) = *self.clock.lock().unwrap_or_else(PoisonError::into_inner);
        then + self.spec.clock.passed(self.accel, at.elapsed())
    }

    /// Leases addresses on the wire that the box knows nothing of.
    pub fn plug_router_in(&self) -> Result<Router> {
        let cable = self.wire.attach().context("a port of the wire")?;
        Router::plug_in(&self.spec.site, &cable)
    }

    /// Whose address what is forwarded comes from, as the site sees it.
    pub fn desk_address(&self) -> Ipv4Addr {
        plan_wire(&self.spec.site, None).host_address
    }

    /// 127.0.0.1:`port` (0: any free one) carried to the box's page.
    pub fn forward_page(&self, port: u16) -> Result<SocketAddr> {
        self.forward(port, SocketAddrV4::new(self.box_address(), 80))
    }

    pub fn forward(&self, port: u16, target: SocketAddrV4) -> Result<SocketAddr> {
        self.wire
            .forward(port, target)
            .with_context(|| format!("forwarding 127.0.0.1:{port} to {target}"))
    }
}

fn plan_wire(site: &SiteConfig, capture: Option<PathBuf>) -> WireSpec {
    let address = site.provisioning.address;
    let pods = match &site.cluster {
        ClusterChoice::Generated(cluster) => Some(cluster.pod_cidr),
        ClusterChoice::None | ClusterChoice::Manual => None,
    };
    let networks = site.fixed_networks();
    let networks = networks.map(|(name, fixed)| (site.networks[name].vlan, fixed.subnet));
    // The box lets servers out, so who answers them may be from anywhere.
    let out = site
        .lets_servers_out()
        .then(|| (None, Ipv4Network::around(Ipv4Addr::UNSPECIFIED, 0)));
    let networks = networks.chain(out).collect();
    let vlan = |name: &str| site.networks.get(name).and_then(|network| network.vlan);
    let ipv6 = site
        .ipv6_networks()
        .map(|(name, subnet)| (vlan(name), subnet));
    let ipv6_pods = match &site.cluster {
        ClusterChoice::Generated(cluster) => cluster.ipv6.map(|ipv6| {
            let network = cluster.network.as_deref().unwrap_or_default();
            (vlan(network), ipv6.pods)
        }),
        ClusterChoice::None | ClusterChoice::Manual => None,
    };
    let ipv6 = ipv6.chain(ipv6_pods).collect();
    let taken = |candidate: Ipv4Addr| {
        let host = site
            .hosts
            .iter()
            .any(|host| host.address == Some(candidate));
        host || candidate == address.address() || site.provisioning.range.contains(candidate)
    };
    let hosts = (address.first_host().to_bits() + 1..=address.last_host().to_bits())
        .map(Ipv4Addr::from_bits);
    let host_address = hosts
        .into_iter()
        .find(|&candidate| !taken(candidate))
        .unwrap_or(address.last_host());
    WireSpec {
        site: Site::new(address.network(), address.prefix())
            .with_pods(pods)
            .with_networks(networks)
            .with_ipv6(ipv6),
        host_address,
        capture,
    }
}

/// The directory of a running lab, named after its process so that what a killed one left can be told and removed.
struct LabDir {
    path: PathBuf,
    keep: bool,
}

impl LabDir {
    fn make(keep: Option<&Path>, cache: &Path) -> Result<Self> {
        let path = if let Some(path) = keep {
            std::path::absolute(path)?
        } else {
            static COUNT: AtomicU32 = AtomicU32::new(0);
            let base = cache.join("vm");
            sweep(&base);
            base.join(format!(
                "{}-{}",
                std::process::id(),
                COUNT.fetch_add(1, Ordering::Relaxed)
            ))
        };
        fs::create_dir_all(&path).with_context(|| format!("creating {}", path.display()))?;
        Ok(Self {
            path,
            keep: keep.is_some(),
        })
    }
}

impl Drop for LabDir {
    fn drop(&mut self) {
        if !self.keep {
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// Removes the directories of labs whose process is gone.
fn sweep(base: &Path) {
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let process = name
            .to_string_lossy()
            .split('-')
            .next()
            .and_then(|pid| pid.parse::<u32>().ok());
        if process.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests;
