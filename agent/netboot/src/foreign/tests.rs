//! Finding other DHCP servers, on a virtual clock.

use proptest::prelude::*;

use super::*;
use crate::testing::{dump_options, ip, mac};

const XIDS: [u32; 3] = [0x1111_1111, 0x2222_2222, 0x3333_3333];

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn probe() -> ForeignProbe {
    ForeignProbe::new(mac(9), XIDS, seconds(0))
}

/// A server's message to `to`.
fn answer(xid: u32, to: MacAddr, kind: u8, yiaddr: &str, server: &str) -> Vec<u8> {
    let mut bytes = vec![2, 1, 6, 0];
    bytes.extend(xid.to_be_bytes());
    bytes.extend([0; 8]);
    bytes.extend(ip(yiaddr).octets());
    bytes.extend([0; 8]);
    bytes.extend(to.octets());
    bytes.resize(236, 0);
    bytes.extend([99, 130, 83, 99, 53, 1, kind, 54, 4]);
    bytes.extend(ip(server).octets());
    bytes.push(255);
    bytes
}

#[test]
fn a_silent_segment_is_clear_after_three_questions_in_three_seconds() {
    let mut probe = probe();
    for (n, xid) in XIDS.iter().enumerate() {
        let now = seconds(n as u64);
        let ProbeStep::Send(datagram) = probe.step(now) else {
            panic!("no question at {now:?}");
        };
        assert_eq!(datagram[4..8], xid.to_be_bytes());
        assert_eq!(
            datagram[10], 0x80,
            "the box has no address that it could be told at"
        );
        assert_eq!(
            dump_options(&datagram),
            [(53, vec![1]), (55, vec![1, 3, 6])]
        );
        assert_eq!(probe.step(now), ProbeStep::WaitUntil(now + seconds(1)));
    }
    assert_eq!(probe.step(seconds(3)), ProbeStep::Clear);
}

#[test]
fn one_offer_is_enough() {
    let mut probe = probe();
    assert!(matches!(probe.step(seconds(0)), ProbeStep::Send(_)));
    probe.receive(&answer(XIDS[0], mac(9), 2, "10.0.0.50", "10.0.0.1"));
    let found = ForeignServer {
        server: ip("10.0.0.1"),
        offered: ip("10.0.0.50"),
    };
    assert_eq!(probe.step(seconds(0)), ProbeStep::Foreign(found));
}

#[test]
fn what_is_no_answer_to_the_question_does_not_count() {
    let mut probe = probe();
    assert!(matches!(probe.step(seconds(0)), ProbeStep::Send(_)));
    for datagram in [
        answer(0x9999_9999, mac(9), 2, "10.0.0.50", "10.0.0.1"),
        answer(XIDS[0], mac(8), 2, "10.0.0.50", "10.0.0.1"),
        answer(XIDS[1], mac(9), 2, "10.0.0.50", "10.0.0.1"),
        answer(XIDS[0], mac(9), 2, "0.0.0.0", "10.0.0.1"),
        answer(XIDS[0], mac(9), 6, "10.0.0.50", "10.0.0.1"),
        b"garbage".to_vec(),
    ] {
        probe.receive(&datagram);
    }
    assert_eq!(probe.step(seconds(0)), ProbeStep::WaitUntil(seconds(1)));
}

#[test]
fn answers_that_others_get_are_seen() {
    let found = Some(Overheard {
        client: mac(1),
        found: ForeignServer {
            server: ip("10.0.0.1"),
            offered: ip("10.0.0.50"),
        },
    });
    for kind in [2, 5] {
        let heard = observe_foreign(&answer(7, mac(1), kind, "10.0.0.50", "10.0.0.1"));
        assert_eq!(heard, found);
    }
    // An answer to INFORM, a refusal, and clients.
    for datagram in [
        answer(7, mac(1), 5, "0.0.0.0", "10.0.0.1"),
        answer(7, mac(1), 6, "0.0.0.0", "10.0.0.1"),
        crate::testing::discover(mac(1)).encode(),
    ] {
        assert_eq!(observe_foreign(&datagram), None);
    }
}

#[test]
fn an_offer_in_the_boxs_own_name_is_from_another_box() {
    let mut probe = probe();
    assert!(matches!(probe.step(seconds(0)), ProbeStep::Send(_)));
    probe.receive(&answer(XIDS[0], mac(9), 2, "172.22.0.50", "172.22.0.1"));
    assert!(matches!(probe.step(seconds(0)), ProbeStep::Foreign(_)));
}

proptest! {
    #[test]
    fn no_datagram_is_taken_for_a_server_that_leases_nothing(
        datagram in proptest::collection::vec(any::<u8>(), 0..700),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
    ) {
        let mut damaged = answer(XIDS[0], mac(9), 2, "10.0.0.50", "10.0.0.1");
        for (at, value) in changes {
            let at = at.index(damaged.len());
            damaged[at] = value;
        }
        for datagram in [datagram, damaged] {
            let mut probe = probe();
            probe.step(seconds(0));
            probe.receive(&datagram);
            let heard = observe_foreign(&datagram);
            if let Some(heard) = heard {
                prop_assert!(!heard.found.offered.is_unspecified());
            }
            if let ProbeStep::Foreign(found) = probe.step(seconds(0)) {
                prop_assert_eq!(Some(Overheard { client: mac(9), found }), heard);
            }
        }
    }
}
