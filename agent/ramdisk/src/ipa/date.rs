//! The `Date` header (RFC 9110 section 5.6.7).

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// `Sun, 06 Nov 1994 08:49:37 GMT` in seconds since 1970; the obsolete forms are not read.
pub fn parse_http_date(text: &str) -> Option<u64> {
    let (_, rest) = text.trim().split_once(", ")?;
    let parts: Vec<&str> = rest.split([' ', ':']).collect();
    let [day, month, year, hour, minute, second, "GMT"] = parts.as_slice() else {
        return None;
    };
    let number = |text: &str| text.parse::<u64>().ok();
    let month = MONTHS.iter().position(|name| name == month)? as u64 + 1;
    let (year, day) = (number(year)?, number(day)?);
    if !(1970..=9999).contains(&year) || !(1..=31).contains(&day) {
        return None;
    }
    let (hour, minute, second) = (number(hour)?, number(minute)?, number(second)?);
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    Some(days(year, month, day) * 86400 + hour * 3600 + minute * 60 + second)
}

/// Days from 1970-01-01; a year is taken to begin in March, so that the leap day comes last.
fn days(year: u64, month: u64, day: u64) -> u64 {
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let leap_days = year / 4 - year / 100 + year / 400;
    year * 365 + leap_days + (month * 153 + 2) / 5 + day - 1 - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn dates_of_known_seconds() {
        // `date -u -d TEXT +%s`
        for (text, seconds) in [
            ("Sun, 06 Nov 1994 08:49:37 GMT", 784_111_777),
            ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
            ("Thu, 29 Feb 2024 12:00:00 GMT", 1_709_208_000),
            ("Sat, 21 Nov 2026 02:00:00 GMT", 1_795_226_400),
        ] {
            assert_eq!(parse_http_date(text), Some(seconds), "{text}");
        }
        for text in [
            "",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun, 06 Nov 1994 25:49:37 GMT",
            "Sun, 00 Foo 1994 08:49:37 GMT",
        ] {
            assert_eq!(parse_http_date(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_can_be_read(text in ".{0,40}") {
            parse_http_date(&text);
        }
    }
}
