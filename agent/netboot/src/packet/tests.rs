//! What is read from a datagram, and what makes it unusable.

use super::*;
use crate::testing::{Packet, discover, ip, mac};

fn parse(packet: &Packet) -> Request {
    Request::parse(&packet.encode()).unwrap()
}

#[test]
fn an_unreadable_option_does_not_hide_those_behind_it() {
    let request = parse(
        &discover(mac(1))
            .option(12, b"caf\xe9")
            .option(80, b"too long")
            .option(81, b"x")
            .option(121, &[33, 1])
            .option(93, &[0, 7])
            .option(60, b"PXEClient:Arch:00007"),
    );
    assert_eq!(request.arch, Some(ClientArch::UefiX64));
    assert!(request.is_pxe());
}

#[test]
fn an_option_in_two_pieces_is_one() {
    let request = parse(
        &discover(mac(1))
            .option(60, b"PXE")
            .option(93, &[0, 0])
            .option(60, b"Client"),
    );
    assert_eq!(request.vendor_class, b"PXEClient");
}

#[test]
fn options_continue_in_the_file_field() {
    let mut datagram = discover(mac(1)).option(52, &[1]).encode();
    datagram[108..114].copy_from_slice(&[93, 2, 0, 16, 255, 0]);
    assert_eq!(
        Request::parse(&datagram).unwrap().arch,
        Some(ClientArch::UefiX64Http)
    );
}

#[test]
fn the_first_supported_architecture_of_several_counts() {
    let arch = |data: &[u8]| parse(&discover(mac(1)).option(93, data)).arch;
    assert_eq!(arch(&[0, 11, 0, 7]), Some(ClientArch::UefiX64));
    assert_eq!(arch(&[0, 9]), Some(ClientArch::UefiX64));
    assert_eq!(arch(&[0, 19]), Some(ClientArch::Arm64Http));
    assert_eq!(arch(&[0]), None);
}

#[test]
fn ipxe_is_known_in_both_spellings_of_its_user_class() {
    for class in [b"iPXE".as_slice(), b"\x04iPXE"] {
        assert!(parse(&discover(mac(1)).option(77, class)).is_ipxe());
    }
    assert!(!parse(&discover(mac(1)).option(77, b"gPXE")).is_ipxe());
}

#[test]
fn rfc2131_2_a_message_may_be_as_long_as_the_client_says_and_not_shorter_than_all_take() {
    let room = |data: &[u8]| parse(&discover(mac(1)).option(57, data)).room;
    assert_eq!(parse(&discover(mac(1))).room, 548);
    assert_eq!(room(&[0x05, 0xc0]), 1444, "OVMF");
    assert_eq!(room(&[0xff, 0x00]), 1472);
    assert_eq!(room(&[0, 200]), 548);
    assert_eq!(room(&[1]), 548);
}

#[test]
fn rfc3396_5_pieces_are_joined_in_the_order_of_options_file_and_name() {
    let mut datagram = discover(mac(1))
        .option(52, &[3])
        .option(60, b"PXE")
        .encode();
    datagram[108..113].copy_from_slice(b"\x3c\x03Cli");
    datagram[113] = 255;
    datagram[44..50].copy_from_slice(b"\x3c\x03ent\xff");
    assert_eq!(
        Request::parse(&datagram).unwrap().vendor_class,
        b"PXEClient"
    );
}

#[test]
fn link_selection_survives_odd_relay_information() {
    let link = |info: &[u8]| parse(&discover(mac(1)).option(82, info)).link_selection();
    assert_eq!(
        link(b"\x01\x01a\x05\x04\x0a\x09\x00\x01"),
        Some(ip("10.9.0.1"))
    );
    assert_eq!(link(b"\x01\x01a"), None);
    assert_eq!(link(b"\x01\xffa"), None);
    assert_eq!(link(b"\x05\x03\x0a\x09\x00"), None);
}

#[test]
fn what_is_no_request_says_why() {
    let good = discover(mac(1)).encode();
    let changed = |index: usize, value: u8| {
        let mut datagram = good.clone();
        datagram[index] = value;
        Request::parse(&datagram).unwrap_err()
    };
    assert_eq!(
        Request::parse(&good[..239]),
        Err(PacketError::TooShort(239))
    );
    assert_eq!(changed(0, 2), PacketError::WrongDirection);
    assert_eq!(changed(1, 32), PacketError::HardwareAddress);
    assert_eq!(changed(2, 255), PacketError::HardwareAddress);
    assert_eq!(changed(28, 0x01), PacketError::HardwareAddress);
    assert_eq!(changed(236, 0), PacketError::NoMagic);
    assert_eq!(changed(242, 9), PacketError::UnknownMessageType(9));
    assert_eq!(changed(242, 2), PacketError::WrongDirection);
    let short = discover(mac(1)).option(50, &[1, 2, 3]).encode();
    assert_eq!(Request::parse(&short), Err(PacketError::OptionLength(50)));
}
