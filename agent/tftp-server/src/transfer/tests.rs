//! The protocol on a virtual clock: situations one by one, then whole transfers over a link that loses, repeats and
//! reorders packets.

mod link;

use proptest::prelude::*;

use self::link::{Faults, simulate};
use super::*;
use crate::options::{NegotiationLimits, RequestedOptions};

const LIMITS: NegotiationLimits = NegotiationLimits {
    block_size: 1468,
    window: 64,
    timeout: 30,
};

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn transfer(asked: RequestedOptions, size: u64) -> Transfer {
    let (settings, oack) = Negotiated::new(&asked, size, &LIMITS);
    Transfer::new(settings, oack, size, secs(0))
}

fn windowed(window: u16, size: u64) -> Transfer {
    let asked = RequestedOptions {
        window: Some(window),
        ..RequestedOptions::default()
    };
    let mut transfer = transfer(asked, size);
    transfer.handle(Input::Tick, secs(0));
    transfer
}

fn blocks(first: u64, count: u64) -> Action {
    Action::SendBlocks(Blocks { first, count })
}

#[test]
fn rfc1350_4_without_options_the_first_block_is_the_answer() {
    let mut transfer = transfer(RequestedOptions::default(), 1000);
    assert_eq!(transfer.handle(Input::Tick, secs(0)), blocks(1, 1));
    assert_eq!(transfer.handle(Input::Ack(1), secs(0)), blocks(2, 1));
    assert_eq!(transfer.acknowledged(), 512);
    assert_eq!(
        transfer.handle(Input::Ack(2), secs(0)),
        Action::Finish(Outcome::Complete)
    );
    assert_eq!(transfer.handle(Input::Ack(2), secs(0)), Action::Nothing);
    assert_eq!(transfer.handle(Input::Tick, secs(99)), Action::Nothing);
}

#[test]
fn rfc1350_6_an_empty_block_ends_a_file_that_fills_its_blocks() {
    for (size, last) in [(0, 1), (511, 1), (512, 2), (1024, 3)] {
        let mut transfer = transfer(RequestedOptions::default(), size);
        let mut action = transfer.handle(Input::Tick, secs(0));
        for block in 1..=last {
            assert_eq!(action, blocks(block, 1), "size {size}");
            action = transfer.handle(Input::Ack(u16::try_from(block).unwrap()), secs(0));
        }
        assert_eq!(action, Action::Finish(Outcome::Complete), "size {size}");
    }
}

#[test]
fn rfc2347_options_are_acknowledged_with_what_will_be_done() {
    let asked = RequestedOptions {
        block_size: Some(9000),
        transfer_size: true,
        timeout: Some(3),
        window: Some(1000),
    };
    let mut transfer = transfer(asked, 1_036_152);
    let oack =
        b"\0\x06blksize\x001468\0tsize\x001036152\0timeout\x003\0windowsize\x0064\0".to_vec();
    assert_eq!(
        transfer.handle(Input::Tick, secs(0)),
        Action::SendOack(oack)
    );
    assert_eq!(transfer.deadline(), secs(3));
    assert_eq!(transfer.handle(Input::Ack(0), secs(1)), blocks(1, 64));
    assert_eq!(transfer.deadline(), secs(4));
}

/// The settings, and what the client is told of them.
fn agreed(name: &str, value: &str) -> (Negotiated, Option<String>) {
    let mut asked = RequestedOptions::default();
    asked.take(name.as_bytes(), value.as_bytes());
    let (settings, oack) = Negotiated::new(&asked, 10_000, &LIMITS);
    let told = oack.map(|oack| String::from_utf8(oack[2..].to_vec()).unwrap());
    (settings, told)
}

#[test]
fn rfc2348_a_block_size_is_at_most_what_was_asked_and_out_of_bounds_it_is_not_acknowledged() {
    for (asked, size) in [("8", 8), ("512", 512), ("1468", 1468), ("65464", 1468)] {
        let told = Some(format!("blksize\0{size}\0"));
        let (settings, said) = agreed("blksize", asked);
        assert_eq!((settings.block_size, said), (size, told), "{asked}");
    }
    for asked in ["0", "7", "65465", "99999999999", "-8", "+8", "8 ", ""] {
        let (settings, said) = agreed("blksize", asked);
        assert_eq!((settings.block_size, said), (512, None), "{asked:?}");
    }
}

