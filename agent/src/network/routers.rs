//! Whether a router tells of itself on a wire (RFC 4861): the network behind it is somebody's.

use std::time::Duration;

use anyhow::{Context, Result};
use firstlight_api::net::MacAddr;
use tokio::time::{Instant, timeout_at};

use super::packets::Packets;

const ETH_P_IPV6: u16 = 0x86dd;
/// All routers (`ff02::2`) on Ethernet.
const ALL_ROUTERS: [u8; 6] = [0x33, 0x33, 0, 0, 0, 2];
const ICMPV6: u8 = 58;
const SOLICITATION: u8 = 133;
const ADVERTISEMENT: u8 = 134;
/// Anything else came from beyond a router.
const HOP_LIMIT: u8 = 255;
const HEAD: usize = 40;
/// Between two questions; routers answer within half a second, and a switch may keep the port closed for most of the first minute.
const AGAIN: Duration = Duration::from_secs(10);

/// Ends when a router is heard.
pub async fn heard(index: u32, mac: MacAddr) -> Result<()> {
    let packets = Packets::open(index, ETH_P_IPV6)?;
    loop {
        if let Err(error) = packets.send(&solicitation(), ALL_ROUTERS).await {
            tracing::debug!(%error, %mac, "a router solicitation was not sent");
        }
        let deadline = Instant::now() + AGAIN;
        while let Ok(packet) = timeout_at(deadline, packets.receive()).await {
            if is_router(&packet.context("listening for routers")?) {
                return Ok(());
            }
        }
    }
}

/// Without an address of its own, and so without options (RFC 4861 section 4.1).
fn solicitation() -> Vec<u8> {
    let mut packet = vec![0; HEAD + 8];
    packet[0] = 6 << 4;
    packet[5] = 8;
    packet[6] = ICMPV6;
    packet[7] = HOP_LIMIT;
    // The sender is the unspecified address, the receiver ff02::2.
    packet[24..26].copy_from_slice(&[0xff, 2]);
    packet[39] = 2;
    packet[HEAD] = SOLICITATION;
    let sum = checksum(&packet);
    packet[HEAD + 2..HEAD + 4].copy_from_slice(&sum.to_be_bytes());
    packet
}

/// Of `ICMPv6`: over both addresses, the length and the protocol, and what follows (RFC 8200 section 8.1).
fn checksum(packet: &[u8]) -> u16 {
    let length = u32::try_from(packet.len() - HEAD).expect("a short packet");
    let words = packet[8..].chunks(2);
    let words = words.map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)));
    let mut sum: u32 = words.sum::<u32>() + length + u32::from(ICMPV6);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).expect("folded")
}

/// An advertisement of a router that others shall use.
fn is_router(packet: &[u8]) -> bool {
    let Some(&[kind, 0, _, _, _, _, life, time]) = packet.get(HEAD..HEAD + 8) else {
        return false;
    };
    packet[0] >> 4 == 6
        && packet[6] == ICMPV6
        && packet[7] == HOP_LIMIT
        && kind == ADVERTISEMENT
        && (life, time) != (0, 0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn whatever_comes_is_a_router_only_with_all_that_makes_one(packet in prop::collection::vec(any::<u8>(), 0..80)) {
            let is_one = packet.len() >= HEAD + 8 && packet[0] >> 4 == 6 && packet[6..8] == [ICMPV6, HOP_LIMIT]
                && packet[HEAD..HEAD + 2] == [ADVERTISEMENT, 0] && packet[HEAD + 6..HEAD + 8] != [0, 0];
            prop_assert_eq!(is_router(&packet), is_one);
        }
    }

    #[test]
    fn a_solicitation_is_as_the_standard_says() {
        let packet = solicitation();
        // Worked out by hand: ff02 + 0002 + 8500, and 8 and 58 of the head, folded and inverted.
        assert_eq!(packet[HEAD + 2..HEAD + 4], [0x7b, 0xb8]);
        assert_eq!(packet.len(), HEAD + 8);
    }

    #[test]
    fn only_a_router_that_is_to_be_used_is_one() {
        let mut packet = vec![0; 64];
        packet[0] = 0x60;
        packet[6] = ICMPV6;
        packet[7] = HOP_LIMIT;
        packet[HEAD] = ADVERTISEMENT;
        assert!(!is_router(&packet), "its lifetime is zero");
        packet[HEAD + 7] = 30;
        assert!(is_router(&packet));
        for at in [0, 6, 7, HEAD, HEAD + 1] {
            let mut other = packet.clone();
            other[at] ^= 0x11;
            assert!(!is_router(&other), "{at}");
        }
        assert!(!is_router(&packet[..HEAD + 7]) && !is_router(&[]));
        assert!(!is_router(&solicitation()));
    }
}
