//! Firmware that asks for its network boot by IPv6 (RFC 8415, RFC 5970), which nobody is served by.

use std::net::Ipv6Addr;

use dhcproto::{
    Decodable, Decoder,
    v6::{DhcpOption, Message, MessageType, OptionCode},
};
use firstlight_api::net::MacAddr;

const HEAD: usize = 40;
const UDP_HEAD: usize = 8;
const UDP: u8 = 17;
/// Of `DHCPv6` servers.
const PORT: u16 = 547;
const ETHERNET: [u8; 2] = [0, 1];

/// The machine whose firmware asks in this IPv6 packet, by one of its NICs; `None`: that is something else.
pub fn boots_by_ipv6(packet: &[u8]) -> Option<MacAddr> {
    let (head, rest) = packet.split_at_checked(HEAD)?;
    let (udp, message) = rest.split_at_checked(UDP_HEAD)?;
    if head[0] >> 4 != 6 || head[6] != UDP || udp[2..4] != PORT.to_be_bytes() {
        return None;
    }
    let message = Message::decode(&mut Decoder::new(message)).ok()?;
    // An operating system does not say what it is made for.
    message.opts().get(OptionCode::ClientArchType)?;
    if message.msg_type() != MessageType::Solicit {
        return None;
    }
    let identifier = match message.opts().get(OptionCode::ClientId) {
        Some(DhcpOption::ClientId(identifier)) => of_identifier(identifier),
        _ => None,
    };
    let source: [u8; 16] = head[8..24].try_into().ok()?;
    identifier.or_else(|| of_address(Ipv6Addr::from(source)))
}

/// Of an identifier that is made of a MAC address, with or without a time (RFC 8415 section 11); firmware often has a UUID instead.
fn of_identifier(identifier: &[u8]) -> Option<MacAddr> {
    let mac = match identifier {
        [0, 1, hardware @ ..] => hardware.strip_prefix(&ETHERNET)?.get(4..)?,
        [0, 3, hardware @ ..] => hardware.strip_prefix(&ETHERNET)?,
        _ => return None,
    };
    MacAddr::new(mac.try_into().ok()?)
}

/// Of a link-local address that is made of it (RFC 4291 appendix A).
fn of_address(address: Ipv6Addr) -> Option<MacAddr> {
    let octets = address.octets();
    let [maker @ .., 0xff, 0xfe] = octets.get(8..13)? else {
        return None;
    };
    let mac = [maker, &octets[13..]].concat();
    let mut mac: [u8; 6] = mac.try_into().ok()?;
    mac[0] ^= 2;
    address
        .is_unicast_link_local()
        .then(|| MacAddr::new(mac))
        .flatten()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    const MAC: [u8; 6] = [0x52, 0x54, 0, 0xf1, 0, 2];

    /// From the address that OVMF makes of its MAC address.
    fn packet(port: u16, kind: u8, options: &[(u16, &[u8])]) -> Vec<u8> {
        let mut packet = vec![0; HEAD + UDP_HEAD];
        packet[0] = 0x60;
        packet[6] = UDP;
        packet[8..16].copy_from_slice(&[0xfe, 0x80, 0, 0, 0, 0, 0, 0]);
        packet[16..24].copy_from_slice(&[0x50, 0x54, 0, 0xff, 0xfe, 0xf1, 0, 2]);
        packet[HEAD + 2..HEAD + 4].copy_from_slice(&port.to_be_bytes());
        packet.extend([kind, 1, 2, 3]);
        for (code, data) in options {
            packet.extend(code.to_be_bytes());
            packet.extend(u16::try_from(data.len()).unwrap().to_be_bytes());
            packet.extend(*data);
        }
        packet
    }

    #[test]
    fn firmware_is_told_by_what_it_is_made_for() {
        let uuid: &[u8] = &[0, 4, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9];
        let own: &[u8] = &[0, 3, 0, 1, 0x52, 0x54, 0, 0xf1, 0, 3];
        let timed: &[u8] = &[0, 1, 0, 1, 1, 2, 3, 4, 0x52, 0x54, 0, 0xf1, 0, 3];
        let arch: (u16, &[u8]) = (61, &[0, 7]);
        let mac = Some(MacAddr::new(MAC).unwrap());
        let other = Some(MacAddr::new([0x52, 0x54, 0, 0xf1, 0, 3]).unwrap());
        assert_eq!(boots_by_ipv6(&packet(PORT, 1, &[(1, uuid), arch])), mac);
        assert_eq!(boots_by_ipv6(&packet(PORT, 1, &[(1, own), arch])), other);
        assert_eq!(boots_by_ipv6(&packet(PORT, 1, &[arch, (1, timed)])), other);
        for nothing in [
            packet(PORT, 1, &[(1, uuid)]),
            packet(546, 1, &[(1, uuid), arch]),
            packet(PORT, 2, &[(1, uuid), arch]),
            packet(PORT, 1, &[(1, uuid), arch])[..50].to_vec(),
        ] {
            assert_eq!(boots_by_ipv6(&nothing), None);
        }
    }

    proptest! {
        #[test]
        fn whatever_comes_is_firmware_only_with_what_it_says_of_itself(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            at in 0..200_usize,
        ) {
            let mut damaged = packet(PORT, 1, &[(1, &[0, 4, 9]), (61, &[0, 7])]);
            let start = at.min(damaged.len());
            damaged.truncate(start);
            damaged.extend(&bytes);
            for packet in [&bytes, &damaged] {
                if boots_by_ipv6(packet).is_some() {
                    prop_assert!(packet.windows(2).skip(HEAD).any(|pair| pair == [0, 61]));
                }
            }
        }
    }
}
