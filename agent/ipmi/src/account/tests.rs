#![allow(clippy::unwrap_used)]

use std::io;

use proptest::prelude::*;

use super::*;
use crate::fake::Bmc;

fn made(bmc: &mut Bmc) -> Password {
    let password = Password::random().unwrap();
    make(bmc, &password).unwrap();
    password
}

#[test]
fn it_is_made_found_given_another_password_and_taken_away() {
    let (before, mut bmc) = (Bmc::of_somebody(), Bmc::of_somebody());
    let found = look(&mut bmc).unwrap();
    assert_eq!(found.address, Some(Ipv4Addr::new(10, 0, 0, 9)));
    assert_eq!((found.lan.channel, found.account), (3, None));
    assert_eq!(bmc.cut, usize::MAX - 16, "nothing is asked twice");
    bmc.cut = before.cut;
    assert_eq!(bmc, before, "a look changes nothing");
    let first = made(&mut bmc);
    assert!(bmc.logs_in(first.reveal()));
    assert_eq!(look(&mut bmc).unwrap().account, Some(3));
    let second = made(&mut bmc);
    assert!(bmc.logs_in(second.reveal()) && !bmc.logs_in(first.reveal()));
    assert!(remove(&mut bmc).unwrap());
    assert!(!bmc.logs_in(second.reveal()) && bmc.called(USER).is_empty());
    assert_eq!(bmc.users[1], before.users[1]);
    assert!(bmc.users.iter().filter(|user| user.enabled).count() == 1);
    assert!(!remove(&mut bmc).unwrap(), "it is gone");
}

#[test]
fn a_place_that_is_somebodys_is_let_be() {
    let mut bmc = Bmc::of_somebody();
    bmc.fixed = 3;
    // Somebody who logs in without a name.
    bmc.users[3].enabled = true;
    for user in 5..10 {
        bmc.users[user].name = format!("user{user}").into_bytes();
    }
    let before = bmc.clone();
    made(&mut bmc);
    assert_eq!(look(&mut bmc).unwrap().account, Some(5));
    for user in [0, 1, 2, 3, 5, 6, 7, 8, 9] {
        assert_eq!(bmc.users[user], before.users[user]);
    }
    bmc.users[4].name = b"else".to_vec();
    let full = make(&mut bmc, &Password::random().unwrap());
    assert!(full.unwrap_err().to_string().contains("no free place"));
}

#[test]
fn of_several_ways_to_a_network_the_one_with_an_address_counts() {
    for idle in [2, 5] {
        let mut bmc = Bmc::of_somebody();
        bmc.idle_lan = idle;
        let found = look(&mut bmc).unwrap();
        assert_eq!((found.lan.channel, found.address.is_some()), (3, true));
        bmc.address = [0; 4];
        let found = look(&mut bmc).unwrap();
        assert_eq!((found.lan.channel, found.address), (idle.min(3), None));
    }
}

#[test]
fn a_closed_lan_is_opened_and_a_bmc_that_is_busy_is_asked_again() {
    let mut bmc = Bmc::of_somebody();
    (bmc.lan.mode, bmc.lan.limit, bmc.busy) = (0x28, 2, 3);
    let password = made(&mut bmc);
    assert!(bmc.logs_in(password.reveal()));
    assert_eq!(bmc.lan.mode, 0x2a, "its other bits stay");
    bmc.busy = 9;
    assert!(look(&mut bmc).unwrap_err().to_string().contains("0xc0"));
}

#[test]
fn what_a_bmc_cannot_is_told() {
    let mut bmc = Bmc::of_somebody();
    bmc.forgets = true;
    let forgotten = make(&mut bmc, &Password::random().unwrap());
    assert!(matches!(forgotten, Err(Refusal::Forgetful)));
    bmc.lan.channel = 12;
    assert!(matches!(look(&mut bmc), Err(Refusal::NoLan)));
    let mut bmc = Bmc::of_somebody();
    bmc.takes_no_empty_name = true;
    let password = made(&mut bmc);
    assert!(remove(&mut bmc).unwrap() && !bmc.logs_in(password.reveal()));
    assert!(!bmc.called(USER)[0].enabled);
    let password = made(&mut bmc);
    assert!(bmc.logs_in(password.reveal()), "its place is taken again");
}

#[test]
fn a_password_is_of_all_kinds_and_shown_to_nobody() {
    let (one, other) = (Password::random().unwrap(), Password::random().unwrap());
    assert_eq!(
        (one.reveal().len(), format!("{one:?}").as_str()),
        (16, "Password")
    );
    assert_ne!(one, other);
}

proptest! {
    #[test]
    fn broken_off_anywhere_and_done_again_there_is_one_account(cut in 0_usize..40, again in 0_usize..40) {
        let mut bmc = Bmc::of_somebody();
        bmc.cut = cut;
        let _ = make(&mut bmc, &Password::random().unwrap());
        bmc.cut = again;
        let _ = remove(&mut bmc);
        bmc.cut = usize::MAX;
        let password = made(&mut bmc);
        prop_assert!(bmc.logs_in(password.reveal()));
        prop_assert!(remove(&mut bmc).unwrap());
        prop_assert!(bmc.called(USER).is_empty() && bmc.called("ADMIN").len() == 1);
    }

    #[test]
    fn a_bmc_that_says_anything_is_read_to_an_end(answers in proptest::collection::vec(proptest::collection::vec(0_u8.., 0..20), 1..40)) {
        struct Mad(Vec<Vec<u8>>, usize);
        impl Channel for Mad {
            fn ask(&mut self, _: &Command) -> io::Result<Vec<u8>> {
                self.1 += 1;
                Ok(self.0[self.1 % self.0.len()].clone())
            }
        }
        let mut mad = Mad(answers, 0);
        let _ = look(&mut mad);
        let _ = make(&mut mad, &Password::random().unwrap());
        let _ = remove(&mut mad);
        prop_assert!(mad.1 < 2000, "{}", mad.1);
    }
}