#[test]
fn rfc2349_a_timeout_is_taken_as_it_is_or_not_at_all() {
    for (asked, seconds, told) in [
        ("0", 1, None),
        ("1", 1, Some("timeout\x001\0")),
        ("30", 30, Some("timeout\x0030\0")),
        ("31", 1, None),
        ("255", 1, None),
        ("256", 1, None),
    ] {
        let (settings, said) = agreed("timeout", asked);
        assert_eq!(settings.timeout, secs(seconds), "{asked}");
        assert_eq!(said.as_deref(), told, "{asked}");
    }
}

#[test]
fn rfc2349_the_size_is_told_whatever_the_client_guessed() {
    for asked in ["0", "1", "99999999999"] {
        let told = Some("tsize\x0010000\0".to_owned());
        assert_eq!(agreed("tsize", asked).1, told, "{asked}");
    }
    assert_eq!(agreed("tsize", "all").1, None);
}

#[test]
fn rfc7440_3_a_window_is_at_most_what_was_asked() {
    for (asked, window) in [("1", 1), ("64", 64), ("65535", 64)] {
        let told = Some(format!("windowsize\0{window}\0"));
        let (settings, said) = agreed("windowsize", asked);
        assert_eq!((settings.window, said), (window, told), "{asked}");
    }
    for asked in ["0", "65536"] {
        let (settings, said) = agreed("windowsize", asked);
        assert_eq!((settings.window, said), (1, None), "{asked}");
    }
}

#[test]
fn rfc2347_an_unknown_option_is_not_acknowledged() {
    assert_eq!(agreed("rollover", "1"), (agreed("", "").0, None));
}

#[test]
fn rfc2347_a_client_that_wants_none_of_it_ends_it() {
    let mut transfer = windowed(4, 5000);
    let refused = Outcome::ClientError {
        code: 8,
        message: "no windows".to_owned(),
    };
    let Outcome::ClientError { code, message } = refused.clone() else {
        unreachable!()
    };
    let input = Input::ClientError { code, message };
    assert_eq!(transfer.handle(input, secs(0)), Action::Finish(refused));
    assert_eq!(transfer.handle(Input::Ack(0), secs(0)), Action::Nothing);
}

#[test]
fn rfc7440_4_a_lost_window_is_sent_again_whole_after_longer_and_longer_pauses() {
    let mut transfer = windowed(4, 100 * 512);
    assert_eq!(transfer.handle(Input::Ack(0), secs(0)), blocks(1, 4));
    assert_eq!(transfer.handle(Input::Ack(4), secs(0)), blocks(5, 4));
    for due in [1, 3, 7, 15, 23] {
        assert_eq!(transfer.deadline(), secs(due));
        assert_eq!(transfer.handle(Input::Tick, secs(due)), blocks(5, 4));
    }
    let outcome = Outcome::TimedOut {
        acknowledged: 4 * 512,
    };
    assert_eq!(
        transfer.handle(Input::Tick, secs(31)),
        Action::Finish(outcome)
    );
}

#[test]
fn rfc1123_4_2_3_2_an_unanswered_packet_is_repeated_after_longer_and_longer_pauses() {
    let mut transfer = transfer(RequestedOptions::default(), 1000);
    assert_eq!(transfer.handle(Input::Tick, secs(0)), blocks(1, 1));
    for due in [1, 3, 7, 15, 23] {
        assert_eq!(transfer.deadline(), secs(due));
        assert_eq!(
            transfer.handle(Input::Tick, Duration::from_millis(due * 1000 - 1)),
            Action::Nothing
        );
        assert_eq!(transfer.handle(Input::Tick, secs(due)), blocks(1, 1));
    }
    let outcome = Outcome::TimedOut { acknowledged: 0 };
    assert_eq!(
        transfer.handle(Input::Tick, secs(31)),
        Action::Finish(outcome)
    );
}

