//! Objects with something in every field. The files in `examples/` beside this crate hold them as they are on the wire;
//! the Go test reads those files, the tests here keep them up to date, and the tests of the CRDs use the values.

use super::{
    AutomatedCleaningMode, BareMetalHost, BareMetalHostSpec, BareMetalHostStatus, Bios, BmcDetails,
    BootMode, ChecksumType, Condition, ConditionStatus, Cpu, CredentialsStatus, CustomDeploy,
    ErrorType, FINALIZER, Firmware, FirmwareConfig, HardwareData, HardwareDetails,
    HardwareRaidVolume, HardwareSystemVendor, Image, InspectionMode, Lldp, Nic, ObjectReference,
    OperationHistory, OperationMetric, OperationalStatus, ProvisionStatus, ProvisioningState,
    RaidConfig, RootDeviceHints, SecretReference, SoftwareRaidVolume, Storage, Taint, Vlan,
    annotations,
};

const THEN: &str = "2026-11-21T08:00:00Z";
const MAC: &str = "52:54:00:c0:ff:ee";

fn text(text: &str) -> String {
    text.to_owned()
}

fn secret(name: &str) -> SecretReference {
    SecretReference {
        name: text(name),
        namespace: text("default"),
    }
}

fn image() -> Image {
    Image {
        url: text("http://172.22.0.1/images/node.raw.zst"),
        checksum: "ab".repeat(32),
        checksum_type: Some(ChecksumType::Sha256),
        format: Some(text("raw")),
        oci_auth_secret_name: Some(text("registry-login")),
    }
}

fn hints() -> RootDeviceHints {
    RootDeviceHints {
        device_name: text("/dev/vda"),
        hctl: text("0:0:0:0"),
        model: text("QEMU"),
        vendor: text("QEMU"),
        serial_number: text("S1"),
        min_size_gigabytes: Some(8),
        wwn: text("0x5000"),
        wwn_with_extension: text("0x50000001"),
        wwn_vendor_extension: text("0x0001"),
        rotational: Some(false),
    }
}

fn raid() -> RaidConfig {
    RaidConfig {
        hardware_raid_volumes: Some(vec![HardwareRaidVolume {
            size_gibibytes: Some(8),
            level: text("1"),
            name: text("root"),
            rotational: Some(true),
            number_of_physical_disks: Some(2),
            controller: text("RAID.1"),
            physical_disks: vec![text("Disk.1"), text("Disk.2")],
        }]),
        software_raid_volumes: Some(vec![SoftwareRaidVolume {
            size_gibibytes: Some(8),
            level: text("0"),
            root_volume: false,
            physical_disks: vec![hints(), hints()],
        }]),
    }
}

fn firmware() -> FirmwareConfig {
    FirmwareConfig {
        virtualization_enabled: Some(true),
        simultaneous_multithreading_enabled: Some(false),
        sriov_enabled: Some(true),
    }
}

fn method() -> CustomDeploy {
    CustomDeploy {
        method: text("install_somehow"),
    }
}

fn spec() -> BareMetalHostSpec {
    BareMetalHostSpec {
        taints: vec![Taint {
            key: text("example.org/slow"),
            value: text("yes"),
            effect: text("NoSchedule"),
            time_added: Some(text(THEN)),
        }],
        bmc: Some(BmcDetails {
            address: text("redfish://bmc.example.org/1"),
            credentials_name: text("host-1-bmc"),
            disable_certificate_verification: true,
        }),
        raid: Some(raid()),
        firmware: Some(firmware()),
        hardware_profile: text("unknown"),
        root_device_hints: Some(hints()),
        boot_mode: Some(BootMode::Uefi),
        boot_mac_address: text(MAC),
        online: true,
        consumer_ref: Some(ObjectReference {
            api_version: text("infrastructure.cluster.x-k8s.io/v1beta2"),
            kind: text("Metal3Machine"),
            name: text("firstlight-abc"),
            namespace: text("default"),
            uid: text("5f1a57e0-0000-4000-8000-000000000001"),
            resource_version: text("7"),
            field_path: text("spec"),
        }),
        image: Some(image()),
        user_data: Some(secret("host-1-user")),
        preprovisioning_network_data_name: text("host-1-preprovisioning"),
        network_data: Some(secret("host-1-network")),
        meta_data: Some(secret("host-1-meta")),
        description: text("third from below"),
        externally_provisioned: true,
        automated_cleaning_mode: Some(AutomatedCleaningMode::Disabled),
        custom_deploy: Some(method()),
        architecture: text("x86_64"),
        disable_power_off: true,
        inspection_mode: Some(InspectionMode::Agent),
        network_interfaces: Vec::new(),
    }
}

