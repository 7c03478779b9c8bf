//! Which bytes of a file a request wants (RFC 9110 sections 13 and 14): pure.

use http::{HeaderMap, header};

/// The answer's kind with the bytes to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeReply {
    /// 200
    Whole,
    /// 206, `first` to `last` both included.
    Part { first: u64, last: u64 },
    /// 304
    NotModified,
    /// 416
    Unsatisfiable,
}

/// `etag` with its quotes. Several ranges in one request are answered with the whole file, which is allowed.
pub fn plan_range(headers: &HeaderMap, length: u64, etag: &str) -> RangeReply {
    let text = |name| {
        headers
            .get(name)
            .and_then(|value: &http::HeaderValue| value.to_str().ok())
    };
    if let Some(known) = text(header::IF_NONE_MATCH)
        && known
            .split(',')
            .any(|tag| tag.trim() == etag || tag.trim() == "*")
    {
        return RangeReply::NotModified;
    }
    let Some(range) = text(header::RANGE) else {
        return RangeReply::Whole;
    };
    // Another ETag, or a date, which we do not give: the client's part is of another file.
    if text(header::IF_RANGE).is_some_and(|tag| tag.trim() != etag) {
        return RangeReply::Whole;
    }
    parse_range(range, length).unwrap_or(RangeReply::Whole)
}

fn parse_range(range: &str, length: u64) -> Option<RangeReply> {
    let (first, last) = range.strip_prefix("bytes=")?.split_once('-')?;
    let number = |text: &str| text.trim().parse::<u64>().ok();
    let (first, last) = match (first.trim(), last.trim()) {
        ("", suffix) => (
            length.saturating_sub(number(suffix)?),
            length.saturating_sub(u64::from(number(suffix)? > 0)),
        ),
        (first, "") => (number(first)?, u64::MAX),
        (first, last) => (number(first)?, number(last)?),
    };
    if first > last {
        return None;
    }
    if first >= length {
        return Some(RangeReply::Unsatisfiable);
    }
    Some(RangeReply::Part {
        first,
        last: last.min(length - 1),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn ask(pairs: &[(header::HeaderName, &str)]) -> RangeReply {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.insert(name, value.parse().unwrap());
        }
        plan_range(&headers, 1000, "\"a\"")
    }

    #[test]
    fn ranges_are_cut_to_the_file() {
        for (range, expected) in [
            ("bytes=0-99", RangeReply::Part { first: 0, last: 99 }),
            (
                "bytes=990-2000",
                RangeReply::Part {
                    first: 990,
                    last: 999,
                },
            ),
            (
                "bytes=999-",
                RangeReply::Part {
                    first: 999,
                    last: 999,
                },
            ),
            (
                "bytes=-1",
                RangeReply::Part {
                    first: 999,
                    last: 999,
                },
            ),
            (
                "bytes=-5000",
                RangeReply::Part {
                    first: 0,
                    last: 999,
                },
            ),
            ("bytes=-0", RangeReply::Unsatisfiable),
            ("bytes=1000-", RangeReply::Unsatisfiable),
            ("bytes=5-2", RangeReply::Whole),
            ("bytes=0-1,5-6", RangeReply::Whole),
            ("bytes=a-b", RangeReply::Whole),
            ("bytes=-", RangeReply::Whole),
            ("lines=1-2", RangeReply::Whole),
            ("bytes=0-99999999999999999999", RangeReply::Whole),
        ] {
            assert_eq!(ask(&[(header::RANGE, range)]), expected, "{range}");
        }
    }

    proptest::proptest! {
        #[test]
        fn every_part_lies_in_the_file(range in "(bytes)?=?[0-9, -]{0,45}|.{0,30}", length in 0..3000_u64) {
            let headers = match range.parse() {
                Ok(range) => HeaderMap::from_iter([(header::RANGE, range)]),
                Err(_) => HeaderMap::new(),
            };
            if let RangeReply::Part { first, last } = plan_range(&headers, length, "\"a\"") {
                proptest::prop_assert!(first <= last && last < length);
            }
        }

        #[test]
        fn a_range_is_what_it_says(first in 0..2000_u64, more in 0..2000_u64) {
            let asked = format!("bytes={first}-{}", first + more);
            let expected = match first {
                0..1000 => RangeReply::Part { first, last: (first + more).min(999) },
                _ => RangeReply::Unsatisfiable,
            };
            proptest::prop_assert_eq!(ask(&[(header::RANGE, &asked)]), expected);
        }
    }

    #[test]
    fn a_part_of_another_version_is_never_sent() {
        let range = (header::RANGE, "bytes=1-2");
        assert_eq!(
            ask(&[range.clone(), (header::IF_RANGE, "\"a\"")]),
            RangeReply::Part { first: 1, last: 2 }
        );
        assert_eq!(
            ask(&[range.clone(), (header::IF_RANGE, "\"b\"")]),
            RangeReply::Whole
        );
        assert_eq!(
            ask(&[range, (header::IF_RANGE, "Sat, 21 Nov 2026 00:00:00 GMT")]),
            RangeReply::Whole
        );
        assert_eq!(
            ask(&[(header::IF_NONE_MATCH, "\"b\", \"a\"")]),
            RangeReply::NotModified
        );
    }
}