#[test]
fn progress_makes_the_pauses_short_again() {
    let mut transfer = transfer(RequestedOptions::default(), 10_000);
    transfer.handle(Input::Tick, secs(0));
    transfer.handle(Input::Tick, secs(1));
    transfer.handle(Input::Tick, secs(3));
    assert_eq!(transfer.handle(Input::Ack(1), secs(4)), blocks(2, 1));
    assert_eq!(transfer.deadline(), secs(5));
}

#[test]
fn rfc1123_4_2_3_1_a_delayed_duplicate_acknowledgement_sends_nothing() {
    let mut transfer = transfer(RequestedOptions::default(), 10_000);
    transfer.handle(Input::Tick, secs(0));
    transfer.handle(Input::Ack(1), secs(0));
    transfer.handle(Input::Ack(2), secs(0));
    for old in [2, 1, 0, 65535, 4, 40000] {
        assert_eq!(
            transfer.handle(Input::Ack(old), secs(0)),
            Action::Nothing,
            "ACK {old}"
        );
    }
    assert_eq!(transfer.handle(Input::Ack(3), secs(0)), blocks(4, 1));
}

#[test]
fn rfc7440_4_a_window_starts_anew_behind_the_last_block_that_arrived() {
    let mut transfer = windowed(4, 100 * 512);
    assert_eq!(transfer.handle(Input::Ack(0), secs(0)), blocks(1, 4));
    assert_eq!(transfer.handle(Input::Ack(4), secs(0)), blocks(5, 4));
    // Block 7 was lost: the client has 6.
    assert_eq!(transfer.handle(Input::Ack(6), secs(0)), blocks(7, 4));
    // It says so for block 8 as well; once is enough.
    assert_eq!(transfer.handle(Input::Ack(6), secs(0)), Action::Nothing);
    assert_eq!(transfer.handle(Input::Ack(10), secs(0)), blocks(11, 4));
    // Copies of block 8 may have been on their way, and were acknowledged.
    assert_eq!(transfer.handle(Input::Ack(10), secs(0)), Action::Nothing);
    assert_eq!(transfer.handle(Input::Ack(14), secs(0)), blocks(15, 4));
    // The first of a window was lost: the acknowledgement of the last window comes again.
    assert_eq!(transfer.handle(Input::Ack(14), secs(0)), blocks(15, 4));
    assert_eq!(transfer.handle(Input::Ack(14), secs(0)), Action::Nothing);
    // That was lost too: the clock helps.
    assert_eq!(transfer.handle(Input::Tick, secs(1)), blocks(15, 4));
    assert_eq!(transfer.handle(Input::Ack(14), secs(1)), blocks(15, 4));
}

#[test]
fn a_window_that_was_sent_twice_does_not_double_all_that_follow() {
    let mut transfer = windowed(4, 100 * 512);
    assert_eq!(transfer.handle(Input::Ack(0), secs(0)), blocks(1, 4));
    // The client was busy for a second, and finds the window twice in its buffer.
    assert_eq!(transfer.handle(Input::Tick, secs(1)), blocks(1, 4));
    assert_eq!(transfer.handle(Input::Ack(4), secs(1)), blocks(5, 4));
    for _ in 0..4 {
        assert_eq!(transfer.handle(Input::Ack(4), secs(1)), Action::Nothing);
    }
    assert_eq!(transfer.handle(Input::Ack(8), secs(1)), blocks(9, 4));
    // That was the only copy of its window: now a repeated acknowledgement is a complaint again.
    assert_eq!(transfer.handle(Input::Ack(8), secs(1)), blocks(9, 4));
}

#[test]
fn the_last_window_is_as_short_as_what_is_left() {
    let mut transfer = windowed(4, 5 * 512);
    assert_eq!(transfer.handle(Input::Ack(0), secs(0)), blocks(1, 4));
    assert_eq!(transfer.handle(Input::Ack(4), secs(0)), blocks(5, 2));
    assert_eq!(
        transfer.handle(Input::Ack(6), secs(0)),
        Action::Finish(Outcome::Complete)
    );
}

