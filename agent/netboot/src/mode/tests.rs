//! Another DHCP server on the segment, on a virtual clock.

use std::net::Ipv4Addr;

use crate::testing::*;
use crate::*;

const ASK: Option<ModeStep> = Some(ModeStep::Ask);

/// Of what the stranger below serves.
const BESIDE: Decision = Decision::Ignore(Reason::OtherServer {
    server: Ipv4Addr::new(172, 22, 0, 254),
});

fn stranger() -> ForeignServer {
    ForeignServer {
        server: ip("172.22.0.254"),
        offered: ip("172.22.0.60"),
    }
}

fn heard(server: &str, address: &str) -> Overheard {
    Overheard {
        client: mac(1),
        found: ForeignServer {
            server: ip(server),
            offered: ip(address),
        },
    }
}

#[test]
fn another_dhcp_server_comes_goes_and_comes_back() {
    let mut line = Timeline::unasked(small_site());
    let asking = line.at(0).send(&discover(mac(1))).decision;
    assert_eq!(asking, Decision::Ignore(Reason::Asking));
    assert_eq!(line.ask(0), ASK);
    assert_eq!(line.ask(3), None, "one question at a time");
    assert_eq!(line.silence(3), Some(ModeStep::Switch(Mode::Alone)));
    line.at(4)
        .send(&discover(mac(1)))
        .expect("OFFER 172.22.0.100");
    line.at(4)
        .send(&select(mac(1), "172.22.0.100"))
        .expect("ACK 172.22.0.100");
    // It comes: seen by the question that is asked every five minutes.
    assert_eq!((line.ask(302), line.ask(303)), (None, ASK));
    let proxy = Mode::Beside(stranger());
    assert_eq!(line.foreign(304), Some(ModeStep::Switch(proxy)));
    let refused = line.at(305).send(&discover(mac(2))).decision;
    assert_eq!(refused, BESIDE);
    // It is still there, it goes, and it comes back.
    assert_eq!((line.ask(604), line.foreign(605)), (ASK, None));
    assert_eq!(
        (line.ask(905), line.silence(908)),
        (ASK, Some(ModeStep::Switch(Mode::Alone)))
    );
    line.at(909)
        .send(&discover(mac(2)))
        .expect("OFFER 172.22.0.101");
    assert_eq!(
        (line.ask(1208), line.foreign(1209)),
        (ASK, Some(ModeStep::Switch(proxy)))
    );
}

#[test]
fn what_is_overheard_changes_nothing_before_an_own_question_confirms_it() {
    let mut line = Timeline::new(small_site());
    let seen = heard("172.22.0.254", "172.22.0.60");
    assert_eq!(line.overheard(&seen, 60), ASK);
    assert_eq!(line.server.mode(), Mode::Alone);
    line.at(60)
        .send(&discover(mac(1)))
        .expect("OFFER 172.22.0.100");
    assert_eq!(line.silence(63), None, "forged: the box goes on serving");
    // However many are forged, the box asks every half a minute at most.
    let asked = (64..364)
        .filter(|at| {
            let step = line.overheard(&seen, *at);
            if step == ASK {
                line.silence(*at);
            }
            step == ASK
        })
        .count();
    assert!(asked <= 10, "{asked}");
}

#[test]
fn an_offer_in_our_name_that_we_did_not_make_is_suspicious() {
    let mut line = Timeline::new(small_site());
    line.at(60)
        .send(&discover(mac(1)))
        .expect("OFFER 172.22.0.100");
    let own = heard("172.22.0.1", "172.22.0.100");
    assert_eq!(line.overheard(&own, 60), None, "our own broadcast");
    line.at(61)
        .send(&select(mac(1), "172.22.0.100"))
        .expect("ACK 172.22.0.100");
    assert_eq!(line.overheard(&own, 61), None);
    assert_eq!(
        line.overheard(&heard("172.22.0.1", "172.22.0.101"), 61),
        ASK
    );
    let twin = ForeignServer {
        server: ip("172.22.0.1"),
        offered: ip("172.22.0.101"),
    };
    let now = line.at(62).now();
    assert_eq!(
        line.server.foreign_seen(twin, now),
        Some(ModeStep::Switch(Mode::Beside(twin)))
    );
}

#[test]
fn a_question_that_got_lost_is_asked_again() {
    let mut line = Timeline::unasked(small_site());
    assert_eq!((line.ask(0), line.ask(29), line.ask(30)), (ASK, None, ASK));
    assert_eq!(line.contested(31), None, "it is open");
    line.silence(33);
    assert_eq!((line.contested(34), line.contested(60)), (None, ASK));
}

#[test]
fn two_boxes_that_gave_way_to_each_other_do_not_ask_together_for_ever() {
    let spec = |last| DhcpSpec {
        nic: Some(mac(last)),
        ..small_site()
    };
    let mut lines = [1, 2].map(|last| Timeline::unasked(spec(last)));
    for line in &mut lines {
        assert_eq!((line.ask(0), line.foreign(1).is_some()), (ASK, true));
    }
    let [one, two] = lines
        .each_mut()
        .map(|line| (0..1000).find(|at| line.ask(*at) == ASK));
    assert_ne!(one, two);
}

