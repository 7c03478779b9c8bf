#![allow(clippy::unwrap_used)]

use super::*;

#[test]
fn versions_are_compared_number_by_number() {
    for (less, more) in [
        ("os-6.9", "os-6.10"),
        ("6.11.4-301.fc41", "6.12.9-200.fc41"),
        ("6.1", "6.1.1"),
        ("6.1-rc1", "6.1-1"),
        ("a", "b"),
    ] {
        assert_eq!(by_version(less, more), Ordering::Less, "{less} {more}");
        assert_eq!(by_version(more, less), Ordering::Greater, "{less} {more}");
    }
    assert_eq!(by_version("6.1-a", "6.1_a"), Ordering::Equal);
}
