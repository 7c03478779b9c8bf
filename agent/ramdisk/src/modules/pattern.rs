//! Matching a device's modalias against a module's alias: `fnmatch(3)` without flags, on bytes.

/// `*`, `?`, `[a-z]`, `[!a-z]`; a backslash takes the next byte as it is. A bracket that never closes is a plain `[`.
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    // Where to go on when a later byte fails: after the last `*`, one byte of text further.
    let mut retry: Option<(usize, usize)> = None;
    loop {
        if pattern.get(p) == Some(&b'*') {
            p += 1;
            retry = Some((p, t));
            continue;
        }
        let step = match (pattern.get(p), text.get(t)) {
            (None, None) => return true,
            (Some(_), Some(byte)) => match_one(&pattern[p..], *byte),
            _ => None,
        };
        match (step, retry) {
            (Some(length), _) => {
                p += length;
                t += 1;
            }
            (None, Some((after_star, from))) if from < text.len() => {
                p = after_star;
                t = from + 1;
                retry = Some((after_star, t));
            }
            _ => return false,
        }
    }
}

/// Length of the pattern's first item if it matches `byte`.
fn match_one(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern {
        [b'?', ..] => Some(1),
        [b'\\', escaped, ..] => (*escaped == byte).then_some(2),
        [b'[', rest @ ..] => match match_set(rest, byte) {
            Some((length, inside)) => inside.then_some(length + 1),
            None => (byte == b'[').then_some(1),
        },
        [plain, ..] => (*plain == byte).then_some(1),
        [] => None,
    }
}

/// The set after a `[`: its length with the closing bracket, and whether it contains `byte`.
fn match_set(set: &[u8], byte: u8) -> Option<(usize, bool)> {
    let negated = matches!(set.first(), Some(b'!' | b'^'));
    let mut at = usize::from(negated);
    let mut inside = false;
    let first = at;
    loop {
        let low = *set.get(at)?;
        if low == b']' && at > first {
            return Some((at + 1, inside != negated));
        }
        let range = (set.get(at + 1) == Some(&b'-'))
            .then(|| set.get(at + 2))
            .flatten()
            .filter(|high| **high != b']');
        if let Some(high) = range {
            inside |= (low..=*high).contains(&byte);
            at += 3;
        } else {
            inside |= low == byte;
            at += 1;
        }
    }
}

/// The part of a pattern before its first special byte.
pub fn literal_prefix(pattern: &str) -> &str {
    pattern
        .find(['*', '?', '[', '\\'])
        .map_or(pattern, |at| &pattern[..at])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fnmatch(pattern: &str, text: &str) -> bool {
        matches(pattern.as_bytes(), text.as_bytes())
    }

    #[test]
    fn patterns_of_real_modules_match_real_devices() {
        let e1000e = "pci:v00008086d000010D3sv*sd*bc*sc*i*";
        assert!(fnmatch(
            e1000e,
            "pci:v00008086d000010D3sv00008086sd00000000bc02sc00i00"
        ));
        assert!(!fnmatch(
            e1000e,
            "pci:v00008086d000010D4sv00008086sd00000000bc02sc00i00"
        ));
        assert!(fnmatch(
            "pci:v*d*sv*sd*bc0Csc03i30*",
            "pci:v00001B36d0000000Dsv00001AF4sd00001100bc0Csc03i30"
        ));
        let storage = "usb:v*p*d*dc*dsc*dp*ic08isc06ip50in*";
        assert!(fnmatch(
            storage,
            "usb:v46F4p0001d0000dc00dsc00dp00ic08isc06ip50in00"
        ));
        assert!(!fnmatch(
            storage,
            "usb:v46F4p0001d0000dc00dsc00dp00ic03isc00ip00in00"
        ));
        assert!(fnmatch("virtio:d00000002v*", "virtio:d00000002v00001AF4"));
        assert!(fnmatch(
            "usb:v0D96p5200d000[1-9]dc*",
            "usb:v0D96p5200d0007dc00"
        ));
        assert!(!fnmatch(
            "usb:v0D96p5200d000[1-9]dc*",
            "usb:v0D96p5200d0000dc00"
        ));
        assert!(fnmatch(
            "usb:v04CEp0002d026[0-9A-B]dc*",
            "usb:v04CEp0002d026Bdc00"
        ));
    }

    #[test]
    fn the_corners_of_fnmatch_hold() {
        for (pattern, text, expected) in [
            ("", "", true),
            ("*", "", true),
            ("**a", "ba", true),
            ("a*b*c", "aXbXbc", true),
            ("a*b*c", "aXbXb", false),
            ("?", "", false),
            ("[]]", "]", true),
            ("[!a]", "b", true),
            ("[!a]", "a", false),
            ("[a-]", "-", true),
            ("[a", "[a", true),
            ("[a", "a", false),
            ("\\*", "*", true),
            ("\\*", "x", false),
            ("ab", "abc", false),
        ] {
            assert_eq!(fnmatch(pattern, text), expected, "{pattern} on {text}");
        }
    }

    /// The definition, without any cleverness: slow, and easy to check by reading.
    fn reference(pattern: &[u8], text: &[u8]) -> bool {
        match pattern {
            [] => text.is_empty(),
            [b'*', rest @ ..] => (0..=text.len()).any(|skip| reference(rest, &text[skip..])),
            _ => match text {
                [] => false,
                [byte, left @ ..] => match_one(pattern, *byte)
                    .is_some_and(|length| reference(&pattern[length..], left)),
            },
        }
    }

    proptest! {
        #[test]
        fn agrees_with_the_definition(pattern in "[ab*?\\[\\]!-]{0,8}", text in "[ab\\[-]{0,8}") {
            prop_assert_eq!(fnmatch(&pattern, &text), reference(pattern.as_bytes(), text.as_bytes()));
        }

        #[test]
        fn a_match_always_begins_with_the_literal_prefix(pattern in "[ab*?]{0,6}", text in "[ab]{0,6}") {
            if fnmatch(&pattern, &text) {
                prop_assert!(text.starts_with(literal_prefix(&pattern)));
            }
        }
    }
}
