//! GRUB's environment block: 1024 bytes of `name=value` lines, filled up with `#`.

/// Names and values, in order.
pub fn parse(text: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let Some((name, value)) = line.split_once('=') else {
            continue;
        };
        let mut plain = String::new();
        let mut letters = value.chars();
        while let Some(letter) = letters.next() {
            plain.extend(match letter {
                '\\' => letters.next(),
                letter => Some(letter),
            });
        }
        found.push((name.to_owned(), plain));
    }
    found
}
