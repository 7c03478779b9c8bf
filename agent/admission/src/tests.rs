use proptest::prelude::*;

use super::*;

const SHARES: Shares = Shares {
    all: 12,
    kept: 4,
    of_peer: 4,
};

fn peer(number: u8) -> IpAddr {
    IpAddr::from([172, 22, 0, number])
}

fn enter(admission: &mut Admission, number: u8, standing: Standing) -> Ticket {
    match admission.arrive(peer(number), standing) {
        Verdict::Enter(ticket) => ticket,
        other => panic!("{other:?}"),
    }
}

/// Two strangers, each with its whole share at work.
fn crowded() -> Admission {
    let mut admission = Admission::new(SHARES);
    for number in [1, 1, 1, 1, 2, 2, 2, 2] {
        let ticket = enter(&mut admission, number, Standing::Stranger);
        admission.works(ticket);
    }
    admission
}

#[test]
fn a_share_is_a_peers_most_and_its_own_longest_wait_gives_way() {
    let mut admission = Admission::new(SHARES);
    let mut tickets = [(); 4].map(|()| enter(&mut admission, 1, Standing::Known));
    admission.works(tickets[0]);
    let Verdict::Instead { ticket, leaves } = admission.arrive(peer(1), Standing::Known) else {
        panic!("a place of its own");
    };
    assert_eq!(leaves, tickets[1]);
    tickets[1] = ticket;
    for ticket in tickets {
        admission.works(ticket);
    }
    let refused = admission.arrive(peer(1), Standing::Known);
    assert_eq!(refused, Verdict::Refused(Full::Share));
    enter(&mut admission, 2, Standing::Stranger);
}

#[test]
fn a_known_server_has_a_place_whatever_strangers_do() {
    let mut admission = crowded();
    for _ in 0..SHARES.kept {
        let ticket = enter(&mut admission, 9, Standing::Known);
        admission.works(ticket);
    }
    // Beyond what is kept, a stranger's goes, even at work.
    let verdict = admission.arrive(peer(8), Standing::Known);
    assert!(matches!(verdict, Verdict::Instead { .. }), "{verdict:?}");
}

#[test]
fn who_has_much_gives_way_to_who_has_nothing_and_not_the_other_way() {
    let mut admission = crowded();
    let Verdict::Instead { ticket, .. } = admission.arrive(peer(3), Standing::Stranger) else {
        panic!("a place of a greedy one");
    };
    admission.works(ticket);
    let mut modest = Admission::new(SHARES);
    for number in 1..=8 {
        let ticket = enter(&mut modest, number, Standing::Stranger);
        modest.works(ticket);
    }
    let refused = modest.arrive(peer(9), Standing::Stranger);
    assert_eq!(refused, Verdict::Refused(Full::Places));
}

#[test]
fn forged_addresses_replace_each_other_and_nobody_who_was_heard() {
    let mut admission = Admission::new(SHARES);
    let heard = enter(&mut admission, 200, Standing::Stranger);
    admission.works(heard);
    for number in 1..=100 {
        if let Verdict::Instead { leaves, .. } = admission.arrive(peer(number), Standing::Stranger)
        {
            assert_ne!(leaves, heard);
        }
    }
    assert_eq!(admission.held(), SHARES.all - SHARES.kept);
}

#[derive(Clone, Debug)]
enum Step {
    Arrive(u8),
    Works(usize),
    Waits(usize),
    Leave(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..16_u8).prop_map(Step::Arrive),
        2 => (0..12_usize).prop_map(Step::Works),
        1 => (0..12_usize).prop_map(Step::Waits),
        1 => (0..12_usize).prop_map(Step::Leave),
    ]
}

proptest! {
    #[test]
    fn limits_hold_and_a_known_newcomer_is_let_in(steps in proptest::collection::vec(step(), 0..200)) {
        let mut admission = Admission::new(SHARES);
        let mut tickets: Vec<(Ticket, u8)> = vec![];
        // Peers below four are known.
        let standing = |number| if number < 4 { Standing::Known } else { Standing::Stranger };
        for step in steps {
            let at = |index: usize| tickets.get(index).map(|(ticket, _)| *ticket);
            match step {
                Step::Arrive(number) => {
                    let own = tickets.iter().filter(|(_, of)| *of == number).count();
                    let verdict = admission.arrive(peer(number), standing(number));
                    if own == 0 && number < 4 {
                        prop_assert!(!matches!(verdict, Verdict::Refused(_)));
                    }
                    if let Verdict::Instead { leaves, .. } = verdict {
                        let before = tickets.len();
                        let gone = tickets.iter().find(|(ticket, _)| *ticket == leaves);
                        let allowed = gone.is_some_and(|(_, of)| *of == number || standing(*of) <= standing(number));
                        prop_assert!(allowed, "a stranger replaced a known one");
                        tickets.retain(|(ticket, _)| *ticket != leaves);
                        prop_assert_eq!(tickets.len(), before - 1);
                    }
                    if let Verdict::Enter(ticket) | Verdict::Instead { ticket, .. } = verdict {
                        tickets.push((ticket, number));
                    }
                }
                Step::Works(index) => if let Some(ticket) = at(index) { admission.works(ticket); },
                Step::Waits(index) => if let Some(ticket) = at(index) { admission.waits(ticket); },
                Step::Leave(index) if index < tickets.len() => admission.leave(tickets.remove(index).0),
                Step::Leave(_) => {}
            }
            prop_assert_eq!(admission.held(), tickets.len());
            prop_assert!(tickets.len() <= SHARES.all);
            let strangers = tickets.iter().filter(|(_, of)| *of >= 4).count();
            prop_assert!(strangers <= SHARES.all - SHARES.kept);
            for number in 0..16 {
                let own = tickets.iter().filter(|(_, of)| *of == number).count();
                prop_assert!(own <= SHARES.of_peer);
            }
        }
        for (ticket, _) in tickets {
            admission.leave(ticket);
        }
        prop_assert_eq!(admission.held(), 0);
    }
}
