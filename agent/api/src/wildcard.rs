//! Patterns of people, in which `*` stands for anything.

/// Whether the whole of `text` is so.
pub fn fits(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| text.strip_prefix(first)) else {
        return false;
    };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else {
        return rest.is_empty();
    };
    for part in parts {
        match rest.split_once(part) {
            Some((_, after)) => rest = after,
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_fits_as_shells_have_it() {
        for (pattern, text, holds) in [
            ("os-*", "os-6.9", true),
            ("*", "", true),
            ("a*b*c", "aXbYc", true),
            ("a*b", "aXbY", false),
            ("a", "ab", false),
            ("a*a", "a", false),
        ] {
            assert_eq!(fits(pattern, text), holds, "{pattern} {text}");
        }
    }
}
