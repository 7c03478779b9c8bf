//! Messages that are longer than their clients take.

use super::fit;
use crate::packet::Request;
use crate::testing::{dump_options, mac, select};

fn message(options: &[(u8, usize)], file: &[u8]) -> Vec<u8> {
    let mut packet = select(mac(1), "172.22.0.100");
    for (code, length) in options {
        packet = packet.option(*code, &vec![*code; *length]);
    }
    let mut bytes = packet.encode();
    bytes[108..108 + file.len()].copy_from_slice(file);
    bytes
}

#[test]
fn rfc3046_2_2_relay_information_is_the_last_option_in_pieces_if_need_be() {
    let info = vec![7; 300];
    let options = dump_options(&fit(message(&[], b""), Some(&info), 1472));
    let lengths = options.iter().map(|(code, data)| (*code, data.len()));
    let lengths: Vec<_> = lengths.collect();
    assert_eq!(lengths, [(53, 1), (50, 4), (54, 4), (82, 255), (82, 45)]);
}

#[test]
fn rfc2132_9_3_what_finds_no_room_is_continued_in_empty_fields() {
    let long = message(&[(60, 100), (61, 120), (77, 50), (93, 2)], b"");
    assert!(long.len() > 400);
    let fitted = fit(long.clone(), None, 400);
    assert!(fitted.len() <= 400);
    let (whole, again) = (Request::parse(&long), Request::parse(&fitted));
    assert_eq!(whole, again, "nothing is lost");
    assert!(dump_options(&fitted).contains(&(52, vec![3])));
}

#[test]
fn rfc2132_9_3_a_file_name_stays_where_it_is() {
    let long = message(&[(61, 200), (77, 100), (15, 50)], b"shimx64.efi");
    let fitted = fit(long, None, 480);
    assert_eq!(&fitted[108..120], b"shimx64.efi\0");
    let codes: Vec<u8> = dump_options(&fitted)
        .iter()
        .map(|(code, _)| *code)
        .collect();
    // The domain has gone to `sname`; nothing had room for 77.
    assert_eq!(codes, [53, 54, 61, 50, 52]);
    assert_eq!(fitted[44..46], [15, 50]);
}

#[test]
fn what_fits_stays_as_it_is() {
    let bytes = message(&[(61, 20)], b"");
    assert_eq!(fit(bytes.clone(), None, bytes.len()), bytes);
}