#[test]
fn what_the_client_was_last_seen_to_do_is_known() {
    let mut transfer = windowed(4, 5000);
    assert_eq!(transfer.client(), Client::Asked);
    transfer.handle(Input::Ack(0), secs(0));
    assert_eq!(transfer.client(), Client::Answers);
    transfer.handle(Input::Tick, secs(10));
    assert_eq!(transfer.client(), Client::Silent);
    transfer.handle(Input::Ack(4), secs(10));
    assert_eq!(transfer.client(), Client::Answers);
    transfer.handle(Input::Ack(8), secs(10));
    transfer.handle(Input::Ack(10), secs(10));
    assert_eq!(transfer.client(), Client::Left);
}

#[test]
fn a_client_that_only_wanted_the_size_ends_it() {
    let mut transfer = windowed(4, 5000);
    let message = "aborted".to_owned();
    let outcome = Outcome::ClientError { code: 8, message };
    let Outcome::ClientError { code, message } = outcome.clone() else {
        unreachable!()
    };
    assert_eq!(
        transfer.handle(Input::ClientError { code, message }, secs(0)),
        Action::Finish(outcome)
    );
}

#[test]
fn rfc2348_files_of_more_blocks_than_numbers_arrive_whole() {
    for window in [1, 16, 64] {
        let run = simulate(200_000, 8, 8 * 70_000 + 3, window, Faults::NONE);
        assert_eq!(
            run.data_packets, 70_001,
            "window {window}: nothing is sent twice"
        );
    }
}

#[test]
fn rfc1123_4_2_3_1_a_network_that_doubles_every_packet_does_not_double_the_traffic() {
    let faults = Faults {
        duplicate_percent: 100,
        ..Faults::NONE
    };
    let run = simulate(1, 512, 512 * 500, 1, faults);
    assert_eq!(run.data_packets, 501, "Sorcerer's Apprentice");
}

#[test]
fn files_arrive_whole_over_links_that_lose_repeat_and_reorder() {
    for seed in 0..12_000 {
        let window = [1, 4, 16][usize::try_from(seed % 3).unwrap()];
        let faults = Faults {
            loss_percent: seed % 7,
            duplicate_percent: seed % 5,
            jitter: Duration::from_micros(seed % 4 * 150),
        };
        let blocks = seed % 53;
        let size = 512 * blocks + seed % 512;
        let run = simulate(seed, 512, size, window, faults);
        // Each fault costs at most a window or two. But with a client that complains of what came twice, half a window
        // may be sent twice from then on: nobody can tell that from one whose buffer holds half a window.
        let bound = 2 * (blocks + 1) + (run.faults + 2) * 2 * u64::from(window);
        assert!(
            run.data_packets <= bound,
            "seed {seed}, window {window}: {run:?}"
        );
    }
}

proptest! {
    /// Whatever a client says, only blocks of the file are sent, at most a window at a time, and an end is an end.
    #[test]
    fn no_client_gets_more_than_a_window(
        size in 0..200_000_u64,
        window in 1..70_u16,
        block_size in 8..1500_u16,
        inputs in proptest::collection::vec((any::<u16>(), 0..8_u8, 0..5000_u64), 0..80),
    ) {
        let asked = RequestedOptions { block_size: Some(block_size), window: Some(window), ..RequestedOptions::default() };
        let mut transfer = transfer(asked, size);
        let last = size / u64::from(block_size.min(1468)) + 1;
        let (mut now, mut finished, mut near) = (Duration::ZERO, false, 0_u64);
        for (number, kind, pause) in inputs {
            now += Duration::from_millis(pause);
            let input = match kind {
                0 => Input::Tick,
                1 => Input::Ack(number),
                // What could be right, most of the time.
                n => Input::Ack(link::on_the_wire(near.saturating_sub(u64::from(n)) + 3)),
            };
            let action = transfer.handle(input, now);
            prop_assert!(!finished || action == Action::Nothing);
            match action {
                Action::SendBlocks(Blocks { first, count }) => {
                    prop_assert!(first >= 1 && count >= 1 && count <= u64::from(window.min(64)));
                    prop_assert!(first + count - 1 <= last);
                    near = first + count - 1;
                }
                Action::Finish(_) => finished = true,
                Action::SendOack(_) | Action::Nothing => {}
            }
            prop_assert!(transfer.acknowledged() <= size);
        }
    }
}
