#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};

use super::*;

/// As a Metal3 operator has it, with fields that we do not know.
fn published() -> Value {
    json!({
        "apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
        "metadata": {"name": "host-1", "namespace": "default", "resourceVersion": "7", "annotations": {INSTALL_ANNOTATION: "wipe"}},
        "spec": {
            "online": true, "bootMACAddress": "52:54:00:00:00:01", "bootMode": "UEFISecureBoot",
            "bmc": {"address": "redfish://bmc/1", "credentialsName": "host-1-bmc", "disableCertificateVerification": true},
            "image": {"url": "http://b/i", "checksum": "aa", "checksumType": "sha256", "format": "raw"},
            "userData": {"name": "u", "namespace": "default"},
            "rootDeviceHints": {"deviceName": "/dev/vda", "minSizeGigabytes": 8, "rotational": false},
            "consumerRef": {"apiVersion": "v1", "kind": "Machine", "name": "m"},
            "automatedCleaningMode": "metadata", "hardwareProfile": "unknown",
        },
        "status": {
            "operationalStatus": "OK", "errorMessage": "", "poweredOn": true, "errorCount": 0,
            "provisioning": {"state": "externally provisioned", "ID": "5f1a57e0", "bootMode": "legacy", "image": {"url": "http://b/i"}},
            "operationHistory": {"register": {"start": "2026-11-21T00:00:00Z", "end": null}, "inspect": {"start": null, "end": null}},
            "goodCredentials": {},
        },
    })
}

#[test]
fn a_published_object_is_read_with_every_field_we_know() {
    let host: BareMetalHost = serde_json::from_value(published()).unwrap();
    assert_eq!(host.metadata.annotations[INSTALL_ANNOTATION], "wipe");
    assert_eq!(host.spec.boot_mac_address, "52:54:00:00:00:01");
    assert_eq!(host.spec.boot_mode, Some(BootMode::UefiSecureBoot));
    assert_eq!(host.spec.bmc.unwrap().credentials_name, "host-1-bmc");
    assert_eq!(
        host.spec.root_device_hints.unwrap().min_size_gigabytes,
        Some(8)
    );
    let status = host.status.unwrap();
    assert_eq!(status.operational_status, OperationalStatus::Ok);
    assert_eq!(
        status.provisioning.state,
        ProvisioningState::ExternallyProvisioned
    );
    assert_eq!(
        status.operation_history.register.start.as_deref(),
        Some("2026-11-21T00:00:00Z")
    );
}

#[test]
fn what_we_write_has_the_published_names_and_the_required_fields() {
    let mut host = BareMetalHost::new(
        "host-1",
        "default",
        BareMetalHostSpec {
            online: true,
            boot_mac_address: "52:54:00:00:00:01".into(),
            ..BareMetalHostSpec::default()
        },
    );
    host.status = Some(BareMetalHostStatus::default());
    let expected = json!({
        "apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
        "metadata": {"name": "host-1", "namespace": "default"},
        "spec": {"online": true, "bootMACAddress": "52:54:00:00:00:01"},
        "status": {
            "operationalStatus": "", "errorMessage": "", "errorCount": 0, "poweredOn": false,
            "provisioning": {"state": "", "ID": ""},
            "operationHistory": {"register": {}, "inspect": {}, "provision": {}, "deprovision": {}},
        },
    });
    assert_eq!(serde_json::to_value(host).unwrap(), expected);
}

#[test]
fn an_inventory_becomes_hardware_details() {
    let inventory = json!({
        "interfaces": [
            {"name": "eth0", "mac_address": "52:54:00:00:00:01", "ipv4_address": "172.22.0.9", "vendor": "0x1af4", "product": "0x1000", "speed_mbps": 10000},
            {"name": "eth1", "mac_address": "52:54:00:00:00:02"},
        ],
        "disks": [
            {"name": "/dev/nvme0n1", "size": 1_000_000_000_u64, "rotational": false, "serial": "S1", "model": "M"},
            {"name": "/dev/sda", "size": 2_000_000_000_u64, "rotational": true},
        ],
        "cpu": {"architecture": "x86_64", "count": 8, "model_name": "Xeon", "frequency": "2904.5", "flags": ["aes"]},
        "memory": {"physical_mb": 2048, "total": 1},
        "system_vendor": {"manufacturer": "QEMU", "product_name": "PC", "serial_number": "1", "firmware": {"vendor": "EDK II", "version": "2", "build_date": "01/01/2025"}},
        "boot": {"current_boot_mode": "uefi", "pxe_interface": "01-52-54-00-00-00-01"},
    });
    let details = HardwareDetails::from_inventory(&inventory).unwrap();
    assert_eq!(
        details
            .nics
            .iter()
            .map(|nic| (nic.mac.as_str(), nic.pxe, nic.speed_gbps))
            .collect::<Vec<_>>(),
        [
            ("52:54:00:00:00:01", true, 10),
            ("52:54:00:00:00:02", false, 0)
        ]
    );
    assert_eq!(
        details
            .storage
            .iter()
            .map(|disk| disk.kind.as_str())
            .collect::<Vec<_>>(),
        ["NVME", "HDD"]
    );
    assert_eq!(
        (
            details.ram_mebibytes,
            details.cpu.count,
            details.cpu.clock_megahertz.to_bits()
        ),
        (2048, 8, 2904.5_f64.to_bits())
    );
    assert_eq!(details.firmware.bios.vendor, "EDK II");
    assert_eq!(
        HardwareDetails::from_inventory(&Value::Null),
        Ok(HardwareDetails::default())
    );
}
