//! What a machine is made of, and the QEMU command line for it. Pure: the line is a value that tests compare.
//!
//! Options are those that QEMU 7.2 (Debian 12) and 10.0 (Debian 13) share.

use std::fmt;
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use super::wire::{Mac, format_mac};

/// How a machine starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[value(rename_all = "lowercase")]
pub enum Firmware {
    #[default]
    Bios,
    Uefi,
    /// UEFI with Microsoft's keys enrolled and Secure Boot on.
    SecureBoot,
}

impl fmt::Display for Firmware {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bios => "bios",
            Self::Uefi => "uefi",
            Self::SecureBoot => "secureboot",
        })
    }
}

impl FromStr for Firmware {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "bios" => Ok(Self::Bios),
            "uefi" => Ok(Self::Uefi),
            "secureboot" => Ok(Self::SecureBoot),
            _ => Err(format!(
                "`{text}` is no firmware; use bios, uefi or secureboot"
            )),
        }
    }
}

/// Who executes the guest's instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accel {
    Kvm,
    /// QEMU translates; everything takes about ten times as long.
    Tcg,
}

impl Accel {
    /// What to multiply a waiting time by that is right for real hardware.
    pub fn patience(self) -> u32 {
        match self {
            Self::Kvm => 1,
            Self::Tcg => 6,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DiskBus {
    /// A stick: USB mass storage on xHCI, removable.
    Usb,
    Virtio,
    /// On a virtio-scsi controller.
    Scsi,
    Sata,
    Nvme,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DiskFormat {
    Qcow2,
    Raw,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disk {
    pub file: PathBuf,
    pub format: DiskFormat,
    pub bus: DiskBus,
    /// Its sectors have 4096 bytes, also for its firmware (4Kn), which the buses virtio, SCSI and `NVMe` allow.
    pub large_sectors: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NicModel {
    Virtio,
    E1000e,
    Rtl8139,
}

/// A second card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SecondNic {
    /// Its cable ends nowhere.
    Nowhere,
    /// On the same switch.
    Wire(Mac),
    /// On the rest of a customer's network, which QEMU plays: addresses by DHCP (without a router in it, because there is no way out), and
    /// [`OFFICE_DOOR`].
    Office(Mac),
}

/// What QEMU has for a machine in the office.
const OFFICE: &str = "192.0.2.0/24";
/// Somebody there who says [`OFFICE_GREETING`] to everybody.
pub const OFFICE_DOOR: &str = "192.0.2.99:8000";
pub const OFFICE_GREETING: &str = "from-the-office";

/// What the firmware tries first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BootFirst {
    Disk,
    /// The network, by the firmware's own means: the card's iPXE ROM under BIOS, OVMF's PXE under UEFI.
    Network,
    /// The network by UEFI HTTP boot: its firmware has no PXE.
    Http,
    /// As [`Network`](Self::Network) the first time; from the machine's first reset on its disk.
    NetworkOnce,
    /// The CD the first time; from the machine's first reset on its disk.
    CdOnce,
}

/// Kernel and initramfs that QEMU loads itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectKernel {
    pub kernel: PathBuf,
    pub initrd: Option<PathBuf>,
    pub command_line: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmSpec {
    pub name: String,
    pub firmware: Firmware,
    pub cpus: u8,
    pub memory_mib: u32,
    pub mac: Mac,
    pub nic: NicModel,
    pub second_nic: Option<SecondNic>,
    /// The firmware starts from the first.
    pub disks: Vec<Disk>,
    /// An ISO in its optical drive.
    pub cd: Option<PathBuf>,
    pub boot: BootFirst,
    pub direct: Option<DirectKernel>,
    /// A TPM 2.0, the same one at every start.
    pub tpm: bool,
    /// How long its firmware waits before it boots anything, as real ones do.
    #[serde(default, skip_serializing_if = "Duration::is_zero")]
    pub self_test: Duration,
    /// Its own way to its BMC (IPMI by KCS): a port of loopback, where the BMC listens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kcs: Option<u16>,
}

impl VmSpec {
    /// Name of the file with its UEFI variables.
    pub fn variables_file(&self) -> Option<String> {
        (self.firmware != Firmware::Bios).then(|| format!("{}.{}.vars", self.name, self.firmware))
    }
}

/// UEFI code (read only) and this machine's own variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flash {
    pub code: PathBuf,
    pub variables: PathBuf,
}

/// Descriptors that QEMU inherits, each one end of a socket pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sockets {
    pub console: RawFd,
    pub monitor: RawFd,
    pub wire: RawFd,
    pub second_wire: Option<RawFd>,
    /// To the program that is the TPM.
    pub tpm: Option<RawFd>,
}

/// What a machine does first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    /// Its firmware starts; the clock on its board says this.
    PowerOn(OffsetDateTime),
    /// It waits for the state of a machine like it that was stopped.
    Wait,
}

/// An emulator looks for the translation of the next code in a table of 64 MiB and more, at random: on small pages a quarter
/// of all its time went into that, on huge ones a sixth.
pub const fn environment(accel: Accel) -> Option<(&'static str, &'static str)> {
    match accel {
        Accel::Kvm => None,
        Accel::Tcg => Some(("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1")),
    }
}

/// The arguments after `qemu-system-x86_64`.
pub fn command_line(
    spec: &VmSpec,
    accel: Accel,
    flash: Option<&Flash>,
    sockets: Sockets,
    begin: Begin,
) -> Vec<String> {
    let mut line = Line::default();
    line.flag("-nodefaults");
    line.flag("-no-user-config");
    line.option("-name", &spec.name);
    // Firmware with an SMM-protected variable store is what Secure Boot means; the others boot faster without SMM.
    let smm = if spec.firmware == Firmware::SecureBoot {
        "on"
    } else {
        "off"
    };
    line.option("-machine", format!("q35,smm={smm},vmport=off"));
    match accel {
        Accel::Kvm => {
            line.option("-accel", "kvm");
            line.option("-cpu", "host");
        }
        // `max` was measured 39 % slower; RDRAND spares firmware and kernel the wait for entropy. Model 28 is an Atom that
        // does not speculate, which is true of an emulated one: Linux then leaves page-table isolation and retpolines out,
        // each of which costs an emulator more than all the rest. Translations of a box full of Go programs fill 1.5 GiB;
        // with less of it everything is translated again and again.
        Accel::Tcg => {
            line.option("-accel", "tcg,thread=multi,tb-size=2048");
            line.option("-cpu", "Nehalem,model=28,stepping=10,+rdrand");
        }
    }
    line.option("-smp", spec.cpus.to_string());
    line.option("-m", spec.memory_mib.to_string());
    line.option("-uuid", machine_uuid(spec.mac));
    // The board's clock stops with the machine: whoever goes on from a snapshot agrees with the others on the time.
    match begin {
        Begin::PowerOn(time) => line.option("-rtc", format!("base={},clock=vm", date(time))),
        Begin::Wait => {
            line.option("-rtc", "clock=vm");
            line.option("-incoming", "defer");
        }
    }
    line.option("-display", "none");
    line.option("-vga", "std");
    line.option(
        "-chardev",
        format!("socket,id=console,fd={}", sockets.console),
    );
    line.option("-serial", "chardev:console");
    line.option(
        "-chardev",
        format!("socket,id=monitor,fd={}", sockets.monitor),
    );
    line.option("-mon", "chardev=monitor,mode=control");
    // Without an RNG OVMF 2025.02 offers no network boot.
    line.option("-device", "virtio-rng-pci");
    if let Some(flash) = flash {
        line.flash(spec.firmware, flash);
    }
    if let Some(tpm) = sockets.tpm {
        line.tpm(tpm);
    }
    if !spec.self_test.is_zero() {
        // OVMF and SeaBIOS show their menu for so long, to nobody.
        let milliseconds = spec.self_test.as_millis();
        line.option("-boot", format!("menu=on,splash-time={milliseconds}"));
    }
    if let Some(port) = spec.kcs {
        line.kcs(port);
    }
    if spec.boot == BootFirst::Http {
        line.no_pxe();
    }
    line.nic(spec, sockets.wire);
    match (spec.second_nic, sockets.second_wire) {
        (Some(SecondNic::Wire(mac)), Some(wire)) => {
            line.stream("second", wire);
            let mac = format_mac(mac);
            line.option(
                "-device",
                format!("e1000e,netdev=second,mac={mac},romfile="),
            );
        }
        (Some(SecondNic::Office(mac)), _) => {
            line.option(
                "-netdev",
                format!("user,id=office,restrict=on,ipv6=off,net={OFFICE},guestfwd=tcp:{OFFICE_DOOR}-cmd:echo {OFFICE_GREETING}"),
            );
            let mac = format_mac(mac);
            line.option(
                "-device",
                format!("e1000e,netdev=office,mac={mac},romfile="),
            );
        }
        (Some(_), _) => {
            line.option("-netdev", "hubport,id=nowhere,hubid=0");
            line.option("-device", "e1000e,netdev=nowhere,romfile=");
        }
        (None, _) => {}
    }
    line.disks(&spec.disks, spec.boot);
    if let Some(cd) = &spec.cd {
        line.cd(cd, spec.boot);
    }
    if let Some(direct) = &spec.direct {
        line.option("-kernel", path(&direct.kernel));
        line.option("-append", &direct.command_line);
        if let Some(initrd) = &direct.initrd {
            line.option("-initrd", path(initrd));
        }
    }
    line.0
}

/// As QEMU reads it, in UTC.
fn date(time: OffsetDateTime) -> String {
    let (date, hour, minute, second) = (time.date(), time.hour(), time.minute(), time.second());
    format!("{date}T{hour:02}:{minute:02}:{second:02}")
}

/// How the UUIDs of all machines here begin: who sees one knows that nobody's data are on it.
pub const MACHINES: &str = "5f1a57e0-0000-4000-8000-";

/// The same machine has the same UUID at every start.
fn machine_uuid(mac: Mac) -> String {
    format!("{MACHINES}{}", format_mac(mac).replace(':', ""))
}

/// A path inside a QEMU option: a comma would end the value.
fn path(path: &Path) -> String {
    path.display().to_string().replace(',', ",,")
}

#[derive(Default)]
struct Line(Vec<String>);

impl Line {
    fn flag(&mut self, name: &str) {
        self.0.push(name.to_owned());
    }

