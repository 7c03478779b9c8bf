//! Which firmware is told what, by option numbers: 43, 60, 66, 67, 175.

use crate::boot_offer::Side;
use crate::testing::{Packet, Timeline, discover, dump_options, mac, small_site};
use crate::{ClientArch, Decision, DhcpRole, DhcpSpec, Reason};

/// The boot options of the answer, without those that every lease has.
fn boot_options(packet: &Packet, side: Side) -> String {
    let role = match side {
        Side::Lease => DhcpRole::Serve,
        Side::Proxy => DhcpRole::Proxy,
    };
    let mut line = Timeline::new(DhcpSpec {
        role,
        ..small_site()
    });
    let decision = line.at(0).send(packet).decision;
    let Decision::Reply(reply) = decision else {
        return format!("{decision:?}");
    };
    let bytes = reply.encode();
    let file: Vec<u8> = bytes[108..236]
        .iter()
        .copied()
        .take_while(|b| *b != 0)
        .collect();
    let mut text = format!("file={}", String::from_utf8_lossy(&file));
    for (code, data) in dump_options(&bytes) {
        if [43, 60, 66, 67, 175].contains(&code) {
            let shown = String::from_utf8_lossy(&data).escape_default().to_string();
            text = format!("{text} {code}={shown}");
        }
    }
    text
}

fn pxe(arch: u8) -> Packet {
    discover(mac(1))
        .option(60, b"PXEClient:Arch:000xx")
        .option(93, &[0, arch])
}

#[test]
fn bios_firmware_is_told_to_wait_for_nobody_else() {
    let told = "file=undionly.kpxe 43=\\u{6}\\u{1}\\u{8}\\u{fffd} 60=PXEClient 66=172.22.0.1 67=undionly.kpxe";
    assert_eq!(boot_options(&pxe(0), Side::Lease), told);
    assert_eq!(boot_options(&pxe(0), Side::Proxy), told);
    let old = discover(mac(1)).option(60, b"PXEClient");
    assert_eq!(
        boot_options(&old, Side::Lease),
        told,
        "without option 93 it is older than UEFI"
    );
}

#[test]
fn uefi_firmware_gets_a_plain_offer_and_from_a_proxy_the_class() {
    for arch in [7, 9] {
        let serve = "file=shimx64.efi 66=172.22.0.1 67=shimx64.efi";
        assert_eq!(boot_options(&pxe(arch), Side::Lease), serve);
        let proxy = "file=shimx64.efi 60=PXEClient 66=172.22.0.1 67=shimx64.efi";
        assert_eq!(boot_options(&pxe(arch), Side::Proxy), proxy);
    }
}

#[test]
fn ipxe_gets_its_script_and_no_reason_to_wait() {
    let ipxe = pxe(7).option(77, b"iPXE");
    let url = "http://172.22.0.1/boot/ipxe?mac=52:54:00:aa:00:01";
    assert_eq!(
        boot_options(&ipxe, Side::Lease),
        format!("file={url} 67={url} 175=\\u{{fffd}}\\u{{1}}\\u{{1}}")
    );
    assert_eq!(
        boot_options(&ipxe, Side::Proxy),
        format!("file={url} 60=PXEClient 67={url}")
    );
}

#[test]
fn rfc4578_2_1_machines_that_nothing_fits_get_no_boot_options_and_a_reason() {
    for (arch, name) in [
        (6, "32-bit UEFI"),
        (10, "UEFI arm"),
        (11, "UEFI arm64"),
        (15, "32-bit UEFI HTTP boot"),
        (18, "UEFI arm HTTP boot"),
        (19, "UEFI arm64 HTTP boot"),
        (27, "architecture 27"),
    ] {
        assert_eq!(boot_options(&pxe(arch), Side::Lease), "file=");
        let why = Reason::Unsupported(ClientArch::from_code(arch.into()));
        assert_eq!(
            boot_options(&pxe(arch), Side::Proxy),
            format!("Ignore({why:?})")
        );
        let sentence = format!("its firmware is {name}, for which there is nothing on the stick");
        assert!(why.to_string().starts_with(&sentence), "{why}");
        assert_eq!(
            boot_options(&pxe(arch).option(77, b"iPXE"), Side::Lease),
            "file="
        );
    }
}

#[test]
fn who_does_not_boot_gets_no_boot_options() {
    assert_eq!(boot_options(&discover(mac(1)), Side::Lease), "file=");
    let linux = discover(mac(1)).option(60, b"Linux ipconfig");
    assert_eq!(boot_options(&linux, Side::Lease), "file=");
}