/// One NIC and one disk, with something in every field.
pub fn hardware() -> HardwareDetails {
    HardwareDetails {
        system_vendor: HardwareSystemVendor {
            manufacturer: text("QEMU"),
            product_name: text("Standard PC"),
            serial_number: text("1"),
        },
        firmware: Firmware {
            bios: Bios {
                date: text("01/01/2026"),
                vendor: text("EDK II"),
                version: text("2026.01"),
            },
        },
        ram_mebibytes: 2048,
        nics: vec![Nic {
            name: text("eth0"),
            model: text("0x1af4 0x1000"),
            mac: text(MAC),
            ip: text("172.22.0.100"),
            speed_gbps: 10,
            pxe: true,
            vlans: vec![Vlan {
                id: 7,
                name: text("storage"),
            }],
            vlan_id: Some(7),
            pci_address: text("0000:00:03.0"),
            lldp: Some(Lldp {
                switch_id: text("00:11:22:33:44:55"),
                port_id: text("Ethernet1"),
                switch_system_name: text("rack-1"),
            }),
        }],
        storage: vec![Storage {
            name: text("/dev/vda"),
            kind: text("SSD"),
            rotational: false,
            size_bytes: 8 << 30,
            vendor: text("QEMU"),
            model: text("VIRTIO"),
            serial_number: text("S1"),
            wwn: text("0x5000"),
            hctl: text("0:0:0:0"),
            alternate_names: vec![text("/dev/disk/by-path/virtio-pci-0000:00:04.0")],
            wwn_vendor_extension: text("0x0001"),
            wwn_with_extension: text("0x50000001"),
        }],
        cpu: Cpu {
            arch: text("x86_64"),
            model: text("QEMU Virtual CPU"),
            clock_megahertz: 2904.5,
            flags: vec![text("aes")],
            count: 2,
        },
        hostname: text("ramdisk"),
    }
}

fn status() -> BareMetalHostStatus {
    let metric = || OperationMetric {
        start: Some(text(THEN)),
        end: Some(text(THEN)),
    };
    let credentials = || {
        Some(CredentialsStatus {
            credentials: Some(secret("host-1-bmc")),
            credentials_version: text("3"),
        })
    };
    BareMetalHostStatus {
        operational_status: OperationalStatus::Error,
        error_type: Some(ErrorType::Provisioning),
        error_message: text("the disk is broken; replace it"),
        error_count: 3,
        provisioning_fail_count: 0,
        last_attempted_image: None,
        powered_on: true,
        provisioning: ProvisionStatus {
            state: ProvisioningState::Provisioning,
            id: text("5f1a57e0-0000-4000-8000-525400c0ffee"),
            image: Some(image()),
            root_device_hints: Some(hints()),
            boot_mode: Some(BootMode::Uefi),
            raid: Some(raid()),
            firmware: Some(firmware()),
            custom_deploy: Some(method()),
        },
        hardware: Some(hardware().into()),
        operation_history: OperationHistory {
            register: metric(),
            inspect: metric(),
            provision: metric(),
            deprovision: metric(),
        },
        last_updated: Some(text(THEN)),
        hardware_profile: text("unknown"),
        good_credentials: credentials(),
        tried_credentials: credentials(),
        conditions: vec![Condition::new(
            "Ready",
            ConditionStatus::False,
            "Error",
            "the disk is broken; replace it",
            &[],
            THEN,
        )],
    }
}

/// A host with every field set, also those that Firstlight does not act on.
pub fn host() -> BareMetalHost {
    let mut host = BareMetalHost::new("host-1", "default", spec());
    host.metadata.finalizers = vec![text(FINALIZER)];
    for name in [
        annotations::PAUSED,
        annotations::INSPECT,
        annotations::REBOOT,
    ] {
        host.metadata.annotations.insert(text(name), String::new());
    }
    host.status = Some(status());
    host
}

/// As the agent makes it for a server that nobody wrote an object for.
pub fn plain_host() -> BareMetalHost {
    let spec = BareMetalHostSpec {
        online: true,
        boot_mac_address: text(MAC),
        architecture: text("x86_64"),
        disable_power_off: true,
        ..BareMetalHostSpec::default()
    };
    let mut host = BareMetalHost::new("host-525400c0ffee", "default", spec);
    host.status = Some(BareMetalHostStatus::default());
    host
}

/// Of [`host`], with [`hardware`].
pub fn hardware_data() -> HardwareData {
    HardwareData::new("host-1", "default", hardware())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::disallowed_methods)]
    use std::path::Path;

    use super::*;

    /// `FIRSTLIGHT_UPDATE=1 cargo test -p firstlight-api` writes the files anew.
    #[test]
    fn the_files_for_other_languages_hold_these_objects() {
        let files = [
            ("host.json", serde_json::to_value(host()).unwrap()),
            (
                "plain-host.json",
                serde_json::to_value(plain_host()).unwrap(),
            ),
            (
                "hardware-data.json",
                serde_json::to_value(hardware_data()).unwrap(),
            ),
        ];
        for (name, value) in files {
            let path = Path::new("examples").join(name);
            let text = format!("{value:#}\n");
            if std::env::var_os("FIRSTLIGHT_UPDATE").is_some() {
                std::fs::write(&path, &text).unwrap();
            }
            assert_eq!(
                std::fs::read_to_string(&path).unwrap(),
                text,
                "{name} is not up to date"
            );
        }
    }

    #[test]
    fn what_is_written_is_read_back_whole() {
        let value = serde_json::to_value(host()).unwrap();
        assert_eq!(
            serde_json::from_value::<BareMetalHost>(value).unwrap(),
            host()
        );
    }
}
