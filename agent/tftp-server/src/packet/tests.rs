//! Requests as firmware sends them, and bytes that nobody should send.

use proptest::prelude::*;

use super::*;

fn request(parts: &[&str]) -> Vec<u8> {
    let mut bytes = vec![0, 1];
    for part in parts {
        bytes.extend_from_slice(part.as_bytes());
        bytes.push(0);
    }
    bytes
}

fn read(parts: &[&str]) -> ReadRequest {
    match ClientPacket::parse(&request(parts)) {
        Ok(ClientPacket::Read(request)) => request,
        other => panic!("{parts:?}: {other:?}"),
    }
}

#[test]
fn requests_of_real_clients_are_understood() {
    // OVMF 2025.02, then GRUB 2.12 of Debian 13.
    let ovmf = read(&[
        "shimx64.efi",
        "octet",
        "tsize",
        "0",
        "blksize",
        "1468",
        "windowsize",
        "4",
    ]);
    let wanted = RequestedOptions {
        block_size: Some(1468),
        transfer_size: true,
        timeout: None,
        window: Some(4),
    };
    assert_eq!((ovmf.path.as_str(), ovmf.options), ("shimx64.efi", wanted));
    let grub = read(&["/grub/grub.cfg", "octet", "blksize", "1024", "tsize", "0"]);
    assert_eq!(
        (grub.path.as_str(), grub.options.block_size),
        ("grub/grub.cfg", Some(1024))
    );
}

#[test]
fn names_of_modes_and_options_do_not_distinguish_case() {
    let request = read(&["f", "OcTeT", "BLKSIZE", "600", "TimeOut", "3"]);
    assert_eq!(request.mode, Mode::Octet);
    assert_eq!(
        (request.options.block_size, request.options.timeout),
        (Some(600), Some(3))
    );
}

#[test]
fn options_outside_their_bounds_are_as_if_not_asked() {
    let nothing = RequestedOptions::default();
    for (name, value) in [
        ("blksize", "7"),
        ("blksize", "65465"),
        ("blksize", "-1"),
        ("timeout", "0"),
        ("timeout", "256"),
        ("windowsize", "0"),
        ("windowsize", "65536"),
        ("tsize", "x"),
        ("multicast", ""),
    ] {
        assert_eq!(
            read(&["f", "octet", name, value]).options,
            nothing,
            "{name}={value}"
        );
    }
    // A half option at the end is padding.
    assert_eq!(read(&["f", "octet", "blksize"]).options, nothing);
}

#[test]
fn what_is_no_request_is_refused_with_its_reason() {
    let parse = |bytes: &[u8]| ClientPacket::parse(bytes);
    assert_eq!(parse(b""), Err(PacketError::Truncated));
    assert_eq!(parse(b"\0\x01file"), Err(PacketError::Truncated));
    assert_eq!(parse(b"\0\x01file\0"), Err(PacketError::Truncated));
    assert_eq!(parse(&request(&["f", "binary"])), Err(PacketError::Mode));
    assert_eq!(
        parse(&request(&["../f", "octet"])),
        Err(PacketError::Path(PathError::Parent))
    );
    assert_eq!(parse(b"\0\x02f\0octet\0"), Ok(ClientPacket::Write));
    assert_eq!(parse(b"\0\x03\0\x01data"), Err(PacketError::Operation(3)));
    assert_eq!(parse(b"\0\x04\x12\x34"), Ok(ClientPacket::Ack(0x1234)));
    let message = "User aborted the transfer".to_owned();
    assert_eq!(
        parse(b"\0\x05\0\x08User aborted\n the transfer\0"),
        Ok(ClientPacket::Error { code: 8, message })
    );
}

#[test]
fn block_numbers_roll_over() {
    assert_eq!(encode_data_header(65535), [0, 3, 255, 255]);
    assert_eq!(encode_data_header(65536), [0, 3, 0, 0]);
    assert_eq!(encode_data_header(65537), [0, 3, 0, 1]);
}

proptest! {
    #[test]
    fn no_bytes_bring_the_parser_down(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        drop(ClientPacket::parse(&bytes));
    }

    /// Behind a good start, so that the options are reached.
    #[test]
    fn no_options_bring_the_parser_down(tail in proptest::collection::vec(any::<u8>(), 0..300)) {
        let mut bytes = request(&["file", "octet"]);
        bytes.extend(tail);
        prop_assert!(matches!(ClientPacket::parse(&bytes), Ok(ClientPacket::Read(_))));
    }

    #[test]
    fn a_name_never_leads_out_of_the_tree(raw in "[./\\\\a ]{0,20}") {
        if let Ok(path) = FilePath::parse(raw.as_bytes()) {
            prop_assert!(!path.as_str().starts_with('/'));
            prop_assert!(path.as_str().split('/').all(|part| !part.is_empty() && part != "." && part != ".."));
        }
    }

    #[test]
    fn options_in_bounds_are_taken(block in 8..65465_u16, seconds in 1..=255_u8, window in 1..=65535_u16) {
        let (block_text, seconds_text, window_text) = (block.to_string(), seconds.to_string(), window.to_string());
        let parts = ["f", "octet", "blksize", &block_text, "timeout", &seconds_text, "windowsize", &window_text];
        let wanted = RequestedOptions {
            block_size: Some(block),
            transfer_size: false,
            timeout: Some(seconds),
            window: Some(window),
        };
        prop_assert_eq!(read(&parts).options, wanted);
    }
}
