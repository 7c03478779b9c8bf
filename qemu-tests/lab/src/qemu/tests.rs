use super::*;

const SOCKETS: Sockets = Sockets {
    console: 5,
    monitor: 6,
    wire: 7,
    second_wire: None,
    tpm: None,
};

fn server(firmware: Firmware) -> VmSpec {
    VmSpec {
        name: "server-1".to_owned(),
        firmware,
        cpus: 2,
        memory_mib: 1024,
        mac: [0x52, 0x54, 0, 0, 0, 1],
        nic: NicModel::Virtio,
        second_nic: None,
        disks: vec![Disk {
            file: "/tmp/a,b.qcow2".into(),
            format: DiskFormat::Qcow2,
            bus: DiskBus::Usb,
            large_sectors: false,
        }],
        cd: None,
        boot: BootFirst::Network,
        direct: None,
        tpm: false,
        self_test: Duration::ZERO,
        kcs: None,
    }
}

fn line(spec: &VmSpec, accel: Accel, flash: Option<&Flash>) -> String {
    let begin = Begin::PowerOn(OffsetDateTime::UNIX_EPOCH);
    command_line(spec, accel, flash, SOCKETS, begin).join(" ")
}

#[test]
fn a_bios_server_boots_from_the_rom_of_its_card() {
    let line = line(&server(Firmware::Bios), Accel::Tcg, None);
    assert!(
        line.contains("virtio-net-pci,netdev=wire,mac=52:54:00:00:00:01,bootindex=1 "),
        "{line}"
    );
    assert!(
        line.contains("removable=on,drive=disk,bootindex=2"),
        "{line}"
    );
    assert!(!line.contains("pflash"), "{line}");
}

#[test]
fn a_uefi_server_has_no_rom_so_that_its_own_pxe_runs() {
    let flash = Flash {
        code: "/code".into(),
        variables: "/vars".into(),
    };
    let line = line(&server(Firmware::Uefi), Accel::Kvm, Some(&flash));
    assert!(line.contains("bootindex=1,romfile= "), "{line}");
    assert!(
        line.contains("readonly=on,file=/code") && line.contains("unit=1,format=raw,file=/vars"),
        "{line}"
    );
    assert!(
        line.contains("q35,smm=off") && !line.contains("-global"),
        "{line}"
    );
}

#[test]
fn what_boots_by_http_has_no_pxe() {
    let http = VmSpec {
        boot: BootFirst::Http,
        ..server(Firmware::Uefi)
    };
    let line = |spec| line(spec, Accel::Tcg, None);
    let told = line(&http);
    assert!(
        told.contains("-fw_cfg name=opt/org.tianocore/IPv4PXESupport,string=n "),
        "{told}"
    );
    assert!(told.contains("bootindex=1,romfile= "), "{told}");
    assert!(!line(&server(Firmware::Uefi)).contains("PXESupport"));
}

#[test]
fn what_boots_from_the_network_once_has_a_card_that_can_be_told_so() {
    let once = VmSpec {
        boot: BootFirst::NetworkOnce,
        ..server(Firmware::Bios)
    };
    let line = line(&once, Accel::Tcg, None);
    assert!(line.contains("bootindex=1,id=nic "), "{line}");
    assert!(
        line.contains("removable=on,drive=disk,bootindex=2"),
        "{line}"
    );
}

#[test]
fn a_firmware_takes_its_time_where_it_is_told_to() {
    let slow = VmSpec {
        self_test: Duration::from_mins(1),
        ..server(Firmware::Uefi)
    };
    let line = |spec| line(spec, Accel::Tcg, None);
    assert!(line(&slow).contains("-boot menu=on,splash-time=60000 "));
    assert!(!line(&server(Firmware::Uefi)).contains("-boot"));
}

#[test]
fn what_boots_from_a_cd_once_goes_on_with_its_disk() {
    let once = VmSpec {
        cd: Some("/tmp/a,b.iso".into()),
        boot: BootFirst::CdOnce,
        ..server(Firmware::Uefi)
    };
    let line = line(&once, Accel::Tcg, None);
    assert!(
        line.contains("file=/tmp/a,,b.iso") && line.contains("id=cd,bootindex=1"),
        "{line}"
    );
    assert!(
        line.contains("removable=on,drive=disk,bootindex=2"),
        "{line}"
    );
    assert!(line.contains("mac=52:54:00:00:00:01,romfile= "), "{line}");
}

#[test]
fn secure_boot_protects_its_variables() {
    let flash = Flash {
        code: "/code".into(),
        variables: "/vars".into(),
    };
    let line = line(&server(Firmware::SecureBoot), Accel::Tcg, Some(&flash));
    assert!(line.contains("q35,smm=on"), "{line}");
    assert!(
        line.contains("driver=cfi.pflash01,property=secure,value=on"),
        "{line}"
    );
}

#[test]
fn the_boards_clock_says_what_the_other_machines_say_and_stops_with_its_machine() {
    let line = line(&server(Firmware::Bios), Accel::Tcg, None);
    assert!(
        line.contains("-rtc base=1970-01-01T00:00:00,clock=vm "),
        "{line}"
    );
    let server = server(Firmware::Bios);
    let waits = command_line(&server, Accel::Tcg, None, SOCKETS, Begin::Wait).join(" ");
    assert!(waits.contains("-rtc clock=vm -incoming defer "), "{waits}");
}

#[test]
fn a_comma_in_a_path_does_not_end_the_option() {
    assert!(line(&server(Firmware::Bios), Accel::Tcg, None).contains("file=/tmp/a,,b.qcow2"));
}