    fn option(&mut self, name: &str, value: impl Into<String>) {
        self.0.extend([name.to_owned(), value.into()]);
    }

    fn flash(&mut self, firmware: Firmware, flash: &Flash) {
        if firmware == Firmware::SecureBoot {
            self.option("-global", "driver=cfi.pflash01,property=secure,value=on");
        }
        self.option(
            "-drive",
            format!(
                "if=pflash,unit=0,format=raw,readonly=on,file={}",
                path(&flash.code)
            ),
        );
        self.option(
            "-drive",
            format!(
                "if=pflash,unit=1,format=raw,file={}",
                path(&flash.variables)
            ),
        );
    }

    fn tpm(&mut self, socket: RawFd) {
        self.option("-chardev", format!("socket,id=tpm,fd={socket}"));
        self.option("-tpmdev", "emulator,id=tpm,chardev=tpm");
        self.option("-device", "tpm-crb,tpmdev=tpm");
    }

    /// Of UEFI firmware.
    fn no_pxe(&mut self) {
        for family in ["IPv4", "IPv6"] {
            let switch = format!("name=opt/org.tianocore/{family}PXESupport,string=n");
            self.option("-fw_cfg", switch);
        }
    }

    fn kcs(&mut self, port: u16) {
        let way = format!("socket,id=bmc-wire,host=127.0.0.1,port={port},reconnect=1");
        self.option("-chardev", way);
        self.option("-device", "ipmi-bmc-extern,id=bmc,chardev=bmc-wire");
        self.option("-device", "isa-ipmi-kcs,bmc=bmc");
    }

