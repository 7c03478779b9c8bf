//! Which node of Ironic is which host's.

use firstlight_netboot::MacAddr;
use sha2::{Digest, Sha256};

/// The UUID of a host's node, made from its MAC: a node that is created twice is the same node.
pub fn node_uuid(mac: MacAddr) -> String {
    let digest = Sha256::digest(format!("firstlight host {mac}"));
    let mut bytes: [u8; 16] = digest[..16]
        .try_into()
        .expect("a SHA-256 digest has more than 16 bytes");
    // RFC 9562: version 8 (custom), variant 10.
    bytes[6] = bytes[6] & 0x0f | 0x80;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex = firstlight_artifacts::hex(&bytes);
    [
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..],
    ]
    .join("-")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::node_uuid;

    #[test]
    fn a_host_has_one_uuid_and_two_hosts_have_two() {
        let of = |mac: &str| node_uuid(mac.parse().unwrap());
        assert_eq!(of("52:54:00:00:00:01"), of("52-54-00-00-00-01"));
        assert_ne!(of("52:54:00:00:00:01"), of("52:54:00:00:00:02"));
        let parts: Vec<usize> = of("52:54:00:00:00:01").split('-').map(str::len).collect();
        assert_eq!(parts, [8, 4, 4, 4, 12]);
        assert_eq!(&of("52:54:00:00:00:01")[14..15], "8");
    }
}
