//! The rows.

use std::path::Path;

use lab::{DiskBus, Firmware, NicModel, ServerDisk, ServerSpec};

pub struct Row {
    pub name: &'static str,
    firmware: Firmware,
    nic: NicModel,
    bus: DiskBus,
    /// Of its disk: 4Kn.
    large_sectors: bool,
    pub beside: Beside,
    /// Of its `BareMetalHost`, in JSON.
    pub hints: Option<&'static str>,
    /// Place of the disk that is written.
    pub root: usize,
    /// A second blank disk, larger than the first, and the two hold the same. Either is taken out in the end.
    pub mirror: bool,
}

/// What else is there, and must be as it was afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beside {
    Nothing,
    /// A disk with data in the server, in front of the blank one.
    Data,
    /// A disk with data and a second network card in the box.
    DataInTheBox,
}

impl Row {
    const fn plain(name: &'static str, firmware: Firmware, nic: NicModel, bus: DiskBus) -> Self {
        Self {
            name,
            firmware,
            nic,
            bus,
            large_sectors: false,
            beside: Beside::Nothing,
            hints: None,
            root: 0,
            mirror: false,
        }
    }

    /// `data`: somebody's disk.
    pub fn server(&self, data: &Path) -> ServerSpec {
        let blank = ServerDisk {
            large_sectors: self.large_sectors,
            ..ServerDisk::blank(self.bus, 8)
        };
        let disks = match self.beside {
            Beside::Nothing if self.mirror => vec![blank, ServerDisk::blank(self.bus, 9)],
            Beside::Nothing | Beside::DataInTheBox => vec![blank],
            Beside::Data => vec![ServerDisk::data(self.bus, data.to_owned()), blank],
        };
        ServerSpec {
            nic: self.nic,
            disks,
            ..ServerSpec::blank(2, self.firmware)
        }
    }
}

/// A UEFI server whose card is not virtio starts by iPXE in the card's ROM, which Secure Boot refuses: of those cards OVMF has no
/// driver of its own.
pub const ROWS: [Row; 15] = [
    Row::plain(
        "bios-virtio-virtio",
        Firmware::Bios,
        NicModel::Virtio,
        DiskBus::Virtio,
    ),
    Row::plain(
        "bios-e1000e-sata",
        Firmware::Bios,
        NicModel::E1000e,
        DiskBus::Sata,
    ),
    Row::plain(
        "bios-rtl8139-nvme",
        Firmware::Bios,
        NicModel::Rtl8139,
        DiskBus::Nvme,
    ),
    Row::plain(
        "uefi-virtio-sata",
        Firmware::Uefi,
        NicModel::Virtio,
        DiskBus::Sata,
    ),
    Row::plain(
        "uefi-e1000e-nvme",
        Firmware::Uefi,
        NicModel::E1000e,
        DiskBus::Nvme,
    ),
    Row::plain(
        "uefi-rtl8139-virtio",
        Firmware::Uefi,
        NicModel::Rtl8139,
        DiskBus::Virtio,
    ),
    Row::plain(
        "secureboot-virtio-nvme",
        Firmware::SecureBoot,
        NicModel::Virtio,
        DiskBus::Nvme,
    ),
    Row::plain(
        "secureboot-virtio-scsi",
        Firmware::SecureBoot,
        NicModel::Virtio,
        DiskBus::Scsi,
    ),
    Row {
        large_sectors: true,
        ..Row::plain(
            "uefi-4kn-nvme",
            Firmware::Uefi,
            NicModel::Virtio,
            DiskBus::Nvme,
        )
    },
    Row {
        large_sectors: true,
        ..Row::plain(
            "secureboot-4kn-scsi",
            Firmware::SecureBoot,
            NicModel::Virtio,
            DiskBus::Scsi,
        )
    },
    Row {
        beside: Beside::Data,
        hints: Some(r#"{"serialNumber": "firstlight-1"}"#),
        root: 1,
        ..Row::plain(
            "uefi-two-sata",
            Firmware::Uefi,
            NicModel::Virtio,
            DiskBus::Sata,
        )
    },
    Row {
        beside: Beside::Data,
        hints: Some(r#"{"deviceName": "/dev/vdb"}"#),
        root: 1,
        ..Row::plain(
            "bios-two-virtio",
            Firmware::Bios,
            NicModel::Virtio,
            DiskBus::Virtio,
        )
    },
    Row {
        beside: Beside::DataInTheBox,
        ..Row::plain(
            "box-with-other-uses",
            Firmware::Uefi,
            NicModel::Virtio,
            DiskBus::Virtio,
        )
    },
    Row {
        mirror: true,
        ..Row::plain(
            "uefi-mirror-sata",
            Firmware::Uefi,
            NicModel::Virtio,
            DiskBus::Sata,
        )
    },
    Row {
        mirror: true,
        ..Row::plain(
            "bios-mirror-virtio",
            Firmware::Bios,
            NicModel::Virtio,
            DiskBus::Virtio,
        )
    },
];