    fn nic(&mut self, spec: &VmSpec, wire: RawFd) {
        let model = match spec.nic {
            NicModel::Virtio => "virtio-net-pci",
            NicModel::E1000e => "e1000e",
            NicModel::Rtl8139 => "rtl8139",
        };
        let order = match spec.boot {
            BootFirst::Network | BootFirst::Http => ",bootindex=1",
            BootFirst::NetworkOnce => ",bootindex=1,id=nic",
            BootFirst::Disk | BootFirst::CdOnce => "",
        };
        // OVMF has PXE of its own for virtio, and no driver for the others: those bring it in their ROM, as cards do. A machine
        // that does not boot from it needs none.
        let rom = match (spec.firmware, spec.nic, spec.boot) {
            (_, _, BootFirst::Disk | BootFirst::CdOnce)
            | (Firmware::Uefi | Firmware::SecureBoot, NicModel::Virtio, _) => ",romfile=",
            _ => "",
        };
        self.stream("wire", wire);
        self.option(
            "-device",
            format!(
                "{model},netdev=wire,mac={}{order}{rom}",
                format_mac(spec.mac)
            ),
        );
    }

    fn stream(&mut self, id: &str, wire: RawFd) {
        let stream = format!("stream,id={id},server=off,addr.type=fd,addr.str={wire}");
        self.option("-netdev", stream);
    }