#[test]
fn beside_another_server_leases_are_renewed_and_nothing_new_is_leased() {
    let mut line = Timeline::new(small_site());
    line.at(60)
        .send(&discover(mac(1)))
        .expect("OFFER 172.22.0.100");
    line.at(60)
        .send(&select(mac(1), "172.22.0.100"))
        .expect("ACK 172.22.0.100");
    line.foreign(100);
    // A node of ours keeps its address for days: renewing, rebinding, and when it restarts.
    for hours in 1..100 {
        line.at(hours * 1800)
            .send(&renew(mac(1), "172.22.0.100"))
            .expect("ACK 172.22.0.100");
    }
    let days = 100 * 1800;
    line.at(days)
        .send(&reboot(mac(1), "172.22.0.100"))
        .expect("ACK 172.22.0.100");
    line.at(days)
        .send(&discover(mac(1)))
        .expect("OFFER 172.22.0.100");
    line.at(days)
        .send(&select(mac(1), "172.22.0.100"))
        .expect("ACK 172.22.0.100");
    // Others, and what the other server leased, are none of our business.
    for packet in [
        discover(mac(2)),
        select(mac(2), "172.22.0.101"),
        renew(mac(2), "172.22.0.101"),
        reboot(mac(1), "172.22.0.60"),
        renew(mac(2), "172.22.0.100"),
    ] {
        assert_eq!(line.at(days).send(&packet).decision, BESIDE);
    }
    // What has ended is not leased anew.
    assert_eq!(
        line.at(days + 6000)
            .send(&renew(mac(1), "172.22.0.100"))
            .decision,
        BESIDE
    );
}

#[test]
fn the_questions_of_the_box_itself_are_not_answered_by_it() {
    let mut line = Timeline::new(DhcpSpec {
        nic: Some(mac(9)),
        ..small_site()
    });
    assert_eq!(
        line.at(60).send(&discover(mac(9))).decision,
        Decision::Ignore(Reason::OwnQuestion)
    );
}

/// Both of one second: what was decided, and whether a question is due.
fn meets(line: &mut Timeline, at: u64, packet: &Packet) -> (Decision, Option<ModeStep>) {
    let decision = line.at(at).send(packet).decision;
    (decision, line.ask(at))
}

#[test]
fn ieee802_1d_a_port_that_opens_late_hides_nobody() {
    let mut line = Timeline::new(small_site());
    let asking = Decision::Ignore(Reason::Asking);
    let now = line.at(100).now();
    line.server.linked(now);
    // Nobody hears these, and nobody is answered meanwhile: the switch keeps everything back.
    for at in [100, 113, 126] {
        assert_eq!(line.ask(at), ASK);
        line.silence(at + 3);
    }
    assert_eq!(line.server.mode(), Mode::Alone);
    // The port opens. The first who is heard is not answered before the segment was asked once more.
    assert_eq!(
        meets(&mut line, 131, &discover(mac(1))),
        (asking.clone(), ASK)
    );
    assert_eq!(line.silence(134), Some(ModeStep::Switch(Mode::Alone)));
    line.at(135)
        .send(&discover(mac(1)))
        .expect("OFFER 172.22.0.100");
    // The same, with another server behind the port.
    let now = line.at(200).now();
    line.server.linked(now);
    assert_eq!(line.ask(200), ASK);
    assert_eq!(
        meets(&mut line, 201, &discover(mac(2))),
        (asking.clone(), None)
    );
    assert_eq!(
        line.silence(203),
        ASK,
        "that was asked before anybody was heard"
    );
    assert_eq!(meets(&mut line, 203, &discover(mac(2))), (asking, None));
    let beside = ModeStep::Switch(Mode::Beside(stranger()));
    assert_eq!(line.foreign(204), Some(beside));
    assert_eq!(meets(&mut line, 205, &discover(mac(2))), (BESIDE, None));
    // With nobody there, it asks again and again until no switch keeps anything back any more, and no more often for what is sent.
    let mut asked = 0;
    for at in 206..400 {
        let (_, due) = meets(&mut line, at, &discover(mac(2)));
        if due == ASK {
            asked += 1;
            line.silence(at);
        }
    }
    assert!((2..9).contains(&asked), "{asked}");
}

#[test]
fn a_client_that_takes_the_offer_of_another_server_is_suspicious() {
    let mut line = Timeline::new(small_site());
    let mut elsewhere = select(mac(1), "172.22.0.60");
    elsewhere.options.retain(|(code, _)| *code != 54);
    let elsewhere = elsewhere.address(54, "172.22.0.254");
    let (decision, due) = meets(&mut line, 100, &elsewhere);
    let server = ip("172.22.0.254");
    assert_eq!(
        decision,
        Decision::Ignore(Reason::ChoseOtherServer { server })
    );
    assert_eq!(due, ASK);
    line.silence(103);
    assert_eq!(
        meets(&mut line, 104, &elsewhere).1,
        None,
        "every half a minute at most"
    );
}
