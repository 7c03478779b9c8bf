//! Durations as Go reads and writes them: `300s`, `5m0s`, `1.5h`.

/// What the schema asks of one; a sign is left out.
pub const PATTERN: &str = r"^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$";

/// With their nanoseconds; who begins as another one comes before it.
const UNITS: [(&str, f64); 7] = [
    ("ns", 1.0),
    ("us", 1e3),
    ("µs", 1e3),
    ("ms", 1e6),
    ("s", 1e9),
    ("m", 60e9),
    ("h", 3600e9),
];

/// Whole seconds, as many as the new version can say at most. `None`: it is no duration.
pub fn seconds(text: &str) -> Option<i32> {
    let mut rest = text;
    let mut nanoseconds = 0_f64;
    loop {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..end].parse().ok()?;
        let mut units = UNITS.iter();
        let (word, unit) = units.find(|(word, _)| rest[end..].starts_with(word))?;
        nanoseconds += (number * unit).round();
        rest = &rest[end + word.len()..];
        if rest.is_empty() {
            let seconds = (nanoseconds / 1e9).trunc().min(f64::from(i32::MAX));
            #[allow(clippy::cast_possible_truncation, reason = "it is no larger than that")]
            return Some(seconds as i32);
        }
    }
}

/// As Go's `Duration.String` has it.
pub fn text(seconds: u64) -> String {
    let (hours, minutes, rest) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match (hours, minutes) {
        (0, 0) => format!("{rest}s"),
        (0, _) => format!("{minutes}m{rest}s"),
        _ => format!("{hours}h{minutes}m{rest}s"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations_are_those_of_go() {
        for (written, read, shown) in [
            ("300s", 300, "5m0s"),
            ("5m", 300, "5m0s"),
            ("5m0s", 300, "5m0s"),
            ("1h30m", 5400, "1h30m0s"),
            ("1.5h", 5400, "1h30m0s"),
            ("2.3m", 138, "2m18s"),
            ("100000ms", 100, "1m40s"),
            ("100s999ms", 100, "1m40s"),
            ("99000000µs1000000us", 100, "1m40s"),
            ("59s", 59, "59s"),
            ("99999999999h", i32::MAX, "596523h14m7s"),
        ] {
            let seconds = seconds(written);
            assert_eq!(seconds, Some(read), "{written}");
            assert_eq!(text(read.unsigned_abs().into()), shown);
        }
        for none in [
            "", "5", "s", "5 m", "5d", "-5m", "1.2.3s", "5m3", ".s", "ms",
        ] {
            assert_eq!(seconds(none), None, "{none}");
        }
    }

    proptest! {
        #[test]
        fn what_is_shown_is_read_again_and_nothing_else_breaks_it(number in 0..i32::MAX, any in ".*", near in "[0-9.]{0,4}(ns|us|µs|ms|s|m|h|d)?[0-9.nuµmsh]{0,6}") {
            let shown = text(number.unsigned_abs().into());
            prop_assert_eq!(seconds(&shown), Some(number));
            for text in [any, near] {
                prop_assert!(seconds(&text).is_none_or(|seconds| seconds >= 0), "{}", text);
            }
        }
    }
}