    /// At the last port: disks take the first that is free.
    fn cd(&mut self, file: &Path, boot: BootFirst) {
        let order = match boot {
            BootFirst::CdOnce => ",bootindex=1",
            BootFirst::Disk | BootFirst::Network | BootFirst::Http | BootFirst::NetworkOnce => "",
        };
        let file = path(file);
        self.option(
            "-drive",
            format!("if=none,id=iso,format=raw,media=cdrom,readonly=on,file={file}"),
        );
        self.option(
            "-device",
            format!("ide-cd,bus=ide.5,drive=iso,id=cd{order}"),
        );
    }

    fn disks(&mut self, disks: &[Disk], boot: BootFirst) {
        if disks.iter().any(|disk| disk.bus == DiskBus::Usb) {
            self.option("-device", "qemu-xhci,id=usb");
        }
        if disks.iter().any(|disk| disk.bus == DiskBus::Scsi) {
            self.option("-device", "virtio-scsi-pci,id=scsi");
        }
        let first = match boot {
            BootFirst::Disk => 1,
            BootFirst::Network | BootFirst::Http | BootFirst::NetworkOnce | BootFirst::CdOnce => 2,
        };
        for (number, disk) in disks.iter().enumerate() {
            self.disk(number, disk, first + number);
        }
    }

    fn disk(&mut self, number: usize, disk: &Disk, order: usize) {
        let format = match disk.format {
            DiskFormat::Qcow2 => "qcow2",
            DiskFormat::Raw => "raw",
        };
        let id = match number {
            0 => "disk".to_owned(),
            _ => format!("disk{number}"),
        };
        let file = path(&disk.file);
        self.option(
            "-drive",
            format!("if=none,id={id},format={format},file={file},discard=unmap"),
        );
        let device = match disk.bus {
            DiskBus::Usb => "usb-storage,bus=usb.0,removable=on".to_owned(),
            DiskBus::Virtio => "virtio-blk-pci".to_owned(),
            DiskBus::Scsi => "scsi-hd,bus=scsi.0".to_owned(),
            // A port of AHCI has one disk.
            DiskBus::Sata => format!("ide-hd,bus=ide.{number}"),
            DiskBus::Nvme => "nvme".to_owned(),
        };
        let serial = match disk.bus {
            DiskBus::Usb => String::new(),
            _ => format!(",serial={}", disk_serial(number)),
        };
        let sectors = if disk.large_sectors {
            ",logical_block_size=4096,physical_block_size=4096"
        } else {
            ""
        };
        self.option(
            "-device",
            format!("{device},drive={id}{serial}{sectors},bootindex={order}"),
        );
    }
}

/// Of the disk at this place in [`VmSpec::disks`], unless it is on USB.
pub fn disk_serial(number: usize) -> String {
    format!("firstlight-{number}")
}

#[cfg(test)]
mod tests;
